"""What this process's last commits left, so that the next append need not ask for it.

Most appends follow on one of the same process. As long as no other connection has committed, which the header of the
log's index tells, the conversation is as that one left it, and the next position follows its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from eventstore.recorders.types import Conversation, Row

__all__ = ["SQLiteVersionCache"]

_KEPT_MAX = 10_000


class SQLiteVersionCache:
    """What one connection knows of the conversations that it wrote to. It is told within a transaction, so it must
    ``forget`` where one is rolled back, and where anything but an append is written.
    """

    def __init__(self) -> None:
        self._data_version = -1
        self._next_position: int | None = None
        self._by_id: dict[str, Conversation] = {}
        self._by_key: dict[int, Conversation] = {}

    def still_hold(self, connection: sqlite3.Connection, header: bytes | None, left: bytes | None) -> bool:
        """Return whether no other connection has committed since the last call; else forget everything. Ask at
        the beginning of a write transaction. ``header`` is that of the log's index now, ``left`` as the last commit
        left it. Where the system does not tell the header, SQLite is asked.
        """
        if header is not None:
            if header == left:
                return True
        else:
            (data_version,) = connection.execute("PRAGMA data_version").fetchone()
            if data_version == self._data_version:
                return True
            self._data_version = data_version
        self.forget()
        return False

    def conversation(self, conversation_id: str) -> Conversation | None:
        return self._by_id.get(conversation_id)

    def place_for(self, key: int, event_id: int) -> int | None:
        """Return the next position, if it is known and the event is known to be the next of its conversation."""
        end = self._by_key.get(key)
        return None if end is None or end.version != event_id else self._next_position

    def learn(self, conversation: Conversation) -> None:
        if len(self._by_key) >= _KEPT_MAX:
            self.forget()
        self._by_id[conversation.id] = self._by_key[conversation.key] = conversation

    def mark(self, key: int, mark: bytes | None) -> None:
        """Note that the conversation has this mark now."""
        end = self._by_key.get(key)
        if end is not None:
            self.learn(end._replace(mark=mark))

    def grow(self, key: int, rows: Sequence[Row], position: int, leaves: Conversation | None) -> None:
        """Note that these rows were inserted, from this position on, and the conversation as they leave it."""
        self._next_position = position + len(rows)
        end, last = self._by_key.get(key), rows[-1]
        if end is not None and last[0] >= end.version:
            if leaves is None:
                self.learn(end.grown(last))
            else:
                self._by_id[leaves.id] = self._by_key[key] = leaves

    def forget(self) -> None:
        self._next_position = None
        self._by_id.clear()
        self._by_key.clear()
