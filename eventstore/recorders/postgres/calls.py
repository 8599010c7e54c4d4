"""The attempts of one call: how long they go on, and commits without an answer among them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.errors import OperationalError, RecorderError
from foldlog.eventstore.recorders.group_commit import note_committed
from foldlog.eventstore.recorders.postgres.faults import ConnectionLost, TryAgain
from foldlog.eventstore.recorders.postgres.open_transaction import CommitInDoubt, TooSlow
from foldlog.eventstore.recorders.postgres.writing import PostgresTransaction

T = TypeVar("T")

_PAUSE_FIRST_S: Final = 0.02
_PAUSE_MAX_S: Final = 1.0


class Patience:
    """Wait for a server that is unreachable: a little longer each time, at random, until ``total_s`` have passed since
    the first wait.
    """

    def __init__(self, total_s: float) -> None:
        self.total_s = total_s
        self._ends: float | None = None
        self._pause_s = _PAUSE_FIRST_S

    def wait(self) -> bool:
        """Return False at once when the time is over."""
        now = time.monotonic()
        if self._ends is None:
            self._ends = now + self.total_s
        if now >= self._ends:
            return False
        time.sleep(min(self._pause_s * random.uniform(0.5, 1.5), self._ends - now))
        self._pause_s = min(2 * self._pause_s, _PAUSE_MAX_S)
        return True


class _Doubt(NamedTuple, Generic[T]):
    """A commit without an answer: the result of its work, and the transaction that can find out the outcome."""

    result: T
    transaction: PostgresTransaction


class Call(Generic[T]):
    """One call of ``transact`` over all its attempts."""

    def __init__(self, work: Callable[[Transaction], T]) -> None:
        self._work = work
        self._doubt: _Doubt[T] | None = None
        self._is_in_doubt = False
        self._newest: PostgresTransaction | None = None
        self._too_slow: TooSlow | None = None
        self._met = False
        self._locks: Sequence[int] = ()
        """The locks of an attempt that was rolled back. The next attempt takes all of them first, in one order, so that
        two calls that need each other's locks do not deadlock again.
        """

    @property
    def outcome(self) -> str:
        if self._doubt is None:
            return "nothing was written"
        return "whether it was written is not known: write it again with the same idempotency key to find out"

    def note_on(self, error: BaseException) -> None:
        """Add to an exception from outside that ended the call, such as a timeout, whether the writes of the call are
        stored. Our own errors say so themselves.
        """
        if isinstance(error, RecorderError):
            return
        stands = False if self._newest is None else self._newest.stands
        if stands:
            note_committed(error)
        elif stands is None or self._is_in_doubt:
            error.add_note(
                "foldlog: this interrupted a commit, and whether its events are written is not known; "
                "append them again with the same idempotency key, or read the conversation"
            )

    def attempt(self, begin: Callable[[bool], PostgresTransaction]) -> T:
        """Run the work in a transaction that ``begin`` makes and that may assume what the work expects; if that was
        wrong, run it again in one that assumes nothing.
        """
        doubt = self._doubt
        if doubt is not None:
            transaction = begin(False)
            if transaction.finds(doubt.transaction):
                self._newest = doubt.transaction
                transaction.commit()
                doubt.transaction.stands = True
                return doubt.result
            self._is_in_doubt, self._newest = False, None
            if self._too_slow is not None:
                raise _not_written(self._too_slow)
            return self._run(transaction)
        transaction = begin(True)
        try:
            return self._run(transaction)
        except (ConnectionLost, TryAgain):
            raise
        except Exception:
            # Any error, also a conflict that the work found: it may be caused by a wrong guess.
            if not transaction.assumes:
                raise
        return self._run(begin(False))

    def _run(self, transaction: PostgresTransaction) -> T:
        for number in sorted(set(self._locks).difference(transaction.locks)):
            transaction.lock(number)
        self._newest = transaction
        try:
            result = self._work(transaction)
            self._commit(transaction, result)
        except TryAgain as error:
            self._locks = error.locks = transaction.locks
            raise
        except TooSlow as error:
            raise _not_written(error) from error  # the next attempt would be as slow
        return result

    def _commit(self, transaction: PostgresTransaction, result: T) -> None:
        try:
            transaction.commit()
        except CommitInDoubt as error:
            self._doubt, self._is_in_doubt = _Doubt(result, transaction), True
            if isinstance(error.__cause__, TooSlow):
                self._too_slow = error.__cause__
            raise

    def may_have_met_itself(self) -> bool:
        """Return whether an earlier attempt, which ended only now, may be the reason why this attempt was refused."""
        met, self._met = self._met, self._doubt is not None
        return self._met and not met


def _not_written(error: TooSlow) -> OperationalError:
    return OperationalError(f"{error}; nothing was written")
