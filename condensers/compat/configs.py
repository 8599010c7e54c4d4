"""Configuration classes that are plain pydantic models, and tables of models with OpenHands' keys."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, create_model

from foldlog.condensers.base import Condenser
from foldlog.condensers.config.registry import (
    CondenserConfig,
    condenser_from_config,
    config_type_of,
    register_config,
)
from foldlog.condensers.errors import InvalidCondenser
from foldlog.condensers.models.client import LLM
from foldlog.condensers.models.llm_config import LLMConfig

PLAIN: dict[type[BaseModel], type[Condenser]] = {}


class LLMRegistry:
    """Gives the ``from_config`` of a ported class its model."""

    def get_llm(self, service_id: str, config: Any) -> LLM:
        """Return the model of a configuration, also of one of OpenHands."""
        fields = config.model_dump(exclude_unset=True) if isinstance(config, BaseModel) else dict(config)
        return LLM(LLMConfig.model_validate({"model": getattr(config, "model", None), **fields}))


def register(config_type: type[BaseModel], condenser_type: type[Condenser]) -> None:
    """Register a configuration class. Of a plain model, a class is derived that tables can name by its ``type``."""
    if issubclass(config_type, CondenserConfig):
        register_config(config_type, condenser_type)
        return
    if config_type in PLAIN:
        raise InvalidCondenser(f"condenser configuration {config_type.__name__} is already registered")
    PLAIN[config_type] = condenser_type
    field = config_type.model_fields.get("type")
    if field is not None and isinstance(field.default, str) and config_type_of(field.default) is None:
        derived: Any = create_model(config_type.__name__, __base__=(config_type, CondenserConfig))
        register_config(derived, condenser_type)


def condenser_of(config: Mapping[str, Any] | BaseModel) -> Condenser:
    """Return the condenser of a table or a configuration."""
    found = PLAIN.get(type(config)) if isinstance(config, BaseModel) else None
    if found is None or not isinstance(config, BaseModel):
        if isinstance(config, BaseModel) and not isinstance(config, CondenserConfig):
            raise InvalidCondenser(
                f"Unknown condenser config: {type(config).__name__} is not registered; call register_config first"
            )
        return condenser_from_config(config)
    own: Any = found.from_config  # type: ignore[attr-defined]
    if len(inspect.signature(own).parameters) == 2 and own.__func__.__module__ != "foldlog.condensers.compat.classes":
        made: Condenser = own(config, LLMRegistry())
        return made
    return found(**{name: getattr(config, name) for name in type(config).model_fields if name != "type"})
