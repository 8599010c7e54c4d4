"""A store in memory: for tests, for trying things, for histories that need not last. Gone when it is closed."""

from __future__ import annotations

import bisect
import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from eventstore.recorders.base import Transaction
from eventstore.recorders.errors import IntegrityError, InterfaceError, KeyReplaced
from eventstore.recorders.identity import new_store_uuid
from eventstore.recorders.nesting import INSIDE, mark_of, nested, note_committed
from eventstore.recorders.types import (
    SOURCE_KEYS,
    Ancestor,
    BareRow,
    Change,
    Conversation,
    Erasure,
    Fork,
    Grown,
    ListedConversation,
    NewForm,
    NewKey,
    NewMark,
    NewPast,
    Only,
    PastRows,
    Place,
    PlacedRow,
    RecalledKey,
    Record,
    Row,
)

__all__ = ["MemoryRecorder"]

T = TypeVar("T")


class _Tables:
    """Everything that is stored, and how to take the newest changes back.

    How to undo a change is put down before it is made: a signal handler may raise in between, so undoing a change that
    was not made does nothing.
    """

    def __init__(self) -> None:
        self.conversations: dict[int, Conversation] = {}
        self.visible: dict[str, int] = {}
        self.rows: dict[int, list[Row]] = {}
        self.structural: dict[int, list[Row]] = {}
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


class MemoryRecorder:
    """A recorder on dicts and lists, one lock for all. A reader sees the store as it is while it holds the lock."""

    writable = True
    polls_cheaply = True

    def __init__(self) -> None:
        self._tables: _Tables | None = _Tables()
        self._lock = threading.RLock()
        self._uuid = new_store_uuid()
        self._commits = 0

    def transact(self, work: Callable[[Transaction], T], *, any_thread: bool = False) -> T:
        mark = mark_of(self._uuid)
        if mark in INSIDE:
            raise nested("memory:")
        committed = False
        try:
            try:
                INSIDE.add(mark)
                with self._lock:
                    tables = self._open_tables()
                    try:
                        result = work(MemoryTransaction(tables))
                        tables.undo, committed = [], True
                    except BaseException:
                        tables.roll_back()
                        raise
                    self._commits += 1
                    return result
            finally:
                INSIDE.discard(mark)
        except BaseException as error:
            if committed:
                note_committed(error)
            raise

    @contextlib.contextmanager
    def read(self) -> Iterator[MemoryReader]:
        with self._lock:
            yield MemoryReader(self._open_tables())

    def query(self, work: Callable[[MemoryReader], T]) -> T:
        with self.read() as reader:
            return work(reader)

    def value(self, name: str) -> str:
        with self._lock:
            tables = self._open_tables()
            if name == "data_version":
                return str(self._commits)
            if name == "last_position":
                return str(tables.last_position)
            return self._uuid if name == "uuid" else tables.facts.get(name, "")

    def close(self) -> None:
        if mark_of(self._uuid) in INSIDE:
            raise nested("memory:")
        with self._lock:
            self._tables = None

    def _open_tables(self) -> _Tables:
        if self._tables is None:
            raise InterfaceError("this store in memory was closed, and its histories are gone with it")
        return self._tables


class MemoryReader:
    def __init__(self, tables: _Tables) -> None:
        self._tables = tables

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
            keys = [key for key, fork in forks if fork.parent == forks_of and fork.erasure is None]
        keys.sort(key=lambda key: _order(tables.conversations[key].id))
        first = bisect.bisect_left(keys, _order(start), key=lambda key: _order(tables.conversations[key].id))
        return [self._with_tail(key) for key in keys[first : first + limit]]

    def rows(self, key: int, start: int, stop: int, limit: int, only: Only = "all") -> Sequence[BareRow]:
        if only == "documents":
            ids = [n for n in self._tables.documents.get(key, []) if start <= n < stop]
            return [self.rows(key, n, n + 1, 1)[0] for n in ids[: -limit - 1 : -1]]
        rows = self._tables.structural if only == "structural" else self._tables.rows
        return [_bare(row) for row in _slice(rows.get(key, []), start, stop)[:limit]]

    def shown_rows(self, key: int, intervals: Sequence[tuple[int, ...]]) -> Sequence[BareRow]:
        found: list[Row] = []
        for first, last, *its_key in intervals:
            rows = self._tables.rows.get(its_key[0] if its_key else key, [])
            found += [row for row in _slice(rows, first, last + 1) if row.shown]
        return list(map(_bare, found))

    def placed_rows(self, after_position: int, limit: int) -> Sequence[PlacedRow]:
        tables = self._tables
        start = bisect.bisect_right(tables.places, after_position, key=lambda place: place[0])
        return [
            PlacedRow(position, tables.conversations[key].id, _bare(_slice(tables.rows[key], row_id, row_id + 1)[0]))
            for position, key, row_id in islice(
                (place for place in tables.places[start:] if tables.conversations[place[1]].erasure is None), limit
            )
        ]

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
        found = [(name, each) for (k, name), each in keys.items() if k == key and _order(name) >= _order(start)]
        return sorted(found, key=lambda each: _order(each[0]))[:limit]

    def recalled_among(
        self, key: int | None, idempotency_keys: Sequence[str]
    ) -> Sequence[tuple[int, str, RecalledKey]]:
        kept, sources = self._tables.idempotency_keys, self._tables.source_keys
        within = {name: sorted(sources.get(name, ())) if key is None else [key] for name in idempotency_keys}
        places = [(each, name) for name, keys in within.items() for each in keys]
        return [(*place, kept[place]) for place in places if place in kept]

    def touched(self, after_position: int, until_position: int) -> Sequence[tuple[int, int]]:
        tables = self._tables
        keys = {key for key, (_, version, _) in tables.listings.items() if version < 0}
        keys.update(key for at, key, _ in tables.places if after_position < at <= until_position)
        if after_position <= 0:
            keys.update(tables.visible.values())
        return [
            (key, tables.listings[key][1] if key in tables.listings else -1)
            for key in keys
            if tables.conversations[key].erasure is None
        ]

    def listed(
        self, digests: Sequence[bytes], before: tuple[int, int] | None, limit: int
    ) -> Sequence[ListedConversation]:
        tables = self._tables
        found = sorted(
            (
                (at, key, version)
                for key, (at, version, kept) in tables.listings.items()
                if set(digests) <= set(kept) and (before is None or (at, key) < before)
            ),
            reverse=True,
        )
        listed = []
        for at, key, version in found[:limit]:
            one, kept = tables.conversations[key], tables.records.get(("attributes", key), {})
            record = next(iter(kept.values()), None)
            encrypted = one.sealed_key is not None
            listed.append(ListedConversation(key, one.id, one.created_at, encrypted, at, version, record))
        return listed

    def _position(self, key: int, event_id: int) -> int | None:
        return next((position for position, k, row_id in self._tables.places if (k, row_id) == (key, event_id)), None)

    def _with_tail(self, key: int) -> Conversation:
        conversation = self._tables.conversations[key]
        conversation = conversation._replace(visible=self._tables.visible.get(conversation.id) == key)
        rows = self._tables.rows[key]
        begins = conversation.begins
        if begins and (not rows or rows[-1].id < begins):  # a fork without own events; some may be copied already
            rows = _slice(self._tables.rows[conversation.parent or 0], begins - 1, begins)
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


class MemoryTransaction(MemoryReader):
    def begin(
        self,
        conversation_id: str,
        created_at: int,
        salt: bytes,
        *,
        staged: bool = False,
        fork: Fork | None = None,
        replaces: int | None = None,
    ) -> Conversation:
        tables = self._tables
        key = tables.next_key
        tables.next_key += 1
        conversation = Conversation(
            key, conversation_id, created_at, salt, 0, None, None, visible=not staged, replaces=replaces
        )
        if fork is not None:
            conversation = fork.begun(conversation)
        tables.undo.append(
            lambda: [kept.pop(key, None) for kept in (tables.conversations, tables.rows, tables.structural)]
        )
        tables.conversations[key] = conversation
        tables.rows[key] = []
        tables.structural[key] = []
        if not staged:
            self._show(conversation)
        return conversation

    def insert(
        self, key: int, rows: Sequence[Row], *, staged: bool = False, leaves: Conversation | None = None
    ) -> Place:
        tables = self._tables
        if staged:
            self._check_staged(key)
            self._store(key, rows)
            return _unplaced
        first = tables.last_position + 1
        self._store(key, rows)
        self._place((key, row.id) for row in rows)
        return lambda: first

    def publish(self, key: int, size: int) -> int:
        self._check_staged(key)
        first = self._tables.last_position + 1
        self._place((key, event_id) for event_id in range(size))
        self._show(self._tables.conversations[key])
        return first

    def delete(self, key: int, limit: int) -> bool:
        found = self._tables.conversations.get(key)
        if found is not None and found.erasure is not None:
            return self._expunge(key)
        if not self._is_staged(key):
            return True
        self._expunge(key)
        tables = self._tables
        conversation, rows, structural = tables.conversations[key], tables.rows[key], tables.structural[key]

        def restore() -> None:
            tables.conversations[key], tables.rows[key], tables.structural[key] = conversation, rows, structural

        tables.undo.append(restore)
        del tables.conversations[key], tables.rows[key], tables.structural[key]
        return True

    def change(self, key: int, change: Change) -> None:
        found = self._tables.conversations[key]
        match change:
            case NewMark(mark):
                self._change(found._replace(mark=mark))
            case NewForm(rows):
                self._replace(key, rows)
            case NewPast(past, version):
                self._change(found._replace(parent=None, parent_id=None, parent_version=version, past=past))
            case PastRows(rows):
                self._store(key, rows)
            case Grown():
                pass  # nothing in memory is damaged
            case NewKey(salt, key_id, sealed_key, replaces):
                if found.sealed_key != replaces or found.erasure is not None:
                    raise KeyReplaced(f"conversation number {key}")
                if key in self._tables.listings:
                    self.list_as(key, 0, -1, ())
                self._change(found._replace(salt=salt, key_id=key_id, sealed_key=sealed_key))
            case Erasure():
                self._change_listing(key)
                self._tables.listings.pop(key, None)
                self._change(found._replace(salt=b"", key_id=None, sealed_key=None, mark=None, erasure=change))

    def _replace(self, key: int, rows: Sequence[Row]) -> None:
        for kept in (self._tables.rows[key], self._tables.structural[key]):
            self._tables.undo.append(lambda kept=kept, before=list(kept): kept.__setitem__(slice(None), before))  # type: ignore[misc]
            for row in rows:
                place = bisect.bisect_left(kept, row.id, key=lambda stored: stored.id)
                if place < len(kept) and kept[place].id == row.id:
                    kept[place] = kept[place]._replace(encoding=row.encoding, body=row.body, checksum=row.checksum)

    def _expunge(self, key: int) -> bool:
        tables = self._tables
        before = tables.rows[key], tables.structural[key], tables.places
        kept_keys, kept_records = dict(tables.idempotency_keys), dict(tables.records)

        def restore() -> None:
            tables.rows[key], tables.structural[key], tables.places = before
            tables.idempotency_keys.update(kept_keys)
            for k, name in kept_keys:
                if name.startswith(SOURCE_KEYS):
                    tables.source_keys[name].add(k)
            tables.records.update(kept_records)

        tables.undo.append(restore)
        tables.rows[key], tables.structural[key] = [], []
        tables.places = [place for place in tables.places if place[1] != key]
        for turn in [turn for turn in tables.idempotency_keys if turn[0] == key]:
            del tables.idempotency_keys[turn]
            if turn[1] in tables.source_keys:
                tables.source_keys[turn[1]].discard(key)
        for kept in [kept for kept in tables.records if kept[1] == key]:
            del tables.records[kept]
        return True

    def remember(self, key: int, idempotency_key: str, recalled: RecalledKey, *, again: bool = False) -> None:
        keys = self._tables.idempotency_keys
        before = keys.get((key, idempotency_key))
        if before is None:
            self._tables.undo.append(lambda: keys.pop((key, idempotency_key), None))
        elif again:
            self._tables.undo.append(lambda: keys.update({(key, idempotency_key): before}))
        else:
            raise IntegrityError(f"idempotency key {idempotency_key!r} exists already")
        keys[key, idempotency_key] = recalled
        if idempotency_key.startswith(SOURCE_KEYS):
            sources = self._tables.source_keys[idempotency_key]
            self._tables.undo.append(lambda: sources.discard(key))
            sources.add(key)

    def put_records(self, projection: str, key: int, records: Iterable[Record], *, replace_all: bool = False) -> None:
        kept = self._tables.records[projection, key]
        self._keep_records(projection, key)
        if replace_all:
            kept.clear()
        kept.update((record.version, record) for record in records)

    def list_as(self, key: int, at: int, version: int, digests: Iterable[bytes] | None) -> None:
        listings = self._tables.listings
        before = listings.get(key, (0, 0, ()))[2]
        self._change_listing(key)
        listings[key] = at, version, before if digests is None else tuple(digests)

    def _change_listing(self, key: int) -> None:
        listings = self._tables.listings
        before = listings.get(key)
        if before is None:
            self._tables.undo.append(lambda: listings.pop(key, None))
        else:
            self._tables.undo.append(lambda: listings.update({key: before}))

    def set_value(self, name: str, value: str) -> None:
        facts = self._tables.facts
        before = dict(facts)
        if name.startswith("tracking ") and int(facts.get(name, -1)) >= int(value):
            raise IntegrityError(f"{name!r} is at notification {facts[name]} already, {value} comes too late")
        facts[name] = value

        def restore() -> None:
            facts.clear()
            facts.update(before)

        self._tables.undo.append(restore)

    def _change(self, conversation: Conversation) -> None:
        conversations = self._tables.conversations
        before = conversations[conversation.key]
        self._tables.undo.append(lambda: conversations.update({conversation.key: before}))
        conversations[conversation.key] = conversation

    def _is_staged(self, key: int) -> bool:
        found = self._tables.conversations.get(key)
        return found is not None and found.erasure is None and key not in self._tables.visible.values()

    def _check_staged(self, key: int) -> None:
        if not self._is_staged(key):
            raise IntegrityError(
                f"conversation number {key} is not staged any more: its import was discarded, or is published already"
            )

    def _show(self, conversation: Conversation) -> None:
        visible = self._tables.visible
        before = visible.get(conversation.id)
        if before is None:
            self._tables.undo.append(lambda: visible.pop(conversation.id, None))
        elif before == conversation.replaces and self._tables.conversations[before].erasure is not None:
            self._tables.undo.append(lambda: visible.update({conversation.id: before}))
        else:
            raise IntegrityError(f"conversation {conversation.id!r} exists already")
        visible[conversation.id] = conversation.key

    def _store(self, key: int, rows: Sequence[Row]) -> None:
        kept, structural = self._tables.rows[key], self._tables.structural[key]
        for row in rows:
            place = bisect.bisect_left(kept, row.id, key=lambda stored: stored.id)
            if place < len(kept) and kept[place].id == row.id:
                raise IntegrityError(f"row {row.id} of {self._tables.conversations[key].id!r} exists already")
            self._tables.undo.append(lambda row=row: _remove(kept, row))  # type: ignore[misc]
            kept.insert(place, row)
            if row.kind == "document_changes":
                ids = self._tables.documents[key]
                self._tables.undo.append(lambda ids=ids, row=row: _remove(ids, row.id))  # type: ignore[misc]
                bisect.insort(ids, row.id)
            if row.structural:
                self._tables.undo.append(lambda row=row: _remove(structural, row))  # type: ignore[misc]
                bisect.insort(structural, row, key=lambda stored: stored.id)

    def _place(self, places: Iterable[tuple[int, int]]) -> None:
        tables = self._tables
        before, count = tables.last_position, len(tables.places)

        def restore() -> None:
            tables.last_position = before
            del tables.places[count:]

        tables.undo.append(restore)
        for key, row_id in places:
            tables.last_position += 1
            tables.places.append((tables.last_position, key, row_id))

    def _keep_records(self, projection: str, key: int) -> None:
        records = self._tables.records
        kept = dict(records[projection, key])

        def restore() -> None:
            records[projection, key].clear()
            records[projection, key].update(kept)

        self._tables.undo.append(restore)


def _remove(kept: list[T], one: T) -> None:
    if one in kept:
        kept.remove(one)


def _order(conversation_id: str) -> bytes:
    return conversation_id.encode("utf-8", "surrogatepass")


def _slice(rows: list[Row], start: int, stop: int) -> list[Row]:
    def by_id(row: Row) -> int:
        return row.id

    return rows[bisect.bisect_left(rows, start, key=by_id) : bisect.bisect_left(rows, stop, key=by_id)]


def _bare(row: Row) -> BareRow:
    return (row.id, _order(row.kind), *row[2:])


def _unplaced() -> int:
    raise AssertionError("a staged event has no position yet")
