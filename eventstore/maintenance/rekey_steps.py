"""The steps of a rekey: how one conversation gets its new form while other processes read and
write.

First its idempotency keys change, then its rows. Until the end, the conversation's mark says which
rows may still be in the old form. Heads do not change. Before a row is changed, it is compared with
its place in the hash chain, and its new form with its former one: a row that would not read the
same is never replaced.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import NamedTuple

import msgspec

from foldlog.eventstore.codec_json import size_of
from foldlog.eventstore.errors import CorruptEvent, StoreDamaged
from foldlog.eventstore.events import KeyChanged
from foldlog.eventstore.log.database import Database, paged, start_after
from foldlog.eventstore.log.importing import REKEY, REST_S
from foldlog.eventstore.log.ledger import enter
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.row import dense_rows, first_head, link_of
from foldlog.eventstore.log.seal import DAMAGED, Compression, Mark, RowCodec, mark_of
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.types import Conversation, RecalledKey, Row
from foldlog.eventstore.sources.moving import seal_again

_ROWS_FIRST = 16
_ROWS_MAX = 200
_BYTES = 2 * 2**20
"""The approximate number of bytes that one transaction changes."""
_KEYS = 500


class RekeyState(msgspec.Struct, frozen=True):
    """How far the change is: up to the idempotency key ``key`` or, if that is None, up to the row
    ``next``. Rows are changed up to ``until``. ``sound``: none of them was damaged. ``encrypted``:
    the conversation had a key.
    """

    decrypt: bool
    compression: Compression | None
    until: int
    next: int
    key: str | None
    sound: bool = True
    encrypted: bool = False


class Reformed(NamedTuple):
    """How many rows were changed, which damaged ones stay as they are, and whether the key was
    removed; of one transaction also the bytes that it read, and the state that it left, None at the
    end.
    """

    rows: int = 0
    damaged: tuple[int, ...] = ()
    key: bool = False
    size: int = 0
    state: RekeyState | None = None


def leave(transaction: Transaction, key: int, state: RekeyState) -> None:
    transaction.leave_unfinished(key, REKEY, msgspec.json.encode(state).decode())


def reform(database: Database, key: int) -> Reformed:
    """Go on with the change of a conversation to its end. Where one of its rows is missing it ends
    with ``CorruptEvent``.
    """
    total = Reformed()
    size = _ROWS_FIRST
    while True:
        step = partial(_step, database=database, key=key, size=size)
        try:
            done = database.recorder.transact(step)
        except CorruptEvent:
            database.recorder.transact(lambda transaction: transaction.finish(key))
            raise
        total = Reformed(
            total.rows + done.rows, total.damaged + done.damaged, total.key or done.key
        )
        if done.state is None:
            return total
        if done.size > _BYTES:
            size = max(size // 2, 1)
        else:
            size = min(2 * size, _ROWS_MAX)
        if done.rows:
            time.sleep(REST_S)


def _step(transaction: Transaction, database: Database, key: int, size: int) -> Reformed:
    found = transaction.conversation(key)
    left = [each.state for each in transaction.unfinished(key) if each.operation == REKEY]
    if found is None or not left:  # another process has ended it, or the conversation is erased
        return Reformed()
    done = _Change(
        transaction, database, found, msgspec.json.decode(left[0], type=RekeyState)
    ).step(size)
    if done.state is None:
        transaction.finish(key)
    else:
        leave(transaction, key, done.state)
    return done


class _Change:
    """The change of a conversation in one transaction."""

    def __init__(
        self, transaction: Transaction, database: Database, found: Conversation, state: RekeyState
    ) -> None:
        self._transaction = transaction
        self._database = database
        self._found = found
        self._codec = codec = database.codec_of(found)
        # an append gave it a key, so its rows change once more
        if codec.data_key is not None and not state.encrypted:
            state = RekeyState(
                state.decrypt, state.compression, found.version, found.begins, "", encrypted=True
            )
        self._state = state
        self._target = RowCodec(codec.conversation, None if state.decrypt else codec.data_key)
        if codec.data_key is None:
            self._salt = found.salt
        else:
            self._salt = codec.data_key.salt

    def step(self, size: int) -> Reformed:
        mark = self._codec.mark
        if self._state.decrypt:  # what is appended during the change becomes plain too
            self._set_mark(
                mark._replace(pending_until=max(mark.pending_until, self._found.version))
            )
        if self._state.key is None:
            return self._rows(size)
        return self._keys(self._state.key)

    def _keys(self, start: str) -> Reformed:
        """Prove the next idempotency keys, or take their proofs away."""
        page = self._transaction.recalled(self._found.key, start, _KEYS)
        proved = self._prove(page)
        mark = self._codec.mark
        if not self._state.decrypt:
            self._set_mark(mark._replace(keys=mark.keys + proved))
        after = msgspec.structs.replace(self._state, key=start_after(page[-1][0]) if page else None)
        return Reformed(state=after)

    def _prove(self, page: Sequence[tuple[str, RecalledKey]]) -> int:
        """Give these idempotency keys the form of the target. Return how many had another one."""
        ReadTransaction(self._transaction, self._found, self._database, self._codec).check_proofs(
            page
        )
        other = [
            each for each in page if (each[1].proof is None) != (self._target.data_key is None)
        ]
        for name, recalled in other:
            self._transaction.prove(
                self._found.key, name, self._target.proved(name, recalled).proof
            )
        return len(other)

    def _rows(self, size: int) -> Reformed:
        found = self._found
        state = self._state
        mark = self._codec.mark
        # what was appended since is encrypted
        until = found.version if state.decrypt else state.until
        start = state.next
        stop = min(state.next + size, until)
        if start < stop:
            rows = self._transaction.rows(found.key, start, stop, stop - start)
        else:
            rows = ()
        head = self._head_before(start)
        changed: list[tuple[Row, Row]] = []
        damaged: list[int] = []
        for stored, plain in zip(
            dense_rows(found.id, rows, start, stop), self._codec.decoded(rows), strict=True
        ):
            if plain.encoding == DAMAGED or not self._follows(head, plain):
                damaged.append(stored.id)
                head = None
                continue
            head = plain.head
            new = self._target.encoded_again(stored, plain, state.compression)
            if new is not stored:
                changed.append((plain, new))
        self._replace(changed)
        sound = state.sound and not damaged
        size = sum(size_of(row.body) for row in rows)
        if stop >= until:
            seal_again(self._transaction, self._database, found.key, self._target.data_key)
            removed = sound and bool(mark.pending_until) and self._end()
            return Reformed(len(changed), tuple(damaged), removed)
        if sound and not state.decrypt and mark.pending_from < stop <= mark.pending_until:
            self._set_mark(mark._replace(pending_from=stop))
        after = msgspec.structs.replace(state, next=stop, sound=sound)
        return Reformed(len(changed), tuple(damaged), False, size, after)

    def _end(self) -> bool:
        """End the change: no row is in the old form any more. Return whether the key was
        removed.
        """
        transaction = self._transaction
        found = self._found
        codec = self._codec
        if not self._state.decrypt:
            self._set_mark(Mark(codec.mark.keys))
            return False
        assert codec.data_key is not None  # otherwise nothing was pending
        keys = partial(transaction.recalled, found.key, limit=_KEYS)  # also those of appends since
        self._prove([*paged(lambda after: keys(start_after(after)), itemgetter(0), _KEYS)])
        transaction.set_key(found.key, codec.data_key.salt, None, None)
        transaction.set_mark(found.key, None)
        WriteTransaction(transaction, found, self._database, codec).forget_records(self._target)
        enter(transaction, found._replace(key_id=None), KeyChanged(), self._database.now())
        return True

    def _set_mark(self, mark: Mark) -> None:
        if self._codec.data_key is not None and mark != self._codec.mark:
            self._transaction.set_mark(
                self._found.key, mark_of(self._codec.data_key, self._found, mark)
            )

    def _head_before(self, start: int) -> bytes | None:
        """Return the head before a row; None where it is unknown, as after a damaged row: then the
        next is trusted.
        """
        if start == 0:
            return first_head(self._found, self._salt)
        reading = ReadTransaction(self._transaction, self._found, self._database, self._codec)
        rows = reading.rows(start - 1, start, 1)
        return rows[0].head if rows and rows[0].encoding != DAMAGED else None

    def _follows(self, head: bytes | None, row: Row) -> bool:
        if head is None or not self._salt:
            return True
        return link_of(head, self._salt, row) == row.head

    def _replace(self, changed: Sequence[tuple[Row, Row]]) -> None:
        """Write rows in their new form. Raises ``StoreDamaged`` unless they read as before."""
        back = self._target.decoded([new for _, new in changed])
        if any(
            (one.columns, one.body) != (plain.columns, plain.body)
            for one, (plain, _) in zip(back, changed, strict=True)
        ):
            first = changed[0][0].id
            last = changed[-1][0].id
            raise StoreDamaged(
                f"conversation {self._found.id!r}: events {first} to {last} would read otherwise in"
                " their new form, so they were not changed; run 'foldlog store verify', and report"
                " this"
            )
        if changed:
            self._transaction.replace_rows(self._found.key, [new for _, new in changed])
