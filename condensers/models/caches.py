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
    ``needs_marks``     whether the cache ends at marks in the prompt (``cache_control``)
    ``tool_choice_is_apart``    whether a request that forbids tool calls still reads the cache
    ``source``      the provider's page
    """

    provider: str
    models: str
    least: int
    step: int = 1
    read: float = 0.1
    write: float = 1.0
    needs_marks: bool = False
    tool_choice_is_apart: bool = False
    source: str = ""

    def cached(self, tokens: int) -> int:
        """Return how many tokens the cache reads if a prompt begins with ``tokens`` tokens of an
        earlier prompt.
        """
        return 0 if tokens < self.least else tokens - tokens % self.step


_ANTHROPIC = CacheRule(
    provider="Anthropic",
    models="claude",
    least=1_024,
    write=1.25,
    needs_marks=True,
    source="https://platform.claude.com/docs/en/build-with-claude/prompt-caching",
)
"""Anthropic drops cached messages if the tool choice changes."""
_OPENAI = CacheRule(
    provider="OpenAI",
    models=r"\bgpt-|\bo\d|codex",
    least=1_024,
    step=128,
    tool_choice_is_apart=True,
    source="https://developers.openai.com/api/docs/guides/prompt-caching",
)
_GEMINI = CacheRule(
    provider="Gemini",
    models="gemini",
    least=4_096,
    source="https://ai.google.dev/gemini-api/docs/caching",
)

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

OTHER = CacheRule(provider="other", models="", least=1_024)
"""The rule for all other models. Most providers cache from 1,024 tokens on."""


def cache_rule(model: str) -> CacheRule:
    return next((rule for rule in RULES if re.search(rule.models, model)), OTHER)
