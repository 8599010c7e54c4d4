"""This module finds what litellm's table says about a model, without importing litellm."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from foldlog._base.json_types import JsonMap
from foldlog.projections import begins_reply

if TYPE_CHECKING:
    from foldlog.projections import View


@runtime_checkable
class Window(Protocol):
    """The largest numbers of tokens that a model reads and writes. An unknown number is None."""

    @property
    def max_input_tokens(self) -> int | None: ...

    @property
    def max_output_tokens(self) -> int | None: ...


class _Entry(msgspec.Struct, frozen=True):
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None


@cache
def litellms_table() -> Mapping[str, msgspec.Raw]:
    """Return litellm's table of models, by name. Cost: the first call reads a file of 3 MB."""
    package = find_spec("litellm")
    if package:
        table = Path(package.origin or "").with_name("model_prices_and_context_window_backup.json")
        if table.exists():
            return msgspec.json.decode(table.read_bytes(), type=dict[str, msgspec.Raw])
    return {}


def litellms_entry(name: str) -> JsonMap:
    """Return the entry of litellm's table with exactly this name. An unknown name has an empty
    entry.
    """
    entry = litellms_table().get(name)
    return {} if entry is None else msgspec.json.decode(entry, type=dict[str, Any])


_LOOKED_UP = frozenset({"deepseek", "gemini", "groq", "mistral", "openrouter", "vertex_ai", "xai"})
"""For these providers, litellm takes a model that is in its table from the table. For some other
providers, litellm asks a server.
"""


def lookup(model: str) -> tuple[str, JsonMap] | None:
    """Return the name of a model without its provider, and its entry in litellm's table. A model on
    a server of your own has an empty entry. Returns None if only litellm itself can say which model
    it is.
    """
    if model.endswith("latest"):  # Newer versions of litellm have other names in its place.
        return None
    provider, slash, name = model.partition("/")
    entry = litellms_entry(model)
    if not slash:
        has_one_provider = entry.get("litellm_provider") in ("anthropic", "openai")
        return (model, entry) if has_one_provider and ":" not in model else None
    # Names with a colon are of models of one's own, fine-tuned or an image of Ollama.
    own = litellms_entry(name)
    if own.get("litellm_provider") != provider:
        own = {}
    if provider == "openai" and "/" not in name and ":" not in name:
        return name, entry or own
    if provider == "anthropic" and own:
        return name, own
    return (name, entry) if provider in _LOOKED_UP and entry else None


def names_of(model: str) -> list[str]:
    # For models that Anthropic no longer serves, the table has only the names at Bedrock. Where
    # OpenRouter writes claude-sonnet-4.5, the table has claude-sonnet-4-5.
    names = [model.split("/", cut)[-1] for cut in range(model.count("/") + 1)]
    names += [name.replace(".", "-") for name in names if "." in name]
    if names[-1].startswith("claude-"):
        return [*names, f"anthropic.{names[-1]}-v1:0"]
    return names


def window_in(view: View) -> Window | None:
    """Return the window of the model that wrote the newest reply. A reply is skipped if litellm's
    table does not have its model. Cost: the function reads the View backwards to the reply.
    """
    # Most events name no model, and the check of a reply costs more than that of a name.
    for event in reversed(view.events):
        model = event.meta.get("model")
        if isinstance(model, str) and begins_reply(event):
            window = window_of(model)
            if window is not None:
                return window
    return None


@cache
def window_of(model: str) -> Window | None:
    """Return the limits of a model in litellm's table, or None if the table has none."""
    table = litellms_table()
    entry = next((table[name] for name in names_of(model) if name in table), None)
    try:
        if entry is None:
            return None
        return msgspec.json.decode(entry, type=_Entry)
    except msgspec.ValidationError:  # Some entries have a text in the place of a number.
        return None
