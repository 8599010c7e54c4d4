"""Forget the middle, or all but what is essential and a window of the newest events, without a summary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from foldlog.condensers.base import AgentModel, Condensation, setting
from foldlog.condensers.errors import NoCondensationAvailable
from foldlog.condensers.rolling import RollingCondenser, check_sizes
from foldlog.condensers.selection import ends, unkept
from foldlog.eventstore import Action, CondensationSummary, Event, Message, Observation, SystemMessage
from foldlog.projections import View


@dataclass(frozen=True, eq=False)
class AmortizedForgettingCondenser(RollingCondenser):
    """Forgets the middle of a View that has outgrown max_size, down to half of it, without a summary.

    Old summaries are forgotten, too. Calls and tool loops stay whole if the head or the tail holds a part of them; the
    View is then larger.
    """

    type = "amortized"

    max_size: int = setting(100, "a View with more events is condensed, to half of this number", ge=2)
    keep_first: int = setting(1, "how many events at the head are never forgotten", ge=0)

    def check_sizes(self) -> None:
        check_sizes(self.max_size, self.keep_first)

    def get_condensation(self, view: View, agent_llm: AgentModel | None = None) -> Condensation:
        target = self.max_size // 2
        kept = ends(view, self.keep_first, target - self.keep_first)
        within = f"a View of {len(view)} is within half of max_size ({target})"
        why_not = within if len(view) <= target else f"{len(view)} events are more than half of max_size ({target})"
        return self.without_summary(view, kept, why_not, summaries=True)


class ConversationWindowCondenser(RollingCondenser):
    """On request only: forgets the older half of what is not essential. Needs no model.

    Essential are the first system prompt and the user's first message with the knowledge recalled for it. Summaries
    stay too, because the View has nothing else of the events that they stand for. Calls and tool loops stay if a part
    of them is essential or in the newer half. A request is not fulfilled by events that no model is sent. It has no
    parameters.
    """

    type = "conversation_window"

    def get_condensation(self, view: View, agent_llm: AgentModel | None = None) -> Condensation:
        essential = _essentials(view)
        if essential is None:
            raise NoCondensationAvailable("the View has no user message that states the task, so no event is forgotten")
        windows = _windows(view, max(1, (len(view) - len(essential)) // 2))
        choices = [essential | window for window in windows]
        sent = {view[place].id for place in view.fit_positions}
        helps = (each for each in choices if not sent.isdisjoint(event.id for event in unkept(view, each)))
        unsent = frozenset(range(len(view))).difference(view.fit_positions)
        kept = next(helps, choices[0] | unsent)  # to forget what no model is sent would fulfil no request
        return self.without_summary(
            view, kept, f"all {len(view)} events of the View are essential or recent, or never sent"
        )


def _essentials(view: View) -> frozenset[int] | None:
    """Return the indices of the system prompt, the first user message, its recall and the recalled observation; None if
    there is no user message."""
    system = _first(view, lambda event: isinstance(event, SystemMessage))
    asked = _first(view, lambda event: isinstance(event, Message) and event.source == "user")
    if asked is None:
        return None
    words = _words(view[asked])
    recalled, recall = None, _first(view, lambda event: _query(event) in words, asked)
    if recall is not None:
        recalled = _first(view, lambda event: isinstance(event, Observation) and event.cause == view[recall].id, recall)
    return frozenset(place for place in (system, asked, recall, recalled) if place is not None)


def _first(view: View, fits: Callable[[Event], bool], start: int = 0) -> int | None:
    return next((place for place, event in enumerate(view[start:], start) if fits(event)), None)


def _words(event: Event) -> tuple[str, ...]:
    """Return the possible query of a recall: the text of its message, without images."""
    content = event.content if isinstance(event, Message) else ""
    parts = [{"text": content}] if isinstance(content, str) else content
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    return ("\n".join(texts), "".join(texts))


def _query(event: Event) -> object:
    """Return the query of a recall; None for any other event."""
    arguments = event.arguments if isinstance(event, Action) and event.tool == "recall" else None
    return arguments.get("query", "") if isinstance(arguments, dict) else None


def _windows(view: View, size: int) -> tuple[frozenset[int], ...]:
    """Return the indices of the last ``size`` events, without the observations and summaries at their beginning.

    If no event is left, the newest calls would be forgotten because the window has only their observations. Then there
    are two windows, the better one first: with these calls, and without them if nothing else can be forgotten. A tool
    loop stays even then.
    """
    newest = range(max(0, len(view) - size), len(view))
    first = next((i for i in newest if not isinstance(view[i], Observation | CondensationSummary)), len(view))
    if first < len(view):
        return (frozenset(range(first, len(view))),)
    calls = frozenset(newest).intersection(view.fit_positions)
    loops = view.units.loops
    return (calls, calls.intersection(index for loop in loops for index in loop))
