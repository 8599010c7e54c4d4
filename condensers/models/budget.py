"""The token budget of a View: how many tokens it is over its limit, and how much of its tail would fit again."""

from __future__ import annotations

from foldlog.condensers.base import AgentModel, Overrun
from foldlog.condensers.errors import TokensUnknown
from foldlog.condensers.models.estimate import ESTIMATE
from foldlog.projections import View


def limit_of(agent_llm: AgentModel | None, max_tokens: int | None = None, margin_ratio: float = 0.1) -> int | None:
    """Return the most tokens that a prompt for this model may have; None if there is no limit.

    The smaller of ``max_tokens``, the user's own limit, and the model's input less the room for its answer less the
    margin, a part that stays free, because servers add tokens that only they can count. The room for an answer counts
    as at most half of the input: docs/decisions/0040-room-for-the-answer.md says why. Without a model there is no
    limit, as in the reference; a step without the agent's model passes an estimate, see ``counting``.
    """
    if agent_llm is None:
        return None
    limits = [] if max_tokens is None else [max_tokens]
    window = agent_llm.max_input_tokens
    if window is not None:
        reserve = min(agent_llm.max_output_tokens or 0, window // 2)
        limits.append(max(0, window - reserve - int(window * margin_ratio)))
    return min(limits, default=None)


def overrun(view: View, agent_llm: AgentModel | None, limit: int | None) -> Overrun | None:
    """Return the overrun of the View; None if it fits or if there is no limit.

    If there is a limit and tokens cannot be counted, they are estimated: see ``foldlog.condensers.models.estimate``.
    """
    if agent_llm is None or limit is None:
        return None
    counter = agent_llm
    try:
        sums = counter.token_sums(view)
    except TokensUnknown:
        counter = ESTIMATE
        sums = counter.token_sums(view)
    return Overrun(sums, limit, counter) if sums[-1] > limit else None


def tokens_of(view: View, agent_llm: AgentModel | None) -> int | None:
    """Return the tokens of the prompt that ``view`` makes; None if they cannot be counted."""
    if agent_llm is None:
        return None
    try:
        return agent_llm.token_sums(view)[-1]
    except TokensUnknown:
        return None
