"""Options and arguments that commands share."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from foldlog._cli.hints import DEFAULT_DB as DEFAULT_DB, use_store
from foldlog._cli.outcome import Refused
from foldlog._whole_file import check_target

Named = TypeVar("Named", Path, str)

LISTED_MAX = 100
"""A list for people has this many conversations by default, and says how many there are."""


def completed(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the id of a conversation in a shell. Return nothing if the store cannot be
    opened.
    """
    from foldlog._cli.stores import open_existing
    from foldlog._companions import ids_from
    from foldlog.eventstore import EventStoreError

    try:
        with open_existing(str(ctx.params.get("db") or DEFAULT_DB)) as store:
            return list(islice(ids_from(store, incomplete), 50))
    except EventStoreError:
        return []


Db = Annotated[
    str,
    typer.Option(
        "--db",
        envvar="FOLDLOG_DB",
        metavar="STORE",
        callback=use_store,
        help="The store: a file, such as history.db, or a URL.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]
ConversationId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="The conversation.", show_default=False, autocompletion=completed
    ),
]
EVENT_SETTINGS = {"ignore_unknown_options": True}
"""Accept the id of a summary, which begins with a minus, as an argument."""
NoVacuum = Annotated[
    bool,
    typer.Option(
        "--no-vacuum",
        help="Leave its bytes in the store until 'foldlog store vacuum' removes them.",
    ),
]
PricesFile = Annotated[
    Path | None,
    typer.Option(
        "--prices",
        metavar="FILE",
        help=(
            "JSON with prices of models in the form of litellm's table. It comes before an"
            " installed table."
        ),
        show_default="the table of litellm, or of genai-prices",
    ),
]
REASON = typer.Option(
    "--reason", metavar="TEXT", help="Why: the receipt or the tombstone keeps it."
)
"""Of what goes for good, which keeps a receipt or a tombstone."""
OLDER_THAN = typer.Option(
    "--older-than",
    metavar="TIME",
    help=(
        "What was recorded before: 90d (or s, m: minutes, h, w), 2026-03-01. What was imported is"
        " as old as the last import that added to it."
    ),
)
Detach = Annotated[
    bool,
    typer.Option("--detach", help="First give each of their forks a copy of the shared events."),
]
RedactSecrets = Annotated[
    bool,
    typer.Option(
        "--redact-secrets", help="Keep records out that hold keys and tokens, as if redacted."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask. For scripts.")]
SomeConversations = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ID",
        help="The conversations.",
        show_default="all of them",
        autocompletion=completed,
    ),
]

From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="ID",
        help="Go on from this conversation, where an interrupted run says so.",
    ),
]

# -- files to write: one that exists is replaced only with --force, a store never, and - is not a
# name ----------------

Force = Annotated[
    # read before the file is
    bool,
    typer.Option("--force", help="Replace the file if it exists.", is_eager=True),
]


def output_option(*names: str, help: str, show_default: bool | str = True) -> Any:
    """Return an option that names a file to write. Its command takes ``Force`` too."""
    return typer.Option(
        *names, metavar="FILE", help=help, show_default=show_default, callback=_output
    )


def _output(ctx: typer.Context, param: typer.CallbackParam, path: Path | None) -> Path | None:
    """Check the file that an option names, before the work. Return it."""
    if path is not None and not ctx.resilient_parsing:
        new_file(param, path)
        check_output(path, force=ctx.params["force"])
    return path


def new_file(param: typer.CallbackParam, path: Named | None) -> Named | None:
    """Check that an option or argument names a file or a store, which the command itself makes or
    knows. Return it.
    """
    if str(path).startswith("-"):
        option = f"{param.opts[0]} FILE" if param.opts[0].startswith("-") else param.metavar
        raise Refused(
            f"{path} is not the name of a file, and stdout cannot be used here; name a file:"
            f" {option}"
        )
    return path


def check_output(path: Path, *, force: bool) -> None:
    """Raise ``Refused`` if ``path`` exists, unless it is a device or a pipe, or ``force`` is given,
    and if its folder does not; and ``InvalidOption`` if it is a folder, a database or its log.
    """
    check_target(path)
    if not path.parent.is_dir():
        raise Refused(f"{path} has no folder {path.parent}; name another file")
    if not force and (path.is_file() or (path.is_symlink() and not path.exists())):
        raise Refused(f"{path} exists; choose another name, or replace the file with --force")
