"""A write transaction."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from functools import partial

from eventstore.recorders import changes
from eventstore.recorders.errors import IntegrityError, KeyReplaced
from eventstore.recorders.memory.index import MemoryWritableIndex
from eventstore.recorders.memory.reader import MemoryReader
from eventstore.recorders.memory.tables import remove
from eventstore.recorders.types import (
    SOURCE_KEYS,
    Beginning,
    Conversation,
    Erasure,
    Place,
    RecalledKey,
    Record,
    Row,
    unplaced,
)
from eventstore.values.bodies import Body, attachments_of


class MemoryTransaction(MemoryReader):
    @property
    def index(self) -> MemoryWritableIndex:
        return MemoryWritableIndex(self._tables)

    def begin(self, new: Beginning) -> Conversation:
        tables = self._tables
        key = tables.next_key
        tables.next_key += 1
        conversation = new.under(key)
        tables.put(tables.conversations, key, conversation)
        tables.put(tables.rows, key, [])
        tables.put(tables.structural, key, [])
        if not new.staged:
            self._show(conversation)
        return conversation

    def insert(self, key: int, rows: Sequence[Row], *, staged: bool = False, follow: bool = False) -> Place:
        tables = self._tables
        if staged:
            self._check_staged(key)
            self._store(key, rows)
            return unplaced
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
        tables.put(tables.conversations, key, None)
        tables.put(tables.rows, key, None)
        tables.put(tables.structural, key, None)
        return True

    def change(self, key: int, change: changes.Change) -> None:
        found = self._tables.conversations[key]
        match change:
            case changes.NewMark(mark):
                self._change(found._replace(mark=mark))
            case changes.NewForm(rows) | changes.NewContent(rows):
                self._replace(key, rows)
            case changes.ForgottenKey(idempotency_key):
                self._put_key(key, idempotency_key, None)
            case changes.MoreRedactions(count):
                self._change(found._replace(redactions=found.redactions + count))
            case changes.NewPast(past, version):
                self._change(found._replace(parent=None, parent_id=None, parent_version=version, past=past))
            case changes.PastRows(rows):
                self._store(key, rows)
            case changes.PlacedPast(events):
                self._place((key, event_id) for event_id in range(events))
            case changes.Grown():
                pass  # nothing in memory is damaged
            case changes.NewKey(salt, key_id, sealed_key, replaces):
                if found.sealed_key != replaces or found.erasure is not None:
                    raise KeyReplaced(f"conversation number {key}")
                self.index.list_again(key)
                self._change(found._replace(salt=salt, key_id=key_id, sealed_key=sealed_key))
            case Erasure():
                self.index.leave(key)
                change = change._replace(position=self._tables.last_position + 1)
                self._change(found._replace(salt=b"", key_id=None, sealed_key=None, mark=None, erasure=change))
                self._place([(key, change.events)])

    def _replace(self, key: int, rows: Sequence[Row]) -> None:
        rows = [self._shared(key, row) for row in rows]
        for kept in (self._tables.rows[key], self._tables.structural[key]):
            self._tables.undo.append(lambda kept=kept, before=list(kept): kept.__setitem__(slice(None), before))  # type: ignore[misc]
            for row in rows:
                place = bisect.bisect_left(kept, row.id, key=lambda stored: stored.id)
                if place < len(kept) and kept[place].id == row.id:
                    kept[place] = kept[place]._replace(
                        encoding=row.encoding, body=row.body, checksum=row.checksum, proof=row.proof
                    )

        self._drop_unattached(key)

    def _shared(self, key: int, row: Row) -> Row:
        """Return the row with those attachments that the conversation has already."""
        beside = attachments_of(row.body)
        if not beside:
            return row
        kept = self._tables.attachments[key]
        for each in beside:
            place = each.name, each.encoding
            if place not in kept:
                self._tables.put(kept, place, each)
        return row._replace(body=Body.of(row.body, [kept[each.name, each.encoding] for each in beside]))

    def _drop_unattached(self, key: int) -> None:
        kept = self._tables.attachments.get(key)
        if kept:
            rows = self._tables.rows.get(key, [])
            attached = {(each.name, each.encoding) for row in rows for each in attachments_of(row.body)}
            for place in kept.keys() - attached:
                self._tables.put(kept, place, None)

    def _expunge(self, key: int) -> bool:
        tables = self._tables
        tables.undo.append(partial(setattr, tables, "places", tables.places))
        tables.put(tables.rows, key, [])
        tables.put(tables.structural, key, [])
        erasure = tables.conversations[key].erasure
        kept_position = None if erasure is None else erasure.position
        tables.places = [place for place in tables.places if place[1] != key or place[0] == kept_position]
        for _, name in [place for place in tables.idempotency_keys if place[0] == key]:
            self._put_key(key, name, None)
        for kept in [kept for kept in tables.records if kept[1] == key]:
            tables.put(tables.records, kept, None)
        self._drop_unattached(key)
        return True

    def remember(self, key: int, idempotency_key: str, recalled: RecalledKey, *, again: bool = False) -> None:
        if (key, idempotency_key) in self._tables.idempotency_keys and not again:
            raise IntegrityError(f"idempotency key {idempotency_key!r} exists already")
        self._put_key(key, idempotency_key, recalled)

    def _put_key(self, key: int, idempotency_key: str, recalled: RecalledKey | None) -> None:
        tables = self._tables
        tables.put(tables.idempotency_keys, (key, idempotency_key), recalled)
        if idempotency_key.startswith(SOURCE_KEYS):
            others = tables.source_keys.get(idempotency_key, frozenset()) - {key}
            tables.put(tables.source_keys, idempotency_key, others if recalled is None else others | {key})

    def put_records(self, projection: str, key: int, records: Iterable[Record], *, replace_all: bool = False) -> None:
        kept = self._tables.records
        others = {} if replace_all else kept.get((projection, key), {})
        self._tables.put(kept, (projection, key), {**others, **{record.version: record for record in records}})

    def set_value(self, name: str, value: str) -> None:
        facts = self._tables.facts
        if name.startswith("tracking ") and value and int(facts.get(name, -1)) >= int(value):
            raise IntegrityError(f"{name!r} is at notification {facts[name]} already, {value} comes too late")
        self._tables.put(facts, name, value or None)

    def _change(self, conversation: Conversation) -> None:
        self._tables.put(self._tables.conversations, conversation.key, conversation)

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
        if before is not None and (
            before != conversation.replaces or self._tables.conversations[before].erasure is None
        ):
            raise IntegrityError(f"conversation {conversation.id!r} exists already")
        self._tables.put(visible, conversation.id, conversation.key)

    def _store(self, key: int, rows: Sequence[Row]) -> None:
        kept, structural = self._tables.rows[key], self._tables.structural[key]
        for row in rows:
            if type(row.body) is Body:
                row = self._shared(key, row)
            place = bisect.bisect_left(kept, row.id, key=lambda stored: stored.id)
            if place < len(kept) and kept[place].id == row.id:
                raise IntegrityError(f"row {row.id} of {self._tables.conversations[key].id!r} exists already")
            self._tables.undo.append(lambda row=row: remove(kept, row))  # type: ignore[misc]
            kept.insert(place, row)
            if row.kind == "document_changes":
                ids = self._tables.documents[key]
                self._tables.undo.append(lambda ids=ids, row=row: remove(ids, row.id))  # type: ignore[misc]
                bisect.insort(ids, row.id)
            if row.structural:
                self._tables.undo.append(lambda row=row: remove(structural, row))  # type: ignore[misc]
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
