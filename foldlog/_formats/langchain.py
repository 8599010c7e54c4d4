"""Messages of LangChain: what ``message_to_dict`` makes of one, an object with its ``type`` and its ``data``.

    human, ai, chat, function, and their chunks    Message, from the user, the agent or the environment
    system                                         SystemMessage
    ai with tool calls                             an Action for each call, of one response; the text is the thought
    tool                                           Observation
    every other type, such as remove               Annotation, which no View shows

Each message is read and written by itself, so any part of a history can be written. Beside ``data`` a message may have
other keys, which are kept: ``foldlog.adapters.langgraph`` writes one for values that JSON cannot hold.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import force_setattr

from foldlog._formats.calls import OpenCalls
from foldlog._formats.format import EachAlone, Format, Options, RecordDecoder
from foldlog._formats.record import NotAnEvent, described, usage_told
from foldlog.eventstore import (
    Action,
    Annotation,
    Content,
    Event,
    Message,
    Observation,
    Origin,
    Source,
    SystemMessage,
)

NAME = "langchain"

_CHUNK = "MessageChunk"
_KINDS = {"AI": "ai", "Human": "human", "System": "system", "Tool": "tool", "Chat": "chat", "Function": "function"}
_SPEAKERS: dict[str, Source] = {"human": "user", "ai": "agent", "chat": "environment", "function": "environment"}
_ROLES: dict[str, Source] = {"user": "user", "human": "user", "assistant": "agent", "ai": "agent"}
_TYPES = {"user": "human", "agent": "ai", "environment": "chat"}
_THINKING = ("thinking", "redacted_thinking", "reasoning")
_CALL = frozenset(("name", "args", "id", "type"))


def _kind(named: str) -> str:
    """Return the type of a message; that of the whole message for a chunk."""
    return _KINDS.get(named.removesuffix(_CHUNK), named) if named.endswith(_CHUNK) else named


def accepts(record: Any) -> bool:
    """Return whether ``record`` has a type and data."""
    return type(record) is dict and type(record.get("type")) is str and type(record.get("data")) is dict


def matches(record: Any) -> bool:
    """Return whether ``record`` is a message that nothing else has: of a known type, with content."""
    if not accepts(record):
        return False
    data = record["data"]
    return "content" in data and "additional_kwargs" in data and data.get("type") == record["type"]


class LangChainDecoder(RecordDecoder):
    """Messages to events, one message after the other."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._calls = OpenCalls(options.past)

    def events(self, record: Any) -> list[Event]:
        """Return the events of the next message. Raises ``NotAnEvent`` where it is not a message."""
        if not accepts(record):
            raise NotAnEvent(
                "a message is an object with a text under 'type' and an object under 'data', found "
                + ("an object without them" if type(record) is dict else described(record))
            )
        events = self._events(record["type"], record["data"])
        if told := _usage_in(record["data"]):
            force_setattr(events[0], "meta", told)  # no other code has it before it is returned
        self.next_id += len(events)
        return events

    def _events(self, named: str, data: dict[str, Any]) -> list[Event]:
        kind = _kind(named)
        fields: dict[str, Any] = {"id": self.next_id, "origin": Origin(format=NAME, id=data.get("id"))}
        if kind != "system" and kind not in _SPEAKERS and kind != "tool":
            return [Annotation(name=named, data=data, **fields)]
        content, thinking = _said(data.get("content"))
        calls = data.get("tool_calls") if kind == "ai" else None
        if type(calls) is list and calls and all(map(_is_call, calls)):
            return self._actions(calls, content, thinking, fields)
        if kind == "tool":
            return [self._observation(data, content, fields)]
        if kind == "system":
            return [SystemMessage(content=content, **fields)]
        source, role = _SPEAKERS[kind], data.get("role")
        if kind == "chat" and type(role) is str:
            source = _ROLES.get(role, source)
        return [Message(content=content, source=source, thinking=thinking, **fields)]

    def _actions(
        self,
        calls: list[dict[str, Any]],
        content: Content,
        thinking: tuple[dict[str, Any], ...],
        fields: dict[str, Any],
    ) -> list[Event]:
        origin: Origin = fields["origin"]
        response = None
        if len(calls) > 1:
            response = origin.id if type(origin.id) is str and origin.id else f"response-{self.next_id}"
        actions: list[Event] = []
        for place, call in enumerate(calls):
            action = Action(
                id=self.next_id + place,
                tool=call["name"],
                arguments=call["args"],
                call_id=call["id"],
                response_id=response,
                origin=Origin(format=NAME) if place else origin,
                thought="" if place else content,
                thinking=() if place else thinking,
            )
            self._calls.open(action)
            actions.append(action)
        return actions

    def _observation(self, data: dict[str, Any], content: Content, fields: dict[str, Any]) -> Observation:
        name = data.get("name")
        call_id, cause, tool = self._calls.close(data.get("tool_call_id"))
        return Observation(
            content=content,
            tool=name if type(name) is str else tool,
            call_id=call_id,
            cause=cause,
            is_error=data.get("status") == "error",
            **fields,
        )


def _usage_in(data: dict[str, Any]) -> dict[str, Any]:
    """Return the usage of a response as events have it, and its model."""
    usage, about = data.get("usage_metadata"), data.get("response_metadata")
    return usage_told(usage, model=about.get("model_name") if type(about) is dict else None)


def _is_call(call: Any) -> bool:
    return (
        type(call) is dict
        and _CALL >= set(call) >= {"name", "args", "id"}
        and type(call["name"]) is str
        and type(call["args"]) is dict
        and (call["id"] is None or type(call["id"]) is str)
    )


def _said(content: Any) -> tuple[Content, tuple[dict[str, Any], ...]]:
    """Return the texts and images of a message's content, and its thinking blocks."""
    if type(content) is not list:
        return (content if type(content) is str else ""), ()
    parts: list[dict[str, Any]] = []
    thinking: list[dict[str, Any]] = []
    for part in content:
        if type(part) is str:
            parts.append({"type": "text", "text": part})
        elif type(part) is dict and part.get("type") == "text" and type(part.get("text")) is str:
            parts.append({"type": "text", "text": part["text"]})
        elif type(part) is dict and part.get("type") == "image_url" and _has_url(part.get("image_url")):
            parts.append({"type": "image_url", "image_url": part["image_url"]})
        elif type(part) is dict and part.get("type") in _THINKING:
            thinking.append(part)
    return tuple(parts) if parts else "", tuple(thinking)


def _has_url(image: Any) -> bool:
    return type(image) is dict and type(image.get("url")) is str


def _written(event: Event) -> list[dict[str, Any]]:
    """Return an event as an application would write it; a summary is a user's message."""
    content = event.thought if isinstance(event, Action) else getattr(event, "content", "")
    thinking = event.thinking if isinstance(event, Message | Action) else ()
    kind = "human"
    if isinstance(event, SystemMessage):
        kind = "system"
    elif isinstance(event, Observation):
        kind = "tool"
    elif isinstance(event, Action):
        kind = "ai"
    elif isinstance(event, Message):
        kind = _TYPES[event.source]
    data: dict[str, Any] = {
        "content": content if isinstance(content, str) else [*thinking, *content],
        "additional_kwargs": {},
        "response_metadata": {},
        "type": kind,
        "name": event.tool or None if isinstance(event, Observation) else None,
        "id": None,
    }
    if kind == "ai":
        calls = [_call(event)] if isinstance(event, Action) else []
        data |= {"tool_calls": calls, "invalid_tool_calls": [], "usage_metadata": None}
    if isinstance(event, Observation):
        call_id = event.call_id or (None if event.cause is None else f"call_{event.cause}")
        status = "error" if event.is_error else "success"
        data |= {"tool_call_id": call_id, "artifact": None, "status": status}
    elif kind == "chat":
        data["role"] = "environment"
    return [{"type": kind, "data": data}]


def _call(action: Action) -> dict[str, Any]:
    call_id = f"call_{action.id}" if action.call_id is None else action.call_id
    arguments = action.arguments if isinstance(action.arguments, dict) else {}
    return {"name": action.tool, "args": arguments, "id": call_id, "type": "tool_call"}


FORMAT = Format(
    name=NAME,
    matches=matches,
    accepts=accepts,
    decoder=lambda records, options: LangChainDecoder(options),
    encoder=lambda: EachAlone(_written),
    live=True,
    source_id=lambda record: record["data"].get("id") if accepts(record) else None,
    times=False,
)
