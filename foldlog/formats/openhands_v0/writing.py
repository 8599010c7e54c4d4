"""Encode events as V0 records: the fields that an event gives, and the record itself."""

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
    Entry,
    Event,
    InvalidEvent,
    Message,
    Observation,
    Redaction,
    Retraction,
    SystemMessage,
    UnknownEvent,
)
from foldlog.formats.format import name_left_out
from foldlog.formats.key_order import KeyOrder
from foldlog.formats.openhands_v0.memory import parsed
from foldlog.formats.openhands_v0.recalled import with_texts
from foldlog.formats.recent import Recent
from foldlog.formats.record import rest_of, time_text
from foldlog.formats.source_ids import SourceIds

NAME = "openhands-v0"

OBSERVED_BOOKKEEPING = frozenset({"null", "agent_state_changed"})
"""Observations that are bookkeeping in a stream."""

_CAUSES_MAX = 10_000
"""An action waits for its result during this many events; after that the two are not paired."""
_RESPONSES_MAX = 32
"""A model response is stored with the first event that carries it; events that repeat it soon after refer to it."""

Marks = dict[str, Any]
"""Keys of ``origin.rest`` that say how to predict the record:

    list    this event and the next n-1 stand in one array
    flat    arguments or extras stand beside the other keys
    text    a finish: the name of the argument that is the Message's content
    images  the name of the argument, in its old spelling, or of the extra, whose URLs are the content's images
    as      an Annotation: whether an action or an observation, where its name does not tell
    action  an Action: its arguments are the text that the model wrote; the action's name
    named   an Action: its tool is the function that the model called; the action's name
    told    an Action: its thought is what the model is told of it, and not an argument
    said    an Observation, or a Message made of one: from and to which character of the content the record's stands
    spans   an Observation: from and to which character of the content long texts of its extras stand, by their paths
    observed  a Message: the name of the observation that it was made of
"""
MARKS = (
    *("list", "flat", "text", "images", "as"),
    *("action", "named", "told", "said", "spans", "observed"),
)


class RecordsBefore:
    """What decoding and encoding know of earlier events: enough to predict the parts that a record repeats."""

    def __init__(self) -> None:
        self.key_order = KeyOrder()
        self.next_id = 0
        self.free_source_id = 0
        self.event_ids: Recent[int | str, int] = Recent(_CAUSES_MAX)
        self._source_ids: Recent[int, int | str] = Recent(_CAUSES_MAX)
        self._calls: Recent[str, dict[str, Any]] = Recent(_RESPONSES_MAX)
        self._responses: Recent[str, Any] = Recent(_RESPONSES_MAX)
        self._by_user: Recent[int, bool] = Recent(_CAUSES_MAX)

    def source_id(self, event_id: int) -> int | str | None:
        return self._source_ids.get(event_id)

    def is_by_user(self, event_id: int) -> bool:
        """Return whether an earlier action was not the agent's own."""
        return self._by_user.get(event_id) is not None

    def call_metadata(self, event: Action | Observation, *, as_written: bool = False) -> dict[str, Any] | None:
        """Return the ``tool_call_metadata`` that the record of ``event`` most likely has.

        ``as_written``: the action's arguments are the text of its call.
        """
        if event.call_id is None:
            return None
        if isinstance(event, Observation):
            return self._calls.get(event.call_id) or {"tool_call_id": event.call_id}
        metadata: dict[str, Any] = {"tool_call_id": event.call_id}
        if as_written:
            metadata |= {"function_name": event.tool, "total_calls_in_response": 1}
        if event.response_id is not None:
            known = self._responses.get(event.response_id)
            metadata["model_response"] = known or _response(event, as_written=as_written)
        return metadata

    def add(self, event: Event, record: dict[str, Any]) -> None:
        """Remember ``event``, whose record is ``record``."""
        if type(event) is Action and event.call_id is not None:
            metadata = record["tool_call_metadata"]
            self._calls[event.call_id] = metadata
            if event.response_id is not None:
                self._responses[event.response_id] = metadata["model_response"]
        if type(event) is Action and event.source != "agent":
            self._by_user[self.next_id] = True
        source_id = record.get("id")
        if type(source_id) is int or type(source_id) is str:
            self._source_ids[self.next_id] = source_id
            self.event_ids[source_id] = self.next_id
        if type(source_id) is int:
            self.free_source_id = max(self.free_source_id, source_id + 1)
        self.next_id += 1


def _response(action: Action, *, as_written: bool) -> dict[str, Any]:
    """Return the model's response that most likely holds the call of ``action``."""
    response: dict[str, Any] = {"id": action.response_id}
    if as_written:
        function = {"arguments": action.arguments, "name": action.tool}
        call = {"function": function, "id": action.call_id, "type": "function"}
        said = action.thought if isinstance(action.thought, str) and action.thought else None
        message = {"content": said, "role": "assistant", "tool_calls": [call], "function_call": None}
        response["choices"] = [{"finish_reason": "tool_calls", "index": 0, "message": message}]
        response["object"] = "chat.completion"
    return response


class OpenHandsV0Encoder:
    """Events of one history to records, as ``OpenHandsV0Decoder`` read them. Later events get the next ids."""

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        self._before = RecordsBefore()
        self._source_ids = SourceIds()
        self._array: list[dict[str, Any]] = []
        self._missing = 0

    def records(self, event: Event) -> list[Any]:
        """Return the records that are complete with ``event``: one, or none while an array is open. A retraction and
        changes of documents have none.
        """
        if (name := name_left_out(event)) is not None:
            self.left_out[name] += 1
            self._before.add(event, {})
            self._source_ids.add(None)
            return []
        rest = rest_of(event, NAME)
        marks = {mark: rest[mark] for mark in MARKS if mark in rest}
        record = predicted(event, marks, self._before)
        if type(event) is CondensationAction and event.origin is None:
            record["args"]["forgotten_event_ids"] = self._forgotten(event)
        if event.origin is not None:
            record = self._before.key_order.record(record, rest, [event])
        self._before.add(event, record)
        self._source_ids.add(record.get("id"))
        if "list" in marks:
            self._missing = marks["list"]
        if not self._missing:
            return [record]
        self._array.append(record)
        self._missing -= 1
        if self._missing:
            return []
        array, self._array = self._array, []
        return [array]

    def _forgotten(self, event: CondensationAction) -> list[Any]:
        """Return the ids of the source that a condensation made by foldlog forgets. Older summaries have none: V0 shows
        only the newest.
        """
        return [self._source_ids[i] for first, last in event.forgotten.intervals for i in range(first, last + 1)]

    def end(self) -> list[Any]:
        """Return nothing. Raises ``ValueError`` if an array's last events are missing."""
        if self._array:
            raise InvalidEvent(f"an array lacks its last {self._missing} events; an export needs the whole history")
        return []


def usual_naming(name: str) -> str:
    return "observation" if name in OBSERVED_BOOKKEEPING else "action"


def predicted(event: Event, marks: Marks, before: RecordsBefore) -> dict[str, Any]:
    """Predict the record of ``event`` from its fields and the events before it."""
    record: dict[str, Any] = {"source": event.source}
    origin = event.origin
    source_id = before.free_source_id if origin is None else origin.id
    if source_id is not None:
        record["id"] = source_id
        cause = None if event.cause is None else before.source_id(event.cause)
        if cause is not None:
            record["cause"] = cause
    time = time_text(event.timestamp, origin)
    if time is not None:
        record["timestamp"] = time
    payload = _predict_body(event, marks, before, record)
    if payload is None:
        return record
    if "flat" in marks:
        record.update(payload)
    else:
        record["args" if "action" in record else "extras"] = payload
    return record


def _predict_body(event: Event, marks: Marks, before: RecordsBefore, record: dict[str, Any]) -> dict[str, Any] | None:
    """Add the fields of this kind of event to ``record``. Return its arguments or extras."""
    match event:
        case Action():
            return _predict_action(event, marks, before, record)
        case Observation():
            failed = event.origin is None and event.is_error
            record["observation"] = "error" if failed else event.tool
            record["content"] = _observed(event.content, marks)
            metadata = before.call_metadata(event)
            if metadata is not None:
                record["tool_call_metadata"] = metadata
            return _extras(event, marks)
        case Message() if "observed" in marks:
            record["observation"], record["content"] = marks["observed"], _observed(event.content, marks)
            record["message"] = record["content"]
            return {}
        case Message() | SystemMessage():
            record["action"], args, text = _said(event, marks)
            if "flat" not in marks:
                record["message"] = text
            return args
        case Annotation():
            record[marks.get("as") or usual_naming(event.name)] = event.name
            record.update(event.data if isinstance(event.data, dict) else {"content": event.data})
            return None
        case CondensationAction():
            record["action"] = "condensation"
            if event.summary is not None:
                record["message"] = f"Summary: {event.summary}"
            return _forgetting(event)
        case CondensationSummary():
            record["observation"], record["content"] = "condense", event.content
            return {}
        case CondensationRequest():
            record["action"] = "condensation_request"
            return {}
        case UnknownEvent() | Retraction() | Redaction() | Entry() | DocumentChanges():
            return None


def _predict_action(
    event: Action, marks: Marks, before: RecordsBefore, record: dict[str, Any]
) -> dict[str, Any] | None:
    as_written = "action" in marks and isinstance(event.arguments, str)
    record["action"] = marks.get("action") or marks.get("named") or event.tool
    metadata = before.call_metadata(event, as_written=as_written)
    if metadata is not None:
        record["tool_call_metadata"] = metadata
    if as_written:
        args = parsed(str(event.arguments))
        return {**args, "thought": event.thought} if event.thought and "thought" not in args else args
    known = dict(event.arguments) if isinstance(event.arguments, dict) else None
    return {**(known or {}), "thought": event.thought} if event.thought and "told" not in marks else known


def _observed(content: Content, marks: Marks) -> Any:
    """Return the content of the record of an observation."""
    if "images" in marks and not isinstance(content, str):
        content = content[0]["text"]
    if "said" in marks and isinstance(content, str):
        start, end = marks["said"]
        return content[start:end]
    return content


def _extras(event: Observation, marks: Marks) -> dict[str, Any]:
    if "spans" in marks and isinstance(event.content, str):
        return with_texts(event.extras, marks["spans"], event.content)
    if "images" in marks and not isinstance(event.content, str):
        return {**event.extras, marks["images"]: [part["image_url"]["url"] for part in event.content[1:]]}
    return event.extras


def _said(event: Message | SystemMessage, marks: Marks) -> tuple[str, dict[str, Any], str]:
    """Return the action's name, its arguments, and the text that the record's ``message`` repeats."""
    images: list[str] = []
    if isinstance(event.content, str):
        text = event.content
    else:
        images = [part["image_url"]["url"] for part in event.content if part.get("type") == "image_url"]
        text = "".join(part["text"] for part in event.content if part.get("type") == "text")
    if type(event) is SystemMessage:
        return "system", {"content": text, "tools": list(event.tools)}, text
    if "text" in marks:
        return "finish", {marks["text"]: text} if marks["text"] else {}, text
    args: dict[str, Any] = {"content": text}
    if images:
        args[marks.get("images", "image_urls")] = images
    return "message", args, text


def _forgetting(event: CondensationAction) -> dict[str, Any]:
    args: dict[str, Any] = {}
    if event.given_ids is not None:
        args["forgotten_event_ids"] = list(event.given_ids)
    elif event.origin is not None:
        args["forgotten_events_start_id"] = event.forgotten_events_start_id
        args["forgotten_events_end_id"] = event.forgotten_events_end_id
    if event.summary is not None:
        args["summary"], args["summary_offset"] = event.summary, event.summary_offset
    return args
