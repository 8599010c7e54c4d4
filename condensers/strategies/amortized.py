"""Forget the middle, without a summary."""

from __future__ import annotations

from dataclasses import dataclass

from foldlog.condensers.base import AgentModel, Condensation, Reason, setting
from foldlog.condensers.rolling import RollingCondenser, check_sizes, reasons_by_size
from foldlog.condensers.selection import ends
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

    def __post_init__(self) -> None:
        check_sizes(self.max_size, self.keep_first)

    def reasons(self, view: View, agent_llm: AgentModel | None = None) -> frozenset[Reason]:
        return reasons_by_size(view, self.max_size)

    def get_condensation(self, view: View, agent_llm: AgentModel | None = None) -> Condensation:
        target = self.max_size // 2
        kept = ends(view, self.keep_first, target - self.keep_first)
        within = f"a View of {len(view)} is within half of max_size ({target})"
        why_not = within if len(view) <= target else f"{len(view)} events are more than half of max_size ({target})"
        return self.without_summary(view, kept, why_not, summaries=True)
