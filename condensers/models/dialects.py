"""Find the form of messages that a model's server accepts, from the model's name: litellm is not imported for it."""

from __future__ import annotations

from projections.messages import Dialect

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
