"""Which commits wrote nothing but streams.

A connection reads again what it remembers of the store if another process has committed. A reply
that a model is writing commits at each chunk, but a chunk changes nothing that an append remembers.
The process that commits a chunk therefore writes a note into the lock file. The note has two
headers of the log's index: the header after the commit, and the first header, since which all
commits wrote only streams. Headers never repeat, so two states of the log with the same first
header differ only in their streams. Without a note, the connection reads everything again.
``python -m benchmarks.streams append`` shows how much time the note saves.
"""

from __future__ import annotations

from foldlog.eventstore.recorders.sqlite.write_lock import WriteLock


class StreamCommits:
    """Reads and writes the note. The caller must hold the write lock."""

    def __init__(self, lock: WriteLock, header_bytes: int) -> None:
        self._lock = lock
        self._size = header_bytes
        self._first = self._last = b""

    def first_header(self, header: bytes) -> bytes:
        """Return the earliest known header since which only streams were written, up to
        ``header``. Return ``header`` itself if the last commit wrote anything else.
        """
        if self._last != header:
            note = self._lock.read_note(2 * self._size)
            self._first = note[: self._size]
            self._last = note[self._size :]
        return self._first if self._last == header else header

    def note(self, before: bytes, after: bytes) -> bytes:
        """Note that a commit wrote only streams: it changed the header from ``before`` to
        ``after``. Return the first header of ``after``.
        """
        self._first = self.first_header(before)
        self._last = after
        self._lock.write_note(self._first + after)
        return self._first
