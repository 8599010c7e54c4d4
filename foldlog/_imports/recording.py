"""The records that a runtime appends to one conversation: decode them, and store them in the
transaction of their events.

An append writes its records as a block. If more than eight blocks at the end of the source are
smaller than 16 kB, an append joins them into one. When the blocks since the last full block have
128 kB in total, an append joins them into a full block. To join blocks, an append reads them from
the store, because a redaction may have changed them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, Final, NamedTuple

from msgspec.json import encode

from foldlog._reports.figures.overview import PARENT
from foldlog._reports.records.decoding import decode_records
from foldlog.eventstore import (
    Event,
    InvalidArgument,
    InvalidEvent,
    Store,
    VersionConflict,
)
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
from foldlog.eventstore.sources.tables import WHERE, Made, Source, Sources, SourcesToWrite
from foldlog.formats.event_places import number
from foldlog.formats.format import Format, UnusableFormat
from foldlog.formats.json_text import json_of
from foldlog.formats.record import NotAnEvent
from foldlog.formats.record_decoding import READER, decoder_of, parent_named_in

_SHORT_BLOCKS: Final = 8
"""More blocks than this number at the end of a source are joined if each is smaller than this part
of ``SIZE``.
"""


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
        self._parent: str | None = None
        """The conversation that began this one, if the first record names it."""
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
        """Decode the stored records of the conversation, if they have the format of this
        recorder.
        """

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
        """Prepare the recorder to append at ``version``, after events of other writers."""
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
        """Return the events of new records. Raises ``InvalidEvent`` if a record is not in the
        format.
        """
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
        """Return the events of one new record. Raises ``NotAnEvent`` if it is not in the format."""
        body = json_of(record)
        events = self._decoder.events(record)
        if not events or events[0].id != self._next:
            returned = f"event {events[0].id}" if events else "no event"
            raise UnusableFormat(
                f"the decoder of {self.format} returned {returned} for a history at"
                f" version {self._next}; a decoder returns at least one event for a record, and"
                " numbers its events from next_id on"
            )
        number(events, self.format)
        if not self._records and not self._bodies:
            self._parent = parent_named_in(events)
        self._made[self._records + len(self._bodies)] = events[0].id, len(events)
        self._bodies.append(body)
        self._next += len(events)
        return events

    def write(self, writing: WriteTransaction, conversation: str) -> None:
        """Store the decoded records in the transaction that has appended their events."""
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
        """Check the stored source of the conversation. If there is none, begin it."""
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
        """Return the hash by which later imports recognize the source if it was erased. The
        fingerprint of a log is the hash of its first line. Many documents begin with the same
        prompt, so a document gets a random fingerprint, which no other source has.
        """
        assert self._new is not None
        is_document = self._format.skeleton is None
        if is_document:
            return new_salt()[:HASH_BYTES]
        return self._new.hashes[:HASH_BYTES]

    def _begun(self, sources: SourcesToWrite, stored: Sources, writing: WriteTransaction) -> Source:
        """Store the row of a new source, and return it. The source of a fork continues the records
        that the fork shares with its parent.
        """
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
                about=encode({WHERE: {PARENT: self._parent}}) if self._parent else b"",
            )
        source = stored.as_row(source)
        sources.put(source)
        return source


class _Stored(NamedTuple):
    """The first record and the size in bytes of a stored block."""

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
