"""Read the records of one history: lines, an array in a document, a folder of files, or memory.

A reader can be iterated several times, and holds one record at a time. An unreadable record is a problem with its
place; the records after it are read.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Generator, Iterator, Sequence
from errno import EBUSY, EIO
from functools import partial
from itertools import dropwhile, islice
from pathlib import Path
from typing import Any

from foldlog._compressed import open_unpacked
from foldlog._formats.files.found import NotAHistory
from foldlog._formats.files.scanner import CUT, Broken, Scanner
from foldlog._formats.format import Contained
from foldlog._formats.json_text import RECORD_SIZE_MAX, TOO_LONG, UnreadableJson, parse
from foldlog._formats.record import Located, at
from foldlog._open_files import open_database


class JsonLines:
    """JSON Lines: one record on each line. Empty lines, and NUL bytes around a line, are skipped.

    With ``offset`` the lines that begin there. ``is_packed``: the file is compressed, and read as what it holds.
    """

    def __init__(self, path: Path, offset: int = 0, *, is_packed: bool = False) -> None:
        self._path, self._offset, self._is_packed = path, offset, is_packed

    @property
    def size_bytes(self) -> int:
        return self._path.stat().st_size

    def __iter__(self) -> Iterator[Located]:
        with open_unpacked(self._path, _BUFFER) if self._is_packed else self._path.open("rb", _BUFFER) as file:
            number, offset, source = 0, file.seek(self._offset) if self._offset else 0, str(self._path)
            while line := file.readline(RECORD_SIZE_MAX + 1):
                number += 1
                start, offset = offset, offset + len(line)
                if len(line) > RECORD_SIZE_MAX:
                    while not line.endswith(b"\n") and (line := file.readline(RECORD_SIZE_MAX)):
                        offset += len(line)
                    yield Located(number, start, None, TOO_LONG, source)
                    continue
                if b"\0" in line:
                    line = line.strip(_PADDING)
                if line and not line.isspace():
                    yield parsed(line, number, start, source)


def on_lines(path: Path, least: int = 2) -> bool:
    """Return whether a file is JSON Lines: the first of ``least`` lines or more is a whole object or array, or torn
    before two whole objects. A document in one line, which may be long, is not read.
    """
    if least > 1 and not _has_two_lines(path):
        return False
    first, *others = [type(each.value) for each in islice(JsonLines(path), 3)] or [object]
    return len(others) + 1 >= least and (first in (dict, list) or others == [dict, dict])


def _has_two_lines(path: Path) -> bool:
    """Return whether two lines are not blank. It is read, not mapped: a mapped file that its program empties
    ends this process.
    """
    with path.open("rb") as file:
        begun = dropwhile(bytes.isspace, iter(partial(file.readline, 2**16), b""))  # lines, or parts of long ones
        first_ends = dropwhile(lambda part: not part.endswith(b"\n"), begun)
        return not all(map(bytes.isspace, islice(first_ends, 1, None)))


class Array:
    """The elements of an array in a JSON document, or under ``key`` of the object that begins at ``offset``.

    ``after`` are records and problems of the document after the array.
    """

    def __init__(
        self, path: Path, *, offset: int = 0, line: int = 1, key: str | None = None, after: Sequence[Located] = ()
    ) -> None:
        self._path, self._offset, self._line, self._key = path, offset, line, key
        self._after = after

    @property
    def size_bytes(self) -> int:
        return self._path.stat().st_size - self._offset

    def __iter__(self) -> Iterator[Located]:
        with self._path.open("rb") as file:
            scanner = Scanner(file, offset=self._offset, line=self._line)
            try:
                if self._key is not None:
                    self._go_to(scanner, self._key)
                whole = yield from elements(scanner)
                if whole and self._key is None and scanner.peek():
                    yield scanner.located("not JSON: more text after the end of the array")
            except UnreadableJson as error:
                yield scanner.located(error)
        yield from self._after

    def _go_to(self, scanner: Scanner, key: str) -> None:
        for name in scanner.each_key():
            if name == key:
                return
            scanner.skip()
        raise UnreadableJson(f"holds no array under {key!r}")


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a SQLite database as it lies there: its program may write to it. Raises ``OSError``."""
    if open_database(f"{path}-shm") is not None:  # with locks, which the end of another connection would take away
        raise OSError(EBUSY, "it is open in this program")
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        ) as database:
            yield database
    except sqlite3.Error as error:
        raise OSError(EIO, str(error)) from error


def rows_in(path: Path, query: str) -> list[Any]:
    """Return what a query of a SQLite database finds; nothing where that cannot be asked."""
    try:
        with opened(path) as database:
            return database.execute(query).fetchall()
    except OSError:
        return []


class Placed:
    """Records that a format reads by itself. Another process may read them, so ``read`` can be pickled."""

    def __init__(self, size_bytes: int, read: Callable[[], Iterator[Located]]) -> None:
        self.size_bytes, self._read = size_bytes, read

    def __iter__(self) -> Iterator[Located]:
        return self._read()


def held_in(path: Path, line: int, records: Sequence[Any]) -> Placed:
    """Return records that were read with the object that holds them, which begins at ``line`` of ``path``."""
    return Placed(0, partial(_numbered, f"{path}:{line}, record", records))


def _numbered(place: str, records: Sequence[Any]) -> Iterator[Located]:
    return (at(f"{place} {number}", record) for number, record in enumerate(records))


def record_in(path: Path) -> Located:
    """Return the record that a file is."""
    try:
        if path.stat().st_size > RECORD_SIZE_MAX:
            return at(str(path), None, TOO_LONG)
        return parsed(path.read_bytes(), 0, 0, str(path))
    except OSError as error:
        return at(str(path), None, f"cannot be read: {error.strerror}")


def around(path: Path, key: str) -> dict[str, Any]:
    """Return what the object in a document holds besides the array ``key``; up to where it breaks off, which reading
    the array tells. Raises ``NotAHistory`` where the object has no such array.
    """
    held: dict[str, Any] = {}
    has_array = False
    with contextlib.suppress(UnreadableJson), path.open("rb") as file:
        scanner = Scanner(file)
        for name in scanner.each_key():
            if name == key:
                has_array = scanner.peek() == "["
                scanner.skip()
            else:
                held[name] = scanner.value()
        if not has_array:
            raise NotAHistory(path, f"holds no array under {key!r}, where its history would be")
    return held


def in_document(
    path: Path, key: str, name_in: Callable[[Any], str | None], before: Sequence[str], after: str = ""
) -> Iterator[Contained]:
    """Yield the history in a document: the elements of the array ``key``, after an object with the fields ``before``
    and before one with all others, if there are more; with ``after``, that one has them under this name. ``name_in``
    returns its name in the fields. Raises what ``around`` raises.
    """
    records = partial(_with_around, path, key, before, after)
    yield Contained(name_in(around(path, key)) or None, Placed(path.stat().st_size, records))


def _with_around(path: Path, key: str, before: Sequence[str], after: str) -> Iterator[Located]:
    held = around(path, key)
    yield at(str(path), {name: held.pop(name) for name in before if name in held})
    yield from Array(path, key=key)
    if held or after:
        yield at(str(path), {after: held} if after else held)


_BUFFER = 2**18
"""With less, most lines continue beyond the buffer, and are put together of two parts."""
_PADDING = b" \t\n\r\0"
"""The characters around a line. After a crash of the machine, a growing file may have NUL bytes."""

_BETWEEN = (",", "]")
_NUMBERS = (int, float)


def elements(scanner: Scanner, *, offsets: bool = False) -> Generator[Located, None, bool]:
    """Yield the elements of the array at the position, on request with their offsets. The scanner ends after the array.

    If the array breaks off, the last element is the problem, and the value of the generator is False.
    """
    try:
        scanner.take("[")
        while scanner.peek() != "]":
            line, offset = scanner.line, scanner.offset if offsets else 0
            try:
                element = Located(line, offset, scanner.value(), None, scanner.source)
            except Broken:
                raise
            except UnreadableJson as error:
                element = Located(line, offset, None, str(error), scanner.source)
            if scanner.peek() not in _BETWEEN and type(element.value) in _NUMBERS:
                raise Broken(CUT)  # the 1 of 10 or of 1.5
            yield element
            if scanner.peek() != "]":
                scanner.take(",")
        scanner.take("]")
    except Broken as error:
        yield scanner.located(error)
        return False
    return True


def parsed(text: bytes, line: int, offset: int, source: str) -> Located:
    """Return the record in a text, or the problem with it."""
    try:
        return Located(line, offset, parse(text), None, source)
    except UnreadableJson as error:
        return Located(line, offset, None, str(error) if text.strip() else "empty", source)
