"""The interface of a recorder, which gives uniqueness, atomicity and positions, for any bytes.

The store, above it, gives density, expected versions, rules, the hash chain and the registry. A recorder knows rows and
transactions, and nothing of events. Every recorder passes the one suite in ``tests/conformance/test_recorders.py``.

Errors are those of ``eventstore.recorders.errors``, with the driver's error as cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from eventstore.recorders.types import (
    BareRow,
    Change,
    Conversation,
    Fork,
    ListedConversation,
    Only,
    Place,
    PlacedRow,
    RecalledKey,
    Record,
    Row,
)

__all__ = [
    "PATIENCE_S",
    "Index",
    "Reader",
    "Recorder",
    "RecorderOfFile",
    "RecorderOnDisk",
    "RemembersCommits",
    "Transaction",
    "WritableIndex",
]

T = TypeVar("T")

PATIENCE_S: Final = 60.0
"""The default time for which a call waits for other writers, or for a server that is unreachable."""


class Index(Protocol):
    """Queries over many conversations: lists of conversations, and events by the id of their source."""

    def recalled_among(
        self, key: int | None, idempotency_keys: Sequence[str]
    ) -> Sequence[tuple[int, str, RecalledKey]]:
        """Return the stored ones of these idempotency keys, each with its conversation. Nothing is guessed.

        Without a conversation: those of all conversations, of keys that begin with ``SOURCE_KEYS``.
        """

    def touched(self, after_position: int, until_position: int) -> Sequence[tuple[int, int]]:
        """Return the keys of visible conversations that have an event after one position, up to another; of all, after
        position 0; and of those that are to be listed again. With each the version that it is listed at: -1, not
        listed; -2, to be listed by a process that has its key.
        """

    def listed(
        self, digests: Sequence[bytes], before: tuple[int, int] | None, limit: int
    ) -> Sequence[ListedConversation]:
        """Return conversations that have all of these digests, the last active first.

        ``before`` is the moment and the key of the last one of the page before. Cost: those that have the first digest,
        down to the last one returned.
        """

    def trackings_behind(self, position: int) -> Sequence[str]:
        """Return the applications of the eventsourcing library whose projections have not come to a position."""


class WritableIndex(Index, Protocol):
    """The same in a write transaction."""

    def list_as(self, key: int, at: int, version: int, digests: Iterable[bytes] | None) -> None:
        """Say in lists when a conversation was active last, its version, and the digests of its attributes, if they are
        others than before. An ``Erasure`` removes all of it.
        """


class Reader(Protocol):
    """One read transaction: everything that it returns is of one moment."""

    known: dict[str, Any]
    """The version cache: what the layer above knows of conversations as they are in this transaction, by id. A recorder
    may keep it from one write transaction to the next. It empties it where a conversation may be another one: another
    process has committed, a transaction was rolled back, something else than following events was written. A mark is of
    the layer above, so who changes one sees to it here too.
    """

    def conversation(self, name: str | int, known: Conversation | None = None) -> Conversation | None:
        """Return the visible conversation with this id, or the one with this key, staged or visible.

        If it is still ``known`` (this process found or left it so, and it was not astray then), return that without
        asking whether the database contradicts itself.
        """

    def conversations(
        self, start: str, limit: int, *, staged: bool = False, forks_of: int | None = None
    ) -> Sequence[Conversation]:
        """Return published conversations, or staged ones, with ids from ``start`` on, in the order of their ids' UTF-8
        bytes. ``forks_of``: only forks of the conversation with this key, erased ones too.
        """

    def rows(self, key: int, start: int, stop: int, limit: int, only: Only = "all") -> Sequence[BareRow]:
        """Return rows with ``start <= id < stop``, at most ``limit``, by id; those of kind ``document_changes``, the
        newest first. Cost: the rows returned.
        """

    def shown_rows(
        self, key: int, intervals: Sequence[tuple[int, ...]], beside: int | None = None
    ) -> Sequence[BareRow]:
        """Return shown rows with an id in one of the inclusive intervals, by interval, then id; the row with the id
        ``beside`` also where it is not shown. An interval may name another key after its last id. Cost: intervals and
        rows.
        """

    def placed_rows(self, after_position: int, limit: int) -> Sequence[PlacedRow]:
        """Return rows after a position, in the order of positions, at most ``limit``. No later commit can precede them,
        and no failure of a server can take them back. A read transaction asks this before all else.

        The conversation of a row that belongs to none has an empty name.
        """

    def records(
        self, key: int, projection: str | None, version: int, limit: int, *, backwards: bool = False
    ) -> Sequence[Record]:
        """Return records of a projection for versions greater than ``version``, ascending; ``backwards``, those up to
        ``version``, descending. Without a projection: the newest record of each.
        """

    def recalled(self, key: int, start: str, limit: int, *, exactly: bool = False) -> Sequence[tuple[str, RecalledKey]]:
        """Return idempotency keys from ``start`` on, in the order of their UTF-8 bytes; ``exactly``: this key, if it is
        stored, with the position of its first event.
        """

    @property
    def index(self) -> Index:
        """What is found over many conversations."""


class Transaction(Reader, Protocol):
    """One write transaction. Of a conversation that it asked for, by id or by key, no other writer changes anything
    until it ends.
    """

    def begin(
        self,
        conversation_id: str,
        created_at: int,
        salt: bytes,
        *,
        staged: bool = False,
        fork: Fork | None = None,
        replaces: int | None = None,
    ) -> Conversation:
        """Begin a new, empty conversation. A staged one is invisible until it is published, and shares its id without a
        lock. A ``fork`` begins with its parent's events.

        It uses the id of an erased conversation again where ``replaces`` is the key of that one: then the receipt is
        found by its key only, from now on or from the publication on. ``IntegrityError``, here or at the commit, where
        that one is not erased, or was replaced already.
        """

    def insert(self, key: int, rows: Sequence[Row], *, staged: bool = False, follow: bool = False) -> Place:
        """Insert rows with consecutive ids at consecutive positions; the first of these can be asked for once the
        transaction is committed. An id that exists: ``IntegrityError``, here or at the commit. ``follow``: they follow
        the last row of the conversation as this transaction found it, and the caller keeps ``known`` true.

        ``staged``: the conversation is staged, its ids are dense from 0, and it gets positions when it is published.
        ``IntegrityError`` where it is not staged any more.
        """

    def publish(self, key: int, size: int) -> int:
        """Make a staged conversation of ``size`` events visible, in constant time; return its first position.
        ``IntegrityError`` where it is not staged any more, or its id is taken.
        """

    def change(self, key: int, change: Change) -> None:
        """Change a conversation that exists. ``IntegrityError``, here or at the commit, where a ``NewKey`` does not
        replace the wrapped key that it says.
        """

    def delete(self, key: int, limit: int) -> bool:
        """Delete at most ``limit`` rows of a staged or an erased conversation; return whether all are gone, with what
        is kept beside them and, of a staged one, the conversation. Another one is left as it is.
        """

    def remember(self, key: int, idempotency_key: str, recalled: RecalledKey, *, again: bool = False) -> None:
        """Store what a new idempotency key stands for. One that exists: ``IntegrityError``. ``again``: store the proof
        of one that exists.
        """

    def put_records(self, projection: str, key: int, records: Iterable[Record], *, replace_all: bool = False) -> None:
        """Keep records; one of the same version is replaced. ``replace_all``: the others are deleted."""

    @property
    def index(self) -> WritableIndex:
        """What is found over many conversations."""

    def set_value(self, name: str, value: str) -> None:
        """Record a fact about the store; see ``Recorder.value``. Of a tracking, which only goes forward:
        ``IntegrityError``.
        """


class Recorder(Protocol):
    """A database that holds one store."""

    writable: bool
    polls_cheaply: bool
    """Whether ``value("data_version")`` costs microseconds, not a round trip."""

    def transact(self, work: Callable[[Transaction], T], *, any_thread: bool = False) -> T:
        """Run ``work`` in a write transaction and return what it returned, once that is durable.

        Several callers may share one transaction and its fsync. If ``work`` raises, nothing that it wrote is kept and
        its exception comes back to its caller alone. ``work`` may be run again, so it must have no effects of its own;
        it runs in the thread of its caller, and with ``any_thread``, for work that calls no code but ours, perhaps in
        the thread of another caller.

        Raises ``InterfaceError`` where this thread is inside of ``transact`` already, and ``OperationalError`` where
        others write for longer than the recorder's patience; both name what helps.
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

        ``uuid``; ``last_position``, the highest that was given so far; ``data_version``, a number that changes when
        another connection has committed, cheap to poll; ``bytes_pending``; ``event_bytes_max``; ``tracking NAME``, how
        far a projection of the eventsourcing library has come.
        """

    def close(self) -> None: ...


@runtime_checkable
class RecorderOnDisk(Protocol):
    """What a recorder can do in addition whose database lies on a disk."""

    def purge(self) -> bool:
        """Make what was deleted or replaced unreadable in the files too. Return whether all of it is: False where only
        ``compact`` can do the rest. ``StillRead`` while a reader that needs it is open: try again.
        """

    def check(self) -> Iterator[str]:
        """Yield what the database finds wrong with its files: pages, indices, rows without a conversation. Cost: all of
        it.
        """


@runtime_checkable
class RemembersCommits(Protocol):
    """What a recorder can do in addition that knows for certain, without a question, what its last commit left."""

    def as_left(self, conversation: str) -> Any:
        """Return what is ``known`` of a conversation as this recorder's last commit left it; None where that is
        nothing, a transaction is in progress, or somebody else has committed since. Cost: some system calls.
        """


@runtime_checkable
class RecorderOfFile(Protocol):
    """What a recorder can do besides whose database is a file of our own, and has no server to look after it."""

    path: str

    def beside(self, path: str) -> Recorder:
        """Return another one of this kind, on another file, for reading."""

    def copy_to(self, path: str, on_progress: Callable[[int, int], object]) -> None:
        """Write the newest state to a new file, while readers and writers go on. ``on_progress(done, of)`` counts
        pages.
        """

    def lost_after(self, position: int) -> int | None:
        """Return the last position that this file shares with the file that gave ``position``: this one was restored
        from an earlier backup. Return None if this file gave it.
        """

    def left_of_erased(self) -> Sequence[int]:
        """Return keys of erased conversations of which rows are left, because their erasure was interrupted."""

    def compact(self) -> bool:
        """Give back the space that deleted rows took. Return whether it is given back, and what was deleted is gone
        from the file: while a reader is open, that comes later.

        Positions stay. Readers go on, writers wait; it needs as much free space again as the file takes.
        """
