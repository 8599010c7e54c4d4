"""Import a history: compare the events that are stored, add the new ones, and publish all of them at once.

A history that fits one transaction is appended like any other batch. A longer one is staged: written in small
transactions on an invisible conversation, so that live appends never wait for it, and then published by one statement.
The tail of an existing conversation is added in chunks.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Protocol

from msgspec.structs import replace

from eventstore.codec import Encoded, encode
from eventstore.codec_json import size_of
from eventstore.errors import CorruptEvent, HistoryDiverged, VersionConflict
from eventstore.events import Event, Redaction
from eventstore.log.after_receipts import ids_moved
from eventstore.log.database import Database
from eventstore.log.origins import source_key
from eventstore.log.reading import find_again
from eventstore.log.redacted import can_be_redacted, without_content
from eventstore.log.row import (
    beginning_with_an_event,
    chained,
    from_microseconds,
    not_erased,
    numbered,
    stored_event_of,
)
from eventstore.log.staging import REST_S, delete_rows, discard_staged
from eventstore.log.staging import staged as staged_in
from eventstore.log.writing import WriteTransaction, begin_new
from eventstore.recorders.base import Reader, Transaction
from eventstore.recorders.errors import RecorderError
from eventstore.recorders.types import Conversation, Row

__all__ = ["CHUNK", "Ingestion"]

CHUNK = 1_000
"""The number of events in one transaction of an import. 1,000 events hold the write lock for some 10 to 50 ms."""

_CHUNK_BYTES = 8 * 2**20
_RECEIPT = "redaction"
"""The kind of the receipt of a redaction."""

_event = attrgetter("event")


class Project(Protocol):
    """Tell the inline projections about events that a transaction has just written."""

    def __call__(self, writing: WriteTransaction, events: Sequence[Event]) -> None: ...


class Ingestion:
    """One import of one history into one conversation."""

    def __init__(self, conversation: str, database: Database, project: Project, now: Callable[[], int]) -> None:
        self._conversation = conversation
        self._database = database
        self._recorder = database.recorder
        self._project = project
        self._now = now

    def run(self, history: Iterator[Encoded]) -> tuple[int, int]:
        """Return how many events were added, and the version. Raises ``HistoryDiverged``, ``ConversationErased``."""
        there = self._recorder.query(lambda reader: self._database.find(reader, self._conversation))
        found = beginning_with_an_event(not_erased(there))
        outcome = self._begin(history) if found is None else self._extend(found, history)
        discard_staged(self._recorder, self._conversation)
        return outcome

    def _begin(self, history: Iterator[Encoded]) -> tuple[int, int]:
        first = _chunk(history)
        if not first:
            return 0, 0
        second = _chunk(history)
        if not second:
            return self._recorder.transact(partial(self._append, chunk=first, at=0))
        return self._stage(first, second, history)

    # -- a conversation that is there ---------------------------------------------------------------------------------

    def _extend(self, found: Conversation, history: Iterator[Encoded]) -> tuple[int, int]:
        receipts = self._compare(found, history)
        added, version = 0, found.version
        if receipts is None:
            return added, version  # the history given is the beginning of what is stored
        tail = (ids_moved(encoded, receipts) for encoded in history) if receipts else history
        chunk = _chunk(tail)
        while chunk:
            count, version = self._recorder.transact(partial(self._append, chunk=chunk, at=version))
            added += count
            chunk = _rested(tail)
        return added, version

    def _compare(self, found: Conversation, history: Iterator[Encoded]) -> list[int] | None:
        """Compare the history with the stored events, and leave its new events. Return the ids of the receipts of
        redactions among the stored ones; None where the history ends before them.

        Raises ``HistoryDiverged`` at the first event that differs.
        """
        version = 0
        receipts: list[int] = []
        for row in self._stored(found):
            if row.id != version:
                break
            version += 1
            if row.kind == _RECEIPT and isinstance(stored_event_of(self._conversation, row), Redaction):
                receipts.append(row.id)  # the source knows nothing of it
                continue
            encoded = next(history, None)
            if encoded is None:
                return None
            encoded = ids_moved(encoded, receipts)
            if (row.kind, row.schema, row.body) != (encoded.kind, encoded.schema, encoded.body):
                stored = stored_event_of(self._conversation, row)  # raises where the row is damaged
                if not _say_the_same(stored, encoded.event):
                    raise HistoryDiverged(self._conversation, row.id, found.version)
        if version < found.version:
            raise CorruptEvent(self._conversation, version, "it is missing")
        return receipts

    def _stored(self, found: Conversation) -> Iterator[Row]:
        def page(reader: Reader, start: int) -> Sequence[Row]:
            return find_again(self._database, reader, found).rows(start, found.version, CHUNK)

        for start in range(0, found.version, CHUNK):
            yield from self._recorder.query(partial(page, start=start))

    # -- a new conversation -------------------------------------------------------------------------------------------

    def _stage(self, first: list[Encoded], second: list[Encoded], history: Iterator[Encoded]) -> tuple[int, int]:
        now = self._now()
        staged = self._recorder.transact(
            lambda transaction: begin_new(transaction, self._database, self._conversation, now, staged=True)
        )
        try:
            chunk = first
            while chunk:
                staged = self._add_to(staged, chunk)
                chunk, second = second, _rested(history)
            self._recorder.transact(partial(self._publish, staged=staged))
        except BaseException:
            # Also on Ctrl-C: a partial import is useless. What cannot be removed now stays invisible, and
            # the next import or 'foldlog vacuum' removes it.
            with contextlib.suppress(RecorderError):
                delete_rows(self._recorder, staged.key)
            raise
        return staged.version, staged.version

    def _add_to(self, staged: Conversation, chunk: list[Encoded]) -> Conversation:
        rows, left = chained(staged, chunk, self._now())
        events = numbered(chunk, rows[0].id, from_microseconds(rows[0].recorded_at))

        def stage(transaction: Transaction) -> None:
            self._check_no_rival(transaction)
            writing = staged_in(transaction, self._database, staged.key)
            writing.stage(rows)
            self._project(writing, events)
            writing.end()

        self._recorder.transact(stage)
        return left

    def _publish(self, transaction: Transaction, staged: Conversation) -> int:
        self._check_no_rival(transaction)
        writing = staged_in(transaction, self._database, staged.key)
        position = writing.publish(staged.version)
        writing.end()
        return position

    def _check_no_rival(self, transaction: Transaction) -> None:
        """Refuse to continue where another writer began the conversation: a new import compares with its events."""
        rival = not_erased(self._database.find(transaction, self._conversation))
        if rival is not None:
            raise VersionConflict(self._conversation, 0, rival.version)

    # -- one transaction ----------------------------------------------------------------------------------------------

    def _append(self, transaction: Transaction, chunk: list[Encoded], at: int) -> tuple[int, int]:
        found = not_erased(self._database.find(transaction, self._conversation))
        version = 0 if found is None else found.version
        if version != at:
            raise VersionConflict(self._conversation, at, version)
        now = self._now()
        if found is None:
            found = begin_new(transaction, self._database, self._conversation, now)
        rows, _ = chained(found, chunk, now)
        writing = WriteTransaction(transaction, found, self._database)
        if writing.redactions:
            self._refuse_redacted(writing, enumerate(map(_event, chunk), rows[0].id))
        writing.insert(rows)
        self._project(writing, numbered(chunk, rows[0].id, from_microseconds(rows[0].recorded_at)))
        writing.end()
        return len(rows), writing.version

    def _refuse_redacted(self, writing: WriteTransaction, events: Iterable[tuple[int, Event]]) -> None:
        """Raise ``HistoryDiverged`` for a new event with kind and source id of a redacted one, whose content it has."""
        for event_id, event in events:
            origin = event.origin
            key = None if origin is None else source_key(origin.format, origin.id)
            recalled = None if key is None else writing.recall(key)
            if recalled is None:
                continue
            for stored in writing.events(recalled.first_id, recalled.first_id + recalled.events):
                if stored.redacted is not None and type(stored) is type(event):
                    raise HistoryDiverged(self._conversation, event_id, writing.version, redacted=stored.id)


def _say_the_same(stored: Event, given: Event) -> bool:
    """Return whether a stored event equals the given one. An event that is stored without a time gets a time when it is
    read, so then a given time does not matter.
    """
    if stored.timestamp is None and given.timestamp is not None and stored.origin is None:
        given = replace(given, timestamp=None)
    if stored.redacted is not None:
        return can_be_redacted(given) and without_content(replace(given, id=stored.id), stored.redacted) == stored
    if isinstance(stored, Redaction):
        return False
    one, other = encode(stored), encode(given)
    return (one.kind, one.schema, one.body) == (other.kind, other.schema, other.body)


def _rested(history: Iterator[Encoded]) -> list[Encoded]:
    """Return the next chunk, after a pause for waiting writers, of which encoding the chunk is a part."""
    begun = time.monotonic()
    chunk = _chunk(history)
    time.sleep(max(0.0, REST_S - (time.monotonic() - begun)))
    return chunk


def _chunk(history: Iterator[Encoded]) -> list[Encoded]:
    """Return the next events for one transaction, limited in number and size."""
    chunk: list[Encoded] = []
    size = 0
    for encoded in islice(history, CHUNK):
        chunk.append(encoded)
        body = encoded.body
        size += len(body) if type(body) is bytes else size_of(body)
        if size >= _CHUNK_BYTES:
            break
    return chunk
