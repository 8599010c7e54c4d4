"""This module counts events by kind, tool and day, and condensations by strategy."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from foldlog._base.json_types import JsonMap
from foldlog._reports.answers.figures import CondensationsDocument, ToolDocument
from foldlog._reports.figures.overview import begun_in, is_about_it, is_placed
from foldlog._reports.figures.savings import is_made, recorded_cost
from foldlog._reports.figures.spending import sum_up
from foldlog._reports.figures.tools_of_replies import NO_NAME
from foldlog._reports.words.times import read_with_format, time_of_event
from foldlog.condensers import Usage, reports_of
from foldlog.eventstore import Action, Annotation, CondensationAction, Event, Message, Observation
from foldlog.eventstore.events import is_structural
from foldlog.eventstore.times import EventTime, in_utc
from foldlog.eventstore.usage import PLACED_FROM
from foldlog.formats.event_places import is_declined
from foldlog.formats.model_calls import is_call
from foldlog.formats.record import dicts_in
from foldlog.formats.skeleton import ENDS_WITH, beginning_of, state_after
from foldlog.formats.summed_calls import NO_DAY
from foldlog.projections import begins_reply, words_of
from foldlog.projections.conversations.labels import label


class Counts(Struct):
    """The counts of the events of a conversation, or of several conversations.

    ``events``              events by label
    ``days``                events by day, in UTC, or in local time if the source names no zone;
                            without events about the history: see ``is_about_it``
    ``first_at``,
    ``last_at``             the times of the first and the last event, in UTC or local like the days
    ``longest_wait_s``      the longest time, in seconds, before an event that a model or a tool
                            made
    ``unmarked``            the number of conversations from sources that mark no errors
    ``waiting``             maps the ids of calls without a result to the tools of the calls; calls
                            without an id are under the empty text
    ``is_awaited``          whether a call of the View has no result, and the model was not asked
                            again without this result
    ``reached``             the time of the last counted event
    ``last``                the kind of the last event: see ``state``
    ``first_error``         the beginning of the text of the first error
    ``first_error_at``      the time of the first error
    ``begun``               the ids of the sub-agents that the conversation began
    ``findings``            problems of events that could not be read; no other count includes them
    """

    conversations: int = 0
    events: dict[str, int] = {}
    tools: dict[str, ToolDocument] = {}
    condensations: dict[str, CondensationsDocument] = {}
    days: dict[str, int] = {}
    first_at: EventTime | None = None
    last_at: EventTime | None = None
    longest_wait_s: float | None = None
    unmarked: int = 0
    waiting: dict[str, list[str]] = {}
    is_awaited: bool = False
    reached: EventTime | None = None
    last: str | None = None
    first_error: str | None = None
    first_error_at: EventTime | None = None
    begun: list[str] = []
    findings: list[str] = []

    @property
    def state(self) -> str | None:
        """The state is ``open_call`` if a call has no result, and the model was not asked again
        without this result. Otherwise the state names the last event: ``error`` or ``result`` of a
        call, ``refused`` if a person refused a call, ``answer`` of the agent, or ``request`` of a
        user. Before the first of these events, the state is None.
        """
        return "open_call" if self.is_awaited else self.last

    @property
    def errors(self) -> int | None:
        """The number of errors, or None if no source marks errors."""
        errors = self.events.get("error", 0)
        is_unknown = not errors and 0 < self.unmarked >= self.conversations
        return None if is_unknown else errors

    def _note_time(self, at: EventTime | None) -> None:
        if at is not None:
            self.first_at = min(self.first_at or at, at, key=in_utc)
            self.last_at = max(self.last_at or at, at, key=in_utc)

    def _close_call(self, result: Observation) -> str:
        """Remove the call of a result from the waiting calls, and return the call's tool, or an
        empty text if no call waits. A result with an id answers the newest call with this id.
        """
        call_id = result.call_id or ""
        tools = self.waiting.get(call_id, [""])
        tool = tools.pop(-1 if call_id else 0)
        if not tools:
            self.waiting.pop(call_id, None)
        return tool

    def count(self, recorded_at: datetime, event: Event) -> None:
        """Count an event. The events of a conversation must be counted in their order."""
        if is_placed(event):
            self._count_placed(event)
            return
        kind = label(event)
        self.events[kind] = self.events.get(kind, 0) + 1
        if not is_about_it(event):
            self._count_day(recorded_at, event)
        if is_call(event):
            self._count_call(event)
        elif type(event) is Observation:
            self._count_result(event, time_of_event(event, recorded_at))
        elif type(event) is Message and event.shown and event.source in ENDS_WITH:
            self.last = ENDS_WITH[event.source]
        elif type(event) is CondensationAction:
            self._count_condensation_event(event)
        elif type(event) is Annotation:
            if (child := begun_in(event)) is not None:
                self.begun.append(child)
            for report in dicts_in(reports_of(event)):
                if "failure" in report:
                    self._count_failure(report, NO_NAME)
        if not _marks_errors(event):
            self.unmarked = 1

    def _count_placed(self, event: Event) -> None:
        """Close the call of a result that an import moved behind its call. The result itself was
        counted where the source has it, before its call began to wait.
        """
        if isinstance(event, Observation) and event.meta[PLACED_FROM] is not None:
            self._close_call(event)

    def _count_day(self, recorded_at: datetime, event: Event) -> None:
        """Count the day of an event. If the event has a time of its own, also note the time, and
        the wait for a model or a tool before it.
        """
        at = time_of_event(event, recorded_at)
        day = NO_DAY if at is None else at.date().isoformat()
        self.days[day] = self.days.get(day, 0) + 1
        if at is None or is_structural(event):
            return
        self._note_time(at)
        if self.reached is not None and is_waited_for(event):
            self.longest_wait_s = max(self.longest_wait_s or 0.0, seconds_between(self.reached, at))
        self.reached = at

    def _count_call(self, call: Action) -> None:
        """Count a call of a tool, which waits for its result from now on."""
        name = call.tool or NO_NAME
        sum_up(self.tools, {name: ToolDocument(calls=1)})
        self.waiting.setdefault(call.call_id or "", []).append(call.tool)

    def _count_result(self, result: Observation, at: EventTime | None) -> None:
        """Close the call of a result. Count an error, but not the refusal of a person."""
        called = self._close_call(result)
        is_refused = label(result) == "refused"
        self.last = state_after(called, failed=result.is_error, refused=is_refused)
        if result.is_error and not is_refused:
            if self.first_error is None:
                self.first_error = beginning_of(words_of(result.content))
                self.first_error_at = at
            sum_up(self.tools, {result.tool or called or NO_NAME: ToolDocument(errors=1)})

    def _count_condensation_event(self, event: CondensationAction) -> None:
        """Count a condensation that was made or declined, and the failed calls of the condenser in
        whose place a digest condensed.
        """
        is_carried_out = is_made(event)
        was_declined = is_declined(event)
        if not (is_carried_out or was_declined):
            return
        cost = recorded_cost(event)
        if instead_of := event.metadata.get("instead_of"):
            # The calls that failed are not the digest's, which took the place of their summary.
            reports = dicts_in(reports_of(event))
            cost = Usage.of(report for report in reports if "failure" not in report).cost
            for report in reports:
                if "failure" in report:
                    self._count_failure(report, str(instead_of))
        self._count_condensation(
            strategy_of(event), cost, made=int(is_carried_out), declined=int(was_declined)
        )

    def _count_failure(self, report: JsonMap, strategy: str) -> None:
        name = str(report.get("condenser") or strategy)
        self._count_condensation(name, Usage.of([report]).cost, failed=1)

    def _count_condensation(self, strategy: str, cost: float | None, **outcome: int) -> None:
        sum_up(self.condensations, {strategy: CondensationsDocument(cost=cost, **outcome)})


def is_waited_for(event: Event) -> bool:
    """Return whether a model or a tool made the event, so that the time before it is a wait."""
    return isinstance(event, Observation) or begins_reply(event)


def seconds_between(first: EventTime, last: EventTime) -> float:
    return (in_utc(last) - in_utc(first)).total_seconds()


def _marks_errors(event: Event) -> bool:
    """Return whether the source of an event marks errors. Recorded events and unknown formats count
    as if it did.
    """
    if event.origin is None or not isinstance(event, Observation | Message):
        return True
    if isinstance(event, Observation) and "exit_code" in event.extras:
        return True
    return read_with_format(event.origin.format, lambda known: known.marks_errors) is not False


def strategy_of(event: CondensationAction) -> str:
    """Return the name of the condenser that made a condensation, or else of its format."""
    name = event.metadata.get("condenser")
    if isinstance(name, str) and name:
        return name
    if event.origin is None:
        return NO_NAME
    return f"{event.origin.format} ({NO_NAME[1:-1]})"
