"""Encode events as chat messages: the fields that an event gives, and the message itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    Content,
    DocumentChanges,
    Event,
    Message,
    Observation,
    Redaction,
    Retraction,
    SystemMessage,
    UnknownEvent,
)
from foldlog.formats.format import name_left_out
from foldlog.formats.key_order import KeyOrder
from foldlog.formats.openai_chat.dialect import MARKS, NAME, Dialect, Marks, OpenAI
from foldlog.formats.record import rest_of, time_text

_ROLES: dict[str, str] = {"user": "user", "agent": "assistant", "environment": "user"}


class OpenAIChatEncoder:
    """Events of one history to messages, as ``OpenAIChatDecoder`` read them."""

    def __init__(self, dialect: Dialect | None = None) -> None:
        self._dialect: Dialect = dialect or OpenAI()
        self._key_order = KeyOrder("content", "thought")
        self._group: list[Event] = []
        self._rest: dict[str, Any] = {}
        self.left_out: Counter[str] = Counter()

    def records(self, event: Event) -> list[Any]:
        """Return the messages that are complete with ``event``."""
        complete = []
        if self._group and not self._continues(event):
            complete = self.end()
        if not self._group:
            self._rest = rest_of(event, self._dialect.format)
        self._group.append(event)
        imported = event.origin is not None and event.origin.format == self._dialect.format
        one = 1 if imported or type(event) is not Action else None  # calls of ours may be still to come
        awaited = self._rest.get("calls" if type(event) is Action else "answers", one)
        if len(self._group) == awaited:
            complete += self.end()
        return complete

    def restart(self, next_id: int) -> None:
        self._key_order = KeyOrder("content", "thought")
        self._dialect.restart()

    def _continues(self, event: Event) -> bool:
        first = self._group[0]
        if type(event) is Observation:
            return type(first) is Observation
        return type(event) is Action and type(first) is Action and event.response_id == first.response_id is not None

    def end(self) -> list[Any]:
        """Return the messages that are left at the end: until then, further calls of one response may come."""
        group, self._group = self._group, []
        if not group:
            return []
        marks = {mark: self._rest[mark] for mark in (*MARKS, *self._dialect.marks) if mark in self._rest}
        if isinstance(group[0], CondensationAction) and group[0].metadata.get("outcome") != "declined":
            self.left_out["condensation"] += 1
        if (name := name_left_out(group[0])) is not None:
            self.left_out[name] += 1
        predicted_message = predicted(group, marks)
        if predicted_message is None:
            return []
        message = self._dialect.predicted(predicted_message, group, marks)
        origin = group[0].origin
        if origin is not None and origin.format == self._dialect.format:
            message = self._key_order.record(message, self._rest, group)
        self._dialect.remember(message)
        return [message]


def _given(content: Content) -> str | list[dict[str, Any]]:
    return content if isinstance(content, str) else list(content)


def predicted(events: list[Event], marks: Marks) -> dict[str, Any] | None:
    """Predict the message of ``events`` from their fields; None if no message has this content."""
    event = events[0]
    message: dict[str, Any] = {}
    match event:
        case Action():
            message["role"], message["content"] = "assistant", _given(event.thought) or None
            if event.thinking:
                message["thinking_blocks"] = list(event.thinking)
            calls = [_predicted_call(call) for call in events if isinstance(call, Action)]
            if "function" in marks:
                message["function_call"] = calls[0]["function"]
            else:
                message["tool_calls"] = calls
        case Observation():
            message["role"], message["content"] = "tool", _given(event.content)
            if event.tool:
                message["name"] = event.tool
            if event.call_id is not None:
                message["tool_call_id"] = event.call_id
        case SystemMessage():
            message["role"], message["content"] = "system", _given(event.content)
        case Message():
            message["role"], message["content"] = _ROLES[event.source], _given(event.content)
            if event.thinking:
                message["thinking_blocks"] = list(event.thinking)
        case CondensationSummary():
            message["role"], message["content"] = "user", event.content
        case Annotation() | DocumentChanges() | CondensationAction() | CondensationRequest():
            return None
        case Retraction() | Redaction() | UnknownEvent():
            return None
    if event.origin is not None and event.origin.format == NAME and event.origin.id is not None:
        message["id"] = event.origin.id
    time = time_text(event.timestamp, event.origin)
    if time is not None and event.origin is not None and event.origin.format == NAME:
        message["timestamp"] = time
    return message


def _predicted_call(action: Action) -> dict[str, Any]:
    call: dict[str, Any] = {"type": "function", "function": {"name": action.tool, "arguments": action.arguments}}
    if action.call_id is not None:
        call["id"] = action.call_id
    return call
