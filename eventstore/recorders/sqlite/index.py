"""The index over many conversations: lists, and events by the id of their source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from sqlite3 import Cursor
from typing import Any, Final

from eventstore.recorders.sqlite.reader import SQL, as_text, bound
from eventstore.recorders.types import DIGEST_BYTES, ListedConversation, RecalledKey, Record

_INTEGER_MAX: Final = 2**63 - 1
_new: Final = tuple.__new__  # what ListedConversation(...) calls, without the call around it


class SQLiteIndex:
    """The questions over many conversations."""

    def __init__(self, execute: Callable[..., Cursor]) -> None:
        self._execute = execute

    def recalled_among(
        self, key: int | None, idempotency_keys: Sequence[str]
    ) -> Sequence[tuple[int, str, RecalledKey]]:
        found: list[tuple[int, str, RecalledKey]] = []
        for name in idempotency_keys:
            if key is None:
                rows = self._execute(SQL["recalled_anywhere"], (bound(name),))
                found += ((conversation, name, RecalledKey(*recalled)) for conversation, *recalled in rows)
            else:
                rows = self._execute(SQL["recall"], (key, bound(name), 1))
                found += ((key, name, RecalledKey(*recalled)) for _, *recalled in rows)
        return found

    def id_from(self, start: str) -> str | None:
        row = self._execute(SQL["id_from"], (bound(start),)).fetchone()
        return as_text(row[0]) if row else None

    def touched(self, after_position: int, until_position: int, least: int) -> Sequence[tuple[int, int]]:
        if after_position <= 0:
            return self._execute(SQL["all_visible"]).fetchall()
        return self._execute(SQL["touched"], (*(after_position, until_position) * 2, least)).fetchall()

    def listed(
        self, digests: Sequence[bytes], before: tuple[int, int] | None, limit: int
    ) -> Sequence[ListedConversation]:
        at, key = before or (_INTEGER_MAX, _INTEGER_MAX)
        statement = SQL["listed"].format(others=" ".join([SQL["also_listed"]] * (len(digests) - 1)))
        rows = self._execute(statement, (digests[0], at, at, key, *digests[1:], limit))
        return [
            _new(ListedConversation, (
                key, as_text(name), created_at, encrypted == 1, at, version,
                None if since is None else _new(Record, (since, code, base, body, encoding, checksum, "")),
            ))
            for key, name, created_at, encrypted, at, version, since, code, base, body, encoding, checksum in rows
        ]  # fmt: skip

    def trackings_behind(self, position: int) -> Sequence[str]:
        return [as_text(name) for (name,) in self._execute(SQL["trackings_behind"], (position,))]


class SQLiteWritableIndex(SQLiteIndex):
    def __init__(self, execute: Callable[..., Cursor], executemany: Callable[[str, Iterable[Any]], Cursor]) -> None:
        super().__init__(execute)
        self._executemany = executemany

    def list_as(self, key: int, at: int, version: int, digests: Iterable[bytes] | None) -> None:
        before = self.leave(key)
        listed = before if digests is None else tuple(digests)
        self._execute(SQL["put_listing"], (key, at, version, b"".join(listed)))
        self._executemany(SQL["put_listed"], [(digest, at, key) for digest in listed])

    def list_again(self, key: int) -> None:
        """Have a conversation listed again by a process that has its new key, if it is listed."""
        if self.leave(key):
            self.list_as(key, 0, -1, ())

    def leave(self, key: int) -> Sequence[bytes]:
        """Remove a conversation from all lists. Return the digests that it had."""
        found = self._execute(SQL["listing"], (key,)).fetchone()
        if found is None:
            return ()
        at, stored = found
        digests = [stored[n : n + DIGEST_BYTES] for n in range(0, len(stored), DIGEST_BYTES)]
        self._executemany(SQL["delete_listed"], [(digest, at, key) for digest in digests])
        self._execute(SQL["delete_listing"], (key,))
        return digests
