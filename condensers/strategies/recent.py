"""Show a head and a tail, and forget nothing."""

from __future__ import annotations

from condensers.base import AgentModel, Condenser, Step
from condensers.errors import InvalidCondenser
from condensers.selection import apart, next_cut, tail_starts
from projections import View

__all__ = ["RecentEventsCondenser"]


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
