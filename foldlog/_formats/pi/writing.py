"""Events to entries of pi, each after the one before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foldlog._formats.blocks import blocks_of
from foldlog._formats.claude_code.writing import result_of, use_of
from foldlog._formats.members import Members
from foldlog._formats.openai_chat import OpenAI, OpenAIChatEncoder
from foldlog._formats.told import time_of
from foldlog.eventstore import Action, CondensationAction, Content, Event, Message, Observation

NAME = "pi"

_COUNTS = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "total"), 0)
_ANSWER = {"api": "anthropic-messages", "provider": "", "model": "", "usage": {**_COUNTS, "cost": _COUNTS}}
"""What pi reads of each response; the API is that of the form in which events have thinking."""


class PiEncoder(OpenAIChatEncoder):
    """Writes entries of events that have none: of the same events as a chat, and of condensations that keep an end."""

    def __init__(self) -> None:
        super().__init__(OpenAI())
        self._shown = Members[Any]()
        self._last: Any = None

    def head(self, event: Event) -> list[Any]:
        return [{"type": "session", "version": 3, "id": "foldlog", "timestamp": time_of(event), "cwd": ""}]

    def records(self, event: Event) -> list[Any] | None:
        if not isinstance(event, CondensationAction):
            return super().records(event)
        members, gone = self._shown.all(), set(event.forgotten_event_ids or ())
        kept = [entry for event_id, entry in members if event_id not in gone]
        is_end = kept == [entry for _, entry in members[len(members) - len(kept) :]] and None not in kept
        if event.summary is None or event.summary_offset or not is_end:
            return None
        first = {"firstKeptEntryId": kept[0] if kept else _id(event)}
        tokens = event.metadata.get("tokens_before", 0)
        return [*self.end(), self._entry([event], "compaction", summary=event.summary, **first, tokensBefore=tokens)]

    def follow(self, events: Sequence[Event], record: Any) -> None:
        if type(record) is dict and record.get("type") != "session" and "id" in record:
            self._last = record["id"]
        for event in events:
            self._shown.follow(event, None if isinstance(event, CondensationAction) else self._last)

    def _written(self, events: list[Event]) -> list[Any]:
        message: dict[str, Any]
        match event := events[0]:
            case Action():
                blocks = [block for call in events if isinstance(call, Action) for block in _called(call)]
                message = {"role": "assistant", "content": blocks, **_ANSWER, "stopReason": "toolUse"}
            case Observation():
                message = {"role": "toolResult", "toolCallId": result_of(event).get("tool_use_id", "")}
                message |= {"toolName": event.tool, "content": _blocks(event.content), "isError": event.is_error}
            case Message(source="agent"):
                blocks = [*map(_thought, event.thinking), *_blocks(event.content)]
                message = {"role": "assistant", "content": blocks, **_ANSWER, "stopReason": "stop"}
            case Message(source="user"):
                message = {"role": "user", "content": _blocks(event.content)}
            case _:
                message = {"role": "custom", "customType": "foldlog", "display": True}
                message["content"] = _blocks(getattr(event, "content", ""))
        time = 0 if event.timestamp is None else int(event.timestamp.timestamp() * 1000)
        return [self._entry(events, "message", message={**message, "timestamp": time})]

    def _entry(self, events: Sequence[Event], kind: str, **fields: Any) -> dict[str, Any]:
        entry = {"type": kind, "id": _id(events[0]), "parentId": self._last}
        entry |= {"timestamp": time_of(events[0]), **fields}
        self.follow(events, entry)
        return entry


def _id(event: Event) -> str:
    known = None if event.origin is None else event.origin.id  # an event whose record was redacted keeps its id
    return known if type(known) is str else f"{event.id:08x}"


def _called(call: Action) -> list[dict[str, Any]]:
    use = use_of(call)
    blocks = [*map(_thought, call.thinking), *_blocks(call.thought)]
    return [*blocks, {"type": "toolCall", "id": use["id"], "name": use["name"], "arguments": use["input"]}]


def _thought(block: dict[str, Any]) -> dict[str, Any]:
    if "data" in block:
        return {"type": "thinking", "thinking": "", "thinkingSignature": block["data"], "redacted": True}
    signed = {"thinkingSignature": block["signature"]} if "signature" in block else {}
    return {"type": "thinking", "thinking": block.get("thinking", ""), **signed}


def _blocks(content: Content) -> list[dict[str, Any]]:
    return [_image(block["source"]) if "data" in block.get("source", ()) else block for block in blocks_of(content)]


def _image(source: dict[str, Any]) -> dict[str, Any]:
    return {"type": "image", "data": source["data"], "mimeType": source["media_type"]}
