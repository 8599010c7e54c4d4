"""The registry of condensers by the ``type`` of their configuration, open to strategies from other packages. A
configuration is a pydantic model of a strategy's parameters.

The registry is a union of these models, discriminated by ``type``. A package adds its own strategy in code, with
``register_config``, or by an entry point:

    [project.entry-points."foldlog.condensers"]
    every_other = "mypackage:register"      # the type's name; a function without arguments that calls register_config
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, TypeVar, cast

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, SerializationInfo, ValidationError
from pydantic_core import CoreSchema, core_schema

from condensers.base import Condenser
from condensers.errors import InvalidCondenser
from condensers.models.agents_model import AgentsModel
from condensers.models.llm_config import LLMConfig

ENTRY_POINTS = "foldlog.condensers"
"""The group in which a package names its condensers."""


class CondenserConfig(BaseModel):
    """The parameters of one strategy. A subclass gives ``type`` as a literal with a default, and a field for each
    argument of the condenser's constructor.

    As the annotation of a field of a pydantic model, this class stands for the configuration of any strategy:
    ``condenser: CondenserConfig`` takes a table with a ``type``.

    Two fields are special: ``llm_config`` may name a table ``[llm.NAME]`` (``[llm]`` is the default), and
    ``condensers`` holds the configurations of other condensers.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    aliases: ClassVar[tuple[str, ...]] = ()
    """Other names for ``type`` that are accepted but never written."""

    type: str

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Make this class, as the annotation of a field, the union of all registered configurations."""
        if cls is not globals().get("CondenserConfig"):  # a subclass, or this class while it is made
            return handler(source)
        return core_schema.no_info_plain_validator_function(
            parse_config,
            json_schema_input_schema=core_schema.dict_schema(),
            serialization=core_schema.plain_serializer_function_ser_schema(_dump, info_arg=True),
        )

    def arguments(self, path: str) -> dict[str, Any]:
        """Return the arguments of the condenser's constructor. ``path`` names this configuration in errors."""
        return {name: getattr(self, name) for name in type(self).model_fields if name != "type"}


def _dump(config: CondenserConfig, info: SerializationInfo) -> dict[str, Any]:
    return config.model_dump(mode=info.mode, exclude_none=info.exclude_none, exclude_unset=info.exclude_unset)


CONDENSER_REGISTRY: dict[type[CondenserConfig], type[Condenser]] = {}
"""The class of the condenser for each class of configuration."""

_by_name: dict[str, type[CondenserConfig]] = {}

LLMResolver = Callable[[Any, str], LLMConfig | None]
"""A function that returns the model of an ``llm_config`` (a table, a name, or None if not given) at a path, or None for
no model.
"""


def register_config(config_type: type[CondenserConfig], condenser_type: type[Condenser]) -> None:
    """Register ``condenser_type`` as the condenser of ``config_type``.

    Raises ``InvalidCondenser`` (a ``ValueError``) if the class, its type or one of its aliases is already registered.
    """
    name = config_type.model_fields["type"].default
    if not isinstance(name, str):
        raise InvalidCondenser(f"{config_type.__name__} must give its field 'type' a literal and a default")
    if config_type in CONDENSER_REGISTRY:
        raise InvalidCondenser(f"condenser configuration {config_type.__name__} is already registered")
    for known in (name, *config_type.aliases):
        if known in _by_name:
            raise InvalidCondenser(f"condenser type {known!r} is already registered, by {_by_name[known].__name__}")
    _by_name.update(dict.fromkeys((name, *config_type.aliases), config_type))
    CONDENSER_REGISTRY[config_type] = condenser_type


def config_types() -> list[type[CondenserConfig]]:
    """Return every configuration class, of installed packages too, by the name of its type.

    Raises ``InvalidCondenser`` where one of those packages cannot be loaded.
    """
    for name in entry_points(group=ENTRY_POINTS).names:
        _find(name)
    return sorted(CONDENSER_REGISTRY, key=_name)


def config_of(condenser: Condenser) -> CondenserConfig:
    """Return the configuration of ``condenser``, from which an equal one can be made. Raises ``InvalidCondenser`` where
    there is none.
    """
    made_by = next((kind for kind, made in CONDENSER_REGISTRY.items() if made is type(condenser)), None)
    if made_by is None:
        raise InvalidCondenser(
            f"the class {type(condenser).__name__} has no configuration; register one with register_config"
        )
    return made_by(**{name: _argument(condenser, name) for name in made_by.model_fields if name != "type"})


def _argument(condenser: Condenser, name: str) -> Any:
    """Return the value of a field of the configuration, found in the condenser itself."""
    if name == "condensers":
        return tuple(config_of(part) for part in condenser.condensers)  # type: ignore[attr-defined]
    if name != "llm_config":
        try:
            return getattr(condenser, name)
        except AttributeError as error:
            raise InvalidCondenser(
                f"the class {type(condenser).__name__} does not keep its parameter {name!r}; set it as an attribute"
            ) from error
    llm = condenser.llm  # type: ignore[attr-defined]
    if isinstance(llm, AgentsModel):
        return None
    config = getattr(llm, "config", None)
    if not isinstance(config, LLMConfig):
        raise InvalidCondenser(
            f"the model {llm.model!r} of the condenser {condenser.type!r} has no configuration; use condensers.LLM"
        )
    return config


def from_config(config: CondenserConfig | Mapping[str, Any], *, path: str = "condenser") -> Condenser:
    """Return the condenser that a configuration, or the table of one, describes.

    Raises ``InvalidCondenser`` if its class is not registered, and, with the path, if the condenser refuses the
    parameters. Any other error of a condenser's constructor is passed on unchanged.
    """
    config = parse_config(config, path=path)
    condenser_type = CONDENSER_REGISTRY.get(type(config))
    if condenser_type is None:
        raise InvalidCondenser(
            f"Unknown condenser config: {type(config).__name__} is not registered; call register_config first"
        )
    arguments = config.arguments(path)
    try:
        return condenser_type(**arguments)
    except InvalidCondenser as error:
        raise InvalidCondenser(f"{path}: {error}") from error


def parse_config(value: Any, *, path: str = "condenser", resolve_llm: LLMResolver | None = None) -> CondenserConfig:
    """Return the configuration that a table describes, by its ``type``; a configuration is returned as it is.

    Raises ``InvalidCondenser`` with the path of every key that is wrong, and with what is allowed there.
    """
    if isinstance(value, CondenserConfig):
        return value
    if not isinstance(value, Mapping):
        raise InvalidCondenser(f"{path}: should be a table with a 'type', not {told(value)}")
    import_module("condensers.config.parameters")  # importing it registers our own strategies
    config_type = _type_of(value, path)
    fields = {name: held for name, held in value.items() if name not in {"type", "kind"}}
    if "llm_config" in config_type.model_fields:
        fields["llm_config"] = (resolve_llm or parse_llm_config)(fields.get("llm_config"), f"{path}.llm_config")
    elements = fields.get("condensers")
    if "condensers" in config_type.model_fields and isinstance(elements, list | tuple):
        fields["condensers"] = tuple(
            parse_config(element, path=f"{path}.condensers[{index}]", resolve_llm=resolve_llm)
            for index, element in enumerate(elements)
        )
    return _validated(config_type, fields, path)


def parse_llm_config(value: Any, path: str) -> LLMConfig | None:
    """Return the model that a table describes; a model is returned as it is.

    Raises ``InvalidCondenser`` as ``parse_config`` does, and also for the name of a table: without a file there are no
    tables ``[llm]``.
    """
    if value is None or isinstance(value, LLMConfig):
        return value
    if not isinstance(value, Mapping):
        raise InvalidCondenser(
            f"{path}: should be a table with a 'model', not {told(value)}; only a TOML file has tables [llm] to name"
        )
    return _validated(LLMConfig, value, path)


_Model = TypeVar("_Model", bound=BaseModel)


def _validated(model: type[_Model], fields: Mapping[str, Any], path: str) -> _Model:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise InvalidCondenser("; ".join(_described(error, model, path))) from error


def _described(error: ValidationError, model: type[BaseModel], path: str) -> Iterable[str]:
    for problem in error.errors(include_url=False, include_context=False):
        at = path + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"])
        match problem["type"]:
            case "extra_forbidden":
                yield f"{at}: unknown key{_suggestion(str(problem['loc'][-1]), model.model_fields)}"
            case "missing":
                yield f"{at}: is required"
            case _:
                given = problem["input"]
                shown = isinstance(given, int | float) and problem["loc"][-1] != "api_key"
                said = problem["msg"].removeprefix("Input ").removeprefix("Value error, ").replace("tuple", "list")
                yield f"{at}: {said}" + (f", not {given!r}" if shown else "")


def told(value: Any) -> str:
    """Name the kind of a value that should be a table, for an error; not the value itself, which may be a key."""
    kinds = {str: "a text", list: "a list", tuple: "a list", type(None): "nothing", bool: "true or false"}
    return kinds.get(type(value), "a number" if isinstance(value, int | float) else f"a {type(value).__name__}")


def _suggestion(wrong: str, allowed: Iterable[str]) -> str:
    allowed = sorted(allowed)
    near = difflib.get_close_matches(wrong, allowed, n=1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    return f"{meant}; allowed are {', '.join(allowed)}"


def _type_of(table: Mapping[str, Any], path: str) -> type[CondenserConfig]:
    if "type" in table and "kind" in table:
        raise InvalidCondenser(f"{path}.kind: is another word for 'type', and both are given; leave one of them out")
    key = "kind" if "kind" in table else "type"
    name = table.get(key)
    if name is None:
        raise InvalidCondenser(f"{path}.type: is required; it is one of {', '.join(_names())}")
    if not isinstance(name, str):
        raise InvalidCondenser(
            f"{path}.{key}: expected text, found {type(name).__name__}; it is one of {', '.join(_names())}"
        )
    found = _find(name)
    if found is None:
        raise InvalidCondenser(f"{path}.{key}: unknown condenser type {name!r}{_suggestion(name, _names())}")
    return found


def _find(name: str) -> type[CondenserConfig] | None:
    with _finding:  # otherwise two threads would register the same class
        if name not in _by_name:
            for entry_point in entry_points(group=ENTRY_POINTS, name=name):
                _registration(entry_point)()
        return _by_name.get(name)


def _registration(entry_point: EntryPoint) -> Callable[[], object]:
    try:
        return cast("Callable[[], object]", entry_point.load())
    except (ImportError, AttributeError) as error:
        raise InvalidCondenser(
            f"the condenser {entry_point.name!r} of an installed package cannot be loaded from {entry_point.value!r}: "
            f"{error}; repair or remove that package"
        ) from error


_finding = threading.RLock()


def _name(config_type: type[CondenserConfig]) -> str:
    return str(config_type.model_fields["type"].default)


def _names() -> list[str]:
    """Return the names of all types, without the aliases. Loads nothing."""
    return sorted({*map(_name, CONDENSER_REGISTRY), *entry_points(group=ENTRY_POINTS).names})
