"""Erase a conversation for good: from every reader at once, then from the tables, then from the files.

A tombstone stays: when, why, how many events, and the last head. Without the salt, the head reveals nothing of the
events. Followers read the erasure as an entry, an ``Erased`` with a position of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter

from foldlog.eventstore.arguments import reason_text, text
from foldlog.eventstore.errors import (
    ConversationHasForks,
    ConversationNotFound,
    EventStoreError,
    VersionConflict,
)
from foldlog.eventstore.log import origins
from foldlog.eventstore.log.database import Database, behind, paged, start_after, translated, unavailable
from foldlog.eventstore.log.ledger import enter_erasure
from foldlog.eventstore.log.results import ConversationRow, listed
from foldlog.eventstore.log.staging import ERASE, delete_rows
from foldlog.eventstore.maintenance.detach import detach
from foldlog.eventstore.maintenance.unfinished import finish_all
from foldlog.eventstore.recorders.base import Reader, Recorder, Transaction
from foldlog.eventstore.recorders.changes import Left
from foldlog.eventstore.recorders.errors import NOTHING_WRITTEN, RecorderError
from foldlog.eventstore.recorders.types import Conversation, Erasure
from foldlog.eventstore.store import Store

_PAGE = 1_000


def erase(
    store: Store,
    conversation: str,
    *,
    reason: str,
    complete: bool = True,
    patience_s: float = 60.0,
    with_forks: bool = False,
    detach_forks: bool = False,
    expected: ConversationRow | None = None,
) -> ConversationRow:
    """Erase ``conversation``: no reader sees it from then on. Return its tombstone. Call it again to finish an
    interrupted erasure. It works in small transactions, so other writers wait only briefly.

    The tombstone says whether bytes of its events may still be in the files (``bytes_pending``). In a SQLite file they
    are until ``vacuum`` has rewritten it. On PostgreSQL the call vacuums the tables, unless ``complete`` is False; as a
    role that may not, it leaves that to autovacuum or to a call as their owner. Where a transaction that began before
    may still read the rows, it waits up to ``patience_s`` seconds, then raises ``StoreUnavailable``, and has to be run
    again.

    Forks read events of the conversation that they were forked from: ``with_forks`` erases them first, with their own
    forks; ``detach_forks`` first gives each fork a copy of these events, and the tombstone says which events the forks
    keep. With ``expected``, the conversation's row as the caller read it, nothing is erased if the last event has
    changed since.

    Raises ``ConversationNotFound``; ``ConversationHasForks`` if it has forks that are not erased with it; and
    ``VersionConflict`` if its last event is not that of ``expected``: read again, decide again. Cost: its events;
    on PostgreSQL, a look at every page of the tables that is not all visible.
    """
    text("conversation", conversation)
    reason = reason_text(reason, "tombstone")
    if not isinstance(expected, ConversationRow | None):
        raise TypeError(f"expected is a ConversationRow, as store.conversation() returns it, not {expected!r}")
    with translated():
        store.database.recorder.query(lambda reader: _check(reader.conversation(conversation), expected))
        forks = list(_forks(store.database, conversation)) if with_forks else []
        erased = 0
        try:
            for fork in forks:  # its erasure may have been interrupted
                _erased(store.database, fork, reason, complete=False, patience_s=patience_s)
                erased += 1
            if detach_forks:
                reason += _detached(store, conversation)
            return _erased(
                store.database, conversation, reason, complete=complete, patience_s=patience_s, expected=expected
            )
        except RecorderError as error:
            if not erased:
                raise
            told = f"conversation {conversation!r} is not erased; of its forks are erased: {erased} of {len(forks)}"
            raise unfinished(told, error) from error


def _check(found: Conversation | None, expected: ConversationRow | None) -> None:
    """Raise ``VersionConflict`` if the conversation has changed since it was read."""
    if expected is not None and found is not None and (found.head or b"").hex() != expected.head:
        raise VersionConflict(found.id, expected.version, found.version)


def _detached(store: Store, conversation: str) -> str:
    """Detach the forks of a conversation. Return the text that the tombstone's reason gets in addition."""
    database = store.database
    with database.recorder.read() as reader:
        found = database.find(reader, conversation)
        forks = [] if found is None else living_forks(reader, found.key)
    for fork in forks:
        origins.index_as(store, conversation, fork.id)
        detach(database, fork.id)
    kept = ", ".join(f"{fork.id!r} events 0 to {fork.begins - 1}" for fork in forks)
    return f"; forks keep a part: {kept}" if kept else ""


def forks_of(store: Store, conversation: str) -> Iterator[str]:
    """Yield the ids of all forks of a conversation, erased ones too; the forks of a fork come before it."""
    with translated():
        yield from _forks(store.database, conversation)


def _forks(database: Database, conversation: str) -> Iterator[str]:

    def names(reader: Reader) -> list[str]:
        found = database.find(reader, conversation)
        return [] if found is None else [fork.id for fork in _forks_of_key(reader, found.key)]

    for fork in database.recorder.query(names):
        yield from _forks(database, fork)
        yield fork


def _erased(
    database: Database,
    conversation: str,
    reason: str,
    *,
    complete: bool,
    patience_s: float,
    expected: ConversationRow | None = None,
) -> ConversationRow:
    recorder, now = database.recorder, database.now()
    erased = recorder.transact(partial(_mark, conversation=conversation, reason=reason, now=now, expected=expected))
    done = f"conversation {conversation!r} is erased for every reader"
    try:
        delete_rows(recorder, erased.key)
        finish_all(database, conversation)
    except RecorderError as error:
        raise unfinished(f"{done}, but not all of its rows are deleted", error) from error
    gone = complete and purge(recorder, patience_s, done)
    return listed(erased, bytes_pending=not gone, unconfirmed=recorder.query(partial(_unconfirmed, key=erased.key)))


def _unconfirmed(reader: Reader, key: int) -> Sequence[str]:
    """Return the read models that have not come to the erasure of the conversation with this key."""
    found = reader.conversation(key)
    position = None if found is None or found.erasure is None else found.erasure.position
    return () if position is None else behind(reader, position)


def living_forks(reader: Reader, key: int) -> list[Conversation]:
    """Return the forks of the conversation with this key, without erased ones."""
    return [fork for fork in _forks_of_key(reader, key) if fork.erasure is None]


def _forks_of_key(reader: Reader, key: int) -> Iterator[Conversation]:
    return paged(lambda after: reader.conversations(start_after(after), _PAGE, forks_of=key), attrgetter("id"), _PAGE)


def _mark(
    transaction: Transaction, conversation: str, reason: str, now: int, expected: ConversationRow | None
) -> Conversation:
    found = transaction.conversation(conversation)
    _check(found, expected)
    if found is None:
        raise ConversationNotFound(conversation)
    if found.erasure is not None:
        return found
    if forks := living_forks(transaction, found.key):
        raise ConversationHasForks(conversation, tuple(fork.id for fork in forks))
    erasure = Erasure(max(now, found.updated_at or now), reason, found.version, found.head or b"")
    transaction.change(found.key, Left(ERASE))
    return enter_erasure(transaction, found, erasure)


def purge(recorder: Recorder, patience_s: float, what_is_done: str) -> bool:
    """Remove the bytes of deleted and replaced rows, on PostgreSQL. Return whether none is pending; in a SQLite file,
    ``vacuum`` removes them.

    The call waits up to ``patience_s`` seconds for open transactions, then raises ``StoreUnavailable``, as it does
    where the disk refuses. The error is ``unfinished``.
    """
    try:
        return recorder.compact(patience_s) if recorder.on_server else recorder.value("bytes_pending") == ""
    except RecorderError as error:
        raise unfinished(f"{what_is_done}, but the deleted bytes are still in the files", error) from error


def unfinished(done: str, error: RecorderError) -> EventStoreError:
    """Return the error for work that the disk or the server ended after a part of it was done."""
    cause = str(error).removesuffix(NOTHING_WRITTEN)
    error.args = (f"{done} ({cause}); run the same command again to finish it",)
    told = unavailable(error)
    told.unfinished = True
    return told
