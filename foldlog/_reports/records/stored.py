"""This module finds the stored records of a conversation by the events that were made from them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, partial
from itertools import islice
from operator import attrgetter
from typing import Any, Final, NamedTuple

from foldlog.eventstore import (
    ConversationNotFound,
    DocumentChanges,
    Event,
    Redaction,
    Retraction,
    Store,
)
from foldlog.eventstore.log.finding import Moment, query_all
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.sources.blocks import Block
from foldlog.eventstore.sources.reading import (
    about,
    blocks_of,
    continued,
    end_of_records,
    source_of,
)
from foldlog.eventstore.sources.tables import Made, Source, Sources, query_sources
from foldlog.formats.event_places import place_of
from foldlog.formats.files.frames import frame_in, texts_beside, whole
from foldlog.formats.json_text import parse_stored as parse

_TOGETHER: Final = 8
"""The number of blocks that are read together, because a runtime appends small blocks."""

_BACK: Final = 192
"""The number of events whose records are looked up with one query. The table ``made`` has fewer
than four rows for 192 events, so the query reads little.
"""
_FEW: Final = 4
"""The maximum number of ranges of events that are read one by one. If there are more ranges, all
events are read.
"""

Query = Callable[[Callable[[Reader], Any]], Any]
"""Runs a function in a read transaction, and returns its result."""


class RecordSpan(NamedTuple):
    """The number of a record, and the ids of its events, from ``start`` to before ``stop``."""

    number: int
    start: int
    stop: int


_start_of = attrgetter("start")
_new = tuple.__new__  # RecordSpan(...) would take twice as long: ``benchmarks.adapters``


def _spans_in(event_spans: Made, start: int, stop: int) -> list[RecordSpan]:
    """Return the records whose first event is from ``start`` to before ``stop``."""
    return [
        _new(RecordSpan, (number, first, first + count))
        for number, (first, count) in event_spans.items()
        if start <= first < stop
    ]


def _spans_between(sources: Sources, source: Source, start: int, stop: int) -> Iterator[RecordSpan]:
    """Do as ``_spans_in``, and read only the rows near these events."""
    while start < stop:
        near = sources.made_near(source, start)
        yield from _spans_in(near.made, start, stop)
        start = near.stop


class Records:
    """Reads the records of a conversation. See ``foldlog.formats.encoding.StoredRecords``.

    The default ``query`` runs every read in its own transaction.
    """

    def __init__(self, store: Store, conversation: str, query: Query | None = None) -> None:
        self._database = store.database
        self._conversation = conversation
        self._query = query or store.database.recorder.query
        self._blocks = list[Block]()
        self._block: Block | None = None
        self._start = 0
        self._stop = 0
        self._near = dict[int, tuple[int, int]]()
        """Maps the id of a record's first event to the record's number and the count of its events.
        """
        self._firsts = list[int]()

    @cached_property
    def _source(self) -> tuple[Source | None, set[int]]:
        """The source of the conversation, and the numbers of its redacted records."""

        def read(reader: Reader) -> tuple[Source | None, set[int]]:
            sources = self._have_events(reader)
            source = sources.of(self._conversation)
            return source, set() if source is None else sources.all_redacted(source)

        source_and_redacted: tuple[Source | None, set[int]] = self._query(read)
        return source_and_redacted

    def _have_events(self, reader: Reader) -> Sources:
        """Return the sources, after the events of the records were made. For a read-only store,
        ``find`` makes the events in a database in memory.
        """
        self._database.find(reader, self._conversation)
        return Sources(self._database, reader)

    def _look(self, event_id: int) -> None:
        """Read which records the events near this one were made from, if they are not in memory."""
        source, _ = self._source
        if source is None or self._start <= event_id < self._stop:
            return
        self._start, self._stop, event_spans = self._query(
            lambda reader: self._have_events(reader).made_near(source, event_id)
        )
        self._near = {first: (number, count) for number, (first, count) in event_spans.items()}
        self._firsts = sorted(self._near)

    def count(self, event: Event) -> int:
        """Return the number of events of a record whose first event is ``event``, otherwise 0."""
        self._look(event.id)
        return self._near.get(event.id, (0, 0))[1]

    def _span_of(self, event_id: int) -> RecordSpan | None:
        self._look(event_id)
        place = bisect_right(self._firsts, event_id)
        first = self._firsts[place - 1] if place else event_id
        number, count = self._near.get(first, (-1, 0))
        return RecordSpan(number, first, first + count) if event_id < first + count else None

    def ids(self, event: Event) -> range:
        """Return the ids of all events from the record of ``event``. If the record is not stored,
        return the ids of its events up to ``event``.
        """
        span = self._span_of(event.id)
        if span is None:
            return range(event.id - place_of(event), event.id + 1)
        return range(span.start, span.stop)

    def record(self, events: Sequence[Event]) -> Any:
        """Return the record from which ``events`` were made, or None if the record is redacted or
        not stored.
        """
        first = events[0]
        text = None
        if self.count(first) and first.redacted is None:
            text = self.text_of(first.id)
        return None if text is None else parse(text)

    def text_of(self, event_id: int) -> bytes | None:
        """Return the JSON of the event's record, or None if it is redacted or not stored."""
        span = self._span_of(event_id)
        if span is None or span.number in self._source[1]:
            return None
        return self._block_of(span.number).record(span.number)

    def between(self, start: int, stop: int) -> Iterator[tuple[RecordSpan, bytes]]:
        """Yield the records in order, including redacted records."""
        for span in self._spans(start, stop):
            yield span, self._block_of(span.number).record(span.number)

    def _spans(self, start: int, stop: int) -> list[RecordSpan]:
        source, _ = self._source
        if source is None:
            return []

        def read(reader: Reader) -> list[RecordSpan]:
            return sorted(_spans_between(self._have_events(reader), source, start, stop))

        spans: list[RecordSpan] = self._query(read)
        return spans

    @property
    def has_redacted(self) -> bool:
        """Whether a record of the source is redacted."""
        return bool(self._source[1])

    def before(self, stop: int) -> Iterator[bytes]:
        """Yield the records before the event ``stop``, the newest first, and end at a redacted
        record.
        """
        _, redacted = self._source
        for end in range(stop, 0, -_BACK):
            for number, _, _ in reversed(self._spans(max(end - _BACK, 0), end)):
                if number in redacted:
                    return
                yield self._block_of(number).record(number)

    def all(self) -> Iterator[tuple[int, Any]]:
        """Yield each record that became events and is not redacted, with the id of its first
        event.
        """
        source, redacted = self._source
        if source is None:
            return
        event_spans = self._query(lambda reader: self._have_events(reader).made(source))
        for block in blocks_of(self._database, source):
            for number, record in enumerate(block.records(), block.first):
                if number in event_spans and number not in redacted:
                    yield event_spans[number][0], parse(record)

    def _block_of(self, number: int) -> Block:
        """Return the block with a record. The next blocks are read too, or the earlier blocks if
        records are read backwards.
        """
        block = self._block
        source, _ = self._source
        assert source is not None
        if block is not None and block.first <= number < block.stop:
            return block
        if not self._blocks or not self._blocks[0].first <= number < self._blocks[-1].stop:
            first = self._blocks[0].first if self._blocks else number

            def read(reader: Reader) -> list[Block]:
                sources = Sources(self._database, reader)
                if number >= first:
                    return list(islice(sources.blocks(source, number), _TOGETHER))
                together = _TOGETHER if number + 1 == first else 1
                return sources.blocks_back(source, number, together)

            self._blocks = self._query(read)
        self._block = next(block for block in self._blocks if number < block.stop)
        return self._block


class HistoryRecords:
    """Reads all records of a history, but no events.

    ``spans``    the records and their event ids, in order, for the events from ``start`` on
    ``version``  the number of events
    ``shown``    the number of messages, calls and results that a View may show
    ``changes``  the number of events that changed the View or were redacted

    Raises ``ConversationErased`` if the conversation was erased. Memory: a few bytes for each
    record.
    """

    def __init__(self, store: Store, conversation: str, start: int = 0) -> None:
        self._database = store.database
        self._start = start
        self.version = 0
        self.shown = 0
        self.changes = 0
        self.spans: list[RecordSpan] = []
        self._source: Source | None = None
        self._is_redacted = False
        with suppress(ConversationNotFound):
            query_all(self._database, partial(self._read, conversation))

    def _read(self, conversation: str, moment: Moment) -> None:
        reading = moment.conversation(conversation)
        sources = Sources(self._database, moment.reader)
        self.version = reading.version
        self.shown = reading.state.shown
        self.changes = reading.structural + reading.redactions
        source = sources.of_state(reading.state)
        self._source = source
        if source is not None:
            self._is_redacted = bool(sources.all_redacted(source))
            self.spans = self._spans(sources, source)

    def _spans(self, sources: Sources, source: Source) -> list[RecordSpan]:
        spans: Iterable[RecordSpan]
        if self._start:
            spans = _spans_between(sources, source, self._start, self.version)
        else:
            spans = _spans_in(sources.made(source), 0, self.version)
        return sorted(spans, key=_start_of)

    def is_whole(self, format: str) -> bool:
        """Return whether the source has this format, and none of its records is redacted."""
        return self._source is not None and not self._is_redacted and self._source.format == format

    def records(self, last: int | None = None) -> Iterator[Any]:
        """Yield the records of ``spans``, or only the ``last`` ones."""
        # The records are made one by one, because many new objects at once make Python look for
        # garbage (``benchmarks.adapters``).
        return map(parse, self.texts(last))

    def texts(self, last: int | None = None) -> Iterator[bytes]:
        """Yield the JSON of the records of ``spans``, or only of the ``last`` ones."""
        if last is None:
            spans = self.spans
        else:
            spans = self.spans[max(len(self.spans) - last, 0) :]
        if not spans or self._source is None:
            return
        numbers = {span.number for span in spans}
        for block in blocks_of(self._database, self._source, spans[0].number):
            for number, record in enumerate(block.records(), block.first):
                if number in numbers:
                    yield record

    def added(self, read: Callable[[int, int], Iterator[Event]]) -> Iterator[Event]:
        """Yield the events that programs appended without a record. Cost: if these events are not
        consecutive, the method may read all events.
        """
        gaps = list[tuple[int, int]]()
        start = self._start
        for span in self.spans:
            if start < span.start:
                gaps.append((start, span.start))
            start = span.stop
        if start < self.version:
            gaps.append((start, self.version))
        if len(gaps) <= _FEW:
            for first, end in gaps:
                yield from read(first, end)
            return
        of_records = {event_id for span in self.spans for event_id in range(span.start, span.stop)}
        yield from (
            event for event in read(self._start, self.version) if event.id not in of_records
        )


class SourceBytes(NamedTuple):
    """The stored bytes of a source, and the number of its ``records``. ``appended`` are the events
    that were appended after them. ``redacted`` is the number of redacted records, which have no
    texts.
    """

    format: str
    bytes: Iterator[bytes]
    records: int
    appended: Sequence[Event]
    redacted: int


def source_bytes(store: Store, conversation: str, format: str | None = None) -> SourceBytes | None:
    """Return the bytes of a source. Return None if the source has another format than ``format``,
    or if events were retracted. If foldlog can write the format, also return None after an append
    or a redaction, because the export then makes the records from the events.

    Cost: the function reads the appended events, and makes no events.
    """
    row = store.conversation(conversation, as_stored=True)

    def read(sources: Sources) -> tuple[Source | None, int, int]:
        source = sources.of(conversation)
        if source is None:
            return None, 0, 0
        return source, end_of_records(sources, source), len(sources.all_redacted(source))

    source, end, redacted = query_sources(store.database, read)
    if source is None or format not in (None, source.format):
        return None
    appended = [] if row.unmade else [*store.events(conversation, end)]
    appended = [event for event in appended if not isinstance(event, Redaction | DocumentChanges)]
    is_changed = any(isinstance(event, Retraction) for event in appended)
    from foldlog.formats.registry import format_named  # This import loads all formats.

    is_written = format_named(source.format).lacks is not None
    if is_changed or (is_written and (appended or redacted)):
        return None
    return SourceBytes(source.format, raw(store, conversation), source.records, appended, redacted)


def session_records(
    store: Store, conversation: str, format: str | None = None
) -> Iterator[Any] | None:
    """Return the records of the session in which a program went on with a history. Return None for
    any other conversation, and where ``source_bytes`` returns None.
    """
    source = source_of(store.database, conversation)
    if source is None or continued(source) is None:
        return None
    if source_bytes(store, conversation, format) is None:
        return None
    blocks = blocks_of(store.database, source)
    return (parse(record) for block in blocks for record in block.records())


def was_handed_over(store: Store, conversation: str) -> bool:
    """Return whether the source begins with records that were handed over to another program."""
    source = source_of(store.database, conversation)
    return source is not None and continued(source) is not None


def unread_in(store: Store, conversation: str) -> list[int]:
    """Return the numbers of the records that the import could not read."""
    source = source_of(store.database, conversation)
    return [] if source is None else [*about(source).get("unread", ())]


def beside_records(store: Store, conversation: str) -> tuple[str, list[Any]]:
    """Return the conversation of the source, and the texts and values of the source that are in no
    event.
    """

    def read(sources: Sources) -> tuple[str, list[Any]]:
        source = sources.of(conversation)
        if source is None:
            return conversation, []
        texts = texts_beside(about(source))
        event_spans = sources.made(source)
        for block in sources.blocks(source):
            texts += (part.decode("utf-8", "replace") for part in block.between() if part.strip())
            without_events = (
                number
                for number in range(block.first, min(block.stop, source.made))
                if number not in event_spans
            )
            texts += map(parse, map(block.record, without_events))
        return sources.name_of(source.conversation), texts

    return query_sources(store.database, read)


def raw(store: Store, conversation: str) -> Iterator[bytes]:
    """Yield the bytes of a source as the import read them."""
    source = source_of(store.database, conversation)
    if source is None:
        return
    blocks = blocks_of(store.database, source)
    frame = frame_in(about(source))
    if frame is None:
        yield from (block.raw for block in blocks)
    else:
        yield whole(frame, [record for block in blocks for record in block.records()])
