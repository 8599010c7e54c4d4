"""Forget the middle, without a summary."""

from __future__ import annotations

from condensers.base import AgentModel, Condensation, Reason
from condensers.rolling import RollingCondenser, check_sizes, reasons_by_size
from condensers.selection import apart, best_choice, next_cut, tail_starts
from projections import View

__all__ = ["AmortizedForgettingCondenser"]


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
