"""Read the rows and events of the whole store, in the order of positions."""

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
from foldlog.eventstore.recorders.types import Conversation, PlacedRow, Row

_PAGE = 1_000


def follow(database: Database, after_position: int, limit: int | None) -> Iterator[Recorded]:
    """Yield the events after a position: see ``Store.follow``."""
    page_size = _PAGE
    while limit is None or limit > 0:
        size = page_size if limit is None else min(page_size, limit)
        try:
            page = read_placed_rows(database, after_position, size)
        except StoreDamaged as error:
            # Halve the page down to a single row, to find the event that cannot be read.
            if size > 1:
                page_size = size // 2
                continue
            next_row = database.recorder.query(lambda reader: reader.place_after(after_position))  # noqa: B023
            if next_row is None:
                raise
            position, conversation, event_id = next_row
            raise unreadable(conversation, event_id, error, position) from error
        for item in decode_placed(page):
            if isinstance(item, CorruptEvent):
                raise item
            yield item
        if len(page) < size:
            return
        limit = None if limit is None else limit - size
        after_position = page[-1].position


def read_placed_rows(database: Database, after_position: int, limit: int) -> Sequence[PlacedRow]:
    return database.recorder.query(
        partial(placed_rows, database, after_position=after_position, limit=limit)
    )


def placed_rows(
    database: Database, reader: Reader, after_position: int, limit: int
) -> Sequence[PlacedRow]:
    """Return the decrypted rows after a position. A damaged row has the encoding ``DAMAGED``."""
    placed = reader.placed_rows(after_position, limit)
    # Decode the rows of a conversation together, and then restore the order of positions.
    stored: dict[tuple[str, bool], list[Row]] = {}
    for _, conversation, row, is_entry in placed:
        stored.setdefault((conversation, is_entry), []).append(row)
    decoded = {
        owner: iter(_decode(database, reader, *owner, rows)) for owner, rows in stored.items()
    }
    plain = [item._replace(row=next(decoded[item.conversation, item.is_entry])) for item in placed]
    return [
        _restored_entry(reader, item) if item.is_entry and item.row.encoding == DAMAGED else item
        for item in plain
    ]


def _restored_entry(reader: Reader, damaged: PlacedRow) -> PlacedRow:
    """Return a damaged entry of the ledger as its conversation's tombstone describes it. If it is
    not the entry of an erasure, return it unchanged.
    """
    conversation = reader.conversation(damaged.conversation)
    tombstones: tuple[Conversation, ...] = ()
    if conversation is not None:
        tombstones = (*tombstones_before(reader, conversation), conversation)
    entry = erasure_of(tombstones, damaged.position)
    if entry is None:
        return damaged
    return damaged._replace(row=as_followed(entry))


def decode_placed(placed: Sequence[PlacedRow]) -> Iterator[Recorded | CorruptEvent]:
    """Yield the event of each row, or the error that it cannot be read."""
    rows = [item.row for item in placed]
    # Undamaged rows are decoded together, which takes less time.
    if rows and all(row.encoding == PLAIN for row in rows):
        events = events_of_rows(rows)
    else:
        events = None
    for index, (position, conversation, row, _) in enumerate(placed):
        try:
            if events is None:
                event = event_of(conversation, row, position)
            else:
                event = events[index]
        except CorruptEvent as error:
            yield error
        else:
            yield Recorded(position, conversation, from_microseconds(row.recorded_at), event)


def _decode(
    database: Database, reader: Reader, conversation: str, is_entry: bool, stored: Sequence[Row]
) -> Sequence[Row]:
    """Decode new rows of a conversation. If the conversation does not exist, return them as damaged
    rows. ``is_entry`` is true for entries of the ledger, which need no conversation.
    """
    if is_entry:
        return [as_followed(row) for row in RowCodec(conversation).decode_rows(stored)]
    # A store without keys reads only plain rows, and plain rows can be decoded without their
    # conversation.
    if database.settings.keys is None:
        rows = RowCodec(conversation).decode_rows(stored)
        if not any(row.encoding == DAMAGED for row in rows):
            return rows
    state = database.find(reader, conversation, as_stored=True)
    if state is None:
        problem = b"the conversation that it belongs to does not exist"
        return [row.in_form(DAMAGED, problem) for row in stored]
    return database.codec_of(state).decode_rows(stored)
