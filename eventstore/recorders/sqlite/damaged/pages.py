"""Read the rows of a SQLite file page by page, without SQLite: for files that SQLite refuses.

Every page that looks like a leaf of a table, or like any page of an index, is read by itself; the pages that lead to it
do not matter. So a damaged page loses only its own rows. The newest state counts: pages come from the write-ahead log,
else from the file. SQLite reads the log up to its first damaged frame; later frames are read here too, if their
checksums show that they were committed. Format: https://www.sqlite.org/fileformat2.html.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from eventstore.recorders.sqlite.log.frames import USUAL_PAGE_BYTES, Frames, frames_of

_MAGIC = b"SQLite format 3\0"
_TABLE_LEAF, _TABLE_INTERIOR, _INDEX_LEAF, _INDEX_INTERIOR = 0x0D, 0x05, 0x0A, 0x02
_DEPTH_MAX = 20
"""The greatest depth of a tree that SQLite reads."""
_INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)

Value = int | float | bytes | None


class StoredRow(NamedTuple):
    """One row of some table, or one entry of some index, as its columns: int, float, bytes (for text too) or None,
    whatever the schema says. ``rowid`` is None in an index.
    """

    page: int
    rowid: int | None
    columns: Sequence[Any]
    texts: Sequence[bool]
    """The places of the text columns."""


class PageFile:
    """A SQLite file with its log. A context manager. Raises ``OSError`` where it cannot be read at all."""

    def __init__(self, path: str) -> None:
        self._file: BinaryIO = Path(path).open("rb")  # noqa: SIM115 - closed with this
        header = self._file.read(100)
        log = Path(f"{path}-wal")
        self._log: BinaryIO | None = log.open("rb") if log.exists() else None
        self.log = Frames(_page_bytes(header))
        if self._log is not None:
            self.log = frames_of(self._log, f"{path}-shm", self.log.page_bytes)
        self.page_bytes = self.log.page_bytes
        self._usable = self.page_bytes - (header[20] if header.startswith(_MAGIC) else 0)
        size = self._file.seek(0, 2)
        self._whole_in_file = size // self.page_bytes
        self.pages = -(-size // self.page_bytes)
        self._in_log: dict[int, int] = {}
        self._committed = 0
        """The number of pages after the last commit in the log; 0 without one."""
        self._unsure: set[int] = set()
        """The pages whose newest image is in a damaged frame."""
        self.is_any_page_unsure = False
        """Whether a damaged frame does not tell its page."""
        self._spare: list[tuple[int, int]] = []
        """Other images of unsure pages, by their places: a damaged one in the log, then that of the file."""
        self._find_newer_pages()

    def __enter__(self) -> PageFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if self._log is not None:
            self._log.close()

    def rows(self) -> Iterator[StoredRow]:
        """Yield the rows of all tables and entries of all indices, by page. Cost: one reading; memory for a row."""
        for number in range(1, self.pages + 1):
            page = self._page(number)
            if page is not None:
                yield from self._rows_of(number, page)
        for n, (number, at) in enumerate(self._spare):
            page = self._image(self._file if n % 2 else self._log, at)
            if page is not None:
                yield from self._rows_of(number, page)

    def there_and_recorded(self) -> tuple[int, int]:
        """Return how many pages exist, in the file or only in the log, and how many there were: the log or the header
        of the file records that. Where neither does, both numbers are equal.
        """
        recorded = self._committed or _recorded_pages(self._page(1) or b"") or self._whole_in_file
        in_file = min(self._whole_in_file, recorded)
        return in_file + sum(in_file < number <= recorded for number in self._in_log), recorded

    def root(self, name: bytes) -> int | None:
        """Return the first page of a table or an index; None where the schema cannot be read."""
        for row in self.in_order(1):
            if row is not None and len(row.columns) == 5 and row.columns[1] == name and type(row.columns[3]) is int:
                return row.columns[3]
        return None

    def in_order(self, root: int) -> Iterator[StoredRow | None]:
        """Yield the rows of a table or the entries of an index in their order, with None in the place of each page and
        each row that cannot be read. Cost: its pages; memory for their numbers.
        """
        yield from self._in_order(root, set(), 0)

    def pages_of_index(self, root: int) -> set[int]:
        """Return the pages of an index or a table without row ids, as far as its pages lead to them."""
        found: set[int] = set()
        numbers = [root]
        while numbers:
            number = numbers.pop()
            page = self._page(number) if 1 < number <= self.pages and number not in found else None
            if page is None:
                continue
            found.add(number)
            kind, cells = self._cells(number, page)
            if kind == _INDEX_INTERIOR:
                numbers += [int.from_bytes(page[at : at + 4], "big") for at in (8, *cells)]
        return found

    def _in_order(self, number: int, seen: set[int], depth: int) -> Iterator[StoredRow | None]:
        is_possible = number > 0 and number not in seen and number not in self._unsure and depth < _DEPTH_MAX
        page = self._page(number) if is_possible else None
        seen.add(number)
        kind, cells = (0, ()) if page is None else self._cells(number, page)
        if page is None or kind not in (_TABLE_LEAF, _TABLE_INTERIOR, _INDEX_LEAF, _INDEX_INTERIOR):
            yield None
            return
        is_interior = kind in (_TABLE_INTERIOR, _INDEX_INTERIOR)
        for at in cells:
            if is_interior:
                yield from self._in_order(int.from_bytes(page[at : at + 4], "big"), seen, depth + 1)
            if kind != _TABLE_INTERIOR:
                yield self._row_or_none(number, kind, page, at)
        if is_interior:
            last = (100 if number == 1 else 0) + 8
            yield from self._in_order(int.from_bytes(page[last : last + 4], "big"), seen, depth + 1)

    # -- pages --------------------------------------------------------------------------------------------------------

    def _page(self, number: int) -> bytes | None:
        """Return a whole page; None if the file ends within it."""
        if number in self._in_log:
            return self._image(self._log, self._in_log[number])
        return self._image(self._file, (number - 1) * self.page_bytes)

    def _image(self, file: BinaryIO | None, at: int) -> bytes | None:
        if file is None or at < 0:
            return None
        file.seek(at)
        page = file.read(self.page_bytes)
        return page if len(page) == self.page_bytes else None

    def _find_newer_pages(self) -> None:
        """Find the newer pages in the log: those of the frames that SQLite reads, and of later ones that were committed
        and are sound.
        """
        _, frames, read, committed = self.log
        sound = [frame for frame in frames[:committed] if frame.follows]
        for frame in sound:
            self._in_log[frame.number] = frame.at
            if frame.size:  # the last frame of a transaction
                self.pages = self._committed = frame.size
        newest = {frame.number: frame.at for frame in sound}
        for frame in frames[read:committed]:
            if not frame.follows and newest.get(frame.number, -1) < frame.at:
                self._unsure.add(frame.number)
                in_file = (frame.number - 1) * self.page_bytes
                self._spare += [(frame.number, frame.at), (frame.number, in_file)]
            self.is_any_page_unsure |= not frame.follows and not frame.is_of_the_log
        self.is_any_page_unsure |= len(frames) < committed

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _rows_of(self, number: int, page: bytes) -> Iterator[StoredRow]:
        kind, cells = self._cells(number, page)
        if kind not in (_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR):
            return
        for at in cells:
            row = self._row_or_none(number, kind, page, at)
            if row is not None:  # else this cell is damaged; a count finds missing rows
                yield row

    def _cells(self, number: int, page: bytes) -> tuple[int, Sequence[int]]:
        """Return the kind of a page, and the places of its cells."""
        start = 100 if number == 1 else 0
        kind = page[start]
        pointers = start + (12 if kind in (_INDEX_INTERIOR, _TABLE_INTERIOR) else 8)
        count = min(int.from_bytes(page[start + 3 : start + 5], "big"), (self.page_bytes - pointers) // 2)
        return kind, struct.unpack_from(f">{count}H", page, pointers)

    def _row_or_none(self, number: int, kind: int, page: bytes, at: int) -> StoredRow | None:
        try:
            return self._row(number, kind, page, at)
        except (ValueError, IndexError, struct.error):
            return None

    def _row(self, number: int, kind: int, page: bytes, at: int) -> StoredRow:
        if kind == _INDEX_INTERIOR:
            at += 4
        size, at = _varint(page, at)
        rowid = None
        if kind == _TABLE_LEAF:
            rowid, at = _varint(page, at)
            local_max = self._usable - 35
        else:
            local_max = (self._usable - 12) * 64 // 255 - 23
        record = self._payload(page, at, size, local_max)
        columns, texts = _columns(record)
        return StoredRow(number, None if rowid is None else _signed(rowid), columns, texts)

    def _payload(self, page: bytes, at: int, size: int, local_max: int) -> bytes:
        if size > self.pages * self.page_bytes:
            raise ValueError("longer than the file")
        if size <= local_max:
            return _exactly(page[at : at + size], size)
        local_min = (self._usable - 12) * 32 // 255 - 23
        local = local_min + (size - local_min) % (self._usable - 4)
        if local > local_max:
            local = local_min
        parts = [_exactly(page[at : at + local], local)]
        left = size - local
        following = int.from_bytes(_exactly(page[at + local : at + local + 4], 4), "big")
        while left > 0:
            overflow = self._page(following) if 0 < following <= self.pages else None
            if overflow is None:
                raise ValueError("the rest of it is not there")
            part = overflow[4 : 4 + min(left, self._usable - 4)]
            parts.append(part)
            left -= len(part)
            following = int.from_bytes(overflow[:4], "big")
        return b"".join(parts)


def _page_bytes(header: bytes) -> int:
    size = int.from_bytes(header[16:18], "big")
    size = 65_536 if size == 1 else size
    return size if size >= 512 and size & (size - 1) == 0 else USUAL_PAGE_BYTES


def _recorded_pages(first: bytes) -> int:
    """Return the number of pages that the header of a file records; 0 where it is not up to date."""
    if not first.startswith(_MAGIC) or first[24:28] != first[92:96]:
        return 0
    return int.from_bytes(first[28:32], "big")


def _columns(record: bytes) -> tuple[list[Value], list[bool]]:
    header_bytes, at = _varint(record, 0)
    if header_bytes > len(record):
        raise ValueError("its header is longer than it")
    types = []
    while at < header_bytes:
        code, at = _varint(record, at)
        types.append(code)
    columns: list[Value] = []
    for code in types:
        value, size = _value(code, record, at)
        columns.append(value)
        at += size
    if at != len(record):
        raise ValueError("its columns are not as long as it")
    return columns, [code >= 13 and code % 2 == 1 for code in types]


def _value(code: int, record: bytes, at: int) -> tuple[Value, int]:
    if code == 0:
        return None, 0
    if code <= 6:
        size = _INTEGER_BYTES[code]
        return int.from_bytes(_exactly(record[at : at + size], size), "big", signed=True), size
    if code == 7:
        return float(struct.unpack(">d", _exactly(record[at : at + 8], 8))[0]), 8
    if code in (8, 9):
        return code - 8, 0
    if code < 12:
        raise ValueError("a type that is reserved")
    size = (code - 12) // 2
    return _exactly(record[at : at + size], size), size


def _exactly(part: bytes, size: int) -> bytes:
    if len(part) != size:
        raise ValueError("it ends too early")
    return part


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for n in range(8):
        byte = data[at + n]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + n + 1
    return value << 8 | data[at + 8], at + 9


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
