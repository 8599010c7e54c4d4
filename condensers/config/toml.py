"""A condenser from a TOML file: ``[condenser]``, groups ``[condenser.NAME]``, the models ``[llm]`` and ``[llm.NAME]``.

    [condenser]                 # or [condenser.NAME], to be loaded by its name
    type = "pipeline"
    [[condenser.condensers]]
    type = "browser_output"
    [[condenser.condensers]]
    type = "llm"                # uses [llm], because it names no other table
    max_size = 80

    [llm]
    model = "gpt-4o-mini"
    api_key_env = "OPENAI_API_KEY"
    [llm.large]                 # inherits the keys of [llm] that it does not set
    model = "gpt-4o"

Tables of other programs are ignored. A mistake is reported with the path of its key and never corrected silently.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from condensers.base import Condenser
from condensers.config.registry import CondenserConfig, from_config, parse_config, parse_llm_config, told
from condensers.errors import InvalidCondenser
from condensers.models.llm_config import LLMConfig

_Table = Mapping[str, Any]

_KEYS = {"api_key", "api_key_env"}


def load_condenser(path: str | os.PathLike[str], name: str | None = None) -> Condenser:
    """Return the condenser that a TOML file describes in ``[condenser]``, or in ``[condenser.NAME]``.

    Raises ``InvalidCondenser`` if the file cannot be read or a key is wrong: with the file, the path of the key, and
    the allowed values.
    """
    config = load_condenser_config(path, name)
    try:
        return from_config(config)
    except InvalidCondenser as error:
        raise InvalidCondenser(f"{os.fspath(path)}: {error}") from error


def load_condenser_config(path: str | os.PathLike[str], name: str | None = None) -> CondenserConfig:
    """Return the configuration that ``load_condenser`` uses, with every name resolved and every default filled in."""
    where = os.fspath(path)
    try:
        return read_condenser_config(tomllib.loads(Path(path).read_text(encoding="utf-8-sig")), name)
    except InvalidCondenser as error:
        raise InvalidCondenser(f"{where}: {error}") from error
    except OSError as error:
        raise InvalidCondenser(f"{where}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidCondenser(f"{where}: is not TOML: {error}") from error


def read_condenser_config(document: _Table, name: str | None = None) -> CondenserConfig:
    """Return the configuration in a document.

    ``name`` may be written ``NAME``, ``condenser.NAME`` or ``[condenser.NAME]``.
    """
    _refuse_misspelt(document)
    models = _Models(_table(document, "llm"))
    section = _table(document, "condenser")
    groups = {key: value for key, value in section.items() if _is_group(key, value)}
    if name is not None:
        return _group(groups, name, models)
    own = {key: value for key, value in section.items() if key not in groups}
    if not section:
        raise InvalidCondenser(
            "condenser.type: is missing, as there is no table [condenser]; write it, with the type of a strategy: "
            "'digest', for example, or 'noop' to forget nothing"
        )
    if not own:
        raise InvalidCondenser(f"condenser.type: is missing; give it, or name one of the groups {_names(groups)}")
    return parse_config(own, resolve_llm=models.resolve)


def _group(groups: _Table, name: str, models: _Models) -> CondenserConfig:
    plain = name.strip("[]").removeprefix("condenser.")
    if plain not in groups:
        raise InvalidCondenser(f"condenser.{plain}: unknown group; the groups are {_names(groups)}")
    return parse_config(groups[plain], path=f"condenser.{plain}", resolve_llm=models.resolve)


class _Models:
    """The tables ``[llm]`` and ``[llm.NAME]`` of a file. They give the models for the names in ``llm_config`` and
    ``fallbacks``.
    """

    def __init__(self, section: _Table) -> None:
        fields = LLMConfig.model_fields
        self._named = {key: value for key, value in section.items() if isinstance(value, Mapping) and key not in fields}
        self._default = {key: value for key, value in section.items() if key not in self._named}

    def resolve(self, value: Any, path: str) -> LLMConfig | None:
        """Return the model for an ``llm_config``: a table, a name, or None for ``[llm]``, which may be missing."""
        if value is None:
            return self._named_model("llm", path, ()) if self._default else None
        return self._model(value, path, ())

    def _model(self, value: Any, path: str, users: tuple[str, ...]) -> LLMConfig | None:
        """Return the model. ``users`` are the names of the models whose fallbacks led to it."""
        if isinstance(value, str):
            return self._named_model(value, path, users)
        if not isinstance(value, Mapping):
            raise InvalidCondenser(
                f"{path}: should be a table with a 'model', or the name of one, not {told(value)}; "
                f"the models are {_names(self._known())}"
            )
        return parse_llm_config(self._with_fallbacks(value, path, users), path)

    def _named_model(self, name: str, path: str, users: tuple[str, ...]) -> LLMConfig | None:
        if name not in self._known():
            raise InvalidCondenser(f"{path}: unknown model {name!r}; the models are {_names(self._known())}")
        if name in users:
            raise InvalidCondenser(f"{path}: the model {name!r} is its own fallback, by way of {' -> '.join(users)}")
        table = self._default if name == "llm" else {**self._inherited(self._named[name]), **self._named[name]}
        own_path = "llm" if name == "llm" else f"llm.{name}"
        return parse_llm_config(self._with_fallbacks(table, own_path, (*users, name)), own_path)

    def _known(self) -> list[str]:
        return [*(["llm"] if self._default else []), *self._named]

    def _inherited(self, own: _Table) -> _Table:
        """Return what a named model takes from ``[llm]``: not the fallbacks, and no key if it has its own."""
        not_this = {"fallbacks", *(_KEYS if _KEYS & own.keys() else ())}
        return {key: value for key, value in self._default.items() if key not in not_this}

    def _with_fallbacks(self, table: _Table, path: str, users: tuple[str, ...]) -> _Table:
        fallbacks = table.get("fallbacks")
        if not isinstance(fallbacks, list):
            return table
        return {
            **table,
            "fallbacks": [
                self._model(value, f"{path}.fallbacks[{index}]", users) for index, value in enumerate(fallbacks)
            ],
        }


def _table(document: _Table, key: str) -> _Table:
    table = document.get(key, {})
    if not isinstance(table, Mapping):
        raise InvalidCondenser(f"{key}: should be a table, not {told(table)}")
    return table


def _is_group(key: str, value: Any) -> bool:
    """Return whether a key of ``[condenser]`` is a group of its own. A table without a type is a parameter, or a
    mistake.
    """
    return isinstance(value, Mapping) and key != "llm_config" and ("type" in value or "kind" in value)


def _refuse_misspelt(document: _Table) -> None:
    for key in ("type", "kind"):
        if "condenser" not in document and isinstance(document.get(key), str):
            raise InvalidCondenser(f"{key}: stands outside of a table; write [condenser] in the line above it")
    for key in document:
        for meant in ("condenser", "llm"):
            if key != meant and meant not in document and difflib.get_close_matches(key.lower(), [meant], cutoff=0.8):
                raise InvalidCondenser(f"{key}: is not a known table; did you mean [{meant}]?")


def _names(names: Any) -> str:
    return ", ".join(map(repr, names)) or "none"
