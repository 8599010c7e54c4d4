"""The tokens of a model's call, as servers, SDKs and logs tell them: one shape for all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

IMPORTED: Final = "imported usage"
"""The document of a conversation with the usage that its source tells beside the records: see ``Format.beside``."""
OF_NO_MODEL: Final = "<synthetic>"
"""What Claude Code names as the model of replies that it wrote itself."""

COPIED: Final = "copied"
"""The mark, in ``meta``, of an imported event that happened in another history, if at all: no call, no request."""

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
    "cache_write_1h_tokens": ("cache_write_1h_tokens", "ephemeral_1h_input_tokens"),
    "completion_tokens": ("completion_tokens", "output_tokens"),
    "reasoning_tokens": (
        *("reasoning_tokens", "reasoning_output_tokens", "output_reasoning_tokens", "thoughts_tokens", "reasoning"),
    ),
}
_PARTS = ("details", "cache_creation", "server_tool_use")
"""Ends of the names of objects in which a part of the counts is told."""
_DEARER = frozenset(("dearer", "audio_tokens", "input_audio_tokens", "output_audio_tokens", "web_search_requests"))
_OURS = [(theirs, ours) for ours, names in _NAMES.items() for theirs in reversed(names)]
"""Ours for each name, the one that counts if several are told behind the others."""
_BESIDE_THE_INPUT = ("cache_read_input_tokens", "cache_creation_input_tokens")
"""Anthropic's names: its ``input_tokens`` are those that neither come from the cache nor go there."""
_MAY_BE_BESIDE = {"completion_tokens": ["reasoning_tokens"], "prompt_tokens": ["cached_tokens", "cache_write_tokens"]}
"""The parts that some sources count beside a prompt or a reply: the total tells it."""
_BY_AGE = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
_NO_DEARER = (None, "standard", "standard_only", "default", "auto", "flex", "batch")
"""The service tiers of replies that cost what a table says of their tokens, or less."""


def usage_of(told: Any) -> dict[str, int]:
    """Return the tokens of a call as every report has them, from what a server, an SDK or a log tells of it.

    ``prompt_tokens`` are all of the prompt: ``cached_tokens`` of them came from the provider's cache, and
    ``cache_write_tokens`` went there, ``cache_write_1h_tokens`` of these for an hour. ``reasoning_tokens`` are part of
    ``completion_tokens``. ``dearer`` is 1 where the call has a price beside that of its tokens, or a higher one: a
    search, audio, priority. A count that is not told is left out, never 0. Empty where no token was counted, and where
    one count is below zero, which no server counts.
    """
    if not told or not isinstance(told, Mapping):
        return {}
    counts: dict[Any, int] = {}
    parts: dict[Any, int] = {}
    for name, value in told.items():
        if type(value) is int:
            counts[name] = value
        elif isinstance(value, Mapping) and str(name).endswith(_PARTS):
            parts |= {part: count for part, count in value.items() if type(count) is int}
    counts = {**parts, **counts} if parts else counts
    found = {ours: counts[theirs] for theirs, ours in _OURS if theirs in counts}
    if (by_age := sum([counts.get(name, 0) for name in _BY_AGE])) > found.get("cache_write_tokens", 0):
        found["cache_write_tokens"] = by_age
    if "prompt_tokens" not in counts and "input_tokens" in counts:
        found["prompt_tokens"] += sum([told.get(name) or 0 for name in _BESIDE_THE_INPUT if name in counts])
    if total := counts.get("total_tokens", 0):
        lacks = total - found.get("prompt_tokens", 0) - found.get("completion_tokens", 0)
        for whole_of, beside in _MAY_BE_BESIDE.items():
            if 0 < lacks == sum(found.get(part, 0) for part in beside):
                found[whole_of] = found.get(whole_of, 0) + lacks
                break
        if not found.get("prompt_tokens") and not found.get("completion_tokens"):
            found["prompt_tokens"] = total
    if not any(found.values()) or min(found.values()) < 0:
        return {}
    is_dearer = not _DEARER.isdisjoint(counts) and any(counts.get(name) for name in _DEARER)
    is_dearer = is_dearer or told.get("service_tier") not in _NO_DEARER or told.get("speed") == "fast"
    return {**found, "dearer": 1} if is_dearer else found


def whole(usage: Mapping[str, int]) -> dict[str, int]:
    """Return the tokens of a call with a prompt of no fewer tokens than its parts: some proxies leave out those that
    went to the cache.
    """
    written, prompt = usage.get("cache_write_tokens", 0), usage.get("prompt_tokens", 0)
    if not prompt or prompt >= usage.get("cached_tokens", 0) + written:
        return dict(usage)
    return {**usage, "prompt_tokens": max(prompt, usage.get("cached_tokens", 0)) + written}
