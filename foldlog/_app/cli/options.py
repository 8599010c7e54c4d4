"""Options and arguments that commands share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

import click

from foldlog._app.cli import terminal
from foldlog._app.cli.command_line import (
    EVENT_SETTINGS as EVENT_SETTINGS,
    Decorated,
    WholeNumber as WholeNumber,
    argument as argument,
    complete_from as complete_from,
    flag as flag,
    option as option,
)
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.hints import DEFAULT_DB, PROGRAM_DB, default_db, program_db, use_store
from foldlog.eventstore import EventStoreError
from foldlog.eventstore.files.targets import check_target

Named = TypeVar("Named", Path, str)

LISTED_MAX = 100
"""The default number of conversations in a list for people. A longer list ends with a note."""


def complete_id(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids that complete a word in a shell. Return no ids if the store cannot be
    opened.
    """
    from foldlog._app.cli.stores import open_existing
    from foldlog.projections.conversations.companions import ids_from

    try:
        with open_existing(str(ctx.params.get("db") or default_db())) as store:
            return list(islice(ids_from(store, incomplete), 50))
    except (EventStoreError, Refused):
        return []


def _store_option(shown: str, default: Callable[[], str]) -> Callable[[Decorated], Decorated]:
    """Return the option ``--db``. The help shows ``shown``, and ``default`` returns the store of a
    command without ``--db``.
    """

    def choose(ctx: click.Context, param: click.Parameter, db: str) -> str:
        source = ctx.get_parameter_source("db")
        is_default = source is not None and source.name == "DEFAULT"
        return name_store(ctx, param, default() if is_default else db)

    return option(
        "--db",
        "STORE",
        "The store: a file, such as history.db, or a URL.",
        envvar="FOLDLOG_DB",
        show_envvar=True,
        default=shown,
        callback=choose,
    )


def name_store(ctx: click.Context, param: click.Parameter, db: str) -> str:
    """Note the store of an option, so that commands in messages name it."""
    use_store(db)
    return db


db_option = _store_option(DEFAULT_DB, default_db)
db_to_replace_option = _store_option(DEFAULT_DB, lambda: DEFAULT_DB)
"""Without ``--db``, the command must not replace the store of the user's coding agents."""
program_db_option = _store_option(PROGRAM_DB, program_db)
json_option = flag(
    "--json",
    "Print one JSON document, for programs.",
    expose_value=False,
    callback=lambda ctx, param, as_json: terminal.print_json(as_json=as_json),
)


def store_options(run: Decorated) -> Decorated:
    """Add the options ``--db`` and ``--json``."""
    return db_option(json_option(run))


conversation_argument = argument(
    "conversation", "ID", "The conversation.", shell_complete=complete_id
)
conversations_argument = argument(
    "conversations",
    "ID",
    "The conversations.",
    nargs=-1,
    shell_complete=complete_id,
    show_default="all of them",
)
no_vacuum_option = flag(
    "--no-vacuum", "Leave the erased bytes in the store until 'foldlog store vacuum' removes them."
)
prices_option = option(
    "--prices",
    "FILE",
    "A JSON file with prices of models, in the form of litellm's table. Prices in "
    "this file replace prices of an installed table.",
    show_default="the table of litellm, or of genai-prices",
)
wait_option = flag("--wait", "Count all new events first, however long it takes.")
detach_option = flag("--detach", "Keep the forks: first copy the shared events into each fork.")
with_children_option = flag(
    "--with-children", "Also the sub-agents of the conversations, and their sub-agents."
)
redact_secrets_option = flag(
    "--redact-secrets",
    "Redact records that contain keys and tokens: import them without their texts.",
)
yes_option = flag("--yes", "Do not ask. For scripts.")
from_option = option(
    "--from start",
    "ID",
    "The conversation at which to continue an interrupted run. That run has printed it.",
    default="",
    show_default=False,
)


reason_option = partial(
    option,
    "--reason",
    "TEXT",
    "The reason, which is stored in the receipt or the tombstone.",
)
older_than_option = partial(
    option,
    "--older-than",
    "TIME",
    "Only what was recorded before this time, such as 2026-03-01 or 90d. Units are s, m (minutes),"
    " h, d and w. An imported conversation is as old as the last import that added records to it.",
)


# -- files to write: --force replaces a file but not a store, and "-" is not a file name -----------

force_option = flag("--force", "Replace the file if it exists.", is_eager=True)


def _checked_output(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """Return the path of an output file, checked before the command begins. Raises ``Refused``."""
    if path is not None and not ctx.resilient_parsing:
        new_file(ctx, param, path)
        check_output(path, force=ctx.params["force"])
    return path


output_option = partial(option, metavar="FILE", callback=_checked_output)
"""An option that names a file to write. A command with this option must also have the option
``--force``.
"""


def new_file(ctx: click.Context, param: click.Parameter, path: Named | None) -> Named | None:
    """Return ``path``. Refuse ``-`` and names that begin with it, because the command cannot write
    to stdout here.
    """
    if str(path).startswith("-"):
        name = f"{param.opts[0]} FILE" if param.opts[0].startswith("-") else param.metavar
        raise Refused(
            f"{path} is not the name of a file, and this command cannot write to stdout; name a"
            f" file: {name}"
        )
    return path


def check_output(path: Path, *, force: bool) -> None:
    """Raise ``Refused`` if the file ``path`` exists without ``force``, or if its folder does not
    exist. An existing device or pipe is accepted.

    Raise ``InvalidOption`` if ``path`` is a folder, a database or the log of a database.
    """
    check_target(path)
    if not path.parent.is_dir():
        raise Refused(f"the folder {path.parent} of {path} does not exist; name another file")
    if not force and (path.is_file() or (path.is_symlink() and not path.exists())):
        raise Refused(f"{path} exists; choose another name, or replace the file with --force")
