"""Keep what is essential and a window of the newest events, without a summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from condensers.base import AgentModel, Condensation
from condensers.errors import NoCondensationAvailable
from condensers.prompts.rendering import plain_text
from condensers.rolling import RollingCondenser
from condensers.selection import best_choice, tail_starts, unkept
from eventstore.events import Action, CondensationSummary, Event, Message, Observation, SystemMessage
from projections import View

__all__ = ["ConversationWindowCondenser"]


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
