"""The whole store in the order of positions: rows, and the events that they hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from foldlog.eventstore.errors import CorruptEvent, StoreDamaged
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.finding import tombstones_before, unreadable
from foldlog.eventstore.log.ledger import as_followed, erasure_of
from foldlog.eventstore.log.results import Recorded
from foldlog.eventstore.log.row import PLAIN, event_of, events_of_rows, from_microseconds
from foldlog.eventstore.log.seal import DAMAGED, RowCodec
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import PlacedRow, Row

_PAGE = 1_000


def follow(database: Database, after_position: int, limit: int | None) -> Iterator[Recorded]:
    """Yield the events after a position, read a page at a time: see ``Store.follow``."""
    most = _PAGE
    while limit is None or limit > 0:
        size = most if limit is None else min(most, limit)
        try:
            page = followed(database, after_position, size)
        except StoreDamaged as error:
            if size > 1:
                most = size // 2
                continue
            place = database.recorder.query(lambda reader: reader.place_after(after_position))  # noqa: B023
            if place is None:
                raise
            position, conversation, event_id = place
            raise unreadable(conversation, event_id, error, position) from error
        for each in recorded(page):
            if isinstance(each, CorruptEvent):
                raise each
            yield each
        if len(page) < size:
            return
        limit = None if limit is None else limit - size
        after_position = page[-1].position


def followed(database: Database, after_position: int, limit: int) -> Sequence[PlacedRow]:
    """Read rows as ``placed_rows``, in a read transaction of its own."""
    return database.recorder.query(
        partial(placed_rows, database, after_position=after_position, limit=limit)
    )


def placed_rows(
    database: Database, reader: Reader, after_position: int, limit: int
) -> Sequence[PlacedRow]:
    """Read rows, plain, in the order of positions; see ``RowCodec.decoded``."""
    placed = reader.placed_rows(after_position, limit)
    of: dict[tuple[str, bool], list[Row]] = {}
    for _, conversation, row, is_entry in placed:
        of.setdefault((conversation, is_entry), []).append(row)
    decoded = {which: iter(_decoded(database, reader, *which, rows)) for which, rows in of.items()}
    plain = [each._replace(row=next(decoded[each.conversation, each.is_entry])) for each in placed]
    return [
        _told_by_tombstone(reader, each) if each.is_entry and each.row.encoding == DAMAGED else each
        for each in plain
    ]


def _told_by_tombstone(reader: Reader, damaged: PlacedRow) -> PlacedRow:
    """Return the entry of an erasure, which its tombstone tells too; any other damaged entry as it
    is.
    """
    found = reader.conversation(damaged.conversation)
    tombstones = () if found is None else (*tombstones_before(reader, found), found)
    entry = erasure_of(tombstones, damaged.position)
    if entry is None:
        return damaged
    return damaged._replace(row=as_followed(entry))


def recorded(placed: Sequence[PlacedRow]) -> Iterator[Recorded | CorruptEvent]:
    """Yield the events of these rows, and in the place of an unreadable event the ``CorruptEvent``
    that names it.
    """
    rows = [each.row for each in placed]
    if rows and all(row.encoding == PLAIN for row in rows):
        events = events_of_rows(rows)
    else:
        events = None
    for number, (position, conversation, row, _) in enumerate(placed):
        try:
            if events is None:
                event = event_of(conversation, row, position)
            else:
                event = events[number]
        except CorruptEvent as error:
            yield error
        else:
            yield Recorded(position, conversation, from_microseconds(row.recorded_at), event)


def _decoded(
    database: Database, reader: Reader, conversation: str, is_entry: bool, stored: Sequence[Row]
) -> Sequence[Row]:
    if is_entry:
        return [as_followed(row) for row in RowCodec(conversation).decoded(stored)]
    # then it can read plain rows only, and these need no question
    if database.settings.keys is None:
        rows = RowCodec(conversation).decoded(stored)
        if not any(row.encoding == DAMAGED for row in rows):
            return rows
    found = database.find(reader, conversation, pending=True)
    if found is None:
        problem = b"the conversation that it belongs to does not exist"
        return [row.in_form(DAMAGED, problem) for row in stored]
    return database.codec_of(found).decoded(stored)
