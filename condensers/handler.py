"""The command handler of condensers: it reads a View, lets a condenser decide, and appends the
decision. Other writers never wait for a model, so they may append events while a condenser asks its
model.

The handler checks each plan of a condenser against the newest View, without a second model call. A
plan stays valid while the newest View shows the events to forget, and while these events may be
forgotten. The handler drops and reports a plan that is no longer valid, and the condenser plans
again.

See docs/internals/decisions/0054-plans-under-contention.md and
docs/internals/decisions/0058-declines-are-recorded-once.md.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace as with_field
from functools import lru_cache, partial
from typing import Any

from msgspec.structs import replace

from foldlog._base.json_types import JsonMap
from foldlog._base.telemetry import has_receiver, measure, span, tell
from foldlog.condensers import stepping
from foldlog.condensers.base import AgentModel, Condensation, Condenser, Report, Step
from foldlog.condensers.errors import InvalidCondenser, NoCondensationAvailable
from foldlog.condensers.models.estimate import ESTIMATE, counting, tokens_of
from foldlog.condensers.reports import (
    ASK_AGAIN_AT,
    CONDENSER_METADATA_KEY,
    DOUBTFUL,
    RULES_COUNT_FOR,
    Usage,
    annotation,
    ask_again_in,
    cost_something,
    failures_in,
    is_standing,
    newest_rules,
    reports_of,
    tell_of_failures,
    with_reports,
)
from foldlog.condensers.rolling import ModelUse, model_use
from foldlog.condensers.selection import ids_named, without_kept
from foldlog.eventstore import (
    ANY_VERSION,
    NOT_RECORDED,
    CondensationAction,
    Event,
    ReadTransaction,
    Recorded,
    Retraction,
    Store,
    VersionConflict,
)
from foldlog.eventstore.log.finding import Fence
from foldlog.projections import View, Views
from foldlog.projections.call_states import begun_among

_WAIT = 20
_WAIT_MAX = 240
"""After a failure of its model, a soft condensation waits for ``_WAIT`` events. Each further
failure doubles the wait, up to ``_WAIT_MAX``.
"""
_WAIT_READ = 2 * _WAIT_MAX
"""How many of the newest events are searched for a failure. After a longer time without one, the
next wait is short again.
"""

Append = Callable[..., tuple[Recorded, ...]]
"""``Store.append``, bound to a conversation."""


class CondenseHandler:
    """Condenses the conversations of a store. Many threads and many handlers may condense at the
    same time.

    The View must fit into the input limit of ``agent_llm``. Without ``agent_llm``, the handler
    counts events. If the condenser has a token limit, the handler also estimates tokens.
    """

    def __init__(
        self, store: Store, views: Views, condenser: Condenser, agent_llm: AgentModel | None = None
    ) -> None:
        self._store, self._views, self._agent_llm = store, views, counting(agent_llm)
        self._unbound_condenser = condenser
        self._condenser = condenser.for_agent(agent_llm)
        # After an erasure, a new conversation may have the id of the erased conversation, but not
        # its key.
        self._remembered = lru_cache(_CONVERSATIONS_REMEMBERED)(
            lambda conversation, key: Remembered(conversation)
        )

    def with_agent(self, agent_llm: AgentModel) -> CondenseHandler:
        """Return a handler with another model for the agent. Both handlers share their notes on
        conversations: see ``Remembered``.
        """
        handler = CondenseHandler(self._store, self._views, self._unbound_condenser, agent_llm)
        handler._remembered = self._remembered
        return handler

    def reading(self, store: Store, views: Views) -> CondenseHandler:
        """Return a handler that uses another store and its views. Both handlers share their notes
        on conversations: see ``Remembered``.
        """
        handler = copy(self)
        handler._store = store
        handler._views = views
        return handler

    def handle(self, conversation: str, fence: Fence | None = None) -> View | Condensation:
        """Take a step. The result is the View that the agent uses next, or a condensation that is
        already appended. After a condensation, call ``handle`` again.

        A step without a condensation appends its reports as an ``Annotation``. A report on a rule,
        such as a mask, is the same in every step, so it is not appended every time. If a model
        fails and the condensation can wait, the handler asks the model again some events later: see
        ``Remembered``.

        Raises ``NoCondensationAvailable`` if a condensation is required and impossible. Before
        ``handle`` raises ``NoCondensationAvailable``, it appends a condensation with the outcome
        ``declined``. The declined condensation closes the request, so the next step can go on. If
        the prompt is still too long then, the next step raises ``NoCondensationAvailable`` again.
        This next step appends only the reports on calls that cost something. ``handle`` also raises
        the errors of the store. ``fence`` is passed to ``Store.append``. When the method
        returns, the appended events are on disk. Cost: a step reads the View and runs the
        condenser.
        """
        with span("foldlog.condense", conversation=conversation) as attributes:
            result = self._handle(conversation, fence)
            attributes["condensed"] = isinstance(result, Condensation)
            if isinstance(result, View):
                measure(
                    "foldlog.view",
                    events=len(result),
                    tokens=partial(tokens_of, result, self._agent_llm),
                )
            return result

    def _handle(self, conversation: str, fence: Fence | None) -> View | Condensation:
        """Take the step of ``handle``. The step is taken again as long as newer events make its
        plan invalid.
        """
        append = partial(self._store.append, conversation, fence=fence)
        while True:
            started = time.perf_counter()
            view = self._views.current(conversation)
            if attempted := begun_among(self._store, conversation, view.open_calls):
                view = with_field(view, kept=attempted)
            remembered = self.remembered(conversation)
            if self._condenser.asks_a_model:
                remembered.read_wait(self._store, view)
            former_use = model_use.set(remembered.model_use(view))
            try:
                result, reports = self._preview(conversation, view)
            except NoCondensationAvailable as error:
                tell_of_failures(conversation, self._condenser.type, error.reports)
                error.may_go_on = self._may_go_on(view, error)
                if self._append_declined(conversation, append, view, error):
                    raise
                continue
            finally:
                model_use.reset(former_use)
            if isinstance(result, View):
                if (
                    newest_view := self._append_reports(
                        conversation, append, result, reports, remembered
                    )
                ) is not None:
                    return newest_view
                continue
            planned = remembered.with_wait(result.action, view.version)
            try:
                action = self._append(conversation, append, view, planned)
            except NoCondensationAvailable as error:
                self._drop(conversation, append, planned, view.version, str(error))
            else:
                remembered.note_condensation(action)
                self._tell_made(
                    conversation, view, result.action, action, time.perf_counter() - started
                )
                return Condensation(action)

    def remembered(self, conversation: str) -> Remembered:
        """Return the notes on a conversation."""
        binding = self._store.database.binding
        return self._remembered(conversation, None if binding is None else binding.key)

    def check_handles_requests(self) -> None:
        """Raise ``InvalidCondenser`` if the condenser does not handle condensation requests."""
        if not self._condenser.handles_condensation_requests():
            raise InvalidCondenser(
                f"Cannot condense conversation: the condenser {self._condenser.type!r} does not"
                " handle condensation requests; choose a condenser that does, such as 'digest',"
                " or a pipeline with such a condenser"
            )

    def preview(self, view: View) -> Step:
        """Return the step over ``view`` without appending anything. If the condenser needs a model,
        the preview asks the model.

        Raises the errors of ``stepping.step`` and of the condenser. Cost: a preview runs the
        condenser.
        """
        return stepping.step(self._condenser, view, self._agent_llm)

    def _preview(self, conversation: str, view: View) -> Step:
        """Return the step over ``view``. An error of the condenser gets a note with the names of
        the condenser and the conversation.
        """
        try:
            return self.preview(view)
        except NoCondensationAvailable:
            raise
        except Exception as error:
            error.add_note(
                f"while the condenser {self._condenser.type!r} condensed conversation"
                f" {conversation!r}"
            )
            raise

    def _append(
        self, conversation: str, append: Append, view: View, action: CondensationAction
    ) -> CondensationAction:
        """Append the condensation ``action``, which was planned for ``view``, and return it as it
        was recorded. Raises ``NoCondensationAvailable`` if newer events have made it invalid.

        The transaction of the append checks for redactions and for events that came after the plan.
        """
        try:
            recorded = append(action, expected_version=view.seen)
        except VersionConflict:
            recorded = self._append_later(conversation, append, view, action)
        (appended,) = recorded
        assert isinstance(appended.event, CondensationAction)
        return appended.event

    def _append_later(
        self, conversation: str, append: Append, view: View, action: CondensationAction
    ) -> tuple[Recorded, ...]:
        """Append the condensation behind the events that came after the plan, if they allow it."""
        newer = planned_before(
            action, view, tuple(self._store.events(conversation, start=view.version))
        )
        action = replace(action, metadata={**action.metadata, "planned_at": view.version})

        def check_newest(reading: ReadTransaction) -> None:
            planned_before(action, newer, tuple(reading.events(newer.version)))

        try:
            return append(action, expected_version=view.seen.at_any_version(), guard=check_newest)
        except VersionConflict:
            # The summary of the condensation may quote the redacted event.
            raise NoCondensationAvailable("an event was redacted first") from None

    def _drop(
        self,
        conversation: str,
        append: Append,
        plan: CondensationAction,
        planned_at: int,
        problem: str,
    ) -> None:
        """Append and log the report on a condensation that newer events have made invalid. ``plan``
        was made at the version ``planned_at``.
        """
        report = {
            **plan.metadata,
            "outcome": "dropped",
            "problem": problem,
            "planned_at": planned_at,
        }
        spent = [part for part in report.pop(CONDENSER_METADATA_KEY, []) if not is_standing(part)]
        append(annotation([*spent, report], self._condenser.type), expected_version=ANY_VERSION)
        cost = Usage.of(spent).cost
        self._tell(
            "foldlog.condensation.dropped",
            conversation,
            planned_at=planned_at,
            reason=problem,
            cost=cost,
        )

    def _tell(self, name: str, conversation: str, **values: Any) -> None:
        """Log a message about this condenser and a conversation."""
        tell(name, conversation=conversation, **{"condenser": self._condenser.type, **values})

    def _tell_made(
        self,
        conversation: str,
        view: View,
        plan: CondensationAction,
        action: CondensationAction,
        seconds: float,
    ) -> None:
        """Log the failures and the effect of a condensation: ``plan`` was appended as ``action`` to
        the conversation with this ``view``.
        """
        reports = reports_of(action)
        if "instead_of" in action.metadata:
            failures = failures_in(reports)
            replaced = action.metadata["instead_of"]
            # All calls of a summary that failed, such as its parts, are one failure.
            together = [
                {**failure, "metrics": Usage.of(failures).metrics()} for failure in failures[-1:]
            ]
            tell_of_failures(conversation, replaced, together, "made a digest instead")
            reports = [report for report in reports if report not in failures]
        if not has_receiver("foldlog.condensation.made"):
            return  # the estimates below take time
        metadata = plan.metadata
        view_after = view.then((plan,))
        spent = Usage.of(reports)
        self._tell(
            "foldlog.condensation.made",
            conversation,
            condensation=action.id,
            condenser=metadata.get("condenser", self._condenser.type),
            reason=metadata.get("reason", "asked for"),
            events_before=len(view),
            events_after=len(view_after),
            tokens_before=metadata.get("tokens_before") or tokens_of(view, ESTIMATE),
            tokens_after=metadata.get("tokens_after") or tokens_of(view_after, ESTIMATE),
            cost=spent.cost,
            tokens=dict(spent.usage),
            ms=round(seconds * 1_000),
        )

    def _append_declined(
        self, conversation: str, append: Append, view: View, error: NoCondensationAvailable
    ) -> bool:
        """Append a declined condensation with the reason of ``error``, and return True. If newer
        events changed the View, the error may no longer apply: return False, and the caller takes
        the step again.
        """
        newest = _newest(view)
        is_recorded = (
            newest.get("outcome") == "declined" and newest.get("condenser") == self._condenser.type
        )
        if is_recorded and not view.unhandled_condensation_request:
            # After the first failed step, record only the calls that cost something.
            if spent := list(filter(cost_something, error.reports)):
                append(annotation(spent, self._condenser.type), expected_version=ANY_VERSION)
            return True
        metadata = {"condenser": self._condenser.type, "outcome": "declined", "reason": str(error)}
        declined = with_reports(
            CondensationAction(forgotten_event_ids=(), metadata=metadata), error.reports
        )
        try:
            self._append(conversation, append, view, declined)
        except NoCondensationAvailable as outdated:
            if error.reports:
                self._drop(conversation, append, declined, view.version, str(outdated))
            return False
        reason = "its model failed" if error.model_failed else str(error)
        self._tell(
            "foldlog.condensation.declined",
            conversation,
            condenser=error.condenser or self._condenser.type,
            events_before=len(view),
            reason=reason,
        )
        return True

    def _may_go_on(self, view: View, error: NoCondensationAvailable) -> bool:
        """Return whether the agent may go on after a declined condensation. After two declined
        condensations in a row, the agent may go on only if it took a turn between them, because
        this turn shows that the prompt was not too long.
        """
        if not view.unhandled_condensation_request or (
            error.model_failed and not self._condenser.fallback
        ):
            return False
        if _newest(view).get("outcome") != "declined":
            return True
        return any(
            event.id > view.condensations[-1].id and event.source == "agent"
            for event in view.tail(_LOOKED_BACK)
        )

    def _append_reports(
        self,
        conversation: str,
        append: Append,
        view: View,
        reports: tuple[Report, ...],
        remembered: Remembered,
    ) -> View | None:
        """Append the reports of a step. Return None if another writer appended an event before the
        new rules were recorded. The caller must then take the step again.
        """
        rules = list(filter(is_standing, reports))
        outcomes = [report for report in reports if not is_standing(report)]
        # A condenser may also report what has nothing to do with a model.
        if any("metrics" in report or "failure" in report for report in outcomes):
            tell_of_failures(conversation, self._condenser.type, outcomes)
            ask_again_at = remembered.after_failure(view.version)
            outcomes[-1] = {**outcomes[-1], ASK_AGAIN_AT: ask_again_at}
            remembered.failed(ask_again_at, view.version)
        # Each batch of reports becomes an annotation.
        batches: list[Sequence[Report]] = [outcomes] if outcomes else []
        if not rules and remembered.has_rules(self._store, view):
            batches.insert(0, ())  # An empty annotation ends the earlier rules.
        elif rules and self._must_be_recorded(conversation, [*map(_rule, rules)], view.version):
            batches = [[*outcomes, *rules]]
        if not batches:
            return view
        for report in batches[-1]:
            if report.get("outcome") == "above size":
                self._tell(
                    "foldlog.condensation.declined",
                    conversation,
                    condenser=report.get("condenser", self._condenser.type),
                    events_before=len(view),
                    reason=report["problem"],
                )
        appended = append(
            [annotation(batch, self._condenser.type) for batch in batches],
            expected_version=ANY_VERSION,
        )
        if appended[0].event.id == view.version:  # No other writer appended an event in between.
            # No annotation is shown, so only the version of the View changes.
            events = [recorded.event for recorded in appended]
            return with_field(view, state=view.then(events).state)
        # If the rules changed, this View was made by the old rules and must not be sent.
        return view if batches[0] is outcomes else None

    def _must_be_recorded(self, conversation: str, rules: Sequence[str], version: int) -> bool:
        recorded_at, recorded = newest_rules(self._store, conversation, version)
        return version - recorded_at > RULES_COUNT_FOR // 2 or rules != [*map(_rule, recorded)]


_CONVERSATIONS_REMEMBERED = 1_000

_LOOKED_BACK = 100
"""How many of the newest events are searched for the agent's last turn."""


def _newest(view: View) -> JsonMap:
    return view.condensations[-1].metadata if view.condensations else {}


def planned_before(action: CondensationAction, view: View, new_events: Sequence[Event]) -> View:
    """Check the plan ``action``, which was made for ``view``, against newer events. Return the new
    View. Raises ``NoCondensationAvailable`` if the plan is no longer valid.

    A valid plan forgets only events that the new View still shows and that may still be forgotten:
    see ``selection.without_kept``. In the new View, the place of the plan's summary must still be a
    cut point before the same event. A retraction makes every plan invalid. A new condensation makes
    a plan invalid, unless the new View shows all events that the plan forgets. Cost: the check
    copies the View and its units.
    """
    newer = view.then(new_events)
    offset = action.summary_offset
    named = ids_named(action, (event.id for event in view))
    shown = {event.id for event in newer}
    for event in new_events:
        is_condensation = isinstance(event, CondensationAction) and (
            event.summary is not None or any(event.forgotten)
        )
        if isinstance(event, Retraction) or (is_condensation and not (named and named <= shown)):
            kind = "condensation" if is_condensation else "retraction"
            raise NoCondensationAvailable(f"{kind} {event.id} was appended first")
    if any(action.forgotten) and without_kept(newer, action) is not action:
        raise NoCondensationAvailable("the plan forgets calls whose results were appended later")
    if offset is not None and (
        offset not in newer.cut_points or view[offset : offset + 1] != newer[offset : offset + 1]
    ):
        raise NoCondensationAvailable("newer events changed the View at the place of the summary")
    return newer


class Remembered:
    """A handler's notes on a conversation. Without the notes, each step would report the same rules
    again and ask a failing model again.

    After a failure of a model, or a text that is ``DOUBTFUL``, a soft condensation waits until
    the View has the version ``ask_again_at``, and a hard condensation gets a digest until then.
    Each further failure or doubtful text doubles the wait. The report on the failure or text
    records the version, so the wait goes on in the next process. Several threads may use the notes
    of a conversation. A race between threads can cause an extra call of a model.
    """

    def __init__(self, conversation: str) -> None:
        self._conversation = conversation
        self._rules_read_until = 0
        self._rules_end = 0
        self._wait = _WAIT
        self._knows_wait = False
        self.ask_again_at = 0

    def has_rules(self, store: Store, view: View) -> bool:
        """Return whether the rules in the log still apply at the version of ``view``. Cost: the
        method reads the events that were appended since its last call, unless the View shows all
        these events.
        """
        version = view.version
        # The View is of an earlier version than the notes.
        if self._rules_read_until > version:
            self._rules_read_until = 0
            self._rules_end = 0
        new_ids = range(self._rules_read_until, version)
        # A View never shows an annotation. If the View shows all new events, no new event has
        # rules.
        shows_all = [event.id for event in view.tail(len(new_ids))] == [*new_ids]
        if not shows_all:
            recorded_at, rules = newest_rules(
                store, self._conversation, version, self._rules_read_until
            )
            if rules:
                self._rules_end = recorded_at + RULES_COUNT_FOR
            elif recorded_at != NOT_RECORDED:  # An empty annotation ends the earlier rules.
                self._rules_end = 0
        self._rules_read_until = version
        return version <= self._rules_end

    def model_use(self, view: View) -> ModelUse:
        """Return what the next step may do with models. A request does not wait."""
        if view.version < self.ask_again_at and not view.unhandled_condensation_request:
            return ModelUse.SPARE
        return ModelUse.RETRY

    def read_wait(self, store: Store, view: View) -> None:
        """Read from the log how long another process waits for the model. Cost: the first call
        reads at most ``_WAIT_READ`` events, and none if the View shows them all.
        """
        if self._knows_wait:
            return
        self._knows_wait = True
        newest = min(_WAIT_READ, view.version)
        if [event.id for event in view.tail(newest)] == [
            *range(view.version - newest, view.version)
        ]:
            return  # A View never shows a condensation or a report.
        for event in store.events(
            self._conversation, view.version - newest, view.version, reverse=True
        ):
            if (ask_again_at := ask_again_in(event)) is not None:
                self.failed(ask_again_at, event.id)
            elif not _is_of_a_model(event):
                continue
            return

    def after_failure(self, version: int) -> int:
        """Return the version at which the model is asked again, if it failed at ``version``."""
        return version + self._wait

    def failed(self, ask_again_at: int, version: int) -> None:
        self.ask_again_at = ask_again_at
        self._wait = min(max(_WAIT, 2 * (ask_again_at - version)), _WAIT_MAX)

    def with_wait(self, action: CondensationAction, version: int) -> CondensationAction:
        """Return a condensation that records the wait that begins with it. A wait begins if a
        digest took the place of a summary because the model failed, or if the text of the model
        is doubtful.
        """
        reports = reports_of(action)
        has_failed = "instead_of" in action.metadata and failures_in(reports)
        if not reports or not (has_failed or DOUBTFUL in action.metadata):
            return action
        marked = [*reports[:-1], {**reports[-1], ASK_AGAIN_AT: self.after_failure(version)}]
        return replace(action, metadata={**action.metadata, CONDENSER_METADATA_KEY: marked})

    def note_condensation(self, action: CondensationAction) -> None:
        """Note a condensation. If a digest took the place of a summary, the wait goes on. A new
        wait begins after a failure or a doubtful text.
        """
        if (ask_again_at := ask_again_in(action)) is not None:
            self.failed(ask_again_at, action.id)
        elif "instead_of" not in action.metadata:
            self._wait = _WAIT
            self.ask_again_at = 0


def _is_of_a_model(event: Event) -> bool:
    """Return whether an event shows that the model answers: it is a condensation that was carried
    out, and not by a digest in the model's place.
    """
    return (
        isinstance(event, CondensationAction)
        and "instead_of" not in event.metadata
        and event.metadata.get("outcome") != "declined"
    )


def _rule(report: Report) -> str:
    return json.dumps([report.get("condenser"), report.get("rule")], default=str)
