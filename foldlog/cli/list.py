"""``foldlog list``: which conversations there are."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foldlog.cli import terminal
from foldlog.cli.options import DEFAULT_DB, AsJson, Db
from foldlog.cli.outcome import DONE
from foldlog.cli.stores import open_existing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from eventstore import ConversationRow, Event, Store

    _Title = Callable[[ConversationRow], str | None]

__all__ = ["run"]

_ROOMY = 80
"""Columns of a terminal that shows all columns of the list."""

_PAGE = 1_000
"""Conversations that are laid out together: the widest number of events among them gives the width of that column."""

_GAP = "  "

_TITLE_WITHIN = 30
"""Events at either end among which a title is looked for."""


def run(
    titles: Annotated[
        bool, typer.Option("--titles", help="Show titles that sources give. Reads events of each conversation.")
    ] = False,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> int:
    """List the conversations of a store: id, number of events, times of the first and last event."""
    with open_existing(db) as store:
        rows = store.iter_conversations()
        title = partial(_title, store) if titles else None
        if as_json:
            terminal.emit_list({"db": db}, "conversations", (_as_json(row, title) for row in rows))
        else:
            _show(db, rows, title)
    return DONE


def _title(store: Store, row: ConversationRow) -> str | None:
    """Return the title that an event gives the conversation: the last of those among its first and last events."""
    from eventstore import EventStoreError

    if row.erased_at is not None:
        return None
    title = None
    try:
        for event in _near_the_ends(store, row):
            given = event.meta.get("title")
            title = given if isinstance(given, str) else title
    except EventStoreError:  # a damaged event: 'foldlog verify' says so, a list goes on
        return title
    return title


def _near_the_ends(store: Store, row: ConversationRow) -> Iterator[Event]:
    """Yield the first event, and of an imported history some more at either end: sources name a session there."""
    for first in store.events(row.id, 0, 1):
        yield first
        if first.origin is not None:
            yield from store.events(row.id, 1, _TITLE_WITHIN)
            yield from store.events(row.id, max(_TITLE_WITHIN, row.version - _TITLE_WITHIN), row.version)


def _as_json(row: ConversationRow, title: _Title | None) -> dict[str, Any]:
    return {
        "id": row.id,
        "version": row.version,
        "created_at": row.created_at.isoformat(),
        "updated_at": row.updated_at.isoformat(),
        "head": row.head,
        "erased_at": None if row.erased_at is None else row.erased_at.isoformat(),
        "erased_reason": row.erased_reason,
        **({"bytes_pending": True} if row.bytes_pending else {}),
        **({} if title is None else {"title": title(row)}),
    }


def _show(db: str, rows: Iterator[ConversationRow], title: _Title | None) -> None:
    from eventstore.urls import without_password

    page = list(islice(rows, _PAGE))
    if not page:
        where = terminal.printable(without_password(db))
        terminal.console().print(f"No conversations yet in {where}. Import some: foldlog import PATH")
        return
    lines = terminal.PrintedLines()
    roomy = lines.width >= _ROOMY
    heading = ["conversation", "events", *(["first recorded (UTC)"] if roomy else [])]
    heading.append("last recorded (UTC)" if roomy else "last")
    widths = [len(column) for column in heading]
    while page:
        cells = [_cells(row, roomy=roomy) for row in page]
        for column in range(1, len(widths)):
            widths[column] = max(widths[column], max(len(row[column]) for row in cells))
        widths[0] = max(1, lines.width - sum(widths[1:]) - len(_GAP) * (len(widths) - 1))
        if heading:
            _write(lines, heading, widths, "bold")
            heading.clear()
        for row, cell in zip(page, cells, strict=True):
            if row.erased_at is None and len(cell[0]) <= widths[0] and cell[0].isascii():
                lines.write_plain(_line(cell, widths))
            else:
                _write(lines, cell, widths, "dim" if row.erased_at is not None else "")
            if title is not None and (given := title(row)):
                lines.write((_GAP + terminal.printable(given, one_line=True), "dim"))
        page = list(islice(rows, _PAGE))


def _cells(row: ConversationRow, *, roomy: bool) -> list[str]:
    events = "erased" if row.erased_at is not None else f"{row.version:,}"
    name = terminal.printable(row.id, one_line=True)
    if roomy:
        return [name, events, _moment(row.created_at), _moment(row.updated_at)]
    return [name, events, str(row.updated_at.date())]


def _moment(at: datetime) -> str:
    return at.isoformat(" ", "seconds")[:19]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    name, events, *first, last = cells
    between = f"{first[0]:<{widths[2]}}{_GAP}" if first else ""
    return f"{name:<{widths[0]}}{_GAP}{events:>{widths[1]}}{_GAP}{between}{last}"


def _write(lines: terminal.PrintedLines, cells: Sequence[str], widths: Sequence[int], style: str) -> None:
    """Write one row. A name that is wider than its column goes on below."""
    name, *more = terminal.folded(cells[0], widths[0])
    figures = [
        cells[1].rjust(widths[1]),
        *(cell.ljust(width) for cell, width in zip(cells[2:], widths[2:], strict=True)),
    ]
    lines.write((name, style), (_GAP + _GAP.join(figures).rstrip(), "bold" if style == "bold" else ""))
    for part in more:
        lines.write((part.rstrip(), style))
