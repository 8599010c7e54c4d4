"""Forgetting, as command handlers: a condenser reads a View and decides, a handler appends what it decided.

    from foldlog.condensers import CondenseHandler, Condensation, load_condenser

    handler = CondenseHandler(store, views, load_condenser("config.toml"))
    match handler.handle("c1"):
        case Condensation(action=action): ...     # appended; ask again for the new View
        case View() as view: ...                  # go on

    base.py rolling.py selection.py    what a condenser is, when it is due, what it may forget
    handler.py                         one step over a stored conversation, also under contention
    unseen.py                          what no model was shown yet stays
    reports.py                         what a step reports
    strategies/ models/ config/ prompts/    the strategies; the model; configuration; texts of prompts
    errors.py tables.py                what can go wrong; tables of configurations
    compat.py                          names and habits of OpenHands' condensers, for code that comes from there

Importing this is cheap: what a name needs is imported when the name is first used, and litellm at the first model call.
"""

from __future__ import annotations

import importlib
import typing

_NAMES = {
    "base": "AgentModel Condensation Condenser Reason Reply ReportingCondenser Requirement Step Summarizer ToolCall",
    "compat": "condensed_history",
    "config.registry": "CondenserConfig condenser_from_config list_strategies register_config",
    "config.toml": "load_condenser load_condenser_config",
    "errors": "CondenserError InvalidCondenser ModelCallFailed NoCondensationAvailable TokensUnknown",
    "handler": "CondenseHandler",
    "models.agents_model": "request_condensation_tool",
    "models.client": "LLM",
    "models.estimate": "ESTIMATE event_tokens",
    "models.failures": "is_context_window_error",
    "models.llm_config": "LLMConfig",
    "reports": "CONDENSER_METADATA_KEY Report Usage model_of on_a_model reports_of",
    "rolling": "RollingCondenser",
    "strategies.clearing": "ClearThinkingCondenser ClearToolUsesCondenser",
    "strategies.digest": "DigestCondenser default_condenser",
    "strategies.forgetting": "AmortizedForgettingCondenser ConversationWindowCondenser",
    "strategies.llm_attention": "LLMAttentionCondenser",
    "strategies.model_summaries": "LLMSummarizingCondenser StructuredSummaryCondenser",
    "strategies.pipeline": "PipelineCondenser",
    "strategies.showing": "BrowserOutputCondenser NoOpCondenser ObservationMaskingCondenser RecentEventsCondenser "
    "is_masked",
}
"""The public names of each module, which are imported when they are first used; ``__init__.pyi`` types them."""

_HOMES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> typing.Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
