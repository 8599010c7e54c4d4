"""Connections for readers, and the read transactions on them."""

from __future__ import annotations

import sqlite3
import time
from contextlib import suppress
from types import TracebackType
from typing import Final

from foldlog.eventstore.recorders.sqlite.errors import raise_translated
from foldlog.eventstore.recorders.sqlite.schema import check_unchanged
from foldlog.eventstore.recorders.sqlite.store_file import StoreFile

_POLL_S: Final = 0.001


class ReaderPool:
    """Connections for readers. One thread at a time uses a connection, which is kept for the next reader.

    A signal handler may read while its thread is anywhere in here. So there is no lock: each step changes one list or
    set, at once.
    """

    def __init__(self, file: StoreFile) -> None:
        self.file = file
        self._idle: list[sqlite3.Connection] = []
        self._uses: set[ReadConnection] = set()
        self._resting = False
        self._closed = False

    def take(self, use: ReadConnection) -> sqlite3.Connection:
        """Give a connection to one thread. The caller must call ``give_back``, also where this raises."""
        self._uses.add(use)
        while self._resting:  # looked at after the use is noted: ``rest`` sees the one or we see the other
            self._uses.discard(use)
            time.sleep(_POLL_S)
            self._uses.add(use)
        try:
            use.connection = self._idle.pop()
        except IndexError:
            use.connection = self.file.connect()
        return use.connection

    def give_back(self, use: ReadConnection, *, sound: bool) -> None:
        """Keep the connection of a use for the next, if it is ``sound``."""
        try:
            connection, use.connection = use.connection, None
            if connection is None:
                pass
            elif sound and not connection.in_transaction:
                self._idle.append(connection)
                if self._closed:
                    self._close_idle()
            else:
                connection.close()
        finally:
            self._uses.discard(use)

    def close(self) -> None:
        """Close the pool. Connections in use are closed when they are given back."""
        self._closed = True
        self._close_idle()

    def rest(self, patience_s: float) -> bool:
        """Close every connection and open none until ``resume``. Return False if some stay in use for that time."""
        self._resting = True
        until = time.monotonic() + patience_s
        while self._uses and time.monotonic() < until:
            time.sleep(_POLL_S)
        self._close_idle()
        return not self._uses

    def resume(self) -> None:
        self._resting = False

    def _close_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()


class ReadConnection:
    """A reader's connection in a transaction: what it reads is of one moment. It is a class because every read enters
    one: a context manager made of a generator executes four times as many bytecodes.
    """

    __slots__ = ("_doing", "_readers", "connection")

    def __init__(self, readers: ReaderPool, doing: str = "read") -> None:
        self._readers = readers
        self._doing = doing
        self.connection: sqlite3.Connection | None = None

    def __enter__(self) -> sqlite3.Connection:
        file = self._readers.file
        if file.closed_because is not None:
            file.check_open()  # which raises
        try:
            connection = self._readers.take(self)
            connection.execute("BEGIN")
            check_unchanged(connection, file.path)
        except BaseException as error:
            self._end(error)
            raise
        return connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        try:
            if self.connection is not None:
                self.connection.rollback()
        except BaseException as another:
            self._readers.give_back(self, sound=False)
            raise_translated(another, f"{self._doing} {self._readers.file.path}")
            raise
        self._readers.give_back(self, sound=not isinstance(error, sqlite3.Error))
        if error is not None:
            raise_translated(error, f"{self._doing} {self._readers.file.path}")
