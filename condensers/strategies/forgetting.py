"""The condensers of this module forget events without a summary.

See docs/internals/decisions/0052-who-may-forget-a-summary.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from msgspec import Struct
from msgspec.json import schema_components
from msgspec.structs import replace

from foldlog._base.json_types import JsonMap
from foldlog.condensers.base import AgentModel, Condensation, Report, setting
from foldlog.condensers.errors import ModelCallFailed, NoCondensationAvailable
from foldlog.condensers.models.agents_model import AskingCondenser
from foldlog.condensers.models.replies import ask, made_by, read_json, report_on
from foldlog.condensers.prompts import load_prompt
from foldlog.condensers.prompts.rendering import arguments_of, event_block
from foldlog.condensers.rolling import RollingCondenser, check_sizes
from foldlog.condensers.selection import ends, events_to_forget, sent_ids, stands_for_forgotten
from foldlog.eventstore import (
    Action,
    CondensationSummary,
    Event,
    Message,
    Observation,
    SystemMessage,
)
from foldlog.eventstore.errors import count
from foldlog.projections import View


@dataclass(frozen=True, eq=False)
class AmortizedForgettingCondenser(RollingCondenser):
    """Forgets the middle of a View with more than ``max_size`` events. Half of ``max_size``
    remains. ``amortized_forgetting`` writes no summary.

    Old summaries are forgotten too. If the head or the tail contains a part of a call or of a tool
    loop, the whole call or loop stays. More than half of ``max_size`` events may stay for this
    reason.
    """

    type = "amortized_forgetting"

    max_size: int = setting(
        100, "a View with more events is condensed to half of this number", ge=2
    )
    keep_first: int = setting(1, "how many events at the head are never forgotten", ge=0)

    def check_sizes(self) -> None:
        check_sizes(self.max_size, self.keep_first)

    def get_condensation(self, view: View, agent_llm: AgentModel | None = None) -> Condensation:
        target = self.max_size // 2
        positions = ends(view, self.keep_first, target - self.keep_first)
        if len(view) <= target:
            why_not = f"a View of {len(view)} is within half of max_size ({target})"
        else:
            are = count(len(view), "event is", "events are")
            why_not = f"{are} more than half of max_size ({target})"
        return self.without_summary(view, positions, why_not, with_summaries=True)


# --- the choice of a model ---


class _Chosen(Struct):
    ids: list[int]


_SCHEMA = {**schema_components([_Chosen])[1]["_Chosen"], "additionalProperties": False}


@dataclass(frozen=True, kw_only=True, eq=False)
class LLMAttentionCondenser(AmortizedForgettingCondenser, AskingCondenser):
    """Lets a model choose the events that stay. The condenser forgets all other events without a
    summary.

    The head and the chosen events stay, together at most half of ``max_size`` events. If the model
    chooses fewer events, the newest events stay too. If an event of a unit stays, the whole unit
    stays. Summaries stay, because nothing else in the View shows the events that a summary
    replaced. Raises ``InvalidCondenser`` if the model cannot follow a schema. If the model gives no
    choice that can be parsed, no event is forgotten as long as the condensation can wait, and then
    a digest takes its place. A condenser that is used without a handler keeps the newest events.
    """

    type = "llm_attention"
    needs = "response_schema"

    max_event_length: int | None = setting(
        10_000, "how many characters of an event the model sees; a negative number means all"
    )

    def get_condensation(self, view: View, agent_llm: AgentModel | None = None) -> Condensation:
        places = self.max_size // 2 - self.keep_first
        if not _allows_a_choice(view, set(self._choosable(view).values()), self.keep_first, places):
            return self._keeping(view, (), {})
        prompt = load_prompt("attention")
        blocks = (event_block(event, self.max_event_length) for event in view.events)
        messages = [
            *prompt.messages(places=str(places)),
            *({"role": "user", "content": block} for block in blocks),
        ]
        try:
            reply = ask(self.llm, messages, {"response_schema": _SCHEMA})
            chosen = read_json(reply, reply.text or "", _Chosen, "the reply").ids
        except ModelCallFailed as error:
            # In a step of a handler, a digest takes the place of the model, or the step waits.
            if error.failure != "bad_reply" or self._has_digest:
                raise NoCondensationAvailable(
                    f"the model chose nothing: {error.problem}", (error.report,)
                ) from error
            return self._keeping(view, (), {}, error.report)
        return self._keeping(
            view, chosen, made_by(reply, prompt), {"metrics": report_on(reply)["metrics"]}
        )

    def hard_context_reset(
        self, view: View, agent_llm: AgentModel | None = None
    ) -> Condensation | None:
        """Keep the newest events, as if the model had chosen no event."""
        return self._keeping(view, (), {})

    def _keeping(
        self, view: View, ids: Sequence[int], metadata: JsonMap, *reports: Report
    ) -> Condensation:
        """Return a condensation that keeps the chosen events, and the newest events in the places
        that are left. ``ids`` are chosen in this order.
        """
        # The events to keep are counted without regard to units, and then extended to whole units.
        choosable = self._choosable(view)
        chosen = (choosable[event_id] for event_id in ids if event_id in choosable)
        ranked = list(dict.fromkeys((*chosen, *reversed(choosable.values()))))
        positions = {
            *range(min(self.keep_first, len(view))),
            *ranked[: self.max_size // 2 - self.keep_first],
        }
        why_not = (
            f"every event of the View ({len(view)}) fits into half of max_size ({self.max_size})"
            " or belongs to a unit that stays"
        )
        action = self.without_summary(view, positions, why_not, reports).action
        return Condensation(replace(action, metadata={**action.metadata, **metadata}))

    def _choosable(self, view: View) -> dict[int, int]:
        """Return the ids and indices of the events that the model may choose: all after the head,
        except summaries of forgotten events.
        """
        return {
            event.id: index
            for index, event in enumerate(view.events)
            if index >= self.keep_first and not stands_for_forgotten(event)
        }


def _allows_a_choice(view: View, choosable: Set[int], keep_first: int, places: int) -> bool:
    """Return whether a choice could make a difference. If every choice keeps all events, the model
    is not asked.
    """
    units = (range(start, stop) for start, stop in pairwise(view.cut_points) if start >= keep_first)
    sizes = [size for size in (sum(index in choosable for index in unit) for unit in units) if size]
    return bool(sizes) and places <= len(choosable) - min(sizes)


# --- the essential and a window ---


class ConversationWindowCondenser(RollingCondenser):
    """Forgets, on request, the older half of the events, but not the first system prompt and the
    user's first message. ``conversation_window`` needs no model.

    The essential events are the first system prompt, the user's first message, and the knowledge
    that was recalled for this message. Summaries stay too, because nothing else in the View shows
    the events that a summary replaced. A call or a tool loop stays if a part of it is essential or
    in the newer half. Only events that are sent to a model count, because forgetting other events
    does not shorten the prompt. The condenser ``conversation_window`` has no parameters.
    """

    type = "conversation_window"

    def get_condensation(self, view: View, agent_llm: AgentModel | None = None) -> Condensation:
        essential = _essentials(view)
        if essential is None:
            raise NoCondensationAvailable(
                "the View has no user message that states the task; append a user message first"
            )
        windows = _windows(view, max(1, (len(view) - len(essential)) // 2))
        choices = [essential | window for window in windows]
        sent = sent_ids(view)
        helpful = (
            choice
            for choice in choices
            if not sent.isdisjoint(event.id for event in events_to_forget(view, choice))
        )
        unsent = frozenset(range(len(view))).difference(view.fit_positions)
        # If only events that are not sent to a model were forgotten, the prompt would not get
        # shorter.
        positions = next(helpful, choices[0] | unsent)
        return self.without_summary(
            view,
            positions,
            f"every event of the View ({len(view)}) is essential, recent, or not sent to a model",
        )


def _essentials(view: View) -> frozenset[int] | None:
    """Return the indices of the essential events, or None without a message of the user."""
    system = _first(view, lambda event: isinstance(event, SystemMessage))
    message = _first(view, lambda event: isinstance(event, Message) and event.source == "user")
    if message is None:
        return None
    queries = _recall_queries(view[message])
    recalled = None
    recall = _first(view, lambda event: _recall_query(event) in queries, message)
    if recall is not None:
        recalled = _first(
            view,
            lambda event: isinstance(event, Observation) and event.cause == view[recall].id,
            recall,
        )
    return frozenset(index for index in (system, message, recall, recalled) if index is not None)


def _first(view: View, fits: Callable[[Event], bool], start: int = 0) -> int | None:
    return next((index for index, event in enumerate(view[start:], start) if fits(event)), None)


def _recall_queries(message: Any) -> tuple[str, ...]:
    # A recall quotes the texts of a message without images, joined in one of these two ways.
    content = message.content
    parts = [{"text": content}] if isinstance(content, str) else content
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    return ("\n".join(texts), "".join(texts))


def _recall_query(event: Event) -> object:
    if isinstance(event, Action) and event.tool == "recall":
        return arguments_of(event).get("query", "")
    return None


def _windows(view: View, size: int) -> tuple[frozenset[int], ...]:
    """Return one or two sets of indices of events to keep, with the better set first. Usually there
    is one set: the last ``size`` events, without the observations and summaries at their beginning.

    If the last ``size`` events are only observations and summaries, there are two sets. The first
    set contains the observations that are sent to a model, so the calls of these observations stay
    too. The second set contains only the observations in tool loops. It is tried if nothing can be
    forgotten with the first set.
    """
    newest = range(len(view) - size, len(view))
    first = next(
        (i for i in newest if not isinstance(view[i], Observation | CondensationSummary)), len(view)
    )
    if first < len(view):
        return (frozenset(range(first, len(view))),)
    calls = frozenset(newest).intersection(view.fit_positions)
    return (calls, calls.intersection(index for loop in view.units.loops for index in loop))
