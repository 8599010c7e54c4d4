"""This module computes the cost of model calls from a table of prices."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog.condensers.models.limits import litellms_table, names_of
from foldlog.eventstore import InvalidArgument
from foldlog.eventstore.arguments import check_path


class Price(msgspec.Struct, frozen=True):
    """The prices of a model in US dollars per token. The fields have the same names as in litellm.
    Each pair in ``longer`` has a number of tokens, and the prices for prompts with more tokens.
    """

    input_cost_per_token: float | None = None
    output_cost_per_token: float | None = None
    cache_read_input_token_cost: float | None = None
    cache_creation_input_token_cost: float | None = None
    cache_creation_input_token_cost_above_1hr: float | None = None
    output_cost_per_reasoning_token: float | None = None
    longer: tuple[tuple[float, Price], ...] = ()

    def at(self, prompt: int) -> Price:
        """Return the prices for a prompt of this number of tokens."""
        return next((price for above, price in reversed(self.longer) if above < prompt), self)

    def of_each(self) -> tuple[float, float, float, float, float, float]:
        """Return the prices of one token of each kind. A prompt has new tokens, cached tokens,
        tokens written to the cache for minutes, and tokens written to the cache for an hour. A
        reply has tokens of text and tokens of thought.
        """
        return (
            self.of_prompt(fresh=1, cached=0),
            self.of_prompt(fresh=0, cached=1),
            self.of_prompt(fresh=0, cached=0, written=1),
            self.of_prompt(fresh=0, cached=0, for_an_hour=1),
            self.of_reply(1),
            self.of_reply(1, reasoning=1),
        )

    def of_prompt(self, fresh: int, cached: int, written: int = 0, for_an_hour: int = 0) -> float:
        """Return the cost of the tokens of a prompt. If cached or written tokens have no price,
        they cost as much as new tokens.
        """
        fresh_price = self.input_cost_per_token or 0.0
        cached_price = _first_known(self.cache_read_input_token_cost, fresh_price)
        written_price = _first_known(self.cache_creation_input_token_cost, fresh_price)
        hour_price = _first_known(self.cache_creation_input_token_cost_above_1hr, written_price)
        return (
            fresh * fresh_price
            + cached * cached_price
            + (written * written_price + for_an_hour * hour_price)
        )

    def of_reply(self, tokens: int, reasoning: int = 0) -> float:
        """Return the cost of a reply's tokens, of which ``reasoning`` are thought."""
        text_price = self.output_cost_per_token or 0.0
        thought_price = _first_known(self.output_cost_per_reasoning_token, text_price)
        return (tokens - reasoning) * text_price + reasoning * thought_price


def _first_known(price: float | None, default: float) -> float:
    return default if price is None else price


class _Tier(Price, frozen=True, kw_only=True):
    """The prices for prompts from the first to the last number of tokens in ``range``."""

    range: tuple[float, float] = (0, 0)


class Prices:
    """The prices of models. A model that is not in the file has its price from litellm's table, or
    else from the package genai-prices.

    The file has the form of litellm's ``model_prices_and_context_window.json``: an object for each
    model. An object has the fields of ``Price``. For long prompts, an object also has fields such
    as ``input_cost_per_token_above_200k_tokens``, or ``tiered_pricing``. A model is found by its
    name, with or without the provider before a slash. Raises ``InvalidArgument`` if the file cannot
    be read. Cost: the constructor reads the file. The first use of litellm's table reads a file of
    3 MB.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._own: Mapping[str, Price] = {} if path is None else _prices_in(path)
        self.only = next(iter(self._own)) if len(self._own) == 1 else None
        """The model in the file, if the file has only one."""
        self.of: Callable[[str], Price | None] = cache(self._of)
        """Returns the price of a model, or None if its input or its output has no price."""

    def _of(self, model: str) -> Price | None:
        """Return the price of a model from the first table that has the model. Return None if no
        table has it, or if this table lacks the price of a prompt or of a reply.
        """
        names = names_of(model)
        for find_price in (self._own.get, _litellms_price, _genais_price):
            for name in names:
                price = find_price(name)
                if price is None:
                    continue
                if price.input_cost_per_token is None or price.output_cost_per_token is None:
                    return None
                return price
        return None

    def cost(self, model: str, usage: Mapping[str, int], above: int = -1) -> float | None:
        """Return the cost of calls of a model, or None if it is unknown. The prompts of all calls
        in ``usage`` have more tokens than ``above``.
        """
        if not {"prompt_tokens", "completion_tokens"} <= usage.keys():
            return None
        base = self.of(model)
        if base is None:
            return None
        price = base.at(above + 1)
        completion = usage["completion_tokens"]
        cached = usage.get("cached_tokens", 0)
        written = usage.get("cache_write_tokens", 0)
        fresh = max(0, usage["prompt_tokens"] - cached - written)
        for_an_hour = usage.get("cache_write_1h_tokens", 0)
        thought = min(usage.get("reasoning_tokens", 0), completion)
        return price.of_prompt(fresh, cached, written - for_an_hour, for_an_hour) + price.of_reply(
            completion, thought
        )


def _litellms_price(model: str) -> Price | None:
    entry = litellms_table().get(model)
    return None if entry is None else _price(msgspec.json.decode(entry))


def _genais_price(model: str) -> Price | None:
    """Return a price from the package genai-prices, if it is installed. Its prices are for a
    million tokens.
    """
    if find_spec("genai_prices") is None:
        return None
    snapshot = import_module("genai_prices.data_snapshot").get_snapshot()
    try:
        _, model_info = snapshot.find_provider_model(model, None, None, None)
    except LookupError:
        return None
    prices = model_info.get_prices(datetime.now(UTC))
    steps = list[_Step]()
    for name, genai_name in zip(_NAMES, _GENAI_FIELDS, strict=False):
        price = getattr(prices, genai_name, None)  # earlier versions lack the last
        if price is not None:
            steps.append((0, name, float(getattr(price, "base", price)) / 1e6))
            steps += [
                (tier.start, name, float(tier.price) / 1e6) for tier in getattr(price, "tiers", ())
            ]
    return _of_steps(steps)


def _prices_in(path: Path) -> dict[str, Price]:
    """Return the prices in a file. Raises ``InvalidArgument``."""
    check_path(str(path))
    try:
        content = path.read_bytes()
        entries = msgspec.json.decode(content, type=dict[str, Any])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(
            f"the prices in {str(path)!r} cannot be read: {error}; {_FORM}"
        ) from error
    entries.pop(_LITELLMS_RULES, None)
    for model, entry in entries.items():
        if problem := _problem_of(model, entry):
            raise InvalidArgument(f"{str(path)!r}: {problem}; {_FORM}")
    return {model: _price(entry) for model, entry in entries.items()}


def _problem_of(model: str, entry: Any) -> str | None:
    """Return what is wrong with the prices of a model in a file, or None."""
    if type(entry) is not dict:
        return f"the prices of {model!r} are {entry!r:.60}, but they must be an object"
    prices = {field: value for field, value in entry.items() if _USED.fullmatch(field)}
    try:
        tiers = _tiers(entry)
    except msgspec.ValidationError as error:
        return f"{_TIERS} of {model!r} cannot be read: {error}"
    unknown_names = [name for name in entry if name not in prices and name != _TIERS]
    unknown_names += [
        name for tier in entry.get(_TIERS) or () for name in tier if name not in _OF_TIERS
    ]
    if unknown_names and "litellm_provider" not in entry:
        return f"{model!r} has unknown fields: {', '.join(unknown_names)}"
    if any(tier.range[0] < 0 for tier in tiers):
        return f"a range of {_TIERS} of {model!r} begins below 0 tokens"
    in_tiers = ((name, getattr(tier, name)) for tier in tiers for name in _NAMES)
    for name, value in (*prices.items(), *in_tiers):
        is_price = type(value) in (int, float) and 0 <= value <= sys.float_info.max
        if value is not None and not is_price:
            return f"{name} of {model!r} is {value!r}, but a price is a number of 0 or more"
    return None


def _price(entry: JsonMap) -> Price:
    """Return the prices of a model in a file of prices. Fields that are no prices are left out.
    Raises ``msgspec.ValidationError``.
    """
    steps = list[_Step]()
    for field, value in entry.items():
        matched = _USED.fullmatch(field)
        if matched is not None and value is not None:
            above = 1_000.0 * int(matched[2] or 0)
            steps.append((above, matched[1], value))
    for tier in _tiers(entry):
        steps += [
            (tier.range[0], name, value)
            for name in _NAMES
            if (value := getattr(tier, name)) is not None
        ]
    return _of_steps(steps)


def _tiers(entry: JsonMap) -> tuple[_Tier, ...]:
    """Return the tiers of an entry. Raises ``msgspec.ValidationError``."""
    tiers = entry.get(_TIERS)
    return () if tiers is None else msgspec.convert(tiers, tuple[_Tier, ...])


def _of_steps(steps: Iterable[_Step]) -> Price:
    """Return the price with all steps. A field keeps its value for longer prompts until a step
    changes it.
    """
    fields_above: dict[float, JsonObject] = {0: {}}
    for above, name, value in sorted(steps, key=lambda step: step[0]):
        fields_below = fields_above[max(fields_above)]
        fields_above.setdefault(above, {**fields_below})[name] = value
    base, *tiers = (
        (above, msgspec.convert(fields, Price)) for above, fields in fields_above.items()
    )
    return msgspec.structs.replace(base[1], longer=tuple(tiers))


_Step = tuple[float, str, float]
"""A price for long prompts: a number of tokens, the name of a field of ``Price``, and the value of
this field for prompts with more tokens.
"""
_NAMES = Price.__struct_fields__[:-1]
"""The fields of ``Price`` that are prices, which are all except ``longer``."""
_GENAI_FIELDS = (
    "input_mtok",
    "output_mtok",
    "cache_read_mtok",
    "cache_write_mtok",
    "cache_write_1h_mtok",
)
"""The fields of genai-prices with the first prices of ``_NAMES``; it has none for thought."""
_USED = re.compile(rf"({'|'.join(_NAMES)})(?:_above_(\d{{1,9}})k_tokens)?")
_TIERS = "tiered_pricing"
_OF_TIERS = frozenset({"range", *_NAMES})
_LITELLMS_RULES = "fallback_generalizations"
"""The entry of litellm's file that describes no model."""
_FORM = (
    'write JSON such as {"my-model": {"input_cost_per_token": 3e-06, "output_cost_per_token":'
    " 1.5e-05}}, in US dollars for a token"
)
