"""The history of SWE-agent: chat messages with the agent's name, its thought and its action.

A ``.traj`` file has the messages of the model in ``history``, the steps in ``trajectory``, and the
usage of the whole run in ``info``. The records are the items of ``history``.

A message becomes the events that ``openai_chat`` makes. These fields have a special meaning:

    thought, action       repeat the text or the call of an assistant's message
    tool_call_ids         the calls that a tool's message answers: an Observation for each call;
                          only the first Observation has the content
    user                  the environment's answer, if the message follows an assistant's message
                          and the agent uses no tool calls
    is_demo               a demonstration: the View shows the message, because the model saw it;
                          figures do not count its calls
"""

from __future__ import annotations

from typing import Any

from foldlog.formats.format import Format
from foldlog.formats.openai_chat import EXPECTED, OpenAIChatDecoder, accepts, beside
from foldlog.formats.record import Fields, member, pick
from foldlog.formats.record_events import RecordEvents

NAME = "swe-agent"

_KEPT = ("role", "is_demo")


class _Decoder(OpenAIChatDecoder):
    _last: Fields | None = None

    def read(self, collected: RecordEvents, record: Fields) -> None:
        collected.is_copy = bool(record.get("is_demo"))
        super().read(collected, record)
        self._last = pick(record, _KEPT)

    def to_openai(self, message: Fields) -> list[Fields]:
        if message["role"] == "user":
            is_demo = bool(message.get("is_demo"))
            before = self._last or {}
            is_answer = before.get("role") == "assistant" and is_demo == bool(before.get("is_demo"))
            if is_demo or is_answer:
                return [{**message, "role": "environment"}]
            return [message]
        call_ids = message.get("tool_call_ids")
        if type(call_ids) is not list or not all(type(call_id) is str for call_id in call_ids):
            call_ids = []
        results = [{**message, "tool_call_id": call_id, "content": ""} for call_id in call_ids[1:]]
        return [{**message, "tool_call_id": next(iter(call_ids), None)}, *results]


def _matches(record: Any) -> bool:
    return accepts(record) and type(record.get("agent")) is str and "content" in record


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=accepts,
    expected=EXPECTED,
    decoder=_Decoder,
    beside=beside,
    note=(
        "a View of SWE-agent shows the whole history, before SWE-agent's history processors"
        " shortened it"
    ),
    source_id=member("id"),
    time=None,
    marks_errors=False,
)
