"""What calls of models cost, by a table of prices."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from foldlog.condensers.models.limits import litellms_table, names_of
from foldlog.eventstore import InvalidArgument


class Price(msgspec.Struct, frozen=True):
    """The prices of a model in US dollars for a token, by litellm's names. ``longer`` are those of
    longer prompts, each behind the number of tokens that the prompt has more than.
    """

    input_cost_per_token: float | None = None
    output_cost_per_token: float | None = None
    cache_read_input_token_cost: float | None = None
    cache_creation_input_token_cost: float | None = None
    cache_creation_input_token_cost_above_1hr: float | None = None
    output_cost_per_reasoning_token: float | None = None
    longer: tuple[tuple[float, Price], ...] = ()

    def at(self, prompt: int) -> Price:
        """Return the prices of a call whose prompt has this number of tokens."""
        return next((price for above, price in reversed(self.longer) if above < prompt), self)

    def of_each(self) -> tuple[float, float, float, float, float, float]:
        """Return the prices of a token: of a prompt new, of the cache, written there for minutes
        and for an hour; of a reply of its words, and of thought.
        """
        prompt = self.of_prompt
        reply = self.of_reply
        return (
            prompt(1, 0),
            prompt(0, 1),
            prompt(0, 0, 1),
            prompt(0, 0, 0, 1),
            reply(1),
            reply(1, 1),
        )

    def of_prompt(self, fresh: int, cached: int, written: int = 0, for_an_hour: int = 0) -> float:
        """Return the price of a prompt: of tokens that are new, that the provider's cache had, and
        that go there, for minutes or for an hour. Where these have no price of their own, they cost
        as others do.
        """
        new = self.input_cost_per_token or 0.0
        read = self.cache_read_input_token_cost
        write = self.cache_creation_input_token_cost
        write = new if write is None else write
        hour = self.cache_creation_input_token_cost_above_1hr
        kept = written * write + for_an_hour * (write if hour is None else hour)
        return fresh * new + cached * (new if read is None else read) + kept

    def of_reply(self, tokens: int, reasoning: int = 0) -> float:
        """Return the price of a reply, of these tokens ``reasoning`` for thought."""
        said = self.output_cost_per_token or 0.0
        thought = self.output_cost_per_reasoning_token
        return (tokens - reasoning) * said + reasoning * (said if thought is None else thought)


class _Tier(Price, frozen=True, kw_only=True):
    """The prices of prompts whose number of tokens is in this range."""

    range: tuple[float, float] = (0, 0)


class Prices:
    """The prices of models: those of a file, else of litellm's table, else of the package
    genai-prices, where these are installed.

    The file has the form of litellm's ``model_prices_and_context_window.json``: an object for each
    model, of which the fields of ``Price`` are read, those with ``_above_200k_tokens`` behind them
    or another number, and ``tiered_pricing``. A model is found by its name, also without the
    provider before a slash. Raises ``InvalidArgument`` for a file that cannot be read. Cost: the
    file; litellm's table, 3 MB, when it is first needed, without an import of litellm.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._own: Mapping[str, Price] = {} if path is None else _prices_in(path)
        self.only = next(iter(self._own)) if len(self._own) == 1 else None
        """The model of the file, if that has a single one."""
        self.of: Callable[[str], Price | None] = cache(self._of)
        """Return the price of a model; None where its input or its output has none."""

    def _of(self, model: str) -> Price | None:
        names = names_of(model)
        prices = (
            find(name) for find in (self._own.get, _litellms_price, _genais_price) for name in names
        )
        price = next((price for price in prices if price is not None), None)
        if (
            price is None
            or price.input_cost_per_token is None
            or price.output_cost_per_token is None
        ):
            return None
        return price

    def cost(self, model: str, usage: Mapping[str, int], above: int = -1) -> float | None:
        """Return what calls of this usage cost, the prompt of each having more tokens than
        ``above``; None where the price, or the tokens in or out, are not known.
        """
        if {"prompt_tokens", "completion_tokens"} <= usage.keys():
            plain = self.of(model)
        else:
            plain = None
        if plain is None:
            return None
        price = plain.at(above + 1)
        replied = usage["completion_tokens"]
        cached = usage.get("cached_tokens", 0)
        written = usage.get("cache_write_tokens", 0)
        fresh = max(0, usage["prompt_tokens"] - cached - written)
        hour = usage.get("cache_write_1h_tokens", 0)
        thought = min(usage.get("reasoning_tokens", 0), replied)
        return price.of_prompt(fresh, cached, written - hour, hour) + price.of_reply(
            replied, thought
        )


def _litellms_price(model: str) -> Price | None:
    entry = litellms_table().get(model)
    return None if entry is None else _price(msgspec.json.decode(entry))


def _genais_price(model: str) -> Price | None:
    """Return the price of today in the table of genai-prices, which has prices for a million
    tokens.
    """
    if find_spec("genai_prices") is None:
        return None
    snapshot = import_module("genai_prices.data_snapshot").get_snapshot()
    try:
        _, found = snapshot.find_provider_model(model, None, None, None)
    except LookupError:
        return None
    prices = found.get_prices(datetime.now(UTC))
    steps = list[_Step]()
    for name, theirs in zip(_NAMES, _OF_GENAI, strict=False):
        price = getattr(prices, theirs)
        if price is not None:
            steps.append((0, name, float(getattr(price, "base", price)) / 1e6))
            steps += [
                (tier.start, name, float(tier.price) / 1e6) for tier in getattr(price, "tiers", ())
            ]
    return _of_steps(steps)


def _prices_in(path: Path) -> dict[str, Price]:
    try:
        given = path.read_bytes()
        entries = msgspec.json.decode(given, type=dict[str, dict[str, Any]])
        prices = {model: _price(entry) for model, entry in entries.items()}
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidArgument(
            f"the prices in {str(path)!r} cannot be read: {error}; {_FORM}"
        ) from error
    for model, entry in entries.items():
        used = {
            name: value for name, value in entry.items() if name == _TIERS or _USED.fullmatch(name)
        }
        if "litellm_provider" not in entry and (
            others := [name for name in entry if name not in used]
        ):
            raise InvalidArgument(
                f"{str(path)!r}: {model!r} has the unknown {', '.join(others)}; {_FORM}"
            )
        for name, value in used.items():
            if name != _TIERS and value is not None and not 0 <= value < float("inf"):
                raise InvalidArgument(
                    f"{str(path)!r}: {name} of {model!r} is {value}, which is not a price; {_FORM}"
                )
    return prices


def _price(entry: Mapping[str, Any]) -> Price:
    """Return the prices in an entry of the table; those of longer prompts are the ones below with
    what differs.
    """
    used = [(each, value) for name, value in entry.items() if (each := _USED.fullmatch(name))]
    steps = [
        (1_000.0 * int(each[2] or 0), each[1], value) for each, value in used if value is not None
    ]
    for tier in msgspec.convert(entry.get(_TIERS) or (), tuple[_Tier, ...]):
        steps += [
            (tier.range[0], name, value)
            for name in _NAMES
            if (value := getattr(tier, name)) is not None
        ]
    return _of_steps(steps)


def _of_steps(steps: Iterable[_Step]) -> Price:
    """Return prices from steps: the number of tokens of a prompt above which one has this value."""
    prices: dict[float, dict[str, Any]] = {0: {}}
    for above, name, value in sorted(steps, key=lambda step: step[0]):
        prices.setdefault(above, {**prices[max(prices)]})[name] = value
    plain, *longer = ((above, msgspec.convert(one, Price)) for above, one in prices.items())
    return msgspec.structs.replace(plain[1], longer=tuple(longer))


_Step = tuple[float, str, float]
_NAMES = Price.__struct_fields__[:-1]
_OF_GENAI = (
    "input_mtok",
    "output_mtok",
    "cache_read_mtok",
    "cache_write_mtok",
    "cache_write_1h_mtok",
)
_USED = re.compile(rf"({'|'.join(_NAMES)})(?:_above_(\d+)k_tokens)?")
_TIERS = "tiered_pricing"
_FORM = (
    'give JSON such as {"my-model": {"input_cost_per_token": 3e-06, "output_cost_per_token":'
    " 1.5e-05}}, in US dollars for a token"
)
