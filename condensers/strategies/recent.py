"""Show a head and a tail, and forget nothing."""

from __future__ import annotations

from typing import Any

from condensers.base import AgentModel, ReportingCondenser, Step
from condensers.errors import InvalidCondenser
from condensers.selection import ends, unkept
from projections import View


class RecentEventsCondenser(ReportingCondenser):
    """Show the first ``keep_first`` and the most recent events, ``max_events`` in all, at every step.

    No event is forgotten: the next step gets the whole View again. A head larger than ``max_events`` is shown whole,
    and so are calls and tool loops if the head or the tail holds a part of them.
    """

    type = "recent"

    def __init__(self, max_events: int = 100, keep_first: int = 1) -> None:
        if max_events < 0 or keep_first < 0:
            raise InvalidCondenser(f"max_events ({max_events}) and keep_first ({keep_first}) cannot be negative")
        self.max_events, self.keep_first = max_events, keep_first

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        if len(view) <= self.max_events:
            return Step(view)
        kept = ends(view, self.keep_first, max(0, self.max_events - self.keep_first))
        hidden = {event.id for event in unkept(view, kept, summaries=True)}
        rule = {"keep_first": self.keep_first, "max_events": self.max_events}
        report: dict[str, Any] = {"condenser": self.type, "rule": rule, "hidden": len(hidden)}
        if whole := len(view) - len(hidden) - len(kept):
            report["events_kept_whole"] = whole
        shown = view.with_events(event for event in view.events if event.id not in hidden) if hidden else view
        return Step(shown, (report,))
