"""The command handler: read a View, let a condenser decide, append its decision. Other writers
never wait for a model.

A condenser may take a minute to ask a model, and other writers may append in that time. The plan is
then checked against the newer View without a second model call. It holds if no other condensation
came and what it forgets may still go. A plan that does not hold is dropped and reported, and the
condenser plans again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace as with_field
from functools import lru_cache, partial
from typing import Any

from msgspec.structs import replace

from foldlog._telemetry import is_told, measure, span, tell
from foldlog.condensers import unseen
from foldlog.condensers.base import AgentModel, Condensation, Condenser, Report, Step
from foldlog.condensers.errors import InvalidCondenser, NoCondensationAvailable
from foldlog.condensers.models.estimate import ESTIMATE, counting, tokens_of
from foldlog.condensers.reports import (
    CONDENSER_METADATA_KEY,
    RULES_COUNT_FOR,
    Usage,
    annotation,
    cost_something,
    is_standing,
    newest_rules,
    reports_of,
    tell_of_failures,
    with_reports,
)
from foldlog.condensers.rolling import models_are_spared
from foldlog.condensers.selection import held, ids_named
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
from foldlog.eventstore.inside import Generation
from foldlog.projections import View, Views
from foldlog.projections.effects import begun_among

_WAIT = 10
_WAIT_MAX = 160
"""The number of events before a failed model is asked again: after its first failure, and the
maximum.
"""

Append = Callable[..., tuple[Recorded, ...]]
"""``Store.append`` for one conversation."""


class CondenseHandler:
    """Condenses conversations of one store. Any number of threads, and of handlers, may do so at
    once.

    ``agent_llm`` is the model whose room the View must fit; without it events are counted, and
    tokens estimated where the condenser has a limit for them.
    """

    def __init__(
        self, store: Store, views: Views, condenser: Condenser, agent_llm: AgentModel | None = None
    ) -> None:
        self._store, self._views, self._agent_llm = store, views, counting(agent_llm)
        self._given, self._condenser = condenser, condenser.for_agent(agent_llm)
        # The key tells conversations apart that have the same id, one after the other.
        self._remembered = lru_cache(_CONVERSATIONS_REMEMBERED)(lambda id, key: Remembered(id))

    def with_agent(self, agent_llm: AgentModel) -> CondenseHandler:
        """Return a handler for another model of the agent. Both remember the same of each
        conversation.
        """
        handler = CondenseHandler(self._store, self._views, self._given, agent_llm)
        handler._remembered = self._remembered
        return handler

    def reading(self, store: Store, views: Views) -> CondenseHandler:
        """Return a handler that reads this store and these Views. Both remember the same of each
        conversation.
        """
        handler = copy(self)
        handler._store = store
        handler._views = views
        return handler

    def handle(
        self, conversation: str, generation: Generation | None = None
    ) -> View | Condensation:
        """Take one step: return the View to go on with, or a condensation that has been appended;
        then ask again.

        Reports of a step without a condensation are appended as an ``Annotation``; the report of a
        mask only if its rule is new. If a model failed and condensing can wait, it is asked again
        some events later: see ``Remembered``.

        Raises ``NoCondensationAvailable`` if a condensation is required and impossible. The handler
        then appends a declined condensation: it answers the request, and the next step goes on.
        While it is the newest condensation and the prompt is still too long, later steps raise the
        same error and append only reports of calls that cost something. Raises the store's errors,
        too. ``generation`` is that of ``Store.append``. Durability: appended events are on disk.
        Cost: the View, and the condenser's work.
        """
        with span("foldlog.condense", conversation=conversation) as more:
            made = self._handled(conversation, generation)
            more["condensed"] = isinstance(made, Condensation)
            if isinstance(made, View):
                measure(
                    "foldlog.view",
                    events=len(made),
                    tokens=partial(tokens_of, made, self._agent_llm),
                )
            return made

    def _handled(self, conversation: str, generation: Generation | None) -> View | Condensation:
        append = partial(self._store.append, conversation, generation=generation)
        while True:
            begun = time.perf_counter()
            view = self._views.current(conversation)
            if kept := begun_among(self._store, conversation, view.open_calls):
                view = with_field(view, kept=kept)
            remembered = self._remembered(
                conversation, None if generation is None else generation.key
            )
            spared = models_are_spared.set(view.version < remembered.ask_again_at)
            try:
                result, reports = self._previewed(conversation, view)
            except NoCondensationAvailable as error:
                tell_of_failures(conversation, self._condenser.type, error.reports)
                error.may_go_on = self._may_go_on(view, error)
                if self._declined(conversation, append, view, error):
                    raise
                continue
            finally:
                models_are_spared.reset(spared)
            if isinstance(result, View):
                if (
                    shown := self._reported(conversation, append, result, reports, remembered)
                ) is not None:
                    return shown
                continue
            try:
                action = self._append(conversation, append, view, result.action)
            except NoCondensationAvailable as error:
                self._drop(conversation, append, result.action, view.version, str(error))
            else:
                remembered.condensed()
                self._tell_made(
                    conversation, view, result.action, action, time.perf_counter() - begun
                )
                return Condensation(action)

    def check_handles_requests(self) -> None:
        """Raise ``InvalidCondenser`` where the condenser does not handle requests for a
        condensation.
        """
        if not self._condenser.handles_condensation_requests():
            raise InvalidCondenser(
                f"Cannot condense conversation: the condenser {self._condenser.type!r} does not"
                " handle condensation requests; choose one that does, such as 'digest', or a"
                " pipeline that holds one"
            )

    def preview(self, view: View) -> Step:
        """Return what a step over ``view`` would give, and append nothing. A condenser with a model
        asks it.

        Raises what ``unseen.step`` and the condenser raise. Cost: the condenser's work.
        """
        return unseen.step(self._condenser, view, self._agent_llm)

    def _previewed(self, conversation: str, view: View) -> Step:
        """Return ``preview(view)``. An unexpected error of a condenser gets a note with its
        conversation.
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
        """Append the condensation and return it as stored. Raise ``NoCondensationAvailable`` if it
        no longer holds.

        It is checked again in the transaction that appends it, for redactions and the few events
        that came since then.
        """
        if view.state.past is None:
            redactions = 0
        else:
            redactions = view.state.past.redactions

        def check(reading: ReadTransaction, newer: View | None = None) -> None:
            if reading.redactions != redactions:  # the plan may quote the event
                raise NoCondensationAvailable("an event was redacted first")
            if newer is not None:
                planned_before(action, newer, tuple(reading.events(newer.version)))

        try:
            recorded = append(action, expected_version=view.version, guard=check)
        except VersionConflict:
            newer = planned_before(
                action, view, tuple(self._store.events(conversation, start=view.version))
            )
            action = replace(action, metadata={**action.metadata, "planned_at": view.version})
            recorded = append(
                action, expected_version=ANY_VERSION, guard=partial(check, newer=newer)
            )
        (only,) = recorded
        assert isinstance(only.event, CondensationAction)
        return only.event

    def _drop(
        self,
        conversation: str,
        append: Append,
        plan: CondensationAction,
        planned_at: int,
        problem: str,
    ) -> None:
        report = {
            **plan.metadata,
            "outcome": "dropped",
            "problem": problem,
            "planned_at": planned_at,
        }
        spent = [each for each in report.pop(CONDENSER_METADATA_KEY, []) if not is_standing(each)]
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
        tell(name, conversation=conversation, **{"condenser": self._condenser.type, **values})

    def _tell_made(
        self,
        conversation: str,
        view: View,
        plan: CondensationAction,
        made: CondensationAction,
        seconds: float,
    ) -> None:
        """Log a condensation. Tokens that it did not count itself are estimated."""
        if not is_told("foldlog.condensation.made"):
            return
        told = plan.metadata
        after = view.then((plan,))
        spent = Usage.of(reports_of(made))
        tokens = {"tokens_before": view, "tokens_after": after}
        self._tell(
            "foldlog.condensation.made",
            conversation,
            condensation=made.id,
            condenser=told.get("condenser", self._condenser.type),
            reason=told.get("reason", "asked for"),
            events_before=len(view),
            events_after=len(after),
            **{name: told.get(name) or tokens_of(of, ESTIMATE) for name, of in tokens.items()},
            cost=spent.cost,
            tokens=dict(spent.usage),
            ms=round(seconds * 1_000),
        )

    def _declined(
        self, conversation: str, append: Append, view: View, error: NoCondensationAvailable
    ) -> bool:
        """Record that none could be made. Return False where one came first, so that the step may
        succeed.
        """
        newest = _newest(view)
        stands = (
            newest.get("outcome") == "declined" and newest.get("condenser") == self._condenser.type
        )
        if stands and not view.unhandled_condensation_request:
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
        if any("failure" in report for report in error.reports):
            reason = "its model failed"
        else:
            reason = str(error)
        self._tell(
            "foldlog.condensation.declined",
            conversation,
            condenser=error.condenser or self._condenser.type,
            events_before=len(view),
            reason=reason,
        )
        return True

    def _may_go_on(self, view: View, error: NoCondensationAvailable) -> bool:
        """Return whether a request that cannot be fulfilled may be a wish of the model: no model
        failed, and the agent took a turn since the newest condensation, if that was declined too.
        """
        if not view.unhandled_condensation_request or any(
            "failure" in report for report in error.reports
        ):
            return False
        if _newest(view).get("outcome") != "declined":
            return True
        return any(
            each.id > view.condensations[-1].id and each.source == "agent"
            for each in view.tail(_LOOKED_BACK)
        )

    def _reported(
        self,
        conversation: str,
        append: Append,
        view: View,
        reports: tuple[Report, ...],
        remembered: Remembered,
    ) -> View | None:
        """Append a step's reports; return the View. None if others appended before new rules: take
        the step again.
        """
        rules = list(filter(is_standing, reports))
        others = [each for each in reports if not is_standing(each)]
        if others:
            remembered.failed(view.version)
            tell_of_failures(conversation, self._condenser.type, others)
        news: list[Sequence[Report]] = [others] if others else []
        if not rules and remembered.has_rules(self._store, view):
            news.insert(0, ())  # without a report: the former rules are over
        elif rules and self._are_new(conversation, [*map(_rule, rules)], view.version):
            news = [[*others, *rules]]
        if not news:
            return view
        for of in [report for report in news[-1] if report.get("outcome") == "above size"]:
            self._tell(
                "foldlog.condensation.declined",
                conversation,
                condenser=of.get("condenser", self._condenser.type),
                events_before=len(view),
                reason=of["problem"],
            )
        made = append(
            [annotation(each, self._condenser.type) for each in news], expected_version=ANY_VERSION
        )
        if made[0].event.id == view.version:
            return view.then([each.event for each in made])
        return view if news[0] is others else None

    def _are_new(self, conversation: str, rules: Sequence[str], version: int) -> bool:
        """Return whether the newest rules of the log are others than these, or were recorded long
        ago.
        """
        at, recorded = newest_rules(self._store, conversation, version)
        return version - at > RULES_COUNT_FOR // 2 or rules != [*map(_rule, recorded)]


_CONVERSATIONS_REMEMBERED = 1_000

_LOOKED_BACK = 100
"""The last events of a View in which a turn of the agent is looked for."""


def _newest(view: View) -> Mapping[str, Any]:
    """Return the metadata of the newest condensation of ``view``; empty without one. Cost: the
    structural events.
    """
    return view.condensations[-1].metadata if view.condensations else {}


def planned_before(action: CondensationAction, view: View, meanwhile: Sequence[Event]) -> View:
    """Return the View after these events, for which ``action``, which was planned on ``view``,
    holds too.

    Raises ``NoCondensationAvailable`` if it no longer holds. It holds if all that it forgets is
    still shown and may still go (see ``selection.held``), and its summary still stands before the
    same event, at a cut point. A retraction outdates it; another condensation also outdates one
    that is declined. Cost: a copy of the View and its units.
    """
    now = view.then(meanwhile)
    at = action.summary_offset
    named = ids_named(action, (event.id for event in view))
    shown = {event.id for event in now}
    for event in meanwhile:
        is_made = isinstance(event, CondensationAction) and (
            event.summary is not None or any(event.forgotten)
        )
        if isinstance(event, Retraction) or (is_made and not (named and named <= shown)):
            what = "condensation" if is_made else "retraction"
            raise NoCondensationAvailable(f"{what} {event.id} was appended first")
    if any(action.forgotten) and held(now, action) is not action:
        raise NoCondensationAvailable("calls and observations would be separated")
    if at is not None and (at not in now.cut_points or view[at : at + 1] != now[at : at + 1]):
        raise NoCondensationAvailable(
            "its summary would stand inside a unit, or before another event"
        )
    return now


class Remembered:
    """The memory of a handler for one conversation, so that it does not report or try the same at
    every step.

    A model that failed while condensing could wait is asked again at the version ``ask_again_at``:
    some events later, twice as many after each further failure. Several threads may use it: at
    worst a model is asked once too often.
    """

    def __init__(self, conversation: str) -> None:
        self._conversation = conversation
        self._rules = (0, 0)
        self._wait = _WAIT
        self.ask_again_at = 0

    def has_rules(self, store: Store, view: View) -> bool:
        """Return whether the log has rules at this version that may have to be ended, whichever
        handler recorded them. Cost: the events since the last call, and nothing where the View
        shows them all.
        """
        since, until = self._rules if self._rules[0] <= view.version else (0, 0)
        new = range(since, view.version)
        if len(new) > RULES_COUNT_FOR or [event.id for event in view.tail(len(new))] != [*new]:
            at, rules = newest_rules(store, self._conversation, view.version, since)
            if at == NOT_RECORDED:
                until = until
            elif rules:
                until = at + RULES_COUNT_FOR
            else:
                until = 0
        self._rules = view.version, until
        return view.version <= until

    def failed(self, version: int) -> None:
        """Note that a condensation that could wait was tried at this version and failed: the model
        is asked later.
        """
        self.ask_again_at = version + self._wait
        self._wait = min(2 * self._wait, _WAIT_MAX)

    def condensed(self) -> None:
        """Note that a condensation was made: the next failure counts as the first."""
        self._wait = _WAIT
        self.ask_again_at = 0


def _rule(report: Report) -> str:
    return json.dumps([report.get("condenser"), report.get("rule")], sort_keys=True, default=str)
