"""The steps of a rekey: change the stored form of one conversation while other processes read and
write.

The steps first rewrite the proofs of the idempotency keys, then the rows. The conversation's mark
says which rows may still have the old form. Heads do not change. Before a row is replaced, its old
form is checked against the hash chain, and its new form is checked against the old form. If a new
row would not decode to the same event, the old row stays.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from foldlog.eventstore.codec_json import size_of
from foldlog.eventstore.errors import CorruptEvent, StoreDamaged
from foldlog.eventstore.events import KeyChanged
from foldlog.eventstore.log.database import Database, start_after
from foldlog.eventstore.log.importing import REKEY, REST_S
from foldlog.eventstore.log.keys import DataKey
from foldlog.eventstore.log.ledger import enter
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.row import dense_rows, first_head, link_of
from foldlog.eventstore.log.seal import DAMAGED, Compression, Mark, RowCodec, mark_of
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.types import Conversation, RecalledKey, Row
from foldlog.eventstore.sources.moving import seal_again

_ROWS_FIRST = 16
"""The number of rows that the first transaction changes."""
_ROWS_MAX = 200
"""The maximal number of rows that one transaction changes."""
_BYTES = 2 * 2**20
"""If a transaction has read more bytes, the next transaction changes fewer rows."""
_KEYS = 500
"""The number of idempotency keys that one transaction changes."""


class RekeyState(msgspec.Struct, frozen=True):
    """The progress of a rekey of one conversation. The progress is stored as JSON, so the names of
    the fields of ``RekeyState`` must not change.

    ``decrypt``: whether rows become plain text.
    ``compression``: the chosen compression, or None to leave the compression of rows unchanged.
    ``until``: only rows with smaller ids are changed.
    ``next``: the id of the next row to change.
    ``key``: the next idempotency key to change, or None if all keys are changed.
    ``sound``: whether all rows so far were undamaged.
    ``encrypted``: whether the conversation had a key when the rekey began.
    """

    decrypt: bool
    compression: Compression | None
    until: int
    next: int
    key: str | None
    sound: bool = True
    encrypted: bool = False


class ChangedRows(NamedTuple):
    """The changes of one transaction, or the sum of all transactions.

    ``rows``: the number of changed rows.
    ``damaged``: the ids of damaged rows, which stay unchanged.
    ``key``: whether the key was removed.
    ``size``: the number of bytes that one transaction read.
    ``state``: the progress after one transaction, or None at the end.
    """

    rows: int = 0
    damaged: tuple[int, ...] = ()
    key: bool = False
    size: int = 0
    state: RekeyState | None = None


def leave_unfinished(transaction: Transaction, key: int, state: RekeyState) -> None:
    transaction.leave_unfinished(key, REKEY, msgspec.json.encode(state).decode())


def change_all(database: Database, key: int) -> ChangedRows:
    """Continue the rekey of a conversation until it is complete. If a row is missing, the rekey
    ends and ``CorruptEvent`` is raised.
    """
    total = ChangedRows()
    size = _ROWS_FIRST
    while True:
        step = partial(_step, database=database, key=key, size=size)
        try:
            changes = database.recorder.transact(step)
        except CorruptEvent:
            database.recorder.transact(lambda transaction: transaction.finish(key))
            raise
        total = ChangedRows(total.rows + changes.rows, total.damaged + changes.damaged, changes.key)
        if changes.state is None:
            return total
        # Adapt the number of rows, so that a transaction holds the write lock only briefly.
        if changes.size > _BYTES:
            size = max(size // 2, 1)
        else:
            size = min(2 * size, _ROWS_MAX)
        if changes.rows:
            time.sleep(REST_S)


def _step(transaction: Transaction, database: Database, key: int, size: int) -> ChangedRows:
    """Take the next step of the rekey of a conversation, with at most ``size`` rows."""
    conversation = transaction.conversation(key)
    states = [
        unfinished.state
        for unfinished in transaction.unfinished(key)
        if unfinished.operation == REKEY
    ]
    if conversation is None or not states:
        # Another process has ended the rekey, or has erased the conversation.
        return ChangedRows()
    state = msgspec.json.decode(states[0], type=RekeyState)
    changes = _Change(transaction, database, conversation, state).step(size)
    if changes.state is None:
        transaction.finish(key)
    else:
        leave_unfinished(transaction, key, changes.state)
    return changes


def become_plain(
    transaction: Transaction, database: Database, conversation: Conversation, key: DataKey
) -> None:
    """Remove the key of a conversation whose rows are all plain already."""
    plain = conversation._replace(salt=key.salt, key_id=None, sealed_key=None)
    transaction.set_key(plain)
    transaction.set_mark(plain.key, None)
    enter(transaction, plain, KeyChanged(), database.now())


class _Change:
    """One step of a rekey: it changes either idempotency keys or rows."""

    def __init__(
        self,
        transaction: Transaction,
        database: Database,
        conversation: Conversation,
        state: RekeyState,
    ) -> None:
        self._transaction = transaction
        self._database = database
        self._conversation = conversation
        self._codec = codec = database.codec_of(conversation)
        # If an append has given the conversation a key in the meantime, change all keys and rows
        # from the first on.
        if codec.data_key is not None and not state.encrypted:
            state = RekeyState(
                decrypt=state.decrypt,
                compression=state.compression,
                until=conversation.version,
                next=conversation.begins,
                key="",
                encrypted=True,
            )
        self._state = state
        self._target = RowCodec(codec.conversation, None if state.decrypt else codec.data_key)
        if codec.data_key is None:
            self._salt = conversation.salt
        else:
            self._salt = codec.data_key.salt

    def step(self, size: int) -> ChangedRows:
        mark = self._codec.mark
        if self._state.decrypt:  # events appended in the meantime become plain too
            self._set_mark(
                mark._replace(pending_until=max(mark.pending_until, self._conversation.version))
            )
        if self._state.key is None:
            return self._rows(size)
        return self._keys(self._state.key)

    def _keys(self, start: str) -> ChangedRows:
        """Take a step over the idempotency keys: one page, from ``start`` on."""
        page = self._transaction.recalled(self._conversation.key, start, _KEYS)
        changed = self._prove(page)
        mark = self._codec.mark
        if not self._state.decrypt:
            self._set_mark(mark._replace(keys=mark.keys + changed))
        next_state = msgspec.structs.replace(
            self._state, key=start_after(page[-1][0]) if page else None
        )
        return ChangedRows(state=next_state)

    def _prove(self, page: Sequence[tuple[str, RecalledKey]]) -> int:
        """Write the proofs of idempotency keys in the new form. Return how many have changed."""
        ReadTransaction(
            self._transaction, self._conversation, self._database, self._codec
        ).check_proofs(page)
        is_plain = self._target.data_key is None
        to_change = [
            (name, recalled) for name, recalled in page if (recalled.proof is None) != is_plain
        ]
        for name, recalled in to_change:
            proof = self._target.with_proof(name, recalled).proof
            self._transaction.prove(self._conversation.key, name, proof)
        return len(to_change)

    def _rows(self, size: int) -> ChangedRows:
        """Change up to ``size`` rows, beginning with the first one not yet changed. The last step
        also writes the mark again.
        """
        conversation = self._conversation
        state = self._state
        mark = self._codec.mark
        # Events that were appended after the rekey began have the new form already, unless the
        # rekey decrypts.
        end = conversation.version if state.decrypt else state.until
        start = state.next
        stop = min(state.next + size, end)
        rows = self._transaction.rows(conversation.key, start, stop)
        head = self._head_before(start)
        replacements: list[tuple[Row, Row]] = []
        damaged: list[int] = []
        for stored, plain in zip(
            dense_rows(conversation.id, rows, start, stop),
            self._codec.decode_rows(rows),
            strict=True,
        ):
            if plain.encoding == DAMAGED or not self._follows(head, plain):
                damaged.append(stored.id)
                head = None
                continue
            head = plain.head
            changed_row = self._target.encoded_again(stored, plain, state.compression)
            if changed_row is not stored:
                replacements.append((plain, changed_row))
        self._replace(replacements)
        sound = state.sound and not damaged
        bytes_read = sum(size_of(row.body) for row in rows)
        if stop >= end:
            seal_again(self._transaction, self._database, conversation.key, self._target.data_key)
            is_key_removed = sound and bool(mark.pending_until) and self._end()
            return ChangedRows(len(replacements), tuple(damaged), is_key_removed)
        if sound and not state.decrypt and mark.pending_from < stop <= mark.pending_until:
            self._set_mark(mark._replace(pending_from=stop))
        next_state = msgspec.structs.replace(state, next=stop, sound=sound)
        return ChangedRows(len(replacements), tuple(damaged), False, bytes_read, next_state)

    def _end(self) -> bool:
        """Complete the rekey after all rows were changed. Return whether the key was removed."""
        transaction = self._transaction
        conversation = self._conversation
        codec = self._codec
        if not self._state.decrypt:
            self._set_mark(Mark(codec.mark.keys))
            return False
        assert codec.data_key is not None  # without a key, no row was pending
        # Appends after the beginning of the rekey have added keys with proofs, so look at all keys
        # again.
        self._prove([*transaction.all_recalled(conversation.key)])
        become_plain(transaction, self._database, conversation, codec.data_key)
        WriteTransaction(transaction, conversation, self._database, codec).forget_records(
            self._target
        )
        return True

    def _set_mark(self, mark: Mark) -> None:
        if self._codec.data_key is not None and mark != self._codec.mark:
            self._transaction.set_mark(
                self._conversation.key, mark_of(self._codec.data_key, self._conversation, mark)
            )

    def _head_before(self, start: int) -> bytes | None:
        """Return the head before the row ``start``. Return None if it cannot be read: the head in
        the row ``start`` itself is then trusted.
        """
        if start == 0:
            return first_head(self._conversation, self._salt)
        reading = ReadTransaction(
            self._transaction, self._conversation, self._database, self._codec
        )
        rows = reading.rows(start - 1, start)
        return rows[0].head if rows and rows[0].encoding != DAMAGED else None

    def _follows(self, head: bytes | None, row: Row) -> bool:
        if head is None or not self._salt:
            return True
        return link_of(head, self._salt, row) == row.head

    def _replace(self, changed: Sequence[tuple[Row, Row]]) -> None:
        """Replace rows, given as pairs of the plain row and the row in the new form. Raises
        ``StoreDamaged`` if a new row would not decode to the plain row.
        """
        decoded = self._target.decode_rows([new for _, new in changed])
        if any(
            (row.columns, row.body) != (plain.columns, plain.body)
            for row, (plain, _) in zip(decoded, changed, strict=True)
        ):
            first = changed[0][0].id
            last = changed[-1][0].id
            raise StoreDamaged(
                f"conversation {self._conversation.id!r}: events {first} to {last} would read"
                " differently after the change of key, so they were left as they are; run 'foldlog"
                " store verify', and report this"
            )
        if changed:
            self._transaction.replace_rows(self._conversation.key, [new for _, new in changed])
