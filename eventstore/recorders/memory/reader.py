"""The queries of one transaction."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from itertools import islice
from typing import Any

from eventstore.recorders.memory.index import MemoryIndex
from eventstore.recorders.memory.tables import Tables, bare, between, utf8
from eventstore.recorders.types import Ancestor, BareRow, Conversation, Only, PlacedRow, RecalledKey, Record, Row


class MemoryReader:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.known: dict[str, Any] = {}

    def conversation(self, name: str | int, known: Conversation | None = None) -> Conversation | None:
        key = self._tables.visible.get(name) if isinstance(name, str) else name
        return self._with_lineage(self._with_tail(key)) if key in self._tables.conversations else None

    def conversations(
        self, start: str, limit: int, *, staged: bool = False, forks_of: int | None = None
    ) -> Sequence[Conversation]:
        tables, visible = self._tables, set(self._tables.visible.values())
        keys = [
            key
            for key, found in tables.conversations.items()
            if (key not in visible and found.erasure is None if staged else key in visible)
        ]
        if forks_of is not None:
            forks = [(key, tables.conversations[key]) for key in keys]
            keys = [key for key, fork in forks if fork.parent == forks_of]
        keys.sort(key=lambda key: utf8(tables.conversations[key].id))
        first = bisect.bisect_left(keys, utf8(start), key=lambda key: utf8(tables.conversations[key].id))
        return [self._with_tail(key) for key in keys[first : first + limit]]

    def rows(self, key: int, start: int, stop: int, limit: int, only: Only = "all") -> Sequence[BareRow]:
        if only == "documents":
            ids = [n for n in self._tables.documents.get(key, []) if start <= n < stop]
            return [self.rows(key, n, n + 1, 1)[0] for n in ids[: -limit - 1 : -1]]
        rows = self._tables.structural if only == "structural" else self._tables.rows
        return [bare(row) for row in between(rows.get(key, []), start, stop)[:limit]]

    def shown_rows(
        self, key: int, intervals: Sequence[tuple[int, ...]], beside: int | None = None
    ) -> Sequence[BareRow]:
        found: list[Row] = []
        for first, last, *its_key in intervals:
            rows = self._tables.rows.get(its_key[0] if its_key else key, [])
            found += [row for row in between(rows, first, last + 1) if row.shown or row.id == beside]
        return list(map(bare, found))

    def placed_rows(self, after_position: int, limit: int) -> Sequence[PlacedRow]:
        tables = self._tables
        start = bisect.bisect_right(tables.places, after_position, key=lambda place: place[0])
        return list(islice(filter(None, map(self._placed, tables.places[start:])), limit))

    def _placed(self, place: tuple[int, int, int]) -> PlacedRow | None:
        position, key, row_id = place
        found = self._tables.conversations[key]
        if found.erasure is None:
            return PlacedRow(position, found.id, bare(between(self._tables.rows[key], row_id, row_id + 1)[0]))
        return PlacedRow(position, found.id, found.erasure) if position == found.erasure.position else None

    def records(
        self, key: int, projection: str | None, version: int, limit: int, *, backwards: bool = False
    ) -> Sequence[Record]:
        if projection is None:
            kept = sorted((name, some) for (name, k), some in self._tables.records.items() if k == key and some)
            return [some[max(some)]._replace(projection=name) for name, some in kept][:limit]
        records = self._tables.records.get((projection, key), {})
        if backwards:
            return [records[v] for v in sorted(records, reverse=True) if v <= version][:limit]
        return [records[v] for v in sorted(records) if v > version][:limit]

    def recalled(self, key: int, start: str, limit: int, *, exactly: bool = False) -> Sequence[tuple[str, RecalledKey]]:
        keys = self._tables.idempotency_keys
        if exactly:
            recalled = keys.get((key, start))
            if recalled is None:
                return []
            return [(start, recalled._replace(position=self._position(key, recalled.first_id)))]
        found = [(name, each) for (k, name), each in keys.items() if k == key and utf8(name) >= utf8(start)]
        return sorted(found, key=lambda each: utf8(each[0]))[:limit]

    @property
    def index(self) -> MemoryIndex:
        return MemoryIndex(self._tables)

    def _position(self, key: int, event_id: int) -> int | None:
        return next((position for position, k, row_id in self._tables.places if (k, row_id) == (key, event_id)), None)

    def _with_tail(self, key: int) -> Conversation:
        conversation = self._tables.conversations[key]
        conversation = conversation._replace(visible=self._tables.visible.get(conversation.id) == key)
        rows = self._tables.rows[key]
        begins = conversation.begins
        if begins and (not rows or rows[-1].id < begins):  # a fork without own events; some may be copied already
            rows = between(self._tables.rows[conversation.parent or 0], begins - 1, begins)
        return conversation.grown(rows[-1]) if rows else conversation

    def _with_lineage(self, fork: Conversation) -> Conversation:
        lineage: list[Ancestor] = []
        stop, parent = fork.begins, fork.parent
        while parent is not None:
            found = self._tables.conversations[parent]
            has_records = any(kept for (_, key), kept in self._tables.records.items() if key == parent)
            lineage.append(Ancestor(parent, stop, found.id, found.sealed_key is not None, found.parent, has_records))
            stop, parent = found.begins, found.parent
        return fork._replace(lineage=tuple(lineage))
