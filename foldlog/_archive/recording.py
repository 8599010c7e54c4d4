"""Records that a runtime hands over one by one: stored with their events in one transaction.

They come in small blocks, each with what its records became, so an append writes one row beside the
events. Blocks are put together as they are stored, since a redaction may have changed them: eight
at a time, and once there are 128 kB of them. The decoder of a conversation is in memory; the first
append of a process decodes the records that are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from foldlog._archive.projecting import decoded
from foldlog._formats.calls import Recent
from foldlog._formats.decoded import READER, decoder_of
from foldlog._formats.format import Format, UnusableFormat
from foldlog._formats.json_text import json_of
from foldlog._formats.places import number
from foldlog._formats.record import NotAnEvent
from foldlog._formats.registry import format_named
from foldlog._telemetry import tell
from foldlog.eventstore import ANY_VERSION, Event, InvalidEvent, Recorded, Store, VersionConflict
from foldlog.eventstore.log import origins
from foldlog.eventstore.log.origins import PartlyKnown
from foldlog.eventstore.log.row import new_salt
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import Conversation
from foldlog.eventstore.sources.blocks import (
    GENESIS,
    HASH_BYTES,
    SIZE,
    Block,
    chained,
    of_records,
)
from foldlog.eventstore.sources.reading import blocks_of
from foldlog.eventstore.sources.tables import Made, Source, Sources, SourcesToWrite

if TYPE_CHECKING:
    from foldlog._history.history import ExpectedVersion, History

_RECORDERS_MAX: Final = 256
"""The number of recorders that are kept: most appends then read nothing."""
_TRIES: Final = 100
_SHORT_BLOCKS: Final = 8
"""The number of short blocks that become one."""


class Recording:
    """Appends records to the histories of a store. Any number of threads may use it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._recorders = Recent[tuple[str, str], tuple[HistoryRecorder, int | None]](
            _RECORDERS_MAX
        )
        """The recorders, each with the key of its conversation: the id of an erased one may be used
        again.
        """
        self._repeating = Recent[str, bool](_RECORDERS_MAX)
        """The histories whose programs append records again that are there."""

    def append(
        self,
        history: History,
        records: Iterable[Any],
        format: str,
        expected_version: ExpectedVersion,
        dedupe: Literal["origin"] | None,
    ) -> tuple[Recorded, ...]:
        """Append these records and their events, all or none; see ``History.append_records``."""
        if not isinstance(records, Iterable):
            raise TypeError(f"records are a list of the format's records, not {records!r:.60}")
        given = list(records)
        rules = format_named(format)
        for tried in range(_TRIES):
            recorder = self.recorder(history, rules)
            version = recorder.version
            if expected_version is ANY_VERSION:
                expected = version
            else:
                expected = expected_version
            # most programs append only new records: then the append alone asks for source ids
            if dedupe is None or history.id not in self._repeating:
                new = given
            else:
                new = _unknown(history, given, rules)
            events = recorder.decode_all(new)
            findings = tuple(recorder.findings)  # the recorder forgets them with the append
            recorded: tuple[Recorded, ...] = ()
            try:
                if events:
                    recorded = history._append_recorded(events, recorder, expected, dedupe=dedupe)
                else:
                    self.keep(history, recorder)
            except PartlyKnown:
                if new is not given:
                    raise
                self._note_repeating(history)
                continue
            except VersionConflict:
                # another writer was first, or the kept decoder is of an older version
                if expected_version is not ANY_VERSION or tried + 1 == _TRIES:
                    raise
                continue
            if events and not recorded:
                self._note_repeating(history)
                return ()
            for finding in findings:
                tell("foldlog.import.finding", of=f"conversation {history.id!r}", finding=finding)
            return recorded
        raise AssertionError("it returned or raised")

    def _note_repeating(self, history: History) -> None:
        with self._lock:
            self._repeating[history.id] = True

    def keep(self, history: History, recorder: HistoryRecorder) -> None:
        """Keep a recorder after the append of what it decoded, if that was stored."""
        if recorder.committed():
            with self._lock:
                self._recorders[history.id, recorder.format] = recorder, history._conversation_key()

    def recorder(
        self, history: History, format: Format, version: int | None = None
    ) -> HistoryRecorder:
        """Return a recorder that goes on at a version, by default at the end of the history. No
        other caller has it.
        """
        with self._lock:
            recorder, key = self._recorders.pop((history.id, format.name), (None, None))
        version = history.version() if version is None else version
        if recorder is None or key != history._conversation_key() or version < recorder.version:
            return HistoryRecorder(history._store, history.id, format, version)
        recorder.go_to(version)
        return recorder


def _unknown(history: History, records: list[Any], format: Format) -> list[Any]:
    """Return the records whose source ids the history does not have, each id once."""
    ids = [format.source_id(record) for record in records]
    known = origins.find_known(history._store.database, history.id, format.name, ids)
    unknown: dict[Any, Any] = {}
    for place, record in enumerate(records):
        if not known[place]:
            unknown.setdefault(origins.source_key(format.name, ids[place]) or place, record)
    return list(unknown.values())


class HistoryRecorder:
    """The decoder of one conversation, after the records that it has.

    Decode the next records, append their events at ``version`` with ``write`` beside them, and hand
    it back to ``Recording.keep``. After an append that failed, take a new one.
    """

    def __init__(self, store: Store, conversation: str, format: Format, version: int) -> None:
        self._format = format
        self.version = version
        self._next = version
        self.findings = list[str]()
        self._decoder = decoder_of(format, findings=self.findings)
        self._records = 0
        self._head = GENESIS
        self._small = list[_Stored]()
        """The last blocks, which are small; ``_small_then`` once those that were decoded last are
        stored.
        """
        self._small_then = self._small
        self._stored_as: int | None = None
        """The key of the conversation, while what was stored last is all that its source has."""
        self._stored_then: int | None = None
        self._bodies, self._made = list[bytes](), dict[int, tuple[int, int]]()
        self._new: Block | None = None
        """The records that were decoded last, once they are written."""
        self._head_then = GENESIS
        self._version_then = version
        if version:
            self._read(store, conversation)
        self._decoder.skip_to(version)
        self.findings.clear()

    @property
    def format(self) -> str:
        """The name of the format of the records."""
        return self._format.name

    def _read(self, store: Store, conversation: str) -> None:
        """Decode the records that are there."""

        def read(reader: Reader) -> tuple[Source, Made, bytes] | None:
            sources = Sources(store.database, reader)
            source = source_of(sources, conversation)
            if source is None or source.format != self._format.name:
                return None
            head = source.head or chained(
                GENESIS, sources.hashes(source)[: HASH_BYTES * source.records]
            )
            return source, sources.made(source), head

        found = store.database.recorder.query(read)
        if found is None:
            return
        source, made, self._head = found
        self._records = source.records
        for _ in decoded(
            store, source, made, source.records, self.version, self.findings, self._decoder
        ):
            pass
        for block in blocks_of(store.database, source, source.from_record):
            if block.first >= source.from_record:
                self._small.append(_Stored(block.first, len(block.raw)))
                if _size_of(self._small) >= SIZE:
                    self._small.clear()

    def go_to(self, version: int) -> None:
        """Go on behind events that others appended."""
        if version != self.version:
            self._stored_as = None  # there may be records among them
        self.skip(version - self.version)
        self.version = version

    def skip(self, count: int) -> None:
        """Reserve the next ids for other events, which are appended before those of the next
        record.
        """
        if count:
            self._next += count
            self._decoder.skip_to(self._next)

    def decode_all(self, records: Sequence[Any]) -> list[Event]:
        """Return the events of the next records. Raises ``InvalidEvent``."""
        found = list[Event]()
        for place, record in enumerate(records):
            known = len(self.findings)
            try:
                found += self.decode(record)
            except NotAnEvent as error:
                raise InvalidEvent(
                    f"record {place}: {error}; nothing was appended, correct the record"
                ) from error
            self.findings[known:] = [
                f"record {place} {finding}" for finding in self.findings[known:]
            ]
        return found

    def decode(self, record: Any) -> list[Event]:
        """Return the events of the next record. Raises ``NotAnEvent``."""
        body = json_of(record)
        events = self._decoder.events(record)
        if events[0].id != self._next:
            raise UnusableFormat(
                f"the decoder of {self.format} gave event {events[0].id} to a history at version"
                f" {self._next}; a decoder numbers its events from next_id on"
            )
        number(events, self.format)
        self._made[self._records + len(self._bodies)] = events[0].id, len(events)
        self._bodies.append(body)
        self._next += len(events)
        return events

    def write(self, writing: WriteTransaction, conversation: str) -> None:
        """Write the records that were decoded last, in the transaction of their events."""
        if not self._bodies:
            return
        new = self._new = of_records(self._records, self._bodies)
        sources = SourcesToWrite.beside(writing)
        if self._stored_as != writing.key:
            self._find_source(sources, writing, conversation)
        if writing.appended_at != self.version:
            raise VersionConflict(conversation, self.version, writing.appended_at)
        self._head_then = chained(self._head, new.hashes)
        sources.append_block(writing.key, new, self._made, self._head_then)
        small = [*self._small, _Stored(new.first, len(new.raw))]
        to_join = _to_join(small)
        if to_join:
            source = sources.find_by_key(writing.key)
            assert source is not None
            if len(to_join) > 1:
                sources.join_last(source, to_join[0].first)
            small = [*small[: -len(to_join)], _Stored(to_join[0].first, _size_of(to_join))]
        self._small_then = small if _size_of(small) < SIZE else []
        self._stored_then = writing.key
        self._version_then = writing.version

    def _find_source(
        self, sources: SourcesToWrite, writing: WriteTransaction, conversation: str
    ) -> None:
        """Begin the source of the conversation, unless it has one. Raises ``VersionConflict`` where
        that has other records than were decoded.
        """
        stored = Sources(writing.database, writing.transaction, {writing.key: writing.data_key})
        source = stored.find_by_key(writing.key)
        if source is None:
            source = self._begun(sources, stored, writing)
        if source.records != self._records or source.format != self._format.name:
            raise VersionConflict(conversation, self.version, writing.version)

    def committed(self) -> bool:
        """Go on behind what was decoded last. Return whether it is stored: no events came in its
        place.
        """
        if self._new is None and self._bodies:
            return False
        self.findings.clear()
        if self._new is None:
            self.version = self._next
            return True
        self.skip(self._version_then - self._next)  # changes of documents came last
        self.version = self._version_then
        self._records, self._head = self._new.stop, self._head_then
        self._small = self._small_then
        self._stored_as = self._stored_then
        self._new = None
        self._bodies = []
        self._made = {}
        return True

    def _fingerprint(self) -> bytes:
        """Return what refuses imports after an erasure: the first line of a log. Many documents
        begin with the same prompt, so nothing refuses these.
        """
        assert self._new is not None
        is_document = self._format.skeleton is None
        if is_document:
            return new_salt()[:HASH_BYTES]
        return self._new.hash_of(self._new.first)

    def _begun(self, sources: SourcesToWrite, stored: Sources, writing: WriteTransaction) -> Source:
        """Begin the source of a conversation: that of a fork goes on from the records of its
        past.
        """
        assert self._new is not None
        parent = source_in(stored, writing.state)  # its row has no mark of the new events yet
        if parent is not None and parent.format != self._format.name:
            parent = None
        begins = self._records if parent is not None else 0
        if parent is None:
            fingerprint = self._fingerprint()
        else:
            fingerprint = parent.fingerprint
        source = Source(
            writing.key,
            writing.key if parent is None else parent.root,
            None if parent is None else parent.parent,
            begins,
            begins,
            begins,
            self._format.name,
            READER,
            self._head,
            fingerprint,
        )
        sources.put(source)
        return source


class _Stored(NamedTuple):
    """A stored block: the number of its first record, and the number of its bytes."""

    first: int
    size: int


def _size_of(blocks: Iterable[_Stored]) -> int:
    return sum(block.size for block in blocks)


def _to_join(small: list[_Stored]) -> list[_Stored]:
    """Return the last small blocks that are to be one: all, where they have 128 kB; else the short
    ones at the end, once there are more than eight of them. So a record is written three times, and
    128 kB are read in some sixteen blocks.
    """
    if _size_of(small) >= SIZE:
        return small
    short = list(takewhile(lambda block: block.size < SIZE // _SHORT_BLOCKS, reversed(small)))
    return short[::-1] if len(short) > _SHORT_BLOCKS else []


def source_of(sources: Sources, conversation: str) -> Source | None:
    """Return the source of a conversation; of a fork without one the part of its parent's that it
    shares: the records whose events it has.
    """
    return source_in(sources, sources.database.find(sources.reader, conversation, pending=True))


def source_in(sources: Sources, found: Conversation | None) -> Source | None:
    """Return the source of a conversation that was found: see ``source_of``."""
    key = 0 if found is None else found.key
    stop: int | None = None
    while found is not None:
        source = sources.find_by_key(found.key)
        if source is not None:
            if stop is None:
                return source
            return _before(sources, source, stop, key)
        if found.parent is None:
            return None
        stop = found.begins if stop is None else min(found.begins, stop)
        found = sources.reader.conversation(found.parent)
    return None


def _before(sources: Sources, source: Source, version: int, conversation: int) -> Source:
    """Return the source that a fork has before its first own record: it shares the records whose
    events are before a version. Its head is empty, since it costs all of their hashes.
    """
    records = sources.records_before(source, version)
    return source._replace(
        conversation=conversation,
        parent=source.conversation,
        from_record=records,
        records=records,
        made=records,
        redacted=(),
        head=b"",
    )
