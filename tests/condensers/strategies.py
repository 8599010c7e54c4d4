"""The strategies of the registry, with their parameters, as the page about configuration lists
them.
"""

from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from foldlog.condensers.config.registry import names_of


class Parameter(NamedTuple):
    """A parameter of a strategy."""

    name: str
    type: str
    required: bool
    default: Any
    description: str


class Strategy(NamedTuple):
    """A strategy, by the name that a configuration gives it."""

    type: str
    aliases: tuple[str, ...]
    description: str
    parameters: tuple[Parameter, ...]


def strategy_of(config_type: type[BaseModel]) -> Strategy:
    """Return the strategy of a configuration class, for people."""
    fields = config_type.model_fields.items()
    return Strategy(
        type=names_of(config_type)[0],
        aliases=names_of(config_type)[1:],
        description=(config_type.__doc__ or "").strip(),
        parameters=tuple(_parameter(name, field) for name, field in fields if name != "type"),
    )


def _parameter(name: str, field: FieldInfo) -> Parameter:
    kind: Any = {"llm_config": "table or name", "condensers": "list of tables"}.get(
        name
    ) or field.annotation
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    return Parameter(
        name=name,
        type=kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", ""),
        required=field.is_required(),
        default=to_jsonable_python(default, fallback=repr),
        description=field.description or "",
    )
