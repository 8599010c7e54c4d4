"""Options and arguments that commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from foldlog._cli.hints import DEFAULT_DB as DEFAULT_DB
from foldlog._cli.hints import use_store


def completed(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the id of a conversation in a shell. Return nothing if the store cannot be opened."""
    from foldlog._cli.stores import ids_from, open_existing
    from foldlog.eventstore import EventStoreError

    try:
        with open_existing(str(ctx.params.get("db") or DEFAULT_DB)) as store:
            return list(ids_from(store, incomplete, limit=50))
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
    typer.Argument(metavar="ID", help="The conversation.", show_default=False, autocompletion=completed),
]
EventId = Annotated[
    int, typer.Argument(metavar="EVENT", help="Its id; the id of a summary is below -1.", show_default=False)
]
EVENT_SETTINGS = {"ignore_unknown_options": True}
"""Accept the id of a summary, which begins with a minus, as an argument."""
NoVacuum = Annotated[
    bool, typer.Option("--no-vacuum", help="Leave its bytes in the file until 'foldlog vacuum' removes them.")
]
SomeConversations = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="The conversations.", show_default="all of them", autocompletion=completed),
]
