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

from collections import Counter
from collections.abc import Iterable
from typing import Any

from msgspec.structs import force_setattr

from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationSummary,
    Content,
    Event,
    Message,
    Observation,
    Origin,
    Retraction,
    Source,
    SystemMessage,
)
from foldlog.formats.calls import OpenCalls
from foldlog.formats.delta import apply
from foldlog.formats.format import Format, Options, Past
from foldlog.formats.key_order import KeyOrder
from foldlog.formats.record import NotAnEvent, described, joined_text, rest_of

NAME = "langchain"

_CHUNK = "MessageChunk"
_KINDS = {"AI": "ai", "Human": "human", "System": "system", "Tool": "tool", "Chat": "chat", "Function": "function"}
_SPEAKERS: dict[str, Source] = {"human": "user", "ai": "agent", "chat": "environment", "function": "environment"}
_ROLES: dict[str, Source] = {"user": "user", "human": "user", "assistant": "agent", "ai": "agent"}
_TYPES = {"user": "human", "agent": "ai", "environment": "chat"}
_THINKING = ("thinking", "redacted_thinking", "reasoning")
_CALL = frozenset(("name", "args", "id", "type"))

MARKS = ("type", "parts", "calls")
"""Keys of ``origin.rest`` that say how to predict the message:

    type the message's type, where the event does not tell it
    parts   the content is a list of parts, not a text
    calls   the number of tool calls, of which this event is the first; the events of the others have ``call``
"""

Marks = dict[str, Any]


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


class LangChainDecoder:
    """Messages to events, one message after the other."""

    def __init__(self, first_id: int = 0, past: Past | None = None) -> None:
        self._next_id = first_id
        self._calls = OpenCalls(past)

    def restart(self, next_id: int) -> None:
        self._next_id = next_id

    def events(self, record: Any) -> list[Event]:
        """Return the events of the next message. Raises ``NotAnEvent`` where it is not a message."""
        if not accepts(record):
            raise NotAnEvent(
                "a message is an object with a text under 'type' and an object under 'data', found "
                + ("an object without them" if type(record) is dict else described(record))
            )
        marks: Marks = {}
        events = self._events(record["type"], record["data"], marks)
        difference = KeyOrder().difference(_predicted(events, marks), record)
        first = events[0].origin
        if first is not None and (marks or difference):
            force_setattr(first, "rest", {**marks, **difference})  # no other code has it before it is returned
        self._next_id += len(events)
        return events

    def _events(self, named: str, data: dict[str, Any], marks: Marks) -> list[Event]:
        kind = _kind(named)
        fields: dict[str, Any] = {"id": self._next_id, "origin": Origin(format=NAME, id=data.get("id"))}
        if kind != "system" and kind not in _SPEAKERS and kind != "tool":
            return [Annotation(name=named, data=data, **fields)]
        content, thinking = _said(data.get("content"))
        if type(data.get("content")) is list:
            marks["parts"] = True
        calls = data.get("tool_calls") if kind == "ai" else None
        expected = kind
        events: list[Event]
        if type(calls) is list and calls and all(map(_is_call, calls)):
            expected = "ai"
            events = self._actions(calls, content, thinking, fields, marks)
        elif kind == "tool":
            events = [self._observation(data, content, fields)]
        elif kind == "system":
            events = [SystemMessage(content=content, **fields)]
        else:
            source = _SPEAKERS[kind]
            role = data.get("role")
            if kind == "chat" and type(role) is str:
                source = _ROLES.get(role, source)
            expected = _TYPES[source]
            events = [Message(content=content, source=source, thinking=thinking, **fields)]
        if named != expected:
            marks["type"] = named
        return events

    def _actions(
        self,
        calls: list[dict[str, Any]],
        content: Content,
        thinking: tuple[dict[str, Any], ...],
        fields: dict[str, Any],
        marks: Marks,
    ) -> list[Event]:
        origin: Origin = fields["origin"]
        response = None
        if len(calls) > 1:
            marks["calls"] = len(calls)
            response = origin.id if type(origin.id) is str and origin.id else f"response-{self._next_id}"
        actions: list[Event] = []
        for place, call in enumerate(calls):
            action = Action(
                id=self._next_id + place,
                tool=call["name"],
                arguments=call["args"],
                call_id=call["id"],
                response_id=response,
                origin=Origin(format=NAME, rest={"call": place}) if place else origin,
                thought="" if place else content,
                thinking=() if place else thinking,
            )
            if action.call_id is not None:
                self._calls.open(action.call_id, action)
            actions.append(action)
        return actions

    def _observation(self, data: dict[str, Any], content: Content, fields: dict[str, Any]) -> Observation:
        call_id, name = data.get("tool_call_id"), data.get("name")
        call_id = call_id if type(call_id) is str else None
        cause, tool = (None if call_id is None else self._calls.close(call_id)) or (None, "")
        return Observation(
            content=content,
            tool=name if type(name) is str else tool,
            call_id=call_id,
            cause=cause,
            is_error=data.get("status") == "error",
            **fields,
        )


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


class LangChainEncoder:
    """Encodes events as messages. Events that were added later are written as an application would write them; a
    summary is a user's message.
    """

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        self._group: list[Event] = []

    def restart(self, next_id: int) -> None:
        self._group.clear()

    def records(self, event: Event) -> list[Any]:
        """Return the message that is complete with ``event``; bookkeeping that was added later has none."""
        if event.origin is None or event.origin.format != NAME:
            return [*self.end(), *self._added(event)]
        if isinstance(event, Action) and self._group and "call" in rest_of(event, NAME):
            self._group.append(event)
        else:
            complete = self.end()
            self._group = [event]
            if rest_of(event, NAME).get("calls", 1) > 1:
                return complete
            return [*complete, *self.end()]
        first = self._group[0]
        return self.end() if len(self._group) == rest_of(first, NAME).get("calls", 1) else []

    def end(self) -> list[Any]:
        """Return the message of an incomplete response, with its calls so far."""
        group, self._group = self._group, []
        if not group:
            return []
        rest = rest_of(group[0], NAME)
        predicted = _predicted(group, {mark: rest[mark] for mark in MARKS if mark in rest})
        if "order" not in rest:
            return [apply(predicted, rest)]  # as ``KeyOrder`` would make it, which knows no other message
        return [KeyOrder().record(predicted, rest, group)]

    def _added(self, event: Event) -> list[Any]:
        if isinstance(event, CondensationAction | Retraction):
            declined = isinstance(event, CondensationAction) and event.metadata.get("outcome") == "declined"
            self.left_out["retraction" if isinstance(event, Retraction) else "condensation"] += not declined
            return []
        if not isinstance(event, Message | SystemMessage | CondensationSummary | Action | Observation):
            return []
        parts = event.thought if isinstance(event, Action) else event.content
        return [_predicted([event], {} if isinstance(parts, str) else {"parts": True})]


def _predicted(events: list[Event], marks: Marks) -> dict[str, Any]:
    """Predict the message that these events came from, from their fields."""
    event = events[0]
    data: dict[str, Any] = {"content": "", "additional_kwargs": {}, "response_metadata": {}}
    if isinstance(event, Annotation):
        return {"type": event.name, "data": event.data if isinstance(event.data, dict) else {}}
    kind, content = "human", _content(event)
    thinking: tuple[dict[str, Any], ...] = ()
    if isinstance(event, SystemMessage):
        kind = "system"
    elif isinstance(event, Observation):
        kind = "tool"
    elif isinstance(event, Action):
        kind, thinking = "ai", event.thinking
    elif isinstance(event, Message):
        kind, thinking = _TYPES[event.source], event.thinking
    named = marks.get("type", kind)
    data["content"] = [*thinking, *_parts(content)] if "parts" in marks else joined_text(content)
    data["type"] = named
    source_id = None if event.origin is None else event.origin.id
    name = None
    if isinstance(event, Observation):
        name = event.tool or None
    data |= {"name": name, "id": source_id}
    if kind == "ai":
        calls = [_call(action) for action in events if isinstance(action, Action)]
        data |= {"tool_calls": calls, "invalid_tool_calls": [], "usage_metadata": None}
    if isinstance(event, Observation):
        call_id = event.call_id or (None if event.cause is None else f"call_{event.cause}")
        status = "error" if event.is_error else "success"
        data |= {"tool_call_id": call_id, "artifact": None, "status": status}
    elif kind == "chat":
        data["role"] = "environment"
    return {"type": named, "data": data}


def _content(event: Event) -> Content:
    return event.thought if isinstance(event, Action) else getattr(event, "content", "")


def _call(action: Action) -> dict[str, Any]:
    call_id = action.call_id if action.call_id is not None or action.origin is not None else f"call_{action.id}"
    arguments = action.arguments if isinstance(action.arguments, dict) else {}
    return {"name": action.tool, "args": arguments, "id": call_id, "type": "tool_call"}


def _parts(content: Content) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content)


def _decoder(records: Iterable[Any], options: Options) -> LangChainDecoder:
    return LangChainDecoder(options.first_id, options.past)


def _source_id(record: Any) -> Any:
    return record["data"].get("id") if accepts(record) else None


FORMAT = Format(
    name=NAME,
    matches=matches,
    accepts=accepts,
    decoder=_decoder,
    encoder=LangChainEncoder,
    live=True,
    standalone=True,
    source_id=_source_id,
    times=False,
)
