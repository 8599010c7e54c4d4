"""Request a condensation: by a tool that the agent's model calls, or by the runtime after an error.

In both cases the runtime appends a ``CondensationRequest`` and steps again. The condenser of the next step fulfils it.
"""

from __future__ import annotations

from typing import Any

from foldlog.eventstore import CondensationRequest

REQUEST_CONDENSATION_TOOL = "request_condensation"


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
