"""Copy a whole store to another one while the first is in use. Copying again adds only new events.

Every event keeps its id, its time and its place in the hash chain. Every conversation keeps its salt, its idempotency
keys and its tombstone. So heads are equal in both stores; each head is computed again. Events that the target already
has are skipped, so a copy that was stopped resumes. Positions are new: followers of the target begin at 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from foldlog.eventstore.arguments import whole
from foldlog.eventstore.errors import ConversationErased, CorruptEvent, HistoryDiverged, VersionConflict
from foldlog.eventstore.log.database import Database, paged, translated
from foldlog.eventstore.maintenance.copy import CHUNK, copy_conversation
from foldlog.eventstore.recorders.types import Conversation
from foldlog.eventstore.store import Store

_JOBS_MAX = 64
"""The most conversations that may be copied at the same time."""


class Moved(NamedTuple):
    """The outcome for one conversation: how many events and tombstones were copied, and its version now; or its
    problem.
    """

    conversation: str
    added: int
    version: int
    problem: str | None = None
    tombstones: int = 0


class UnequalConversation(NamedTuple):
    """A difference between the two stores in one conversation. ``behind``: copying again makes them equal."""

    conversation: str
    problem: str
    behind: bool


def copy_store(source: Store, target: Store, *, jobs: int = 4) -> Iterator[Moved]:
    """Copy every conversation of ``source``, in no order, ``jobs`` at a time. Each appears whole in the target or not
    at all, or grows by its tail.

    A conversation that is damaged, or that differs in the target, is yielded with its problem, and the others go on.
    Cost: one row of every conversation on both sides, and the events that the target does not have.
    """
    whole("jobs", jobs, 1, _JOBS_MAX)
    with translated():
        yield from _copied(source.database, target.database, jobs)


def _copied(source: Database, target: Database, jobs: int) -> Iterator[Moved]:
    conversations = _conversations(source)
    with ThreadPoolExecutor(jobs) as pool:
        running: set[Future[Moved]] = set()
        try:
            while True:
                room = 2 * jobs - len(running)
                running |= {pool.submit(_move, source, target, found) for found in islice(conversations, room)}
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (each.result() for each in done)
        finally:
            for each in running:
                each.cancel()


def compare_stores(source: Store, target: Store) -> Iterator[UnequalConversation]:
    """Yield every conversation of ``source`` that ``target`` does not have with the same head and the same redactions.
    Conversations that only the target has are ignored. Cost: one row of every conversation on both sides.
    """
    with translated():
        for found in _conversations(source.database):
            there = _found(target.database, found.id)
            if there is None:
                yield UnequalConversation(
                    found.id, f"{_measure(found)} in the source, missing in the target", behind=True
                )
            elif not _same(found, there):
                lives = there.erasure is None and found.erasure is None
                behind = lives and (there.version < found.version or there.end == found.end)
                yield UnequalConversation(
                    found.id, f"{_measure(found)} in the source, {_measure(there)} in the target", behind=behind
                )


def _move(source: Database, target: Database, found: Conversation) -> Moved:
    there = _found(target, found.id)
    if there is not None and _same(found, there):
        return Moved(found.id, 0, found.end[0])
    try:
        copied = copy_conversation(source, target, found.id)
    except (CorruptEvent, HistoryDiverged, ConversationErased, VersionConflict) as error:
        problem = error.problem if isinstance(error, ConversationErased) else str(error)
        return Moved(found.id, 0, 0 if there is None else there.end[0], problem)
    return Moved(found.id, copied.added, copied.version, tombstones=copied.tombstones)


def _conversations(database: Database) -> Iterator[Conversation]:
    """Yield all conversations that have events or a tombstone. Cost: a page at a time."""

    def page(after: str | None) -> Sequence[Conversation]:
        return database.recorder.query(lambda reader: database.listed(reader, after, CHUNK))

    return (found for found in paged(page, attrgetter("id"), CHUNK) if found.version or found.erasure)


def _found(database: Database, conversation: str) -> Conversation | None:
    return database.recorder.query(lambda reader: database.find(reader, conversation))


def _same(one: Conversation, other: Conversation) -> bool:
    return (one.end, one.erasure is None, one.redactions) == (other.end, other.erasure is None, other.redactions)


def _measure(found: Conversation) -> str:
    version, head = found.end
    return f"{version} events with head {(head or b'').hex()[:12]}…{'' if found.erasure is None else ', erased'}"
