"""Show a head and a tail, and forget nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foldlog.condensers.base import AgentModel, ReportingCondenser, Step, setting
from foldlog.condensers.errors import InvalidCondenser
from foldlog.condensers.selection import ends, unkept
from foldlog.projections import View


@dataclass(frozen=True, eq=False)
class RecentEventsCondenser(ReportingCondenser):
    """Shows the first events and the most recent ones. Each step chooses again.

    No event is forgotten: the next step gets the whole View again. A head larger than ``max_events`` is shown whole,
    and so are calls and tool loops if the head or the tail holds a part of them.
    """

    type = "recent"

    max_events: int = setting(100, "how many events are shown in all", ge=1)
    keep_first: int = setting(1, "how many events at the head are always shown", ge=0)

    def __post_init__(self) -> None:
        if self.max_events < 0 or self.keep_first < 0:
            raise InvalidCondenser(
                f"max_events ({self.max_events}) and keep_first ({self.keep_first}) cannot be negative"
            )

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
