"""Events to spans: one for each reply of a model, with all that it was sent. Chat messages stand between the two."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from foldlog._formats.format import RecordEncoder
from foldlog._formats.openai_chat import OpenAIChatEncoder
from foldlog._formats.otlp_genai.spans import attributes_of, messages_in, span_of
from foldlog._formats.record import joined_text
from foldlog.eventstore import Event


class SpanEncoder(RecordEncoder):
    """Events of one history to spans."""

    def __init__(self) -> None:
        self._chat = OpenAIChatEncoder()
        self._sent: list[Any] = []
        self._is_new = False
        self._trace, self._event_id, self._time = f"{1:032x}", 0, "0"

    def records(self, event: Event) -> Sequence[Any] | None:
        messages = self._chat.records(event)
        if messages is None:
            return None
        written = self._spans(messages)
        self._event_id = event.id
        self._time = "0" if event.timestamp is None else str(int(event.timestamp.timestamp() * 1e9))
        return written

    def end(self) -> Sequence[Any]:
        spans = self._spans(self._chat.end())
        if self._is_new:
            spans.append(self._span(None))
        return spans

    def follow(self, events: Sequence[Event], record: Any) -> None:
        span = span_of(record) or {}
        if found := messages_in(span, attributes_of(span)):
            self._sent = [message for name in ("system", "input", "output") for message in found.get(name, ())]
        self._trace = str(span.get("traceId", self._trace))

    def _spans(self, messages: Sequence[Any]) -> list[Any]:
        """Return a span for each message of the model; the others are part of the next one."""
        spans: list[Any] = []
        for each in messages:
            message = _message(each)
            if message["role"] == "assistant":
                spans.append(self._span(message))
            self._sent.append(message)
            self._is_new = message["role"] != "assistant"
        return spans

    def _span(self, reply: Any) -> dict[str, Any]:
        self._is_new = False
        told = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(self._sent)}
        told |= {"gen_ai.output.messages": json.dumps([reply])} if reply else {}
        span = {
            **{"traceId": self._trace, "spanId": f"{self._event_id + 1:016x}", "name": "chat", "kind": 3},
            **{"startTimeUnixNano": self._time, "endTimeUnixNano": self._time},
            "attributes": [{"key": key, "value": {"stringValue": text}} for key, text in told.items()],
        }
        return {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"scope": {}, "spans": [span]}]}]}


def _message(chat: dict[str, Any]) -> dict[str, Any]:
    """Return a chat message as the conventions have it."""
    content = chat["content"]
    said = joined_text(tuple(content) if type(content) is list else content or "")
    if chat["role"] == "tool":
        parts = [{"type": "tool_call_response", "id": chat.get("tool_call_id"), "response": said}]
    else:
        parts = [{"type": "text", "content": said}] if said else []
        for call in chat.get("tool_calls", ()):
            parts.append({"type": "tool_call", "id": call.get("id"), **call["function"]})
    return {"role": chat["role"], "parts": parts}
