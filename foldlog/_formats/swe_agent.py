"""SWE-agent's history: chat messages that also hold the agent's name, its thought and its action.

A ``.traj`` file holds ``history``, which is what the model was shown, and beside it ``trajectory``, the same steps once
more with the state of the shell, and ``info`` with the usage of the whole run. The records are those of ``history``.

A message becomes the events that ``openai_chat`` makes of it. In addition:

    thought, action       parts of what an assistant says, or what a call of its means
    tool_call_ids         the calls that a tool's message answers: an Observation each, the first with the content
    user                  behind an assistant's message the environment's answer, as it is without tool calls
    is_demo               a demonstration: it is shown, as the model was shown it; its calls are no figures
"""

from __future__ import annotations

from typing import Any

from foldlog._formats.format import Format, Past
from foldlog._formats.openai_chat import EXPECTED, OpenAI, OpenAIChatDecoder, OpenAIChatEncoder, accepts, beside
from foldlog._formats.record import joined_text, member

NAME = "swe-agent"

_KEPT = ("role", "agent", "is_demo")
_TYPES = {"system": "system_prompt", "user": "observation", "assistant": "action", "tool": "observation"}


class _Dialect(OpenAI):
    def __init__(self, past: Past | None = None) -> None:
        self._past = past
        self._last: dict[str, Any] = {}

    @property
    def _before(self) -> dict[str, Any]:
        past, self._past = self._past, None
        if past is not None and not self._last:
            self._last = next((record for record, _ in past.newest_records()), {})
        return self._last

    def given(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        if message["role"] == "user":
            before = self._before
            is_demo = bool(message.get("is_demo"))
            is_answer = before.get("role") == "assistant" and is_demo == bool(before.get("is_demo"))
            return [{**message, "role": "environment"}] if is_demo or is_answer else [message]
        call_ids = message.get("tool_call_ids")
        if type(call_ids) is not list or not all(type(call_id) is str for call_id in call_ids):
            call_ids = []
        results = [{**message, "tool_call_id": call_id, "content": ""} for call_id in call_ids[1:]]
        return [{**message, "tool_call_id": next(iter(call_ids), None)}, *results]

    def is_copy(self, message: dict[str, Any]) -> bool:
        return bool(message.get("is_demo"))

    def written(self, message: dict[str, Any]) -> dict[str, Any]:
        message["agent"] = self._last.get("agent", "main")
        message["message_type"] = _TYPES[message["role"]]
        if message["role"] == "assistant":
            message["thought"] = joined_text(message["content"] or "")
        if message["role"] == "tool":
            message.pop("name", None)
            call_id = message.pop("tool_call_id", None)
            message |= {} if call_id is None else {"tool_call_ids": [call_id]}
        return message

    def remember(self, message: dict[str, Any]) -> None:
        self._last = {key: message[key] for key in _KEPT if key in message}


def _matches(record: Any) -> bool:
    return accepts(record) and type(record.get("agent")) is str and "content" in record


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=accepts,
    expected=EXPECTED,
    decoder=lambda records, options: OpenAIChatDecoder(_Dialect(options.past), options),
    encoder=lambda: OpenAIChatEncoder(_Dialect()),
    beside=beside,
    note="a View of SWE-agent shows the whole history, before SWE-agent's history processors shortened it",
    live=True,
    source_id=member("id"),
    time=None,
    marks_errors=False,
)
