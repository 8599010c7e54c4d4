"""A rolling condenser lets a View grow to a limit, forgets a part of the View, and lets the View
grow again.

If no condensation is due, a step returns the View. A View with too many events gets a soft
condensation. If a soft condensation is impossible, the step returns the View. A request or too many
tokens require a hard condensation. If a hard condensation is impossible, the step tries the hard
reset of the strategy, and raises ``NoCondensationAvailable`` if the strategy has none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Set
from contextvars import ContextVar
from enum import Enum

from msgspec.structs import replace

from foldlog._base.json_types import JsonObject
from foldlog.condensers.base import (
    AgentModel,
    Condensation,
    Condenser,
    Reason,
    Report,
    Requirement,
    Step,
    call_with_model,
    model_is_optional,
    with_step_reports,
)
from foldlog.condensers.errors import InvalidCondenser, NoCondensationAvailable
from foldlog.condensers.reports import with_reports
from foldlog.condensers.selection import (
    count_logged,
    describe_unseen,
    events_to_forget,
    first_kept_index,
    forget,
    stands_for_forgotten,
)
from foldlog.eventstore import NOT_RECORDED, CondensationAction
from foldlog.eventstore.errors import count
from foldlog.projections import View


class ModelUse(Enum):
    """What a step may do if a strategy needs a model."""

    RETRY = "if a call fails, the hard reset calls the model again"
    TRY = "if a call fails, the condensation has failed"
    SPARE = "no model is called: soft condensations wait, hard condensations get a digest"


model_use = ContextVar("model use", default=ModelUse.RETRY)
"""A condenser that is used alone retries. In the steps of a handler, a digest takes the place of a
summary that failed (see ``stepping.step``), and a model is spared for some events after a failure.
A strategy with ``fallback = False`` retries in all steps.
"""


class RollingCondenser(Condenser, ABC):
    """A condenser that makes condensations. A subclass defines ``get_condensation``. A subclass may
    define ``should_condense`` or ``reasons`` to decide when a condensation is due. The condensation
    stores the reasons in its metadata.
    """

    def handles_condensation_requests(self) -> bool:
        return True

    @property
    def _has_digest(self) -> bool:
        """Whether a digest takes the place of a condensation whose model fails."""
        return self.fallback and model_use.get() is ModelUse.TRY

    @property
    def _events_max(self) -> int | None:
        """The number of events above which a View is condensed, or None without such a limit."""
        return getattr(self, "max_size", None)

    def reasons(self, view: View, agent_llm: AgentModel | None = None) -> frozenset[Reason]:
        """Return the reasons why a condensation is due now. The set is empty if no condensation is
        due. The default reasons are a request and a View with more than ``max_size`` events.
        """
        return reasons_by_size(view, self._events_max)

    @model_is_optional
    def should_condense(self, view: View, agent_llm: AgentModel | None = None) -> bool:
        """Return whether a condensation is due now. By default, a condensation is due if
        ``reasons`` returns a reason.
        """
        return bool(self.reasons(view, agent_llm))

    @property
    def _has_should_condense(self) -> bool:
        return type(self).should_condense is not RollingCondenser.should_condense

    @property
    def _has_own_rule(self) -> bool:
        requirement = type(self).condensation_requirement
        return (
            self._has_should_condense
            or requirement is not RollingCondenser.condensation_requirement
        )

    @model_is_optional
    def condensation_requirement(
        self, view: View, agent_llm: AgentModel | None = None
    ) -> Requirement | None:
        """Return how urgent a condensation is now. Return None if no condensation is due."""
        due = self.reasons(view, agent_llm)
        is_due = (
            call_with_model(self.should_condense, view, agent_llm)
            if self._has_should_condense
            else due
        )
        return self.urgency(view, due, agent_llm) if is_due else None

    def urgency(
        self, view: View, due: Set[Reason], agent_llm: AgentModel | None = None
    ) -> Requirement:
        """Return how urgent a condensation is that is due for the reasons ``due``."""
        if due & {Reason.REQUEST, Reason.TOKENS}:
            return Requirement.HARD
        return Requirement.SOFT

    @abstractmethod
    @model_is_optional
    def get_condensation(self, view: View, agent_llm: AgentModel | None = None) -> Condensation:
        """Return the condensation to make, even if no condensation is due. Raises
        ``NoCondensationAvailable`` if no condensation is possible.
        """

    def condense_without_model(
        self, view: View, agent_llm: AgentModel | None = None
    ) -> Condensation:
        """Return a required condensation that does not ask the model of this strategy. The default
        method raises ``NoCondensationAvailable``, and the step then makes a digest with its own
        rules: see ``stepping.step``.
        """
        raise NoCondensationAvailable(f"the model of the condenser {self.type!r} is not asked")

    @model_is_optional
    def hard_context_reset(
        self, view: View, agent_llm: AgentModel | None = None
    ) -> Condensation | None:
        """Return a condensation that forgets as many events as possible. The caller uses this
        condensation if a condensation is required and no other condensation is possible. Returns
        None if the strategy has no hard reset.
        """
        return None

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        """Return the step over ``view``: the View if no condensation is due or a soft one is
        impossible, and otherwise a condensation. Raises ``NoCondensationAvailable`` if a hard
        condensation and the hard reset are impossible.
        """
        bound = self.for_agent(agent_llm)
        if bound is not self:
            return bound.step(view, agent_llm)
        requirement = call_with_model(self.condensation_requirement, view, agent_llm)
        is_spared = self.asks_a_model and model_use.get() is ModelUse.SPARE
        if requirement is None or (is_spared and requirement is Requirement.SOFT):
            return Step(view)
        if is_spared and self.fallback:
            condensation = self.condense_without_model(view, agent_llm)
            return Step(self._explain(view, agent_llm, condensation))
        try:
            condensation = call_with_model(self.get_condensation, view, agent_llm)
            return Step(self._explain(view, agent_llm, condensation))
        except NoCondensationAvailable as unavailable:
            if requirement is Requirement.SOFT:
                return Step(view, unavailable.reports or self._report_size(view, str(unavailable)))
            return with_step_reports(self._reset(view, agent_llm, unavailable), unavailable.reports)

    def _explain(
        self, view: View, agent_llm: AgentModel | None, condensation: Condensation
    ) -> Condensation:
        """Return a condensation with the reason for it in its metadata. If the strategy has its own
        ``should_condense``, the condensation also forgets the earlier summaries.
        """
        if not isinstance(condensation, Condensation):
            # ``_checked_step`` in ``condensers/base.py`` raises ``TypeError`` for another result.
            return condensation
        action = condensation.action
        if self._has_should_condense:
            action = self._forgetting_summaries(view, action)
        if "reason" not in action.metadata:
            events_after = len(view.then((action,)))
            due = self.reasons(view, agent_llm)
            metadata = self._metadata(view, events_after, due)
            action = replace(action, metadata={**metadata, **action.metadata})
        return condensation if action is condensation.action else Condensation(action)

    def _forgetting_summaries(self, view: View, action: CondensationAction) -> CondensationAction:
        """If ``action`` has a summary, return an action that also forgets the earlier summaries of
        the View. A strategy with its own ``should_condense`` therefore need not list the earlier
        summaries among the events to forget.
        """
        if action.summary is None:
            return action
        forgotten = action.forgotten_event_ids or ()
        summaries = [event.id for event in view.events if event.id < NOT_RECORDED]
        if set(summaries) <= set(forgotten):
            return action
        return replace(
            action,
            forgotten_event_ids=tuple(dict.fromkeys((*forgotten, *summaries))),
            forgotten_events_start_id=None,
            forgotten_events_end_id=None,
        )

    def without_summary(
        self,
        view: View,
        kept: Set[int],
        why_not: str,
        reports: tuple[Report, ...] = (),
        *,
        with_summaries: bool = False,
    ) -> Condensation:
        """Return a condensation that has no summary and forgets the events that the strategy does
        not keep.

        Args:
            view: The View.
            kept: The indices of the events that the strategy keeps. ``selection.events_to_forget``
                extends them to whole units.
            why_not: The reason, if nothing can be forgotten.
            reports: The condensation stores these reports.
            with_summaries: Whether summaries outside of ``kept`` are forgotten too.

        Returns:
            The condensation. The caller appends it.

        Raises:
            NoCondensationAvailable: No event of the log can be forgotten. The error has ``why_not``
                and ``reports``.

        Cost: one pass over the View.
        """
        kept = {*kept, *range(first_kept_index(view), len(view))}
        forgotten = events_to_forget(view, kept, with_summaries=with_summaries)
        if not with_summaries:
            kept |= {
                index for index, event in enumerate(view.events) if stands_for_forgotten(event)
            }
        # These events stay only because the strategy keeps another event of their unit.
        kept_whole = len(view) - len(forgotten) - len(kept)
        if not count_logged(forgotten):
            if kept_whole:
                stay = count(kept_whole, "event stays", "events stay")
                why_not += f"; {stay} because a part of their call or tool loop is kept"
            raise NoCondensationAvailable(
                f"nothing can be forgotten: {why_not}{describe_unseen(view)}", reports
            )
        due = self.reasons(view)
        metadata = self._metadata(view, len(view) - len(forgotten), due)
        if kept_whole:
            metadata["events_kept_whole"] = kept_whole
        return Condensation(with_reports(forget(forgotten, metadata), reports))

    def _metadata(
        self, view: View, events_after: int, reasons: Set[Reason], outcome: str = "condensed"
    ) -> JsonObject:
        """Return the metadata of a condensation: the condenser, the outcome, the reasons and the
        numbers of events.
        """
        metadata = {
            "condenser": self.type,
            "outcome": outcome,
            "reason": ", ".join(sorted(reasons))
            or ("a rule of its own" if self._has_own_rule else "asked for"),
            "events_before": len(view),
            "events_after": events_after,
        }
        if Reason.EVENTS in reasons:
            metadata["events_max"] = self._events_max
        return metadata

    def _report_size(self, view: View, why: str) -> tuple[Report, ...]:
        """Return the report on a View that stays above ``max_size``, or nothing if the strategy has
        no such limit. ``why`` is the reason.
        """
        max_size = getattr(self, "max_size", None)
        if max_size is None:
            return ()
        rule = {"max_size": max_size, "keep_first": getattr(self, "keep_first", 0)}
        report = {
            "condenser": self.type,
            "rule": rule,
            "outcome": "above size",
            "events": len(view),
            "problem": why,
        }
        return (report,)

    def _reset(
        self, view: View, agent_llm: AgentModel | None, unavailable: NoCondensationAvailable
    ) -> Condensation:
        """Return the hard reset. Raises ``unavailable``, or the error of the reset with the reports
        of both, if there is none.
        """
        if self._has_digest and unavailable.model_failed:
            raise unavailable
        try:
            reset = call_with_model(self.hard_context_reset, view, agent_llm)
        except NoCondensationAvailable as error:
            error.reports = (*unavailable.reports, *error.reports)
            raise error from unavailable
        if reset is None:
            raise unavailable
        return reset


def reasons_by_size(view: View, max_size: int | None) -> frozenset[Reason]:
    """Return the reasons for a condensation that need no tokens: a request, and more than
    ``max_size`` events.
    """
    too_many = max_size is not None and len(view) > max_size
    due = {Reason.REQUEST: view.unhandled_condensation_request, Reason.EVENTS: too_many}
    return frozenset(reason for reason, is_due in due.items() if is_due)


def check_sizes(
    max_size: int, keep_first: int, *, beside: int = 0, keep_ratio: float = 0.5
) -> None:
    """Raise ``InvalidCondenser`` if ``keep_first`` is negative or too large. Together with
    ``beside``, the room for a summary, ``keep_first`` must be less than the part ``keep_ratio`` of
    ``max_size``.
    """
    if keep_first + beside >= int(max_size * keep_ratio):
        part = "half" if keep_ratio == 0.5 else f"keep_ratio ({keep_ratio:g})"
        raise InvalidCondenser(
            f"keep_first ({keep_first}) must be less than {part} of max_size ({max_size})"
            + (f" minus {beside}, which is the room for the summary" if beside else "")
        )
    if keep_first < 0:
        raise InvalidCondenser(f"keep_first ({keep_first}) cannot be negative")
