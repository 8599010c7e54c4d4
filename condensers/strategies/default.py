"""The condenser for those who choose none: works offline, costs nothing, says the same every time."""

from __future__ import annotations

from condensers.base import Condenser
from condensers.strategies.conversation_window import ConversationWindowCondenser
from condensers.strategies.digest import DigestCondenser
from condensers.strategies.pipeline import PipelineCondenser

__all__ = ["default_condenser"]


def default_condenser(*, max_size: int = 100, keep_first: int = 1, max_tokens: int | None = None) -> Condenser:
    """A conversation window on request; a digest by size, by tokens, and for a request that the window cannot meet."""
    digest = DigestCondenser(max_size=max_size, keep_first=keep_first, max_tokens=max_tokens)
    return PipelineCondenser([ConversationWindowCondenser(), digest])
