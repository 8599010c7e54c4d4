"""Read the token usage of model calls. Servers, SDKs and logs write usage in different forms, which
this module converts into one form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

IMPORTED: Final = "imported usage"
"""The name of the document with the usage that a source has outside of its records.
``Format.beside`` reads this usage.
"""
SYNTHETIC_MODEL: Final = "<synthetic>"
"""Claude Code names this model in replies that it wrote itself."""

CONDENSER_META: Final = "condenser_meta"
"""A condenser reports its own calls in an annotation with this name. The data of the annotation has
a map with the same name.
"""
USAGE_MAPS: Final = ("usage", "accumulated", "metrics", "response", CONDENSER_META)
"""The keys under which ``meta`` and the metadata of a condensation contain usage."""
USAGE_TEXTS: Final = ("model", "reply")
"""The keys for the name of the model and the id of the reply. A redaction does not remove the texts
under these keys, because they are not content.
"""
USAGE_NAMES: Final = ("condenser", "failure")
"""A redaction also keeps a text under one of these keys if the text is a single word, because such
a word is a name and not content.
"""
COST: Final = "cost"
"""The key for the cost of a call in US dollars."""
CALLS: Final = "calls"
"""The key for the number of calls, if fields are the sum of several. A redaction leaves the number
in the usage.
"""

COPIED: Final = "copied"
"""The key in ``meta`` that marks an imported event as a copy from another history. A copied event
is counted neither as a call nor as a request.
"""

PLACED_FROM: Final = "placed_from"
"""The key in ``meta`` that marks an imported result which stands where a prompt needs it. The value
is the id of the event with the same result, which the source has before its call. The value is None
if the source has no result of the call. Figures count neither.
"""

WRITTEN_AGAIN: Final = "the source has this again"
"""The reason of an imported retraction that comes before repeated records. Figures count a repeated
event once.
"""

_NAMES: Mapping[str, tuple[str, ...]] = {
    "prompt_tokens": ("prompt_tokens", "input_tokens"),
    "cached_tokens": (
        "cached_tokens",
        "cached_input_tokens",
        "cache_read_tokens",
        "cache_read_input_tokens",
        "cache_read",
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
        "reasoning_tokens",
        "reasoning_output_tokens",
        "output_reasoning_tokens",
        "thoughts_tokens",
        "reasoning",
    ),
}
"""The names that sources use for each count. If a source has several of them, the first one counts.
"""
_PARTS = ("details", "cache_creation")
"""If a key ends with one of these words, such as ``prompt_tokens_details``, its value is a map that
also contains counts.
"""
_OUR_NAMES: Mapping[Any, str] = {
    source_name: name for name, names in _NAMES.items() for source_name in reversed(names)
}
"""Maps the name that a source uses for a count to foldlog's name. If a source has several names of
one count, the last one in this order counts.
"""
_BESIDE_THE_INPUT = ("cache_read_input_tokens", "cache_creation_input_tokens")
"""Anthropic's names of cached tokens. Anthropic's ``input_tokens`` do not include cached tokens."""
_COUNTS = {"total_tokens", *(name for names in _NAMES.values() for name in names)}
_MAY_BE_BESIDE = {
    "completion_tokens": ["reasoning_tokens"],
    "prompt_tokens": ["cached_tokens", "cache_write_tokens"],
}
"""Some sources do not include these counts in the tokens of the reply or the prompt. The total that
the source records shows whether they are included.
"""
_COUNT_MAX: Final = 2**40
"""The largest number of tokens, calls or dollars that is accepted for a call, so that a sum of
millions of numbers fits in 64 bits.
"""
_FOR_5_MINUTES: Final = "ephemeral_5m_input_tokens"
_FOR_AN_HOUR: Final = "ephemeral_1h_input_tokens"
"""Anthropic's names of the tokens that were written to the cache for 5 minutes and for an hour."""
_NO_MAPS: Final = frozenset((int, str, float, bool, type(None)))
"""Types of values that are no map."""


def count_of(value: Any) -> int | None:
    """Return a count: a whole number from 0 to 2^40. The value may also be a float or a text,
    because some programs write all numbers in this way. Return None for any other value.
    """
    try:
        number = float(value) if type(value) is str else value
        if type(number) in (int, float) and 0 <= number <= _COUNT_MAX and number == int(number):
            return int(number)
        return None
    except (ValueError, OverflowError):
        return None


def cost_of(value: Any) -> float | None:
    """Convert a number or its text into a cost. Return None for any other value, and for a number
    below 0 or above ``_COUNT_MAX``.
    """
    try:
        cost = float(value) if type(value) is str else value
    except ValueError:
        return None
    if type(cost) in (int, float) and 0 <= cost <= _COUNT_MAX:
        return cost
    return None


def describes_call(fields: Mapping[str, Any]) -> bool:
    """Return whether the fields of an event that was not imported describe a call of a model."""
    return bool(
        fields.get("model")
        or isinstance(fields.get("usage"), dict)
        or cost_of(fields.get(COST)) is not None
    )


def reports_usage(fields: Mapping[str, Any]) -> bool:
    """Return whether the fields of an imported event report tokens or a cost."""
    usage = fields.get("usage")
    return bool(
        fields.get("accumulated")
        or (isinstance(usage, dict) and usage)
        or cost_of(fields.get(COST)) is not None
    )


def recorded_calls(fields: Mapping[str, Any]) -> int | None:
    """Return the number of calls that some fields record: see ``CALLS``."""
    calls = count_of(fields.get(CALLS))
    usage = fields.get("usage")
    return count_of(usage.get(CALLS)) if calls is None and isinstance(usage, dict) else calls


def without_tokens(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that ``usage_of`` does not read as counts of tokens."""
    return {name: value for name, value in fields.items() if name not in _COUNTS}


def _counts_in(fields: Mapping[Any, Any]) -> dict[Any, int]:
    """Return the counts in a map, under the source's names."""
    counts: dict[Any, int] = {}
    for name, value in fields.items():
        if type(value) is int and 0 <= value <= _COUNT_MAX:
            counts[name] = value
        elif name in _COUNTS and (count := count_of(value)) is not None:
            counts[name] = count
    return counts


def usage_of(source: Any) -> dict[str, int]:
    """Convert the usage of a server, an SDK or a log into foldlog's form:

        prompt_tokens          all tokens of the prompt
        cached_tokens          the tokens of the prompt that came from the provider's cache
        cache_write_tokens     the tokens of the prompt that were written to the cache
        cache_write_1h_tokens  the part of these tokens that the cache keeps for an hour
        completion_tokens      all tokens of the reply
        reasoning_tokens       the tokens of the reply that were reasoning

    A count that is missing or cannot be read is left out; it is not set to 0. The result is empty
    if no token was counted.
    """
    if not source or not isinstance(source, Mapping):
        return {}
    counts = _counts_in(source)
    for name, value in source.items():
        # Most values are numbers or texts, so the type is compared before the name, which takes
        # longer.
        if (
            type(value) not in _NO_MAPS
            and str(name).endswith(_PARTS)
            and isinstance(value, Mapping)
        ):
            counts = {**_counts_in(value), **counts}
    usage = {}
    for source_name, name in _OUR_NAMES.items():
        if source_name in counts:
            usage[name] = counts[source_name]
    written_by_age = counts.get(_FOR_5_MINUTES, 0) + counts.get(_FOR_AN_HOUR, 0)
    if written_by_age > usage.get("cache_write_tokens", 0):
        usage["cache_write_tokens"] = written_by_age
    if "input_tokens" in counts and "prompt_tokens" not in counts:
        for name in _BESIDE_THE_INPUT:
            if name in counts and name in source:
                usage["prompt_tokens"] += counts[name]
    if total := counts.get("total_tokens", 0):
        _add_missing(usage, total)
    return usage if any(usage.values()) else {}


def _add_missing(usage: dict[str, int], total: int) -> None:
    """Add the tokens that only the recorded total includes: see ``_MAY_BE_BESIDE``."""
    missing = total - usage.get("prompt_tokens", 0) - usage.get("completion_tokens", 0)
    for whole_of, parts in _MAY_BE_BESIDE.items():
        if 0 < missing == sum(usage.get(part, 0) for part in parts):
            usage[whole_of] = usage.get(whole_of, 0) + missing
            break
    if not usage.get("prompt_tokens") and not usage.get("completion_tokens"):
        usage["prompt_tokens"] = total


def whole(usage: Mapping[str, int]) -> dict[str, int]:
    """Return the usage of a call, with a corrected ``prompt_tokens``. Some proxies leave the tokens
    that were written to the cache out of ``prompt_tokens``, so that it is smaller than the sum of
    its parts.
    """
    written = usage.get("cache_write_tokens", 0)
    prompt = usage.get("prompt_tokens", 0)
    if not prompt or prompt >= usage.get("cached_tokens", 0) + written:
        return dict(usage)
    return {**usage, "prompt_tokens": max(prompt, usage.get("cached_tokens", 0)) + written}
