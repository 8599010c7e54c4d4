"""Overwrite the bytes of deleted and replaced rows in the unused parts of b-tree pages.

``secure_delete`` overwrites cells when they are deleted. But when pages are split or joined, SQLite copies cells to
other pages, and their bytes stay in the gap between the places of the cells and the cells. SQL does not reach these
bytes, and it is unknown which pages hold such bytes, so every page is examined. The bytes are overwritten in the file
itself, with the descriptor of one of our connections.

Why it is safe. No reader uses these bytes, so it does not matter when a write of them gets to the disk. They are
written only while this process has SQLite's own write lock and the log is empty: then no other connection can write to
the file, not even by a checkpoint. Another connection may have a page with the old bytes in its cache, and would write
them again. So a row is changed in the same transaction: a connection that sees a commit of another one drops its cache.

Why it is complete. The pages are examined without a lock, while a read transaction is open. During that time the log is
not begun again, so it has every page that other connections wrote. SQLite may have copied old bytes into such a page
after that page was examined. So the pages of the log are examined again under the lock.

Cost: reading the file once. Writers wait while the log is emptied and the pages found are written: at most 4,000 at a
time. docs/decisions/0065-erased-bytes.md has figures.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from eventstore.recorders.errors import StillRead
from eventstore.recorders.sqlite import maintenance
from eventstore.recorders.sqlite.connections import open_writer
from eventstore.recorders.sqlite.erased_bytes.page_space import is_tree_page, suspicious, unused_parts
from eventstore.recorders.sqlite.reader import SQL
from eventstore.recorders.sqlite.store_file import StoreFile

_CHUNK_BYTES: Final = 2**20
_PAGES_MAX: Final = 4_000
"""The number of pages that are written in one hold of the lock."""
_LOG_BYTES_MAX: Final = 16 * 2**20
"""A log that has grown to this length since it was last emptied is emptied before the search continues."""
_FILE_PAGES_MAX: Final = 2**25
_PATIENCE_S: Final = 60.0
_RETRY_S: Final = 0.05
_RESERVED_AT: Final = 20
_AUTO_VACUUM_AT: Final = slice(52, 56)
_LOG_HEADER: Final = 32
_FRAME_HEADER: Final = 24


class Scrubber:
    """Scrubs one file, and keeps the connection for it."""

    def __init__(self, file: StoreFile) -> None:
        self._file = file
        self._opened: tuple[sqlite3.Connection, int] | None = None

    def scrub(
        self,
        alone: Callable[[], AbstractContextManager[sqlite3.Connection]],
        reading: Callable[[], AbstractContextManager[sqlite3.Connection]],
        check_open: Callable[[], object],
    ) -> bool:
        """Overwrite the unused bytes of all pages. Return whether all are overwritten: False where the format of the
        file does not allow it, or the system does not tell the descriptor of the file; then only rewriting it
        (``VACUUM``) helps.

        ``alone`` gives the writing connection under the write lock, ``reading`` a connection for readers;
        ``check_open`` is called between two parts of the file. Raises ``StillRead`` where a reader stays open too long.
        """
        self._opened = self._opened or self._file.connect_to_file(partial(open_writer, durable=True))
        if self._opened is None:
            return False
        connection, descriptor = self._opened
        page_bytes = int(connection.execute("PRAGMA page_size").fetchone()[0])
        with reading() as reader:
            return _Scrub(f"{self._file.path}-wal", connection, reader, descriptor, page_bytes, alone, check_open).run()

    def close(self) -> None:
        if self._opened is not None:
            self._file.disconnect(self._opened[0])
            self._opened = None


@dataclass
class _Scrub:
    _log: str
    _connection: sqlite3.Connection
    _reader: sqlite3.Connection
    _file: int
    _page_bytes: int
    _alone: Callable[[], AbstractContextManager[sqlite3.Connection]]
    _check_open: Callable[[], object]
    _pages: int = 0
    _next: int = 1
    _damaged: set[int] = field(default_factory=set)

    def run(self) -> bool:
        self._watch_the_log()
        try:
            self._pages = os.fstat(self._file).st_size // self._page_bytes
            if not self._can_be_scrubbed():
                return False
            # Asked of the reader: no page may be in the cache of the connection that writes before it is overwritten.
            pending = self._reader.execute(SQL["bytes_pending"]).fetchone()
            ended = False
            while not ended:
                found, ended = self._search()
                self._write(found, pending if ended else None)
        finally:
            self._reader.rollback()
        return not self._damaged

    def _can_be_scrubbed(self) -> bool:
        header = os.pread(self._file, 100, 0)
        return header[_RESERVED_AT] == 0 and not any(header[_AUTO_VACUUM_AT]) and self._pages < _FILE_PAGES_MAX

    def _search(self) -> tuple[list[int], bool]:
        """Return the pages to examine under the lock, and whether these are the last ones. Pages by which the file has
        grown since are in the log.
        """
        found: list[int] = []
        per_chunk = _CHUNK_BYTES // self._page_bytes
        while len(found) < _PAGES_MAX:
            self._check_open()
            if self._next > self._pages:
                return found, True
            chunk = os.pread(self._file, per_chunk * self._page_bytes, (self._next - 1) * self._page_bytes)
            if len(chunk) < self._page_bytes:  # VACUUM rewrote the file, which is shorter now
                return found, True
            found += suspicious(chunk, self._page_bytes, self._next)
            self._next += len(chunk) // self._page_bytes
            if os.stat(self._log).st_size > _LOG_BYTES_MAX:
                break
        return found, False

    def _write(self, found: Iterable[int], pending: tuple[bytes] | None) -> None:
        """Overwrite the unused bytes of these pages and of the pages in the log. ``pending`` is the mark to remove."""
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                if self._write_now(found, pending):
                    os.fsync(self._file)
            except StillRead:
                if time.monotonic() >= until:
                    raise
                time.sleep(_RETRY_S)
            else:
                return

    def _write_now(self, found: Iterable[int], pending: tuple[bytes] | None) -> bool:
        with self._alone():
            pages = {*found, *self._pages_of_the_log()}
            self._reader.rollback()
            try:
                maintenance.empty_wal(self._connection)
                return self._overwrite(pages, pending)
            finally:
                self._watch_the_log()

    def _overwrite(self, pages: Iterable[int], pending: tuple[bytes] | None) -> bool:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            if os.stat(self._log).st_size:
                raise StillRead("a program other than foldlog writes to the store; try again when it has ended")
            overwritten = sum(map(self._overwrite_page, sorted(pages)))
            if overwritten or pending is not None:
                self._connection.execute(SQL["count_scrub"])
                if pending is not None and not self._damaged:
                    self._connection.execute(SQL["bytes_are_gone"], pending)
                self._connection.execute("COMMIT")
        finally:
            self._connection.rollback()
        return overwritten > 0

    def _overwrite_page(self, number: int) -> bool:
        at = (number - 1) * self._page_bytes
        page = os.pread(self._file, self._page_bytes, at) if number > 0 else b""
        if len(page) < self._page_bytes or not is_tree_page(page, number):
            return False
        parts = unused_parts(page, number)
        if parts is None:
            self._damaged.add(number)
            return False
        kept = [(first, end) for first, end in parts if any(page[first:end])]
        for first, end in kept:
            os.pwrite(self._file, bytes(end - first), at + first)
        return bool(kept)

    def _watch_the_log(self) -> None:
        self._reader.execute("BEGIN")
        self._reader.execute(SQL["bytes_pending"]).fetchone()

    def _pages_of_the_log(self) -> set[int]:
        """Return every page that has a frame in the log, also of outdated frames, which does no harm."""
        numbers = set()
        with contextlib.suppress(FileNotFoundError), open(self._log, "rb") as log:
            log.seek(_LOG_HEADER)
            while len(frame := log.read(_FRAME_HEADER + self._page_bytes)) > _FRAME_HEADER:
                numbers.add(int.from_bytes(frame[:4], "big"))
        return numbers
