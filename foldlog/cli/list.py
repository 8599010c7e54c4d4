"""``foldlog list``: which conversations there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foldlog.cli import terminal
from foldlog.cli.options import DEFAULT_DB, AsJson, Db
from foldlog.cli.outcome import DONE
from foldlog.cli.stores import all_conversations, open_existing

if TYPE_CHECKING:
    from eventstore import ConversationRow

__all__ = ["run"]

_ROOMY = 80
"""Columns of a terminal that shows all there is to show."""


def run(db: Db = DEFAULT_DB, as_json: AsJson = False) -> int:
    """Show the conversations of a store: id, number of events, when the first and the last one were recorded."""
    with open_existing(db) as store:
        if as_json:
            terminal.emit_list({"db": db}, "conversations", map(_as_json, all_conversations(store)))
        else:
            _show(db, list(all_conversations(store)))
    return DONE


def _as_json(row: ConversationRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "version": row.version,
        "created_at": row.created_at.isoformat(),
        "updated_at": row.updated_at.isoformat(),
        "head": row.head,
        "erased_at": None if row.erased_at is None else row.erased_at.isoformat(),
        "erased_reason": row.erased_reason,
    }


def _show(db: str, rows: list[ConversationRow]) -> None:
    from rich.table import Table
    from rich.text import Text

    from eventstore.urls import without_password

    console = terminal.console()
    if not rows:
        where = terminal.printable(without_password(db))
        console.print(f"No conversations yet in {where}. Bring some in: foldlog import PATH")
        return
    roomy = console.width >= _ROOMY
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("conversation", overflow="fold", ratio=1)
    table.add_column("events", justify="right", no_wrap=True)
    if roomy:
        table.add_column("first recorded (UTC)", no_wrap=True)
    table.add_column("last recorded (UTC)" if roomy else "last", no_wrap=True)
    for row in rows:
        erased = row.erased_at is not None
        table.add_row(
            Text(terminal.printable(row.id, one_line=True), style="dim" if erased else ""),
            "erased" if erased else f"{row.version:,}",
            *([f"{row.created_at:%Y-%m-%d %H:%M:%S}"] if roomy else []),
            f"{row.updated_at:%Y-%m-%d %H:%M:%S}" if roomy else f"{row.updated_at:%Y-%m-%d}",
        )
    console.print(table)
