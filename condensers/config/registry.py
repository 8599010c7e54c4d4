"""The registry finds a strategy by the ``type`` of its configuration. Other packages can add
strategies to the registry. A configuration is a pydantic model of the parameters of a strategy.

A package adds its strategy by calling ``register_config``, or with an entry point:

    [project.entry-points."foldlog.condensers"]
    every_other = "mypackage:register"

``every_other`` is the type's name. ``register`` is a function without arguments, which calls
``register_config``.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Self

from pydantic import BaseModel, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema, core_schema

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog.condensers.base import Condenser
from foldlog.condensers.config_tables import (
    StrictTable,
    configuration_error,
    name_of_kind,
    suggestion,
    wrong_table,
)
from foldlog.condensers.errors import InvalidCondenser
from foldlog.condensers.models.llm_config import Models

ENTRY_POINTS = "foldlog.condensers"
"""The entry point group in which a package lists its condensers."""


class CondenserConfig(StrictTable):
    """The parameters of a strategy. A subclass declares ``type`` as a literal with a default. For
    each argument of the condenser's constructor, the subclass declares a field.

    If a pydantic model of your own has a field ``condenser: CondenserConfig``, the field accepts
    the table of any strategy.
    """

    aliases: ClassVar[tuple[str, ...]] = ()
    """Other names that a configuration may contain as its ``type``. Foldlog itself writes only the
    default name.
    """

    type: Any  # ``type`` is a text. Pyright lets a subclass narrow the annotation Any, but not str.

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Let a field with the annotation ``CondenserConfig`` accept the table of any registered
        strategy.
        """
        # Pydantic calls this also for a subclass, and for this class before its definition ends.
        if cls is not globals().get("CondenserConfig"):
            return handler(source)
        return core_schema.with_info_plain_validator_function(
            lambda value, info: _validate(value, info.context),
            json_schema_input_schema=core_schema.dict_schema(),
        )

    @classmethod
    def of(cls, condenser: Any, **values: Any) -> Self:
        """Return the configuration of a condenser. A field takes its value from ``values``, or else
        from the condenser's attribute of the same name. Raises ``InvalidCondenser`` if the
        configuration does not accept a value.
        """
        attributes = {
            name: getattr(condenser, name)
            for name in cls.model_fields
            if name != "type" and name not in values
        }
        try:
            return cls(**values, **attributes)
        except ValidationError as error:
            raise configuration_error(error, condenser.type) from error

    def arguments(self, path: str) -> JsonObject:
        """Return the arguments of the condenser's constructor. Error messages begin with ``path``,
        the place of this configuration in its file.
        """
        return {name: getattr(self, name) for name in type(self).model_fields if name != "type"}


CONDENSER_REGISTRY: dict[type[BaseModel], type[Condenser]] = {}


def names_of(config_type: type[BaseModel]) -> tuple[str, ...]:
    """Return the default of the field ``type``, followed by the aliases. Raises
    ``InvalidCondenser`` if the class has no field ``type`` with a default.
    """
    field = config_type.model_fields.get("type")
    if field is None or not isinstance(field.default, str):
        raise InvalidCondenser(
            f"{config_type.__name__} must declare its field 'type' as a literal with a default"
        )
    return (field.default, *getattr(config_type, "aliases", ()))


def register_config(config_type: type[BaseModel], condenser_type: type[Condenser]) -> None:
    """Register ``condenser_type`` as the condenser of ``config_type``. ``config_type`` is a
    ``CondenserConfig`` or another pydantic model with a field ``type``.

    Raises ``InvalidCondenser`` (a ``ValueError``) if the class, its type or an alias is already
    registered.
    """
    for name in names_of(config_type):
        if owner := _find_class(name):
            raise InvalidCondenser(
                f"condenser type {name!r} is already registered, by {owner.__name__}; choose"
                " another type"
            )
    CONDENSER_REGISTRY[config_type] = condenser_type
    condenser_type.config_type = config_type


def list_strategies() -> list[type[BaseModel]]:
    """Return the configuration classes of all strategies, sorted by the names of their types. The
    list includes the strategies of installed packages.

    Raises ``InvalidCondenser`` if an installed package cannot be loaded.
    """
    for name in entry_points(group=ENTRY_POINTS).names:
        config_type_of(name)
    return sorted(CONDENSER_REGISTRY, key=names_of)


def condenser_from_config(config: JsonMap | BaseModel, *, path: str = "condenser") -> Condenser:
    """Return the condenser that a table describes, such as ``{"type": "llm", "llm_config":
    {"model": …}, "max_size": 100}``.

    Raises ``InvalidCondenser`` if a key is wrong or if the condenser refuses its parameters. The
    message lists the path of every wrong key and the allowed values. Any other error of the
    condenser's constructor is raised unchanged.
    """
    config = parse_config(config, path=path)
    condenser_type = CONDENSER_REGISTRY.get(type(config))
    if condenser_type is None:
        raise InvalidCondenser(
            f"Unknown condenser config: {type(config).__name__} is not registered; call"
            " register_config first"
        )
    if isinstance(config, CondenserConfig):
        arguments = config.arguments(path)
    else:
        arguments = {
            name: getattr(config, name) for name in type(config).model_fields if name != "type"
        }
    try:
        if condenser_type.from_config.__func__ is not Condenser.from_config.__func__:  # type: ignore[attr-defined]
            return condenser_type.from_config(config)
        return condenser_type(**arguments)
    except InvalidCondenser as error:
        raise InvalidCondenser(f"{path}: {error}") from error


def parse_config(value: Any, *, path: str = "condenser", models: Models | None = None) -> BaseModel:
    """Return the configuration that the table ``value`` describes. A configuration is returned
    unchanged.

    ``models`` are the models that the table may name. Raises ``InvalidCondenser`` with the path of
    every wrong key and the allowed values.
    """
    try:
        return _validate(value, models)
    except ValidationError as error:
        raise configuration_error(error, path) from error


def _validate(value: Any, models: object) -> BaseModel:
    if isinstance(value, BaseModel):
        return value
    if not isinstance(value, Mapping):
        raise wrong_table([((), f"should be a table with a 'type', not {name_of_kind(value)}")])
    fields = {name: setting for name, setting in value.items() if name not in {"type", "kind"}}
    return _type_of(value).model_validate(fields, context=models)


def _type_of(table: JsonMap) -> type[BaseModel]:
    """Return the class of the configuration that a table names by its ``type`` or ``kind``. Raises
    ``ValidationError`` if the table names no condenser, an unknown one, or two.
    """
    if "type" in table and "kind" in table:
        raise wrong_table(
            [(("kind",), "means the same as 'type', and the table has both; leave one of them out")]
        )
    key = "kind" if "kind" in table else "type"
    name = table.get(key)
    config_type = config_type_of(name) if isinstance(name, str) else None
    if config_type is None and key == "kind":
        config_type = _config_of_class(name)
    if config_type is not None:
        return config_type
    our_names = (names_of(config_type)[0] for config_type in CONDENSER_REGISTRY)
    # This lists the names of installed condensers without loading them.
    allowed = sorted({*our_names, *entry_points(group=ENTRY_POINTS).names})
    if not isinstance(name, str):
        raise wrong_table([((key,), f"must be one of these names: {', '.join(allowed)}")])
    raise wrong_table([((key,), f"unknown condenser type {name!r}{suggestion(name, allowed)}")])


def _config_of_class(name: object) -> type[BaseModel] | None:
    # OpenHands V1 writes the name of the condenser's class as the ``kind`` of a table.
    return next(
        (config for config, made in CONDENSER_REGISTRY.items() if made.__name__ == name), None
    )


_registration_lock = threading.RLock()


def config_type_of(name: str) -> type[BaseModel] | None:
    """Return the configuration class with this type or alias. Returns None if neither foldlog nor
    an installed package has it.
    """
    # Without the lock, two threads that register the same class would collide.
    with _registration_lock:
        if _find_class(name) is None:
            for entry_point in entry_points(group=ENTRY_POINTS, name=name):
                _register(entry_point)
        return _find_class(name)


def _find_class(name: str) -> type[BaseModel] | None:
    return next(
        (config_type for config_type in CONDENSER_REGISTRY if name in names_of(config_type)), None
    )


def _register(entry_point: EntryPoint) -> None:
    """Load an installed package that registers a condenser. Raises ``InvalidCondenser`` if it
    cannot be loaded.
    """
    try:
        register = entry_point.load()
    except (ImportError, AttributeError) as error:
        raise InvalidCondenser(
            f"the condenser {entry_point.name!r} of an installed package cannot be loaded from"
            f" {entry_point.value!r}: {error}; repair or remove that package"
        ) from error
    register()
