"""Recognize formats whose messages look like chat messages until the first call of a tool."""

from __future__ import annotations

from typing import Any

from foldlog._formats import openai_responses
from foldlog._formats.format import Lookalike

_ANTHROPIC_BLOCKS = frozenset(
    (
        "tool_use",
        "tool_result",
        "thinking",
        "redacted_thinking",
        "server_tool_use",
        "web_search_tool_result",
        "document",
    )
)
_GOOSE_BLOCKS = frozenset(
    (
        *("toolRequest", "toolResponse", "toolConfirmationRequest", "frontendToolRequest", "redactedThinking"),
        *("contextLengthExceeded", "summarizationRequested", "conversationCompacted", "systemNotification"),
    )
)


def _blocks(message: Any) -> set[str]:
    content = message.get("content") if type(message) is dict else None
    blocks = content if type(content) is list else ()
    types = (block.get("type") for block in blocks if type(block) is dict)
    return {type_ for type_ in types if type(type_) is str}


def _is_said(message: Any) -> bool:
    return type(message) is dict and type(message.get("role")) is str


def _is_anthropic(message: Any) -> bool:
    return _is_said(message) and not _is_openai(message) and not _blocks(message).isdisjoint(_ANTHROPIC_BLOCKS)


def _is_openai(message: dict[str, Any]) -> bool:
    return message["role"] == "tool" or type(message.get("tool_calls")) is list


def _is_goose(message: Any) -> bool:
    """Return whether a record is a message with Goose's blocks or time, or the line before Goose's messages."""
    if type(message) is not dict:
        return False
    if not _is_said(message):
        return type(message.get("working_dir")) is str and "message_count" in message
    return not _blocks(message).isdisjoint(_GOOSE_BLOCKS) or (
        type(message.get("created")) is int and type(message.get("content")) is list
    )


LOOKALIKES = (
    Lookalike("Goose", _is_goose),
    Lookalike("Anthropic's Messages API", _is_anthropic, "; convert it to OpenAI's chat messages"),
    Lookalike(
        "items of OpenAI's Responses API",
        openai_responses.matches,
        " as a chat; name the format: --format openai-responses, or codex if Codex wrote it",
        "openai-responses",
    ),
)


def lookalike_of(message: dict[str, Any]) -> str | None:
    """Return the name of the other format that a message of a chat is in, or None."""
    if type(message.get("content")) is not list:
        return None
    return next((lookalike.name for lookalike in LOOKALIKES if lookalike.matches(message)), None)
