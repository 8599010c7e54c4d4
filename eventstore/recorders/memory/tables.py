"""All data of a store in memory, and how to undo the newest changes."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from eventstore.recorders.types import BareRow, Conversation, RecalledKey, Record, Row
from eventstore.values.bodies import Attachment

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")


class Tables:
    """All stored data, and how to undo the newest changes.

    The undo step is recorded before the change. A signal handler may raise between the two, so undoing a change that
    was not made does nothing.
    """

    def __init__(self) -> None:
        self.conversations: dict[int, Conversation] = {}
        self.visible: dict[str, int] = {}
        self.rows: dict[int, list[Row]] = {}
        self.structural: dict[int, list[Row]] = {}
        self.attachments: dict[int, dict[tuple[bytes, int], Attachment]] = defaultdict(dict)
        self.documents: dict[int, list[int]] = defaultdict(list)  # ids of the rows of this kind
        self.places: list[tuple[int, int, int]] = []  # (position, key, id), ascending
        self.last_position = 0
        self.idempotency_keys: dict[tuple[int, str], RecalledKey] = {}
        self.source_keys: dict[str, frozenset[int]] = {}
        self.records: dict[tuple[str, int], dict[int, Record]] = {}
        self.listings: dict[int, tuple[int, int, tuple[bytes, ...]]] = {}  # at, version, digests
        self.facts: dict[str, str] = {}
        self.next_key = 1
        self.undo: list[Callable[[], object]] = []

    def put(self, kept: dict[K, V], key: K, value: V | None) -> None:
        """Set an entry of one of the tables; with None, remove it."""
        before = kept.get(key)
        self.undo.append(partial(kept.pop, key, None) if before is None else partial(kept.__setitem__, key, before))
        if value is None:
            kept.pop(key, None)
        else:
            kept[key] = value

    def roll_back(self) -> None:
        while self.undo:
            self.undo.pop()()


def remove(kept: list[T], one: T) -> None:
    if one in kept:
        kept.remove(one)


def utf8(conversation_id: str) -> bytes:
    return conversation_id.encode("utf-8", "surrogatepass")


def between(rows: list[Row], start: int, stop: int) -> list[Row]:
    def by_id(row: Row) -> int:
        return row.id

    return rows[bisect.bisect_left(rows, start, key=by_id) : bisect.bisect_left(rows, stop, key=by_id)]


def bare(row: Row) -> BareRow:
    return (row.id, utf8(row.kind), *row[2:])
