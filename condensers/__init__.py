"""Forgetting, as command handlers: a condenser reads a View and decides, a handler appends what it decided.

    from foldlog.condensers import CondenseHandler, Condensation, load_condenser

    handler = CondenseHandler(store, views, load_condenser("config.toml"))
    match handler.handle("c1"):
        case Condensation(action=action): ...     # appended; ask again for the new View
        case View() as view: ...                  # go on

    base.py rolling.py selection.py    what a condenser is, when it is due, what it may forget
    handler.py plans.py                one step over a stored conversation, also under contention
    unseen.py                          what no model was shown yet stays
    reports.py                         what a step reports
    replays.py                         another condenser over a recorded history
    strategies/ models/ config/ prompts/    one file a strategy; the model; configuration; texts of prompts
    errors.py tables.py                what can go wrong; tables of configurations
    compat.py                          names and habits of OpenHands' condensers, for code that comes from there

Importing this is cheap: what a name needs is imported when the name is first used, and litellm at the first model call.
"""

from __future__ import annotations

import importlib
import typing

if typing.TYPE_CHECKING:
    from foldlog.condensers.base import AgentModel as AgentModel
    from foldlog.condensers.base import Condensation as Condensation
    from foldlog.condensers.base import Condenser as Condenser
    from foldlog.condensers.base import Reason as Reason
    from foldlog.condensers.base import Reply as Reply
    from foldlog.condensers.base import ReportingCondenser as ReportingCondenser
    from foldlog.condensers.base import Requirement as Requirement
    from foldlog.condensers.base import Step as Step
    from foldlog.condensers.base import Summarizer as Summarizer
    from foldlog.condensers.base import ToolCall as ToolCall
    from foldlog.condensers.compat import condensed_history as condensed_history
    from foldlog.condensers.config.parameters import Strategy as Strategy
    from foldlog.condensers.config.parameters import list_strategies as list_strategies
    from foldlog.condensers.config.registry import CondenserConfig as CondenserConfig
    from foldlog.condensers.config.registry import condenser_from_config as condenser_from_config
    from foldlog.condensers.config.registry import register_config as register_config
    from foldlog.condensers.config.toml import load_condenser as load_condenser
    from foldlog.condensers.config.toml import load_condenser_config as load_condenser_config
    from foldlog.condensers.errors import CondenserError as CondenserError
    from foldlog.condensers.errors import InvalidCondenser as InvalidCondenser
    from foldlog.condensers.errors import ModelCallFailed as ModelCallFailed
    from foldlog.condensers.errors import NoCondensationAvailable as NoCondensationAvailable
    from foldlog.condensers.errors import TokensUnknown as TokensUnknown
    from foldlog.condensers.handler import CondenseHandler as CondenseHandler
    from foldlog.condensers.models.agents_model import request_condensation_tool as request_condensation_tool
    from foldlog.condensers.models.client import LLM as LLM
    from foldlog.condensers.models.estimate import ESTIMATE as ESTIMATE
    from foldlog.condensers.models.estimate import CountedTokens as CountedTokens
    from foldlog.condensers.models.estimate import CountsTokens as CountsTokens
    from foldlog.condensers.models.estimate import event_tokens as event_tokens
    from foldlog.condensers.models.estimate import view_tokens as view_tokens
    from foldlog.condensers.models.failures import is_context_window_error as is_context_window_error
    from foldlog.condensers.models.llm_config import LLMConfig as LLMConfig
    from foldlog.condensers.replays import Replay as Replay
    from foldlog.condensers.replays import Replaying as Replaying
    from foldlog.condensers.replays import replay as replay
    from foldlog.condensers.reports import CONDENSER_METADATA_KEY as CONDENSER_METADATA_KEY
    from foldlog.condensers.reports import Report as Report
    from foldlog.condensers.reports import Usage as Usage
    from foldlog.condensers.reports import model_of as model_of
    from foldlog.condensers.reports import on_a_model as on_a_model
    from foldlog.condensers.reports import reports_of as reports_of
    from foldlog.condensers.rolling import RollingCondenser as RollingCondenser
    from foldlog.condensers.strategies.amortized import AmortizedForgettingCondenser as AmortizedForgettingCondenser
    from foldlog.condensers.strategies.browser_output_masking import BrowserOutputCondenser as BrowserOutputCondenser
    from foldlog.condensers.strategies.conversation_window import (
        ConversationWindowCondenser as ConversationWindowCondenser,
    )
    from foldlog.condensers.strategies.digest import DigestCondenser as DigestCondenser
    from foldlog.condensers.strategies.digest import default_condenser as default_condenser
    from foldlog.condensers.strategies.llm_attention import LLMAttentionCondenser as LLMAttentionCondenser
    from foldlog.condensers.strategies.llm_summary import LLMSummarizingCondenser as LLMSummarizingCondenser
    from foldlog.condensers.strategies.masking import is_masked as is_masked
    from foldlog.condensers.strategies.noop import NoOpCondenser as NoOpCondenser
    from foldlog.condensers.strategies.observation_masking import (
        ObservationMaskingCondenser as ObservationMaskingCondenser,
    )
    from foldlog.condensers.strategies.pipeline import PipelineCondenser as PipelineCondenser
    from foldlog.condensers.strategies.recent import RecentEventsCondenser as RecentEventsCondenser
    from foldlog.condensers.strategies.structured_summary import (
        StructuredSummaryCondenser as StructuredSummaryCondenser,
    )


_NAMES = {
    "base": (
        *("AgentModel", "Condensation", "Condenser", "Reason", "Reply", "ReportingCondenser"),
        *("Requirement", "Step", "Summarizer", "ToolCall"),
    ),
    "compat": ("condensed_history",),
    "config.parameters": ("Strategy", "list_strategies"),
    "config.registry": ("CondenserConfig", "condenser_from_config", "register_config"),
    "config.toml": ("load_condenser", "load_condenser_config"),
    "errors": ("CondenserError", "InvalidCondenser", "ModelCallFailed", "NoCondensationAvailable", "TokensUnknown"),
    "handler": ("CondenseHandler",),
    "models.client": ("LLM",),
    "models.estimate": ("ESTIMATE", "CountedTokens", "CountsTokens", "event_tokens", "view_tokens"),
    "models.failures": ("is_context_window_error",),
    "models.llm_config": ("LLMConfig",),
    "models.agents_model": ("request_condensation_tool",),
    "replays": ("Replay", "Replaying", "replay"),
    "reports": ("CONDENSER_METADATA_KEY", "Report", "Usage", "model_of", "on_a_model", "reports_of"),
    "rolling": ("RollingCondenser",),
    "strategies.amortized": ("AmortizedForgettingCondenser",),
    "strategies.browser_output_masking": ("BrowserOutputCondenser",),
    "strategies.conversation_window": ("ConversationWindowCondenser",),
    "strategies.digest": ("DigestCondenser", "default_condenser"),
    "strategies.llm_attention": ("LLMAttentionCondenser",),
    "strategies.llm_summary": ("LLMSummarizingCondenser",),
    "strategies.masking": ("is_masked",),
    "strategies.noop": ("NoOpCondenser",),
    "strategies.observation_masking": ("ObservationMaskingCondenser",),
    "strategies.pipeline": ("PipelineCondenser",),
    "strategies.recent": ("RecentEventsCondenser",),
    "strategies.structured_summary": ("StructuredSummaryCondenser",),
}
"""The public names, by the module that they are imported from when they are first used."""

_HOMES = {name: home for home, names in _NAMES.items() for name in names}

if not typing.TYPE_CHECKING:  # a type checker takes the function for a promise that every name exists
    __all__ = sorted(_HOMES)  # "import *" of type checkers goes by "as" above

    def __getattr__(name: str) -> typing.Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'foldlog.condensers' has no attribute {name!r}")
        value = getattr(importlib.import_module(f"foldlog.condensers.{_HOMES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOMES})
