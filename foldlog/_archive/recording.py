"""This module stores the records that a runtime appends. The records and their events are stored in
one transaction.

An append writes its records as a block. If more than eight blocks at the end of the source are
smaller than 16 kB, an append joins them into one. When the blocks since the last full block have
128 kB in total, an append joins them into a full block. To join blocks, an append reads them from
the store, because a redaction may have changed them. The decoders of the 256 conversations with the
newest appends stay in memory. The first append of a process to a conversation, and the next append
after a failed append, decode all earlier records of the conversation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from foldlog._archive.projecting import decode_records
from foldlog._base.telemetry import tell
from foldlog._formats.calls import Recent
from foldlog._formats.decoded import READER, decoder_of
from foldlog._formats.format import Format, UnusableFormat
from foldlog._formats.json_text import json_of
from foldlog._formats.places import number
from foldlog._formats.record import NotAnEvent
from foldlog._formats.registry import format_named
from foldlog.eventstore import (
    ANY_VERSION,
    ConversationErased,
    ConversationNotFound,
    Event,
    IdempotencyConflict,
    InvalidArgument,
    InvalidEvent,
    Recorded,
    Store,
    VersionConflict,
)
from foldlog.eventstore.log import origins
from foldlog.eventstore.log.origins import PartlyKnown
from foldlog.eventstore.log.row import new_salt
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.sources.blocks import (
    GENESIS,
    HASH_BYTES,
    SIZE,
    Block,
    chain_head,
    of_records,
)
from foldlog.eventstore.sources.reading import blocks_of
from foldlog.eventstore.sources.tables import Made, Source, Sources, SourcesToWrite

if TYPE_CHECKING:
    from foldlog._history.history import ExpectedVersion, History

_RECORDERS_MAX: Final = 256
"""The maximum number of recorders in memory. An append whose recorder is in memory decodes no
earlier record.
"""
_TRIES: Final = 100
_SHORT_BLOCKS: Final = 8


class Recording:
    """Appends records to histories. Many threads may use the same ``Recording``."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._recorders = Recent[tuple[str, str], tuple[HistoryRecorder, int | None]](
            _RECORDERS_MAX
        )
        """Each recorder comes with the key of its conversation, because a new conversation may have
        the id of an erased conversation.
        """
        self._repeating = Recent[str, bool](_RECORDERS_MAX)
        """The histories to which a program has appended a record twice."""

    def append(
        self,
        history: History,
        records: Iterable[Any],
        format: str,
        expected_version: ExpectedVersion,
        dedupe: Literal["origin"] | None,
        idempotency_key: str | None = None,
    ) -> tuple[Recorded, ...]:
        if not isinstance(records, Iterable):
            raise TypeError(f"records must be a list of the format's records, not {records!r:.60}")
        record_list = list(records)
        rules = format_named(format)
        for attempt in range(_TRIES):
            # The store would compare events, but a repeated record may decode to other events: the
            # decoder has read the record before.
            earlier = _appended_before(history, record_list, idempotency_key)
            if earlier:
                return earlier
            recorder = self.recorder(history, rules)
            version = recorder.version
            # The decoder gives its events the ids from this version on, so no other event may be
            # appended before them.
            expected = version if expected_version is ANY_VERSION else expected_version
            new_records = self._new_records(history, record_list, rules, dedupe)
            events = recorder.decode_all(new_records)
            # The append empties ``recorder.findings``, so copy them first.
            findings = tuple(recorder.findings)
            recorded: tuple[Recorded, ...] = ()
            try:
                if events:
                    recorded = history._append_recorded(
                        events, recorder, expected, dedupe=dedupe, idempotency_key=idempotency_key
                    )
                else:
                    self.keep(history, recorder)
            except PartlyKnown:
                if new_records is not record_list:
                    raise
                self._note_repeating(history)
                continue
            except (IdempotencyConflict, VersionConflict) as conflict:
                # Another writer was first, perhaps with this key, or the decoder in memory is of an
                # older version.
                is_final = (
                    isinstance(conflict, VersionConflict) and expected_version is not ANY_VERSION
                )
                if is_final or attempt + 1 == _TRIES:
                    raise
                continue
            if events and not recorded:
                self._note_repeating(history)
                return ()
            for finding in findings:
                tell("foldlog.import.finding", of=f"conversation {history.id!r}", finding=finding)
            return recorded
        raise AssertionError("it returned or raised")

    def _new_records(
        self,
        history: History,
        records: list[Any],
        format: Format,
        dedupe: Literal["origin"] | None,
    ) -> list[Any]:
        # Most programs append only new records. So stored records are searched for here only in
        # histories with repeated records. In other histories, the append itself finds a repeated
        # record.
        if dedupe is None or history.id not in self._repeating:
            return records
        return _unknown_records(history, records, format)

    def _note_repeating(self, history: History) -> None:
        with self._lock:
            self._repeating[history.id] = True

    def keep(self, history: History, recorder: HistoryRecorder) -> None:
        if recorder.committed():
            with self._lock:
                self._recorders[history.id, recorder.format] = recorder, history._conversation_key()

    def recorder(
        self, history: History, format: Format, version: int | None = None
    ) -> HistoryRecorder:
        # While the caller uses the recorder, no other caller gets it.
        with self._lock:
            recorder, key = self._recorders.pop((history.id, format.name), (None, None))
        version = history.version() if version is None else version
        if recorder is None or key != history._conversation_key() or version < recorder.version:
            return HistoryRecorder(history._store, history.id, format, version)
        recorder.go_to(version)
        return recorder


def _appended_before(
    history: History, records: list[Any], idempotency_key: str | None
) -> tuple[Recorded, ...]:
    """Return the events that an append of these records with the same key has appended. Raises
    ``IdempotencyConflict`` if the key was used for other records.
    """
    if idempotency_key is None:
        return ()
    try:
        recorded = history._store.recorded(history.id, idempotency_key)
    except (ConversationErased, ConversationNotFound):
        return ()
    if recorded:
        start, stop = recorded[0].id, recorded[-1].id + 1
        stored = history._stored_records()
        bodies = [stored.text_of(span.start) for span, _ in stored.between(start, stop)]
        requested = [json_of(record) for record in records]
        # A record that was redacted in between has no body to compare.
        pairs = zip(bodies, requested, strict=False)
        if len(bodies) != len(requested) or any(body not in (None, new) for body, new in pairs):
            raise IdempotencyConflict(history.id, idempotency_key, start)
    return recorded


def _unknown_records(history: History, records: list[Any], format: Format) -> list[Any]:
    # If several records have the same source id, only the first of them counts.
    ids = [format.source_id(record) for record in records]
    is_known = origins.find_known(history._store.database, history.id, format.name, ids)
    unknown_records: dict[Any, Any] = {}
    for index, record in enumerate(records):
        if not is_known[index]:
            unknown_records.setdefault(origins.source_key(format.name, ids[index]) or index, record)
    return list(unknown_records.values())


class HistoryRecorder:
    """Decodes records of one history and stores them. First decode the records, then append their
    events at ``version``, and call ``write`` in the same transaction. Then call ``Recording.keep``.
    After a failed append, use a new recorder.
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
        self._stored_as: int | None = None
        """The key of the conversation if this recorder has decoded all records of its source, and
        otherwise None. If the key is known, an append does not read the source.
        """
        # If the transaction is committed, the fields with ``_then`` replace the fields without it.
        self._small_then = self._small
        self._stored_then: int | None = None
        self._bodies = list[bytes]()
        self._made = dict[int, tuple[int, int]]()
        """Maps the number of a new record to the id of its first event and the count of its events.
        """
        self._new: Block | None = None
        self._head_then = GENESIS
        self._version_then = version
        if version:
            self._read(store, conversation)
        self._decoder.skip_to(version)
        self.findings.clear()

    @property
    def format(self) -> str:
        return self._format.name

    def _read(self, store: Store, conversation: str) -> None:

        def read(reader: Reader) -> tuple[Source, Made, bytes] | None:
            sources = Sources(store.database, reader)
            source = sources.of(conversation)
            if source is None or source.format != self._format.name:
                return None
            head = source.head or chain_head(
                GENESIS, sources.hashes(source)[: HASH_BYTES * source.records]
            )
            return source, sources.made(source), head

        stored = store.database.recorder.query(read)
        if stored is None:
            return
        source, event_spans, self._head = stored
        self._records = source.records
        for _ in decode_records(
            store, source, event_spans, source.records, self.version, self.findings, self._decoder
        ):
            pass
        for block in blocks_of(store.database, source, source.from_record):
            if block.first >= source.from_record:
                self._small.append(_Stored(block.first, len(block.raw)))
                if _size_of(self._small) >= SIZE:
                    self._small.clear()

    def go_to(self, version: int) -> None:
        if version != self.version:
            self._stored_as = None  # Other writers may have appended records too.
        self.skip(version - self.version)
        self.version = version

    def skip(self, count: int) -> None:
        """Skip the ids of events that this recorder did not decode."""
        if count:
            self._next += count
            self._decoder.skip_to(self._next)

    def decode_all(self, records: Sequence[Any]) -> list[Event]:
        events = list[Event]()
        for index, record in enumerate(records):
            findings_before = len(self.findings)
            try:
                events += self.decode(record)
            except NotAnEvent as error:
                raise InvalidEvent(
                    f"record {index}: {error}; nothing was appended; correct the record"
                ) from error
            self.findings[findings_before:] = [
                f"record {index} {finding}" for finding in self.findings[findings_before:]
            ]
        return events

    def decode(self, record: Any) -> list[Event]:
        body = json_of(record)
        events = self._decoder.events(record)
        if events[0].id != self._next:
            raise UnusableFormat(
                f"the decoder of {self.format} returned event {events[0].id} for a history at "
                f"version"
                f" {self._next}; a decoder numbers its events from next_id on"
            )
        number(events, self.format)
        self._made[self._records + len(self._bodies)] = events[0].id, len(events)
        self._bodies.append(body)
        self._next += len(events)
        return events

    def write(self, writing: WriteTransaction, conversation: str) -> None:
        if not self._bodies:
            return
        sources = SourcesToWrite.beside(writing)
        new_block = of_records(self._records, self._bodies)
        self._new = new_block
        if self._stored_as != writing.key:
            self._find_source(sources, writing, conversation)
        if writing.appended_at != self.version:
            raise VersionConflict(conversation, self.version, writing.appended_at)
        self._head_then = chain_head(self._head, new_block.hashes)
        sources.append_block(writing.key, new_block, self._made, self._head_then)
        small_blocks = [*self._small, _Stored(new_block.first, len(new_block.raw))]
        to_join = _to_join(small_blocks)
        if to_join:
            source = sources.settle(writing.key)
            assert source is not None
            if len(to_join) > 1:
                sources.join_last(source, to_join[0].first)
            small_blocks = [
                *small_blocks[: -len(to_join)],
                _Stored(to_join[0].first, _size_of(to_join)),
            ]
        self._small_then = small_blocks if _size_of(small_blocks) < SIZE else []
        self._stored_then = writing.key
        self._version_then = writing.version

    def _find_source(
        self, sources: SourcesToWrite, writing: WriteTransaction, conversation: str
    ) -> None:
        stored = Sources(writing.database, writing.transaction, {writing.key: writing.data_key})
        source = stored.find_by_key(writing.key)
        if source is None:
            source = self._begun(sources, stored, writing)
        if source.format != self._format.name:
            raise InvalidArgument(
                f"conversation {conversation!r} has records of the format {source.format!r}, not"
                f" {self._format.name!r}; append records of its format, or append events"
            )
        if source.records != self._records:
            raise VersionConflict(conversation, self.version, writing.version)

    def committed(self) -> bool:
        """Return whether the append has stored the decoded records. An append stores nothing if an
        earlier append recorded the same events.
        """
        if self._new is None and self._bodies:
            return False
        self.findings.clear()
        if self._new is None:
            self.version = self._next
            return True
        # The append may have added changes of documents after the decoded events.
        self.skip(self._version_then - self._next)
        self.version = self._version_then
        self._records = self._new.stop
        self._head = self._head_then
        self._small = self._small_then
        self._stored_as = self._stored_then
        self._new = None
        self._bodies = []
        self._made = {}
        return True

    def _fingerprint(self) -> bytes:
        # Later imports recognize an erased source by its fingerprint, and refuse it. The
        # fingerprint of a log is the hash of its first line. Many documents begin with the same
        # prompt, so a document gets a random fingerprint, which no other source has.
        assert self._new is not None
        is_document = self._format.skeleton is None
        if is_document:
            return new_salt()[:HASH_BYTES]
        return self._new.hash_of(self._new.first)

    def _begun(self, sources: SourcesToWrite, stored: Sources, writing: WriteTransaction) -> Source:
        # The source of a fork continues the records that the fork shares with its parent.
        source = stored.of_state(writing.state)
        if source is None or source.format != self._format.name:
            source = Source(
                conversation=writing.key,
                root=writing.key,
                parent=None,
                from_record=0,
                records=0,
                made=0,
                format=self._format.name,
                reader=READER,
                head=GENESIS,
                fingerprint=self._fingerprint(),
            )
        source = stored.as_row(source)
        sources.put(source)
        return source


class _Stored(NamedTuple):
    first: int
    size: int


def _size_of(blocks: Iterable[_Stored]) -> int:
    return sum(block.size for block in blocks)


def _to_join(blocks: list[_Stored]) -> list[_Stored]:
    """Return the blocks to join. If all small blocks together have 128 kB, join them all.
    Otherwise, if more than eight blocks at the end are smaller than 16 kB, join those blocks. So a
    record in a block of at least 2 kB is written at most three times: in its own block, in a joined
    block, and in a full block. If the blocks are smaller, the joined block is joined again after
    eight more appends, until it has 16 kB.
    """
    if _size_of(blocks) >= SIZE:
        return blocks
    short = list(takewhile(lambda block: block.size < SIZE // _SHORT_BLOCKS, reversed(blocks)))
    return short[::-1] if len(short) > _SHORT_BLOCKS else []
