"""How far a View has outgrown its token budget, and how much of its tail would fit again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from condensers.base import AgentModel
from condensers.errors import TokensUnknown
from condensers.tokens import TokenBudget, start_of_tail_that_fits
from projections import View

__all__ = ["Overrun", "overrun", "tokens_of"]


@dataclass(frozen=True, slots=True)
class Overrun:
    """A prompt that is larger than its limit. ``sums`` are those of ``AgentModel.token_sums``."""

    sums: Sequence[int]
    limit: int

    def tail(self, head: int) -> int:
        """How many events may stay behind a ``head`` of so many, so that both come down below half of the limit.

        0 where even the head alone is more. Cost: log of the View's length.
        """
        length = len(self.sums) - 1
        return length - start_of_tail_that_fits(self.sums, min(head, length), self.limit // 2 - 1)


def overrun(view: View, agent_llm: AgentModel | None, budget: TokenBudget) -> Overrun | None:
    """The View's overrun; None where it fits, where there is no limit, and where tokens cannot be counted."""
    limit = budget.limit(agent_llm)
    if agent_llm is None or limit is None:
        return None
    try:
        sums = agent_llm.token_sums(view)
    except TokensUnknown:
        return None
    return Overrun(sums, limit) if sums[-1] > limit else None


def tokens_of(view: View, agent_llm: AgentModel | None) -> int | None:
    """The tokens of the prompt that ``view`` makes; None where nobody can tell."""
    if agent_llm is None:
        return None
    try:
        return agent_llm.token_sums(view)[-1]
    except TokensUnknown:
        return None
