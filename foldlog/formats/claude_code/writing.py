"""Encode events as Claude Code's lines: the fields that the events of a line give, and the line itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
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
    InvalidEvent,
    Message,
    Observation,
    Redaction,
    Retraction,
    SystemMessage,
    UnknownEvent,
)
from foldlog.formats.claude_code.attachments import predicted_prompt, predicted_words
from foldlog.formats.claude_code.blocks import blocks_of, given
from foldlog.formats.claude_code.compaction import ShownMembers
from foldlog.formats.claude_code.context import LinesBefore, Response
from foldlog.formats.claude_code.results import structured
from foldlog.formats.format import name_left_out
from foldlog.formats.record import rest_of, time_text

NAME = "claude-code"

SPEAKERS = ("user", "assistant")

Marks = dict[str, Any]
MARKS = ("events", "others", "attachment")
"""Keys of ``origin.rest`` that say how to predict the line, on the first event made of it:

    events how many events were made of it, if not one
    others  the blocks of its content that no event holds, each as [place, block]
    attachment  "words" of a line that tells the model something, or a "prompt" that it brings
"""


class ClaudeCodeEncoder:
    """Events of one history to lines, as ``ClaudeCodeDecoder`` read them. Later events get lines of their own."""

    def __init__(self) -> None:
        self._before = LinesBefore()
        self._standing = ShownMembers()
        self._group: list[Event] = []
        self.left_out: Counter[str] = Counter()

    def records(self, event: Event) -> list[Any]:
        """Return the lines that are complete with ``event``. A retraction and changes of documents have no lines."""
        if (name := name_left_out(event)) is not None:
            self.left_out[name] += 1
            self._standing.follow(event, None)
            self._before.next_id += 1
            return []
        self._group.append(event)
        rest = rest_of(self._group[0], NAME)
        if len(self._group) < rest.get("events", 1):
            return []
        events, self._group = self._group, []
        if type(event) is CondensationAction and event.origin is None:
            return self._compaction(event)
        marks = {mark: rest[mark] for mark in MARKS if mark in rest}
        record = predicted(events, marks, self._before)
        if events[0].origin is not None:
            record = self._before.key_order.record(record, rest, events)
        return [self._written(events, record)]

    def restart(self, next_id: int) -> None:
        self._before = LinesBefore(next_id)

    def end(self) -> list[Any]:
        """Return nothing: the last line is complete. Raises ``ValueError`` if an event of it is missing."""
        if self._group:
            raise InvalidEvent(f"event {self._group[0].id} is the first of a line whose last event is missing")
        return []

    def _written(self, events: Sequence[Event], record: dict[str, Any]) -> dict[str, Any]:
        for event in events:
            self._standing.follow(event, record.get("uuid"))
        self._before.add(events, record)
        return record

    def _compaction(self, event: CondensationAction) -> list[Any]:
        """Return the lines of a condensation that foldlog made, which may keep any events. A condensation without a
        summary has no lines.
        """
        if event.summary is None:
            self.left_out.update(["condensation"] if event.metadata.get("outcome") != "declined" else [])
            self._standing.follow(event, None)
            self._before.next_id += 1
            return []
        before = self._before
        boundary, summary = _line_id(event.id, 1), _line_id(event.id)
        intervals, _ = event.forgotten
        gone = frozenset(i for first, last in intervals for i in range(first, last + 1))
        kept = self._standing.lines_without(gone)
        metadata: dict[str, Any] = {"trigger": "manual" if event.metadata.get("reason") == "request" else "auto"}
        if kept:
            anchor = boundary if event.summary_offset else summary
            metadata["preservedMessages"] = {"anchorUuid": anchor, "uuids": kept}
        record = {**before.envelope, "type": "system", "subtype": "compact_boundary", "uuid": boundary}
        record |= {"parentUuid": None, "logicalParentUuid": before.last_line, "compactMetadata": metadata}
        before.add((), record)
        return [record, self._written([event], predicted([event], {}, before))]


def _line_id(event_id: int, number: int = 0) -> str:
    """Return an id for a line of an event that did not come from a line."""
    return f"{event_id:08x}-0000-4000-8000-{number:012x}"


def predicted(events: Sequence[Event], marks: Marks, before: LinesBefore) -> dict[str, Any]:
    """Predict the line of ``events`` from their fields and the lines before."""
    event = events[0]
    record: dict[str, Any] = {}
    origin = event.origin
    line = _line_id(event.id) if origin is None else origin.id
    if line is not None:
        record |= before.envelope
        record["parentUuid"], record["uuid"] = before.last_line, line
    time = time_text(event.timestamp, origin)
    if time is not None:
        record["timestamp"] = time
    match event:
        case Annotation(name=name, data=list()) if name in SPEAKERS:
            _predict_said(name, events, marks, before, record)
        case Annotation(name=name, data=data):
            record["type"] = name
            record.update(data if isinstance(data, dict) else {"value": data})
        case Message(content=content) if "attachment" in marks:
            record |= predicted_words(content)
        case SystemMessage() if "attachment" in marks:
            record |= predicted_prompt(event)
        case CondensationAction():
            record["type"], record["message"] = "user", {"role": "user", "content": event.summary}
            record["isVisibleInTranscriptOnly"] = record["isCompactSummary"] = True
        case CondensationSummary():
            record["type"], record["message"] = "user", {"role": "user", "content": event.content}
        case SystemMessage():
            record["type"], record["content"] = "system", given(event.content)
        case CondensationRequest():
            record |= {"type": "system", "subtype": "condensation_request", "content": event.reason}
        case UnknownEvent() | Retraction() | Redaction() | DocumentChanges():
            pass
        case Action() | Observation() | Message():
            _predict_said("assistant" if event.source == "agent" else "user", events, marks, before, record)
    return record


def _predict_said(
    speaker: str, events: Sequence[Event], marks: Marks, before: LinesBefore, record: dict[str, Any]
) -> None:
    record["type"] = speaker
    imported = events[0].origin is not None
    response = _response(events[0], before) if imported else Response({}, None, ())
    content = _content(events, response)
    if isinstance(content, list):
        for place, block in marks.get("others", ()):
            content.insert(place, block)
    if speaker == "user":
        record["message"] = {"role": "user", "content": content}
        if type(events[0]) is Message and events[0].source == "environment":
            record["isMeta"] = True
        if type(events[0]) is Observation and len(events) == 1 and imported:
            _predict_result(events[0], before, record)
        return
    usual = {"type": "message", "role": "assistant"}
    record["message"] = {**usual, **response.message, "content": content}
    if type(events[0]) is Action and events[0].response_id is not None:
        record["message"]["id"] = events[0].response_id
    if response.request_id is not None:
        record["requestId"] = response.request_id


def _response(event: Event, before: LinesBefore) -> Response:
    """Return the response that the line of ``event`` belongs to. A text does not name its response: the last one is
    taken.
    """
    return before.response(event.response_id) if type(event) is Action else before.last_response


def _content(events: Sequence[Event], response: Response) -> str | list[Any]:
    """Return the content that the events of one line were made of."""
    if len(events) == 1 and type(events[0]) is Message and events[0].source != "agent":
        return given(events[0].content)
    content: list[Any] = []
    thought = len(response.thinking)
    for event in events:
        match event:
            case Annotation(data=list()):
                content += event.data
            case Action():
                content += event.thinking[thought:]  # earlier events belong to earlier lines
                content += blocks_of(event.thought)
                content.append(_use(event))
                thought = 0
            case Observation():
                content.append(_result(event))
            case Message():
                content += blocks_of(event.content)
    return content


def _use(action: Action) -> dict[str, Any]:
    arguments: Any = action.arguments
    if action.origin is None and not isinstance(arguments, dict):
        arguments = _as_object(arguments)
    use: dict[str, Any] = {"type": "tool_use", "name": action.tool, "input": arguments}
    if action.call_id is not None:
        use["id"] = action.call_id
    elif action.origin is None:
        use["id"] = f"call_{action.id}"
    return use


def _as_object(arguments: str | None) -> Any:
    """Return arguments as an object, which this format needs."""
    if arguments is None:
        return {}
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return {"arguments": arguments}
    return value if isinstance(value, dict) else {"arguments": arguments}


def _result(observation: Observation) -> dict[str, Any]:
    call_id = observation.call_id
    if call_id is None and observation.origin is None and observation.cause is not None:
        call_id = f"call_{observation.cause}"
    result: dict[str, Any] = {"type": "tool_result", "content": given(observation.content)}
    if call_id is not None:
        result["tool_use_id"] = call_id
    if observation.is_error or observation.tool == "Bash":
        result["is_error"] = observation.is_error
    return result


def _predict_result(observation: Observation, before: LinesBefore, record: dict[str, Any]) -> None:
    """Predict the line of a result: it follows the line of its call, and holds the result a second time, structured."""
    call = before.call(observation.call_id)
    if call is None:
        return
    if call.line is not None:
        record["parentUuid"] = call.line
        if before.names_caller:
            record["sourceToolAssistantUUID"] = call.line
    record["toolUseResult"] = structured(call.tool, call.arguments, observation.content, is_error=observation.is_error)
