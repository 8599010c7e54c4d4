"""Read the records of a source for an import: as bytes, in blocks, with a hash of each record.
Records that cannot be read become findings.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from foldlog.eventstore.files.compressed import open_unpacked
from foldlog.eventstore.sources.blocks import SIZE, Block, hash_of, of_records
from foldlog.formats.files.documents import DocumentRecords
from foldlog.formats.files.frames import Frame, frame_of
from foldlog.formats.files.readers import JsonLines
from foldlog.formats.json_text import (
    RECORD_SIZE_MAX,
    TOO_LONG,
    WITHIN_LIMITS,
    UnreadableJson,
    bytes_of,
    check_limits,
    in_utf8,
    joined_objects,
)
from foldlog.formats.record import (
    FINDINGS_MAX,
    ImportFinding,
    Located,
    MarkedReader,
    RecordReader,
)

_PADDING: Final = b" \t\r\0"
"""A line may have NUL bytes around it if the machine crashed while the file grew."""
_LOST: Final = "{:,} NUL bytes, in whose place the machine may have lost records in a crash"
_NOT_UTF_8: Final = "has bytes that are not UTF-8, which are read as U+FFFD"
_BUFFER: Final = 2**20
_LOG_BUFFER: Final = 2**17
"""The number of bytes per read of a log. With Python's 8 KB, most blocks take several reads."""

Add = Callable[[bytes, bytes], None]
"""A function that is called with each record, in UTF-8, and its hash. The function raises
``msgspec.DecodeError`` or ``UnreadableJson`` for a record that is not JSON.
"""


class _Reading:
    """The state of a pass over a source.

    ``records``   the number of records that were read
    ``taken``     the number of bytes that were read; ``digest`` is their hash
    ``findings``  the problems of records
    ``unread``    for each unreadable record, the number of records before it
    ``place``     the position of the current record in the source, for messages
    ``waits``     whether the last line is incomplete
    ``is_done``   whether the source was read to its end
    ``frame``     the text between the records of a document; set at the end
    """

    def __init__(self, path: Path, records: int = 0) -> None:
        self.path = path
        self.records = records
        self.taken = 0
        self.findings = list[ImportFinding]()
        self.findings_count = 0
        self.unread = list[int]()
        self.waits = False
        self.is_done = False
        self.frame: Frame | None = None
        self._hash = sha256()

    @property
    def digest(self) -> bytes:
        return self._hash.digest()

    def report(self, place: str, problem: str, *, is_unread: bool = True) -> None:
        """Note a finding. ``is_unread`` is true if the record was left out."""
        self.findings_count += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(ImportFinding(place, problem))
        if is_unread and len(self.unread) < FINDINGS_MAX:
            self.unread.append(self.records)


class LineReading(_Reading):
    """Reads a file with one record in each line. Memory: one block of the file, or one line if it
    is longer than a block, and the lines without a record before it.
    """

    grows = True

    def __init__(self, path: Path, *, is_packed: bool = False) -> None:
        super().__init__(path)
        self.is_packed = is_packed
        self._line = 1
        self._lines = array("I")
        """The line of each record that was read."""
        self._is_in_long_line = False
        """Whether the next bytes still belong to a line that is too long, for which a finding is
        already noted.
        """

    @property
    def place(self) -> str:
        return f"{self.path}:{self._line}"

    def find_in(self, number: int, problem: str) -> None:
        """Note a problem in a record, before the other problems of its line."""
        self.findings_count += 1
        first_read = self.records - len(self._lines)
        if number < first_read:  # read by an earlier import, which was stopped before its end
            index = 0
            place = f"{self.path}, record {number}"
        else:
            line = self._lines[number - first_read]
            index = bisect_left(self.findings, line, key=_line_of)
            place = f"{self.path}:{line}"
        self.findings.insert(index, ImportFinding(place, problem))
        del self.findings[FINDINGS_MAX:]

    def begins_with(self, size: int, digest: bytes, records: int) -> bool:
        """Return whether the file begins with ``size`` bytes that have the hash ``digest``, and
        skip these bytes. If the result is False, the reading cannot be used any more.
        """
        with self.path.open("rb") as file:
            rest = size
            while rest > 0 and (some := file.read(min(rest, _BUFFER))):
                self._hash.update(some)
                self._line += some.count(b"\n")
                rest -= len(some)
        if rest or self._hash.digest() != digest:
            return False
        self.taken = size
        self.records = records
        return True

    def blocks(self, add: Add) -> Iterator[Block]:
        """Yield the blocks of the file from the present place on, and call ``add`` for each
        record.
        """
        held = list[bytes]()  # Lines without a record belong to the block of the next record.
        with self._open() as file:
            if self.taken:
                file.seek(self.taken)
            while data := self._next(file):
                block, end = self._block(data, add)
                if block.places:
                    yield self._taken(block, b"".join(held))
                    held = []
                else:
                    held.append(block.raw)
                if end < len(data):
                    break
        self.is_done = True

    def _taken(self, block: Block, held: bytes) -> Block:
        """Count the bytes of a block as read. Return the block with the lines ``held`` before
        it.
        """
        block = block.after(held)
        self._hash.update(block.raw)
        self.taken += len(block.raw)
        return block

    def _open(self) -> BinaryIO:
        if self.is_packed:
            return open_unpacked(self.path, _BUFFER)
        return self.path.open("rb", _LOG_BUFFER)

    def _next(self, file: BinaryIO) -> bytes:
        """Return the bytes of the next block: whole lines, but at the end of the file also an
        incomplete last line.
        """
        data = file.read(SIZE)
        if data and not data.endswith(b"\n"):
            data += file.readline(RECORD_SIZE_MAX)
        return data

    def _block(self, data: bytes, add: Add) -> tuple[Block, int]:
        """Return the records in ``data``, and the number of bytes that were read. If the program
        has not finished the last line, this line is not read.
        """
        places = array("I")
        hashes = list[bytes]()
        first = self.records
        start = 0
        end = len(data)
        for line in data.split(b"\n"):
            length = len(line)
            stop = start + length
            is_last = stop == end
            record = line.strip(_PADDING)
            if self._is_in_long_line:
                record = b""
                self._is_in_long_line = is_last
            if self.taken == 0 and start == 0:
                record = record.removeprefix(BOM_UTF8)
            if record:
                hashed = hash_of(record)
                size = len(record)
                try:
                    if size > WITHIN_LIMITS:  # most records are short
                        _check_line(record)
                    text = in_utf8(record)
                    add(text, hashed)
                except (msgspec.DecodeError, UnreadableJson) as error:
                    joined = _joined_in(record)
                    if is_last and not joined and size < RECORD_SIZE_MAX:
                        self.waits = True
                        return Block(first, places, b"".join(hashes), data[:start]), start
                    if joined:
                        self._find_padding(line, record)
                        self._add_joined(joined, data, start, add, places, hashes)
                    else:
                        self.report(self.place, _problem(error))
                        self._is_in_long_line = is_last
                else:
                    # Most lines have no padding, so search for the record in its line only if there
                    # is padding.
                    if size == length:
                        begin = start
                    else:
                        self._find_padding(line, record)
                        begin = start + line.find(record)
                    if text is not record:
                        # The record is stored as it is, and reads replace these bytes.
                        self.report(self.place, _NOT_UTF_8, is_unread=False)
                    places.append(begin)
                    places.append(begin + size)
                    hashes.append(hashed)
                    self._lines.append(self._line)
                    self.records += 1
            else:
                self._find_padding(line, record)
            self._line += 1
            start = stop + 1
        self._line -= 1
        return Block(first, places, b"".join(hashes), data), end

    def _add_joined(
        self,
        joined: list[bytes],
        data: bytes,
        start: int,
        add: Add,
        places: array[int],
        hashes: list[bytes],
    ) -> None:
        """Add the objects of one line as records. They begin at or after ``start`` in ``data``."""
        for record in joined:
            begin = data.index(record, start)
            start = begin + len(record)
            hashed = hash_of(record)
            try:
                check_limits(record)
                add(record, hashed)
            except (msgspec.DecodeError, UnreadableJson) as error:
                self.report(self.place, _problem(error))
            else:
                places.extend((begin, start))
                hashes.append(hashed)
                self._lines.append(self._line)
                self.records += 1

    def _find_padding(self, line: bytes, record: bytes) -> None:
        """Note a finding for NUL bytes around a record, or in its place."""
        if b"\0" in line:
            count = line.count(0) - record.count(0)
            if count:
                self.report(self.place, _LOST.format(count))


def _check_line(record: bytes) -> None:
    """Raise ``UnreadableJson`` for a record that is too long, or that ``check_limits`` refuses."""
    if len(record) >= RECORD_SIZE_MAX:
        raise UnreadableJson(TOO_LONG)
    check_limits(record)


def _joined_in(record: bytes) -> list[bytes]:
    """Return the JSON objects of a line that has several, or an empty list."""
    return joined_objects(record) if len(record) < RECORD_SIZE_MAX else []


def _line_of(finding: ImportFinding) -> int:
    """Return the line that a finding names, or 0 for a finding that names a record."""
    line = finding.place.rpartition(":")[2]
    return int(line) if line.isdecimal() else 0


def _problem(error: Exception) -> str:
    if isinstance(error, UnreadableJson):
        return str(error)
    return f"not JSON: {error}"


class WholeReading(_Reading):
    """Reads all records of a source that has no lines, such as a document or a database."""

    def __init__(self, path: Path, reader: RecordReader) -> None:
        super().__init__(path)
        self._reader = reader
        self._newest: Sequence[Located] | None = None
        """The records that ``blocks`` reads, if the earlier records were skipped."""
        self._mark = b""
        self.place = str(path)

    @property
    def grows(self) -> bool:
        """Whether the source grows while its program runs, unlike a document."""
        return isinstance(self._reader, MarkedReader)

    @property
    def digest(self) -> bytes:
        """The mark of the reader, which may be empty, and the hash of the records that were read.
        The mark alone does not cover the newest records.
        """
        mark = self._mark if self.is_done and not self.unread else b""
        return mark + super().digest

    def continues(self, digest: bytes, records: int, hashes: Callable[[int], bytes]) -> bool:
        """Return whether the source begins with the records of an earlier import, and skip them.
        ``hashes`` returns the hashes of the stored records from a record on.
        """
        mark = digest[: -self._hash.digest_size]
        if not mark or not isinstance(self._reader, MarkedReader):
            return False
        marked = self._reader.read_newest(mark)
        if marked is None:
            return False
        newest = [*marked.records]
        skipped = newest[: records - marked.older]
        if any(located.problem is not None for located in skipped):
            return False
        hashes_read = b"".join(hash_of(bytes_of(located.value)) for located in skipped)
        if hashes_read != hashes(marked.older):
            return False
        self._newest = newest[len(skipped) :]
        self._mark = marked.mark
        self.records = records
        self.taken = records
        self.is_done = not self._newest
        return True

    def find_in(self, number: int, problem: str) -> None:
        """Note a problem in a record of the source."""
        self.report(f"{self.path}, record {number}", problem, is_unread=False)

    def blocks(self, add: Add) -> Iterator[Block]:
        reader = self._reader
        if self._newest is not None:
            yield from self._blocks(self._newest, add)
        elif isinstance(reader, MarkedReader):
            with reader.read_all() as marked:
                self._mark = marked.mark
                yield from self._blocks(marked.records, add)
        else:
            document = reader if isinstance(reader, DocumentRecords) else None
            yield from self._blocks(reader, add, document)

    def _blocks(
        self, located_records: Iterable[Located], add: Add, document: DocumentRecords | None = None
    ) -> Iterator[Block]:
        """Yield the accepted records in blocks, and count them."""
        places = dict[int, tuple[int, int]]()
        records = list[bytes]()
        hashes = list[bytes]()
        size = 0
        first = self.records
        for located in located_records:
            self.place = located.place
            accepted = self._accept(located, add)
            if accepted is None:
                continue
            record, record_hash = accepted
            if document is not None and located.text:
                places[self.records] = located.offset, located.offset + len(located.text.decode())
            records.append(record)
            hashes.append(record_hash)
            self._hash.update(record)
            self.records += 1
            size += len(record) + 1
            if size >= SIZE:
                yield of_records(first, records, hashes)
                records = []
                hashes = []
                size = 0
                first = self.records
        if records:
            yield of_records(first, records, hashes)
        if document is not None:
            self.frame = frame_of(document.text, places, self.records)
        self.taken = self.records
        self.is_done = True

    def _accept(self, located: Located, add: Add) -> tuple[bytes, bytes] | None:
        """Return the bytes of a record, and their hash. If the record cannot be read, note a
        finding and return None. If the program has not finished the record, only return None.
        """
        if located.waits:
            self.waits = True
            return None
        problem = located.problem
        if problem is None:
            record = located.text or bytes_of(located.value)
            try:
                if len(record) > RECORD_SIZE_MAX:
                    raise UnreadableJson(TOO_LONG)
                check_limits(record)
                record_hash = hash_of(record)
                add(in_utf8(record), record_hash)
                return record, record_hash
            except (msgspec.DecodeError, UnreadableJson) as error:
                problem = _problem(error)
        self.report(located.place, problem)
        return None


def reading_of(path: Path, reader: RecordReader) -> LineReading | WholeReading:
    """Return a reading of a source from its first record on."""
    if type(reader) is JsonLines:
        return LineReading(path, is_packed=reader.is_packed)
    return WholeReading(path, reader)


def state_of(path: Path) -> bytes:
    """Return a value that changes when a file or its ``-wal`` file is changed or replaced. The
    value is empty if the file does not exist.
    """
    states = list[str]()
    for name in (path, f"{path}-wal"):
        try:
            status = os.stat(name)
        except OSError:
            continue
        states.append(f"{status.st_ino} {status.st_size} {status.st_mtime_ns}")
    return ";".join(states).encode()
