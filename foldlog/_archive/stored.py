"""The stored records of a conversation, by the events that they became."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice, takewhile
from typing import Any, Final, NamedTuple

from foldlog._archive.recording import source_of
from foldlog._formats.files.frames import frame_in, texts_beside, whole
from foldlog._formats.json_text import parse
from foldlog._formats.places import place_of
from foldlog._formats.registry import format_named
from foldlog.eventstore import DocumentChanges, Event, Redaction, Retraction, Store
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.sources.blocks import Block
from foldlog.eventstore.sources.reading import about, blocks_of
from foldlog.eventstore.sources.tables import Source, Sources

_TOGETHER: Final = 8
"""The number of blocks that are read together: those of a conversation that records are small."""

Query = Callable[[Callable[[Reader], Any]], Any]
"""Runs work in a read transaction, and returns what it returned."""


class Records:
    """Reads the records of a conversation: see ``foldlog._formats.encoding.StoredRecords``. It is of one moment.

    ``query`` runs each read; by default in a transaction of its own.
    """

    def __init__(self, store: Store, conversation: str, query: Query | None = None) -> None:
        self._database, self._conversation = store.database, conversation
        self._query = query or store.database.recorder.query
        self._blocks = list[Block]()
        """The blocks that were read last, one after the other."""

        self._start, self._stop = 0, 0
        """The events between are of the records ``_near``, or of none."""
        self._near = dict[int, tuple[int, int]]()
        """Of each event that begins a record the number of the record, and how many events it became."""
        self._firsts = list[int]()
        """The ids of these events, in order."""

    @cached_property
    def _source(self) -> tuple[Source | None, set[int]]:
        """The source, and which records are redacted."""

        def read(reader: Reader) -> tuple[Source | None, set[int]]:
            sources = Sources(self._database, reader)
            source = source_of(sources, self._conversation)
            return source, set() if source is None else sources.all_redacted(source)

        self._query(self._have_events)
        found: tuple[Source | None, set[int]] = self._query(read)
        return found

    def _have_events(self, reader: Reader) -> Sources:
        """Return the sources where the events of the conversation are: they are made now, maybe in memory alone."""
        self._database.find(reader, self._conversation)
        return Sources(self._database, reader)

    def _look(self, event_id: int) -> None:
        """Have the records near an event at hand."""
        source, _ = self._source
        if source is None or self._start <= event_id < self._stop:
            return
        self._start, self._stop, made = self._query(
            lambda reader: self._have_events(reader).made_near(source, event_id)
        )
        self._near = {first: (number, count) for number, (first, count) in made.items()}
        self._firsts = sorted(self._near)

    def count(self, event: Event) -> int:
        """Return how many events the record became that begins with this event; 0 where none begins."""
        self._look(event.id)
        return self._near.get(event.id, (0, 0))[1]

    def ids(self, event: Event) -> range:
        """Return the ids of the events of the record of this event; up to its own where its record is not stored."""
        self._look(event.id)
        place = bisect_right(self._firsts, event.id)
        if place:
            first = self._firsts[place - 1]
            stop = first + self._near[first][1]
            if event.id < stop:
                return range(first, stop)
        return range(event.id - place_of(event), event.id + 1)

    def record(self, events: Sequence[Event]) -> Any:
        """Return the record that became these events; None where it is redacted, or not stored."""
        source, redacted = self._source
        self._look(events[0].id)
        number, _ = self._near.get(events[0].id, (-1, 0))
        if source is None or number < 0 or number in redacted or events[0].redacted is not None:
            return None
        return parse(self._block_of(source, number).record(number))

    def all(self) -> Iterator[tuple[int, Any]]:
        """Yield each record that is not redacted, after the id of its first event. Cost: the records."""
        source, redacted = self._source
        if source is None:
            return
        made = self._query(lambda reader: self._have_events(reader).made(source))
        for block in blocks_of(self._database, source):
            for number, record in enumerate(block.records(), block.first):
                if number in made and number not in redacted:
                    yield made[number][0], parse(record)

    def _block_of(self, source: Source, number: int) -> Block:
        """Return the block of a record, and read those after it too, or before it where it goes backwards."""
        if not self._blocks or not self._blocks[0].first <= number < self._blocks[-1].stop:
            is_backwards = bool(self._blocks) and number < self._blocks[0].first
            start = max(0, number - _TOGETHER + 1) if is_backwards else number

            def read(reader: Reader) -> list[Block]:
                blocks = islice(Sources(self._database, reader).blocks(source, start), _TOGETHER)
                return [*(takewhile(lambda block: block.first <= number, blocks) if is_backwards else blocks)]

            self._blocks = self._query(read)
        return next(block for block in self._blocks if number < block.stop)


class SourceBytes(NamedTuple):
    """A source as it is exported: its bytes, and what was appended behind it, which they do not have. Of ``redacted``
    records they have what stays.
    """

    format: str
    bytes: Iterator[bytes]
    records: int
    appended: Sequence[Event]
    redacted: int


def source_bytes(store: Store, conversation: str, format: str | None = None) -> SourceBytes | None:
    """Return the source of a conversation as an export in its own format gives it. None for another format, and where
    events tell otherwise: some of the source were taken back, or foldlog writes the format, and others were appended
    or redacted.

    Cost: what was appended; no events are made. Raises ``ConversationNotFound``.
    """
    row = store.conversation(conversation, pending=True)

    def read(reader: Reader) -> tuple[Source | None, int, int]:
        sources = Sources(store.database, reader)
        source = source_of(sources, conversation)
        if source is None:
            return None, 0, 0
        ends = (first + count for number, (first, count) in sources.made(source).items() if number < source.records)
        return source, max(ends, default=0), len(sources.all_redacted(source))

    source, end, redacted = store.database.recorder.query(read)
    if source is None or format not in (None, source.format):
        return None
    appended = [] if row.pending else [*store.events(conversation, end)]
    appended = [event for event in appended if not isinstance(event, Redaction | DocumentChanges)]
    is_changed = any(isinstance(event, Retraction) for event in appended)
    is_written = format_named(source.format).lacks is not None
    if is_changed or (is_written and (appended or redacted)):
        return None
    return SourceBytes(source.format, raw(store, conversation), source.records, appended, redacted)


def stored_records(store: Store, conversation: str) -> Iterator[Any]:
    """Yield what is stored of each record of a conversation's source, those without events too. Cost: the records."""
    database = store.database
    source = database.recorder.query(lambda reader: source_of(Sources(database, reader), conversation))
    for block in () if source is None else blocks_of(database, source):
        yield from map(parse, block.records())


def beside_records(store: Store, conversation: str) -> tuple[str, list[Any]]:
    """Return the conversation that holds the source of this one (of a fork without a source, its parent), and the texts
    and values that no event shows: its title, what stands between its records, and records that became no event.
    Cost: its records.
    """

    def read(reader: Reader) -> tuple[str, list[Any]]:
        sources = Sources(store.database, reader)
        source = source_of(sources, conversation)
        if source is None:
            return conversation, []
        found, made = texts_beside(about(source)), sources.made(source)
        for block in sources.blocks(source):
            found += (part.decode("utf-8", "replace") for part in block.between() if part.strip())
            without = (n for n in range(block.first, block.stop) if n < source.made and n not in made)
            found += map(parse, map(block.record, without))
        return sources.name_of(source.conversation), found

    return store.database.recorder.query(read)


def raw(store: Store, conversation: str) -> Iterator[bytes]:
    """Yield the bytes of the source of a conversation, as they came. Memory: one block, or a document."""
    database = store.database
    source = database.recorder.query(lambda reader: source_of(Sources(database, reader), conversation))
    if source is None:
        return
    blocks = blocks_of(store.database, source)
    frame = frame_in(about(source))
    if frame is None:
        yield from (block.raw for block in blocks)
    else:
        yield whole(frame, [record for block in blocks for record in block.records()])
