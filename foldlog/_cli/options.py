"""Options and arguments that commands share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from foldlog._cli.hints import (
    DEFAULT_DB as DEFAULT_DB,
    PROGRAM_DB as PROGRAM_DB,
    default_db,
    program_db,
    use_store,
)
from foldlog._cli.outcome import Refused
from foldlog._whole_file import check_target

Named = TypeVar("Named", Path, str)

LISTED_MAX = 100
"""The default number of conversations in a list for people. A longer list ends with a note."""


def complete_id(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the ids that complete a word in a shell. Return no ids if the store cannot be
    opened.
    """
    from foldlog._cli.stores import open_existing
    from foldlog._companions import ids_from
    from foldlog.eventstore import EventStoreError

    try:
        with open_existing(str(ctx.params.get("db") or default_db())) as store:
            return list(islice(ids_from(store, incomplete), 50))
    except EventStoreError:
        return []


def _chosen(ctx: typer.Context, db: str) -> str:
    return choose_store(ctx, db, default_db)


def _chosen_to_replace(ctx: typer.Context, db: str) -> str:
    # Without --db, the command must not replace the store of the user's coding agents.
    return choose_store(ctx, db, lambda: DEFAULT_DB)


def _chosen_by_program(ctx: typer.Context, db: str) -> str:
    return choose_store(ctx, db, program_db)


def choose_store(ctx: typer.Context, db: str, default: Callable[[], str]) -> str:
    source = ctx.get_parameter_source("db")
    is_default = source is not None and source.name == "DEFAULT"
    chosen = default() if is_default else db
    use_store(chosen)
    return chosen


Db = Annotated[
    str,
    typer.Option(
        "--db",
        envvar="FOLDLOG_DB",
        metavar="STORE",
        callback=_chosen,
        help="The store: a file, such as history.db, or a URL.",
    ),
]
DbToReplace = Annotated[
    str,
    typer.Option(
        "--db",
        envvar="FOLDLOG_DB",
        metavar="STORE",
        callback=_chosen_to_replace,
        help="The store: a file, such as history.db, or a URL.",
    ),
]
ProgramDb = Annotated[
    str,
    typer.Option(
        "--db",
        envvar="FOLDLOG_DB",
        metavar="STORE",
        callback=_chosen_by_program,
        help="The store: a file, such as history.db, or a URL.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]
ConversationId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="The conversation.", show_default=False, autocompletion=complete_id
    ),
]
EVENT_SETTINGS = {"ignore_unknown_options": True}
"""Accepts an argument that begins with a minus, such as the id of a summary."""
NoVacuum = Annotated[
    bool,
    typer.Option(
        "--no-vacuum",
        help="Leave the erased bytes in the store until 'foldlog store vacuum' removes them.",
    ),
]
PricesFile = Annotated[
    Path | None,
    typer.Option(
        "--prices",
        metavar="FILE",
        help=(
            "A JSON file with prices of models, in the form of litellm's table. Prices in "
            "this file replace prices of an installed table."
        ),
        show_default="the table of litellm, or of genai-prices",
    ),
]
REASON = typer.Option(
    "--reason", metavar="TEXT", help="The reason, which is stored in the receipt or the tombstone."
)
"""The option for the reason of an erasure or a redaction."""
OLDER_THAN = typer.Option(
    "--older-than",
    metavar="TIME",
    help=(
        "Only what was recorded before this time, such as 2026-03-01 or 90d. Units are s, m "
        "(minutes), h, d and w. An "
        "imported conversation is as old as the last import that added records to it."
    ),
)
Detach = Annotated[
    bool,
    typer.Option("--detach", help="Keep the forks: first copy the shared events into each fork."),
]
RedactSecrets = Annotated[
    bool,
    typer.Option(
        "--redact-secrets",
        help="Redact records that contain keys and tokens: import them without their texts.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask. For scripts.")]
SomeConversations = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ID",
        help="The conversations.",
        show_default="all of them",
        autocompletion=complete_id,
    ),
]

From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="ID",
        help="The conversation at which to continue an interrupted run. That run has printed it.",
    ),
]

# -- files to write: --force replaces a file but not a store, and "-" is not a file name ---------

Force = Annotated[
    # typer reads this option before the option for the file.
    bool,
    typer.Option("--force", help="Replace the file if it exists.", is_eager=True),
]


def output_option(*names: str, help: str, show_default: bool | str = True) -> Any:
    """Return an option that names a file to write. A command with this option must also have the
    option ``Force``.
    """
    return typer.Option(
        *names, metavar="FILE", help=help, show_default=show_default, callback=_checked_output
    )


def _checked_output(
    ctx: typer.Context, param: typer.CallbackParam, path: Path | None
) -> Path | None:
    if path is not None and not ctx.resilient_parsing:
        new_file(param, path)
        check_output(path, force=ctx.params["force"])
    return path


def new_file(param: typer.CallbackParam, path: Named | None) -> Named | None:
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
