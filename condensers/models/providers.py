"""What a model's provider accepts, found by the model's name, so that litellm is not imported for it: the form of
messages, and marks in a prompt where only the marked part is cached. Other providers cache by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from projections.messages import Dialect

_WANT_MARKS = ("claude", "anthropic")
"""Parts of the names of models whose providers want marks."""

_MARK = {"cache_control": {"type": "ephemeral"}}
_SYSTEM = ("system", "developer")


def needs_marks(model: str) -> bool:
    """Return whether the provider of a model, by its litellm name, caches only what is marked."""
    return any(part in model.lower() for part in _WANT_MARKS)


def with_cache_marks(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with two marks: on the last system message and on the last message with a text.

    Marks that the messages have already are left out: providers refuse a prompt with more than four.

    Everything before a mark is cached: the present prompt, with which the next call begins, and the system prompt,
    which stays if a condensation changes the middle.
    """
    marked = [_unmarked(message) for message in messages]
    systems = [place for place, message in enumerate(marked) if message.get("role") in _SYSTEM]
    written = [place for place, message in enumerate(marked) if _parts(message)]
    for place in {*systems[-1:], *written[-1:]}:
        parts = _parts(marked[place])
        if parts:
            marked[place]["content"] = [*parts[:-1], {**parts[-1], **_MARK}]
    return marked


def _unmarked(message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if isinstance(content, list | tuple) and any("cache_control" in part for part in content):
        content = [{key: value for key, value in part.items() if key != "cache_control"} for part in content]
        return {**message, "content": content}
    return dict(message)


def _parts(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the content as parts; an empty list if no part can carry a mark."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    parts = [dict(part) for part in content] if isinstance(content, list | tuple) else []
    return parts if parts and parts[-1].get("text", True) else []


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
