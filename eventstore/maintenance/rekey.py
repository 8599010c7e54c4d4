"""Encrypt, re-encrypt, compress or decrypt stored events; and finish what operations of several transactions left.

The state of such an operation is a row of the store, written in the transaction that it describes. Each step reads it,
so it does not matter whether the operation was killed or still runs in another process, which then goes on from there.
What an operation finds unfinished on its conversation, it finishes first:

    erase     rows of an erased conversation are deleted
    import    rows that no reader sees yet (of an import or a copy) are discarded: run it again
    detach    copies of the past of a fork are discarded: the fork still shares it, and can be detached again
    rekey     goes on, with the settings that it was begun with
    backup    the file of a backup that was killed is removed

A rekey changes each conversation alone, while other processes read and write: first the key, so that new events are
encrypted, then the idempotency keys, then the rows. Until the end, the conversation's mark says which rows may still be
in the old form. Heads do not change. Projections make their records again. Before a row is changed, it is compared with
its place in the hash chain, and its new form with its former one: a row that would not read the same is never replaced.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from foldlog.eventstore.codec_json import size_of
from foldlog.eventstore.errors import (
    ConversationNotFound,
    CorruptEvent,
    KeyUnavailable,
    StoreUnusable,
)
from foldlog.eventstore.events import KeyChanged
from foldlog.eventstore.log.database import Database, encrypted, paged, start_after
from foldlog.eventstore.log.importing import (
    BACKUP,
    DETACH,
    IMPORT,
    REKEY,
    REST_S,
    delete_rows,
    discard_copies,
)
from foldlog.eventstore.log.ledger import enter
from foldlog.eventstore.log.past import head_after, links_of_own, past_under
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.seal import DAMAGED, Compression, Mark, RowCodec, mark_of
from foldlog.eventstore.log.writing import forget_records
from foldlog.eventstore.maintenance.new_file import PART, is_abandoned
from foldlog.eventstore.recorders.base import PATIENCE_S, Recorder, Transaction
from foldlog.eventstore.recorders.changes import Finished, Left, NewForm, NewKey, NewMark, RememberedKey
from foldlog.eventstore.recorders.errors import NOTHING_WRITTEN, RecorderError
from foldlog.eventstore.recorders.types import Conversation, RecalledKey, Row, Unfinished
from foldlog.eventstore.store import Store

_PAGE = 1_000
_ROWS_FIRST, _ROWS_MAX = 16, 200
_BYTES = 2 * 2**20
"""The approximate number of bytes that one transaction changes."""
_KEYS = 500

T = TypeVar("T")
Run = Callable[[Callable[[Transaction], T]], T]


class Rekeyed(NamedTuple):
    """The outcome for one conversation: whether its data key was encrypted again, how many rows were stored in another
    form, and which damaged rows were left as they are. ``problem``: why the conversation was not changed.
    ``bytes_pending``: whether bytes of an old form may still be in the file. The file is cleaned once, after the last
    conversation, so only the last result says this; in all others it is None. So with ``plain``, the names of what is
    derived from the store, lies outside of it, and holds its texts as plain text.
    """

    conversation: str
    key: bool
    rows: int
    damaged: tuple[int, ...]
    problem: str | None = None
    bytes_pending: bool | None = None
    plain: tuple[str, ...] = ()


def rekey(store: Store, *conversations: str, decrypt: bool = False) -> Iterator[Rekeyed]:
    """Store every conversation, or those named, with the settings of the open store: compressed, if a compression was
    chosen, and encrypted, if the store has a key. ``decrypt``: as plain text. Imports of these conversations that are
    not complete are discarded: a running one fails, and has to be run again.

    The last result says whether bytes of the old form may still be in the files (``bytes_pending``), as after an
    erasure; ``vacuum`` removes them. Raises ``ConversationNotFound``, and ``KeyUnavailable`` where a conversation is
    encrypted and its key is not given: then nothing is changed; ``StoreUnusable`` where the file cannot be read, for
    ``salvage``. Cost: reading all rows that may change, and writing the changed ones; memory for one transaction.
    """
    database = store.database
    for found in named_or_all(database, conversations):
        database.data_key(found)
    last: Rekeyed | None = None
    changed = 0
    for found in named_or_all(database, conversations):
        if found.erasure is None:
            if last is not None:
                yield last
            try:
                last = _rekeyed(database, found, decrypt)
            except RecorderError as error:
                if not changed or error.is_damage:
                    raise
                done = f"conversations in their new form: {changed}; {found.id!r} and those after it are not"
                raise unfinished(done, error) from error
            changed += last.key or last.rows > 0
    for each in database.recorder.query(lambda reader: reader.unfinished()):
        if each.operation == IMPORT and (not conversations or each.conversation in conversations):
            delete_rows(database.recorder, each.key)
    gone = purge(database.recorder, "all events are stored in their new form")
    if last is not None:
        yield last._replace(bytes_pending=not gone)


def named_or_all(database: Database, conversations: Sequence[str]) -> Iterator[Conversation]:
    """Yield these conversations, or all, as their rows say. Raises ``ConversationNotFound``. Cost: a page at a time."""
    if not conversations:

        def page(after: str | None) -> Sequence[Conversation]:
            return database.recorder.query(lambda reader: reader.conversations(start_after(after), _PAGE))

        yield from paged(page, attrgetter("id"), _PAGE)
    for name in conversations:
        found = database.recorder.query(lambda reader, name=name: reader.conversation(name))  # type: ignore[misc]
        if found is None:
            raise ConversationNotFound(name)
        yield found


def _rekeyed(database: Database, found: Conversation, decrypt: bool) -> Rekeyed:
    outcome = Rekeyed(found.id, False, 0, ())
    try:
        if database.settings.compression is None and _has_its_key(database, found, decrypt):
            return outcome  # of a chosen compression only the rows tell
        while True:
            has_new_key = on_finished(database, partial(begin, database=database, key=found.key, decrypt=decrypt))
            done = reform(database, found.key)
            key = outcome.key or has_new_key or done.key
            outcome = outcome._replace(key=key, rows=outcome.rows + done.rows, damaged=done.damaged)
            now = database.recorder.query(lambda reader: reader.conversation(found.key))
            # Another process may have given it another key since.
            if done.damaged or now is None or now.erasure is not None or _has_its_key(database, now, decrypt):
                return outcome
    except CorruptEvent as error:
        return outcome._replace(problem=str(error))


def _has_its_key(database: Database, found: Conversation, decrypt: bool) -> bool:
    """Return whether key and mark say that nothing has to change."""
    codec, keys = database.codec_of(found), database.settings.keys
    if decrypt or keys is None:
        return codec.data_key is None
    return codec.is_strict and found.key_id == keys.current


# -- one conversation --------------------------------------------------------------------------------------------------


class _State(msgspec.Struct, frozen=True):
    """How far the change is: up to the idempotency key ``key`` or, if that is None, up to the row ``next``. Rows are
    changed up to ``until``. ``sound``: none of them was damaged. ``encrypted``: the conversation had a key.
    """

    decrypt: bool
    compression: Compression | None
    until: int
    next: int
    key: str | None
    sound: bool = True
    encrypted: bool = False


class Reformed(NamedTuple):
    """How many rows were changed, which damaged ones stay as they are, and whether the key was removed; of one
    transaction also the bytes that it read, and the state that it left, None at the end.
    """

    rows: int = 0
    damaged: tuple[int, ...] = ()
    key: bool = False
    size: int = 0
    state: _State | None = None


def begin(transaction: Transaction, database: Database, key: int, *, decrypt: bool) -> bool:
    """Begin to store a conversation with the settings of this process; with ``decrypt``, as plain text. Return whether
    it got another key. Raises ``CorruptEvent`` if its mark does not fit, and ``KeyUnavailable``.
    """
    found = transaction.conversation(key)  # on a server, other writers wait from here on
    check_finished(transaction, key)
    if found is None or found.erasure is not None:
        return False
    codec = database.codec_of(found)
    keys, compression = database.settings.keys, database.settings.compression
    data_key, mark, changed = codec.data_key, codec.mark, False
    if keys is not None and not (decrypt and data_key is None):
        if data_key is None:
            found, data_key, mark = encrypted(found, keys)
            changed = True
        elif found.key_id != keys.current and not decrypt:
            found = found._replace(key_id=keys.current, sealed_key=keys.wrap(found.id, data_key.secret))
            changed = True
    if decrypt and data_key is not None:
        mark = mark._replace(pending_from=0, pending_until=found.version)
    if changed:
        transaction.change(found.key, NewKey(b"", found.key_id, found.sealed_key))
        if codec.data_key is None:
            forget_records(transaction, found.key)  # they are plain
        found = past_under(transaction, found, codec.data_key, data_key)
        enter(transaction, found, KeyChanged(key_id=found.key_id), database.now())
    if data_key is not None and mark != codec.mark:
        transaction.change(found.key, NewMark(mark_of(data_key, found, mark)))
    begins = found.begins  # what a fork shares belongs to its parent
    all_rows = decrypt or compression is not None
    first = begins if all_rows else max(mark.pending_from, begins)
    until = found.version if all_rows else max(mark.pending_until, begins)
    if first < until or mark.pending_until:
        start = "" if mark.pending_until else None
        _leave(transaction, key, _State(decrypt, compression, until, first, start, encrypted=data_key is not None))
    return changed and not decrypt


def reform(database: Database, key: int) -> Reformed:
    """Go on with the change of a conversation to its end. Where one of its rows is missing it ends with
    ``CorruptEvent``.
    """
    total, size = Reformed(), _ROWS_FIRST
    while True:
        step = partial(_step, database=database, key=key, size=size)
        try:
            done = database.recorder.transact(step)
        except CorruptEvent:
            database.recorder.transact(lambda transaction: transaction.change(key, Finished()))
            raise
        total = Reformed(total.rows + done.rows, total.damaged + done.damaged, total.key or done.key)
        if done.state is None:
            return total
        size = max(size // 2, 1) if done.size > _BYTES else min(2 * size, _ROWS_MAX)
        if done.rows:
            time.sleep(REST_S)


def _leave(transaction: Transaction, key: int, state: _State) -> None:
    transaction.change(key, Left(REKEY, msgspec.json.encode(state).decode()))


def _step(transaction: Transaction, database: Database, key: int, size: int) -> Reformed:
    found = transaction.conversation(key)
    left = [each.state for each in transaction.unfinished(key) if each.operation == REKEY]
    if found is None or not left:  # another process has ended it, or the conversation is erased
        return Reformed()
    done = _Change(transaction, database, found, msgspec.json.decode(left[0], type=_State)).step(size)
    if done.state is None:
        transaction.change(key, Finished())
    else:
        _leave(transaction, key, done.state)
    return done


class _Change:
    """The change of a conversation in one transaction."""

    def __init__(self, transaction: Transaction, database: Database, found: Conversation, state: _State) -> None:
        self._transaction, self._database, self._found = transaction, database, found
        self._codec = codec = database.codec_of(found)
        if codec.data_key is not None and not state.encrypted:  # an append gave it a key, so its rows change once more
            state = _State(state.decrypt, state.compression, found.version, found.begins, "", encrypted=True)
        self._state = state
        self._target = RowCodec(codec.conversation, None if state.decrypt else codec.data_key)
        self._salt = found.salt if codec.data_key is None else codec.data_key.salt
        self._links = links_of_own(found, codec.data_key)

    def step(self, size: int) -> Reformed:
        mark = self._codec.mark
        if self._state.decrypt:  # what is appended during the change becomes plain too
            self._set_mark(mark._replace(pending_until=max(mark.pending_until, self._found.version)))
        return self._rows(size) if self._state.key is None else self._keys(self._state.key)

    def _keys(self, start: str) -> Reformed:
        """Prove the next idempotency keys, or take their proofs away."""
        page = self._transaction.recalled(self._found.key, start, _KEYS)
        proved, mark = self._prove(page), self._codec.mark
        if not self._state.decrypt:
            self._set_mark(mark._replace(keys=mark.keys + proved))
        after = msgspec.structs.replace(self._state, key=start_after(page[-1][0]) if page else None)
        return Reformed(state=after)

    def _prove(self, page: Sequence[tuple[str, RecalledKey]]) -> int:
        """Give these idempotency keys the form of the target. Return how many had another one."""
        ReadTransaction(self._transaction, self._found, self._database, self._codec).check_proofs(page)
        other = [each for each in page if (each[1].proof is None) != (self._target.data_key is None)]
        for name, recalled in other:
            again = RememberedKey(name, self._target.proved(name, recalled), again=True)
            self._transaction.change(self._found.key, again)
        return len(other)

    def _rows(self, size: int) -> Reformed:
        found, state, mark = self._found, self._state, self._codec.mark
        until = found.version if state.decrypt else state.until  # what was appended since is encrypted
        start, stop = state.next, min(state.next + size, until)
        rows = self._transaction.rows(found.key, start, stop, stop - start) if start < stop else ()
        head = self._head_before(start)
        changed: list[tuple[Row, Row]] = []
        damaged: list[int] = []
        there = start
        for stored, plain in zip(rows, self._codec.decoded(rows), strict=True):
            if stored.id != there:
                break
            there += 1
            if plain.encoding == DAMAGED or not self._follows(head, plain):
                damaged.append(stored.id)
                head = None
                continue
            head = plain.head
            new = self._target.encoded_again(stored, plain, self._codec, state.compression)
            if new is not stored:
                changed.append((plain, new))
        if there < stop:
            raise CorruptEvent(found.id, there, "it is missing")
        self._replace(changed)
        sound, size = state.sound and not damaged, sum(size_of(row.body) for row in rows)
        if stop >= until:
            removed = sound and bool(mark.pending_until) and self._end()
            return Reformed(len(changed), tuple(damaged), removed)
        if sound and not state.decrypt and mark.pending_from < stop <= mark.pending_until:
            self._set_mark(mark._replace(pending_from=stop))
        after = msgspec.structs.replace(state, next=stop, sound=sound)
        return Reformed(len(changed), tuple(damaged), False, size, after)

    def _end(self) -> bool:
        """End the change: no row is in the old form any more. Return whether the key was removed."""
        transaction, found, codec = self._transaction, self._found, self._codec
        if not self._state.decrypt:
            self._set_mark(Mark(codec.mark.keys))
            return False
        assert codec.data_key is not None  # otherwise nothing was pending
        keys = partial(transaction.recalled, found.key, limit=_KEYS)  # also those of appends since
        self._prove([*paged(lambda after: keys(start_after(after)), itemgetter(0), _KEYS)])
        past_under(transaction, found, codec.data_key, None)
        transaction.change(found.key, NewKey(codec.data_key.salt, None, None))
        transaction.change(found.key, NewMark(None))
        forget_records(transaction, found.key)  # they are encrypted
        enter(transaction, found._replace(key_id=None), KeyChanged(), self._database.now())
        return True

    def _set_mark(self, mark: Mark) -> None:
        if self._codec.data_key is not None and mark != self._codec.mark:
            self._transaction.change(self._found.key, NewMark(mark_of(self._codec.data_key, self._found, mark)))

    def _head_before(self, start: int) -> bytes | None:
        """Return the head before a row; None where it is unknown, as after a damaged row: then the next is trusted."""
        if start == 0:
            return b""  # event 0 needs none
        reading = ReadTransaction(self._transaction, self._found, self._database, self._codec)
        rows = reading.rows(start - 1, start, 1)
        return rows[0].head if rows and rows[0].encoding != DAMAGED else None

    def _follows(self, head: bytes | None, row: Row) -> bool:
        if head is None or not self._salt:
            return True
        return head_after(self._found.id, self._salt, self._links, head, row) == row.head

    def _replace(self, changed: Sequence[tuple[Row, Row]]) -> None:
        """Write rows in their new form. Raises ``StoreUnusable`` unless they read as before."""
        back = self._target.decoded([new for _, new in changed])
        if any(
            one._replace(checksum=0) != plain._replace(checksum=0)
            for one, (plain, _) in zip(back, changed, strict=True)
        ):
            first, last = changed[0][0].id, changed[-1][0].id
            raise StoreUnusable(
                f"conversation {self._found.id!r}: events {first} to {last} would read otherwise in their new form, so "
                f"they were not changed; run 'foldlog verify', and report this"
            )
        if changed:
            self._transaction.change(self._found.key, NewForm([new for _, new in changed]))


# -- what is not complete ----------------------------------------------------------------------------------------------


class Met(Exception):
    """A transaction has met an operation that is not complete. No caller of the store gets this error."""

    def __init__(self, unfinished: Unfinished) -> None:
        super().__init__(unfinished)
        self.unfinished = unfinished


def check_finished(transaction: Transaction, key: int) -> None:
    """Raise ``Met`` where an operation on the conversation with this key is not complete."""
    for each in transaction.unfinished(key):
        raise Met(each)


def on_finished(database: Database, work: Callable[[Transaction], T], run: Run[T] | None = None) -> T:
    """Run ``work`` in a write transaction, by ``run`` if that is given. Each operation that it meets
    (``check_finished``) is finished first, then it is run again.
    """
    while True:
        try:
            return (run or database.recorder.transact)(work)
        except Met as met:
            finish(database, met.unfinished)


def finish(database: Database, left: Unfinished) -> None:
    """Finish an operation. Raises ``KeyUnavailable`` where its key is not given. Cost: what is left of it."""
    key, name, operation, state = left
    if operation == REKEY:
        try:
            reform(database, key)
        except KeyUnavailable as error:
            raise KeyUnavailable(f"a 'foldlog rekey' of conversation {name!r} is not complete: {error}") from error
    elif operation == DETACH:
        discard_copies(database.recorder, key)
    elif operation == BACKUP:
        if os.path.exists(state) and not (state.endswith(PART) and is_abandoned(state)):
            return  # it still runs
        Path(state).unlink(missing_ok=True)
        database.recorder.transact(lambda transaction: transaction.change(key, Finished()))
    else:
        delete_rows(database.recorder, key)


def purge(recorder: Recorder, what_is_done: str) -> bool:
    """Remove the bytes of deleted and replaced rows, on PostgreSQL. Return whether none is pending; in a SQLite file,
    ``vacuum`` removes them.

    The call waits for open transactions for a minute, then raises ``StoreUnavailable``, as it does where the disk
    refuses. The error is ``unfinished``.
    """
    try:
        return recorder.compact(PATIENCE_S) if recorder.on_server else recorder.value("bytes_pending") == ""
    except RecorderError as error:
        raise unfinished(f"{what_is_done}, but the deleted bytes are still in the files", error) from error


def unfinished(done: str, error: RecorderError) -> RecorderError:
    """Return the error for work that the disk or the server ended after a part of it was done."""
    cause = str(error).removesuffix(NOTHING_WRITTEN)
    error.args = (f"{done} ({cause}); run the same command again to finish it",)
    error.unfinished = True
    return error
