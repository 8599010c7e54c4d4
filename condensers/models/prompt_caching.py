"""Mark prompts for providers that cache only the marked part of a prompt. Other providers cache by themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
