"""Options and arguments that commands share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import click

from foldlog._cli.command_line import argument
from foldlog._cli.hints import (
    DEFAULT_DB as DEFAULT_DB,
    PROGRAM_DB as PROGRAM_DB,
    default_db,
    program_db,
    use_store,
)
from foldlog._cli.outcome import Refused
from foldlog._files.whole_file import check_target
from foldlog.eventstore import EventStoreError

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Named = TypeVar("Named", Path, str)

LISTED_MAX = 100
"""The default number of conversations in a list for people. A longer list ends with a note."""


def complete_id(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids that complete a word in a shell. Return no ids if the store cannot be
    opened.
    """
    from foldlog._cli.stores import open_existing
    from foldlog._conversations.companions import ids_from

    try:
        with open_existing(str(ctx.params.get("db") or default_db())) as store:
            return list(islice(ids_from(store, incomplete), 50))
    except EventStoreError:
        return []


def _store_option(shown: str, default: Callable[[], str]) -> Callable[[Decorated], Decorated]:
    """Return the option ``--db``. The help shows ``shown``, and ``default`` returns the store of a
    command without ``--db``.
    """

    def choose(ctx: click.Context, param: click.Parameter, db: str) -> str:
        return choose_store(ctx, db, default)

    return click.option(
        "--db",
        envvar="FOLDLOG_DB",
        show_envvar=True,
        metavar="STORE",
        default=shown,
        callback=choose,
        help="The store: a file, such as history.db, or a URL.",
    )


def choose_store(ctx: click.Context, db: str, default: Callable[[], str]) -> str:
    source = ctx.get_parameter_source("db")
    is_default = source is not None and source.name == "DEFAULT"
    chosen = default() if is_default else db
    use_store(chosen)
    return chosen


def name_store(ctx: click.Context, param: click.Parameter, db: str) -> str:
    use_store(db)
    return db


db_option = _store_option(DEFAULT_DB, default_db)
db_to_replace_option = _store_option(DEFAULT_DB, lambda: DEFAULT_DB)
"""Without ``--db``, the command must not replace the store of the user's coding agents."""
program_db_option = _store_option(PROGRAM_DB, program_db)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document, for programs."
)
conversation_argument = argument(
    "conversation", metavar="ID", shell_complete=complete_id, help="The conversation."
)
conversations_argument = argument(
    "conversations",
    metavar="ID",
    nargs=-1,
    shell_complete=complete_id,
    show_default="all of them",
    help="The conversations.",
)
no_vacuum_option = click.option(
    "--no-vacuum",
    is_flag=True,
    help="Leave the erased bytes in the store until 'foldlog store vacuum' removes them.",
)
prices_option = click.option(
    "--prices",
    metavar="FILE",
    type=Path,
    show_default="the table of litellm, or of genai-prices",
    help=(
        "A JSON file with prices of models, in the form of litellm's table. Prices in "
        "this file replace prices of an installed table."
    ),
)
detach_option = click.option(
    "--detach",
    is_flag=True,
    help="Keep the forks: first copy the shared events into each fork.",
)
with_children_option = click.option(
    "--with-children",
    is_flag=True,
    help="Also the sub-agents of the conversations, and their sub-agents.",
)
redact_secrets_option = click.option(
    "--redact-secrets",
    is_flag=True,
    help="Redact records that contain keys and tokens: import them without their texts.",
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask. For scripts.")
from_option = click.option(
    "--from",
    "start",
    metavar="ID",
    default="",
    show_default=False,
    help="The conversation at which to continue an interrupted run. That run has printed it.",
)


def reason_option(default: str | None = None) -> Callable[[Decorated], Decorated]:
    """Return the option for the reason of an erasure or a redaction. Without a default, the option
    is required.
    """
    reason = partial(
        click.option,
        "--reason",
        metavar="TEXT",
        help="The reason, which is stored in the receipt or the tombstone.",
    )
    return reason(required=True) if default is None else reason(default=default)


def older_than_option(*, required: bool = False) -> Callable[[Decorated], Decorated]:
    return click.option(
        "--older-than",
        metavar="TIME",
        required=required,
        help=(
            "Only what was recorded before this time, such as 2026-03-01 or 90d. Units are s, m "
            "(minutes), h, d and w. An "
            "imported conversation is as old as the last import that added records to it."
        ),
    )


# -- files to write: --force replaces a file but not a store, and "-" is not a file name ---------

force_option = click.option(  # is_eager: read before the option for the file
    "--force", is_flag=True, is_eager=True, help="Replace the file if it exists."
)


def output_option(
    *names: str, help: str, show_default: str = "", required: bool = False
) -> Callable[[Decorated], Decorated]:
    """Return an option that names a file to write. A command with this option must also have the
    option ``--force``.
    """
    return click.option(
        *names,
        metavar="FILE",
        type=Path,
        required=required,
        callback=_checked_output,
        show_default=show_default or True,
        help=help,
    )


def _checked_output(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and not ctx.resilient_parsing:
        new_file(ctx, param, path)
        check_output(path, force=ctx.params["force"])
    return path


def new_file(ctx: click.Context, param: click.Parameter, path: Named | None) -> Named | None:
    """Return ``path``, but refuse ``-``, because the command cannot write to stdout here."""
    if str(path).startswith("-"):
        option = f"{param.opts[0]} FILE" if param.opts[0].startswith("-") else param.metavar
        raise Refused(
            f"{path} is not the name of a file, and this command cannot write to stdout; name a "
            f"file:"
            f" {option}"
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
