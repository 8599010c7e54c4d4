"""Between the store and its recorder: rows are compressed, sealed and checksummed on their way in, checked and opened
on their way out.

The store above sees plain rows, the recorder below any bytes. A row whose bytes are not those that were written comes
up as one that says so, so that the sound ones before it can still be used. A damaged record is passed over: it can be
made again from the events, and until then the one before it serves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from eventstore.errors import CorruptEvent, KeyUnavailable
from eventstore.recorders.base import (
    BareRow,
    Conversation,
    Erasure,
    Place,
    PlacedRow,
    Reader,
    Record,
    Recorder,
    Row,
    Transaction,
)
from eventstore.stored import hash_chain
from eventstore.stored.row_codec import DAMAGED, DataKey, Sealing
from eventstore.stored.vault import NOBODY, Known, Vault

__all__ = ["Guard", "GuardedReader", "columns_are_sound", "is_moment"]

T = TypeVar("T")

_YEAR_10000 = 253_402_300_800_000_000
"""In microseconds since 1970: what a datetime cannot say any more."""


class Guard:
    """A recorder on a recorder. ``unguarded`` is the one below, which sees rows as they are stored."""

    def __init__(self, recorder: Recorder, sealing: Sealing | None = None) -> None:
        self.unguarded = recorder
        self.vault = Vault(sealing or Sealing())
        self.writable = recorder.writable

    def transact(self, work: Callable[[Transaction], T]) -> T:
        return self.unguarded.transact(lambda transaction: work(_GuardedTransaction(transaction, self.vault)))

    @contextmanager
    def read(self) -> Iterator[Reader]:
        with self.unguarded.read() as reader:
            yield GuardedReader(reader, self.vault)

    def query(self, work: Callable[[Reader], T]) -> T:
        return self.unguarded.query(lambda reader: work(GuardedReader(reader, self.vault)))

    def store_value(self, name: str) -> str:
        return self.unguarded.store_value(name)

    def data_version(self) -> int:
        return self.unguarded.data_version()

    def left_in_staging(self, before: int) -> Sequence[int]:
        return self.unguarded.left_in_staging(before)

    def purge(self) -> bool:
        return self.unguarded.purge()

    def check(self) -> Iterator[str]:
        return self.unguarded.check()

    def close(self) -> None:
        self.unguarded.close()


class GuardedReader:
    """A reader on a reader."""

    def __init__(self, reader: Reader, vault: Vault) -> None:
        self._reader = reader
        self._vault = vault

    def conversation(self, conversation_id: str) -> Conversation | None:
        if type(conversation_id) is not str:
            raise TypeError(f"a conversation is named by a text, not by {conversation_id!r}")
        return self._with_salt(self._reader.conversation(conversation_id))

    def conversation_of(self, key: int) -> Conversation | None:
        return self._with_salt(self._reader.conversation_of(key))

    def conversations(self, after: str | None, limit: int) -> Sequence[Conversation]:
        return [
            found
            if columns_are_sound(found)
            else found._replace(created_at=0, head=None, updated_at=None, erasure=None)
            for found in self._reader.conversations(after, limit)
        ]

    def staged(self, conversation_id: str) -> Sequence[int]:
        return self._reader.staged(conversation_id)

    def rows(self, key: int, start: int, stop: int, limit: int) -> Sequence[Row]:
        return self._opened(key, self._reader.rows(key, start, stop, limit))

    def bare_rows(self, key: int, start: int, stop: int, limit: int) -> Sequence[BareRow]:
        return [(row.id, row.kind.encode(), *row[2:]) for row in self.rows(key, start, stop, limit)]

    def structural_rows(self, key: int, start: int, stop: int, limit: int) -> Sequence[Row]:
        return self._opened(key, self._reader.structural_rows(key, start, stop, limit))

    def shown_rows(self, key: int, intervals: Sequence[tuple[int, int]]) -> Sequence[Row]:
        return self._opened(key, self._reader.shown_rows(key, intervals))

    def placed_rows(self, after_position: int, limit: int) -> Sequence[PlacedRow]:
        answer: list[PlacedRow] = []
        for position, conversation, row in self._reader.placed_rows(after_position, limit):
            known = self._known_by_id(conversation)
            opened = self._vault.opened(known, [row])
            if opened[0].encoding == DAMAGED:
                self._vault.forget(known)
                opened = self._vault.opened(self._known_by_id(conversation), [row])
            answer.append(PlacedRow(position, conversation, opened[0]))
        return answer

    def last_position(self) -> int:
        return self._reader.last_position()

    def record_at(self, projection: str, key: int, version: int) -> Record | None:
        known = self._known_by_key(key)
        while True:
            found = self._reader.record_at(projection, key, version)
            opened = found and self._vault.opened_record(known, projection, found)
            if found is None or opened is not None:
                return opened
            version = min(version, found.version) - 1

    def records(self, projection: str, key: int, after: int, limit: int) -> Sequence[Record]:
        known = self._known_by_key(key)
        while True:
            found = self._reader.records(projection, key, after, limit)
            opened = [self._vault.opened_record(known, projection, record) for record in found]
            sound = [record for record in opened if record is not None]
            if sound or not found:
                return sound
            after = max(after, found[-1].version)

    def damaged_records(self, projection: str, key: int, after: int, limit: int) -> tuple[int, Sequence[int]]:
        """Of the next ``limit`` records behind a version, the last one's version, and those that are passed over."""
        known = self._known_by_key(key)
        found = self._reader.records(projection, key, after, limit)
        damaged = [r.version for r in found if self._vault.opened_record(known, projection, r) is None]
        return (found[-1].version if found else after), damaged

    def position(self, key: int, event_id: int) -> int:
        return self._reader.position(key, event_id)

    def recall(self, key: int, idempotency_key: str) -> tuple[int, int] | None:
        return self._reader.recall(key, idempotency_key)

    def remembered(self, key: int, after: str | None, limit: int) -> Sequence[tuple[str, int, int]]:
        return self._reader.remembered(key, after, limit)

    def projections(self, key: int) -> Sequence[str]:
        return self._reader.projections(key)

    def max_tracking_id(self, application: str) -> int | None:
        return self._reader.max_tracking_id(application)

    def _opened(self, key: int, rows: Sequence[Row]) -> Sequence[Row]:
        if not rows:
            return rows
        known = self._known_by_key(key)
        opened = self._vault.opened(known, rows)
        if opened is not rows and any(row.encoding == DAMAGED for row in opened):
            # Or the conversation was sealed meanwhile, or what is known of it was never committed: ask once more.
            self._vault.forget(known)
            opened = self._vault.opened(self._known_by_key(key), rows)
        return opened

    def _with_salt(self, found: Conversation | None) -> Conversation | None:
        """Of a sealed conversation the salt is sealed too. Without its key it can be found, and not be read."""
        if found is None:
            return None
        if not columns_are_sound(found):
            raise CorruptEvent(found.id, found.version - 1, "it, or what leads to it, is not what was written")
        try:
            data_key = self._known(found).data_key
        except KeyUnavailable:
            return found
        return found if data_key is None else found._replace(salt=data_key.salt)

    def _known(self, found: Conversation) -> Known:
        return self._vault.known(found)

    def _known_by_key(self, key: int) -> Known:
        recalled = self._vault.recalled(key=key)
        if recalled is not None:
            return recalled
        found = self._reader.conversation_of(key)
        return NOBODY if found is None else self._known(found)

    def _known_by_id(self, conversation: str) -> Known:
        recalled = self._vault.recalled(conversation=conversation)
        if recalled is not None:
            return recalled
        found = self._reader.conversation(conversation)
        return NOBODY if found is None else self._known(found)


class _GuardedTransaction(GuardedReader):
    def __init__(self, transaction: Transaction, vault: Vault) -> None:
        super().__init__(transaction, vault)
        self._transaction = transaction
        self._seen: dict[int, Known] = {}

    def begin(self, conversation_id: str, created_at: int, salt: bytes, *, staged: bool = False) -> Conversation:
        begun = self._transaction.begin(conversation_id, created_at, salt, staged=staged)
        self._seen[begun.key] = self._vault.learn(begun)
        return begun

    def insert(self, key: int, rows: Sequence[Row]) -> Place:
        return self._transaction.insert(key, self._vault.closed(self._sealed_with(key), rows))

    def stage(self, key: int, rows: Sequence[Row]) -> None:
        self._transaction.stage(key, self._vault.closed(self._sealed_with(key), rows))

    def publish(self, key: int, size: int) -> int:
        return self._transaction.publish(key, size)

    def discard(self, key: int, limit: int) -> bool:
        return self._transaction.discard(key, limit)

    def set_key(
        self, key: int, salt: bytes, key_id: str | None, sealed_key: bytes | None, *, replaces: bytes | None
    ) -> None:
        self._transaction.set_key(key, salt, key_id, sealed_key, replaces=replaces)

    def replace(self, key: int, rows: Sequence[Row]) -> None:
        self._transaction.replace(key, self._vault.closed(self._sealed_with(key), rows))

    def erase(self, key: int, erasure: Erasure) -> None:
        self._transaction.erase(key, erasure)

    def expunge(self, key: int, limit: int) -> bool:
        return self._transaction.expunge(key, limit)

    def remember(self, key: int, idempotency_key: str, first_id: int, events: int) -> None:
        self._transaction.remember(key, idempotency_key, first_id, events)

    def put_records(self, projection: str, key: int, records: Iterable[Record]) -> None:
        known = self._sealed_with(key)
        closed = [self._vault.closed_record(known, projection, record) for record in records]
        self._transaction.put_records(projection, key, closed)

    def delete_records(self, projection: str, key: int) -> None:
        self._transaction.delete_records(projection, key)

    def insert_tracking(self, application: str, notification_id: int) -> None:
        self._transaction.insert_tracking(application, notification_id)

    def _sealed_with(self, key: int) -> Known:
        """What to write rows of a conversation with. Where the store has a key and the conversation none, it gets one:
        from then on nothing is written plain.
        """
        keys = self._vault.sealing.keys
        known = self._known_by_key(key)
        if keys is None or known.data_key is not None:
            return known
        found = self._transaction.conversation_of(key)
        assert found is not None  # it is being written to
        sealed = keys.seal(found.id, DataKey.new_secret(found.salt))
        self._transaction.set_key(key, b"", keys.current, sealed, replaces=found.sealed_key)
        known = self._seen[key] = self._vault.learn(found._replace(key_id=keys.current, sealed_key=sealed))
        return known

    # What is written must be right for what this transaction finds, so what the vault recalls does not count, and what
    # it writes may be taken back, so the vault is not told.

    def _known(self, found: Conversation) -> Known:
        seen = self._seen.get(found.key)
        if seen is None or seen.sealed_key != found.sealed_key:
            seen = self._seen[found.key] = self._vault.learn(found)
        return seen

    def _known_by_key(self, key: int) -> Known:
        seen = self._seen.get(key)
        if seen is None:
            found = self._transaction.conversation_of(key)
            seen = NOBODY if found is None else self._known(found)
        return seen


def columns_are_sound(found: Conversation) -> bool:
    """Whether its columns, and those that come from its last row, can be what was written there. Once the row is read,
    its checksum says it for certain.
    """
    erasure = found.erasure
    if found.astray or not is_moment(found.created_at) or type(found.salt) is not bytes:
        return False
    if type(found.sealed_key) not in (bytes, type(None)):
        return False
    if erasure is not None:
        return is_moment(erasure.erased_at) and type(erasure.events) is int and type(erasure.head) is bytes
    return found.version == 0 or (
        is_moment(found.updated_at)
        and type(found.head) is bytes
        and len(found.head) == hash_chain.HEAD_BYTES
        and 0 <= found.shown <= found.version
        and 0 <= found.structural <= found.version
    )


def is_moment(value: object) -> bool:
    """Whether it can be a time that the store recorded."""
    return type(value) is int and 0 <= value < _YEAR_10000
