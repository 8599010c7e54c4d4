"""The configuration of every strategy: its parameters, their ranges and defaults, and its other names."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from condensers.base import Condenser
from condensers.config.registry import CondenserConfig, condenser_from_config, config_types, register_config
from condensers.errors import InvalidCondenser
from condensers.models.agents_model import AGENTS_MODEL, AgentsModel
from condensers.models.client import LLM
from condensers.models.llm_config import Model, Models
from condensers.strategies.amortized import AmortizedForgettingCondenser
from condensers.strategies.browser_output_masking import BrowserOutputCondenser
from condensers.strategies.conversation_window import ConversationWindowCondenser
from condensers.strategies.digest import DigestCondenser
from condensers.strategies.llm_attention import LLMAttentionCondenser
from condensers.strategies.llm_summary import LLMSummarizingCondenser
from condensers.strategies.noop import NoOpCondenser
from condensers.strategies.observation_masking import ObservationMaskingCondenser
from condensers.strategies.pipeline import PipelineCondenser
from condensers.strategies.recent import RecentEventsCondenser
from condensers.strategies.structured_summary import StructuredSummaryCondenser
from condensers.strategies.summarizing import TailRule


class NoOpCondenserConfig(CondenserConfig):
    """Shows everything, forgets nothing."""

    aliases = ("no_op", "NoOpCondenser")
    type: Literal["noop"] = "noop"


class ObservationMaskingCondenserConfig(CondenserConfig):
    """Masks the content of all but the newest observations."""

    type: Literal["observation_masking"] = "observation_masking"
    attention_window: int = Field(default=5, ge=1, description="how many of the last events are shown in full")


class BrowserOutputCondenserConfig(CondenserConfig):
    """Masks the content of all but the newest outputs of a browser. Keeps the address."""

    aliases = ("browser_output",)
    type: Literal["browser_output_masking"] = "browser_output_masking"
    attention_window: int = Field(default=1, ge=1, description="how many of the last browser outputs are shown in full")


class RecentEventsCondenserConfig(CondenserConfig):
    """Shows the first events and the most recent ones. Each step chooses again."""

    aliases = ("recent_events",)
    type: Literal["recent"] = "recent"
    keep_first: int = Field(default=1, ge=0, description="how many events at the head are always shown")
    max_events: int = Field(default=100, ge=1, description="how many events are shown in all")


class AmortizedForgettingCondenserConfig(CondenserConfig):
    """Forgets the middle of a View that has outgrown max_size, down to half of it, without a summary."""

    aliases = ("amortized_forgetting",)
    type: Literal["amortized"] = "amortized"
    max_size: int = Field(default=100, ge=2, description="a View with more events is condensed, to half of this number")
    keep_first: int = Field(default=1, ge=0, description="how many events at the head are never forgotten")


class ConversationWindowCondenserConfig(CondenserConfig):
    """On request only: forgets the older half of what is not essential. Needs no model."""

    type: Literal["conversation_window"] = "conversation_window"


class _Summarizing(CondenserConfig):
    """Parameters of every strategy that puts a summary in the place of the forgotten events."""

    max_size: int | None = Field(
        default=None,
        ge=2,
        description="a View with more events is condensed, to half of this number; by default 100, or, where a token "
        "limit is known, no number: then only tokens count",
    )
    keep_first: int = Field(default=1, ge=0, description="how many events at the head are never forgotten")
    max_event_length: int | None = Field(
        default=10_000, description="how many characters of an event the summarizer sees; a negative number: all"
    )
    max_tokens: int | None = Field(
        default=None,
        ge=1,
        description="a limit for the agent's prompt, besides its model's own; see Limits of tokens",
    )
    token_margin_ratio: float = Field(
        default=0.1, ge=0, lt=1, description="the part of the agent's model's input that stays free"
    )
    tail: TailRule = Field(
        default="half",
        description="how much of the tail stays where the prompt has too many tokens: half brings it to half of the "
        "limit, fits to the limit",
    )
    minimum_progress: float = Field(
        default=0.1, gt=0, lt=1, description="the smallest part of a View that a condensation may forget"
    )
    hard_context_reset_max_retries: int = Field(default=5, ge=1, description="how many times the hard reset is tried")
    hard_context_reset_context_scaling: float = Field(
        default=0.8,
        gt=0,
        lt=1,
        description="each further try of the hard reset shows this part of the event's text that the try before "
        "it showed",
    )


class DigestCondenserConfig(_Summarizing):
    """Summarizes without a model, from the events themselves: requests, decisions, files, commands, errors, tasks."""

    type: Literal["digest"] = "digest"
    max_length: int = Field(default=6_000, ge=500, description="how many characters a digest has at most")


class _Asking(CondenserConfig):
    """Parameters of every strategy that asks a model."""

    llm_config: Model | None = Field(
        default=None,
        validate_default=True,
        description="the model: a table, or the name of a table [llm.NAME]; else [llm]; else the agent's model",
    )

    @field_validator("llm_config", mode="before")
    @classmethod
    def _or_the_default(cls, value: Any, info: ValidationInfo) -> Any:
        return info.context.default() if value is None and isinstance(info.context, Models) else value

    @classmethod
    def value_of(cls, condenser: Condenser, name: str) -> Any:
        if name != "llm_config":
            return super().value_of(condenser, name)
        llm = super().value_of(condenser, "llm")
        if isinstance(llm, AgentsModel):
            return None
        if not isinstance(llm, LLM):
            raise InvalidCondenser(
                f"the model {llm.model!r} of the condenser {condenser.type!r} has no configuration; use condensers.LLM"
            )
        return llm.config

    def arguments(self, path: str) -> dict[str, Any]:
        arguments = super().arguments(path)
        del arguments["llm_config"]
        if self.llm_config is None:
            return {**arguments, "llm": AGENTS_MODEL}
        try:
            return {**arguments, "llm": LLM(self.llm_config).without_prompt_caching()}
        except InvalidCondenser as error:
            raise InvalidCondenser(f"{path}.llm_config.{error}") from error


class LLMSummarizingCondenserConfig(_Asking, _Summarizing):
    """A model summarizes the forgotten events, building on its previous summary."""

    aliases = ("llm_summarizing", "LLMSummarizingCondenser")
    type: Literal["llm"] = "llm"


class StructuredSummaryCondenserConfig(_Asking, _Summarizing):
    """A model summarizes the forgotten events in eighteen fields, by a tool call that it must make."""

    aliases = ("structured_summary",)
    type: Literal["structured"] = "structured"


class LLMAttentionCondenserConfig(_Asking):
    """A model chooses which events stay. The others are forgotten without a summary."""

    type: Literal["llm_attention"] = "llm_attention"
    max_size: int = Field(default=100, ge=2, description="a View with more events is condensed, to half of this number")
    keep_first: int = Field(default=1, ge=0, description="how many events at the head are never forgotten")
    max_event_length: int | None = Field(
        default=10_000, description="how many characters of an event the model sees; a negative number: all"
    )


class CondenserPipelineConfig(CondenserConfig):
    """Runs condensers in order, each on the View of the one before it, up to the first that condenses."""

    aliases = ("PipelineCondenser",)
    type: Literal["pipeline"] = "pipeline"
    condensers: tuple[CondenserConfig, ...] = Field(description="the condensers, as tables with a type each")

    @classmethod
    def value_of(cls, condenser: Condenser, name: str) -> Any:
        return tuple(part.config for part in super().value_of(condenser, name))

    def arguments(self, path: str) -> dict[str, Any]:
        parts = enumerate(self.condensers)
        return {"condensers": [condenser_from_config(part, path=f"{path}.condensers[{at}]") for at, part in parts]}


for _config_type, _condenser_type in (
    (NoOpCondenserConfig, NoOpCondenser),
    (ObservationMaskingCondenserConfig, ObservationMaskingCondenser),
    (BrowserOutputCondenserConfig, BrowserOutputCondenser),
    (RecentEventsCondenserConfig, RecentEventsCondenser),
    (AmortizedForgettingCondenserConfig, AmortizedForgettingCondenser),
    (ConversationWindowCondenserConfig, ConversationWindowCondenser),
    (DigestCondenserConfig, DigestCondenser),
    (LLMSummarizingCondenserConfig, LLMSummarizingCondenser),
    (StructuredSummaryCondenserConfig, StructuredSummaryCondenser),
    (LLMAttentionCondenserConfig, LLMAttentionCondenser),
    (CondenserPipelineConfig, PipelineCondenser),
):
    register_config(_config_type, _condenser_type)


class Parameter(NamedTuple):
    """One parameter of a strategy, for people: its type is text. One that is required has no default."""

    name: str
    type: str
    required: bool
    default: Any
    description: str


class Strategy(NamedTuple):
    """One strategy, for people."""

    type: str
    aliases: tuple[str, ...]
    description: str
    parameters: tuple[Parameter, ...]


def list_strategies() -> list[Strategy]:
    """Return every strategy that a configuration can name, installed packages' own among them, by the name of its
    type.
    """
    return [
        Strategy(
            config_type.model_fields["type"].default,
            config_type.aliases,
            (config_type.__doc__ or "").strip(),
            tuple(_parameter(name, field) for name, field in config_type.model_fields.items() if name != "type"),
        )
        for config_type in config_types()
    ]


def _parameter(name: str, field: FieldInfo) -> Parameter:
    kind = {"llm_config": "table or name", "condensers": "list of tables"}.get(name) or _type_name(field.annotation)
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    return Parameter(name, kind, field.is_required(), default, field.description or "")


def _type_name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")
