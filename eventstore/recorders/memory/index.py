"""The index over many conversations: lists, and events by the id of their source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eventstore.recorders.memory.tables import Tables, utf8
from eventstore.recorders.types import ListedConversation, RecalledKey


class MemoryIndex:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def recalled_among(
        self, key: int | None, idempotency_keys: Sequence[str]
    ) -> Sequence[tuple[int, str, RecalledKey]]:
        kept, sources = self._tables.idempotency_keys, self._tables.source_keys
        within = {name: sorted(sources.get(name, ())) if key is None else [key] for name in idempotency_keys}
        places = [(each, name) for name, keys in within.items() for each in keys]
        return [(*place, kept[place]) for place in places if place in kept]

    def id_from(self, start: str) -> str | None:
        return min((name for name in self._tables.visible if utf8(name) >= utf8(start)), key=utf8, default=None)

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

    def trackings_behind(self, position: int) -> Sequence[str]:
        facts = self._tables.facts
        tracked = {name.partition(" ")[2]: int(at) for name, at in facts.items() if name.startswith("tracking ")}
        return sorted(application for application, at in tracked.items() if at < position)


class MemoryWritableIndex(MemoryIndex):
    def list_as(self, key: int, at: int, version: int, digests: Iterable[bytes] | None) -> None:
        listings = self._tables.listings
        before = listings.get(key, (0, 0, ()))[2]
        self._tables.put(listings, key, (at, version, before if digests is None else tuple(digests)))

    def list_again(self, key: int) -> None:
        """Have a conversation listed again by a process that has its new key, if it is listed."""
        if key in self._tables.listings:
            self.list_as(key, 0, -1, ())

    def leave(self, key: int) -> None:
        """Remove a conversation from all lists."""
        self._tables.put(self._tables.listings, key, None)
