"""Repeated failures to condense: each one raises an error, but few are recorded.

A step that must condense and cannot is declined. The first decline is an event of the log. It stands while it is the
newest condensation: the next step that fails in the same way raises the same error and appends no event. Otherwise a
model that is down for a day would leave one event for each step. The cost of the calls is added up, and recorded after
1, 2, 4, 8, … repeats in one report, or with the next condensation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from foldlog.condensers.base import Report
from foldlog.condensers.reports import Usage, is_standing
from foldlog.eventstore import CondensationAction, Event
from foldlog.projections import View


class Declines:
    """The decline of one conversation: whether it stands, and the cost since. Several threads may use one object: at
    worst a decline is recorded twice.
    """

    def __init__(self, condenser: str) -> None:
        self._condenser = condenser
        self._condensations: int | None = None
        self._times = 0
        self._spent = _Spent()

    def stands(self, view: View, lately: Iterable[Event]) -> bool:
        """Return whether the newest condensation of ``view`` is a decline. A decline from before this object is
        searched for in ``lately``.
        """
        if view.unhandled_condensation_request:
            return False
        if self._condensations is None:
            newest = next((e for e in reversed(list(lately)) if isinstance(e, CondensationAction)), None)
            told = {} if newest is None else newest.metadata
            if (told.get("outcome"), told.get("condenser")) != ("declined", self._condenser):
                return False
            self._condensations = len(view.condensations)
        return self._condensations == len(view.condensations)

    def recorded(self, view: View) -> None:
        """Remember that a decline was appended to ``view``."""
        self._condensations, self._times = len(view.condensations) + 1, 0

    def repeated(self, problem: str, reports: Iterable[Report]) -> tuple[Report, ...]:
        """Add up a further decline. Return the reports to record now: usually none."""
        self._times += 1
        self._spent.add(problem, reports)
        return self.unrecorded() if self._times & (self._times - 1) == 0 else ()

    def unrecorded(self) -> tuple[Report, ...]:
        """Return one report of the cost that is not recorded yet, if any. The sum then begins at zero."""
        spent, self._spent = self._spent, _Spent()
        if not spent.failures:
            return ()
        return ({"condenser": self._condenser, "outcome": "declined", "repeated": spent.times, **spent.report()},)


class _Spent:
    """The sum of several reports on calls of models."""

    def __init__(self) -> None:
        self.times = 0
        self.failures: Counter[str] = Counter()
        self._problem = ""
        self._usage = Usage()

    def add(self, problem: str, reports: Iterable[Report]) -> None:
        self.times += 1
        self._problem = problem
        for report in reports:
            if not is_standing(report):
                self.failures[str(report.get("failure", "unused"))] += 1
                if "metrics" in report:
                    self._usage.add(report["metrics"])

    def report(self) -> dict[str, Any]:
        (failure, _), *_ = self.failures.most_common(1)
        metrics = self._usage.metrics()
        return {"failure": failure, "problem": self._problem, "failures": dict(self.failures), "metrics": metrics}
