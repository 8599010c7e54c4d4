"""Chat messages to events."""

from __future__ import annotations

from typing import Any

from foldlog._formats.calls import OpenCalls
from foldlog._formats.format import Options
from foldlog._formats.lookalikes import lookalike_of_record
from foldlog._formats.openai_chat.dialect import NAME, OpenAI
from foldlog._formats.record import NotAnEvent, dict_or_empty, dicts_in, read_time, refused, text_or_empty
from foldlog._formats.record_events import FollowingDecoder, RecordEvents
from foldlog.eventstore import Content, Message, Observation, Origin, SystemMessage

_PARTS = frozenset(("text", "image_url", "input_audio", "file", "refusal"))


def _is_odd(content: Any) -> bool:
    """Return whether a content has parts that OpenAI does not define."""
    types = (part.get("type") for part in dicts_in(content))
    return any(type(each) is str and each not in _PARTS for each in types)


class OpenAIChatDecoder(FollowingDecoder):
    """Messages of one history to events: one, or one for each call that a message makes or answers."""

    def __init__(self, dialect: OpenAI, options: Options) -> None:
        super().__init__(options)
        self._dialect = dialect
        self._functions = OpenCalls()

    def check(self, record: Any) -> None:
        if type(record) is not dict:
            raise refused("a message object", record)
        if type(record.get("role")) is not str:
            raise NotAnEvent("the object has no text under 'role', which every chat message has")

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
            thinking = _thinking(record) if source == "agent" else ()
            read.add(Message, content=content, source=source, thinking=thinking)
        self._dialect.remember(record)

    def _read_calls(self, read: RecordEvents, record: dict[str, Any], thought: Content) -> bool:
        """Add the calls of a message, if it has any: in the time before there were tools, the call of a function."""
        calls, function = record.get("tool_calls"), record.get("function_call")
        read.thinking = list(_thinking(record))
        if type(calls) is list and calls and len(dicts_in(calls)) == len(calls):
            for call in calls:
                called = dict_or_empty(call.get("function"))
                read.call(called.get("name"), called.get("arguments"), call.get("id"), thought)
                thought = ""
        elif type(function) is dict and not calls:
            action = read.call(function.get("name"), function.get("arguments"), None, thought)
            self._functions.open(action, action.tool)
        return bool(read.events)

    def _read_results(self, read: RecordEvents, record: dict[str, Any], content: Content) -> None:
        tool = text_or_empty(record.get("name"))
        for call_id in (call_ids := self._dialect.answers(record)):
            _, cause, called = self.calls.close(call_id)
            read.add(Observation, content=content, tool=tool or called, call_id=call_id, cause=cause)
            content = ""
        if not call_ids:
            _, cause, called = self._functions.close(tool if record["role"] == "function" else None)
            read.add(Observation, content=content, tool=tool or called, cause=cause)


def _content(value: Any) -> Content:
    """Return text or parts unchanged; any other value is not content."""
    if type(value) is list and all(type(part) is dict for part in value):
        return tuple(value)
    return text_or_empty(value)


def _thinking(record: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    blocks = record.get("thinking_blocks")
    return tuple(blocks) if type(blocks) is list and all(type(block) is dict for block in blocks) else ()
