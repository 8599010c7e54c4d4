"""What calls of models cost, by a table of prices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path

import msgspec

from foldlog.eventstore import InvalidArgument


class Price(msgspec.Struct, frozen=True):
    """The prices of a model in US dollars for a token, by litellm's names."""

    input_cost_per_token: float | None = None
    output_cost_per_token: float | None = None
    cache_read_input_token_cost: float | None = None
    cache_creation_input_token_cost: float | None = None

    def of_prompt(self, fresh: int, cached: int, written: int = 0) -> float:
        """Return the price of a prompt: of tokens that are new, that the provider's cache had, and that go there. Where
        these have no price of their own, they cost as others do.
        """
        new = self.input_cost_per_token or 0.0
        read, write = self.cache_read_input_token_cost, self.cache_creation_input_token_cost
        return fresh * new + cached * (new if read is None else read) + written * (new if write is None else write)


class Prices:
    """The prices of models: those of a file, else of litellm's table, where litellm is installed.

    The file has the form of litellm's ``model_prices_and_context_window.json``: an object for each model, of which the
    fields of ``Price`` are read. A model is found by its name, also without the provider before a slash. Prices for
    long prompts, batches and priorities are not applied. Raises ``InvalidArgument`` for a file that cannot be read.
    Cost: the file; litellm's table, 3 MB, when it is first needed, without an import of litellm.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._own: Mapping[str, Price] = {} if path is None else _prices_in(path)
        self.of: Callable[[str], Price | None] = cache(self._of)
        """Return the price of a model; None where its input or its output has none."""

    @cached_property
    def _litellms(self) -> Mapping[str, msgspec.Raw]:
        found = find_spec("litellm")
        table = Path(found.origin or "").with_name("model_prices_and_context_window_backup.json") if found else None
        return msgspec.json.decode(table.read_bytes(), type=dict[str, msgspec.Raw]) if table and table.exists() else {}

    def _of(self, model: str) -> Price | None:
        names = [model.split("/", cut)[-1] for cut in range(model.count("/") + 1)]
        price = next((self._own[name] for name in names if name in self._own), None)
        if price is None and (known := next((self._litellms[name] for name in names if name in self._litellms), None)):
            price = msgspec.json.decode(known, type=Price)
        if price is None or price.input_cost_per_token is None or price.output_cost_per_token is None:
            return None
        return price

    def cost(self, model: str, usage: Mapping[str, int]) -> float | None:
        """Return what calls of this usage cost; None where the price, or the tokens in or out, are not known."""
        price = self.of(model) if {"prompt_tokens", "completion_tokens"} <= usage.keys() else None
        if price is None:
            return None
        cached, written = usage.get("cached_tokens", 0), usage.get("cache_write_tokens", 0)
        fresh = max(0, usage["prompt_tokens"] - cached - written)
        return price.of_prompt(fresh, cached, written) + usage["completion_tokens"] * (price.output_cost_per_token or 0)


def _prices_in(path: Path) -> dict[str, Price]:
    try:
        given = path.read_bytes()
        prices = msgspec.json.decode(given, type=dict[str, Price])
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidArgument(f"the prices in {str(path)!r} cannot be read: {error}; {_FORM}") from error
    known = {*Price.__struct_fields__}
    for model, fields in msgspec.json.decode(given).items():
        if "litellm_provider" not in fields and (others := [name for name in fields if name not in known]):
            raise InvalidArgument(f"{str(path)!r}: {model!r} has the unknown {', '.join(others)}; {_FORM}")
    for model, price in prices.items():
        for name, value in msgspec.structs.asdict(price).items():
            if value is not None and not 0 <= value < float("inf"):
                raise InvalidArgument(f"{str(path)!r}: {name} of {model!r} is {value}, which is not a price; {_FORM}")
    return prices


_FORM = (
    'give JSON such as {"my-model": {"input_cost_per_token": 3e-06, "output_cost_per_token": 1.5e-05}}, in US dollars '
    "for a token"
)
