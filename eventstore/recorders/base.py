"""The interface of a recorder: it gives uniqueness, atomicity and positions, for any bytes.

The store on top of it gives density, expected versions, rules, the hash chain and the registry. A recorder knows rows
and transactions, and nothing of events. Every recorder passes the suite in ``tests/conformance/test_recorders.py``.

Recorders raise the errors of ``foldlog.eventstore.recorders.errors``, with the driver's error as cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final, Literal, Protocol, TypeVar

from foldlog.eventstore.recorders.changes import Change
from foldlog.eventstore.recorders.types import (
    Beginning,
    Conversation,
    ListedConversation,
    Outcome,
    Place,
    PlacedRow,
    RecalledKey,
    Record,
    Row,
    Unfinished,
)

T = TypeVar("T")

Only = Literal["all", "structural"]
"""The rows to read."""

PATIENCE_S: Final = 60.0
"""The default time for which a call waits for other writers, or for a server that is unreachable."""


class Reader(Protocol):
    """One read transaction: everything that it returns is of one moment."""

    def era(self, cache: object) -> int | None:
        """Return a number that no other recorder has. While write transactions have the same, conversations have
        changed only by rows that this cache has noted: see ``Transaction.insert``. None where the recorder cannot know
        that.
        """

    def value(self, name: str) -> str:
        """Return a fact about the store, see ``Recorder.value``; and ``now``, a server's clock, in microseconds."""

    def conversation(self, name: str | int, expected: Conversation | None = None) -> Conversation | None:
        """Return the visible conversation with this id, or the one with this key, staged or visible.

        A write transaction may return the ``expected`` one without a question, where the database refuses to write
        anything if that is not the present one; then the work is run again.
        """

    def conversations(self, start: str, limit: int, *, forks_of: int | None = None) -> Sequence[Conversation]:
        """Return published conversations with ids from ``start`` on, in the order of their ids' UTF-8 bytes.
        ``forks_of``: only forks of the conversation with this key, erased forks too.
        """

    def unfinished(self, key: int | None = None) -> Sequence[Unfinished]:
        """Return the operations that are not complete, or the one on the conversation with this key."""

    def rows(
        self, key: int, start: int, stop: int, limit: int, only: Only = "all", *, kind: str | None = None
    ) -> Sequence[Row]:
        """Return rows with ``start <= id < stop``, at most ``limit``, ordered by id. With ``kind``, one that the schema
        has an index for, return the rows of this kind, the newest first. Cost: the rows returned.
        """

    def flagged_rows(self, key: int, intervals: Sequence[tuple[int, ...]]) -> Sequence[Row]:
        """Return rows that are shown or structural, with an id in one of the inclusive, ascending intervals, ordered by
        id. An interval may name another conversation's key after its last id. Cost: intervals and rows.
        """

    def placed_rows(self, after_position: int, limit: int) -> Sequence[PlacedRow]:
        """Return rows after a position, in the order of positions, at most ``limit``. No later commit can precede them,
        and no failure of a server can take them back. Call it before any other question of a read transaction.

        A row that belongs to no conversation has an empty name in its place.
        """

    def records(
        self, key: int, projection: str | None, version: int, limit: int, *, backwards: bool = False
    ) -> Sequence[Record]:
        """Return records of a projection for versions greater than ``version``, ascending; with ``backwards``, those up
        to ``version``, descending. Without a projection, return the newest record of each.
        """

    def records_of(self, projection: str, first: str, last: str) -> Sequence[tuple[str, bool, Record]]:
        """Return the newest record of a projection of each visible conversation with an id from ``first`` to ``last``
        that is not erased, with the id, and whether the conversation is encrypted. Cost: the conversations.
        """

    def recalled(self, key: int, start: str, limit: int, *, exactly: bool = False) -> Sequence[tuple[str, RecalledKey]]:
        """Return idempotency keys from ``start`` on, in the order of their UTF-8 bytes; with ``exactly``, this key
        alone, if it is stored, with the position of its first event.
        """

    def recalled_among(
        self, key: int | None, idempotency_keys: Sequence[str]
    ) -> Sequence[tuple[int, str, RecalledKey]]:
        """Return those of these idempotency keys that are stored, each with its conversation and the position of its
        first event.

        Without a conversation: those of all conversations, without positions, for keys that the schema has such an
        index for.
        """

    def id_from(self, start: str) -> str | None:
        """Return the first id of a published conversation from ``start`` on, in the order of their UTF-8 bytes. None if
        there is none. Cost: one entry of an index.
        """

    def touched(self, after_position: int, until_position: int, least: int) -> Sequence[tuple[int, int]]:
        """Return the keys of visible conversations that have an event after ``after``, at most at ``until``; all of
        them, if ``after`` is 0; and those that have to be listed again, whose version is ``least`` or more. Each comes
        with the version at which it is listed: -1, not listed; -2, to be listed by a process that has its key.
        """

    def listed(
        self, digests: Sequence[bytes], before: tuple[int, int] | None, limit: int
    ) -> Sequence[ListedConversation]:
        """Return conversations that have all of these digests, the last active first.

        ``before`` is the moment and the key of the last conversation of the previous page. Cost: the conversations that
        have the first digest, down to the last one returned.
        """


class Transaction(Reader, Protocol):
    """One write transaction. From the moment when it asks for a conversation, by id or by key, until its end, no other
    writer changes anything of that conversation.
    """

    def begin(self, new: Beginning) -> Conversation:
        """Begin a conversation; a staged one is unfinished as an ``import``. ``IntegrityError``, here or at the commit,
        where its id is taken, or where the conversation that it replaces is not erased, or was replaced already.
        """

    def insert(self, key: int, rows: Sequence[Row], *, staged: bool = False, follow: object = None) -> Place:
        """Insert rows with consecutive ids at consecutive positions; the first position is known once the transaction
        is committed. An id that exists: ``IntegrityError``, here or at the commit. ``follow``: the rows follow the last
        row of the conversation as this transaction found it, and this cache notes how they leave it. A new ``era``
        begins where another cache noted the last ones, and without ``follow``.

        ``staged``: the conversation is staged, its ids are dense from 0, and it gets positions when it is published.
        ``IntegrityError`` where it is not staged any more.
        """

    def publish(self, key: int, size: int) -> int:
        """Make a staged conversation of ``size`` events visible, in constant time; return its first position.
        ``IntegrityError`` where it is not staged any more, or its id is taken.
        """

    def change(self, key: int, change: Change) -> None:
        """Change a conversation that exists. ``IntegrityError``, here or at the commit: a ``RememberedKey`` exists."""

    def delete(self, key: int, limit: int) -> bool:
        """Delete at most ``limit`` rows of a staged or an erased conversation, or the past that a fork holds copies of
        (``PastRows``). Return whether all are gone, with the data kept beside them; then nothing is unfinished on a
        staged or an erased conversation, and a staged one itself is deleted too. Any other is left as it is.
        """

    def set_value(self, name: str, value: str) -> None:
        """Record a fact about the store; see ``Recorder.value``. A tracking only increases: ``IntegrityError``
        otherwise. An empty text forgets it.
        """


class Recorder(Protocol):
    """A database that holds one store."""

    path: str | None
    """The file of the store; None for a store on a server or in memory."""
    writable: bool
    on_server: bool
    """Whether the database is on a server: then ``value("data_version")`` costs a round trip, not microseconds, and
    each writer has a transaction of its own.
    """
    on_copy: Callable[[Transaction, int], None]
    """Is called in the first write transaction in a file that is a copy, with the last position that it has."""

    def transact(self, work: Callable[[Transaction], T], *, any_thread: bool = False) -> T:
        """Run ``work`` in a write transaction and return what it returned, once that is durable.

        Several callers may share one transaction and its fsync. If ``work`` raises, nothing that it wrote is kept and
        its exception comes back to its caller alone. ``work`` may be run again, so it must have no effects of its own.
        It runs in the thread of its caller; with ``any_thread``, for work that calls only foldlog's code, it may run in
        the thread of another caller.

        Raises ``InterfaceError`` where this thread is inside ``transact`` already, and ``OperationalError`` where other
        writers keep it waiting for longer than the recorder's patience; both name the remedy.
        """

    def transact_all(self, works: Sequence[tuple[Callable[[Transaction], T], bool]]) -> Sequence[Outcome[T]]:
        """Run several pieces of work, each with its ``any_thread``, as ``transact`` would run each alone, in as few
        transactions as possible. Return the outcome of each: its result, or what ``transact`` would have raised.

        Raises ``InterfaceError`` where this thread is inside a write already.
        """

    def read(self) -> AbstractContextManager[Reader]:
        """Begin a read transaction. It never waits for writers."""

    def query(self, work: Callable[[Reader], T]) -> T:
        """Run ``work`` in a read transaction and return what it returned.

        Where the connection to the database breaks, ``work`` is run again in another read transaction, so it must have
        no effects of its own.
        """

    def value(self, name: str) -> str:
        """Return a fact about the store; an empty text where it is not known.

        ``uuid``; ``last_position``, the highest position that was given; ``bytes_pending``; ``key_ids``, the
        names of the wrapping keys of visible conversations, with spaces between; ``tracking NAME``, the position of a
        projection of the eventsourcing library; ``trackings``, the names and positions of all, as a JSON list of pairs.

        Outside of transactions: ``data_version``, a number that changes when another connection has committed, cheap
        to poll; and ``era``, the era of write transactions (``Reader.era``) as the last commit of this process left it.
        It is not known where a transaction is in progress or another connection has committed since, and where that is
        not cheap to know. Cost: some system calls.
        """

    def compact(self, patience_s: float, on_progress: Callable[[int, int], object] = ...) -> bool:
        """Remove the bytes of deleted and replaced rows; a file is rewritten without them. Return False where only the
        owner of a server's tables can do it. Raises ``StillRead`` where a reader that was opened before needs them for
        ``patience_s`` seconds: then bytes stay pending, and a file does not shrink. ``on_progress`` gets how many
        tables are done and of how many; a file is rewritten in one step.

        Positions stay. Readers go on; the writers of a file wait, and it needs free space of its size.
        """

    def check(self) -> Iterator[str]:
        """Yield the problems of the files: of pages, of indices, rows without a conversation. Cost: all of them."""

    def close(self) -> None: ...
