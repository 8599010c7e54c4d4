"""Rolling condensers: they let a View grow to a limit, forget a part of it, and let it grow again.

no reason                   the View, as it is
soft (too many events)      a condensation; where none is available the View, and the next step tries again
hard (a request, tokens)    a condensation; else the hard reset; else NoCondensationAvailable
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Set
from contextvars import ContextVar
from typing import Any, ClassVar

from msgspec.structs import replace

from foldlog.condensers.base import (
    AgentModel,
    Condensation,
    Condenser,
    Reason,
    Report,
    Requirement,
    Step,
    model_is_optional,
    reported,
)
from foldlog.condensers.errors import InvalidCondenser, NoCondensationAvailable
from foldlog.condensers.reports import with_reports
from foldlog.condensers.selection import forget, kept_place, real, stands_for_forgotten, unkept, unseen_in
from foldlog.eventstore import NOT_RECORDED, CondensationAction
from foldlog.projections import View

models_are_spared = ContextVar("models are spared", default=False)
"""Whether a model is asked only for a condensation that is required, because it failed lately."""


class RollingCondenser(Condenser, ABC):
    """A condenser that makes condensations. A strategy defines ``get_condensation``; to say when, it defines
    ``should_condense``, or ``reasons``, which stand in the log.
    """

    asks_a_model: ClassVar[bool] = False
    """Whether a condensation needs a model's reply, which may fail and costs money."""

    def handles_condensation_requests(self) -> bool:
        return True

    def reasons(self, view: View, agent_llm: AgentModel | None = None) -> frozenset[Reason]:
        """Return why a condensation is due now, if it is: by default a request, or more than ``max_size`` events."""
        return reasons_by_size(view, getattr(self, "max_size", None))

    @model_is_optional
    def should_condense(self, view: View, agent_llm: AgentModel | None = None) -> bool:
        """Return whether a condensation is due now: by default, whether it has a reason."""
        return bool(self.reasons(view, agent_llm))

    @property
    def _has_own_rule(self) -> bool:
        return type(self).should_condense is not RollingCondenser.should_condense

    @model_is_optional
    def condensation_requirement(self, view: View, agent_llm: AgentModel | None = None) -> Requirement | None:
        """Return how much a condensation is needed now; None if it is not needed."""
        due = self.reasons(view, agent_llm)
        if not (self.should_condense(view, agent_llm) if self._has_own_rule else due):
            return None
        return Requirement.HARD if due & {Reason.REQUEST, Reason.TOKENS} else Requirement.SOFT

    @abstractmethod
    @model_is_optional
    def get_condensation(self, view: View, agent_llm: AgentModel | None = None) -> Condensation:
        """Return the condensation to make, due or not. Raises ``NoCondensationAvailable`` if none is possible."""

    @model_is_optional
    def hard_context_reset(self, view: View, agent_llm: AgentModel | None = None) -> Condensation | None:
        """Return the last resort for a hard requirement, which forgets as many events as it can; None without one."""
        return None

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        bound = self.for_agent(agent_llm)
        if bound is not self:
            return bound.step(view, agent_llm)
        requirement = self.condensation_requirement(view, agent_llm)
        can_wait = requirement is Requirement.SOFT and self.asks_a_model and models_are_spared.get()
        if requirement is None or can_wait:
            return Step(view)
        try:
            return Step(self._explained(view, agent_llm, self.get_condensation(view, agent_llm)))
        except NoCondensationAvailable as unavailable:
            if requirement is Requirement.SOFT:
                return Step(view, unavailable.reports or self._above_size(view, str(unavailable)))
            return reported(self._reset(view, agent_llm, unavailable), unavailable.reports)

    def _explained(self, view: View, agent_llm: AgentModel | None, made: Condensation) -> Condensation:
        """Return a condensation with its reason, if the strategy wrote none. Where the strategy decides by
        ``should_condense``, a new summary takes the place of those that the View shows, whether it names them or not.
        """
        if not isinstance(made, Condensation):
            return made  # the step refuses it
        action = made.action
        summaries = () if action.summary is None else tuple(each.id for each in view.events if each.id < NOT_RECORDED)
        if self._has_own_rule and not set(summaries) <= set(action.forgotten_event_ids or ()):
            ids = dict.fromkeys((*(action.forgotten_event_ids or ()), *summaries))
            names = ("summary", "summary_offset", "metadata", "source")
            fields = {name: getattr(action, name) for name in names}
            action = CondensationAction(forgotten_event_ids=tuple(ids), **fields)
        if "reason" not in action.metadata:
            after, due = len(view.then((action,))), self.reasons(view, agent_llm)
            told = self._metadata(view, after, due, getattr(self, "max_size", None))
            action = replace(action, metadata={**told, **action.metadata})
        return made if action is made.action else Condensation(action)

    def without_summary(
        self, view: View, kept: Set[int], why_not: str, reports: tuple[Report, ...] = (), *, summaries: bool = False
    ) -> Condensation:
        """Return the condensation that forgets the events outside of ``kept``, without a summary.

        ``kept`` are the indices that the strategy's own rule keeps; ``selection.unkept`` extends them to whole units.
        ``reports`` tell how the choice came about. Raises ``NoCondensationAvailable``, with ``why_not`` and the
        reports, if no event of the log can be forgotten.
        """
        kept = {*kept, *range(kept_place(view), len(view))}
        forgotten, due = unkept(view, kept, summaries=summaries), self.reasons(view)
        always = () if summaries else (place for place, event in enumerate(view.events) if stands_for_forgotten(event))
        whole = len(view) - len(forgotten) - len({*kept, *always})
        if not real(forgotten):
            if whole:
                why_not += f"; {whole} events stay because a part of their call or tool loop is kept"
            raise NoCondensationAvailable(f"nothing can be forgotten: {why_not}{unseen_in(view)}", reports)
        metadata = self._metadata(view, len(view) - len(forgotten), due, getattr(self, "max_size", None))
        if whole:
            metadata["events_kept_whole"] = whole
        return Condensation(with_reports(forget(forgotten, metadata), reports))

    def _metadata(
        self, view: View, after: int, due: Set[Reason], size: int | None, outcome: str = "condensed"
    ) -> dict[str, Any]:
        """Return the metadata of every condensation. It leaves ``after`` events of ``view``, and is ``due`` for these
        reasons, more than ``size`` events among them.
        """
        said = {
            "condenser": self.type,
            "outcome": outcome,
            "reason": ", ".join(sorted(due)) or ("a rule of its own" if self._has_own_rule else "asked for"),
            "events_before": len(view),
            "events_after": after,
        }
        return said | ({"events_max": size} if Reason.EVENTS in due else {})

    def _above_size(self, view: View, why: str) -> tuple[Report, ...]:
        """Return the standing report on a View that stays larger than wanted; none for a strategy without a size."""
        rule = {"max_size": getattr(self, "max_size", None), "keep_first": getattr(self, "keep_first", 0)}
        report = {"condenser": self.type, "rule": rule, "outcome": "above size", "events": len(view), "problem": why}
        return () if rule["max_size"] is None else (report,)

    def _reset(self, view: View, agent_llm: AgentModel | None, unavailable: NoCondensationAvailable) -> Condensation:
        try:
            reset = self.hard_context_reset(view, agent_llm)
        except NoCondensationAvailable as error:
            error.reports = (*unavailable.reports, *error.reports)
            raise error from unavailable
        if reset is None:
            raise unavailable
        return reset


def reasons_by_size(view: View, max_size: int | None) -> frozenset[Reason]:
    """Return the reasons that need no model: a request, and more than ``max_size`` events, unless that is None."""
    too_many = max_size is not None and len(view) > max_size
    due = {Reason.REQUEST: view.unhandled_condensation_request, Reason.EVENTS: too_many}
    return frozenset(reason for reason, is_due in due.items() if is_due)


def check_sizes(max_size: int, keep_first: int, *, beside: int = 0) -> None:
    """Raise ``InvalidCondenser`` unless half of ``max_size`` has room for the head, one event, and ``beside`` more."""
    half = max_size // 2
    if keep_first + beside >= half:
        raise InvalidCondenser(
            f"keep_first ({keep_first}) must be less than half of max_size ({max_size})"
            + (f" by more than {beside}, to leave room for the summary" if beside else "")
        )
    if keep_first < 0:
        raise InvalidCondenser(f"keep_first ({keep_first}) cannot be negative")
