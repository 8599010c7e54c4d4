"""A write transaction on a connection, and the attempts that one call of ``transact`` makes.

Writes wait in a queue, and are sent with the next query or with the commit. An append needs two
round trips: one to read the end of the conversation, and one to write and commit. An append needs
only one round trip if the last append of this process was to the same conversation, and no other
writer has written to the conversation since. An append to a fork always needs one more query.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Final, Generic, TypeVar

from psycopg.pq.abc import PGresult

from foldlog.eventstore.errors import StoreRefused, StoreUnavailable
from foldlog.eventstore.recorders.base import Columns
from foldlog.eventstore.recorders.errors import FAILURES
from foldlog.eventstore.recorders.postgres.positions import Part, Positions
from foldlog.eventstore.recorders.postgres.wire import ConnectionLost, Parameter, TryAgain, Wire
from foldlog.eventstore.recorders.writers import note_committed

T = TypeVar("T")

OF_EVENTS: Final = "stands_event"

Witness = tuple[str, tuple[Parameter, ...]]
"""A query that finds out whether a transaction was committed. The query searches for a value that
only this transaction can have written: the place of an event (``Positions``), a sealed key, the key
of a new conversation, the place of a published conversation, the token of a tracking id, or the
time and head of an erasure.
"""


class CommitInDoubt(ConnectionLost):
    """The commit was sent, but its outcome is unknown."""


class TooSlow(ConnectionLost):
    """The server ended the session, because the session was idle in its transaction for too long
    while the work ran.
    """


class OpenTransaction:
    """A write transaction on a connection: its beginning, its locks, and its commit. The first
    query or statement begins it.
    """

    def __init__(
        self, wire: Wire, schema: str, part: Part, *, durable: bool, at_once: bool
    ) -> None:
        self._wire = wire
        self._schema = schema.encode()
        self._durable = durable
        self._durability = "" if durable else "begin_relaxed"
        """The statement that lowers the durability of this transaction."""
        self._at_once = at_once
        self._positions = Positions(part)
        self._number_asked: int | None = None
        self._begun = False
        self.is_joined = False
        """Whether the transaction of another store on the same connection has begun it."""
        self._wrote = False
        self.writes = 0
        """The number of statements that write."""
        self._unchecked = False
        """Whether a guess about the state of the store was sent and is not yet confirmed."""
        self._guessed_keys = False
        """Whether the transaction takes idempotency keys for new without having looked them up."""
        self._taken_for_new: set[tuple[int, str]] = set()
        self.locks: list[int] = []
        self.witness: Witness | None = None
        self.stands: bool | None = False
        """Whether the transaction is committed, or None if the outcome is unknown."""
        self._answered_at = 0.0
        """The moment of the server's last answer, by ``time.monotonic``, or 0 before the first."""

    def ask(self, statement: str, *parameters: Parameter) -> list[Columns]:
        self._begin()
        self._wire.queue(statement, *parameters)
        return self._wire.rows(self._answers()[-1])

    def wait_for_no_standby(self) -> None:
        """Commit when the server's own disk has the transaction. Call this before any query."""
        if self._durable:
            self._durable = False
            self._durability = "begin_local"

    def lock(self, number: int) -> None:
        # The statement for the lock is sent with the next query.
        self._begin()
        self.locks.append(number)
        self._wire.queue("lock", number)

    def was_committed(self, earlier: OpenTransaction) -> bool:
        """Return whether an earlier transaction, whose commit got no answer, was committed. This
        waits until the earlier transaction has ended.
        """
        # Take the locks of the earlier transaction first. The server frees these locks when the
        # earlier transaction has ended.
        if earlier.witness is None:
            return False
        for number in earlier.locks:
            self.lock(number)
        statement, parameters = earlier.witness
        rows = self.ask(statement, *parameters)
        if not rows:
            return False
        [(its_number,)] = rows
        if earlier._positions.number is None:
            earlier._positions.number = its_number
        return True

    @property
    def assumes(self) -> bool:
        """Whether an error may come from a wrong assumption, and not from the work."""
        return self._unchecked or self._guessed_keys

    def commit(self) -> None:
        """Make the transaction durable. Raises ``CommitInDoubt`` if the commit was sent but not
        confirmed.

        A commit without writes waits for the standby too, because the standby may lack rows that
        the transaction has read. For example, an earlier attempt wrote these rows, or the primary
        was restarted after a crash and shows rows that no standby has confirmed. After the commit,
        these rows are durable.
        """
        self.check_unused()
        if not self._begun:
            return
        try:
            if not self._wrote and self._durable:
                self._wire.queue("barrier")
            self._wire.queue("commit")
            self.stands = None  # a timeout or a signal may raise here
            self._commit()
            self.stands = True
        except FAILURES as error:
            self.stands = None if isinstance(error, CommitInDoubt) else False
            raise

    def check_unused(self) -> None:
        # The server checks that an idempotency key is new only when the key is written.
        if self._taken_for_new:
            raise StoreUnavailable(
                "the transaction assumed that an idempotency key is new, but did not write the key",
                kind="taken",
            )

    def settle(self) -> None:
        """Send the queued statements, and check their answers."""
        self._begin()
        if self._wire.has_queued:
            self._answers()

    def join(self, others: Sequence[OpenTransaction]) -> None:
        """Commit the writes of other transactions on the same connection too."""
        self._begun = self._begun or any(other._begun for other in others)
        self._wrote = self._wrote or any(other._wrote for other in others)

    def _commit(self) -> None:
        """Commit. Raises ``CommitInDoubt`` if the commit may be lost, or may have happened although
        its answer was lost.
        """
        try:
            answers = self._answers()
        except ConnectionLost as error:
            raise CommitInDoubt(str(error)) from error
        if answers[-1].command_status != b"COMMIT":
            raise StoreRefused(
                "a statement of this transaction failed, but the work ignored the error; nothing"
                " was written; repeat the write",
                kind="refused",
            )
        if self._durable and self._wire.warned:
            # If an administrator cancels the wait for the standby, the server warns, but still
            # reports success.
            raise CommitInDoubt("the commit is on the primary, but no standby has confirmed it")

    def _begin(self) -> None:
        if not self._begun and self.is_joined:
            self._begun = True
        if not self._begun:
            self._begun = True
            self._wire.queue("begin_writing")
            if self._durability:
                self._wire.queue(self._durability)
            if self._at_once:
                self._wire.queue("begin_at_once")

    def _answers(self) -> Sequence[PGresult]:
        """Return the answers to the queued statements. Raises ``TooSlow`` if the server ended the
        transaction because it was idle for too long.
        """
        limit_s = self._wire.idle_in_transaction_s
        if self._answered_at:
            idle_s = time.monotonic() - self._answered_at
        else:
            idle_s = 0.0
        try:
            answers = self._wire.ask()
        except ConnectionLost as error:
            if not 0 < limit_s <= idle_s:
                raise
            raise TooSlow(
                f"{error}: a guard or an inline projection ran for {idle_s:.0f} s within the"
                f" transaction, and the server ends a transaction that is idle for {limit_s:g} s"
                " (idle_in_transaction_session_timeout); do the slow work before the append"
            ) from error
        self._answered_at = time.monotonic()
        if self._number_asked is not None and self._positions.number is None:
            [(self._positions.number,)] = self._wire.rows(answers[self._number_asked])
        self._unchecked = False
        return answers

    def write(self, statement: str, *parameters: Parameter) -> None:
        self._begin()
        self._wrote = True
        self.writes += 1
        self._wire.queue(statement, *parameters)

    def _set_witness(self, statement: str, *parameters: Parameter) -> None:
        """Make this query the witness, unless a better one is set. If the answer to the commit is
        lost, the witness finds out whether the transaction was committed.

        A query for an event's row is the best choice, because the row contains the transaction's
        number and survives a rekey. If the transaction writes no event, the query looks for the
        last written row, because later writes may replace earlier rows.
        """
        if self.witness is None or self.witness[0] != OF_EVENTS:
            self.witness = (statement, parameters)

    def _ask_for_number(self) -> None:
        """Check that this transaction's number is not lower than the number of the lock's previous
        holder. The check needs no further round trip. With a lower number, the transaction's events
        would get positions before the previous holder's events.
        """
        if self._number_asked is None:
            self._begin()
            self._number_asked = self._wire.queue("number")

    def _assign_positions(self) -> Positions:
        if self._positions.number is None:
            self._ask_for_number()
            self._answers()
        return self._positions

    def _lock_on(self, kind: bytes, *names: bytes) -> None:
        salt = blake2b(self._schema, digest_size=8).digest()
        digests = (blake2b(name, digest_size=8, key=kind, salt=salt).digest() for name in names)
        for number in sorted(
            {int.from_bytes(digest, signed=True) for digest in digests}.difference(self.locks)
        ):
            self.lock(number)


class Call(Generic[T]):
    """One call of ``transact``, whose work may need several attempts."""

    def __init__(self, work: Callable[[Any], T]) -> None:
        self._work = work
        self._doubt: tuple[T, OpenTransaction] | None = None
        """The result and the transaction of an attempt whose commit got no answer."""
        self._is_in_doubt = False
        self._newest: OpenTransaction | None = None
        self._too_slow: TooSlow | None = None
        self._met = False
        """Whether ``may_have_met_itself`` has returned True. A second refusal is not explained by
        the earlier attempt.
        """
        self._locks: Sequence[int] = ()
        """The locks that a rolled back attempt held or waited for. The next attempt takes these
        locks first, in a fixed order. The fixed order prevents a second deadlock.
        """

    @property
    def outcome(self) -> str:
        """What is known about the writes, for the message of an error."""
        if self._doubt is None:
            return "nothing was written"
        return (
            "it is not known whether the events were written: append them again with the same"
            " idempotency key"
        )

    def note_on(self, error: BaseException) -> None:
        """Add a note about the writes to an exception that interrupts the call."""
        # The messages of foldlog's own errors already say whether the writes are stored.
        if isinstance(error, FAILURES):
            return
        stands = False if self._newest is None else self._newest.stands
        if stands:
            note_committed(error)
        elif stands is None or self._is_in_doubt:
            error.add_note(
                "foldlog: this exception interrupted a commit, and it is not known whether its"
                " events are written; append them again with the same idempotency key, or read"
                " the conversation"
            )

    def attempt(self, begin: Callable[[bool], OpenTransaction]) -> T:
        """Begin a transaction with ``begin``, and run the work in it. The first transaction may
        assume the state that the work expects. If the state was different, the work runs again in a
        transaction without assumptions.
        """
        if self._doubt is not None:
            result, earlier = self._doubt
            transaction = begin(False)
            if transaction.was_committed(earlier):
                self._newest = earlier
                transaction.commit()
                earlier.stands = True
                return result
            self._is_in_doubt = False
            self._newest = None
            if self._too_slow is not None:
                raise _not_written(self._too_slow)
            return self._run(transaction)
        transaction = begin(True)
        try:
            return self._run(transaction)
        except (ConnectionLost, TryAgain):
            raise
        except Exception:
            # If the transaction has assumed a state, the error may come from a wrong assumption,
            # even if the error is a conflict. The work then runs again without assumptions. If
            # ``stands`` is None, an exception from outside interrupted the commit, and the events
            # may be written.
            if transaction.stands is None or not transaction.assumes:
                raise
        return self._run(begin(False))

    def _run(self, transaction: OpenTransaction) -> T:
        """Run the work in a transaction and commit it, with the locks of the last attempt taken
        first.
        """
        for number in sorted(set(self._locks).difference(transaction.locks)):
            transaction.lock(number)
        self._newest = transaction
        try:
            result = self._work(transaction)
            try:
                transaction.commit()
            except CommitInDoubt as error:
                self._doubt = (result, transaction)
                self._is_in_doubt = True
                if isinstance(error.__cause__, TooSlow):
                    self._too_slow = error.__cause__
                raise
        except TryAgain as error:
            self._locks = error.locks = transaction.locks
            raise
        except TooSlow as error:
            raise _not_written(error) from error  # another attempt would be as slow
        return result

    def may_have_met_itself(self) -> bool:
        """Return whether the server may have refused this attempt because an earlier attempt was
        committed in the meantime.
        """
        met = self._met
        self._met = self._doubt is not None
        return self._met and not met


def _not_written(error: TooSlow) -> StoreUnavailable:
    return StoreUnavailable(f"{error}; nothing was written", kind=error.kind)
