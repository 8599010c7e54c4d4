"""``foldlog recent``: list conversations by attribute and by last activity."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.cells import cell_len

from foldlog.cli import terminal
from foldlog.cli.histories.attributes import pairs
from foldlog.cli.options import DEFAULT_DB, AsJson, Db
from foldlog.cli.outcome import DONE
from foldlog.cli.stores import open_existing
from foldlog.cli.tables import padded
from foldlog.eventstore import RecentConversation
from foldlog.eventstore.log.keys import SET_A_KEY
from foldlog.histories import Histories
from foldlog.words.gist import count

_OTHERS = 36
"""Columns for the time and some of the attributes, beside an id."""


def run(
    attributes: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Attributes to have.", show_default="any")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Conversations to list.")] = 100,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> int:
    """List the conversations that have all of these attributes, the last active first.

    The first list of a store reads each conversation once; later ones read those with new events.

    Example: foldlog recent project=tides --limit 10
    """
    with open_existing(db) as store, terminal.working("listing"):
        found = Histories(store).list(pairs(attributes or ()), limit=limit, age_max_s=0)
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
                        "needs_key": one.attributes is None,
                    }
                    for one in found.conversations
                ],
            }
        )
    elif found.conversations:
        _show(found.conversations)
    else:
        terminal.console().print("No conversation has all of these attributes." if attributes else "No conversations.")
    locked = sum(one.attributes is None for one in found.conversations)
    if locked:
        terminal.warn(
            f"the attributes of {count(locked, 'conversation')} are encrypted, and the key is not given; {SET_A_KEY}"
        )
    return DONE


def _show(conversations: Sequence[RecentConversation]) -> None:
    lines = terminal.PrintedLines()
    names = [terminal.typed_id(one.id) for one in conversations]
    widths = [width for width in map(cell_len, ["conversation", *names]) if width <= lines.width - _OTHERS]
    widest = max(widths, default=0)
    lines.write((f"recorded (UTC)    {padded('conversation', widest)}  attributes", "bold"))
    for one, name in zip(conversations, names, strict=True):
        said = "none" if one.attributes is not None else "encrypted"
        said = json.dumps(one.attributes, ensure_ascii=False) if one.attributes else said
        if cell_len(name) > widest:  # on a line of its own, whole, so that it can be copied
            lines.write_plain(name)
            name = ""
        lines.write(
            (f"{one.active_at:%Y-%m-%d %H:%M}  ", "dim"),
            (f"{padded(name, widest)}  ", "bold"),
            (terminal.printable(said, one_line=True), ""),
        )
