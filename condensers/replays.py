"""What a history would have been under other strategies: replayed in memory, the store untouched.

The recorded condensations are left out. The condenser is asked wherever the agent's model was called, and decides as if
it had been there from the start, so that two strategies are compared over the very same work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from condensers.base import AgentModel, Condensation, Condenser, Report
from condensers.errors import CondenserError, Failure, ModelCallFailed, NoCondensationAvailable
from condensers.models.budget import tokens_of, tokens_of_beginnings
from condensers.reports import reports_of
from eventstore.events import Action, CondensationAction, Event, Message, summary_id
from projections import View

__all__ = ["Made", "Replay", "Turn", "replay"]

_CONDENSATIONS_MAX_A_TURN = 10

_OUT_OF_REACH: frozenset[Failure] = frozenset({"timeout", "rate_limited", "rejected", "unavailable"})
"""Failures that say nothing of the strategy. A reply of no use does: it is counted, and the replay goes on."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One call of the agent's model: the event that it led to, and how large the View was that it was shown.

    ``hidden`` counts events of the View that the condenser left out this once. ``tokens`` is None where nobody could
    count them.
    """

    event_id: int
    events: int
    hidden: int
    tokens: int | None


@dataclass(frozen=True, slots=True)
class Made:
    """One condensation: the event that it came before, the sizes of the View, and whether it has a summary."""

    event_id: int
    events_before: int
    events_after: int
    has_summary: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """How one strategy did over a history. All ids are the history's own.

    ``declined``    how often a condensation was required and impossible
    ``final``       the View at the end
    ``summarized``  events for which a summary stands in that View
    ``lost``        events that are forgotten and in no summary
    ``reports``     what the condenser reported, its model's usage and cost among it
    """

    turns: tuple[Turn, ...]
    condensations: tuple[Made, ...]
    declined: int
    final: View
    summarized: tuple[int, ...]
    lost: tuple[int, ...]
    reports: tuple[Report, ...]

    @property
    def tokens_sent(self) -> int | None:
        """The tokens of all prompts that the agent's model would have been sent; None where one was not counted."""
        counts = [turn.tokens for turn in self.turns]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def tokens_peak(self) -> int | None:
        """The largest prompt, of those that were counted."""
        return max((turn.tokens for turn in self.turns if turn.tokens is not None), default=None)

    @property
    def condenser_tokens(self) -> int:
        """The tokens that the condenser's own model was sent and gave."""
        return sum(metrics.get("usage", {}).get("total_tokens", 0) for metrics in self._metrics())

    @property
    def condenser_failures(self) -> int:
        """How often the condenser's own model gave a reply that could not be used."""
        return sum("failure" in report for report in self.reports)

    @property
    def condenser_cost(self) -> float:
        """What the condenser's own model cost, in US dollars, as far as prices are known."""
        return sum((metrics.get("cost") or 0.0 for metrics in self._metrics()), 0.0)

    def _metrics(self) -> Iterable[Mapping[str, Any]]:
        """A report says what was spent under ``metrics``, or, of a call that failed, by itself."""
        return (report.get("metrics", report) for report in self.reports)


def replay(events: Iterable[Event], condenser: Condenser, agent_llm: AgentModel | None = None) -> Replay:
    """How ``condenser`` would have done over ``events``, a history from its first event on.

    ``agent_llm`` counts tokens and sets the limits that a budget keeps to. A condenser with a model calls it. Raises
    what the condenser raises but for ``NoCondensationAvailable``; ``ModelCallFailed`` where its model cannot be
    reached, for the figures would not be this strategy's; and ``CondenserError`` where it condenses without end. Cost:
    the events, and at each call of the agent's model what the condenser does; tokens are counted once for each stretch
    between two condensations, but at each call where a condenser hides something from it.
    """
    replaying = _Replaying(condenser, agent_llm)
    response_id: str | None = None
    for event in events:
        if isinstance(event, CondensationAction):
            continue
        if _begins_a_turn(event, response_id):
            replaying.take_turn(event.id)
        response_id = event.response_id if isinstance(event, Action) else None
        replaying.append(event)
    return replaying.result()


def _begins_a_turn(event: Event, response_id: str | None) -> bool:
    """Whether the agent's model was called for this event: the calls of one response came of one call."""
    if isinstance(event, Action):
        return (
            event.shown and event.source == "agent" and (event.response_id is None or event.response_id != response_id)
        )
    return isinstance(event, Message) and event.shown and event.source == "agent"


class _Replaying:
    """A replay in progress. The history gets new ids, since other condensations stand in it."""

    def __init__(self, condenser: Condenser, agent_llm: AgentModel | None) -> None:
        self._condenser, self._agent_llm = condenser, agent_llm
        self._view = View.from_events(())
        self._new_ids: dict[int, int] = {}
        self._old_ids: dict[int, int] = {}
        self._stood_for: dict[int, frozenset[int]] = {}
        """By summary in the View, the events for which it stands."""
        self._lost: set[int] = set()
        self._turns: list[Turn] = []
        self._uncounted: list[int] = []
        """Places of turns whose tokens nobody has counted yet."""
        self._made: list[Made] = []
        self._declined = 0
        self._reports: list[Report] = []

    def append(self, event: Event) -> None:
        new_id = self._view.version
        self._new_ids[event.id], self._old_ids[new_id] = new_id, event.id
        cause = None if event.cause is None else self._new_ids.get(event.cause)
        self._view = self._view.then((replace(event, id=new_id, cause=cause),))

    def take_turn(self, event_id: int) -> None:
        """Condenses as often as is needed before the model is called that gave the event with this id."""
        for _ in range(_CONDENSATIONS_MAX_A_TURN):
            try:
                result, reports = self._condenser.step(self._view, self._agent_llm)
            except NoCondensationAvailable as error:
                self._decline(error)
                result, reports = self._view, error.reports
            self._report(reports)
            if isinstance(result, View):
                self._turns.append(self._turn(event_id, result))
                return
            self._condense(result, event_id)
        raise CondenserError(
            f"the condenser {self._condenser.type!r} condensed {_CONDENSATIONS_MAX_A_TURN} times before event "
            f"{event_id} and wanted to go on: it makes no progress"
        )

    def _turn(self, event_id: int, shown: View) -> Turn:
        """Where the View itself is shown its tokens are counted later: of all the turns between two condensations at
        once, for it only grows meanwhile.
        """
        if shown is self._view:
            self._uncounted.append(len(self._turns))
            return Turn(event_id, len(shown), 0, None)
        return Turn(event_id, len(shown), len(self._view) - len(shown), tokens_of(shown, self._agent_llm))

    def _count_tokens(self) -> None:
        """Of the turns that were left for later. To be called before the View changes other than at its end."""
        turns = [self._turns[place] for place in self._uncounted]
        counts = tokens_of_beginnings(self._view, [turn.events for turn in turns], self._agent_llm)
        for place, turn, tokens in zip(self._uncounted, turns, counts, strict=True):
            self._turns[place] = dataclasses.replace(turn, tokens=tokens)
        self._uncounted.clear()

    def _report(self, reports: Iterable[Report]) -> None:
        for report in reports:
            if report.get("failure") in _OUT_OF_REACH:
                raise ModelCallFailed(report["model"], report["failure"], report["problem"], report)
            self._reports.append(report)

    def _decline(self, error: NoCondensationAvailable) -> None:
        self._declined += 1
        if self._view.unhandled_condensation_request:
            metadata = {"outcome": "declined", "reason": str(error)}
            self._view = self._view.then((CondensationAction(forgotten_event_ids=(), metadata=metadata),))

    def _condense(self, condensation: Condensation, event_id: int) -> None:
        self._count_tokens()
        action = replace(condensation.action, id=self._view.version)
        before, self._view = self._view, self._view.then((action,))
        still_shown = {event.id for event in self._view}
        gone: set[int] = set()
        for event in before:
            if event.id in still_shown:
                continue
            gone |= self._stood_for.pop(event.id, {self._old_ids.get(event.id, event.id)})
        if action.summary is None:
            self._lost |= gone
        else:
            self._stood_for[summary_id(action.id)] = frozenset(gone)
        self._report(reports_of(action))
        self._made.append(Made(event_id, len(before), len(self._view), action.summary is not None))

    def result(self) -> Replay:
        self._count_tokens()
        summarized: set[int] = set().union(*self._stood_for.values())
        return Replay(
            turns=tuple(self._turns),
            condensations=tuple(self._made),
            declined=self._declined,
            final=self._view,
            summarized=tuple(sorted(summarized)),
            lost=tuple(sorted(self._lost)),
            reports=tuple(self._reports),
        )
