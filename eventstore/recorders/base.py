"""What a recorder is: it gives uniqueness, atomicity and positions, for any bytes.

The store, above it, gives density, expected versions, rules, the hash chain and the registry. A recorder knows rows and
transactions, and nothing of events. Every recorder passes the one suite in ``tests/conformance/test_recorders.py``.

Errors are those of ``eventstore.recorders.errors``, with the driver's error as cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

__all__ = [
    "PATIENCE_S",
    "BareRow",
    "Conversation",
    "Erasure",
    "Place",
    "PlacedRow",
    "Reader",
    "RecalledKey",
    "Record",
    "Recorder",
    "RecorderOfFile",
    "Row",
    "Transaction",
]

T = TypeVar("T")

PATIENCE_S: Final = 60.0
"""How long a call waits for other writers, or for a server that is away, unless the URL says otherwise."""


class Row(NamedTuple):
    """One event as stored. ``recorded_at`` is in microseconds since 1970, UTC. ``encoding`` 0 is plain JSON text.

    ``shown_before`` and ``structural_before`` count such events before this one, so that a reader who walks an index
    sees where one is missing. ``checksum`` is that of the row (``integrity.checksum``). A recorder only keeps them.
    """

    id: int
    kind: str
    schema: int
    shown: bool
    structural: bool
    recorded_at: int
    encoding: int
    body: bytes
    head: bytes
    shown_before: int = 0
    structural_before: int = 0
    checksum: int = 0


BareRow = tuple[Any, ...]
"""The columns of a ``Row``, whatever a database has in them."""


Place = Callable[[], int]
"""A position that is known when its transaction has been committed. Not to be asked for before."""


class PlacedRow(NamedTuple):
    """A row with its place in the whole store."""

    position: int
    conversation: str
    row: Row


class Erasure(NamedTuple):
    """What is left of an erased conversation: when, why, how many events it had, and its last head."""

    erased_at: int
    reason: str
    events: int
    head: bytes


class Conversation(NamedTuple):
    """A conversation as one read found it. ``version``, ``head`` and ``updated_at`` are those of its last event; an
    empty conversation has version 0, no head and ``updated_at`` None. ``shown`` and ``structural`` are how many such
    events it has: what its last event says was before it, and that event itself. ``astray``: the database contradicts
    itself about which event is the last. ``visible``: it is not staged. ``mark`` is the row codec's (``stored.marks``).
    """

    key: int
    id: str
    created_at: int
    salt: bytes
    version: int
    updated_at: int | None
    head: bytes | None
    parent: int | None = None
    parent_version: int | None = None
    key_id: str | None = None
    sealed_key: bytes | None = None
    erasure: Erasure | None = None
    shown: int = 0
    structural: int = 0
    astray: bool = False
    visible: bool = True
    mark: bytes | None = None

    def grown(self, last: Row) -> Conversation:
        """Return the conversation with ``last`` as its newest row."""
        return self._replace(
            version=last.id + 1,
            updated_at=last.recorded_at,
            head=last.head,
            shown=last.shown_before + last.shown,
            structural=last.structural_before + last.structural,
        )


class Record(NamedTuple):
    """What a projection keeps for one version of a conversation. ``code`` is the version of the projection's code;
    ``base`` is the version of the record that this one builds on, if it does not stand alone. ``encoding`` and
    ``checksum`` are what they are in a ``Row``.
    """

    version: int
    code: int
    base: int | None
    body: bytes
    encoding: int = 0
    checksum: int = 0


class RecalledKey(NamedTuple):
    """What an idempotency key stands for: the first id and the number of the events that were appended under it.
    ``proof`` is the row codec's.
    """

    first_id: int
    events: int
    proof: bytes | None = None


class Reader(Protocol):
    """One read transaction: everything that it returns is of one moment."""

    def conversation(self, conversation_id: str, known: Conversation | None = None) -> Conversation | None:
        """Return the visible conversation of this id. If it is still ``known`` (this process found or left it so, and
        it was not astray then), return that without asking whether the database contradicts itself.
        """

    def conversations(self, after: str | None, limit: int) -> Sequence[Conversation]:
        """Return published conversations with an id greater than ``after``, in the order of their ids' UTF-8 bytes."""

    def conversation_of(self, key: int) -> Conversation | None:
        """Return the conversation with this key, staged or visible."""

    def staged(self, conversation_id: str) -> Sequence[int]:
        """Keys of the staged, unpublished conversations of this id."""

    def rows(self, key: int, start: int, stop: int, limit: int) -> Sequence[Row]:
        """Rows with ``start <= id < stop``, by id, at most ``limit``."""

    def bare_rows(self, key: int, start: int, stop: int, limit: int) -> Sequence[BareRow]:
        """Return the same rows as plain tuples, converting only the kind to UTF-8 bytes: for a reader of all rows."""

    def structural_rows(self, key: int, start: int, stop: int, limit: int) -> Sequence[Row]:
        """Of those, the structural ones. Cost: the rows returned."""

    def documents_row(self, key: int, stop: int) -> Row | None:
        """Return the last row of kind ``document_changes`` with ``id < stop``. Cost: that row."""

    def shown_rows(self, key: int, intervals: Sequence[tuple[int, int]]) -> Sequence[Row]:
        """Shown rows with an id in one of the inclusive intervals, by interval, then id. Cost: intervals and rows."""

    def placed_rows(self, after_position: int, limit: int) -> Sequence[PlacedRow]:
        """Return rows after a position, in the order of positions, at most ``limit``. No later commit can precede them,
        and no failure of a server can take them back. A read transaction asks this, or ``last_position``, before all
        else.

        The conversation of a row that belongs to none has an empty name.
        """

    def last_position(self) -> int:
        """Return the highest position given so far; 0 in an empty store."""

    def record_at(self, projection: str, key: int, version: int) -> Record | None:
        """Return the newest record at or before ``version``."""

    def records(self, projection: str, key: int, after: int, limit: int) -> Sequence[Record]:
        """Return records of versions greater than ``after``, ascending."""

    def position(self, key: int, event_id: int) -> int:
        """Return the position of an existing row."""

    def recall(self, key: int, idempotency_key: str) -> RecalledKey | None:
        """Return what is stored under an idempotency key."""

    def remembered(self, key: int, after: str | None, limit: int) -> Sequence[tuple[str, RecalledKey]]:
        """Idempotency keys greater than ``after`` (all, if None), in the order of their UTF-8 bytes."""

    def projections(self, key: int) -> Sequence[str]:
        """Names of the projections that keep records of a conversation."""

    def max_tracking_id(self, application: str) -> int | None: ...


class Transaction(Reader, Protocol):
    """One write transaction. Of a conversation that it asked for, by id or by key, no other writer changes anything
    until it ends.
    """

    def begin(self, conversation_id: str, created_at: int, salt: bytes, *, staged: bool = False) -> Conversation:
        """Begin a new, empty conversation. A staged one is invisible until it is published, and shares its id without a
        lock.
        """

    def insert(self, key: int, rows: Sequence[Row]) -> Place:
        """Insert rows with consecutive ids at consecutive positions; the first of these can be asked for once the
        transaction is committed. An id that exists: ``IntegrityError``, here or at the commit.
        """

    def stage(self, key: int, rows: Sequence[Row]) -> None:
        """Insert rows of a staged conversation; its ids are dense from 0. They get their positions when it is
        published. ``IntegrityError`` where it is not staged any more.
        """

    def publish(self, key: int, size: int) -> int:
        """Make a staged conversation of ``size`` events visible, in constant time; returns its first position.
        ``IntegrityError`` where it is not staged any more, or its id is taken.
        """

    def discard(self, key: int, limit: int) -> bool:
        """Delete at most ``limit`` rows of a staged conversation; True when all are gone, and it with them. One that is
        not staged any more is left as it is.
        """

    def set_key(
        self, key: int, salt: bytes, key_id: str | None, sealed_key: bytes | None, *, replaces: bytes | None
    ) -> None:
        """Give a conversation another salt and another sealed key.

        ``replaces`` is the sealed key that the caller found. ``IntegrityError``, here or at the commit, where the
        conversation has another one by now, or is erased.
        """

    def set_mark(self, key: int, mark: bytes | None) -> None:
        """Another mark for a conversation."""

    def replace(self, key: int, rows: Sequence[Row]) -> None:
        """Store rows that exist in another form: their encoding, body and checksum, and nothing else."""

    def erase(self, key: int, erasure: Erasure) -> None:
        """Put a receipt in the place of a conversation: from now on its rows cannot be read. Salt and key go at
        once, rows and records by ``expunge``.
        """

    def expunge(self, key: int, limit: int) -> bool:
        """Delete at most ``limit`` rows of an erased conversation, and what is kept beside them; True when all are
        gone.
        """

    def remember(self, key: int, idempotency_key: str, recalled: RecalledKey) -> None:
        """Store what a new idempotency key stands for. One that exists: ``IntegrityError``."""

    def prove(self, key: int, idempotency_key: str, proof: bytes | None) -> None:
        """Another proof for an idempotency key that exists."""

    def put_records(self, projection: str, key: int, records: Iterable[Record]) -> None: ...

    def set_store_value(self, name: str, value: str) -> None:
        """Record a fact about the store itself."""

    def delete_records(self, projection: str, key: int) -> None: ...

    def insert_tracking(self, application: str, notification_id: int) -> None:
        """Record how far a projection has come. One that is recorded already: ``IntegrityError``."""


class Recorder(Protocol):
    """A database that holds one store."""

    writable: bool

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

    def store_value(self, name: str) -> str:
        """Return a fact about the store itself, such as its ``uuid``."""

    def data_version(self) -> int:
        """Return a number that changes when another connection has committed. Cheap enough to poll."""

    def left_in_staging(self, before: int) -> Sequence[int]:
        """Keys of staged conversations that nothing was added to since this moment, in microseconds since 1970."""

    def purge(self) -> bool:
        """Make what was deleted or replaced unreadable in the files too. Return whether all of it is: False where only
        ``compact`` can do the rest. ``StillRead`` while a reader that needs it is open: try again.
        """

    def check(self) -> Iterator[str]:
        """Yield what the database finds wrong with its files: pages, indices, rows without a conversation. Cost: all of
        it.
        """

    def close(self) -> None: ...


@runtime_checkable
class RecorderOfFile(Protocol):
    """What a recorder can do besides whose database is a file of our own, and has no server to look after it."""

    path: str

    def beside(self, path: str) -> Recorder:
        """Another one of this kind, on another file, for reading."""

    def copy_to(self, path: str, on_progress: Callable[[int, int], object]) -> None:
        """Write the newest state to a new file, while readers and writers go on. ``on_progress(done, of)`` counts
        pages.
        """

    def lost_after(self, position: int) -> int | None:
        """Return the last position that this file shares with the file that gave ``position``: this one was restored
        from an earlier backup. Return None if this file gave it.
        """

    def left_of_erased(self) -> Sequence[int]:
        """Keys of erased conversations of which rows are left, because their erasure was interrupted."""

    def compact(self) -> bool:
        """Give back the space that deleted rows took. Return whether it is given back, and what was deleted is gone
        from the file: while a reader is open, that comes later.

        Positions stay. Readers go on, writers wait; it needs as much free space again as the file takes.
        """
