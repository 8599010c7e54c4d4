"""Replay a history in memory with another condenser. A replay measures the cost of the prompts that
the agent's model would have got, and finds the events and terms that were missing in them. The
store does not change.

The condenser runs before each call of the agent's model, as if it had been used from the beginning.
The recorded condensations are left out. So all strategies are compared over the same work of the
agent.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from foldlog._base.json_types import JsonObject
from foldlog._reports.answers.comparison import CallDocument, MissingDocument
from foldlog._reports.figures.prices import Price
from foldlog._reports.figures.savings import is_made, recorded_cost
from foldlog._reports.recall_score import ID_OF_A_LINE, NeedKind, Needs
from foldlog.condensers import (
    AgentModel,
    Condensation,
    Condenser,
    CondenserError,
    ModelCallFailed,
    NoCondensationAvailable,
    Report,
    Usage,
    is_masked,
    reports_of,
    stepping,
)
from foldlog.condensers.errors import OUT_OF_REACH
from foldlog.condensers.models.caches import OTHER, CacheRule
from foldlog.condensers.models.estimate import counting, estimate, token_sums_of
from foldlog.condensers.prompts import load_prompt
from foldlog.condensers.strategies.digest import digest_of
from foldlog.condensers.strategies.digest.fold import TITLE
from foldlog.condensers.strategies.digest.layout import text_of
from foldlog.eventstore import CondensationAction, Event, summary_id, summary_of
from foldlog.eventstore.events import names_source_ids
from foldlog.formats.model_calls import begins_call, model_reports
from foldlog.formats.record import dicts_in
from foldlog.projections import Folded, View, begins_reply, contains, intervals_kept

_Number = TypeVar("_Number", int, float)

_CONDENSATIONS_MAX_A_TURN = 10
"""A condenser that condenses more often before the same event makes no progress."""
_WHOLE = 10_000_000
"""A limit, in characters, that no digest reaches."""


class SummaryPrompts(NamedTuple):
    """The tokens of the two prompts with which a model can be asked for a summary.

    ``own``       a prompt of its own, with the forgotten events
    ``next``      the agent's next prompt, with the wish for a summary as its last message
    ``repeated``  the tokens of ``next`` that repeat the agent's previous prompt
    ``reply``     the tokens of the summary
    """

    own: int
    next: int
    repeated: int
    reply: int

    def cost_own(self, price: Price) -> float:
        """Return the cost of asking with a prompt of its own."""
        price = price.at(self.own)
        return price.of_prompt(self.own, 0) + price.of_reply(self.reply)

    def cost_next(self, price: Price, rule: CacheRule) -> float:
        """Return the cost of asking with the agent's next prompt."""
        reply_cost = price.at(self.next).of_reply(self.reply)
        return cost_of_prompt(self.next, self.repeated, price, rule) + reply_cost


def cost_of_prompt(tokens: int, repeated: int, price: Price, rule: CacheRule) -> float:
    """Return the cost of a prompt in US dollars. ``repeated`` is the number of tokens that repeat
    the previous prompt. Some of these tokens have the price of cached tokens, see ``rule``, and the
    other tokens are written to the cache.
    """
    cached = rule.cached(repeated)
    written = tokens - cached if tokens >= rule.least else 0
    return price.at(tokens).of_prompt(tokens - cached - written, cached, written)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The figures of a strategy over a history. All ids are ids of the history.

    ``turns``             the calls of the agent's model
    ``condensations``     for each condensation, the id of the event that follows it; for a recorded
                          one, its own id
    ``declined``          how often a condensation was required and impossible
    ``final``             the View at the end of the replay
    ``summarized``        events that are in a summary of the ``final`` View
    ``lost``              events that were missing in a prompt and in its summaries, at least once
    ``masked``            events that a prompt showed only in part
    ``reports``           the reports of the condenser, with its model's usage and cost
    ``condenser_cost``    the cost of the condenser's model in US dollars; None if a price or a cost
                          is unknown
    ``summaries``         for each summary of a model, the prompts with which the model could be
                          asked
    ``needed``            the earlier terms that the agent used again, one for each use in a reply
    ``missing``           the terms in ``needed`` that the prompt did not show: see
                          ``docs/internals/COMPACTION.md``
    ``facts``             how many of ``needed`` had neighbours: see
                          ``docs/internals/COMPACTION.md``
    ``facts_in_prompts``  for how many of ``facts`` the prompt shows the term near a neighbour
    ``recall``            for each kind of facts and class of ages, how many were needed and shown:
                          see ``recall_score.Needs.counts``
    """

    turns: Sequence[CallDocument]
    condensations: tuple[int, ...]
    declined: int
    final: View
    summarized: tuple[int, ...]
    lost: tuple[int, ...]
    masked: tuple[int, ...]
    reports: tuple[Report, ...]
    condenser_cost: float | None
    summaries: Sequence[SummaryPrompts]
    needed: Sequence[str]
    missing: Sequence[MissingDocument]
    facts: int
    facts_in_prompts: int
    recall: Mapping[tuple[NeedKind, int], Sequence[int]]

    @property
    def acted(self) -> bool:
        """Whether the agent's model was called after a condensation."""
        if not self.turns:
            return False
        return any(event_id <= self.turns[-1].event_id for event_id in self.condensations)

    @property
    def needed_shown(self) -> float | None:
        """The percentage of ``needed`` that was shown, or None if ``needed`` is empty."""
        if self.needed:
            return 100 * (1 - len(self.missing) / len(self.needed))
        return None

    @property
    def facts_shown(self) -> float | None:
        """The percentage of ``facts`` that was shown, or None if ``facts`` is 0."""
        return 100 * self.facts_in_prompts / self.facts if self.facts else None

    def shown_of(self, kind: NeedKind, *, least_age: int = 0) -> float | None:
        """Return the percentage of the needed facts of a kind that was shown, of those whose age is
        at least ``least_age`` events, one of ``AGES``. Return None if none was needed.
        """
        counts = [
            sums for (name, age), sums in self.recall.items() if name == kind and age >= least_age
        ]
        all_needed = sum(needed for needed, _ in counts)
        all_shown = sum(shown for _, shown in counts)
        return 100 * all_shown / all_needed if all_needed else None

    @property
    def needed_named(self) -> float | None:
        """The percentage of ``needed`` that the prompt showed, or for which a digest in the prompt
        gave the id of an event with the term. The agent could read this event with ``recall``.
        """
        lost = sum(not term.named for term in self.missing)
        return 100 * (1 - lost / len(self.needed)) if self.needed else None

    @property
    def tokens_sent(self) -> int | None:
        """The tokens of all prompts that would have been sent to the agent's model, or None if a
        prompt was not counted.
        """
        return _sum(turn.tokens for turn in self.turns)

    @property
    def tokens_new(self) -> int | None:
        """The tokens in ``tokens_sent`` that do not repeat the previous prompt, or None if a prompt
        was not counted.
        """
        sent = self.tokens_sent
        repeated = self.tokens_repeated
        return None if sent is None or repeated is None else sent - repeated

    @property
    def tokens_repeated(self) -> int | None:
        """The tokens in ``tokens_sent`` that repeat the beginning of the previous prompt, or None
        if a prompt was not counted.
        """
        return _sum(turn.repeated for turn in self.turns)

    def tokens_cached(self, rule: CacheRule) -> int | None:
        """Return how many of ``tokens_repeated`` the provider's cache reads."""
        return _sum(
            None if turn.repeated is None else rule.cached(turn.repeated) for turn in self.turns
        )

    def prompts_cost(self, price: Price, rule: CacheRule = OTHER) -> float | None:
        """Return the cost of the prompts in US dollars. Return None if a prompt was not counted."""
        return _sum(
            None
            if turn.tokens is None or turn.repeated is None
            else cost_of_prompt(turn.tokens, turn.repeated, price, rule)
            for turn in self.turns
        )

    @property
    def tokens_peak(self) -> int | None:
        """The largest counted prompt, in tokens."""
        return max((turn.tokens for turn in self.turns if turn.tokens is not None), default=None)

    @property
    def condenser_tokens(self) -> int:
        """The tokens of the prompts and replies of the condenser's own model."""
        reports = (report for report in self.reports if isinstance(report.get("metrics"), dict))
        return Usage.of(reports).usage["total_tokens"]

    @property
    def condenser_failures(self) -> int:
        """The number of unusable replies of the condenser's own model."""
        return sum("failure" in report for report in self.reports)

    def cost(self, price: Price, rule: CacheRule = OTHER) -> float | None:
        """Return the cost of the prompts and of the condenser's own model, in US dollars. Return
        None if a cost is unknown.
        """
        return _sum((self.prompts_cost(price, rule), self.condenser_cost))


def replay(
    events: Iterable[Event], condenser: Condenser | None, agent_llm: AgentModel | None = None
) -> Replay:
    """Replay a history with ``condenser``. ``events`` must begin with the first event of the
    history. If ``condenser`` is None, the recorded condensations are replayed. Retracted events are
    left out.

    ``agent_llm`` counts the tokens of the prompts, and limits the Views as in ``prepare``. Without
    ``agent_llm``, the tokens of the prompts and their cost are None, and the limits of the
    condenser apply to estimated tokens. If the condenser asks a model, the replay asks this model:
    the condenser's own model, or ``agent_llm`` if the condenser names none. Raises the errors of
    the condenser except ``NoCondensationAvailable``: the replay counts such a step as declined, and
    sends the whole View. Raises ``ModelCallFailed`` if the condenser's model cannot be reached,
    because the figures would then be wrong. Raises ``CondenserError`` if the condenser condenses
    again and again before the same event. Cost: the function reads all events, and calls the
    condenser and ``AgentModel.token_sums`` before each call of the agent's model.
    """
    history = list(events)
    intervals = intervals_kept(history, history[-1].id + 1 if history else 0)
    replaying = Replaying(condenser, agent_llm)
    for event in history:
        if contains(intervals, event.id):
            replaying.take(event)
    return replaying.result()


class Replaying:
    """Pass the events of a history to ``take`` in order, and then call ``result``.

    Leave out retracted events and the retractions: see ``foldlog.projections.retractions``. The
    events get new ids, because the replay has other condensations. Memory: the object holds all
    events and terms of the history.

    Without a condenser, the condensations of the history are repeated after the events that they
    followed. ``agent_llm`` counts tokens for the limits of the condenser, as in ``prepare``.
    Without ``agent_llm``, the tokens for the condenser's limits are estimated. ``counter`` counts
    the tokens of the sent prompts.
    """

    def __init__(
        self,
        condenser: Condenser | None,
        agent_llm: AgentModel | None = None,
        counter: AgentModel | None = None,
    ) -> None:
        self._condenser = condenser
        self._agent_llm = agent_llm
        self._counter = counter or agent_llm
        self._last_reply: Event | None = None
        self._past = _Past()
        self._view = View.from_events(())
        self._new_ids: dict[int, int] = {}
        """Maps the id of an event in the history to its id in the replay."""
        self._old_ids: dict[int, int] = {}
        """Maps the id of an event in the replay to its id in the history."""
        self._summarized: dict[int, Collection[int]] = {}
        """Maps a summary to the events that it describes, by their ids in the history."""
        self._lost: set[int] = set()
        self._masked: set[int] = set()
        self._turns: list[CallDocument] = []
        self._condensed_before: list[int] = []
        """For each condensation, the id of the event that follows it."""
        self._declined = 0
        self._reports: list[Report] = []
        self._recorded_costs: list[float | None] = []
        self._summaries: list[SummaryPrompts] = []
        self._needs = Needs()
        self._sent: tuple[Event, ...] = ()
        """The events of the previous prompt."""

    def take(self, event: Event) -> None:
        """Add the next event of the history. If it begins a reply, the condenser runs first."""
        if self._condenser is None:
            self._note_recorded_calls(event)
        if isinstance(event, CondensationAction):
            if self._condenser is None:
                self._repeat(event)
            return
        if event.shown and begins_reply(event):
            if begins_call(event, self._last_reply):
                self._take_turn(event.id)
            self._last_reply = event
        cause = None if event.cause is None else self._new_ids.get(event.cause)
        new_id = self._number(event)
        event = replace(event, id=new_id, cause=cause)
        self._needs.take(event, self._old_ids)
        self._view = self._past.then(self._view, event)

    def _note_recorded_calls(self, event: Event) -> None:
        """Note the reports of the recorded condenser in an event, and the cost of its calls. A step
        that forgot nothing has its reports in an event of its own.
        """
        reports = dicts_in(reports_of(event))
        self._reports += reports
        if isinstance(event, CondensationAction):
            self._recorded_costs.append(recorded_cost(event))
        elif reports:
            self._recorded_costs.append(Usage.of(model_reports(event)).cost)

    def _number(self, event: Event) -> int:
        """Return the id that the next event has in the replay."""
        new_id = self._view.version
        self._new_ids[event.id] = new_id
        self._old_ids[new_id] = event.id
        return new_id

    def result(self) -> Replay:
        """Return the figures of the replay so far."""
        return Replay(
            turns=tuple(self._turns),
            condensations=tuple(self._condensed_before),
            declined=self._declined,
            final=self._view,
            summarized=tuple(sorted(chain.from_iterable(self._summarized.values()))),
            lost=tuple(sorted(self._lost)),
            masked=tuple(sorted(self._masked)),
            reports=tuple(self._reports),
            condenser_cost=(
                _sum(self._recorded_costs)
                if self._condenser is None
                else Usage.of(self._reports).cost
            ),
            summaries=tuple(self._summaries),
            needed=tuple(self._needs.used),
            missing=tuple(self._needs.missing),
            facts=self._needs.facts,
            facts_in_prompts=self._needs.facts_shown,
            recall=self._needs.counts,
        )

    def _take_turn(self, event_id: int) -> None:
        """Condense as long as the condenser wants to, then send the View. ``event_id`` is the first
        event of the reply.
        """
        if self._condenser is None:
            self._send(self._view, event_id)
            return
        for _ in range(_CONDENSATIONS_MAX_A_TURN):
            try:
                result, reports = stepping.step(
                    self._condenser, self._view, counting(self._agent_llm)
                )
            except NoCondensationAvailable as error:
                self._decline(error)
                result = self._view
                reports = error.reports
            self._report(reports)
            if isinstance(result, View):
                self._send(result, event_id)
                return
            self._report(reports_of(result.action))
            self._condense(result, event_id)
        raise CondenserError(
            f"the condenser {self._condenser.type!r} condensed {_CONDENSATIONS_MAX_A_TURN} times"
            f" before event {event_id}, and wants to condense again: it makes no progress"
        )

    def _send(self, shown: View, event_id: int) -> None:
        """Count the prompt ``shown``, and the events of the View that it hides or masks."""
        self._needs.show(shown)
        if len(shown) < len(self._view):
            sent = {event.id for event in shown}
            self._lost.update(
                self._ids_in_history(event.id for event in self._view if event.id not in sent)
            )
        self._masked.update(
            self._old_ids[event.id] for event in shown if event.id >= 0 and is_masked(event)
        )
        sums = token_sums_of(shown, self._counter)
        tokens = None
        repeated = None
        if sums is not None:
            tokens = sums[-1]
            repeated = self._repeated_tokens(shown, sums)
        self._sent = shown.events
        self._turns.append(
            CallDocument(event_id, len(shown), len(self._view) - len(shown), tokens, repeated)
        )

    def _repeated_tokens(self, view: View, sums: Sequence[int]) -> int:
        """Return in how many tokens the prompt of ``view`` repeats the previous prompt."""
        if not self._turns:
            return 0
        same_count = 0
        for old, new in zip(self._sent, view.events, strict=False):
            if old is not new and old != new:
                break
            same_count += 1
        return sums[same_count]

    def _note_summary_prompts(self, view: View, forgotten: Iterable[Event], summary: str) -> None:
        """Note the prompts with which a model could be asked for ``summary``: see
        ``SummaryPrompts``.
        """
        sums = token_sums_of(view, self._counter)
        if sums is None:
            return
        ids = {event.id for event in forgotten}
        quoted = sum(
            after - before
            for event, (before, after) in zip(view.events, pairwise(sums), strict=True)
            if event.id in ids
        )
        instructions = estimate(load_prompt("summary").text)
        wish = estimate(load_prompt("next_summary").text)
        repeated = self._repeated_tokens(view, sums)
        self._summaries.append(
            SummaryPrompts(quoted + instructions, sums[-1] + wish, repeated, estimate(summary))
        )

    def _report(self, reports: Iterable[Report]) -> None:
        """Note what the condenser reports. Raises ``ModelCallFailed`` if its model could not be
        reached.
        """
        for report in reports:
            # An unusable reply is a property of the strategy, but an unreachable model is not.
            if report.get("failure") in OUT_OF_REACH:
                raise ModelCallFailed(report["model"], report["failure"], report["problem"], report)
            self._reports.append(report)

    def _decline(self, error: NoCondensationAvailable) -> None:
        """Count a step that could not condense. As in a store, an event then answers a request."""
        self._declined += 1
        if self._view.unhandled_condensation_request:
            metadata = {"outcome": "declined", "reason": str(error)}
            declined = CondensationAction(
                id=self._view.version, forgotten_event_ids=(), metadata=metadata
            )
            self._view = self._past.then(self._view, declined)

    def _repeat(self, action: CondensationAction) -> None:
        """Repeat a recorded condensation, with the ids of the replay."""
        new_id = self._number(action)
        summary = action.summary
        if not names_source_ids(action):
            ids = map(self._id_in_replay, action.forgotten_event_ids or ())
            action = replace(
                action,
                forgotten_event_ids=tuple(event_id for event_id in ids if event_id is not None),
                forgotten_events_start_id=None,
                forgotten_events_end_id=None,
                summary=(None if summary is None else ID_OF_A_LINE.sub(self._with_new_id, summary)),
            )
        if action.metadata.get("outcome") == "declined":
            self._declined += 1
            self._view = self._past.then(self._view, replace(action, id=new_id))
        else:
            self._condense(Condensation(action), action.id)

    def _id_in_replay(self, event_id: int) -> int | None:
        """Return the new id of an event or of a summary, or None if the replay does not have it."""
        if event_id >= 0:
            return self._new_ids.get(event_id)
        condensation_id = self._new_ids.get(summary_of(event_id))
        return None if condensation_id is None else summary_id(condensation_id)

    def _with_new_id(self, end_of_line: re.Match[str]) -> str:
        return f" [{self._new_ids.get(int(end_of_line[1]), end_of_line[1])}]"

    def _condense(self, condensation: Condensation, event_id: int) -> None:
        """Carry out a condensation, and find what it loses. ``event_id`` is the event after it."""
        action = replace(condensation.action, id=self._view.version)
        before = self._view
        self._view = self._past.then(before, action)
        still_shown = {event.id for event in self._view}
        forgotten = [event for event in before if event.id not in still_shown]
        forgotten_ids = set(self._ids_in_history(event.id for event in forgotten))
        lost = forgotten_ids
        if action.summary is not None:
            omitted = _omitted_from_digest(before, forgotten, action.summary)
            lost = forgotten_ids.intersection(
                self._old_ids[event_id] for event_id in omitted if event_id in self._old_ids
            )
            self._summarized[summary_id(action.id)] = forgotten_ids - lost
            if not action.summary.startswith(TITLE):  # A digest needs no prompt.
                self._note_summary_prompts(before, forgotten, action.summary)
        self._lost.update(lost)
        for event in forgotten:
            self._summarized.pop(event.id, None)
        if is_made(action):
            self._condensed_before.append(event_id)

    def _ids_in_history(self, ids: Iterable[int]) -> list[int]:
        """Return the old ids of events. A summary is replaced by the ids of the events that it
        describes.
        """
        old_ids = (
            self._summarized[event_id] if event_id < 0 else [self._old_ids[event_id]]
            for event_id in ids
        )
        return list(chain.from_iterable(old_ids))


def _omitted_from_digest(view: View, forgotten: Iterable[Event], text: str) -> set[int]:
    """Return the ids of the events that have a line in an unlimited digest, but no line in
    ``text``. Lines of the digest that only list names are ignored. If ``text`` is not a digest,
    return an empty set.
    """
    if not text.startswith(TITLE):
        return set()
    whole = text_of(dataclasses.replace(digest_of(view, forgotten), names={}), _WHOLE)
    return {
        int(event_id) for event_id in {*ID_OF_A_LINE.findall(whole)} - {*ID_OF_A_LINE.findall(text)}
    }


class _Past:
    """The log of a replay, to which the Views of the replay refer. A replay never returns to an
    earlier version.
    """

    conversation = ""
    key = 0
    redactions = 0

    def __init__(self) -> None:
        self.memory: JsonObject = {}
        self._log: list[Event] = []

    def then(self, view: View, event: Event) -> View:
        """Append an event, and return the View after it."""
        self._log.append(event)
        view = view.then((event,))
        return dataclasses.replace(view, state=dataclasses.replace(view.state, past=self))

    def at(self, version: int) -> Folded:
        raise LookupError(f"a replay cannot return to version {version}")

    def events(self, start: int, stop: int) -> list[Event]:
        return self._log[start:stop]

    def document(self, name: str) -> None:
        return None  # A replay has no store.


def _sum(numbers: Iterable[_Number | None]) -> _Number | None:
    """Return the sum of numbers, or None if one of them is unknown."""
    values = list(numbers)
    return None if None in values else sum(filter(None, values))
