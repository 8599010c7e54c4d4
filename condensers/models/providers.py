"""What a model's provider accepts, found by the model's name, so that litellm is not imported for it."""

from __future__ import annotations

from foldlog.projections import Dialect

CACHE_MARKS = (
    {"location": "message", "role": "system"},
    {"location": "message", "index": -1},
)
"""The messages up to which a provider caches a prompt that is marked: the system prompt, which stays if a condensation
changes the middle, and the last message, with which the next call begins. litellm sets the marks.
"""


def needs_marks(model: str) -> bool:
    """Return whether the provider of a model, by its litellm name, caches only what is marked."""
    return any(maker in model.lower() for maker in ("claude", "anthropic"))


_TRANSLATED = frozenset(
    (
        *("anthropic", "azure_ai", "bedrock", "databricks", "gemini", "litellm_proxy", "vertex_ai", "vertex_ai_beta"),
        *("bedrock_converse", "sagemaker", "sagemaker_chat", "vertex_ai-anthropic_models"),
    )
)
"""Providers for which litellm translates messages with their thinking blocks; its proxy does the same."""


def dialect_of_model(model: str) -> Dialect:
    """Return ``litellm`` for models whose messages litellm translates, and ``openai`` for all others.

    litellm passes messages for other models on unchanged, and their servers refuse fields that OpenAI's chat
    completions do not have. ``openai`` works for every model, but does not send the model's thinking back to it.
    """
    provider, slash, _ = model.partition("/")
    if slash:
        return "litellm" if provider in _TRANSLATED else "openai"
    return "litellm" if any(maker in model for maker in ("claude", "gemini")) else "openai"
