"""Erase a conversation permanently: hide it from every reader, delete its rows, then remove its
bytes from the files.

A tombstone of the conversation stays. The tombstone contains the time and the reason of the
erasure, the number of events, and the last head. The salt is deleted, so the head reveals nothing
about the events. The ledger gets an ``Erased`` entry with its own position, so followers see the
erasure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from foldlog.eventstore.arguments import YEAR_10000, check_reason, check_text
from foldlog.eventstore.errors import (
    ConversationErased,
    ConversationHasForks,
    ConversationNotFound,
    VersionConflict,
)
from foldlog.eventstore.events import VIEWS
from foldlog.eventstore.log import origins
from foldlog.eventstore.log.database import Database, behind
from foldlog.eventstore.log.importing import ARCHIVE, DETACH, ERASE, REST_S
from foldlog.eventstore.log.ledger import enter_erasure
from foldlog.eventstore.log.results import ConversationRow, row_of
from foldlog.eventstore.log.row import dense_rows, sound
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.maintenance.archive_objects import address_of_object, bytes_remain, remind
from foldlog.eventstore.maintenance.redact import enter_copied_redactions, redacted_bodies
from foldlog.eventstore.maintenance.unfinished import (
    OperationUnfinished,
    finish,
    mark_unfinished,
    on_finished,
    purge,
)
from foldlog.eventstore.recorders.base import DISCARDED, Reader, Transaction
from foldlog.eventstore.recorders.errors import FAILURES
from foldlog.eventstore.recorders.types import Conversation, Erasure, Unfinished
from foldlog.eventstore.sources.moving import detach_source_forks
from foldlog.eventstore.sources.tables import SourcesToWrite
from foldlog.eventstore.store import Store

_CHUNK = 1_000
_DONE = "conversation {!r} is erased for every reader"

_Mark: TypeAlias = Callable[..., tuple[Conversation, Sequence[Conversation]]]
"""``_mark`` with the arguments of an erasure."""


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
    """Erase ``conversation``, so that no reader sees it any more. To finish an interrupted erasure,
    call ``erase`` again. An erasure works in small transactions, so other writers wait only
    briefly.

    A fork does not store the events that it shares with its parent. To redact a shared event in all
    forks, redact the event before the erasure.

    Args:
        store: The store.
        conversation: The id of the conversation.
        reason: Why the conversation is erased. The tombstone keeps the reason.
        complete: On PostgreSQL, vacuum the tables once. The bytes stay pending if the role may not
            vacuum, or if a transaction that began before the erasure is still open after a second.
            ``vacuum`` or a later erasure then removes them, and proves it.
        with_forks: First erase the forks, and the forks of the forks. A fork that another process
            detaches first is not erased.
        detach_forks: First give each fork a copy of the shared events, unless ``with_forks`` erases
            it. The tombstone names the events that the forks keep.
        expected: The conversation's row as the caller read it. If the last event has changed since,
            nothing is erased. With ``with_forks``, one transaction then hides all of them.

    Returns:
        The tombstone. Its ``bytes_pending`` says whether bytes of the events may still be in the
        files. In a SQLite file, they stay until ``vacuum`` has rewritten the file.

    Raises:
        ConversationNotFound: The store has no such conversation.
        ConversationHasForks: It has forks, and neither ``with_forks`` nor ``detach_forks`` is true.
        VersionConflict: The last event differs from ``expected``. Read the conversation again
            before you decide to erase it.

    Cost: deleting the conversation's events. On PostgreSQL, the vacuum also reads all table pages
    that are not marked all-visible.
    """
    check_text("conversation", conversation)
    reason = check_reason(reason, "tombstone")
    if not isinstance(expected, ConversationRow | None):
        raise TypeError(
            f"expected must be a ConversationRow, as store.conversation() returns it, not"
            f" {expected!r}"
        )
    database = store.database
    recorder = store.database.recorder
    mark = partial(
        _mark,
        database=database,
        erased_at=database.now(),
        expected=expected,
        reason=reason,
        detach_forks=detach_forks and not with_forks,
    )
    first: str | int = conversation
    if with_forks and expected is not None:
        first = _erase_together(database, mark, conversation)
    state = _erase_each(
        database, mark, first, conversation, with_forks=with_forks, detach_forks=detach_forks
    )
    if complete:
        purge(recorder, _DONE.format(conversation))
    unconfirmed, is_pending = recorder.query(partial(_what_remains, key=state.key))
    return row_of(state, bytes_pending=is_pending, unconfirmed=unconfirmed)


def _unfinished_beside(reader: Reader, conversation: str) -> Sequence[Unfinished]:
    """Return the unfinished operations of the store that has a conversation."""
    reader.conversation(conversation)  # joined stores then read only the store that has it
    return reader.unfinished()


def _delete_rows(database: Database, conversation: str) -> None:
    """Delete the rows of an erased conversation, and complete the other erasures of its store."""
    try:
        operations = database.recorder.query(partial(_unfinished_beside, conversation=conversation))
        for operation in operations:
            if operation.operation == ERASE or operation.conversation == conversation:
                finish(database, operation)
    except FAILURES as error:
        raise mark_unfinished(
            f"{_DONE.format(conversation)}, but not all of its rows are deleted", error
        ) from error


def _erase_each(
    database: Database,
    mark: _Mark,
    first: str | int,
    conversation: str,
    *,
    with_forks: bool,
    detach_forks: bool,
) -> Conversation:
    """Erase ``conversation``, whose id or key is ``first``, after its forks are erased or detached.
    Return its tombstone.
    """
    doomed: list[tuple[str | int, int | None]] = [(first, None)]
    erased_count = 0
    while True:
        key, parent = doomed.pop()
        try:
            state, forks = database.recorder.transact(partial(mark, key=key, parent=parent))
        except FAILURES as error:
            if not erased_count:
                raise
            problem = (
                f"conversation {conversation!r} is not erased yet; erased forks: {erased_count}"
            )
            raise mark_unfinished(problem, error) from error
        if not forks:
            if state.erasure is not None:  # otherwise another process has detached this fork
                erased_count += 1
                _delete_rows(database, state.id)
        else:
            # Use the key from now on, because another conversation may have the id when the loop
            # returns to it.
            doomed.append((state.key, parent))
            if with_forks:
                doomed += [(fork.key, state.key) for fork in forks]
            elif detach_forks:
                for fork in forks:
                    _copy_past(database, conversation, fork)
            else:
                raise ConversationHasForks(conversation, tuple(fork.id for fork in forks))
        if not doomed:
            return state


def _erase_together(database: Database, mark: _Mark, conversation: str) -> int:
    """Hide a conversation and its forks in one transaction, and delete the rows of the forks.
    Return the key of the conversation, because another conversation may have the id then.
    """
    *forks, state = database.recorder.transact(
        partial(_mark_all, mark=mark, conversation=conversation)
    )
    for fork in forks:
        _delete_rows(database, fork.id)
    return state.key


def _mark_all(transaction: Transaction, mark: _Mark, conversation: str) -> list[Conversation]:
    """Turn a conversation and its forks into tombstones by ``_mark``. Return them, the conversation
    last.
    """
    marked = list[Conversation]()
    doomed: list[tuple[str | int, int | None]] = [(conversation, None)]
    while doomed:
        key, parent = doomed.pop()
        state, forks = mark(transaction, key=key, parent=parent)
        if forks:
            doomed += [(state.key, parent), *((fork.key, state.key) for fork in forks)]
        elif state.erasure is not None:
            marked.append(state)
    return marked


def _mark(
    transaction: Transaction,
    database: Database,
    key: str | int,
    parent: int | None,
    reason: str,
    erased_at: int,
    expected: ConversationRow | None,
    *,
    detach_forks: bool,
) -> tuple[Conversation, Sequence[Conversation]]:
    """Turn a conversation into a tombstone, and return it. If forks need its events, change
    nothing, and return these forks too. ``parent`` is the key of the conversation from which this
    one was forked when the erasure began, or None for the first conversation. If the conversation
    is a tombstone already, or no fork of ``parent`` any more, it is returned as it is.

    This transaction also separates the forks that have copies of the shared events. Until then, a
    redaction finds all forks of the conversation.
    """
    state = transaction.conversation(key)
    if state is None:
        raise ConversationNotFound(str(key))
    if state.erasure is not None or parent not in (None, state.parent):
        return state, ()
    if parent is None and expected is not None and (state.head or b"").hex() != expected.head:
        raise VersionConflict(state.id, expected.version, state.version)
    forks = transaction.living_forks(state.key)
    if needing := [fork for fork in forks if not (detach_forks and _is_copied(transaction, fork))]:
        return state, needing
    parts = [_detach(transaction, database, fork.key) for fork in forks]
    if parts:
        reason = f"{reason}; copies kept by forks: {', '.join(parts)}"
    detach_source_forks(transaction, database, state.key)
    last_at = state.updated_at or 0
    if last_at < YEAR_10000:  # a damaged event may have any time, which no tombstone can have
        erased_at = max(erased_at, last_at)
    erasure = Erasure(erased_at, reason, state.version, state.head or b"")
    for operation in transaction.unfinished(state.key):
        if operation.operation == ARCHIVE:
            remind(transaction, state.key, operation.state)
    transaction.leave_unfinished(state.key, ERASE, address_of_object(transaction, state.key))
    return enter_erasure(transaction, state, erasure), ()


def _what_remains(reader: Reader, key: int) -> tuple[Sequence[str], bool]:
    """Return the read models that have not reached the position of an erasure, and whether bytes of
    the erased events may still be in the files.
    """
    state = reader.conversation(key)
    is_pending = bytes_remain(reader, key)
    if state is None or state.erasure is None or state.erasure.position is None:
        return (), is_pending
    return behind(reader, state.erasure.position), is_pending


# -- forks that are detached


def _copy_past(database: Database, conversation: str, fork: Conversation) -> None:
    """Copy the events that a fork shares with its parent, in small transactions. The copies are
    stored under the fork's own key.

    Readers do not see the copies until the fork is separated from its parent. After an
    interruption, run the detachment again to continue it. Any other operation on the fork discards
    the copies.
    """
    with suppress(ConversationErased):  # another process has erased the fork
        origins.index_fork(database, conversation, fork.id)
    while on_finished(database, partial(_copy_on, database=database, fork=fork.key)):
        time.sleep(REST_S)


def _copy_on(transaction: Transaction, database: Database, fork: str | int) -> bool:
    """Copy the next shared events to a fork. Return False when all are copied."""
    state = database.find_key(transaction, fork)
    if state is None or state.erasure is not None or state.parent is None:
        return False
    start = 0
    for operation in transaction.unfinished(state.key):
        if operation.operation != DETACH or operation.state == DISCARDED:
            raise OperationUnfinished(operation)
        start = int(operation.state)
    stop = min(start + _CHUNK, state.begins)
    writing = WriteTransaction(transaction, state, database)
    rows = dense_rows(state.id, writing.rows(start, stop), start, stop)
    copied = [sound(state.id, row) for row in rows]
    writing.insert_past(copied)
    enter_copied_redactions(writing, redacted_bodies(copied))
    transaction.leave_unfinished(state.key, DETACH, str(stop))
    writing.end()
    return stop < state.begins


def _is_copied(transaction: Transaction, fork: Conversation) -> bool:
    """Return whether a fork has copies of all shared events. No other transaction can change this
    before this transaction ends.
    """
    present = transaction.conversation(fork.key)  # on a server, this locks the fork
    progress = {item.operation: item.state for item in transaction.unfinished(fork.key)}
    return (
        present is not None
        and present.parent == fork.parent
        and progress == {DETACH: str(fork.begins)}
    )


def _detach(transaction: Transaction, database: Database, fork: int) -> str:
    """Separate a fork from its parent. The copies get new positions, so a follower reads them as
    events of the fork. Return the name of the fork and of these events, for the tombstone.
    """
    state = database.find_key(transaction, fork)
    assert state is not None
    begins = state.begins
    writing = WriteTransaction(transaction, state, database)
    writing.forget_records()
    # The fork's own revisions build on revisions of its parent, so copy the parent's revisions too.
    writing.put_records(VIEWS, list(writing.records(VIEWS)))
    borders = writing.origins()
    SourcesToWrite.beside(writing).settle_shared(state)
    writing.leave_parent()
    transaction.finish(fork)
    writing.enter_origins(borders)
    writing.end()
    return f"{state.id!r} events 0 to {begins - 1}"
