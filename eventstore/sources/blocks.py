"""Blocks of a source: about 128 kB of its bytes, with the place and the hash of each record.

The bytes between records (line ends, commas, damaged lines) belong to the block, but to no record.
The blocks of a source contain all its bytes. Each record can be read, compared and proven
separately.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import accumulate, chain
from operator import sub
from typing import Final, NamedTuple, cast

_ERRORS: tuple[type[Exception], ...] = (zlib.error, ValueError, TypeError)
try:
    # ``isal`` takes a quarter of zlib's time, and its result is a tenth larger. zlib can decompress
    # it.
    from isal.isal_zlib import compress as _compress, decompress as _decompress, error as _error

    # the stub of the package calls the class an instance
    _ERRORS = (*_ERRORS, cast(type[Exception], _error))
except ImportError:
    from zlib import compress as _compress, decompress as _decompress

SIZE: Final = 128 * 1024
"""The approximate number of bytes in a block."""
_RATIO: Final = 8
"""Most blocks decompress to less than ``_RATIO`` times their stored size, so a buffer of this size
is usually enough.
"""
HASH_BYTES: Final = 16
GENESIS: Final = bytes(32)
"""The start of the chain of the records' hashes: the head of a source without records."""
_LEVEL: Final = 2


_SEPARATORS: Final = b" \t\r\n,"


class DamagedBlock(ValueError):
    """The bytes or the index of a block cannot be read."""


class Block(NamedTuple):
    """Consecutive records of a source, beginning with record number ``first``.

    ``places`` contains the start and the end of each record in ``raw``. ``hashes`` contains the
    hash of each record at the import, even if the record was redacted later.
    """

    first: int
    places: array[int]
    hashes: bytes
    raw: bytes

    @property
    def stop(self) -> int:
        return self.first + len(self.places) // 2

    def record(self, number: int) -> bytes:
        place = 2 * (number - self.first)
        return self.raw[self.places[place] : self.places[place + 1]]

    def records(self) -> list[bytes]:
        edges = iter(self.places)
        return [self.raw[start:end] for start, end in zip(edges, edges, strict=True)]

    def before(self, number: int) -> Block:
        """Return the part of the block before a record."""
        count = number - self.first
        raw = self.raw[: self.places[2 * count]]
        return Block(self.first, self.places[: 2 * count], self.hashes[: HASH_BYTES * count], raw)

    def since(self, number: int) -> Block:
        """Return the part of the block from a record on. The bytes directly before the record are
        left out too.
        """
        count = number - self.first
        if count == 0:
            return self
        start = self.places[2 * count]
        places = array("I", [place - start for place in self.places[2 * count :]])
        return Block(number, places, self.hashes[HASH_BYTES * count :], self.raw[start:])

    def text_before(self, number: int) -> bytes:
        """Return the text between a record and the record before it in the block."""
        place = 2 * (number - self.first)
        return self.raw[self.places[place - 1] : self.places[place]]

    def after(self, text: bytes) -> Block:
        """Return the block with a text before it."""
        if not text:
            return self
        places = array("I", [place + len(text) for place in self.places])
        return self._replace(places=places, raw=text + self.raw)

    def with_record(self, number: int, record: bytes) -> Block:
        """Return the block with other bytes of a record. The record's hash does not change, because
        the hash proves the imported bytes.
        """
        index = 2 * (number - self.first)
        start, end = self.places[index : index + 2]
        growth = len(record) - (end - start)
        places = self.places[: index + 1] + array(
            "I", [place + growth for place in self.places[index + 1 :]]
        )
        return Block(self.first, places, self.hashes, self.raw[:start] + record + self.raw[end:])

    def between(self) -> Iterator[bytes]:
        """Yield the texts before, between and after the records."""
        edges = iter((0, *self.places, len(self.raw)))
        return (self.raw[start:end] for start, end in zip(edges, edges, strict=True))

    def alone(self) -> Block:
        """Return the block without the texts between its records. White space may stay."""
        if not any(part.strip() for part in self.between()):
            return self
        return of_records(self.first, self.records(), [self.hashes])

    def packed(self) -> tuple[bytes, bytes]:
        """Return the index and the bytes of the block in their stored form."""
        return pack(_steps_to(self.places).tobytes()) + self.hashes, pack(self.raw)


class TextsBetween:
    """Collects the texts between the records of consecutive blocks, such as damaged lines. Texts of
    white space and commas alone are left out, and so is the text after the last record.

    ``found``  pairs of the number of the record after a text, and SHA-256 of the text
    """

    def __init__(self) -> None:
        self.found: list[tuple[int, bytes]] = []
        self._after = b""

    def take(self, block: Block) -> None:
        """Note the texts between the records of the next block that are more than separators."""
        first, *parts = block.between()
        before = [self._after + first, *parts]
        self._after = before.pop()
        # Few blocks have such texts, and looking at all parts at once costs less.
        if b"".join(before).translate(None, _SEPARATORS):
            for number, text in enumerate(before, block.first):
                if text.translate(None, _SEPARATORS):
                    self.found.append((number, sha256(text).digest()))


class AppendedIndex(NamedTuple):
    """The index of a block that was appended and is not yet joined with other blocks. The index
    also lists the events of the block's records, and contains the head after the last record.
    """

    places: array[int]
    hashes: bytes
    made: Mapping[int, tuple[int, int]]
    head: bytes

    def packed(self) -> bytes:
        events = array("I", chain.from_iterable(self.made.values()))
        return events.tobytes() + self.places.tobytes() + self.hashes + self.head


def unpacked_appended(first: int, count: int, index: bytes) -> AppendedIndex:
    """Return the index of an appended block with ``count`` records: the reverse of
    ``AppendedIndex.packed``. Raises ``DamagedBlock``.
    """
    pairs = 2 * array("I").itemsize * count
    end = 2 * pairs + HASH_BYTES * count
    if len(index) != end + len(GENESIS):
        raise DamagedBlock(f"the index of the block does not fit the block's {count} records")
    events = array("I", index[:pairs])
    event_spans = zip(
        range(first, first + count), zip(events[::2], events[1::2], strict=True), strict=True
    )
    places = array("I", index[pairs : 2 * pairs])
    return AppendedIndex(places, index[2 * pairs : end], dict(event_spans), index[end:])


def cut_at(blocks: Iterable[Block], stop: int) -> Iterator[Block]:
    """Yield the records before record ``stop``."""
    for block in blocks:
        if block.first >= stop:
            return
        yield block if block.stop <= stop else block.before(stop)


def join(blocks: Sequence[Block]) -> Block:
    """Return one block with the records of consecutive blocks."""
    places = array("I")
    length = 0
    for block in blocks:
        places.extend(place + length for place in block.places)
        length += len(block.raw)
    hashes = b"".join(block.hashes for block in blocks)
    return Block(blocks[0].first, places, hashes, b"".join(block.raw for block in blocks))


def of_records(
    first: int, records: Iterable[bytes], hashes: Iterable[bytes] | None = None
) -> Block:
    """Return a block with a record on each line. ``hashes`` are the hashes of the records, if they
    are known.
    """
    places = array("I")
    length = 0
    raw = list[bytes]()
    for record in records:
        places.extend((length, length + len(record)))
        length += len(record) + 1
        raw += (record, b"\n")
    if hashes is None:
        hashes = map(hash_of, raw[::2])
    return Block(first, places, b"".join(hashes), b"".join(raw))


def unpacked_index(count: int, index: bytes) -> tuple[array[int], bytes]:
    """Return the places and the hashes of a block with ``count`` records: the reverse of
    ``Block.packed``. Raises ``DamagedBlock``.
    """
    split = len(index) - HASH_BYTES * count
    steps = unpack(index[: max(split, 0)])
    try:
        places = array("I", accumulate(array("I", steps)))
    except (ValueError, OverflowError):  # steps that no version of foldlog wrote
        places = array("I")
    if len(places) != 2 * count:
        raise DamagedBlock(f"the index of the block does not fit the block's {count} records")
    return places, index[split:]


def _steps_to(places: array[int]) -> array[int]:
    """Return the distance of each place from the place before it. Small numbers compress well."""
    return array("I", map(sub, places, (0, *places)))


def pack(data: bytes) -> bytes:
    return _compress(data, _LEVEL)


def unpack(data: bytes) -> bytes:
    try:
        return _decompress(data, bufsize=_RATIO * len(data))
    except _ERRORS as error:
        raise DamagedBlock(f"it cannot be decompressed: {error}") from error


def hash_of(record: bytes) -> bytes:
    return sha256(record).digest()[:HASH_BYTES]


def each_hash(hashes: bytes) -> list[bytes]:
    return [hashes[start : start + HASH_BYTES] for start in range(0, len(hashes), HASH_BYTES)]


def numbers_with(first: int, hashes: bytes, searched: Container[bytes]) -> list[int]:
    """Return the numbers of the records whose hash is in ``searched``. ``hashes`` begins with the
    hash of record ``first``.
    """
    numbered = enumerate(each_hash(hashes), first)
    return [number for number, record_hash in numbered if record_hash in searched]


def chain_head(head: bytes, hashes: bytes) -> bytes:
    """Return the end of the chain of hashes after ``head`` and some records. It does not depend on
    the division of the records into blocks.
    """
    for start in range(0, len(hashes), HASH_BYTES):
        head = sha256(head + hashes[start : start + HASH_BYTES]).digest()
    return head


def fingerprint_of(head: bytes) -> bytes:
    return head[:HASH_BYTES]


def place_of_beginning(fingerprint: bytes) -> bytes:
    """Return the place of a source that ends with the record that has this fingerprint: see
    ``ChainedRecord``. A source that goes on has another place.
    """
    return sha256(b"ends here" + fingerprint).digest()[:HASH_BYTES]


class ChainedRecord(NamedTuple):
    """The number and the hash of a record. ``fingerprint`` identifies the record together with all
    records before it.
    """

    number: int
    hash: bytes
    fingerprint: bytes


def chained(hashes: bytes, first: int = 0, head: bytes = GENESIS) -> Iterator[ChainedRecord]:
    """Yield the records with these hashes. ``head`` is the end of the chain before record
    ``first``.
    """
    for number, record_hash in enumerate(each_hash(hashes), first):
        head = chain_head(head, record_hash)
        yield ChainedRecord(number, record_hash, fingerprint_of(head))


def count_shared(ours: bytes, theirs: bytes) -> int:
    """Return the number of records at the beginning that two sources share, by their hashes."""
    if theirs.startswith(ours) or ours.startswith(theirs):
        return min(len(ours), len(theirs)) // HASH_BYTES
    pairs = zip(each_hash(ours), each_hash(theirs), strict=False)
    return next(
        number for number, (our_hash, their_hash) in enumerate(pairs) if our_hash != their_hash
    )


def changed_records(block: Block) -> set[int]:
    """Return the numbers of the records whose bytes do not have the hash of the import."""
    pairs = zip(block.records(), each_hash(block.hashes), strict=True)
    return {
        number
        for number, (record, record_hash) in enumerate(pairs, block.first)
        if hash_of(record) != record_hash
    }
