"""The tokens of a model's call, as servers, SDKs and logs tell them: one shape for all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

IMPORTED: Final = "imported usage"
"""The document of a conversation with the usage that its source tells beside the records: see ``Format.beside``."""

_NAMES: Mapping[str, tuple[str, ...]] = {
    "prompt_tokens": ("prompt_tokens", "input_tokens"),
    "cached_tokens": (
        *("cached_tokens", "cached_input_tokens", "cache_read_tokens", "cache_read_input_tokens", "cache_read"),
        "prompt_cache_hit_tokens",
    ),
    "cache_write_tokens": (
        "cache_write_tokens",
        "cache_creation_tokens",
        "cache_creation_input_tokens",
        "cache_creation",
    ),
    "completion_tokens": ("completion_tokens", "output_tokens"),
    "reasoning_tokens": ("reasoning_tokens", "reasoning_output_tokens", "reasoning"),
}
_OURS = [(theirs, ours) for ours, names in _NAMES.items() for theirs in reversed(names)]
"""Ours for each name, the one that counts if several are told behind the others."""
_BESIDE_THE_INPUT = ("cache_read_input_tokens", "cache_creation_input_tokens")
"""Anthropic's names: its ``input_tokens`` are those that neither come from the cache nor go there."""


def usage_of(told: Any) -> dict[str, int]:
    """Return the tokens of a call as every report has them, from what a server, an SDK or a log tells of it.

    ``prompt_tokens`` are all of the prompt: ``cached_tokens`` of them came from the provider's cache, and
    ``cache_write_tokens`` went there. ``reasoning_tokens`` are part of ``completion_tokens``. A count that is not told
    is left out, never 0. Empty where no token was counted, and where one count is below zero, which no server counts.
    """
    if not told or not isinstance(told, Mapping):
        return {}
    others = [value for name, value in told.items() if type(value) is not int and str(name).endswith("_details")]
    counts: dict[Any, int] = {}
    for each in (*others, told):
        if isinstance(each, Mapping):
            counts |= {name: count for name, count in each.items() if type(count) is int}
    found = {ours: counts[theirs] for theirs, ours in _OURS if theirs in counts}
    if "prompt_tokens" not in counts and "input_tokens" in counts:
        found["prompt_tokens"] += sum(told.get(name) or 0 for name in _BESIDE_THE_INPUT if name in counts)
    if not found.get("prompt_tokens") and not found.get("completion_tokens") and counts.get("total_tokens"):
        found["prompt_tokens"] = counts["total_tokens"]
    return found if any(found.values()) and min(found.values()) >= 0 else {}
