"""OpenAI chat messages: ``{"role", "content", "tool_calls", …}``, in the order of the list.

The messages, and the events that they become:

    system, developer               SystemMessage
    assistant with tool calls       one Action a call; what it says is the first one's thought
    tool, function                  Observation of the call that it answers
    user, assistant, any other      Message, from the user, the agent or the environment

A call without an id has the name of its tool as its id. A result without an id is of the first open call of the newest
reply, of the tool that it names.
Call ids may be used again within a history: the nth observation with an id belongs to the nth call with it. Messages
have no ids of their own, so an event's ``origin.id`` is None.

Other agents keep such messages too, with more in them: a dialect below ``OpenAI`` says what.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from foldlog._formats.format import Beside, Format, Options, RecordEncoder
from foldlog._formats.lookalikes import lookalike_of_record
from foldlog._formats.record import dict_or_empty, dicts_in, member, read_time, text_or_empty, time_at, usage_told
from foldlog._formats.record_events import FollowingDecoder, RecordEvents
from foldlog._formats.rewritten import is_same
from foldlog._formats.told import NOT_WRITTEN, call_id_of, role_of
from foldlog.eventstore import (
    Action,
    CondensationSummary,
    Content,
    Event,
    Message,
    Observation,
    Origin,
    Source,
    SystemMessage,
)
from foldlog.projections import arguments_of

NAME = "openai-chat"

_SAID = ("role", "content", "tool_calls", "function_call", "tool_call_id")
_SPEAKERS: dict[str, Source] = {"user": "user", "assistant": "agent"}


def matches(record: Any) -> bool:
    """Return whether ``record`` has a role and a content or calls. A message of SWE-agent also names its agent."""
    return accepts(record) and ("content" in record or "tool_calls" in record) and type(record.get("agent")) is not str


def accepts(record: Any) -> bool:
    """Return whether ``record`` has a role."""
    return type(record) is dict and type(record.get("role")) is str


class OpenAI:
    """Messages as OpenAI defines them. A dialect may remember earlier messages."""

    format = NAME

    def speaker(self, message: dict[str, Any]) -> Source:
        """Return the source of a message that neither calls nor answers."""
        return _SPEAKERS.get(message["role"], "environment")

    def answers(self, message: dict[str, Any]) -> list[str]:
        """Return the ids of the calls that a tool's message answers."""
        call_id = message.get("tool_call_id")
        return [call_id] if type(call_id) is str else []

    def written(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return a message from the message that OpenAI would have."""
        return message

    def remember(self, message: dict[str, Any]) -> None:
        """Remember what later messages need."""


def beside(fields: Mapping[str, Any], records: Sequence[Any]) -> Beside:
    """Return the answer and the usage in the ``response`` of a log of one call, and the usage in SWE-agent's ``info``.

    Of several choices the first is the answer. It is left out where the messages end with it.
    """
    response, cost = fields.get("response"), fields.get("cost")
    response = {"role": "assistant", "content": response} if type(response) is str else dict_or_empty(response)
    choices = dicts_in(response.get("choices"))
    answer = choices[0].get("message") if choices else response
    stats = dict_or_empty(dict_or_empty(fields.get("info")).get("model_stats"))
    tokens = {"prompt_tokens": stats.get("tokens_sent"), "completion_tokens": stats.get("tokens_received")}
    calls, at = stats.get("api_calls"), time_at(fields.get("timestamp"))
    if told := usage_told(tokens, cost=stats.get("instance_cost")):
        told |= {"calls": calls} if type(calls) is int else {}
    elif told := usage_told(response.get("usage"), model=response.get("model"), reply=response.get("id"), cost=cost):
        told |= {} if at is None else {"at": at.isoformat()}
    is_new = accepts(answer) and not (records and alike(records[-1], answer))
    return (answer,) if is_new else (), [told] if told else []


def alike(one: Any, other: Any) -> bool:
    """Return whether two messages say and call the same, and differ at most in fields that one of them leaves empty."""
    if not (accepts(one) and accepts(other)):
        return False
    pairs = ((key, one.get(key) or None, other.get(key) or None) for key in one.keys() | other.keys())
    return all(is_same(a, b) or (key not in _SAID and None in (a, b)) for key, a, b in pairs)


# -- messages to events -----------------------------------------------------------------------------------------------

_PARTS = frozenset(("text", "image_url", "input_audio", "file", "refusal"))


def _is_odd(content: Any) -> bool:
    """Return whether a content has parts that OpenAI does not define."""
    types = (part.get("type") for part in dicts_in(content))
    return any(type(each) is str and each not in _PARTS for each in types)


class OpenAIChatDecoder(FollowingDecoder):
    """Messages of one history to events: one, or one for each call that a message makes or answers."""

    keeps_shown = False
    expected = "a message object"
    lacks = "text under 'role', which every chat message has"
    accepts = staticmethod(accepts)

    def __init__(self, dialect: OpenAI, options: Options) -> None:
        super().__init__(options)
        self._dialect = dialect

    def begun(self, record: dict[str, Any]) -> RecordEvents:
        timestamp, time = read_time(record.get("timestamp"))
        read = RecordEvents(self, Origin(format=self._dialect.format, id=record.get("id"), time=time), timestamp)
        read.response = f"message-{self.next_id}"
        return read

    def read(self, read: RecordEvents, record: dict[str, Any]) -> None:
        if _is_odd(record.get("content")) and (foreign := lookalike_of_record(record, NAME)) is not None:
            self.options.findings.append(
                f"is a message of {foreign.name}; it is kept, and calls and results in it are not shown"
            )
        content, role = _content(record.get("content")), record["role"]
        if role in ("system", "developer"):
            read.add(SystemMessage, content=content)
        elif role in ("tool", "function"):
            self._read_results(read, record, content)
        elif role != "assistant" or not self._read_calls(read, record, content):
            source = self._dialect.speaker(record)
            thinking = tuple(dicts_in(record.get("thinking_blocks"))) if source == "agent" else ()
            read.add(Message, content=content, source=source, thinking=thinking)
        self._dialect.remember(record)

    def _read_calls(self, read: RecordEvents, record: dict[str, Any], thought: Content) -> bool:
        """Add the calls of a message, if it has any: in the time before there were tools, the call of a function."""
        calls, function = record.get("tool_calls"), record.get("function_call")
        read.thinking = dicts_in(record.get("thinking_blocks"))
        if type(function) is dict and not calls:
            calls = [{"function": function}]
        if type(calls) is list and calls and len(dicts_in(calls)) == len(calls):
            for call in calls:
                called = dict_or_empty(call.get("function"))
                call_id = call["id"] if type(call.get("id")) is str else called.get("name")
                read.call(called.get("name"), called.get("arguments"), call_id, thought)
                thought = ""
        return bool(read.events)

    def _read_results(self, read: RecordEvents, record: dict[str, Any], content: Content) -> None:
        call_ids: Sequence[str | None] = self._dialect.answers(record)
        tool = text_or_empty(record.get("name")) or text_or_empty(record.get("tool_name"))
        for call_id in call_ids or [None]:
            read.answer(self.calls.of_result(call_id, tool), content, tool=tool)
            content = ""


def _content(value: Any) -> Content:
    """Return text or parts unchanged; any other value is not content."""
    if type(value) is list and all(type(part) is dict for part in value):
        return tuple(value)
    return text_or_empty(value)


# -- events to messages -----------------------------------------------------------------------------------------------


class OpenAIChatEncoder(RecordEncoder):
    """Events of one history to messages: parallel calls are one message."""

    def __init__(self, dialect: OpenAI | None = None) -> None:
        self._dialect = dialect or OpenAI()
        self._calls: list[Event] = []

    def records(self, event: Event) -> list[Any] | None:
        if isinstance(event, NOT_WRITTEN):
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
        message["tool_call_id"] = call_id_of(event)
    return message | dict_or_empty(event.meta.get("message"))


def _call(action: Action) -> dict[str, Any]:
    arguments = action.arguments if isinstance(action.arguments, str) else arguments_of(action)
    function = {"name": action.tool, "arguments": arguments}
    return dict_or_empty(action.meta.get("call")) | {"id": call_id_of(action), "type": "function", "function": function}


FORMAT = Format(
    name=NAME,
    matches=matches,
    accepts=accepts,
    decoder=lambda records, options: OpenAIChatDecoder(OpenAI(), options),
    encoder=OpenAIChatEncoder,
    beside=beside,
    alike=alike,
    live=True,
    source_id=member("id"),
    marks_errors=False,
)
