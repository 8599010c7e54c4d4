"""Keep what is essential and a window of the newest events, without a summary."""

from __future__ import annotations

from collections.abc import Mapping

from condensers.base import AgentModel, Condensation, Reason
from condensers.errors import NoCondensationAvailable
from condensers.rolling import RollingCondenser
from condensers.selection import real, unkept
from eventstore.events import Action, CondensationSummary, Event, Message, Observation, SystemMessage
from projections import View
from projections.units import units

__all__ = ["ConversationWindowCondenser"]


class ConversationWindowCondenser(RollingCondenser):
    """Answer a request by forgetting the older half of the events that are not essential.

    Essential are the first system prompt, and the user's first message with what was recalled for it. Summaries stay
    too: what they stand for is nowhere else in the View. So do calls and tool loops of which a part is essential or in
    the newer half. No parameters; never condenses unless it is requested.
    """

    type = "conversation_window"

    def reasons(self, view: View, agent_llm: AgentModel | None = None) -> frozenset[Reason]:
        return frozenset({Reason.REQUEST} if view.unhandled_condensation_request else ())

    def get_condensation(self, view: View, agent_llm: AgentModel | None = None) -> Condensation:
        essential = _essentials(view)
        if essential is None:
            raise NoCondensationAvailable("no user message in the View says what it is about: nothing is forgotten")
        windows = _windows(view, max(1, (len(view) - len(essential)) // 2))
        choices = [essential | window for window in windows]
        kept = next((choice for choice in choices if real(unkept(view, choice))), choices[0])
        return self.without_summary(view, kept, f"all {len(view)} events of the View are essential or recent")


def _essentials(view: View) -> frozenset[int] | None:
    """Return the indices of the system prompt, the first user message, its recall and the recalled observation; None if
    there is no user message."""
    found: dict[str, tuple[int, Event]] = {}
    for index, event in enumerate(view.events):
        role = _role(event, found)
        if role is not None:
            found.setdefault(role, (index, event))
    return frozenset(index for index, _ in found.values()) if "asked" in found else None


def _role(event: Event, found: Mapping[str, tuple[int, Event]]) -> str | None:
    """Return the part of ``event`` among the essentials, after those ``found`` before it; None if it has none."""
    match event:
        case SystemMessage():
            return "system"
        case Message(source="user"):
            return "asked"
        case Action(tool="recall") if "asked" in found and _query(event) in _words(found["asked"][1]):
            return "recall"
        case Observation() if "recall" in found and event.cause == found["recall"][1].id:
            return "recalled"
    return None


def _words(event: Event) -> tuple[str, ...]:
    """Return what a recall may have as its query: the text of the message that it belongs to, without its images."""
    if not isinstance(event, Message):
        return ()
    if isinstance(event.content, str):
        return (event.content,)
    texts = [part["text"] for part in event.content if isinstance(part.get("text"), str)]
    return ("\n".join(texts), "".join(texts))


def _query(recall: Action) -> object:
    return recall.arguments.get("query", "") if isinstance(recall.arguments, dict) else None


def _windows(view: View, size: int) -> tuple[frozenset[int], ...]:
    """Return the indices of the last ``size`` events, without the observations and summaries that they begin with.

    If that leaves none, the newest calls would be forgotten because the window shows their observations alone. Then
    there are two windows, the better one first: with these calls, and, if nothing else can be forgotten, without them.
    A tool loop stays even then.
    """
    newest = range(max(0, len(view) - size), len(view))
    first = next((i for i in newest if not isinstance(view[i], Observation | CondensationSummary)), len(view))
    if first < len(view):
        return (frozenset(range(first, len(view))),)
    calls = frozenset(newest).intersection(view.fit_positions)
    loops = units(view.events, view.left_behind).loops
    return (calls, calls.intersection(index for loop in loops for index in loop))
