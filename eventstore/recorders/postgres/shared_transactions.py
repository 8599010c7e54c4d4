"""Let threads that append to the same conversation share a transaction. If each thread had its own
transaction, it would wait for the lock of the previous thread.

One thread at a time is the leader of a conversation. The first leader runs only its own job, and
the jobs of other threads wait. When a leader ends, the thread that has waited longest becomes the
next leader. The next leader runs all waiting jobs in their order in one transaction, so one commit
is enough for these jobs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from foldlog.eventstore.recorders.types import Outcome

T = TypeVar("T")

_SHARING_MAX: Final = 100
"""The maximal number of jobs in one transaction. A job waits for the end of all jobs in its
transaction.
"""

Work = Callable[[Any], Any]


class _Job:
    """The work of one thread. ``turn`` wakes the thread when its work is done, or when it leads the
    jobs in ``group``.
    """

    def __init__(self, work: Work) -> None:
        self.work = work
        self.turn = threading.Semaphore(0)
        self.group: Sequence[_Job] = (self,)
        self.outcome: Outcome[Any] | None = None


class Sharing:
    """The waiting jobs, grouped by conversation. A conversation is in the map while a leader runs
    its jobs.
    """

    def __init__(self, run: Callable[[Work], Any]) -> None:
        self._run = run
        self._mutex = threading.Lock()
        self._waiting: dict[str, list[_Job]] = {}

    def run(self, conversation: str, work: Callable[[Any], T]) -> T:
        """Run a work on a conversation. Works on the same conversation that wait for each other
        share a transaction.

        Never call this in the main thread, which a signal may interrupt: if a waiting thread left,
        no thread would take the lead when its turn comes, and the conversation would hang.
        """
        job = _Job(work)
        with self._mutex:
            waiting = self._waiting.get(conversation)
            if waiting is None:
                self._waiting[conversation] = []
            else:
                waiting.append(job)
        if waiting is not None:
            job.turn.acquire()
        if job.outcome is None:
            self._lead(conversation, job)
        assert job.outcome is not None
        return job.outcome.unwrap()  # type: ignore[no-any-return]

    def _lead(self, conversation: str, job: _Job) -> None:
        """Run the group of a job, pass the lead on, and wake the threads of the group."""
        group = job.group
        try:
            outcomes = self._run_all(group)
        except Exception as error:  # noqa: BLE001 - each caller gets it
            outcomes = [Outcome(error=error)] * len(group)
        except BaseException:
            # Such as a SystemExit that a work raises: it ends only this thread. The jobs of the
            # other threads run again, each in its own transaction.
            for member in group[1:]:
                member.group = (member,)
                member.turn.release()
            raise
        finally:
            self._leave(conversation)
        for member, outcome in zip(group, outcomes, strict=True):
            member.outcome = outcome
            member.turn.release()

    def _leave(self, conversation: str) -> None:
        """Make the thread that has waited longest the next leader, or let the conversation go."""
        with self._mutex:
            waiting = self._waiting.pop(conversation, [])
            if not waiting:
                return
            group = waiting[:_SHARING_MAX]
            self._waiting[conversation] = waiting[_SHARING_MAX:]
        group[0].group = group
        group[0].turn.release()

    def _run_all(self, group: Sequence[_Job]) -> Sequence[Outcome[Any]]:
        """Run the jobs in one transaction. If one of them fails after a write, run each in its
        own.
        """
        works = [job.work for job in group]
        if len(works) > 1:
            try:
                return self._run(partial(_in_one_transaction, works))  # type: ignore[no-any-return]
            except _WroteAndFailed:
                pass
        return [Outcome.of(partial(self._run, work)) for work in works]


class _Counting(Protocol):
    """A transaction that counts its writes."""

    @property
    def writes(self) -> int: ...


class _WroteAndFailed(Exception):
    """A job failed after a write. The transaction is rolled back, and each job runs again in its
    own transaction.
    """


def _in_one_transaction(works: Sequence[Work], transaction: _Counting) -> list[Outcome[Any]]:
    """Run the works one after another, and return their outcomes. Raises ``_WroteAndFailed``.

    The error of a job may come from a wrong assumption of the transaction. The transaction has then
    failed, so the next job fails too, and all jobs run again in a transaction without assumptions.
    """
    outcomes = []
    for work in works:
        before = transaction.writes
        outcome = Outcome.of(partial(work, transaction))
        if outcome.error is not None:
            if not isinstance(outcome.error, Exception):
                raise outcome.error
            if transaction.writes != before:
                raise _WroteAndFailed
        outcomes.append(outcome)
    return outcomes
