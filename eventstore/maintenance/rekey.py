"""Bringing what is stored to the store's present compression and key, while others read and write.

Each conversation is brought over by itself, in small transactions: first its key, so that what is appended from then on
is sealed, then its rows. What the heads are of does not change. It can be stopped and run again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from eventstore.errors import ConversationNotFound
from eventstore.maintenance.damage import Unreadable, readable_conversations, readable_rows
from eventstore.maintenance.erase import purge
from eventstore.recorders.base import Conversation, Record, Row, Transaction
from eventstore.stored.guard import Guard
from eventstore.stored.keys import KeyRing
from eventstore.stored.row_codec import DAMAGED, PLAIN, DataKey
from eventstore.stored.vault import Known

__all__ = ["Resealed", "reseal"]

_CHUNK = 200
_REST_S = 0.005
_EVER = 2**62
"""Later than any moment, in microseconds since 1970."""


class Resealed(NamedTuple):
    """What was done for one conversation: whether its key was wrapped anew, how many rows were stored in another form,
    and which could not be, because they are damaged.
    """

    conversation: str
    key: bool
    rows: int
    damaged: tuple[int, ...]


def reseal(guard: Guard, conversation: str | None = None, *, patience_s: float = 60.0) -> Iterator[Resealed]:
    """Bring every conversation, or the one named, over to what the store is opened with.

    When it ends, what was stored before is gone from the files, as in an erasure. Raises ``ConversationNotFound``,
    ``KeyUnavailable``. Cost: reading all, and writing what changes; memory for one page.
    """
    for found in _wanted(guard, conversation):
        if found.erasure is None:
            yield _resealed(guard, found)
    for key in _staged(guard, conversation):
        with guard.unguarded.read() as reader:
            staged = reader.conversation_of(key)
        if staged is not None:
            _resealed(guard, staged)
    purge(guard.unguarded, patience_s, "everything is stored as it should be")


def _wanted(guard: Guard, conversation: str | None) -> Iterator[Conversation]:
    if conversation is None:
        for each in readable_conversations(guard.unguarded):
            if isinstance(each, Conversation):
                yield each
        return
    with guard.unguarded.read() as reader:
        found = reader.conversation(conversation)
    if found is None:
        raise ConversationNotFound(conversation)
    yield found


def _staged(guard: Guard, conversation: str | None) -> Sequence[int]:
    """Imports that are going on, or were killed: nobody sees them, but for those who have the file."""
    recorder = guard.unguarded
    if conversation is not None:
        with recorder.read() as reader:
            return reader.staged(conversation)
    return recorder.left_in_staging(_EVER)


def _resealed(guard: Guard, found: Conversation) -> Resealed:
    keys = guard.vault.sealing.keys
    changed = False
    if keys is not None:
        newest, changed = guard.unguarded.transact(partial(_with_key, key=found.key, keys=keys))
        if newest is None:
            return Resealed(found.id, False, 0, ())
        found = newest
    known = guard.vault.known(found)
    rows, damaged = 0, []
    for part in readable_rows(guard.unguarded, found.key, 0, found.version, _CHUNK):
        if isinstance(part, Unreadable):
            damaged.append(part.id)
            continue
        opened = guard.vault.opened(known, part)
        damaged += [row.id for row in opened if row.encoding == DAMAGED]
        other = _in_another_form(guard, known, part, opened)
        if other:
            if not guard.unguarded.transact(partial(_replace, known=known, rows=other)):
                return _resealed_with_other_key(guard, found.key, Resealed(found.id, changed, rows, ()))
            rows += len(other)
            time.sleep(_REST_S)
    if known.data_key is not None and not guard.unguarded.transact(partial(_seal_records, guard=guard, known=known)):
        return _resealed_with_other_key(guard, found.key, Resealed(found.id, changed, rows, ()))
    return Resealed(found.id, changed, rows, tuple(damaged))


def _resealed_with_other_key(guard: Guard, key: int, done: Resealed) -> Resealed:
    """Start the conversation again: another process gave it another key, or erased it, after it was read."""
    with guard.unguarded.read() as reader:
        found = reader.conversation_of(key)
    if found is None or found.erasure is not None:
        return done
    again = _resealed(guard, found)
    return again._replace(key=done.key or again.key, rows=done.rows + again.rows)


def _with_key(transaction: Transaction, key: int, keys: KeyRing) -> tuple[Conversation | None, bool]:
    """The conversation with its data key under the present wrapping key, and whether that had to be made. None where it
    was staged, and was discarded meanwhile.
    """
    found = transaction.conversation_of(key)
    if found is None or found.erasure is not None or found.key_id == keys.current:
        return found, False
    if found.sealed_key is None:
        secret = DataKey.new_secret(found.salt)
    else:
        secret = keys.open(found.id, found.key_id or "", found.sealed_key)
    sealed = keys.seal(found.id, secret)
    transaction.set_key(key, b"", keys.current, sealed, replaces=found.sealed_key)
    return found._replace(salt=b"", key_id=keys.current, sealed_key=sealed), True


def _in_another_form(guard: Guard, known: Known, stored: Sequence[Row], opened: Sequence[Row]) -> list[Row]:
    sound = [(old, row) for old, row in zip(stored, opened, strict=True) if row.encoding == PLAIN]
    wanted = guard.vault.closed(known, [row for _, row in sound])
    return [new for (old, _), new in zip(sound, wanted, strict=True) if new.encoding != old.encoding]


def _has_key(transaction: Transaction, known: Known) -> bool:
    """Lock the conversation. Return whether it still has the key that was read: rows that were made with another key
    could never be read.
    """
    found = transaction.conversation_of(known.key)
    return found is not None and found.erasure is None and found.sealed_key == known.sealed_key


def _replace(transaction: Transaction, known: Known, rows: Sequence[Row]) -> bool:
    """Return False, and store nothing, where the conversation does not have the key that the rows are made with."""
    if not _has_key(transaction, known):
        return False
    transaction.replace(known.key, rows)
    return True


def _seal_records(transaction: Transaction, guard: Guard, known: Known) -> bool:
    if not _has_key(transaction, known):
        return False
    for projection in transaction.projections(known.key):
        after = -1
        while page := transaction.records(projection, known.key, after, _CHUNK):
            plain = [record for record in page if record.encoding == PLAIN]
            opened = [guard.vault.opened_record(known, projection, record) for record in plain]
            sealed: list[Record] = [
                guard.vault.closed_record(known, projection, record) for record in opened if record is not None
            ]
            transaction.put_records(projection, known.key, sealed)
            after = page[-1].version
    return True
