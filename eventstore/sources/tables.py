"""The rows of sources in one transaction: what is imported, its blocks, and which events its
records became.

A source has the key of the conversation that it is. It may begin with the records of another
source, its parent, up to the record at which the two differ. Sources of one root are a family: they
may hold the same records.

The index and the bytes of a block, and what is known of a source, are deflated; in an encrypted
conversation they are sealed with its key, at their own place.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple, Self

from foldlog.eventstore.errors import ConversationNotFound, CorruptEvent, KeyUnavailable
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.keys import DataKey
from foldlog.eventstore.log.row import NotAsWritten
from foldlog.eventstore.log.seal import ENCRYPTED
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import as_text
from foldlog.eventstore.sources.blocks import (
    Block,
    DamagedBlock,
    pack,
    unpack,
    unpacked,
    unpacked_index,
)

_DEFLATED: Final = 1
_PAGE: Final = 8
"""The number of blocks that are read together: about a megabyte."""
MADE: Final = 64
"""The number of records of which one row says what they became: a recorder writes it again with
each of them.
"""
_ROWS: Final = 4
_ASKED: Final = 1_000
"""The number of fingerprints in one question."""
_numbers = struct.Struct(">2q").pack


class Source(NamedTuple):
    """A source as it is stored.

    ``conversation``  the key of the conversation that it is
    ``root``          the key of the first source of its family
    ``parent``        the key of the source whose records it shares below ``from_record``
    ``records``       how many there are, the shared ones among them; of ``made`` there are events
    ``format``        the name of its format; ``reader`` the version of the decoder that made the
                      events
    ``head``          the end of the chain of its records' hashes
    ``fingerprint``   refuses it when it is imported again after an erasure
    ``redacted``      the numbers of its own records of which only the skeleton stays
    ``about``         where it came from, and what is beside the records
    ``sums``          what figures are made of while not all records are events, and counted on when
                      it grows
    """

    conversation: int
    root: int
    parent: int | None
    from_record: int
    records: int
    made: int
    format: str
    reader: int
    head: bytes
    fingerprint: bytes
    redacted: tuple[int, ...] = ()
    about: bytes = b""
    sums: bytes = b""


class Place(NamedTuple):
    """What was found at a place: the conversation with this key, up to this record and byte.
    ``seen`` is when, ``state`` how the file was, ``digest`` a hash of the bytes that were taken.
    """

    conversation: int
    seen: int
    records: int
    taken: int
    state: bytes
    digest: bytes


Made = Mapping[int, tuple[int, int]]
"""Of each record the id of its first event, and how many events it became."""


class Near(NamedTuple):
    """Which events some records became that follow one another: all that are of events from
    ``start`` to ``stop``.
    """

    start: int
    stop: int
    made: dict[int, tuple[int, int]]


class Sources:
    """Reads sources in one transaction."""

    def __init__(
        self, database: Database, reader: Reader, key_of: Mapping[int, DataKey | None] | None = None
    ) -> None:
        """``key_of`` are keys that are not those of the conversations as they are found."""
        self.database = database
        self.reader = reader
        self._keys: dict[int, DataKey | None] = dict(key_of or {})

    def of_key(self, conversation: int, *, has_texts: bool = True) -> Source | None:
        """Return the source of the conversation with this key; None where it was not imported.
        Unless it ``has_texts``, what is stored beside its records is empty, and costs nothing.
        """
        found = self.reader.ask_sources("source", conversation)
        return self._source(found[0], has_texts=has_texts) if found else None

    def of(self, conversation: str) -> Source | None:
        """Return the source of a conversation. Raises ``ConversationNotFound``."""
        found = self.database.find(self.reader, conversation, pending=True)
        if found is None:
            raise ConversationNotFound(conversation)
        return self.of_key(found.key) if found.erasure is None else None

    def family(self, root: int) -> list[Source]:
        """Return all sources of a root, the oldest first."""
        keys = [key for (key,) in self.reader.ask_sources("family", root)]
        return [source for source in map(self.of_key, keys) if source is not None]

    def all(self, after: int = 0, limit: int = 500) -> list[Source]:
        """Return sources with keys after one, in the order of the keys. Without the key of an
        encrypted one, what is known of it is empty.
        """
        return [
            self._source(columns) for columns in self.reader.ask_sources("sources", after, limit)
        ]

    def abouts(self) -> Iterator[tuple[str, str, bytes]]:
        """Yield the id of each conversation with a source, the format, and what is stored about the
        source, the oldest first; without those whose key is not given.
        """
        for name, key, encoding, format, stored in self.reader.ask_sources("abouts"):
            with suppress(KeyUnavailable):
                yield (
                    as_text(name),
                    as_text(format),
                    unpack(self._opened(key, encoding, b"about", 0, stored)),
                )

    def name_of(self, conversation: int) -> str:
        """Return the id of the conversation with this key."""
        found = self.reader.conversation(conversation)
        return "" if found is None else found.id

    # -- blocks
    # ----------------------------------------------------------------------------------------------

    def blocks(self, source: Source, start: int = 0) -> Iterator[Block]:
        """Yield the blocks from that of a record on, the shared ones too, the last of these up to
        where the two sources differ. Raises ``CorruptEvent`` for a damaged one. Cost: these blocks.
        """
        if source.parent is not None and start < source.from_record:
            parent = self.of_key(source.parent)
            for block in () if parent is None else self.blocks(parent, start):
                if block.first >= source.from_record:
                    break
                yield (
                    block if block.stop <= source.from_record else block.before(source.from_record)
                )
        yield from self.own_blocks(source, start)

    def own_blocks(
        self, source: Source, start: int = 0, is_wanted: Callable[[bytes], bool] = lambda raw: True
    ) -> Iterator[Block]:
        """Yield the blocks that are stored for this source alone, those with bytes that are
        wanted.
        """
        key = source.conversation
        while page := self.reader.ask_sources("blocks", key, start, _PAGE):
            for first, count, encoding, index, body in page:
                raw = self._unpacked(key, self._opened(key, encoding, b"body", first, body), first)
                if not is_wanted(raw):
                    continue
                opened = self._opened(key, encoding, b"places", first, index)
                try:
                    block = unpacked(first, count, opened, raw)
                except DamagedBlock as error:
                    raise self._corrupt(key, first, error) from error
                yield block
            start = page[-1][0] + page[-1][1]

    def hashes(self, source: Source) -> bytes:
        """Return the hashes of all records, one behind the other. Cost: the indexes of its
        blocks.
        """
        shared = b""
        if source.parent is not None and (parent := self.of_key(source.parent)) is not None:
            shared = self.hashes(parent)
        found = [shared[: source.from_record * 16]]
        found += [hashes for _, hashes in self.indexes(source)]
        return b"".join(found)

    def indexes(self, source: Source) -> Iterator[tuple[int, bytes]]:
        """Yield of each own block the number of its first record, and the hashes. Cost: the
        indexes.
        """
        key = source.conversation
        for first, count, encoding, index in self.reader.ask_sources("block_indexes", key):
            opened = self._opened(key, encoding, b"places", first, index)
            try:
                _, hashes = unpacked_index(count, opened)
            except DamagedBlock as error:
                raise self._corrupt(key, first, error) from error
            yield first, hashes

    def record(self, source: Source, number: int) -> bytes:
        """Return a record. Cost: one block."""
        return next(self.blocks(source, number)).record(number)

    def all_redacted(self, source: Source) -> set[int]:
        """Return the numbers of the redacted records, the shared ones too."""
        found = set(source.redacted)
        if source.parent is not None and (parent := self.of_key(source.parent)) is not None:
            found |= {number for number in self.all_redacted(parent) if number < source.from_record}
        return found

    def redacted_hashes(self, root: int) -> set[bytes]:
        """Return the hashes of the redacted records of a family: these records come in as their
        skeletons.
        """
        found = set[bytes]()
        for source in self.family(root):
            for first, hashes in self.indexes(source) if source.redacted else ():
                stop = first + len(hashes) // 16
                inside = (number - first for number in source.redacted if first <= number < stop)
                found |= {hashes[16 * place : 16 * place + 16] for place in inside}
        return found

    # -- events of records
    # --------------------------------------------------------------------------------------------

    def made(self, source: Source) -> dict[int, tuple[int, int]]:
        """Return which events each record became, the shared ones too. Cost: some bytes a
        record.
        """
        found: dict[int, tuple[int, int]] = {}
        if source.parent is not None and (parent := self.of_key(source.parent)) is not None:
            shared = self.made(parent)
            found = {number: shared[number] for number in shared if number < source.from_record}
        return found | self._made_in(
            source.conversation, self.reader.ask_sources("made", source.conversation)
        )

    def made_near(self, source: Source, event_id: int) -> Near:
        """Return which events the record of this event became, and some records after it, the
        shared ones too. Cost: a few rows.
        """
        key = source.conversation
        rows = self.reader.ask_sources("made_near", key, event_id, _ROWS)
        first = rows[0][0] if rows else sys.maxsize
        if first <= event_id:
            made = self._made_in(key, rows)
            stop = sum(made[max(made)]) if len(rows) == _ROWS else sys.maxsize
            return Near(first, stop, made)
        parent = None if source.parent is None else self.of_key(source.parent)
        if parent is None:
            return Near(0, first, {})
        near = self.made_near(parent, event_id)
        shared = {number: near.made[number] for number in near.made if number < source.from_record}
        return Near(near.start, min(near.stop, first), shared)

    def records_before(self, source: Source, version: int) -> int:
        """Return the number after the last record all events of which are before a version. Cost: a
        few rows.
        """
        while version:
            near = self.made_near(source, version - 1)
            whole = (
                number for number, (first, count) in near.made.items() if first + count <= version
            )
            last = max(whole, default=-1)
            if last >= 0:
                return last + 1
            version = near.start
        return 0

    def _made_in(
        self, conversation: int, rows: Iterable[Sequence[Any]]
    ) -> dict[int, tuple[int, int]]:
        found: dict[int, tuple[int, int]] = {}
        for _, data in rows:
            numbers = array("I")
            numbers.frombytes(self._unpacked(conversation, data))
            each = iter(numbers)
            found |= {
                number: (first, count)
                for number, first, count in zip(each, each, each, strict=True)
            }
        return found

    # -- places
    # ----------------------------------------------------------------------------------------------

    def places(self, place: bytes) -> list[Place]:
        """Return what was found at a place, the newest last."""
        return [Place(*columns) for columns in self.reader.ask_sources("places", place)]

    def places_of(self, conversation: int) -> list[tuple[bytes, Place]]:
        """Return the places that became this conversation, and what was found there."""
        found = self.reader.ask_sources("places_of", conversation)
        return [(place, Place(conversation, *columns)) for place, *columns in found]

    def firsts(self, conversation: int, start: int, stop: int) -> list[int]:
        """Return the numbers with which stored blocks begin, from a record up to another one."""
        rows = self.reader.ask_sources("block_indexes", conversation)
        return [first for first, *_ in rows if start <= first < stop]

    def is_refused(self, fingerprint: bytes) -> bool:
        """Return whether an erased source was at this place, or had this fingerprint."""
        return bool(self.refused_among([fingerprint]))

    def refuse_any(self) -> bool:
        """Return whether anything is refused."""
        return bool(self.reader.ask_sources("first_refused"))

    def refused_of(self, conversation: int) -> list[bytes]:
        """Return what is refused because of a conversation."""
        return [
            fingerprint for (fingerprint,) in self.reader.ask_sources("refused_of", conversation)
        ]

    def refused_among(self, hashes: Iterable[bytes]) -> set[bytes]:
        """Return which of these are hashes of redacted records, or fingerprints. Cost: a query for
        each thousand.
        """
        left = iter(hashes)
        found = set[bytes]()
        while some := b"".join(islice(left, _ASKED)):
            found |= {
                fingerprint for (fingerprint,) in self.reader.ask_sources("refused_among", some)
            }
        return found

    # -- steps
    # ----------------------------------------------------------------------------------------------

    def _source(self, columns: Sequence[Any], *, has_texts: bool = True) -> Source:
        (
            key,
            root,
            parent,
            from_record,
            records,
            made,
            format,
            reader,
            encoding,
            head,
            fingerprint,
            redacted,
            *texts,
        ) = columns
        numbers = array("I")
        numbers.frombytes(redacted)
        names = (b"about", b"sums") if has_texts else ()
        opened = [
            self._opened(key, encoding, name, 0, data)
            for name, data in zip(names, texts, strict=has_texts)
        ]
        return Source(
            key,
            root,
            parent,
            from_record,
            records,
            made,
            as_text(format),
            reader,
            head,
            fingerprint,
            tuple(numbers),
            *(self._unpacked(key, data) for data in opened),
        )

    def _key(self, conversation: int) -> DataKey | None:
        """Return the key of a conversation. Raises ``KeyUnavailable``."""
        if conversation not in self._keys:
            found = self.database.find_key(self.reader, conversation)
            self._keys[conversation] = (
                None if found is None else self.database.codec_of(found).data_key
            )
        return self._keys[conversation]

    def _opened(
        self, conversation: int, encoding: int, column: bytes, first: int, data: bytes
    ) -> bytes:
        if not encoding & ENCRYPTED:
            return data
        key = self._key(conversation)
        try:
            if key is None:
                raise NotAsWritten("it is encrypted, and its conversation has no key")
            return key.decrypt(data, _place(column, conversation, first))
        except NotAsWritten as error:
            raise self._corrupt(conversation, first, error) from error

    def _unpacked(self, conversation: int, data: bytes, first: int = 0) -> bytes:
        try:
            return unpack(data)
        except DamagedBlock as error:
            raise self._corrupt(conversation, first, error) from error

    def _corrupt(self, conversation: int, first: int, error: Exception) -> CorruptEvent:
        name = self.name_of(conversation)
        return CorruptEvent(
            name, 0, f"the records of its source from {first} on cannot be read: {error}"
        )


class SourcesToWrite(Sources):
    """Writes sources in one transaction."""

    reader: Transaction

    @classmethod
    def beside(cls, writing: WriteTransaction) -> Self:
        """Return the sources, to write that of this conversation."""
        return cls(writing.database, writing.transaction, key_of={writing.key: writing.data_key})

    def put(self, source: Source) -> None:
        """Write a source, in the place of what is there."""
        key = source.conversation
        texts = (source.about, source.sums)
        names = (b"about", b"sums")
        sealed = [
            self._sealed(key, name, 0, pack(text)) for name, text in zip(names, texts, strict=True)
        ]
        redacted = array("I", source.redacted).tobytes()
        # sums may be long, and the database copies what it is given: let the texts go before
        source = source._replace(about=b"", sums=b"")
        del texts
        self.reader.write_sources(
            "put_source",
            *source[:8],
            self._encoding(key),
            source.head,
            source.fingerprint,
            redacted,
            *sealed,
        )

    def set_progress(self, source: Source, records: int, made: int, head: bytes) -> None:
        """Write how many records there are, and how many have events."""
        self.reader.write_sources("set_progress", records, made, head, source.conversation)

    def put_blocks(self, source: Source, blocks: Iterable[Block]) -> None:
        """Write blocks, in the place of those with the same first record."""
        key = source.conversation
        for block in blocks:
            index, body = block.packed()
            sealed = [
                self._sealed(key, b"places", block.first, index),
                self._sealed(key, b"body", block.first, body),
            ]
            number = block.stop - block.first
            self.reader.write_sources(
                "put_block", key, block.first, number, self._encoding(key), *sealed
            )

    def delete_block(self, conversation: int, first: int) -> None:
        """Delete the block that begins with a record."""
        self.reader.write_sources("delete_block", conversation, first)

    def join_blocks(self, source: Source, blocks: Sequence[Block], whole: Block) -> None:
        """Write one block in the place of several."""
        for block in blocks:
            self.delete_block(source.conversation, block.first)
        self.put_blocks(source, [whole])

    def leave_parent(self, source: Source) -> None:
        """Give a source a copy of the records that it shares, and of what they became. Cost: these
        records.
        """
        shared = source._replace(records=source.from_record)
        blocks = [block for block in self.blocks(shared) if block.first < source.from_record]
        made = {
            number: place
            for number, place in self.made(source).items()
            if number < source.from_record
        }
        gone = self.all_redacted(source)
        alone = source._replace(parent=None, from_record=0, redacted=tuple(sorted(gone)))
        self.put_blocks(alone, blocks)
        self.put_made(alone, made)
        self.put(alone)

    def put_made(self, source: Source, made: Made) -> None:
        """Write which events some records became, in their order. A row that begins with the same
        event is replaced.
        """
        left = iter(made.items())
        while row := [*islice(left, MADE)]:
            numbers = array("I", [value for number, place in row for value in (number, *place)])
            _, (event, _) = row[0]
            self.reader.write_sources(
                "put_made", source.conversation, event, pack(numbers.tobytes())
            )

    def clear_made(self, source: Source) -> None:
        """Forget which events its own records became, before it is written again."""
        self.reader.write_sources("delete_made", source.conversation)

    def put_place(self, place: bytes, found: Place) -> None:
        """Write what was found at a place."""
        self.reader.write_sources("put_place", place, *found)

    def refuse(self, conversation: int, fingerprints: Iterable[bytes]) -> None:
        """Refuse the hashes of redacted records, or what an erased conversation refuses in another
        store.
        """
        for fingerprint in fingerprints:
            self.reader.write_sources("put_refused", fingerprint, conversation)

    def allow(self, fingerprint: bytes) -> None:
        """Let a source come in again that was erased."""
        self.reader.write_sources("allow", fingerprint)

    def _encoding(self, conversation: int) -> int:
        if self._key(conversation) is None:
            return _DEFLATED
        return _DEFLATED | ENCRYPTED

    def _sealed(self, conversation: int, column: bytes, first: int, data: bytes) -> bytes:
        key = self._key(conversation)
        if key is None:
            return data
        return key.encrypt(data, _place(column, conversation, first))


def _place(column: bytes, conversation: int, first: int) -> bytes:
    return b"source\0%b\0%b" % (column, _numbers(conversation, first))
