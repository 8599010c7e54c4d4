"""Strategies that keep a head and a tail, or a window, and write no summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from condensers.base import AgentModel, Condensation, Condenser, Reason, Step
from condensers.errors import InvalidCondenser, NoCondensationAvailable
from condensers.prompts.rendering import plain_text
from condensers.rolling import RollingCondenser, check_sizes, reasons_by_size
from condensers.selection import apart, best_choice, next_cut, tail_starts, unkept
from eventstore.events import Action, CondensationSummary, Event, Message, Observation, SystemMessage
from projections import View

__all__ = ["AmortizedForgettingCondenser", "ConversationWindowCondenser", "RecentEventsCondenser"]


class RecentEventsCondenser(Condenser):
    """Shows the first ``keep_first`` and the most recent events, ``max_events`` in all, at every step anew.

    Nothing is forgotten: the next step sees the whole View again. A head larger than ``max_events`` is kept whole.
    """

    type = "recent"

    def __init__(self, max_events: int = 100, keep_first: int = 1) -> None:
        if max_events < 0 or keep_first < 0:
            raise InvalidCondenser(f"max_events ({max_events}) and keep_first ({keep_first}) cannot be negative")
        self.max_events, self.keep_first = max_events, keep_first

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        if len(view) <= self.max_events:
            return Step(view)
        head = next_cut(view.cut_points, self.keep_first)
        head = len(view) if head is None else head
        tail = max(head, tail_starts(view, max(0, self.max_events - head))[0])
        hidden = {event.id for event in apart(view, view[head:tail])}
        if not hidden:
            return Step(view)
        report = {
            "condenser": self.type,
            "rule": {"keep_first": self.keep_first, "max_events": self.max_events},
            "hidden": len(hidden),
        }
        return Step(view.with_events(event for event in view.events if event.id not in hidden), (report,))


class AmortizedForgettingCondenser(RollingCondenser):
    """Forgets the middle of a View that has outgrown ``max_size``, down to half of it, old summaries and all."""

    type = "amortized"

    def __init__(self, max_size: int = 100, keep_first: int = 1) -> None:
        check_sizes(max_size, keep_first)
        self.max_size, self.keep_first = max_size, keep_first

    def reasons(self, view: View, agent_llm: AgentModel | None = None) -> frozenset[Reason]:
        return reasons_by_size(view, self.max_size)

    def get_condensation(self, view: View, agent_llm: AgentModel | None = None) -> Condensation:
        target = self.max_size // 2
        start = next_cut(view.cut_points, self.keep_first)
        stops = tail_starts(view, target - self.keep_first)
        forgotten = best_choice(() if start is None else apart(view, view[start:stop]) for stop in stops)
        return self.without_summary(view, forgotten, f"a View of {len(view)} is within half of max_size ({target})")


class ConversationWindowCondenser(RollingCondenser):
    """Answers a request by forgetting the older half of what is not essential.

    Essential are the first system prompt, and the user's first message with what was recalled for it. Summaries stay
    too: what they stand for is nowhere else in the View. No parameters; never condenses unasked.
    """

    type = "conversation_window"

    def get_condensation(self, view: View, agent_llm: AgentModel | None = None) -> Condensation:
        essential = _essentials(view)
        if essential is None:
            raise NoCondensationAvailable("no user message in the View says what it is about: nothing is forgotten")
        starts = _window_starts(view, max(1, (len(view) - len(essential)) // 2))
        forgotten = best_choice(unkept(view, essential.union(range(start, len(view)))) for start in starts)
        return self.without_summary(view, forgotten, f"all {len(view)} events of the View are essential or recent")


def _essentials(view: View) -> frozenset[int] | None:
    """Indices of the system prompt, the first user message, its recall and what that gave; None without the message."""
    found: dict[str, tuple[int, Event]] = {}
    for index, event in enumerate(view.events):
        role = _role(event, found)
        if role is not None:
            found.setdefault(role, (index, event))
    return frozenset(index for index, _ in found.values()) if "asked" in found else None


def _role(event: Event, found: Mapping[str, tuple[int, Event]]) -> str | None:
    """What ``event`` would be among the essentials, after those ``found`` before it."""
    match event:
        case SystemMessage():
            return "system"
        case Message(source="user"):
            return "asked"
        case Action(tool="recall") if "asked" in found and _query(event) == _words(found["asked"][1]):
            return "recall"
        case Observation() if "recall" in found and event.cause == found["recall"][1].id:
            return "recalled"
    return None


def _words(event: Event) -> str | None:
    return plain_text(event.content) if isinstance(event, Message) else None


def _query(recall: Action) -> object:
    return recall.arguments.get("query", "") if isinstance(recall.arguments, dict) else None


def _window_starts(view: View, size: int) -> Iterator[int]:
    """``tail_starts``, but for answers to what is outside, with which no window begins."""
    for start in tail_starts(view, size):
        while start < len(view) and isinstance(view[start], Observation | CondensationSummary):
            start += 1
        yield start
