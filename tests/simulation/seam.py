"""A recorder that injects faults: it stands before the real recorder, and can stop at every
transaction and every statement.

A killed process stays dead. Whatever it calls afterwards, in a ``finally`` or a handler, raises
``Killed`` again, so it writes nothing more. What the real recorder has committed stays.
"""

from contextlib import contextmanager

from foldlog.eventstore.errors import StoreUnavailable
from foldlog.eventstore.recorders.base import Recorder, makes_missing_events
from foldlog.eventstore.recorders.errors import NOTHING_WRITTEN


class Killed(BaseException):
    """The process was killed here."""


class Seam:
    """A recorder in front of another one. It calls ``at_transaction`` before each transaction and
    each query.
    """

    on_missing = None
    make = Recorder.make

    def __init__(self, recorder, *, shared):
        self.inner = recorder
        self.path = recorder.path
        self.on_server = recorder.on_server
        self.writable = recorder.writable
        self._shared = shared
        self.dead = False
        self.arm()

    @property
    def __class__(self):
        """The class of the real recorder, so that ``isinstance`` says the same of both."""
        return self.inner.__class__

    def arm(self, kill_at=0, refuse_at=0, at_transaction=None):
        """Count from 1 again: kill the process before a statement or at the end of a commit, or
        refuse a transaction, as a full disk does. 0 means never.
        """
        self.kill_at = kill_at
        self.refuse_at = refuse_at
        self.at_transaction = at_transaction
        self.statements = self.transactions = self.commits = 0

    def count_statement(self):
        if self.dead:
            raise Killed
        self.statements += 1
        if self.statements == self.kill_at:
            self.dead = True
            raise Killed

    def _begin(self):
        if self.dead:
            raise Killed
        if self.at_transaction is not None:
            self.at_transaction()

    @makes_missing_events
    def transact(self, work, *, any_thread=False, at_once=False, durable=True):
        self._begin()
        self.transactions += 1
        if self.transactions == self.refuse_at:
            raise StoreUnavailable(
                f"the disk of the simulation is full{NOTHING_WRITTEN}", kind="full"
            )
        if not self.kill_at:
            result = self.inner.transact(work, any_thread=any_thread)
            self.commits += 1
            return result
        self.count_statement()
        result = self.inner.transact(lambda transaction: work(_Statements(transaction, self)))  # type: ignore[arg-type]
        self.commits += 1
        self.count_statement()
        return result

    def offer(self, work, *, at_once=True):
        return Recorder.offer(self, work, at_once=at_once)  # type: ignore[arg-type]

    def transact_all(self, works):
        self._begin()
        outcomes = self.inner.transact_all(works)
        self.commits += 1
        return outcomes

    @contextmanager
    def read(self):
        self._begin()
        with self.inner.read() as reader:
            yield reader

    @makes_missing_events
    def query(self, work):
        self._begin()
        return self.inner.query(work)

    def compact(self, patience_s):
        self._begin()
        return self.inner.compact(patience_s)

    @property
    def on_copy(self):
        return self.inner.on_copy

    @on_copy.setter
    def on_copy(self, call):
        self.inner.on_copy = call

    def close(self):
        if not self._shared:
            self.inner.close()

    def __getattr__(self, name):
        if self.__dict__.get("dead"):
            raise Killed
        return getattr(self.__dict__["inner"], name)


class _Statements:
    """A transaction that may be killed before each of its statements."""

    def __init__(self, transaction, seam):
        self._transaction = transaction
        self._seam = seam

    def __getattr__(self, name):
        self._seam.count_statement()
        return getattr(self._transaction, name)
