"""Count events by kind, tool and day, and condensations by strategy."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from foldlog._documents import CondensationsDocument, ToolDocument
from foldlog._formats.packing import is_declined
from foldlog._formats.record import dicts_in
from foldlog._kinds import label
from foldlog._reports.overview import is_about_it
from foldlog._reports.savings import is_made, recorded_cost
from foldlog._reports.spending import NO_DAY, sum_up
from foldlog._reports.usage import is_call
from foldlog._words.times import known_format, told_at
from foldlog.condensers import Usage, reports_of
from foldlog.eventstore import (
    Annotation,
    CondensationAction,
    Event,
    EventTime,
    Message,
    Observation,
    in_utc,
    is_structural,
)

NO_NAME = "(not named)"


class Counts(Struct):
    """Counts of the events of some conversations.

    ``events`` are counted by label, ``days`` by the day that they happened on: that of its source where the source
    names no zone, else that in UTC; ``first_at`` and ``last_at`` are told like that too. What ``is_about_it`` says is
    on no day. ``marked`` are results of which is known whether they are errors. ``unmarked`` are those of sources that
    mark none, and ``words`` what users said there, which may be one; of several conversations the words count among
    them where one has no other results. ``findings`` name events that could not be read: they are not counted.
    ``waiting`` are the tools of a conversation's calls without a result, in order, by their ids: of sources whose
    results do not name them.
    """

    conversations: int = 0
    events: dict[str, int] = {}
    tools: dict[str, ToolDocument] = {}
    condensations: dict[str, CondensationsDocument] = {}
    days: dict[str, int] = {}
    first_at: EventTime | None = None
    last_at: EventTime | None = None
    marked: int = 0
    unmarked: int = 0
    words: int = 0
    waiting: dict[str, list[str]] = {}
    findings: list[str] = []

    @property
    def errors(self) -> int | None:
        """Observations that are errors; None where no source says which are."""
        errors = self.events.get("error", 0)
        return None if self.unmarked + self.words and not self.marked and not errors else errors

    def add(self, other: Counts) -> None:
        """Add the figures of other conversations."""
        self.conversations += other.conversations
        self.findings += other.findings
        self.marked += other.marked
        self.unmarked += other.unmarked + (other.words if other.errors is None else 0)
        if other.errors is None:
            other = replace(other, tools={name: replace(one, unmarked=one.calls) for name, one in other.tools.items()})
        for name in ("events", "tools", "condensations", "days"):
            sum_up(getattr(self, name), getattr(other, name))
        self._happened(other.first_at)
        self._happened(other.last_at)

    def _happened(self, at: EventTime | None) -> None:
        if at is not None:
            self.first_at = min(self.first_at or at, at, key=in_utc)
            self.last_at = max(self.last_at or at, at, key=in_utc)

    def _answered(self, event: Observation) -> str:
        """Return the tool of the call that a result answers: of those with its id the newest; without an id the first
        without one.
        """
        same = self.waiting.get(event.call_id or "", [""])
        tool = same.pop(-1 if event.call_id else 0)
        if not same:
            self.waiting.pop(event.call_id or "", None)
        return tool

    def count(self, recorded_at: datetime, event: Event) -> None:
        """Count the next event of a conversation."""
        kind = label(event)
        self.events[kind] = self.events.get(kind, 0) + 1
        if not is_about_it(event):
            at = told_at(event, recorded_at)
            day = NO_DAY if at is None else at.date().isoformat()
            self.days[day] = self.days.get(day, 0) + 1
            if not is_structural(event):
                self._happened(at)
        if is_call(event):
            one = self.tools.get(event.tool or NO_NAME) or ToolDocument()
            self.tools[event.tool or NO_NAME] = replace(one, calls=one.calls + 1)
            self.waiting.setdefault(event.call_id or "", []).append(event.tool)
            return
        tool = self._answered(event) if type(event) is Observation else ""
        if type(event) is Observation and event.is_error:
            sum_up(self.tools, {event.tool or tool or NO_NAME: ToolDocument(errors=1)})
        elif type(event) is Observation or (type(event) is Message and event.source != "agent"):
            of, ends = event.origin, type(event) is Observation and "exit_code" in event.extras
            if of is None or ends or known_format(of.format, lambda one: one.marks_errors) is not False:
                self.marked += kind != "user"
            elif type(event) is Observation:
                self.unmarked += 1
                if (name := event.tool or tool) in self.tools:  # not so where the call is a copy
                    sum_up(self.tools, {name: ToolDocument(unmarked=1)})
            else:
                self.words += 1
        elif type(event) is CondensationAction:
            made, declined = is_made(event), is_declined(event)
            if made or declined:
                self._condensed(strategy_of(event), recorded_cost(event), made=int(made), declined=int(declined))
        elif type(event) is Annotation:
            for report in dicts_in(reports_of(event)):
                if "failure" in report:
                    self._condensed(str(report.get("condenser") or NO_NAME), Usage.of([report]).cost, failed=1)

    def _condensed(self, strategy: str, cost: float | None, **outcome: int) -> None:
        counted = CondensationsDocument(cost=cost, costs_recorded=int(cost is not None), **outcome)
        sum_up(self.condensations, {strategy: counted})


def strategy_of(event: CondensationAction) -> str:
    """Return the strategy that a condensation names, or the format that it was imported from."""
    named = event.metadata.get("condenser")
    if isinstance(named, str) and named:
        return named
    return NO_NAME if event.origin is None else f"{event.origin.format} ({NO_NAME[1:-1]})"
