"""What the providers' prompt caches read, and at which price. A provider caches the beginning of a
prompt, and reads it from its cache if a later prompt begins with the same bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRule:
    """The rule of a provider's prompt cache.

    ``models``      matches the names of the models
    ``least``       the smallest number of tokens that the cache reads
    ``step``        the cache reads a multiple of this number of tokens
    ``read``        the price of a token that the cache reads, as a part of a new token's price
    ``write``       the price of a token that is written to the cache, as a part of this price
    ``tool_choice_is_apart``    whether a request that forbids tool calls still reads the cache
    """

    models: str
    least: int
    step: int = 1
    read: float = 0.1
    write: float = 1.0
    tool_choice_is_apart: bool = False

    def cached(self, tokens: int) -> int:
        """Return how many tokens the cache reads if a prompt begins with ``tokens`` tokens of an
        earlier prompt.
        """
        return 0 if tokens < self.least else tokens - tokens % self.step


# https://platform.claude.com/docs/en/build-with-claude/prompt-caching
_ANTHROPIC = CacheRule(models="claude", least=1_024, write=1.25)
"""Anthropic drops cached messages if the tool choice changes."""
# https://developers.openai.com/api/docs/guides/prompt-caching
_OPENAI = CacheRule(models=r"\bgpt-|\bo\d|codex", least=1_024, step=128, tool_choice_is_apart=True)
# https://ai.google.dev/gemini-api/docs/caching
_GEMINI = CacheRule(models="gemini", least=4_096)

RULES = (
    replace(_ANTHROPIC, models=r"claude.*(opus-4[-.][56]|haiku-4[-.]5)", least=4_096),
    replace(_ANTHROPIC, models=r"claude.*(opus-4[-.]7|haiku)", least=2_048),
    _ANTHROPIC,
    replace(_OPENAI, models=r"gpt-(5\.[6-9]|[6-9])", write=1.25),
    _OPENAI,
    replace(_GEMINI, models="gemini-2", least=2_048),
    _GEMINI,
)
"""The rules of the providers. The first rule whose ``models`` match applies."""

OTHER = CacheRule(models="", least=1_024)
"""The rule for all other models. Most providers cache from 1,024 tokens on."""


def cache_rule(model: str) -> CacheRule:
    return next((rule for rule in RULES if re.search(rule.models, model)), OTHER)
