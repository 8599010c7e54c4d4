"""Read one conversation in one transaction. Every read applies the row codec of the
conversation.
"""

from __future__ import annotations

import threading
from base64 import urlsafe_b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from hashlib import blake2b
from operator import attrgetter
from typing import Final

from foldlog.eventstore.arguments import NUMBER_MAX, check_whole
from foldlog.eventstore.codec_json import size_of
from foldlog.eventstore.errors import CorruptEvent, EventsNotMade, StoreDamaged, TooManyBytes
from foldlog.eventstore.events import Detached, DocumentChanges, Event
from foldlog.eventstore.log import ledger
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.past import Segment, past_of, split_intervals
from foldlog.eventstore.log.results import Border
from foldlog.eventstore.log.row import dense_events, dense_rows, event_of, events_of, sound
from foldlog.eventstore.log.seal import RowCodec
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import (
    Chunk,
    Conversation,
    RecalledKey,
    Record,
    Row,
    Stream,
    body_bytes,
    counts,
    utf8,
)

_PAGE = 1_000
_PAGE_BYTES = 8 * 1024 * 1024
_FIRST_PAGE = 100
"""The number of rows of the first page. The first page is small, because many callers stop
early.
"""
_id_of = attrgetter("id")
_body_of = attrgetter("body")
_stop_of = attrgetter("stop")

_DOCUMENTS = "document_changes"
_BACK = 16
"""If a caller asks for one earlier version after another, each query reads ``_BACK`` events."""
SOURCE_KEYS: Final = "foldlog:source:"
"""The database has an index of the idempotency keys that begin with ``SOURCE_KEYS``, so one query
finds such a key in all conversations.
"""
_NOT_FLAGGED = "an index lists this event as shown or structural, but it is neither"
_MISSING = "this event, or a later shown or structural event, cannot be found"


class _ViewLimit(threading.local):
    """The maximum number of bytes of events that a View may have in this thread, or None."""

    bytes_max: int | None = None


VIEW_LIMIT: Final = _ViewLimit()


@contextmanager
def views_up_to(bytes_max: int | None) -> Iterator[None]:
    """In this thread, a read of a View raises ``TooManyBytes`` as soon as its events have more than
    ``bytes_max`` bytes, decompressed and with their attachments. It then reads and decodes no
    further events. A server limits its memory by this.
    """
    before = VIEW_LIMIT.bytes_max
    VIEW_LIMIT.bytes_max = bytes_max
    try:
        yield
    finally:
        VIEW_LIMIT.bytes_max = before


def question_of_rows(key: int, start: int, stop: int) -> tuple[str, tuple[int, ...]]:
    """Return the question with which ``Reader.rows`` reads all rows of a range."""
    return "rows", (key, start, stop, stop - start)


def question_of_page(key: int, start: int, stop: int) -> tuple[str, tuple[int, ...]]:
    """Return the question with which a page of a conversation's events is read: see
    ``Reader.ask_ahead``.
    """
    return "rows_until", (key, start, stop, stop - start, _PAGE_BYTES)


class ReadTransaction:
    """One conversation in one transaction. Use a ``ReadTransaction`` only while the transaction is
    open.

    Raises ``EventsNotMade`` if the conversation is archived. The store then restores the events and
    runs the work again. A list of conversations reads only the row of an archived conversation, and
    restores nothing.
    """

    def __init__(
        self,
        reader: Reader,
        conversation: Conversation,
        database: Database,
        codec: RowCodec | None = None,
    ) -> None:
        if conversation.archived:
            raise EventsNotMade(conversation.id, conversation.unmade, conversation.archived)
        self._reader = reader
        self.state = conversation
        self.database = database
        self._known_codec = codec
        self._changes: DocumentChanges | None = None
        """The newest ``DocumentChanges`` before version ``_changes_before``, or None."""
        self._changes_before = 0
        self._changes_back: list[Row] = []
        """Rows of ``DocumentChanges``, from the oldest to the newest. ``_changes`` is the event of
        the last row.
        """
        self.view_bytes = 0
        """The bytes of the events that were read for Views, as they are when they are decoded."""

    @property
    def conversation(self) -> str:
        """The id of the conversation."""
        return self.state.id

    @property
    def key(self) -> int:
        """The number of the conversation in its store. A store never gives the same number to two
        conversations.
        """
        return self.state.key

    @property
    def version(self) -> int:
        """The number of events, including those that a fork shares."""
        return self.state.version

    @property
    def redactions(self) -> int:
        """The number of redacted events. For a fork, it begins with the number of its parent. While
        ``redactions`` does not change, no content of the conversation was redacted.
        """
        return self.state.redactions

    @property
    def lineage(self) -> tuple[Border, ...]:
        """The ancestors of a fork, from the oldest to the newest. Each ``Border`` contains an
        ancestor, and the version up to which the fork shares the ancestor's events. The fork's own
        events begin at the last of these versions.

        The tuple is empty if the conversation is not a fork.
        """
        return tuple(Border(border.id, border.stop) for border in reversed(self.state.lineage))

    def origins(self) -> tuple[Border, ...]:
        """Return the conversations whose events a fork shares or has copied, sorted from the oldest
        to the newest. Each ``Border`` contains a conversation, and the version up to which the fork
        has the conversation's events.

        Raises ``CorruptEvent`` if an entry of the ledger is unreadable. Cost: reading the ledger's
        entries of one conversation.
        """
        state = self.state
        root = state.lineage[-1] if state.lineage else state
        rows = ledger.decoded_entries(self._reader, root.key, root.id)
        detached = [
            Border(entry.parent, entry.version)
            for entry in events_of(root.id, rows)
            if isinstance(entry, Detached)
        ]
        return (*detached, *self.lineage)

    @property
    def structural(self) -> int:
        """The number of structural events."""
        return self.state.structural

    @property
    def head(self) -> bytes | None:
        """The head of the last event, or None if the conversation has no events."""
        return self.state.head

    def head_at(self, version: int) -> bytes | None:
        """Return the head that the conversation had at ``version``. Return None for version 0, and
        for a version that the conversation never had.

        Raises ``CorruptEvent`` if the last event before ``version`` is missing or unreadable. Cost:
        reading one event.
        """
        if self._whole("version", version) == self.version:
            return self.head
        return self.last_row(version).head if 0 < version < self.version else None

    def events(self, start: int = 0, stop: int | None = None) -> Iterator[Event]:
        """Yield the events with ``start <= id < stop`` in the order of their ids. Raises
        ``CorruptEvent`` at an event that is missing or unreadable.

        Cost: reading the yielded events by pages.
        """
        start = max(self._whole("start", start), 0)
        stop = self._last(stop)
        if stop - start == 1 and self._changes is not None and self._changes.id == start:
            yield self._changes
            return
        name = self.conversation
        while start < stop:
            rows, end = self.first_rows(start, min(start + _PAGE, stop))
            yield from dense_events(name, rows, start, end)
            start = end

    def tail(self, count: int) -> tuple[Event, ...]:
        """Return the last ``count`` events in the order of their ids. If the conversation has fewer
        events, return all events.

        Raises ``InvalidArgument`` if ``count`` is negative. Also raises the errors of ``events``.
        Cost: reading the returned events.
        """
        check_whole("count", count, 0)
        return tuple(self.events(self.version - count))

    def events_after_head(self, head: bytes | None, start: int, stop: int) -> list[Event] | None:
        """Return the events with ``start <= id < stop``. Return None if ``head`` is not the head of
        the event before ``start``.

        Raises ``CorruptEvent`` at an event that is missing or unreadable. Cost: reading the
        returned events and the event before them.
        """
        bytes_max = VIEW_LIMIT.bytes_max
        stored = list(self._reader.rows(self.state.key, start - 1, stop, bytes_max=bytes_max))
        if not stored or stored[0].id != start - 1 or stored[0].head != head:
            return None
        rows = self._decode_for_view(stored, [self._own_segment()])
        return list(dense_events(self.conversation, rows[1:], start, stop))

    def shown_events(self, intervals: Sequence[tuple[int, int]]) -> list[Event]:
        """Return the shown events with ids in the intervals: see ``flagged_events``."""
        return [event for event in self.flagged_events(intervals) if event.shown]

    def flagged_events(self, intervals: Sequence[tuple[int, int]]) -> list[Event]:
        """Return the shown or structural events with ids in the intervals. The intervals are
        inclusive, ascending and disjoint. A View depends only on events that are shown or
        structural.

        Raises ``CorruptEvent`` if a shown or structural event is missing or unreadable. Cost: one
        read of the returned events. Each end of an interval that is neither shown nor structural
        costs a further read.
        """
        if not intervals:
            return []
        # The intervals ascend, so a check of the outer ends is enough.
        self._whole("the first interval", intervals[0][0])
        self._whole("the last interval", intervals[-1][1])
        parts = self._parts(intervals[0][0])
        rows = list(
            self._reader.flagged_rows(
                self.state.key, split_intervals(intervals, parts), VIEW_LIMIT.bytes_max
            )
        )
        # Decode first, because a damaged row lacks the numbers that the next check compares.
        events = list(events_of(self.conversation, self._decode_for_view(rows, parts)))
        self._check_that_none_is_missing(intervals, rows)
        return events

    def _decode_for_view(self, rows: list[Row], parts: Sequence[Segment]) -> Sequence[Row]:
        """Decode the rows of a View, which are in ``parts``, and add their bytes to ``view_bytes``.
        If a View may not have so many bytes (``views_up_to``), the method decodes no further rows,
        empties ``rows``, and raises ``TooManyBytes``.
        """
        bytes_max = VIEW_LIMIT.bytes_max
        decoded = list[Row]()
        try:
            # The reader has read no further rows if these are too large as they are stored.
            self._check_view_bytes(self.view_bytes + sum(map(body_bytes, map(_body_of, rows))))
            for part in parts:
                first = len(decoded)
                stop = bisect_left(rows, part.stop, first, key=_id_of)
                if bytes_max is None:
                    decoded += part.codec.decode_rows(rows[first:stop])
                else:
                    bytes_left = bytes_max - self.view_bytes
                    decoded += part.codec.decode_first(rows[first:stop], bytes_left)
                self.view_bytes += sum(map(size_of, map(_body_of, decoded[first:])))
                self._check_view_bytes(self.view_bytes)
        except TooManyBytes:
            # Otherwise the traceback keeps the rows in memory.
            rows.clear()
            decoded.clear()
            raise
        return decoded

    def _check_view_bytes(self, size: int) -> None:
        bytes_max = VIEW_LIMIT.bytes_max
        if bytes_max is not None and size > bytes_max:
            raise TooManyBytes(self.conversation, bytes_max)

    def structural_events(self, start: int = 0, stop: int | None = None) -> Iterator[Event]:
        """Yield the structural events with ``start <= id < stop`` in the order of their ids.

        Raises ``CorruptEvent`` if a structural event is unreadable or missing. An event that is
        missing before the first yielded event is noticed only if ``start`` is 0, and one after the
        last only if ``stop`` is not below the version. Cost: reading the structural events.
        """
        start = max(self._whole("start", start), 0)
        stop = self._last(stop)
        name = self.conversation
        expected = 0 if start == 0 else None
        page = _FIRST_PAGE
        while start < stop and self.state.structural != expected:
            rows = self.rows(start, stop, page, "structural")
            for event, row in zip(events_of(name, rows), rows, strict=True):
                _, structural_before, _, structural = counts(row.meta)
                if structural != 1:
                    raise CorruptEvent(name, row.id, _NOT_FLAGGED)
                if expected not in (None, structural_before):
                    raise CorruptEvent(name, start, _MISSING)
                yield event
                start = event.id + 1
                expected = structural_before + 1
            if len(rows) < page:
                break
            page = _PAGE
        if stop == self.version and expected not in (None, self.state.structural):
            raise CorruptEvent(name, start, _MISSING)

    def _last(self, stop: int | None) -> int:
        if stop is None:
            return self.state.version
        return min(self._whole("stop", stop), self.state.version)

    def _whole(self, name: str, number: int) -> int:
        # To save time, ``check_whole`` is called only if the number is not a version of the
        # conversation.
        if type(number) is int and 0 <= number <= self.state.version:
            return number
        return check_whole(name, number)

    def _check_that_none_is_missing(
        self, intervals: Sequence[tuple[int, int]], rows: Sequence[Row]
    ) -> None:
        """Raise ``CorruptEvent`` if a shown or structural row is missing in the intervals. Each row
        contains the numbers of shown and structural rows before it, so a gap in these numbers
        reveals a missing row.
        """
        # Read the rows at the ends of intervals too, because their numbers reveal rows missing at
        # the ends.
        ends = {end for interval in intervals for end in interval if 0 <= end < self.version - 1}
        unflagged_ends = ends.difference(map(_id_of, rows))
        if unflagged_ends:
            added = (self.last_row(end + 1) for end in unflagged_ends)
            rows = sorted([*rows, *added], key=_id_of)
        firsts = [first for first, _ in intervals]

        def are_in_one_interval(event_id: int, later_id: int) -> bool:
            return bisect_right(firsts, event_id) == bisect_right(firsts, later_id)

        last = -1
        expected = 0
        for row in rows:
            shown_before, structural_before, shown, structural = counts(row.meta)
            before = shown_before + structural_before
            after = before + shown + structural
            is_flagged = after != before
            if is_flagged == (row.id in unflagged_ends):
                problem = _MISSING if is_flagged else _NOT_FLAGGED
                raise CorruptEvent(self.conversation, row.id, problem)
            if before != expected and are_in_one_interval(last, row.id):
                raise CorruptEvent(self.conversation, last + 1, _MISSING)
            last = row.id
            expected = after
        reaches_the_end = intervals[-1][1] >= self.version - 1
        is_missing = reaches_the_end and expected != self.state.shown + self.state.structural
        if is_missing and are_in_one_interval(last, self.version):
            raise CorruptEvent(self.conversation, last + 1, _MISSING)

    def last_row(self, version: int) -> Row:
        """Return the last row of the conversation at ``version``. Raises ``CorruptEvent`` if the
        row is missing or unreadable.
        """
        name = self.conversation
        (row,) = dense_rows(name, self.rows(version - 1, version), version - 1, version)
        return sound(name, row)

    def documents_before(self, version: int) -> DocumentChanges | None:
        """Return the last ``DocumentChanges`` before a version, or None.

        Raises ``CorruptEvent`` if the event is unreadable. Cost: reading one event. If a caller
        asks for one earlier version after another, one query reads several events.
        """
        if self._changes is not None and self._changes_before == version:
            return self._changes
        walks_back = self._changes is not None and version < self._changes_before
        rows = self._changes_back
        while rows and rows[-1].id >= version:
            rows.pop()
        if not (walks_back and rows):
            rows = self._changes_back = self._rows_of_changes(version, _BACK if walks_back else 1)
        if not rows:
            return None
        row = rows[-1]
        event = event_of(self.conversation, row)
        if not isinstance(event, DocumentChanges):
            raise CorruptEvent(
                self.conversation,
                row.id,
                "this event must be a change of documents, but it is of another kind",
            )
        self._changes = event
        self._changes_before = version
        return event

    def _rows_of_changes(self, version: int, limit: int) -> list[Row]:
        """Return the last rows of ``DocumentChanges`` before a version, from the oldest to the
        newest: at most ``limit``, but at least one, if there is any. All returned rows are stored
        under one key, even if a fork has earlier rows under another key.
        """
        for part in (self._own_segment(), *reversed(self.past)):
            stop = min(version, part.stop)
            stored = self._reader.rows(part.key, part.start, stop, limit, _DOCUMENTS)
            if stored:
                return [*part.codec.decode_rows(stored)][::-1]
        return []

    def document_changes(self, start: int) -> Iterator[DocumentChanges]:
        """Yield the conversation's own ``DocumentChanges`` with ids from ``start`` on. The newest
        event comes first.
        """
        stop = self.version
        first = max(self._whole("start", start), self.state.begins)
        while rows := self._decode_rows(
            self._reader.rows(self.state.key, first, stop, _PAGE, _DOCUMENTS)
        ):
            for row in rows:
                event = event_of(self.conversation, row)
                if isinstance(event, DocumentChanges):
                    yield event
            stop = rows[-1].id

    def record_at(self, projection: str, version: int) -> Record | None:
        """Return the newest record of a projection at or before ``version``, or None."""
        self._whole("version", version)
        # A fork's own records are newer than the records of its past.
        for part in (self._own_segment(), *reversed(self.past)):
            newest = min(version, part.stop)
            while stored := self._reader.records(part.key, projection, newest, 1, backwards=True):
                record = part.codec.decoded_record(projection, stored[0])
                if record is not None:
                    return record
                # the record is damaged, so try an older record
                newest = min(newest, stored[0].version) - 1
        return None

    def records(self, projection: str, after: int = 0) -> Iterator[Record]:
        """Yield the records of a projection for versions greater than ``after``, in ascending
        order. The records are read by pages.
        """
        self._whole("after", after)
        for part in self.past:
            for record in self._records_of(projection, part.key, part.codec, after):
                if record.version > part.stop:
                    break
                yield record
                after = record.version
        yield from self._records_of(projection, self.state.key, self._codec(), after)

    def own_records(self, projection: str) -> Iterator[Record]:
        """Yield the conversation's own records of a projection in ascending order of versions,
        without the records of the past that a fork shares. Damaged records are left out.
        """
        return self._records_of(projection, self.state.key, self._codec(), 0)

    def damaged_records(self, projection: str) -> Iterator[int]:
        """Yield the versions of damaged records of a projection. All other reads skip damaged
        records, so the projection makes these records again.
        """
        codec = self._codec()
        after = 0
        while stored := self._reader.records(self.state.key, projection, after, _PAGE):
            yield from (
                record.version
                for record in stored
                if codec.decoded_record(projection, record) is None
            )
            after = stored[-1].version

    def streams(self) -> list[Stream]:
        """Return the streams of the conversation, the newest first."""
        return self._reader.streams(self.state.key)

    def stream(self, number: int) -> Stream | None:
        """Return the stream of the conversation with a number, or None."""
        return self._reader.stream(self.state.key, number)

    def chunks(self, stream: Stream, after: int, limit: int) -> list[Chunk]:
        """Return at most ``limit`` chunks that end behind the unit ``after``, in order. Raises
        ``StoreDamaged`` if a chunk is missing or unreadable.
        """
        chunks: list[Chunk] = []
        for stored in self._reader.chunks(self.state.key, stream.number, after, limit):
            chunk = self._codec().decoded_chunk(stream.number, stored)
            expected = chunks[-1].ends if chunks else min(after, stored.begins)
            if chunk is None or chunk.begins != expected:
                raise StoreDamaged(
                    f"conversation {self.conversation!r}: stream {stream.name!r} is damaged at unit"
                    f" {expected}; delete it, and run 'foldlog store verify'"
                )
            chunks.append(chunk)
        return chunks

    # -- for the store and its maintenance

    def rows(
        self, start: int, stop: int, limit: int = NUMBER_MAX, which: str = "rows"
    ) -> Sequence[Row]:
        """Return at most ``limit`` decrypted rows with ``start <= id < stop``. A damaged row is
        returned with the encoding ``DAMAGED``. ``which`` is the name of the query, as in
        ``Reader.rows``.
        """
        decoded: list[Row] = []
        for part in self._parts(start):
            first = max(start, part.start)
            last = min(stop, part.stop)
            if first < last and limit > 0:
                rows = self._reader.rows(part.key, first, last, limit, which)
                limit -= len(rows)
                decoded += part.codec.decode_rows(rows)
        return decoded

    def first_rows(self, start: int, stop: int) -> tuple[Sequence[Row], int]:
        """Return the rows of ``rows`` from ``start`` on, up to about ``_PAGE_BYTES`` of stored
        bodies, and the id before which they end. At least one row is read.
        """
        for part in self._parts(start):
            first = max(start, part.start)
            last = min(stop, part.stop)
            if first < last:
                stored = self._reader.rows(part.key, first, last, bytes_max=_PAGE_BYTES)
                rows = part.codec.decode_first(stored, _PAGE_BYTES)
                end = first + len(rows)
                # If a row is missing, ``end`` is wrong. With ``last``, the caller expects more rows
                # than there are, and reports the gap.
                is_dense = bool(rows) and rows[-1].id == end - 1
                return rows, end if is_dense else last
        return [], stop

    @cached_property
    def past(self) -> tuple[Segment, ...]:
        """The events that a fork shares with its ancestors, as segments from the oldest to the
        newest. The tuple is empty if the conversation is not a fork.
        """
        return past_of(self.database, self._reader, self.state)

    def owner_of(self, event_id: int) -> str:
        """Return the id of the conversation to which an event belongs: an ancestor, if the
        conversation is a fork that shares the event.
        """
        if event_id < self.state.begins:
            for part in self.past:
                if part.start <= event_id < part.stop:
                    return part.id
        return self.state.id

    def recall(self, idempotency_key: str) -> RecalledKey | None:
        """Return the events that an append recorded under a caller's idempotency key, or None if
        the key is new. Raises ``CorruptEvent`` if the conversation does not have these events, or
        if a program without the data key changed the idempotency key.
        """
        recalled = self.recalled(stored_key(self.salt, idempotency_key))
        if recalled is None:
            return None
        if recalled.events < 1:
            problem = "the record of an idempotency key of the conversation is damaged"
            raise CorruptEvent(self.conversation, 0, problem)
        if recalled.first_id + recalled.events > self.version:
            problem = "it is missing, but an idempotency key names it"
            raise CorruptEvent(self.conversation, self.version, problem)
        return recalled

    def recalled(self, name: str) -> RecalledKey | None:
        """Return the events that an append recorded under an idempotency key, or None. ``name`` is
        the stored name of the key. Raises the errors of ``check_proofs``.
        """
        recalled = self._reader.recall(self.state.key, name)
        if recalled is not None:
            self.check_proofs([(name, recalled)])
        return recalled

    def recalled_among(self, names: Sequence[str]) -> set[str]:
        """Return the idempotency keys in ``names`` that the conversation has stored. Raises the
        errors of ``check_proofs``.
        """
        rows = self._reader.recalled_among(self.state.key, names)
        recalled = [(name, key) for _, name, key in rows]
        self.check_proofs(recalled)
        return {name for name, _ in recalled}

    def source_keys(self) -> Iterator[tuple[str, RecalledKey]]:
        """Yield the idempotency keys that stand for source ids, each with the event that has the
        source id. Raises the errors of ``check_proofs``.
        """
        for name, recalled in self._reader.all_recalled(self.state.key, SOURCE_KEYS):
            if not name.startswith(SOURCE_KEYS):
                return
            self.check_proofs([(name, recalled)])
            yield name, recalled

    def check_proofs(self, recalled: Iterable[tuple[str, RecalledKey]]) -> None:
        """Raise ``CorruptEvent`` if a program without the data key changed an idempotency key."""
        codec = self._codec()
        for name, key in recalled:
            if not codec.is_proved(name, key):
                problem = "an idempotency key was changed without the conversation's data key"
                raise CorruptEvent(self.conversation, key.first_id, problem)

    def _codec(self) -> RowCodec:
        codec = self._known_codec
        if codec is None:
            codec = self._known_codec = self.database.codec_of(self.state)
        return codec

    @property
    def salt(self) -> bytes:
        data_key = self._codec().data_key
        return self.state.salt if data_key is None else data_key.salt

    def _own_segment(self) -> Segment:
        state = self.state
        return Segment(state.key, state.id, self._codec(), state.begins, state.version)

    def _parts(self, start: int) -> Sequence[Segment]:
        own = self._own_segment()
        past = self.past if start < own.start else ()
        return (*past[bisect_right(past, start, key=_stop_of) :], own)

    def _records_of(
        self, projection: str, key: int, codec: RowCodec, after: int
    ) -> Iterator[Record]:
        while stored := self._reader.records(key, projection, after, _PAGE):
            decoded = [codec.decoded_record(projection, record) for record in stored]
            yield from (record for record in decoded if record is not None)
            after = stored[-1].version

    def _decode_rows(self, rows: Sequence[Row]) -> Sequence[Row]:
        return self._codec().decode_rows(rows) if rows else ()


def stored_key(salt: bytes, idempotency_key: str) -> str:
    """Return the name under which an idempotency key is stored: a keyed hash, which does not reveal
    the text of the key.
    """
    digest = blake2b(
        utf8(idempotency_key), digest_size=24, key=salt, person=b"foldlog key"
    ).digest()
    return urlsafe_b64encode(digest).decode()
