"""Erase a conversation for good: from every reader at once, then from the tables, then from the
files.

A tombstone stays: when, why, how many events, and the last head. Without the salt, the head reveals
nothing of the events. Followers read the erasure as an entry, an ``Erased`` with a position of its
own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from foldlog.eventstore.arguments import check_reason, check_text
from foldlog.eventstore.errors import (
    ConversationErased,
    ConversationHasForks,
    ConversationNotFound,
    VersionConflict,
)
from foldlog.eventstore.events import VIEWS
from foldlog.eventstore.log import origins
from foldlog.eventstore.log.database import Database, behind
from foldlog.eventstore.log.finding import living_forks
from foldlog.eventstore.log.importing import DETACH, ERASE, REST_S
from foldlog.eventstore.log.ledger import enter_erasure
from foldlog.eventstore.log.results import ConversationRow, listed
from foldlog.eventstore.log.row import dense_rows, sound
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.maintenance.unfinished import Met, finish, on_finished, purge, unfinished
from foldlog.eventstore.recorders.base import DISCARDED, Reader, Transaction
from foldlog.eventstore.recorders.errors import FAILURES
from foldlog.eventstore.recorders.types import Conversation, Erasure, Unfinished
from foldlog.eventstore.sources.moving import leave_alone
from foldlog.eventstore.store import Store

_CHUNK = 1_000
_DONE = "conversation {!r} is erased for every reader"


def erase(
    store: Store,
    conversation: str,
    *,
    reason: str,
    complete: bool = True,
    with_forks: bool = False,
    detach_forks: bool = False,
    expected: ConversationRow | None = None,
) -> ConversationRow:
    """Erase ``conversation``: no reader sees it from then on. Return its tombstone. Call it again
    to finish an interrupted erasure. It works in small transactions, so other writers wait only
    briefly.

    The tombstone says whether bytes of its events may still be in the files (``bytes_pending``). In
    a SQLite file they are until ``vacuum`` has rewritten it. On PostgreSQL the call vacuums the
    tables, unless ``complete`` is False; as a role that may not, it leaves that to autovacuum or to
    a call as their owner. Where a transaction that began before may still read the rows, it waits
    for a minute, then raises ``StoreUnavailable``, and has to be run again.

    Forks read events of the conversation that they were forked from: ``with_forks`` erases them
    first, with their own forks, but none that another process has detached by then;
    ``detach_forks`` first gives each fork a copy of these events, and the tombstone says which
    events the forks keep. Until the conversation is erased, a redaction of it reaches its forks
    too. With ``expected``, the conversation's row as the caller read it, nothing is erased if the
    last event has changed since.

    Raises ``ConversationNotFound``; ``ConversationHasForks`` if it has forks that are not erased
    with it; and ``VersionConflict`` if its last event is not that of ``expected``: read again,
    decide again. Cost: its events; on PostgreSQL, a look at every page of the tables that is not
    all visible.
    """
    check_text("conversation", conversation)
    reason = check_reason(reason, "tombstone")
    if not isinstance(expected, ConversationRow | None):
        raise TypeError(
            f"expected is a ConversationRow, as store.conversation() returns it, not {expected!r}"
        )
    database = store.database
    recorder = store.database.recorder
    mark = partial(
        _mark,
        database=database,
        at=database.now(),
        expected=expected,
        reason=reason,
        detach_forks=detach_forks,
    )
    doomed: list[tuple[str | int, int | None]] = [(conversation, None)]
    gone = 0
    while True:
        key, parent = doomed.pop()
        try:
            found, forks = recorder.transact(partial(mark, key=key, parent=parent))
        except FAILURES as error:
            if not gone:
                raise
            told = f"conversation {conversation!r} is not erased; of its forks are erased: {gone}"
            raise unfinished(told, error) from error
        # another conversation may have its id by then
        doomed += [(found.key, parent)] if forks else []
        if forks and with_forks:
            doomed += [(fork.key, found.key) for fork in forks]
        elif forks and detach_forks:
            for fork in forks:
                _copy_past(database, conversation, fork)
        elif forks:
            raise ConversationHasForks(conversation, tuple(fork.id for fork in forks))
        elif found.erasure is not None:  # else another process has detached it
            gone += 1
            _delete_rows(database, found.id)
        if not doomed:
            break
    if complete:
        purge(recorder, _DONE.format(conversation))
    unconfirmed, is_pending = recorder.query(partial(_what_remains, key=found.key))
    return listed(found, bytes_pending=is_pending, unconfirmed=unconfirmed)


def _unfinished_beside(reader: Reader, conversation: str) -> Sequence[Unfinished]:
    """Return what is unfinished in the store of a conversation."""
    reader.conversation(conversation)
    return reader.unfinished()


def _delete_rows(database: Database, conversation: str) -> None:
    """Complete erasures, and what else is unfinished on this conversation."""
    try:
        for each in database.recorder.query(partial(_unfinished_beside, conversation=conversation)):
            if each.operation == ERASE or each.conversation == conversation:
                finish(database, each)
    except FAILURES as error:
        raise unfinished(
            f"{_DONE.format(conversation)}, but not all of its rows are deleted", error
        ) from error


def _mark(
    transaction: Transaction,
    database: Database,
    key: str | int,
    parent: int | None,
    reason: str,
    at: int,
    expected: ConversationRow | None,
    *,
    detach_forks: bool,
) -> tuple[Conversation, Sequence[Conversation]]:
    """Make a conversation, by id or key, a tombstone, if it is one of ``parent`` and no fork needs
    its events. Return it, and the forks that do. With ``detach_forks``, these are the ones without
    a copy of the events; the others leave the conversation in this transaction. So there is no
    moment at which a redaction of it misses a fork.
    """
    found = transaction.conversation(key)
    if found is None:
        raise ConversationNotFound(str(key))
    if parent is None and expected is not None and (found.head or b"").hex() != expected.head:
        raise VersionConflict(found.id, expected.version, found.version)
    if found.erasure is not None or parent not in (None, found.parent):
        return found, ()
    forks = living_forks(transaction, found.key)
    if waiting := [fork for fork in forks if not (detach_forks and _is_copied(transaction, fork))]:
        return found, waiting
    parts = [_detach(transaction, database, fork.key) for fork in forks]
    if parts:
        reason = f"{reason}; forks kept a part then: {', '.join(parts)}"
    leave_alone(transaction, database, found.key)
    erasure = Erasure(max(at, found.updated_at or at), reason, found.version, found.head or b"")
    transaction.leave_unfinished(found.key, ERASE)
    return enter_erasure(transaction, found, erasure), ()


def _what_remains(reader: Reader, key: int) -> tuple[Sequence[str], bool]:
    """Return the read models that have not come to the erasure of the conversation with this key,
    and whether bytes of deleted rows may still be in its store.
    """
    found = reader.conversation(key)
    if found is None or found.erasure is None:
        position = None
    else:
        position = found.erasure.position
    is_pending = reader.value("bytes_pending") != ""
    return () if position is None else behind(reader, position), is_pending


# -- forks that go on alone
# -------------------------------------------------------------------------------------------


def _copy_past(database: Database, conversation: str, fork: Conversation) -> None:
    """Give a fork of a conversation a copy of the events that it shares, under its own key, in
    small transactions.

    No reader sees the copies until the fork leaves its parent. If this is stopped, it goes on when
    it is run again; another operation that meets it discards the copies. Raises ``CorruptEvent``
    where a shared event is damaged. Cost: the shared events.
    """
    with suppress(ConversationErased):  # another process has erased the fork since
        origins.index_fork(database, conversation, fork.id)
    while on_finished(database, partial(_copy_on, database=database, fork=fork.key)):
        time.sleep(REST_S)


def _copy_on(transaction: Transaction, database: Database, fork: str | int) -> bool:
    """Copy the next events. Return whether there are more."""
    found = database.find_key(transaction, fork)
    if found is None or found.erasure is not None or found.parent is None:
        return False
    left = transaction.unfinished(found.key)
    if left and (left[0].operation != DETACH or left[0].state == DISCARDED):
        raise Met(left[0])
    start = int(left[0].state) if left else 0
    stop = min(start + _CHUNK, found.begins)
    writing = WriteTransaction(transaction, found, database)
    rows = dense_rows(found.id, writing.rows(start, stop, stop - start), start, stop)
    writing.insert_past([sound(found.id, row) for row in rows])
    transaction.leave_unfinished(found.key, DETACH, str(stop))
    writing.end()
    return stop < found.begins


def _is_copied(transaction: Transaction, fork: Conversation) -> bool:
    """Return whether a fork has a copy of all events that it shares, and no other operation on it
    is unfinished. No other transaction changes that until this one ends.
    """
    now = transaction.conversation(fork.key)  # locks it, on a server
    state = {each.operation: each.state for each in transaction.unfinished(fork.key)}
    return now is not None and now.parent == fork.parent and state == {DETACH: str(fork.begins)}


def _detach(transaction: Transaction, database: Database, fork: int) -> str:
    """Let a fork that has a copy leave its parent. Its events keep their ids and heads, and the
    copies get positions: a follower reads them as events of the fork. Return what the tombstone of
    the parent says of it. Cost: its revisions.
    """
    found = database.find_key(transaction, fork)
    assert found is not None
    begins = found.begins
    writing = WriteTransaction(transaction, found, database)
    writing.forget_records()
    # also those of the parent, on which its own build
    writing.put_records(VIEWS, list(writing.records(VIEWS)))
    borders = writing.origins()
    writing.leave_parent()
    transaction.finish(fork)
    writing.enter_origins(borders)
    writing.end()
    return f"{found.id!r} events 0 to {begins - 1}"
