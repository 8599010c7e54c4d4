"""The writes of one transaction, as statements on an open transaction."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from foldlog.eventstore.codec_json import Body
from foldlog.eventstore.recorders.base import Columns, Transaction
from foldlog.eventstore.recorders.postgres.assumptions import Assumptions, Name
from foldlog.eventstore.recorders.postgres.open_transaction import OF_EVENTS, OpenTransaction
from foldlog.eventstore.recorders.postgres.positions import Part
from foldlog.eventstore.recorders.postgres.reading import PostgresReader
from foldlog.eventstore.recorders.postgres.wire import OF_ROW, TryAgain, Wire, array, bigint
from foldlog.eventstore.recorders.types import (
    Chunk,
    Conversation,
    Erasure,
    Place,
    RecalledKey,
    Record,
    Row,
    Stream,
    in_columns,
    no_position,
    utf8,
)

_CONVERSATION_LOCK: Final = b"conversation"
_STAGING_LOCK: Final = b"staging"
_APPLICATION_LOCK: Final = b"application"
_STORE_KEY: Final = 0
"""The key of records that belong to no conversation, such as leases."""
_NEWEST: Final = (0, 1, False)
"""The version, the limit and the direction with which the fence of a lease asks for its record."""


class PostgresTransaction(OpenTransaction, PostgresReader, Transaction):
    """A write transaction on a connection. The first query or statement begins the transaction.

    Transactions that ask for the same conversation by its id run one after another. The advisory
    lock of a conversation ends with its transaction. While the lock is held, the conversation does
    not change between its read and the commit. Without the lock, the primary keys would refuse the
    second writer, and the second writer would have to start again. Transactions on different
    conversations never wait for one another.

    On Citus, another server may insert the rows. The transaction keeps its schema on the server
    that has it, gets its number before it sends rows, and sends rows with their positions.

    If ``may_assume`` is true, the transaction assumes that a conversation is in the expected state,
    that an idempotency key is new, and that a lease and a stream are as ``assumptions`` has them.
    The server checks the assumptions in the round trip of the write, before it writes. If an
    assumption is wrong, the transaction fails, ``assumes`` stays true, and all results of the
    transaction are invalid.
    """

    def __init__(
        self,
        wire: Wire,
        schema: str,
        part: Part,
        *,
        durable: bool,
        at_once: bool,
        reserve: Callable[[], int],
        assumptions: Assumptions,
        may_assume: bool,
        is_on_citus: bool,
    ) -> None:
        OpenTransaction.__init__(self, wire, schema, part, durable=durable, at_once=at_once)
        PostgresReader.__init__(self, self.ask)
        self._reserve = reserve
        self._assumptions = assumptions
        self._learned: dict[Name, Record | Stream | None] = {}
        """The records of leases, and the streams, as this transaction leaves them. The next
        transaction may assume them: see ``Assumptions``.
        """
        self._may_assume = may_assume
        self._is_on_citus = is_on_citus
        self._locked: set[int] = set()
        """The keys of conversations that no other writer can change before this transaction ends.
        """

    # -- what recorders promise
    # ---------------------------------------------------------------------------------------

    def conversation(
        self, name: str | int, expected: Conversation | None = None
    ) -> Conversation | None:
        if isinstance(name, int):
            # Lock the conversation, as a search by id does. With this lock, the writers of a staged
            # conversation run one after another.
            if name not in self._locked and not self._lock_by_key(name):
                return None
            return super().conversation(name)
        was_numbered = self._number_asked is not None
        self._lock_on(_CONVERSATION_LOCK, utf8(name))
        if (
            expected is not None
            and self._may_assume
            and not was_numbered
            and _can_be_checked(expected)
        ):
            self._assume(expected)
            return expected
        self._ask_for_number()
        conversation = super().conversation(name)
        if conversation is not None:
            if was_numbered and conversation.key not in self._locked:
                self._check_turn(conversation)
            self._locked.add(conversation.key)
        return conversation

    def lock_all(self, conversations: Iterable[str]) -> None:
        self._lock_on(_CONVERSATION_LOCK, *map(utf8, conversations))

    def _begin_row(self, new: Conversation, *columns: Any) -> int:
        key = self._assign_positions().key()
        self.write("begin_conversation", key, *columns)
        self._set_witness("stands_conversation", key, new.salt)
        self._locked.add(key)  # no other transaction can see the new conversation
        return key

    def insert(self, key: int, rows: Sequence[Row], *, staged: bool = False) -> Place:
        if staged:
            self._check_staged(key)
            self._insert(key, rows, [None] * len(rows))
            return no_position
        self.last_conversation = None
        self._ask_for_number()
        first = self._positions.take(len(rows))
        self._insert(key, rows, range(first, first + len(rows)))
        return lambda: self._positions.of(first)

    def _place_first(self, key: int, size: int) -> None:
        first_id = 0
        firsts = []
        for first, count in self._assign_positions().take_ranges(size, self._reserve):
            self.write("insert_publication", first, key, first_id, count)
            first_id += count
            firsts.append(first)
        self._set_witness("stands_publication", firsts[0], key)

    def _delete_copies(self, key: int, limit: int) -> bool:
        return not self._lock_by_key(key) or super()._delete_copies(key, limit)

    def recall(self, key: int, idempotency_key: str) -> RecalledKey | None:
        if self._unchecked:
            # The transaction assumes that the idempotency key is new. If the idempotency key exists
            # after all, the server refuses to store it again.
            self._guessed_keys = True
            self._taken_for_new.add((key, idempotency_key))
            return None
        return super().recall(key, idempotency_key)

    def remember(self, key: int, idempotency_key: str, recalled: RecalledKey) -> None:
        self._taken_for_new.discard((key, idempotency_key))
        super().remember(key, idempotency_key, recalled)

    def set_key(self, conversation: Conversation, *, first: bool = False) -> None:
        if conversation.sealed_key is not None:
            self._set_witness("stands_key", conversation.key, conversation.sealed_key)
        super().set_key(conversation, first=first)

    def records(
        self, key: int, projection: str, version: int, limit: int, *, backwards: bool = False
    ) -> Sequence[Record]:
        if key != _STORE_KEY or (version, limit, backwards) != _NEWEST:
            return super().records(key, projection, version, limit, backwards=backwards)
        assumed = self._assumptions.record(projection) if self._may_assume_more else None
        if assumed is not None:
            self._check("check_record", key, projection, *assumed[:4])
            return [assumed]
        records = super().records(key, projection, version, limit)
        self._learned[projection] = records[0] if records else None
        return records

    def put_records(
        self, key: int, projection: str, records: Iterable[Record], *, replace_all: bool = False
    ) -> None:
        if key == _STORE_KEY:
            self._learned[projection] = None
        super().put_records(key, projection, records, replace_all=replace_all)

    def stream(self, key: int, number: int) -> Stream | None:
        assumed = self._assumptions.stream(key, number) if self._may_assume_more else None
        if assumed is not None and key in self._locked:
            self._check("check_stream", key, number, assumed.state, assumed.end)
            self._learned[key, number] = assumed
            return assumed
        stream = super().stream(key, number)
        is_open = stream is not None and stream.closed_at is None
        self._learned[key, number] = stream if is_open else None
        return stream

    def delete_stream(self, key: int, number: int) -> None:
        self._learned[key, number] = None
        super().delete_stream(key, number)

    def commit(self) -> None:
        super().commit()
        self._assumptions.learn(self._learned)

    def put_stream(self, key: int, stream: Stream) -> None:
        self._learned[key, stream.number] = None
        self._set_witness("stands_stream", key, stream.number, stream.closed_at, stream.state)
        super().put_stream(key, stream)

    def put_chunk(self, key: int, number: int, chunk: Chunk) -> None:
        stream = self._learned.get((key, number))
        if isinstance(stream, Stream):
            self._learned[key, number] = stream._replace(end=chunk.ends)
        self._set_witness("stands_stream_chunk", key, number, chunk.begins, chunk.checksum)
        super().put_chunk(key, number, chunk)

    def insert_past(self, key: int, rows: Sequence[Row]) -> None:
        self._insert(key, rows, [None] * len(rows))

    def insert_again(self, key: int, rows: Sequence[Row], positions: Sequence[int | None]) -> None:
        placed = _in_order(rows, positions)
        self.write("insert_again", key, *map(array, OF_ROW, zip(*placed, strict=True)))
        self._attach(key, rows)

    def erase(self, key: int, erasure: Erasure) -> None:
        self.write("delete_publications", key)
        self._set_witness("stands_erasure", key, erasure.erased_at, erasure.head, erasure.reason)
        super().erase(key, erasure)

    def _hold_listing(self, key: int) -> None:
        self.write("hold_listing", key)

    def set_value(self, name: str, value: str) -> None:
        kind, _, application = name.partition(" ")
        if kind == "tracking" and value:
            self._lock_on(_APPLICATION_LOCK, utf8(application))
        super().set_value(name, value)

    def _insert_tracking(self, application: str, notification_id: int) -> None:
        row = application, notification_id, secrets.token_bytes(8)
        self.write("insert_tracking", *row)
        self._set_witness("stands_tracking", *row)

    # -- steps
    # ----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        was_begun = self._begun
        super()._begin()
        if self._is_on_citus and not was_begun:
            self._wire.queue("stay")

    @property
    def _may_assume_more(self) -> bool:
        # After a write, the transaction has to see its own rows.
        return self._may_assume and not self._wrote

    def _check(self, statement: str, *parameters: Any) -> None:
        self._begin()
        self._wire.queue(statement, *parameters)
        self._unchecked = True

    def _assume(self, guess: Conversation) -> None:
        """Ask for the number of the transaction on the condition that a conversation is as
        expected.
        """
        # The server answers with a number only if the row and the last event are still the same.
        self._number_asked = self._wire.queue(
            "number_if_unchanged",
            guess.key,
            guess.version - 1,
            guess.head,
            guess.salt,
            guess.key_id,
            guess.sealed_key,
            guess.mark,
            guess.redactions,
            guess.unmade - guess.archived,
        )
        self._unchecked = True
        self._locked.add(guess.key)

    def _check_turn(self, conversation: Conversation) -> None:
        """Raise ``TryAgain`` if another writer appended to a conversation after this transaction
        had got its number. New events of this transaction would get lower positions than the other
        writer's events. After ``TryAgain``, the transaction runs again and first takes the locks of
        its conversations.
        """
        [(newest,)] = self.ask("newest_position", conversation.key)
        if newest is not None and self._positions.precede(newest):
            raise TryAgain(
                f"another transaction wrote to conversation {conversation.id!r} after this"
                " transaction had begun"
            )

    def _insert(self, key: int, rows: Sequence[Row], places: Sequence[int | None]) -> None:
        first = self._assign_positions().of(0) if self._is_on_citus else 0
        positions = [None if place is None else first + place for place in places]
        placed = _in_order(rows, positions)
        if len(placed) == 1:
            self.write("insert_event", key, *placed[0])
        else:
            self.write("insert_events", key, *map(array, OF_ROW, zip(*placed, strict=True)))
        if any(type(row.body) is Body for row in rows):
            self._attach(key, rows)
        self._set_witness(OF_EVENTS, key, rows[-1].id, rows[-1].head, places[-1])

    def _lock_by_key(self, key: int) -> bool:
        """Lock a conversation. Return False if it does not exist. A staged conversation may be
        published before its lock is taken, and then has another lock.
        """
        was_numbered = self._number_asked is not None
        locked: tuple[bytes, bytes] | None = None
        while True:
            named = self.ask("name_of", key)
            if not named:
                return False
            [(name_bytes, is_visible)] = named
            if is_visible:
                name = (_CONVERSATION_LOCK, name_bytes)
            else:
                name = (_STAGING_LOCK, bigint(key))
            if name == locked:
                break
            self._lock_on(*name)
            locked = name
        if is_visible and was_numbered:
            conversation = super().conversation(key)
            if conversation is not None:
                self._check_turn(conversation)
        self._locked.add(key)
        return True

    def _state(self, key: int) -> Columns:
        self._lock_on(_STAGING_LOCK, bigint(key))
        return super()._state(key)

    def _delete(self, statement: str, key: int, limit: int) -> bool:
        self._wrote = True
        [(deleted,)] = self.ask(statement, key, limit)
        return bool(deleted < limit)


def _in_order(rows: Sequence[Row], positions: Sequence[int | None]) -> list[tuple[Any, ...]]:
    """Return the columns of rows, in the order of the parameters of ``insert_event``."""
    return [
        (row.id, *in_columns(row.meta), row.meta, row.body, position)
        for row, position in zip(rows, positions, strict=True)
    ]


def _can_be_checked(expected: Conversation) -> bool:
    """Return whether the server can check that a conversation is as expected. A conversation that
    shares its past is always read, because its own row does not show changes of its ancestors.
    """
    return expected.erasure is None and expected.parent is None and expected.version > 0
