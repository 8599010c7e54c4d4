"""OpenHands V1: event objects told apart by ``kind``, with ids of text.

What a record says, and where it goes:

    SystemPromptEvent                                      SystemMessage
    MessageEvent                                           Message
    ActionEvent                                            Action, its arguments the text that the model wrote
    ObservationEvent, UserRejectObservation, AgentErrorEvent   Observation
    CondensationSummaryEvent                               CondensationSummary, an ordinary event
    Condensation                                           CondensationAction, in our ids (dialect "ordered")
    CondensationRequest                                    CondensationRequest
    every other kind, known or not                         Annotation

Events that branch off (``parent_id``) are a tree: the branch that ends in the leaf is shown and acts; the others are
kept, not shown, and a condensation on one of them is an Annotation, since it changes nothing.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import msgspec
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
    summary_id,
    summary_of,
)
from foldlog.formats.delta import apply, object_delta
from foldlog.formats.recent import Recent
from foldlog.formats.record import NotAnEvent, described, read_time, rest_of, time_text

__all__ = ["FORMAT", "Decoder", "Encoder", "outside_branch"]

FORMAT = "openhands-v1"

_SOURCES: dict[str, Source] = {"user": "user", "agent": "agent", "environment": "environment", "hook": "environment"}
_USUAL_SOURCE: dict[str, Source] = {
    "SystemPromptEvent": "agent",
    "ActionEvent": "agent",
    "AgentErrorEvent": "agent",
    "ACPToolCallEvent": "agent",
    "PauseEvent": "user",
    "InterruptEvent": "user",
}
_SPEAKERS: dict[Any, Source] = {"user": "user", "assistant": "agent"}
_OBSERVATIONS = {
    "ObservationEvent": "observation",
    "UserRejectObservation": "rejection_reason",
    "AgentErrorEvent": "error",
}
"""Kinds that answer a tool call, and where the answer stands."""

_Marks = dict[str, Any]
_CAUSES_MAX = 10_000
"""An answer that comes more than so many events after its action is not paired with it."""

_MARKS = ("kind", "text", "plain", "nested", "extended")
"""What of ``origin.rest`` is no difference but says how to predict the record:

    kind      an Observation: its kind, where it is no ObservationEvent
    text      an ObservationEvent: the key of ``observation`` that is its content; "" if content is all of it, as JSON
    plain     its content is a text, not a list of blocks
    nested    an Action: its call stands in ``tool_call.function``, as in the first releases
    extended  a Message: how many of its last parts are ``extended_content``; a SystemMessage: ``dynamic_context``
"""
_SUMMARY = "-summary"
"""What the id of a condensation's summary has after the condensation's id."""
_NOT_A_STEP = frozenset({"ConversationStateUpdateEvent", "ConversationErrorEvent"})
"""Kinds that no leaf is."""
_ROOT = "__root__"


class _Before:
    """What decoding and encoding both know of the events before: whom an answer answers, and by which id."""

    def __init__(self) -> None:
        self.next_id = 0
        self._event_ids: Recent[str, int] = Recent(_CAUSES_MAX)
        self._source_ids: Recent[int, str] = Recent(_CAUSES_MAX)
        self._calls: Recent[str, int] = Recent(_CAUSES_MAX)

    def event_id(self, source_id: Any) -> int | None:
        return self._event_ids.get(source_id) if type(source_id) is str else None

    def source_id(self, event_id: int) -> str | None:
        return self._source_ids.get(event_id)

    def caller(self, call_id: str | None) -> int | None:
        """The last action with this call id."""
        return None if call_id is None else self._calls.get(call_id)

    def add(self, event: Event, source_id: Any) -> None:
        """Remember ``event``, unless it is bookkeeping, of which most logs consist and which nobody answers."""
        if type(source_id) is str and type(event) is not Annotation:
            self._event_ids[source_id] = self.next_id
            self._source_ids[self.next_id] = source_id
        if type(event) is Action and event.call_id is not None:
            self._calls[event.call_id] = self.next_id
        self.next_id += 1


class Decoder:
    """Records of one history to events, one record after the other.

    ``outside`` says which records, by their number, are not on the active branch (``outside_branch``).
    """

    def __init__(self, *, outside: Container[int] = ()) -> None:
        self._outside = outside
        self._before = _Before()
        self._forgettable: dict[str, list[int]] = {}
        """Source id to ours, for what a View can hold. A forgotten id is done with, so this is as large as a View."""
        self._record_number = -1

    def events(self, record: Any) -> list[Event]:
        """The event of the next record. Raises ``NotAnEvent`` where it is none."""
        self._record_number += 1
        if type(record) is not dict:
            raise NotAnEvent(f"expected an event object, found {described(record)}")
        kind = record.get("kind")
        if type(kind) is not str:
            raise NotAnEvent("an event has a text under 'kind', this object has none")
        before = self._before
        timestamp, time = read_time(record.get("timestamp"))
        origin = Origin(format=FORMAT, id=record.get("id"), time=time)
        source = record.get("source")
        fields: dict[str, Any] = {
            "id": before.next_id,
            "timestamp": timestamp,
            "origin": origin,
            "source": (_SOURCES.get(source) if type(source) is str else None) or _USUAL_SOURCE.get(kind, "environment"),
            "shown": self._record_number not in self._outside,
        }
        marks: _Marks = {}
        event = self._built(kind, record, fields, marks)
        difference = object_delta(_predicted(event, marks, before), record)
        if marks or difference:
            force_setattr(origin, "rest", {**marks, **(difference or {})})  # it is ours alone until it is returned
        before.add(event, origin.id)
        if event.shown and type(origin.id) is str:
            self._forgettable.setdefault(origin.id, []).append(event.id)
        return [event]

    def _built(self, kind: str, record: dict[str, Any], fields: dict[str, Any], marks: _Marks) -> Event:
        match kind:
            case "MessageEvent":
                return _message(record, fields, marks)
            case "ActionEvent":
                return _action(record, fields, marks)
            case "ObservationEvent" | "UserRejectObservation" | "AgentErrorEvent":
                return self._observation(kind, record, fields, marks)
            case "SystemPromptEvent":
                return _system(record, fields, marks)
            case "CondensationSummaryEvent":
                return CondensationSummary(content=_text(record.get("summary")), **fields)
            case "Condensation" if fields["shown"]:
                return self._condensation(record, {**fields, "shown": False})
            case "CondensationRequest" if fields["shown"]:
                return CondensationRequest(**{**fields, "shown": False})
        taken = ("kind", "id", "timestamp", "source")
        data = {key: value for key, value in record.items() if key not in taken}
        return Annotation(name=kind, data=data, **{**fields, "shown": False})

    def _observation(self, kind: str, record: dict[str, Any], fields: dict[str, Any], marks: _Marks) -> Observation:
        call_id = record.get("tool_call_id")
        call_id = call_id if type(call_id) is str else None
        cause = self._before.event_id(record.get("action_id"))
        fields["cause"] = self._before.caller(call_id) if cause is None else cause
        fields["call_id"] = call_id
        fields["tool"] = _text(record.get("tool_name"))
        if kind != "ObservationEvent":
            marks["kind"] = kind
            answer = _text(record.get(_OBSERVATIONS[kind]))
            return Observation(content=answer, is_error=kind == "AgentErrorEvent", **fields)
        observation = record.get("observation")
        if type(observation) is not dict:
            return Observation(content="", **fields)
        content, extras = _observed(observation, marks)
        return Observation(content=content, extras=extras, is_error=observation.get("is_error") is True, **fields)

    def _condensation(self, record: dict[str, Any], fields: dict[str, Any]) -> CondensationAction:
        """In our ids: every earlier event with a forgotten id, and the summary of X for "X-summary"."""
        forgotten = record.get("forgotten_event_ids")
        names = [name for name in forgotten if type(name) is str] if type(forgotten) is list else []
        ids = [event_id for name in names for event_id in self._forgettable.pop(name, ())]
        summary, offset = record.get("summary"), record.get("summary_offset")
        if type(summary) is str and type(offset) is int:
            fields["summary"], fields["summary_offset"] = summary, offset
            if type(record.get("id")) is str:
                self._forgettable.setdefault(record["id"] + _SUMMARY, []).append(summary_id(fields["id"]))
        return CondensationAction(forgotten_event_ids=tuple(ids), **fields)


class Encoder:
    """Events of one history to records, as ``Decoder`` read them. Events that were added since get ids of their own."""

    def __init__(self) -> None:
        self._before = _Before()
        self._source_ids: list[Any] = []

    def records(self, event: Event) -> list[Any]:
        """The record of ``event``."""
        rest = rest_of(event, FORMAT)
        marks = {mark: rest[mark] for mark in _MARKS if mark in rest}
        predicted = _predicted(event, marks, self._before)
        if type(event) is CondensationAction and event.origin is None:
            predicted["forgotten_event_ids"] = self._forgotten(event)
        record = apply(predicted, rest)
        self._before.add(event, record.get("id"))
        self._source_ids.append(record.get("id"))
        return [record]

    def _forgotten(self, event: CondensationAction) -> list[Any]:
        """What a condensation of ours forgets, in the source's ids."""
        intervals, summaries = event.forgotten
        ids = [self._source_ids[i] for first, last in intervals for i in range(first, last + 1)]
        return [*ids, *(f"{self._source_ids[summary_of(i)]}{_SUMMARY}" for i in summaries)]

    def end(self) -> list[Any]:
        """Nothing: each event is a record."""
        return []


def outside_branch(records: Iterable[Any], leaf: str | None = None) -> Container[int]:
    """Numbers of the records that are not on the branch which ends in ``leaf``.

    Where no leaf is named it is the last event that is neither a state update nor a conversation error. ``records`` is
    read twice where the log branches, so it is no one-shot iterator. Cost: one pass; memory that does not grow unless
    the log branches, and then an id for each event.
    """
    return () if _is_linear(records, leaf) else _outside(records, leaf)


def _is_linear(records: Iterable[Any], leaf: str | None) -> bool:
    """Whether every event says it follows the one before it, and the last step is the leaf."""
    last: str | None = None
    last_step: str | None = None
    for record in records:
        if type(record) is not dict:
            continue
        parent = record.get("parent_id")
        if parent == _ROOT:
            if last is not None:
                return False
        elif type(parent) is str and parent != last and parent != last_step:
            return False
        last = record.get("id")
        if record.get("kind") not in _NOT_A_STEP:
            last_step = last
    return leaf is None or leaf in (last, last_step)


def _outside(records: Iterable[Any], leaf: str | None) -> Container[int]:
    numbers: dict[str, int] = {}
    parents: dict[int, int] = {}
    previous = last_step = None
    for number, record in enumerate(records):
        if type(record) is not dict:
            continue
        parent = record.get("parent_id")
        # An old log says no parents: each event follows the one before it. The root's name is no event's id.
        above = numbers.get(parent) if type(parent) is str else previous
        if above is not None:
            parents[number] = above
        if type(record.get("id")) is str:
            numbers[record["id"]] = number
        if record.get("kind") not in _NOT_A_STEP:
            last_step = number
        previous = number
    tip = numbers.get(leaf, last_step) if leaf is not None else last_step
    branch = set()
    while tip is not None and tip not in branch:
        branch.add(tip)
        tip = parents.get(tip)
    return _AllBut(branch)


class _AllBut:
    def __init__(self, members: set[int]) -> None:
        self._members = members

    def __contains__(self, number: object) -> bool:
        return number not in self._members


def _text(value: Any) -> str:
    return value if type(value) is str else ""


def _message(record: dict[str, Any], fields: dict[str, Any], marks: _Marks) -> Message:
    said = record.get("llm_message")
    said = said if type(said) is dict else {}
    content = _content(said.get("content"))
    extended = _content(record.get("extended_content"))
    if extended:
        parts = _parts(extended)
        content = (*_parts(content), *parts)
        marks["extended"] = len(parts)
    if type(record.get("source")) is not str:
        role = said.get("role")
        fields["source"] = _SPEAKERS.get(role, "environment") if type(role) is str else "environment"
    return Message(content=content, **fields)


def _system(record: dict[str, Any], fields: dict[str, Any], marks: _Marks) -> SystemMessage:
    content = _content([record.get("system_prompt")])
    context = _content([record.get("dynamic_context")])
    if context:
        parts = _parts(context)
        content = (*_parts(content), *parts)
        marks["extended"] = len(parts)
    tools = record.get("tools")
    return SystemMessage(content=content, tools=tuple(tools) if type(tools) is list else (), **fields)


def _action(record: dict[str, Any], fields: dict[str, Any], marks: _Marks) -> Action:
    call = record.get("tool_call")
    call = call if type(call) is dict else {}
    arguments = call.get("arguments")
    function = call.get("function")
    if type(arguments) is not str and type(function) is dict:
        marks["nested"] = True
        arguments = function.get("arguments")
    if type(arguments) is not str:
        marks.pop("nested", None)
        done = record.get("action")
        arguments = {key: value for key, value in done.items() if key != "kind"} if type(done) is dict else None
    call_id, response_id, thinking = (record.get(key) for key in ("tool_call_id", "llm_response_id", "thinking_blocks"))
    return Action(
        tool=_text(record.get("tool_name")),
        arguments=arguments,
        call_id=call_id if type(call_id) is str else None,
        response_id=response_id if type(response_id) is str else None,
        thought=_content(record.get("thought")),
        thinking=tuple(thinking) if type(thinking) is list and all(type(block) is dict for block in thinking) else (),
        **fields,
    )


_TEXT_KEYS = ("content", "output", "stdout", "message")
"""Where tools of different releases put what the model is shown."""


def _observed(observation: dict[str, Any], marks: _Marks) -> tuple[Content, dict[str, Any]]:
    """The content of an observation and the rest of it."""
    for key in _TEXT_KEYS:
        value = observation.get(key)
        if type(value) is str or (type(value) is list and _is_blocks(value)):
            if key != "content":
                marks["text"] = key
            if type(value) is str:
                marks["plain"] = True
            content = value if type(value) is str else _content(value)
            return content, {name: item for name, item in observation.items() if name != key}
    try:
        content = msgspec.json.encode(observation).decode()
    except (ValueError, RecursionError):
        return "", observation  # text that is no Unicode: there is no JSON of it
    marks["text"] = ""
    return content, {}


def _is_blocks(value: list[Any]) -> bool:
    return all(type(block) is dict and type(block.get("type")) is str for block in value)


def _content(blocks: Any) -> Content:
    """Content blocks as content: one text as it is, more of them as parts. What is no text and no image is left out."""
    if type(blocks) is not list:
        return _text(blocks)
    parts: list[dict[str, Any]] = []
    for block in blocks:
        if type(block) is not dict:
            continue
        if block.get("type") == "text" and type(block.get("text")) is str:
            parts.append({"type": "text", "text": block["text"]})
        elif block.get("type") == "image" and type(block.get("image_urls")) is list:
            urls = (url for url in block["image_urls"] if type(url) is str)
            parts.extend({"type": "image_url", "image_url": {"url": url}} for url in urls)
    if len(parts) == 1 and "text" in parts[0]:
        text: str = parts[0]["text"]
        return text
    return tuple(parts) if parts else ""


def _parts(content: Content) -> tuple[dict[str, Any], ...]:
    if isinstance(content, str):
        return ({"type": "text", "text": content},) if content else ()
    return content


def _blocks(content: Content) -> list[dict[str, Any]]:
    """Content as the blocks that it most likely comes from: images side by side were one block."""
    blocks: list[dict[str, Any]] = []
    for part in _parts(content):
        if part.get("type") == "image_url":
            url = part["image_url"]["url"]
            if blocks and "image_urls" in blocks[-1]:
                blocks[-1]["image_urls"].append(url)
            else:
                blocks.append({"type": "image", "image_urls": [url]})
        else:
            blocks.append(dict(part))
    return blocks


def _split(content: Content, last: int) -> tuple[Content, Content]:
    """Content without its ``last`` parts, and these."""
    parts = _parts(content)
    return (parts[:-last], parts[-last:]) if last else (content, ())


def _predicted(event: Event, marks: _Marks, before: _Before) -> dict[str, Any]:
    """The record that ``event`` seems to come from, as far as its fields and the events before it tell."""
    record: dict[str, Any] = {"source": event.source}
    origin = event.origin
    if origin is None:
        record["id"] = f"{before.next_id:08x}-0000-4000-8000-000000000000"
    elif origin.id is not None:
        record["id"] = origin.id
    time = time_text(event.timestamp, origin)
    if time is not None:
        record["timestamp"] = time
    match event:
        case Action():
            _predict_action(event, marks, record)
        case Observation():
            _predict_observation(event, marks, before, record)
        case Message():
            record["kind"] = "MessageEvent"
            said, extended = _split(event.content, marks.get("extended", 0))
            role = "assistant" if event.source == "agent" else "user"
            record["llm_message"] = {"role": role, "content": _blocks(said)}
            record["extended_content"] = _blocks(extended)
        case SystemMessage():
            record["kind"] = "SystemPromptEvent"
            prompt, context = _split(event.content, marks.get("extended", 0))
            record["tools"] = list(event.tools)
            for key, content in (("system_prompt", prompt), ("dynamic_context", context)):
                blocks = _blocks(content)
                if blocks:
                    record[key] = blocks[0]
        case Annotation():
            record["kind"] = event.name
            record.update(event.data if isinstance(event.data, dict) else {"value": event.data})
        case CondensationAction():
            _predict_condensation(event, before, record)
        case CondensationSummary():
            record["kind"], record["summary"] = "CondensationSummaryEvent", event.content
        case CondensationRequest():
            record["kind"] = "CondensationRequest"
        case UnknownEvent():
            pass
    return record


def _predict_action(event: Action, marks: _Marks, record: dict[str, Any]) -> None:
    record["kind"], record["tool_name"], record["thought"] = "ActionEvent", event.tool, _blocks(event.thought)
    if event.thinking:
        record["thinking_blocks"] = list(event.thinking)
    if event.response_id is not None:
        record["llm_response_id"] = event.response_id
    if event.call_id is not None:
        record["tool_call_id"] = event.call_id
    arguments = event.arguments
    if isinstance(arguments, dict):
        record["action"] = dict(arguments)
        if event.origin is None:
            arguments = msgspec.json.encode(arguments).decode()
    if isinstance(arguments, str):
        call = {"name": event.tool, "arguments": arguments}
        if marks.get("nested"):
            record["tool_call"] = {"id": event.call_id, "type": "function", "function": call}
        else:
            record["tool_call"] = {"id": event.call_id, "origin": "completion", **call}


def _predict_observation(event: Observation, marks: _Marks, before: _Before, record: dict[str, Any]) -> None:
    kind = marks.get("kind", "ObservationEvent")
    record["kind"], record["tool_name"] = kind, event.tool
    if event.call_id is not None:
        record["tool_call_id"] = event.call_id
    if kind != "AgentErrorEvent" and event.cause is not None:
        action_id = before.source_id(event.cause)
        if action_id is not None:
            record["action_id"] = action_id
    if kind != "ObservationEvent":
        record[_OBSERVATIONS[kind]] = event.content
    elif marks.get("text") == "" and isinstance(event.content, str):
        record["observation"] = msgspec.json.decode(event.content)
    else:
        content = event.content if marks.get("plain") else _blocks(event.content)
        record["observation"] = {**event.extras, marks.get("text", "content"): content}


def _predict_condensation(event: CondensationAction, before: _Before, record: dict[str, Any]) -> None:
    record["kind"] = "Condensation"
    record["forgotten_event_ids"] = [
        before.source_id(event_id) if event_id >= 0 else f"{before.source_id(summary_of(event_id))}{_SUMMARY}"
        for event_id in event.forgotten_event_ids or ()
    ]
    if event.summary is not None:
        record["summary"], record["summary_offset"] = event.summary, event.summary_offset
