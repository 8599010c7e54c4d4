"""Events to Gemini CLI's records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foldlog._formats.pairs import PairsEncoder, arguments_of
from foldlog._formats.record import joined_text
from foldlog._formats.told import call_id_of, parts_as, role_of, time_of
from foldlog.eventstore import Action, CondensationSummary, Content, Event, Message, Observation, SystemMessage

NAME = "gemini-cli"

_Part = dict[str, Any]


class GeminiEncoder(PairsEncoder):
    """Events of one history to lines of a session, which begin with the session."""

    def head(self, event: Event) -> Sequence[Any]:
        return [{"sessionId": "foldlog", "projectHash": "foldlog", "startTime": time_of(event), "kind": "main"}]

    def said(self, event: Message | SystemMessage | CondensationSummary) -> _Part:
        return self._record("gemini" if role_of(event) == "assistant" else "user", event, event.content)

    def called(self, call: Action, result: Observation | None) -> _Part:
        call_id = call_id_of(call)
        told: _Part = {"id": call_id, "name": call.tool, "args": arguments_of(call), "timestamp": time_of(call)}
        if result is not None:
            outcome = {"error" if result.is_error else "output": joined_text(result.content)}
            response = {"id": call_id, "name": call.tool, "response": outcome}
            told["result"] = [{"functionResponse": response}]
        told["status"] = "cancelled" if result is None else "error" if result.is_error else "success"
        return {**self._record("gemini", call, call.thought), "toolCalls": [told]}

    def _record(self, kind: str, event: Event, content: Content) -> _Part:
        parts = parts_as(content, lambda text: {"text": text}, _image)
        return {"id": f"foldlog-{event.id}", "timestamp": time_of(event), "type": kind, "content": parts}


def _image(url: str) -> _Part:
    head, comma, data = url.partition(";base64,")
    if not comma:
        return {"fileData": {"mimeType": "image/png", "fileUri": url}}
    return {"inlineData": {"mimeType": head.removeprefix("data:"), "data": data}}
