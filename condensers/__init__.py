"""Forgetting, as command handlers: a condenser reads a View and decides, a handler appends what it decided.

    from condensers import CondenseHandler, Condensation, load_condenser

    handler = CondenseHandler(store, views, load_condenser("config.toml"))
    match handler.handle("c1"):
        case Condensation(action=action): ...     # appended; ask again for the new View
        case View() as view: ...                  # go on

    base.py rolling.py selection.py    what a condenser is, when it is due, what it may forget
    handler.py plans.py declines.py    one step over a stored conversation, also under contention
    reports.py metadata.py             what a step reports, and the reference's interface to it
    replays.py replay_state.py fork_replay.py    another condenser over a recorded history, also as a fork
    strategies/ models/ config/ prompts/    one file a strategy; the model; configuration; texts of prompts
    errors.py ported.py                what can go wrong; what classes written for OpenHands need

Importing this is cheap: what a name needs is imported when the name is first used, and litellm at the first model call.
"""

from __future__ import annotations

import importlib
import typing

if typing.TYPE_CHECKING:
    from condensers.base import (
        AgentModel,
        Condensation,
        Condenser,
        CondenserBase,
        Reason,
        Reply,
        Requirement,
        Step,
        Summarizer,
        ToolCall,
    )
    from condensers.config.parameters import condenser_from_config, list_strategies
    from condensers.config.registry import CONDENSER_REGISTRY, CondenserConfig, from_config, register_config
    from condensers.config.toml import load_condenser, load_condenser_config
    from condensers.errors import (
        CondenserError,
        InvalidCondenser,
        ModelCallFailed,
        NoCondensationAvailable,
        TokensUnknown,
    )
    from condensers.handler import CondenseHandler
    from condensers.metadata import get_condensation_metadata
    from condensers.models.client import LLM
    from condensers.models.event_tokens import event_tokens
    from condensers.models.llm_config import LLMConfig
    from condensers.models.requests import condensation_request, is_context_window_error, request_condensation_tool
    from condensers.replays import Replay, replay
    from condensers.reports import CONDENSER_METADATA_KEY
    from condensers.rolling import PipelinableCondenserBase, RollingCondenser
    from condensers.strategies.amortized import AmortizedForgettingCondenser
    from condensers.strategies.browser_output_masking import BrowserOutputCondenser
    from condensers.strategies.conversation_window import ConversationWindowCondenser
    from condensers.strategies.default import default_condenser
    from condensers.strategies.digest import DigestCondenser
    from condensers.strategies.llm_attention import LLMAttentionCondenser
    from condensers.strategies.llm_summary import LLMSummarizingCondenser
    from condensers.strategies.noop import NoOpCondenser
    from condensers.strategies.observation_masking import ObservationMaskingCondenser
    from condensers.strategies.pipeline import PipelineCondenser
    from condensers.strategies.recent import RecentEventsCondenser
    from condensers.strategies.structured_summary import StructuredSummaryCondenser

__foldlog__ = "0.1.0"

__all__ = [
    "CONDENSER_METADATA_KEY",
    "CONDENSER_REGISTRY",
    "LLM",
    "AgentModel",
    "AmortizedForgettingCondenser",
    "BrowserOutputCondenser",
    "Condensation",
    "CondenseHandler",
    "Condenser",
    "CondenserBase",
    "CondenserConfig",
    "CondenserError",
    "ConversationWindowCondenser",
    "DigestCondenser",
    "InvalidCondenser",
    "LLMAttentionCondenser",
    "LLMConfig",
    "LLMSummarizingCondenser",
    "ModelCallFailed",
    "NoCondensationAvailable",
    "NoOpCondenser",
    "ObservationMaskingCondenser",
    "PipelinableCondenserBase",
    "PipelineCondenser",
    "Reason",
    "RecentEventsCondenser",
    "Replay",
    "Reply",
    "Requirement",
    "RollingCondenser",
    "Step",
    "StructuredSummaryCondenser",
    "Summarizer",
    "TokensUnknown",
    "ToolCall",
    "condensation_request",
    "condenser_from_config",
    "default_condenser",
    "event_tokens",
    "from_config",
    "get_condensation_metadata",
    "is_context_window_error",
    "list_strategies",
    "load_condenser",
    "load_condenser_config",
    "register_config",
    "replay",
    "request_condensation_tool",
]

_HOMES = {
    "base": (
        *("AgentModel", "Condensation", "Condenser", "CondenserBase", "Reason", "Reply"),
        *("Requirement", "Step", "Summarizer", "ToolCall"),
    ),
    "config.parameters": ("condenser_from_config", "list_strategies"),
    "config.registry": ("CONDENSER_REGISTRY", "CondenserConfig", "from_config", "register_config"),
    "config.toml": ("load_condenser", "load_condenser_config"),
    "errors": ("CondenserError", "InvalidCondenser", "ModelCallFailed", "NoCondensationAvailable", "TokensUnknown"),
    "handler": ("CondenseHandler",),
    "metadata": ("get_condensation_metadata",),
    "models.client": ("LLM",),
    "models.event_tokens": ("event_tokens",),
    "models.llm_config": ("LLMConfig",),
    "models.requests": ("condensation_request", "is_context_window_error", "request_condensation_tool"),
    "replays": ("Replay", "replay"),
    "reports": ("CONDENSER_METADATA_KEY",),
    "rolling": ("PipelinableCondenserBase", "RollingCondenser"),
    "strategies.amortized": ("AmortizedForgettingCondenser",),
    "strategies.browser_output_masking": ("BrowserOutputCondenser",),
    "strategies.conversation_window": ("ConversationWindowCondenser",),
    "strategies.default": ("default_condenser",),
    "strategies.digest": ("DigestCondenser",),
    "strategies.llm_attention": ("LLMAttentionCondenser",),
    "strategies.llm_summary": ("LLMSummarizingCondenser",),
    "strategies.noop": ("NoOpCondenser",),
    "strategies.observation_masking": ("ObservationMaskingCondenser",),
    "strategies.pipeline": ("PipelineCondenser",),
    "strategies.recent": ("RecentEventsCondenser",),
    "strategies.structured_summary": ("StructuredSummaryCondenser",),
}


if not typing.TYPE_CHECKING:  # a type checker takes this function for a promise that every name exists

    def __getattr__(name: str) -> typing.Any:
        if name not in __all__:
            raise AttributeError(f"module 'condensers' has no attribute {name!r}")
        home = next(module for module, names in _HOMES.items() if name in names)
        value = getattr(importlib.import_module(f"condensers.{home}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
