"""Forgetting, as command handlers: a condenser reads a View and decides, a handler appends what it decided.

    from condensers import CondenseHandler, Condensation, load_condenser

    handler = CondenseHandler(store, views, load_condenser("config.toml"))
    match handler.handle("c1"):
        case Condensation(action=action): ...     # appended; ask again for the new View
        case View() as view: ...                  # go on

    base.py rolling.py selection.py    what a condenser is, when it is due, what it may forget
    handler.py plans.py declines.py    one step over a stored conversation, also under contention
    reports.py                         what a step reports
    replays.py fork_replay.py          another condenser over a recorded history, also as a fork
    strategies/ models/ config/ prompts/    one file a strategy; the model; configuration; texts of prompts
    errors.py tables.py                what can go wrong; tables of configurations
    compat.py                          names and habits of OpenHands' condensers, for code that comes from there

Importing this is cheap: what a name needs is imported when the name is first used, and litellm at the first model call.
"""

from __future__ import annotations

import importlib
import typing

if typing.TYPE_CHECKING:
    from condensers.base import AgentModel as AgentModel
    from condensers.base import Condensation as Condensation
    from condensers.base import Condenser as Condenser
    from condensers.base import Reason as Reason
    from condensers.base import Reply as Reply
    from condensers.base import ReportingCondenser as ReportingCondenser
    from condensers.base import Requirement as Requirement
    from condensers.base import Step as Step
    from condensers.base import Summarizer as Summarizer
    from condensers.base import ToolCall as ToolCall
    from condensers.compat import condensed_history as condensed_history
    from condensers.config.parameters import Strategy as Strategy
    from condensers.config.parameters import list_strategies as list_strategies
    from condensers.config.registry import CondenserConfig as CondenserConfig
    from condensers.config.registry import condenser_from_config as condenser_from_config
    from condensers.config.registry import register_config as register_config
    from condensers.config.toml import load_condenser as load_condenser
    from condensers.config.toml import load_condenser_config as load_condenser_config
    from condensers.errors import CondenserError as CondenserError
    from condensers.errors import InvalidCondenser as InvalidCondenser
    from condensers.errors import ModelCallFailed as ModelCallFailed
    from condensers.errors import NoCondensationAvailable as NoCondensationAvailable
    from condensers.errors import TokensUnknown as TokensUnknown
    from condensers.fork_replay import ForkReplay as ForkReplay
    from condensers.fork_replay import replay_as_fork as replay_as_fork
    from condensers.handler import CondenseHandler as CondenseHandler
    from condensers.models.client import LLM as LLM
    from condensers.models.counted_tokens import CountedTokens as CountedTokens
    from condensers.models.counted_tokens import CountsTokens as CountsTokens
    from condensers.models.estimate import ESTIMATE as ESTIMATE
    from condensers.models.estimate import event_tokens as event_tokens
    from condensers.models.estimate import view_tokens as view_tokens
    from condensers.models.failures import is_context_window_error as is_context_window_error
    from condensers.models.llm_config import LLMConfig as LLMConfig
    from condensers.models.requests import condensation_request as condensation_request
    from condensers.models.requests import request_condensation_tool as request_condensation_tool
    from condensers.replays import Replay as Replay
    from condensers.replays import Replaying as Replaying
    from condensers.replays import replay as replay
    from condensers.reports import CONDENSER_METADATA_KEY as CONDENSER_METADATA_KEY
    from condensers.reports import Report as Report
    from condensers.reports import Usage as Usage
    from condensers.reports import model_of as model_of
    from condensers.reports import on_a_model as on_a_model
    from condensers.reports import reports_of as reports_of
    from condensers.rolling import RollingCondenser as RollingCondenser
    from condensers.strategies.amortized import AmortizedForgettingCondenser as AmortizedForgettingCondenser
    from condensers.strategies.browser_output_masking import BrowserOutputCondenser as BrowserOutputCondenser
    from condensers.strategies.conversation_window import ConversationWindowCondenser as ConversationWindowCondenser
    from condensers.strategies.digest import DigestCondenser as DigestCondenser
    from condensers.strategies.digest import default_condenser as default_condenser
    from condensers.strategies.llm_attention import LLMAttentionCondenser as LLMAttentionCondenser
    from condensers.strategies.llm_summary import LLMSummarizingCondenser as LLMSummarizingCondenser
    from condensers.strategies.masking import is_masked as is_masked
    from condensers.strategies.noop import NoOpCondenser as NoOpCondenser
    from condensers.strategies.observation_masking import ObservationMaskingCondenser as ObservationMaskingCondenser
    from condensers.strategies.pipeline import PipelineCondenser as PipelineCondenser
    from condensers.strategies.recent import RecentEventsCondenser as RecentEventsCondenser
    from condensers.strategies.structured_summary import StructuredSummaryCondenser as StructuredSummaryCondenser

__foldlog__ = "0.1.0"

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
    "fork_replay": ("ForkReplay", "replay_as_fork"),
    "handler": ("CondenseHandler",),
    "models.client": ("LLM",),
    "models.counted_tokens": ("CountedTokens", "CountsTokens"),
    "models.estimate": ("ESTIMATE", "event_tokens", "view_tokens"),
    "models.failures": ("is_context_window_error",),
    "models.llm_config": ("LLMConfig",),
    "models.requests": ("condensation_request", "request_condensation_tool"),
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
            raise AttributeError(f"module 'condensers' has no attribute {name!r}")
        value = getattr(importlib.import_module(f"condensers.{_HOMES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOMES})
