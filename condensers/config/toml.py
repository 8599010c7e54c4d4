"""Load a condenser from a TOML file. The condenser is in the table ``[condenser]`` or
``[condenser.NAME]``, and its models are in ``[llm]`` and ``[llm.NAME]``.

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

Foldlog ignores the tables of other programs, but refuses a misspelt ``[condenser]`` or ``[llm]``. A
mistake in foldlog's own tables raises ``InvalidCondenser`` with the path of the key.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from foldlog._base.json_types import JsonObject
from foldlog.condensers.base import Condenser
from foldlog.condensers.config.registry import condenser_from_config, parse_config
from foldlog.condensers.config_tables import name_of_kind
from foldlog.condensers.errors import InvalidCondenser
from foldlog.condensers.models.llm_config import LLMConfig, Models

_Table = Mapping[str, Any]
_OURS = ("condenser", "llm")


def load_condenser(path: str | os.PathLike[str], name: str | None = None) -> Condenser:
    """Return the condenser that a TOML file describes in ``[condenser]`` or in
    ``[condenser.NAME]``.

    Raises ``InvalidCondenser`` if the file cannot be read or a key is wrong. The error message
    names the file, the path of the wrong key, and the allowed values.
    """
    group = "" if name is None else f".{_group_named(name)}"
    return condenser_from_config(
        load_condenser_config(path, name), path=f"{os.fspath(path)}: condenser{group}"
    )


def load_condenser_config(path: str | os.PathLike[str], name: str | None = None) -> BaseModel:
    """Return the configuration that ``load_condenser`` uses. All names of models are resolved, and
    all default values are filled in.
    """
    file = os.fspath(path)
    try:
        return read_condenser_config(
            tomllib.loads(Path(path).read_text(encoding="utf-8-sig")), name
        )
    except InvalidCondenser as error:
        raise InvalidCondenser(f"{file}: {error}") from error
    except OSError as error:
        raise InvalidCondenser(f"{file}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidCondenser(f"{file}: is not TOML: {error}") from error


def read_condenser_config(document: _Table, name: str | None = None) -> BaseModel:
    """Return the configuration of a condenser in a TOML document: of the table ``[condenser]``, or
    of the group ``name``, which may be written ``NAME``, ``condenser.NAME`` or
    ``[condenser.NAME]``. Raises ``InvalidCondenser`` for a missing or unknown table, and the errors
    of ``parse_config``.
    """
    for key in document:
        similar = difflib.get_close_matches(key.lower(), _OURS, cutoff=0.8)
        if similar and key not in _OURS:
            raise InvalidCondenser(f"{key}: unknown table; did you mean [{similar[0]}]?")
    section = _table(document, "condenser")
    typed = (
        key
        for key, value in section.items()
        if isinstance(value, Mapping) and value.keys() & {"type", "kind"}
    )
    # A table without a type is a parameter of the condenser, or a mistake.
    groups = {key: section[key] for key in typed if key != "llm_config"}
    path = "condenser"
    table = {key: value for key, value in section.items() if key not in groups}
    group_names = ", ".join(map(repr, groups)) or "none"
    if name is not None:
        group = _group_named(name)
        if group not in groups:
            raise InvalidCondenser(
                f"condenser.{group}: unknown group; the groups are {group_names}"
            )
        path = f"condenser.{group}"
        table = groups[group]
    elif not table:
        raise InvalidCondenser(
            "condenser.type: is missing, because there is no table [condenser]; add this table"
            " with a type, such as 'digest', or name one of the groups; the groups are"
            f" {group_names}"
        )
    return parse_config(table, path=path, models=Models.of(_table(document, "llm")))


def condenser_config_from_toml_section(
    data: _Table, llm_configs: Mapping[str, LLMConfig | _Table] | None = None
) -> JsonObject:
    """Return ``{"condenser": …}`` with the configuration of a section ``[condenser]``. A section
    without a ``type`` describes the condenser ``noop``. ``llm_configs`` are the models that the
    section may name. Raises the errors of ``parse_config``.
    """
    tables = {
        name: config.model_dump(exclude_unset=True) if isinstance(config, LLMConfig) else config
        for name, config in (llm_configs or {}).items()
    }
    section = dict(data) if "kind" in data else {"type": "noop", **data}
    return {"condenser": parse_config(section, models=Models(tables))}


def _group_named(name: str) -> str:
    return name.strip("[]").removeprefix("condenser.")


def _table(document: _Table, key: str) -> _Table:
    table = document.get(key, {})
    if not isinstance(table, Mapping):
        raise InvalidCondenser(f"{key}: should be a table, not {name_of_kind(table)}")
    return table
