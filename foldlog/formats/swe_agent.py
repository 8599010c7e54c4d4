"""SWE-agent's history: chat messages that also hold the agent's name, its thought and its action.

A ``.traj`` file holds ``history``, which is what the model was shown, and beside it ``trajectory``, the same steps once
more with the state of the shell, and ``info``. The records are those of ``history``.

A message becomes the events that ``openai_chat`` makes of it. In addition:

    thought, action       parts of what an assistant says, or what a call of its means
    tool_call_ids         the calls that a tool's message answers: an Observation each, the first with the content
    user                  behind an assistant's message the environment's answer, as it is without tool calls
    is_demo               a demonstration: it is shown, as the model was shown it
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from foldlog.eventstore import Event, Observation, Source
from foldlog.formats.format import Format, Options
from foldlog.formats.openai_chat.dialect import SPEAKERS, Marks
from foldlog.formats.openai_chat.reading import OpenAIChatDecoder
from foldlog.formats.openai_chat.recognition import accepts
from foldlog.formats.openai_chat.writing import OpenAIChatEncoder

NAME = "swe-agent"

_PARTS = ("thought", "action")
_CARRIED = ("agent", "is_demo")
"""Keys whose values most often repeat those of the message before."""
_TYPES = {"system": "system_prompt", "user": "observation", "assistant": "action", "tool": "observation"}


_NOTE = "a View of SWE-agent shows the whole history, before SWE-agent's history processors shortened it for the model"


class _Dialect:
    """The marks ``thought`` and ``action`` give their place in the content, as the first character and the one after
    the last.

    Without a mark, an assistant's thought is its whole text.
    """

    format = NAME
    marks = _PARTS

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self._before: dict[str, Any] = {"agent": "main", "message_type": ""}

    def speaker(self, message: dict[str, Any]) -> Source:
        role, before = message["role"], self._before
        if role == "user" and before.get("role") == "assistant" and message.get("is_demo") == before.get("is_demo"):
            return "environment"
        return SPEAKERS.get(role, "environment")

    def answers(self, message: dict[str, Any]) -> list[str]:
        call_ids = message.get("tool_call_ids")
        return call_ids if type(call_ids) is list and all(type(call_id) is str for call_id in call_ids) else []

    def mark(self, message: dict[str, Any], marks: Marks) -> None:
        said = _said(message)
        for key in _PARTS:
            part = message.get(key)
            if type(part) is str and part and part != said and (start := said.find(part)) >= 0:
                marks[key] = [start, start + len(part)]

    def predicted(self, message: dict[str, Any], events: list[Event], marks: Marks) -> dict[str, Any]:
        before = self._before
        message |= {key: before[key] for key in _CARRIED if key in before}
        if "message_type" in before:
            message["message_type"] = _TYPES[message["role"]]
        said = _said(message)
        if message["role"] == "assistant":
            message["thought"] = said
        for key in _PARTS:
            if key in marks:
                start, end = marks[key]
                message[key] = said[start:end]
        if message["role"] == "tool":
            message.pop("name", None)
            message.pop("tool_call_id", None)
            call_ids = [
                event.call_id for event in events if isinstance(event, Observation) and event.call_id is not None
            ]
            if call_ids:
                message["tool_call_ids"] = call_ids
        return message

    def remember(self, message: dict[str, Any]) -> None:
        self._before = {key: message[key] for key in (*_CARRIED, "role", "message_type") if key in message}


def _said(message: dict[str, Any]) -> str:
    """Return the text of a message, or the first of several."""
    content = message.get("content")
    if type(content) is list and content and type(content[0]) is dict:
        content = content[0].get("text")
    return content if type(content) is str else ""


def _matches(record: Any) -> bool:
    return accepts(record) and type(record.get("agent")) is str


def _decoder(records: Iterable[Any], options: Options) -> OpenAIChatDecoder:
    return OpenAIChatDecoder(_Dialect(), first_id=options.first_id, past=options.past)


def _encoder() -> OpenAIChatEncoder:
    return OpenAIChatEncoder(_Dialect())


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=accepts,
    decoder=_decoder,
    encoder=_encoder,
    note=_NOTE,
    live=True,
    times=False,
    marks_errors=False,
)
