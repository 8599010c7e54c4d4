"""Make the commands that a message asks the user to run. Messages of other packages name a command
without its store, such as ``'foldlog store verify'``. ``complete_commands`` adds the store to the
command.
"""

from __future__ import annotations

import os
import re
from importlib.util import find_spec

DEFAULT_DB = "foldlog.db"
"""The store of a command without ``--db``, in the current folder."""
PROGRAM_DB = "~/.local/share/foldlog/foldlog.db"
"""The path of the user's store, as the help shows it. ``home_db`` returns the real path."""
DEMO_DB = "foldlog-demo.db"
"""The store that ``foldlog demo`` makes."""

# a command of foldlog in single quotes: its name, and its arguments, which may be quoted
_HINT = re.compile(r"""'foldlog ((?:store )?[a-z]+)((?: (?:"(?:\\.|[^"\\])*"|[^'" ])+)*)'""")
_PLAIN = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
"""A word that a shell reads as it is."""
_store: str | None = None
"""The store that commands in hints name."""


def home_folder() -> str:
    """Return the folder of the user's store."""
    return os.path.join(
        os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share"), "foldlog"
    )


def home_db() -> str:
    """Return the path of the user's store."""
    return os.path.join(home_folder(), "foldlog.db")


def default_db() -> str:
    """Return the store of a command without ``--db``: the store that ``FOLDLOG_DB`` names, or else
    ``foldlog.db`` in the current folder. If ``foldlog.db`` does not exist, but the user's store
    exists, return the user's store.
    """
    named = os.environ.get("FOLDLOG_DB")
    if named:
        return named
    if not os.path.exists(DEFAULT_DB) and os.path.exists(home_db()):
        return home_db()
    return DEFAULT_DB


def program_db() -> str:
    """Return the store of hooks and tools without ``--db``. A program may start hooks and tools in
    any folder, so they never use a store in the current folder.
    """
    return os.environ.get("FOLDLOG_DB") or home_db()


def make_folder_of(db: str) -> None:
    """If ``db`` is the user's store, create its folder. Do not create any other folder, because the
    name may be mistyped.
    """
    if db == home_db():
        os.makedirs(home_folder(), mode=0o700, exist_ok=True)


def use_store(db: str | None) -> str | None:
    """Remember the store, so that commands in later hints name it. Return ``db``. It is None if no
    store is known.
    """
    global _store
    _store = db
    return db


def store_in_use() -> str:
    """Name the store of the command for a message."""
    return "this store" if _store is None else f"the store {store_name(_store)}"


def prices_hint() -> str:
    """Say how a command learns the prices of models."""
    from foldlog.eventstore.errors import install_command

    has_table = find_spec("litellm") or find_spec("genai_prices")
    table = "" if has_table else f", or install a table of prices: {install_command('prices')}"
    return f"give --prices FILE{table}"


def store_name(db: str) -> str:
    """Return the name of a store for messages, without its password."""
    from foldlog.eventstore.recorders.urls import without_password

    return without_password(db)


def command(name: str, *arguments: object) -> str:
    """Return a command line for the store in use, as the user would type it."""
    return _complete(" ".join(["foldlog", name, *map(_word, map(str, arguments))]), name)


def complete_commands(message: str) -> str:
    """Add the store to each command that stands in single quotes in a message."""
    return _HINT.sub(lambda found: f"'{_complete(found[0][1:-1], found[1])}'", message)


def _complete(typed: str, name: str) -> str:
    """Return a command with the store in use, unless it names a store or needs none."""
    if _store is None or " --db " in typed or " --help" in typed:
        return typed
    named = _word(store_name(_store))
    if typed == "foldlog store copy --damaged":
        return f"foldlog store copy {named} NEW.db --damaged REST.jsonl"
    if name == "store copy":
        if typed.endswith(" TO"):
            return f"{typed.removesuffix('TO')}{named}"
        return typed
    if _store == default_db():
        return typed
    return f"{typed} --db {named}"


def _word(text: str) -> str:
    """Return an argument quoted for a shell. Single quotes are not used, because the message puts
    the command into single quotes.
    """
    if _PLAIN.fullmatch(text):
        return text
    return '"' + re.sub(r'(["\\$`])', r"\\\1", text) + '"'
