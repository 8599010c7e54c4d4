"""All data of a store in memory, and how to undo the newest changes."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

from eventstore.recorders.types import BareRow, Conversation, RecalledKey, Record, Row
from eventstore.values.bodies import Attachment

T = TypeVar("T")


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
        self.source_keys: dict[str, set[int]] = defaultdict(set)
        self.records: dict[tuple[str, int], dict[int, Record]] = defaultdict(dict)
        self.listings: dict[int, tuple[int, int, tuple[bytes, ...]]] = {}  # at, version, digests
        self.facts: dict[str, str] = {}
        self.next_key = 1
        self.undo: list[Callable[[], object]] = []

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
