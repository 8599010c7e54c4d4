"""Read the records of one history from lines, a document, or a folder of files.

A reader can be iterated several times. Only one record is in memory at a time. An unreadable record
becomes a problem with its place, and the reader goes on with the next record.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from errno import EBUSY, EIO
from functools import partial
from itertools import dropwhile, islice
from pathlib import Path
from typing import Any, BinaryIO

from foldlog.eventstore.files.compressed import open_unpacked
from foldlog.eventstore.files.open_files import open_database
from foldlog.formats.files.documents import document_in, document_of, elements, text_of
from foldlog.formats.files.found_sources import NotAHistory
from foldlog.formats.format import Contained
from foldlog.formats.json_text import RECORD_SIZE_MAX, TOO_LONG, UnreadableJson, parse_utf8
from foldlog.formats.record import Located, at, describe_type, omit


class JsonLines:
    """Reads JSON Lines. A line is a record. The reader skips empty lines, and NUL bytes around a
    line. If ``is_packed`` is true, the reader decompresses the file.
    """

    def __init__(self, path: Path, *, is_packed: bool = False) -> None:
        self._path = path
        self.is_packed = is_packed

    def __iter__(self) -> Iterator[Located]:
        with self._open() as file:
            number = 0
            offset = 0
            source = str(self._path)
            while line := file.readline(RECORD_SIZE_MAX + 1):
                number += 1
                start = offset
                offset += len(line)
                if len(line) > RECORD_SIZE_MAX:
                    while not line.endswith(b"\n") and (line := file.readline(RECORD_SIZE_MAX)):
                        offset += len(line)
                    yield Located(number, start, None, TOO_LONG, source)
                    continue
                is_whole = line.endswith(b"\n")
                line = _without_padding(line)
                if line and not line.isspace():
                    located = parse_line(line, number, start, source)
                    waits = located.problem is not None and not is_whole
                    yield located._replace(text=line, waits=waits)

    def whole(self, row: Located) -> Located:
        """Read a row with the problem ``TOO_LONG`` again, however long it is. Cost: one pass over
        the line, and over all lines before it if the file is packed.
        """
        with self._open() as file:
            if self.is_packed:
                remaining = row.offset
                while remaining and (passed := file.read(min(remaining, _BUFFER))):
                    remaining -= len(passed)
            else:
                file.seek(row.offset)
            line = _without_padding(file.readline())
        return parse_line(line, row.line, row.offset, row.source)._replace(text=line)

    def _open(self) -> BinaryIO:
        """Open the content of the file."""
        if self.is_packed:
            return open_unpacked(self._path, _BUFFER)
        return self._path.open("rb", _BUFFER)


def on_lines(path: Path, least: int = 2) -> bool:
    """Return whether a file is JSON Lines with at least ``least`` lines: 1 or 2. Empty lines do not
    count. The first line must be a complete object or array. If the first line is damaged, or
    another JSON value, the next two lines must be objects. With ``least`` 2, a file with a single
    line is refused without parsing the line, which may be long.
    """
    if least > 1 and not _has_two_lines(path):
        return False
    first, *others = [type(line.value) for line in islice(JsonLines(path), 3)] or [object]
    return len(others) + 1 >= least and (first in (dict, list) or others == [dict, dict])


def _has_two_lines(path: Path) -> bool:
    """Return whether a file has more than one line that is not empty. The file is not mapped into
    memory: if another program emptied a mapped file, this process would crash.
    """
    with path.open("rb") as file:
        # a part is a whole line, or a piece of a long line
        begun = dropwhile(bytes.isspace, iter(partial(file.readline, 2**16), b""))
        first_ends = dropwhile(lambda part: not part.endswith(b"\n"), begun)
        return not all(map(bytes.isspace, islice(first_ends, 1, None)))


@contextlib.contextmanager
def open_read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a SQLite database read-only, with the changes in its log. Raises ``OSError``.

    Programs leave changes in the log, also when they end. A reader of the log never makes a program
    wait. A reader of a database without a log would, so such a database is read without locks.
    """
    log = path.with_name(f"{path.name}-wal")
    query = "mode=ro"
    if not log.is_file() or not log.stat().st_size:
        query = "mode=ro&immutable=1"
        # if this process has the database open, closing a second connection would release its locks
        if open_database(f"{path}-shm") is not None:
            raise OSError(EBUSY, "this program has the database open")
    url = f"{path.absolute().as_uri()}?{query}"
    try:
        # An import that ended early leaves its reader to the garbage collector, in any thread.
        with contextlib.closing(
            sqlite3.connect(url, uri=True, check_same_thread=False)
        ) as database:
            database.text_factory = text_in_cell
            yield database
    except (sqlite3.Error, UnicodeDecodeError) as error:  # names in a schema may be no text
        raise OSError(EIO, str(error)) from error


def text_in_cell(value: Any) -> str:
    """Return the value of a column as text. Bytes that are not UTF-8 are replaced by U+FFFD."""
    return value.decode(errors="replace") if type(value) is bytes else str(value)


def rows_in(path: Path, query: str) -> list[Any]:
    """Return the rows of a query, or no rows if the query fails."""
    try:
        with open_read_only(path) as database:
            return database.execute(query).fetchall()
    except OSError:
        return []


def row_named(database: sqlite3.Connection, query: str, name: str) -> Any:
    """Return the first row of a query for a name, or None. The name may be any text of a record. If
    it has a lone surrogate, no row has it, and SQLite would raise an error.
    """
    try:
        return database.execute(query, (name,)).fetchone()
    except UnicodeEncodeError:
        return None


class Placed:
    """Records that a format reads from its own files. Each iteration calls ``read``."""

    def __init__(self, read: Callable[[], Iterator[Located]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[Located]:
        return self._read()


def record_in(path: Path) -> Located:
    """Return the record that is a whole file, or its problem."""
    try:
        if path.stat().st_size > RECORD_SIZE_MAX:
            return at(str(path), None, TOO_LONG)
        return parse_line(path.read_bytes(), 0, 0, str(path))
    except OSError as error:
        return at(str(path), None, f"cannot be read: {error.strerror}")


def in_object(
    path: Path,
    document: Located,
    key: str,
    name: str | None,
    before: Sequence[str],
    after: str = "",
) -> Contained:
    """Return the history with this ``name`` in a document. Raises ``NotAHistory``.

    The first record is an object with the fields that ``before`` names. The next records are the
    elements of the array ``key``. The other fields of the document, if there are any, are the last
    record. If ``after`` is a key, there is always a last record, which holds the other fields under
    this key.
    """
    if type(document.value.get(key)) is not list:
        raise NotAHistory(path, f"holds no array under {key!r}, where a history would be")
    other_fields = omit(document.value, key)
    first = {field: other_fields.pop(field) for field in before if field in other_fields}
    last = []
    if after:
        last = [{after: other_fields}]
    elif other_fields:
        last = [other_fields]
    return Contained(name, document_of(document, key, [first, *document.value[key], *last]))


def object_in(path: Path) -> Located:
    """Parse a JSON file. Raises ``NotAHistory`` if the file is not an object."""
    document = _document_in_file(path)
    if type(document.value) is not dict:
        raise NotAHistory(path, f"expected an object, found {describe_type(document.value)}")
    return document


def array_in(path: Path) -> tuple[str, list[Located]]:
    """Parse a JSON file. Return its text and the elements of its array. Raises ``NotAHistory`` if
    the file is not an array.
    """
    document = _document_in_file(path)
    if type(document.value) is not list:
        raise NotAHistory(path, f"expected an array, found {describe_type(document.value)}")
    text = text_of(document.text)
    return text, list(elements(text, document.source))


def _document_in_file(path: Path) -> Located:
    """Parse a JSON file. Raises ``NotAHistory``."""
    try:
        return document_in(path.read_bytes(), str(path))
    except UnreadableJson as error:  # the error names the line
        raise NotAHistory(path, str(error)) from error


_BUFFER = 2**18
"""The number of bytes per read. Most lines would not fit into a smaller buffer, and joining two
parts of a line takes time.
"""
_PADDING = b" \t\n\r\0"
"""Characters that the reader removes around a line. NUL bytes are included, because a crash of the
machine may leave them in a growing file.
"""


def _without_padding(line: bytes) -> bytes:
    """Return a line without NUL bytes around it."""
    return line.strip(_PADDING) if b"\0" in line else line


def parse_line(text: bytes, line: int, offset: int, source: str) -> Located:
    """Return the record in a text, or its problem."""
    try:
        return Located(line, offset, parse_utf8(text), None, source)
    except UnreadableJson as error:
        problem = str(error) if text.strip() else "empty"
        return Located(line, offset, None, problem, source)
