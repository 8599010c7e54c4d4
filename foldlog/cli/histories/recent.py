"""``foldlog recent``: list conversations by attribute and by last activity."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from foldlog.cli import terminal
from foldlog.cli.histories.attributes import pairs
from foldlog.cli.options import DEFAULT_DB, AsJson, Db
from foldlog.cli.outcome import DONE
from foldlog.cli.stores import open_existing
from foldlog.histories import Histories


def run(
    attributes: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Attributes to have.", show_default="any")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Conversations to list.")] = 100,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> int:
    """List the conversations that have all of these attributes, the last active first.

    Example: foldlog recent project=tides --limit 10
    """
    with open_existing(db) as store:
        found = Histories(store).recent(pairs(attributes or ()), limit=limit, age_max_s=0)
    if as_json:
        terminal.emit(
            {
                "as_of": found.as_of.isoformat(),
                "conversations": [
                    {
                        "conversation": one.id,
                        "version": one.version,
                        "created_at": one.created_at.isoformat(),
                        "active_at": one.active_at.isoformat(),
                        "attributes": one.attributes,
                    }
                    for one in found.conversations
                ],
            }
        )
        return DONE
    if not found.conversations:
        terminal.console().print("No conversation has all of these attributes." if attributes else "No conversations.")
    lines = terminal.PrintedLines()
    if found.conversations:
        lines.write(("recorded (UTC)    conversation  attributes", "bold"))
    for one in found.conversations:
        said = "none" if one.attributes is not None else "encrypted"
        said = json.dumps(one.attributes, ensure_ascii=False) if one.attributes else said
        lines.write(
            (f"{one.active_at:%Y-%m-%d %H:%M}  ", "dim"),
            (f"{terminal.printable(one.id, one_line=True)}  ", "bold"),
            (terminal.printable(said, one_line=True), ""),
        )
    return DONE
