"""The tokens of a model's call, as servers, SDKs and logs tell them: one shape for all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

IMPORTED: Final = "imported usage"
"""The document of a conversation with the usage that its source tells beside the records: see
``Format.beside``.
"""
OF_NO_MODEL: Final = "<synthetic>"
"""What Claude Code names as the model of replies that it wrote itself."""

OF_A_CONDENSER: Final = "condenser_meta"
"""The name of the annotation, and of the map in its data, in which a condenser reports its own
calls.
"""
USAGE_MAPS: Final = ("usage", "accumulated", "metrics", "response", OF_A_CONDENSER)
"""The names under which ``meta``, or the metadata of a condensation, holds what calls of models
took.
"""
USAGE_TEXTS: Final = ("model", "reply")
"""The names of texts among these that are no content: which model, and which View the call
answers.
"""
USAGE_NAMES: Final = ("condenser", "failure")
"""The names of texts that are no content where they are one word."""
COST: Final = "cost"

COPIED: Final = "copied"
"""The mark, in ``meta``, of an imported event that happened in another history, if at all: no call,
no request.
"""

_NAMES: Mapping[str, tuple[str, ...]] = {
    "prompt_tokens": ("prompt_tokens", "input_tokens"),
    "cached_tokens": (
        *(
            "cached_tokens",
            "cached_input_tokens",
            "cache_read_tokens",
            "cache_read_input_tokens",
            "cache_read",
        ),
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
        *(
            "reasoning_tokens",
            "reasoning_output_tokens",
            "output_reasoning_tokens",
            "thoughts_tokens",
            "reasoning",
        ),
    ),
}
_PARTS = ("details", "cache_creation")
"""Ends of the names of objects that hold a part of the counts."""
_OURS = [(theirs, ours) for ours, names in _NAMES.items() for theirs in reversed(names)]
"""Ours for each name, the one that counts if several are told behind the others."""
_BESIDE_THE_INPUT = ("cache_read_input_tokens", "cache_creation_input_tokens")
"""Anthropic's names: its ``input_tokens`` are those that neither come from the cache nor go
there.
"""
_COUNTS = {"total_tokens", *(name for names in _NAMES.values() for name in names)}
_MAY_BE_BESIDE = {
    "completion_tokens": ["reasoning_tokens"],
    "prompt_tokens": ["cached_tokens", "cache_write_tokens"],
}
"""The parts that some sources count beside a prompt or a reply: the total tells it."""
_COUNT_MAX: Final = 2**40
"""More tokens are no count of a call. Sums of millions of counts fit in 64 bits, as files and
databases hold them.
"""
_BY_AGE = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")


def count_of(value: Any) -> int | None:
    """Return a count: a whole number from 0 to 2^40, also as a fraction or a text, as some
    languages write all numbers; None for another value.
    """
    try:
        number = float(value) if type(value) is str else value
        if type(number) in (int, float) and 0 <= number <= _COUNT_MAX and number == int(number):
            return int(number)
        return None
    except (ValueError, OverflowError):
        return None


def cost_of(value: Any) -> float | None:
    """Return a cost: a number, or the text of one; None for another value, and below 0."""
    try:
        cost = float(value) if type(value) is str else value
    except ValueError:
        return None
    if type(cost) in (int, float) and 0 <= cost < float("inf"):
        return cost
    return None


def _counts_in(told: Mapping[Any, Any]) -> dict[Any, int]:
    """Return the counts of an object, without those that cannot be read."""
    counts: dict[Any, int] = {}
    for name, value in told.items():
        if type(value) is int and 0 <= value <= _COUNT_MAX:
            counts[name] = value
        elif name in _COUNTS and (count := count_of(value)) is not None:
            counts[name] = count
    return counts


def usage_of(told: Any) -> dict[str, int]:
    """Return the tokens of a call as every report has them, from what a server, an SDK or a log
    tells of it.

    ``prompt_tokens`` are all of the prompt: ``cached_tokens`` of them came from the provider's
    cache, and ``cache_write_tokens`` went there, ``cache_write_1h_tokens`` of these for an hour.
    ``reasoning_tokens`` are part of ``completion_tokens``. A count that is missing or cannot be
    read is left out, never 0. Empty where no token was counted.
    """
    if not told or not isinstance(told, Mapping):
        return {}
    counts = _counts_in(told)
    for name, value in told.items():
        if str(name).endswith(_PARTS) and isinstance(value, Mapping):
            counts = {**_counts_in(value), **counts}
    found = {ours: counts[theirs] for theirs, ours in _OURS if theirs in counts}
    if (by_age := sum([counts.get(name, 0) for name in _BY_AGE])) > found.get(
        "cache_write_tokens", 0
    ):
        found["cache_write_tokens"] = by_age
    if "prompt_tokens" not in counts and "input_tokens" in counts:
        found["prompt_tokens"] += sum(
            [counts[name] for name in _BESIDE_THE_INPUT if name in counts and name in told]
        )
    if total := counts.get("total_tokens", 0):
        lacks = total - found.get("prompt_tokens", 0) - found.get("completion_tokens", 0)
        for whole_of, beside in _MAY_BE_BESIDE.items():
            if 0 < lacks == sum(found.get(part, 0) for part in beside):
                found[whole_of] = found.get(whole_of, 0) + lacks
                break
        if not found.get("prompt_tokens") and not found.get("completion_tokens"):
            found["prompt_tokens"] = total
    return found if any(found.values()) else {}


def whole(usage: Mapping[str, int]) -> dict[str, int]:
    """Return the tokens of a call with a prompt of no fewer tokens than its parts: some proxies
    leave out those that went to the cache.
    """
    written = usage.get("cache_write_tokens", 0)
    prompt = usage.get("prompt_tokens", 0)
    if not prompt or prompt >= usage.get("cached_tokens", 0) + written:
        return dict(usage)
    return {**usage, "prompt_tokens": max(prompt, usage.get("cached_tokens", 0)) + written}
