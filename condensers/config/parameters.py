"""The configuration classes of foldlog's strategies. The parameters of a strategy's constructor
become the fields of its configuration class.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AliasChoices,
    BeforeValidator,
    Field,
    ValidationInfo,
    create_model,
    field_validator,
)

from foldlog._base.json_types import JsonObject
from foldlog.condensers.base import BOUNDS, Condenser
from foldlog.condensers.config.registry import (
    CondenserConfig,
    condenser_from_config,
    register_config,
)
from foldlog.condensers.errors import InvalidCondenser
from foldlog.condensers.models.client import LLM
from foldlog.condensers.models.llm_config import Model, Models
from foldlog.condensers.strategies.clearing import ClearThinkingCondenser, ClearToolUsesCondenser
from foldlog.condensers.strategies.digest import DigestCondenser
from foldlog.condensers.strategies.forgetting import (
    AmortizedForgettingCondenser,
    ConversationWindowCondenser,
    LLMAttentionCondenser,
)
from foldlog.condensers.strategies.hiding import (
    BrowserOutputCondenser,
    NoOpCondenser,
    ObservationMaskingCondenser,
    RecentEventsCondenser,
)
from foldlog.condensers.strategies.model_summaries import (
    LLMSummarizingCondenser,
    StructuredSummaryCondenser,
)
from foldlog.condensers.strategies.pipeline import PipelineCondenser


class _ModelParameters(CondenserConfig):
    llm_config: Model | None = Field(
        default=None,
        validate_default=True,
        validation_alias=AliasChoices("llm_config", "llm"),
        description=(
            "the model: a table, or the name of a table [llm.NAME]; by default [llm], or the"
            " agent's model"
        ),
    )

    @field_validator("llm_config", mode="before")
    @classmethod
    def _or_the_default(cls, value: Any, info: ValidationInfo) -> Any:
        models = info.context.tables if isinstance(info.context, Models) else ()
        return "llm" if value is None and "llm" in models else value

    @classmethod
    def of(cls, condenser: Any, **values: Any) -> Self:
        llm = condenser.llm
        if not isinstance(llm, LLM | None):
            raise InvalidCondenser(
                f"the model {llm.model!r} of the condenser {condenser.type!r} has no configuration;"
                " use foldlog.LLM"
            )
        return super().of(
            condenser, llm_config=llm.config if isinstance(llm, LLM) else None, **values
        )

    def arguments(self, path: str) -> JsonObject:
        arguments = super().arguments(path)
        del arguments["llm_config"]
        try:
            return {**arguments, "llm": None if self.llm_config is None else LLM(self.llm_config)}
        except InvalidCondenser as error:
            raise InvalidCondenser(f"{path}.llm_config.{error}") from error


class _OfParts(CondenserConfig):
    condensers: tuple[CondenserConfig, ...] = Field(
        description="a table for each condenser, with its type"
    )

    @classmethod
    def of(cls, condenser: Any, **values: Any) -> Self:
        return super().of(
            condenser, condensers=tuple(part.config for part in condenser.condensers), **values
        )

    def arguments(self, path: str) -> JsonObject:
        parts = enumerate(self.condensers)
        return {
            "condensers": [
                condenser_from_config(part, path=f"{path}.condensers[{index}]")
                for index, part in parts
            ]
        }


def _field(
    default: Any, ge: float | None = None, in_tables: float | None = None, **about: Any
) -> Any:
    return Field(default, ge=ge if in_tables is None else in_tables, **about)


def _refuse_bool(value: Any) -> Any:
    # Pydantic would take true for the number 1.
    if isinstance(value, bool):
        raise ValueError(f"should be a number, not {value}")  # noqa: TRY004  pydantic wants it
    return value


def _register(
    condenser_type: type[Condenser], *aliases: str, base: type[CondenserConfig] = CondenserConfig
) -> Any:
    """Return a configuration class with a field for each ``setting`` of the strategy."""
    strategy: Any = condenser_type  # Some strategies are not dataclasses.
    hints = typing.get_type_hints(strategy)
    if dataclasses.is_dataclass(strategy):
        settings = [setting for setting in dataclasses.fields(strategy) if setting.metadata]
    else:
        settings = []
    fields: Any = {"type": (Literal[(strategy.type, *aliases)], strategy.type)}
    for setting in settings:
        hint = hints[setting.name]
        if setting.metadata.keys() & BOUNDS.keys():
            hint = Annotated[hint, BeforeValidator(_refuse_bool)]
        fields[setting.name] = (hint, _field(setting.default, **setting.metadata))
    config_type = create_model(
        f"{strategy.__name__}Config",
        __base__=base,
        __doc__=(inspect.getdoc(strategy) or "").partition("\n\n")[0],
        **fields,
    )
    config_type.aliases = aliases
    register_config(config_type, condenser_type)
    return config_type


NoOpCondenserConfig = _register(NoOpCondenser, "no_op", "NoOpCondenser")
ObservationMaskingCondenserConfig = _register(ObservationMaskingCondenser)
BrowserOutputCondenserConfig = _register(BrowserOutputCondenser, "browser_output_masking")
RecentEventsCondenserConfig = _register(RecentEventsCondenser, "recent")
ClearToolUsesCondenserConfig = _register(ClearToolUsesCondenser)
ClearThinkingCondenserConfig = _register(ClearThinkingCondenser)
AmortizedForgettingCondenserConfig = _register(AmortizedForgettingCondenser, "amortized")
ConversationWindowCondenserConfig = _register(ConversationWindowCondenser)
DigestCondenserConfig = _register(DigestCondenser)
LLMSummarizingCondenserConfig = _register(
    LLMSummarizingCondenser, "llm_summarizing", "LLMSummarizingCondenser", base=_ModelParameters
)
StructuredSummaryCondenserConfig = _register(
    StructuredSummaryCondenser, "structured", base=_ModelParameters
)
LLMAttentionCondenserConfig = _register(LLMAttentionCondenser, base=_ModelParameters)
PipelineCondenserConfig = _register(PipelineCondenser, "PipelineCondenser", base=_OfParts)
