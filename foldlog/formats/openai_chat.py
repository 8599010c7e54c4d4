"""OpenAI chat messages: ``{"role", "content", "tool_calls", …}``, in the order of the list.

What a message says, and where it goes:

    system, developer               SystemMessage
    assistant with tool calls       one Action a call; what it says is the first one's thought
    tool, function                  Observation of the call that it answers
    user, assistant, any other      Message, from the user, the agent or the environment

Call ids may be used again within a history: the nth answer with an id belongs to the nth call with it. Messages have no
ids of their own, so an event's ``origin.id`` is None.

Other agents keep such messages too, with more in them: a ``Dialect`` says what.
"""

from __future__ import annotations

from typing import Any, Protocol

from msgspec.structs import force_setattr

from eventstore.events import (
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    Content,
    Event,
    Message,
    Observation,
    Origin,
    Source,
    SystemMessage,
    UnknownEvent,
)
from foldlog.formats.calls import OpenCalls
from foldlog.formats.delta import apply, object_delta
from foldlog.formats.record import NotAnEvent, described, read_time, rest_of, time_text

__all__ = ["FORMAT", "SPEAKERS", "Decoder", "Dialect", "Encoder", "Marks"]

FORMAT = "openai-chat"

SPEAKERS: dict[str, Source] = {"user": "user", "assistant": "agent"}
_ROLES: dict[str, str] = {"user": "user", "agent": "assistant", "environment": "user"}

Marks = dict[str, Any]
_MARKS = ("calls", "answers", "function")
"""What of ``origin.rest`` is no difference but says how to predict the message, on the first event made of it:

    calls     how many calls it makes, where it is not one
    answers   how many calls it answers, where it is not one
    function  its call stands in ``function_call``, as before there were tools
"""


class Dialect(Protocol):
    """What the messages of an agent say beyond OpenAI's. It may remember what the messages before said."""

    @property
    def format(self) -> str: ...

    @property
    def marks(self) -> tuple[str, ...]:
        """Keys of ``origin.rest`` that this dialect keeps its own marks under."""

    def speaker(self, message: dict[str, Any]) -> Source:
        """Who says a message that is no call and no answer."""

    def answers(self, message: dict[str, Any]) -> list[str]:
        """The ids of the calls that a tool's message answers."""

    def mark(self, message: dict[str, Any], marks: Marks) -> None:
        """Add what is needed to predict the message."""

    def predicted(self, message: dict[str, Any], events: list[Event], marks: Marks) -> dict[str, Any]:
        """The message, from what would be OpenAI's."""

    def remember(self, message: dict[str, Any]) -> None:
        """What the messages after this one are predicted from."""


class _OpenAI:
    format = FORMAT
    marks = ()

    def speaker(self, message: dict[str, Any]) -> Source:
        return SPEAKERS.get(message["role"], "environment")

    def answers(self, message: dict[str, Any]) -> list[str]:
        call_id = message.get("tool_call_id")
        return [call_id] if type(call_id) is str else []

    def mark(self, message: dict[str, Any], marks: Marks) -> None:
        pass

    def predicted(self, message: dict[str, Any], events: list[Event], marks: Marks) -> dict[str, Any]:
        return message

    def remember(self, message: dict[str, Any]) -> None:
        pass


class Decoder:
    """Messages of one history to events, one message after the other."""

    def __init__(self, dialect: Dialect | None = None) -> None:
        self._dialect: Dialect = dialect or _OpenAI()
        self._next_id = 0
        self._open_calls = OpenCalls()
        self._open_functions = OpenCalls()

    def events(self, record: Any) -> list[Event]:
        """The events of the next message: one, or one for each call that it makes or answers.

        Raises ``NotAnEvent`` where it is no message.
        """
        if type(record) is not dict:
            raise NotAnEvent(f"expected a message object, found {described(record)}")
        role = record.get("role")
        if type(role) is not str:
            raise NotAnEvent("a message has a text under 'role', this object has none")
        marks: Marks = {}
        self._dialect.mark(record, marks)
        events = self._built(role, record, marks)
        difference = object_delta(self._dialect.predicted(_predicted(events, marks) or {}, events, marks), record)
        origin = events[0].origin
        if origin is not None and (marks or difference):
            force_setattr(origin, "rest", {**marks, **(difference or {})})  # it is ours alone until it is returned
        self._next_id += len(events)
        self._dialect.remember(record)
        return events

    def _built(self, role: str, record: dict[str, Any], marks: Marks) -> list[Event]:
        timestamp, time = read_time(record.get("timestamp"))
        fields: dict[str, Any] = {
            "id": self._next_id,
            "timestamp": timestamp,
            "origin": Origin(format=self._dialect.format, id=record.get("id"), time=time),
        }
        content = _content(record.get("content"))
        match role:
            case "system" | "developer":
                return [SystemMessage(content=content, **fields)]
            case "tool" | "function":
                return self._observations(role, record, content, fields, marks)
            case "assistant":
                calls = _calls(record, marks)
                if calls:
                    return self._actions(calls, record, content, fields, marks)
        return [Message(content=content, source=self._dialect.speaker(record), **fields)]

    def _actions(
        self, calls: list[Any], record: dict[str, Any], thought: Content, fields: dict[str, Any], marks: Marks
    ) -> list[Event]:
        if len(calls) > 1:
            marks["calls"] = len(calls)
        actions: list[Event] = []
        for place, call in enumerate(calls):
            function = call if "function" in marks else call.get("function")
            function = function if type(function) is dict else {}
            arguments, call_id = function.get("arguments"), call.get("id")
            action = Action(
                **{
                    **fields,
                    "id": self._next_id + place,
                    "origin": Origin(format=self._dialect.format) if place else fields["origin"],
                },
                tool=_text(function.get("name")),
                arguments=arguments if type(arguments) is str or type(arguments) is dict else None,
                call_id=call_id if type(call_id) is str and "function" not in marks else None,
                response_id=f"message-{self._next_id}",
                thought="" if place else thought,
                thinking=() if place else _thinking(record.get("thinking_blocks")),
            )
            if "function" in marks:
                self._open_functions.open(action.tool, action)
            elif action.call_id is not None:
                self._open_calls.open(action.call_id, action)
            actions.append(action)
        return actions

    def _observations(
        self, role: str, record: dict[str, Any], content: Content, fields: dict[str, Any], marks: Marks
    ) -> list[Event]:
        call_ids, tool = self._dialect.answers(record), _text(record.get("name"))
        if not call_ids:
            cause, called = (self._open_functions.close(tool) if role == "function" else None) or (None, "")
            return [Observation(content=content, tool=tool or called, cause=cause, **fields)]
        if len(call_ids) > 1:
            marks["answers"] = len(call_ids)
        observations: list[Event] = []
        for place, call_id in enumerate(call_ids):
            cause, called = self._open_calls.close(call_id) or (None, "")
            observation = Observation(
                **{
                    **fields,
                    "id": self._next_id + place,
                    "origin": Origin(format=self._dialect.format) if place else fields["origin"],
                },
                content="" if place else content,
                tool=tool or called,
                call_id=call_id,
                cause=cause,
            )
            observations.append(observation)
        return observations


class Encoder:
    """Events of one history to messages, as ``Decoder`` read them."""

    def __init__(self, dialect: Dialect | None = None) -> None:
        self._dialect: Dialect = dialect or _OpenAI()
        self._group: list[Event] = []
        self._rest: dict[str, Any] = {}

    def records(self, event: Event) -> list[Any]:
        """The messages that are complete with ``event``."""
        complete = []
        if self._group and not self._continues(event):
            complete = self.end()
        if not self._group:
            self._rest = rest_of(event, self._dialect.format)
        self._group.append(event)
        awaited = self._rest.get("calls") if type(event) is Action else self._rest.get("answers", 1)
        if len(self._group) == awaited:
            complete += self.end()
        return complete

    def _continues(self, event: Event) -> bool:
        first = self._group[0]
        if type(event) is Observation:
            return type(first) is Observation
        return type(event) is Action and type(first) is Action and event.response_id == first.response_id is not None

    def end(self) -> list[Any]:
        """What is left when there are no more events: calls of one response may be still to come until then."""
        group, self._group = self._group, []
        if not group:
            return []
        marks = {mark: self._rest[mark] for mark in (*_MARKS, *self._dialect.marks) if mark in self._rest}
        predicted = _predicted(group, marks)
        if predicted is None:
            return []
        message = apply(self._dialect.predicted(predicted, group, marks), self._rest)
        self._dialect.remember(message)
        return [message]


def _calls(message: dict[str, Any], marks: Marks) -> list[dict[str, Any]]:
    """The calls of an assistant's message, or none where it has none that can be read."""
    calls = message.get("tool_calls")
    if type(calls) is list and calls and all(type(call) is dict for call in calls):
        return calls
    function = message.get("function_call")
    if type(function) is dict and not calls:
        marks["function"] = True
        return [function]
    return []


def _text(value: Any) -> str:
    return value if type(value) is str else ""


def _content(value: Any) -> Content:
    """Text or parts as they are; anything else is no content."""
    if type(value) is list and all(type(part) is dict for part in value):
        return tuple(value)
    return _text(value)


def _thinking(blocks: Any) -> tuple[dict[str, Any], ...]:
    return tuple(blocks) if type(blocks) is list and all(type(block) is dict for block in blocks) else ()


def _given(content: Content) -> str | list[dict[str, Any]]:
    return content if isinstance(content, str) else list(content)


def _predicted(events: list[Event], marks: Marks) -> dict[str, Any] | None:
    """The message that ``events`` seem to come from, as far as their fields tell; None where no message says this."""
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
        case CondensationSummary():
            message["role"], message["content"] = "user", event.content
        case Annotation() | CondensationAction() | CondensationRequest() | UnknownEvent():
            return None
    if event.origin is not None and event.origin.format == FORMAT and event.origin.id is not None:
        message["id"] = event.origin.id
    time = time_text(event.timestamp, event.origin)
    if time is not None and event.origin is not None and event.origin.format == FORMAT:
        message["timestamp"] = time
    return message


def _predicted_call(action: Action) -> dict[str, Any]:
    call: dict[str, Any] = {"type": "function", "function": {"name": action.tool, "arguments": action.arguments}}
    if action.call_id is not None:
        call["id"] = action.call_id
    return call
