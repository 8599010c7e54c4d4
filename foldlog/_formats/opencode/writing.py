"""Write events as OpenCode's messages, and a session as the document that ``opencode import`` reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from foldlog._formats.pairs import PairsEncoder, arguments_of
from foldlog._formats.record import dict_or_empty, joined_text, member
from foldlog._formats.told import call_id_of, parts_as, role_of
from foldlog.eventstore import Action, CondensationSummary, Content, Event, Message, Observation, SystemMessage

NAME = "opencode"

_SESSION = "ses_foldlog"
"""The session of a history that has no record of OpenCode."""


class OpenCodeEncoder(PairsEncoder):
    """Events of one history to messages."""

    def __init__(self) -> None:
        super().__init__()
        self._session = _SESSION
        self._last: str | None = None

    def follow(self, events: Sequence[Event], record: Any) -> None:
        info = dict_or_empty(member("info")(record))
        if type(info.get("sessionID")) is str:
            self._session, self._last = info["sessionID"], info.get("id")

    def said(self, event: Message | SystemMessage | CondensationSummary) -> dict[str, Any]:
        role = "assistant" if role_of(event) == "assistant" else "user"
        return self._message(role, event, _texts(event.content))

    def called(self, call: Action, result: Observation | None) -> dict[str, Any]:
        state: dict[str, Any] = {"status": "pending", "input": arguments_of(call), "raw": ""}
        if result is not None:
            text = joined_text(result.content)
            told = {"error": text} if result.is_error else {"output": text, "title": "", "metadata": {}}
            time = {"start": _milliseconds(call), "end": _milliseconds(result)}
            status = "error" if result.is_error else "completed"
            state = {"status": status, "input": state["input"], **told, "time": time}
        part = {"type": "tool", "callID": call_id_of(call), "tool": call.tool, "state": state}
        return self._message("assistant", call, [*(_texts(call.thought) if call.thought else ()), part])

    def _message(self, role: str, event: Event, parts: list[dict[str, Any]]) -> dict[str, Any]:
        name, session = f"msg_{event.id:012}", self._session
        info: dict[str, Any] = {
            "id": name,
            "sessionID": session,
            "role": role,
            "time": {"created": _milliseconds(event)},
        }
        if role == "user":
            info |= {"agent": "build", "model": {"providerID": "", "modelID": ""}}
        else:
            none = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
            info |= {"parentID": self._last or name, "modelID": "", "providerID": "", "mode": "build", "agent": "build"}
            info |= {"path": {"cwd": "", "root": ""}, "cost": 0, "tokens": none}
        self._last = name
        ids = {"sessionID": session, "messageID": name}
        numbered = [{"id": f"prt_{event.id:012}_{place}", **ids, **part} for place, part in enumerate(parts)]
        return {"info": info, "parts": numbered}


def _texts(content: Content) -> list[dict[str, Any]]:
    return parts_as(content, lambda text: {"type": "text", "text": text}, _image)


def _image(url: str) -> dict[str, Any]:
    mime = url.removeprefix("data:").partition(";")[0] if url.startswith("data:") else "image/png"
    return {"type": "file", "mime": mime, "url": url}


def _milliseconds(event: Event) -> int:
    return 0 if event.timestamp is None else int(event.timestamp.timestamp() * 1000)


def document(records: Iterable[Any]) -> dict[str, Any]:
    """Return the document of a session, as ``opencode export`` writes it."""
    around: dict[str, Any] = {}
    messages: list[Any] = []
    for record in records:
        if type(record) is dict and "parts" not in record and "info" in record:
            around = record
        else:
            messages.append(record)
    if not around:
        named = {"slug": _SESSION, "title": "", "version": "", "projectID": "", "directory": ""}
        around = {"info": {"id": _SESSION, **named, "time": {"created": 0, "updated": 0}}}
    return {**around, "messages": messages}
