"""The summarizing condensers with the arithmetic of OpenHands V0, which chooses other events than
V1's.

A request aims at half of ``max_size``, and requires nothing of a View that is within it.
``keep_first`` alone decides the head. If that leaves room only for the summary, everything else is
forgotten.
"""

from __future__ import annotations

from collections.abc import Set

from foldlog.condensers.base import AgentModel, Condensation, Reason
from foldlog.condensers.errors import NoCondensationAvailable
from foldlog.condensers.rolling import check_sizes
from foldlog.condensers.selection import count_logged
from foldlog.condensers.strategies.model_summaries import (
    LLMSummarizingCondenser,
    StructuredSummaryCondenser,
)
from foldlog.condensers.strategies.summarizing import SummarizingCondenser
from foldlog.projections import View


class V0Selection(SummarizingCondenser):
    """What V0 selects."""

    def check_sizes(self) -> None:
        check_sizes(self._size, self.keep_first)

    def hard_context_reset(
        self, view: View, agent_llm: AgentModel | None = None
    ) -> Condensation | None:
        return (
            None
            if self._has_nothing_to_do(view, agent_llm)
            else super().hard_context_reset(view, agent_llm)
        )

    def _head(self, view: View) -> int:
        return self.keep_first

    def _tails(self, view: View, due: Set[Reason]) -> list[int]:
        return [] if due == {Reason.TOKENS} else [self._size // 2 - self.keep_first - 1]

    def _has_nothing_to_do(self, view: View, agent_llm: AgentModel | None) -> bool:
        if self.overrun(view, agent_llm) or len(view) > self._size:
            return False
        try:
            self._middle(view, agent_llm)
        except NoCondensationAvailable:
            tail = self._size // 2 - self.keep_first - 1
            beyond = count_logged(view[self.keep_first : max(0, len(view) - tail)])
            return len(view) <= self._size // 2 or beyond < self.minimum_progress * len(view)
        return False


class V0LLMSummarizingCondenser(V0Selection, LLMSummarizingCondenser):
    """V0's ``LLMSummarizingCondenser``."""


class V0StructuredSummaryCondenser(V0Selection, StructuredSummaryCondenser):
    """V0's ``StructuredSummaryCondenser``."""
