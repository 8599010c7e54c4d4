"""Encode events as V1 records: the fields that an event gives, and the record itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    DocumentChanges,
    Event,
    Message,
    Observation,
    Redaction,
    Retraction,
    SystemMessage,
    UnknownEvent,
    summary_of,
)
from foldlog.formats.format import name_left_out
from foldlog.formats.key_order import KeyOrder
from foldlog.formats.openhands_v1.blocks import blocks_of, split
from foldlog.formats.recent import Recent
from foldlog.formats.record import rest_of, time_text
from foldlog.formats.source_ids import SourceIds

NAME = "openhands-v1"

ANSWERS = {
    "ObservationEvent": "observation",
    "UserRejectObservation": "rejection_reason",
    "AgentErrorEvent": "error",
}
"""Kinds of observations, and the field of each that holds the result."""

PROMPT_UPDATE = "SystemPromptUpdateEvent"
"""The kind of a system prompt that replaces the one before it."""

SUMMARY = "-summary"
"""The ending of the id of a condensation's summary, after the condensation's id."""

_CAUSES_MAX = 10_000
"""An action waits for its result during this many events; after that the two are not paired."""


Marks = dict[str, Any]
MARKS = ("kind", "text", "plain", "nested", "extended", "replaces")
"""Keys of ``origin.rest``, by which the record is predicted. Each names its kind of event and its value:

    kind      an Observation: its kind, if not an ObservationEvent; a SystemMessage: if it is an update
    text      an ObservationEvent: the key of ``observation`` that is its content; "" if content is all of it, as JSON
    plain     its content is a text, not a list of blocks
    nested    an Action: its call stands in ``tool_call.function``, as in the first releases
    extended  a Message: how many of its last parts are ``extended_content``; a SystemMessage: ``dynamic_context``
    replaces  a CondensationAction has no record: it forgets the system prompt that the next record updates
"""


class EventsBefore:
    """What decoding and encoding know of earlier events: the action of each observation, and its id."""

    def __init__(self, next_id: int = 0) -> None:
        self.key_order = KeyOrder()
        self.next_id = next_id
        self._event_ids: Recent[str, int] = Recent(_CAUSES_MAX)
        self._source_ids: Recent[int, str] = Recent(_CAUSES_MAX)
        self._calls: Recent[str, int] = Recent(_CAUSES_MAX)

    def event_id(self, source_id: Any) -> int | None:
        return self._event_ids.get(source_id) if type(source_id) is str else None

    def source_id(self, event_id: int) -> str | None:
        return self._source_ids.get(event_id)

    def caller(self, call_id: str | None) -> int | None:
        """Return the last action with this call id."""
        return None if call_id is None else self._calls.get(call_id)

    def add(self, event: Event, source_id: Any) -> None:
        """Remember ``event``, unless it is bookkeeping: most events of a log are bookkeeping, and no event answers
        them.
        """
        if type(source_id) is str and type(event) is not Annotation:
            self._event_ids[source_id] = self.next_id
            self._source_ids[self.next_id] = source_id
        if type(event) is Action and event.call_id is not None:
            self._calls[event.call_id] = self.next_id
        self.next_id += 1

    def add_written(self, event: Event, source_id: Any) -> None:
        """Remember the parts of ``event`` that an encoder needs."""
        if type(source_id) is str and type(event) is not Annotation:
            self._source_ids[self.next_id] = source_id
        self.next_id += 1


class OpenHandsV1Encoder:
    """Events of one history to records, as ``OpenHandsV1Decoder`` read them. Later events get ids of their own."""

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        self._before = EventsBefore()
        self._source_ids = SourceIds()

    def records(self, event: Event) -> list[Any]:
        """Return the record of ``event``; a retraction and changes of documents have no record."""
        if (name := name_left_out(event)) is not None:
            self.left_out[name] += 1
            self._before.add_written(event, None)
            self._source_ids.add(None)
            return []
        rest = {} if event.origin is None else rest_of(event, NAME)
        marks = {mark: rest[mark] for mark in MARKS if mark in rest} if rest else {}
        if "replaces" in marks:
            self._before.add_written(event, None)
            self._source_ids.add(None)
            return []
        record = predicted(event, marks, self._before)
        if type(event) is CondensationAction and event.origin is None:
            record["forgotten_event_ids"] = self._forgotten(event)
        if event.origin is not None:
            record = self._before.key_order.record(record, rest, [event])
        self._before.add_written(event, record.get("id"))
        self._source_ids.add(record.get("id"))
        return [record]

    def restart(self, next_id: int) -> None:
        self._before = EventsBefore(next_id)

    def _forgotten(self, event: CondensationAction) -> list[Any]:
        """Return the ids of the source that a condensation made by foldlog forgets."""
        intervals, summaries = event.forgotten
        ids = [self._source_ids[i] for first, last in intervals for i in range(first, last + 1)]
        return [*ids, *(f"{self._source_ids[summary_of(i)]}{SUMMARY}" for i in summaries)]

    def end(self) -> list[Any]:
        """Return nothing: each event is a record."""
        return []


def predicted(event: Event, marks: Marks, before: EventsBefore) -> dict[str, Any]:
    """Predict the record of ``event`` from its fields and the events before it."""
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
            said, extended = split(event.content, marks.get("extended", 0))
            role = "assistant" if event.source == "agent" else "user"
            record["llm_message"] = {"role": role, "content": blocks_of(said)}
            record["extended_content"] = blocks_of(extended)
        case SystemMessage():
            record["kind"] = marks.get("kind", "SystemPromptEvent")
            prompt, context = split(event.content, marks.get("extended", 0))
            record["tools"] = list(event.tools)
            for key, content in (("system_prompt", prompt), ("dynamic_context", context)):
                blocks = blocks_of(content)
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
        case UnknownEvent() | Retraction() | Redaction() | DocumentChanges():
            pass
    return record


def _predict_action(event: Action, marks: Marks, record: dict[str, Any]) -> None:
    record["kind"], record["tool_name"], record["thought"] = "ActionEvent", event.tool, blocks_of(event.thought)
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


def _predict_observation(event: Observation, marks: Marks, before: EventsBefore, record: dict[str, Any]) -> None:
    kind = marks.get("kind", "ObservationEvent")
    if kind == "MessageEvent":
        said = {"role": "tool", "content": blocks_of(event.content), "tool_call_id": event.call_id}
        record["kind"], record["llm_message"] = kind, {**said, "name": event.tool}
        return
    record["kind"], record["tool_name"] = kind, event.tool
    if event.call_id is not None:
        record["tool_call_id"] = event.call_id
    if kind != "AgentErrorEvent" and event.cause is not None:
        action_id = before.source_id(event.cause)
        if action_id is not None:
            record["action_id"] = action_id
    if kind != "ObservationEvent":
        record[ANSWERS[kind]] = event.content
    elif marks.get("text") == "" and isinstance(event.content, str):
        record["observation"] = msgspec.json.decode(event.content)
    else:
        content = event.content if marks.get("plain") else blocks_of(event.content)
        record["observation"] = {**event.extras, marks.get("text", "content"): content}
        if event.origin is None and event.is_error:
            record["observation"]["is_error"] = True


def _predict_condensation(event: CondensationAction, before: EventsBefore, record: dict[str, Any]) -> None:
    record["kind"] = "Condensation"
    record["forgotten_event_ids"] = [
        before.source_id(event_id) if event_id >= 0 else f"{before.source_id(summary_of(event_id))}{SUMMARY}"
        for event_id in event.forgotten_event_ids or ()
    ]
    if event.summary is not None:
        record["summary"], record["summary_offset"] = event.summary, event.summary_offset
