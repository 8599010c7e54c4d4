"""Encode events as chat messages: the fields that an event gives, and the message itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foldlog._formats.format import RecordEncoder
from foldlog._formats.openai_chat.dialect import OpenAI
from foldlog._formats.told import role_of
from foldlog.eventstore import (
    Action,
    CondensationAction,
    CondensationSummary,
    DocumentChanges,
    Event,
    Message,
    Observation,
    Redaction,
    Retraction,
    SystemMessage,
)
from foldlog.projections.messages.turns import arguments_of


class OpenAIChatEncoder(RecordEncoder):
    """Events of one history to messages: parallel calls are one message."""

    def __init__(self, dialect: OpenAI) -> None:
        self._dialect = dialect
        self._calls: list[Event] = []

    def records(self, event: Event) -> list[Any] | None:
        if isinstance(event, CondensationAction | Retraction | Redaction | DocumentChanges):
            return None
        if self._continues(event):
            self._calls.append(event)
            return []
        complete = self.end()
        if isinstance(event, Action):
            self._calls = [event]
            return complete
        return [*complete, *self._written([event])]

    def follow(self, events: Sequence[Event], record: Any) -> None:
        self._dialect.remember(record)

    def _continues(self, event: Event) -> bool:
        if not self._calls or not isinstance(event, Action):
            return False
        first = self._calls[0]
        return isinstance(first, Action) and event.response_id == first.response_id is not None

    def end(self) -> list[Any]:
        calls, self._calls = self._calls, []
        return self._written(calls) if calls else []

    def _written(self, events: list[Event]) -> list[Any]:
        message = _message(events)
        if message is None:
            return []
        message = self._dialect.written(message)
        self._dialect.remember(message)
        return [message]


def _message(events: list[Event]) -> dict[str, Any] | None:
    """Return the message of ``events``; None if no message has this content."""
    event = events[0]
    if not isinstance(event, Action | Observation | SystemMessage | Message | CondensationSummary):
        return None
    content = event.thought if isinstance(event, Action) else event.content
    message: dict[str, Any] = {"role": role_of(event), "content": content if isinstance(content, str) else [*content]}
    if isinstance(event, Action):
        message["content"] = message["content"] or None
    if isinstance(event, Action | Message) and event.thinking:
        message["thinking_blocks"] = list(event.thinking)
    if isinstance(event, Action):
        message["tool_calls"] = [_call(call) for call in events if isinstance(call, Action)]
    elif isinstance(event, Observation):
        message |= {"name": event.tool} if event.tool else {}
        message |= {} if event.call_id is None else {"tool_call_id": event.call_id}
    return message


def _call(action: Action) -> dict[str, Any]:
    arguments = action.arguments if isinstance(action.arguments, str) else arguments_of(action)
    call: dict[str, Any] = {"type": "function", "function": {"name": action.tool, "arguments": arguments}}
    if action.call_id is not None:
        call["id"] = action.call_id
    return call
