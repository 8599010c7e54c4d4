"""Forget the middle, without a summary."""

from __future__ import annotations

from condensers.base import AgentModel, Condensation, Reason
from condensers.rolling import RollingCondenser, check_sizes, reasons_by_size
from condensers.selection import ends
from projections import View


class AmortizedForgettingCondenser(RollingCondenser):
    """Forget the middle of a View that exceeds ``max_size``, down to half of it, with old summaries.

    Calls and tool loops stay whole if the head or the tail holds a part of them; the View is then larger.
    """

    type = "amortized"

    def __init__(self, max_size: int = 100, keep_first: int = 1) -> None:
        check_sizes(max_size, keep_first)
        self.max_size, self.keep_first = max_size, keep_first

    def reasons(self, view: View, agent_llm: AgentModel | None = None) -> frozenset[Reason]:
        return reasons_by_size(view, self.max_size)

    def get_condensation(self, view: View, agent_llm: AgentModel | None = None) -> Condensation:
        target = self.max_size // 2
        kept = ends(view, self.keep_first, target - self.keep_first)
        within = f"a View of {len(view)} is within half of max_size ({target})"
        why_not = within if len(view) <= target else f"{len(view)} events are more than half of max_size ({target})"
        return self.without_summary(view, kept, why_not, summaries=True)
