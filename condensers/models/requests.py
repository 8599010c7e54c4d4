"""Request a condensation: by a tool that the agent's model calls, or by the runtime after an error.

In both cases the runtime appends a ``CondensationRequest`` and steps again. The condenser of the next step fulfils it.
"""

from __future__ import annotations

from typing import Any

from condensers.errors import ModelCallFailed
from eventstore import CondensationRequest

REQUEST_CONDENSATION_TOOL = "request_condensation"

_TELLTALES = (
    "contextwindowexceeded",
    "context_length_exceeded",
    "context length exceeded",
    "context window exceed",
    "exceeds the context window",
    "exceed context limit",
    "exceeds the available context size",
    "maximum context length",
    "maximum number of tokens",
    "prompt is too long",
    "input is too long",
    "input length and `max_tokens` exceed",
    "reduce the length of the messages",
    "too many tokens in the prompt",
    "prompt token count",
    "exceeds maximum allowed token",
    "request too large",
    "request_too_large",
    "entity too large",
)
"""Words that servers use if a prompt does not fit, in lower case."""

_TOO_LARGE = 413
"""The HTTP status of a request that its server, or a proxy before it, finds too large."""


def request_condensation_tool() -> dict[str, Any]:
    """Return the tool to offer to a model, in OpenAI's shape. It takes no arguments; invented ones are ignored."""
    return {
        "type": "function",
        "function": {
            "name": REQUEST_CONDENSATION_TOOL,
            "description": (
                "Have the older part of this conversation summarized, to free room in the context. Call it when much "
                "of what came before no longer matters for what is left to do, or when you lose track of it. "
                "The work goes on right after, from the summary and the latest steps."
            ),
            "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
        },
    }


def condensation_request(reason: str) -> CondensationRequest:
    """Return the event to append when a model calls the tool, or when ``is_context_window_error``.

    It takes the place of the tool call: the call itself is not recorded, so that no call stays without an observation.
    """
    return CondensationRequest(reason=reason)


def is_context_window_error(error: BaseException) -> bool:
    """Return whether a model call failed because its prompt did not fit, so that a condensation may help.

    It knows this package's ``ModelCallFailed``, the errors of litellm and OpenAI by name, and the words that servers
    use. It returns False for other rejected requests: condensing would forget events and not help.
    """
    if isinstance(error, ModelCallFailed):
        return error.failure == "context_window"
    if any(kind.__name__ == "ContextWindowExceededError" for kind in type(error).__mro__):
        return True
    if getattr(error, "code", None) == "context_length_exceeded" or getattr(error, "status_code", None) == _TOO_LARGE:
        return True
    text = str(error).lower()
    return any(telltale in text for telltale in _TELLTALES)
