"""Encode events as Codex records: the fields that an event gives, and the record itself."""

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
    Content,
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
from foldlog.formats.codex.lines import Line, line_of
from foldlog.formats.codex.parts import parts_of
from foldlog.formats.codex.repeats import ITEMS, Repeats
from foldlog.formats.codex.standing import ShownItems
from foldlog.formats.format import name_left_out
from foldlog.formats.key_order import KeyOrder
from foldlog.formats.record import rest_of, time_text

NAME = "codex"

ROLLED_BACK = "thread_rolled_back"

Marks = dict[str, Any]
MARKS = ("bare", "line", "type", "at", "output", "item", "history", "summary", "prefix", "aborted")
"""Keys of ``origin.rest`` that say how to predict the record:

    bare     the record is its own payload, as in old rollouts
    line     the record's type, where the event suggests another
    type     an Action, an Observation: the payload's type, if not a function call; a CondensationAction: if not a
             compaction
    at       a SystemMessage: the keys of the payload of its texts, if it is not a message
    output   an Observation: "parts", or "object" where the content stands in one with other keys
    item     it is an item of the replacement history of the next ``compacted``
    history  a CondensationAction has a replacement history, of the items before it
    summary  the place in it of the item that is the summary
    prefix   how many characters stand before the message in the summary
    aborted  an Observation has no record: its call was open when the turn was aborted
"""

_RESPONSE_ITEMS = frozenset(
    (
        *("reasoning", "web_search_call", "image_generation_call", "tool_search_call", "tool_search_output"),
        *("ghost_snapshot", "compaction", "context_compaction", "other"),
    )
)
_ROLES = {"user": "user", "agent": "assistant", "environment": "user"}


class CodexEncoder:
    """Events of one history to records, as ``CodexDecoder`` read them.

    Bookkeeping that was added after the import is left out. A condensation or a retraction is written as ``compacted``,
    with the items of the View after it as its replacement history.
    """

    def __init__(self) -> None:
        self._first_id: int | None = None
        self.left_out: Counter[str] = Counter()
        self._key_order = KeyOrder()
        self._repeats = Repeats()
        self._standing = ShownItems()
        self._items: list[Any] = []

    def records(self, event: Event) -> list[Any]:
        """Return the record of ``event``; None for an item of a later record."""
        if self._first_id is None:
            self._first_id = event.id
        if event.origin is None:
            return self._added(event)
        rest = rest_of(event, NAME)
        marks = {mark: rest[mark] for mark in MARKS if mark in rest}
        if "aborted" in marks:
            self._standing.follow(event, [_answer(event, marks)] if isinstance(event, Observation) else [])
            return []
        if "item" in marks:
            item = predicted_payload(event, marks, Repeats())
            item = self._key_order.record(item, rest, [event]) if type(item) is dict else item
            self._items.append(item)
            self._standing.follow(event, [item])
            return []
        items, self._items = self._items, []
        record = self._key_order.record(predicted(event, marks, self._repeats, items), rest, [event], items)
        line = line_of(record)
        self._repeats.remember(record if line is None else line.record)
        is_base = line is not None and line.type == "session_meta"
        self._standing.follow(event, [] if is_base else _items_of(event, line))
        return [record]

    def _added(self, event: Event) -> list[Any]:
        if isinstance(event, CondensationAction | Retraction):
            return self._compacted(event)
        if (name := name_left_out(event)) is not None:
            self.left_out[name] += 1
        records = _added(event)
        self._standing.follow(event, [record["payload"] for record in records])
        return records

    def _compacted(self, event: CondensationAction | Retraction) -> list[Any]:
        """Return the line of a condensation or retraction that foldlog made. A declined one changes nothing and has no
        line.
        """
        summary = event.summary if isinstance(event, CondensationAction) else None
        if isinstance(event, CondensationAction) and event.metadata.get("outcome") == "declined":
            return []
        if self._first_id:
            raise InvalidEvent(
                f"event {event.id} changes the View, and Codex's record of that holds the whole View; "
                f"the encoder began with event {self._first_id}: begin with event 0"
            )
        self._standing.follow(event, [] if summary is None else [_message("user", summary)])
        record = predicted(event, {"line": "compacted"}, self._repeats)
        record["payload"] = {"message": summary or "", "replacement_history": self._standing.items()}
        return [record]

    def restart(self, next_id: int) -> None:
        self._key_order = KeyOrder()
        self._repeats = Repeats()

    def end(self) -> list[Any]:
        """Return nothing. Raises ``ValueError`` if the condensation after items of a history is missing."""
        if self._items:
            raise InvalidEvent(
                f"the condensation that {len(self._items)} items stand for is missing; "
                f"an export needs the whole history"
            )
        return []


def _items_of(event: Event, line: Line | None) -> list[Any]:
    """Return the items that have the content of ``event``, in a record of the type ``line``."""
    if line is not None and line.type == "response_item":
        return [line.payload]
    if isinstance(event, SystemMessage):
        return [_message("developer", event.content)]
    if isinstance(event, CondensationAction) and event.summary is not None:
        return [_message("user", event.summary)]
    return []


def _added(event: Event) -> list[Any]:
    if isinstance(event, Annotation | DocumentChanges | CondensationRequest | Redaction | UnknownEvent):
        return []
    records = [predicted(event, {}, Repeats())]
    if isinstance(event, Action) and event.thought:
        said = Message(content=event.thought, source="agent", timestamp=event.timestamp)
        records.insert(0, predicted(said, {}, Repeats()))
    return records


def is_base(event: Event) -> bool:
    """Return whether ``event`` is the base instructions of a session."""
    return isinstance(event, SystemMessage) and rest_of(event, NAME).get("line") == "session_meta"


def usual_line(event: Event) -> str:
    """Return the most likely type of the record of ``event``."""
    match event:
        case CondensationAction():
            return "compacted"
        case Annotation(name="turn_context" | "session_meta" | "compacted" as name):
            return name
        case Annotation(name=name):
            return "response_item" if name in _RESPONSE_ITEMS else "event_msg"
    return "response_item"


def predicted(event: Event, marks: Marks, repeats: Repeats, items: list[Any] | None = None) -> dict[str, Any]:
    """Predict the record of ``event`` from its fields and the records before it.

    ``items`` are the items of the replacement history before a condensation.
    """
    if "bare" in marks:
        payload = predicted_payload(event, marks, repeats, items)
        return payload if type(payload) is dict else {}
    record: dict[str, Any] = {"type": marks.get("line") or usual_line(event)}
    time = time_text(event.timestamp, event.origin)
    if time is not None:
        record["timestamp"] = time
    record["payload"] = predicted_payload(event, marks, repeats, items)
    return record


def predicted_payload(event: Event, marks: Marks, repeats: Repeats, items: list[Any] | None = None) -> Any:
    """Predict the payload of that record: an object; for an Annotation with another value, that value."""
    line = marks.get("line") or usual_line(event)
    payload: dict[str, Any] = {}
    match event:
        case Message():
            payload = _message(_ROLES[event.source], event.content)
        case SystemMessage() if "at" in marks:
            payload = {**repeats.expected(line, line), **_instructions(event.content, marks["at"])}
        case SystemMessage():
            payload = _message("developer", event.content)
        case Action():
            payload = _call(event, marks)
        case Observation():
            payload = _answer(event, marks)
        case CondensationAction():
            payload = _compacted(event, marks, items or [])
        case CondensationSummary():
            payload = _message("user", event.content)
        case Annotation():
            if type(event.data) is not dict:
                return event.data
            payload.update(repeats.expected(line, event.name))
            if line in ITEMS:
                payload["type"] = event.name
            payload.update(event.data)
    if event.origin is not None and event.origin.id is not None:
        payload["id"] = event.origin.id
    return payload


def _message(role: str, content: Content) -> dict[str, Any]:
    text_type = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": parts_of(content, text_type)}


def _instructions(content: Content, keys: list[str]) -> dict[str, Any]:
    texts = [content] if isinstance(content, str) else [part["text"] for part in content]
    return {key: {"text": text} if key == "base_instructions" else text for key, text in zip(keys, texts, strict=True)}


def _call(event: Action, marks: Marks) -> dict[str, Any]:
    arguments = event.arguments
    payload: dict[str, Any] = {"type": marks.get("type", "function_call")}
    match payload["type"]:
        case "local_shell_call":
            payload["status"], payload["action"] = "completed", arguments
        case "custom_tool_call" if isinstance(arguments, dict):
            payload["status"], payload["name"], payload["input"] = "completed", event.tool, arguments.get("input")
        case _:
            payload["name"], payload["arguments"] = event.tool, arguments
            if event.origin is None and not isinstance(arguments, str):
                payload["arguments"] = msgspec.json.encode(arguments or {}).decode()
    if event.call_id is not None:
        payload["call_id"] = event.call_id
    elif event.origin is None:
        payload["call_id"] = f"call_{event.id}"
    return payload


def _answer(event: Observation, marks: Marks) -> dict[str, Any]:
    output: Any = event.content
    match marks.get("output"):
        case "parts":
            output = parts_of(event.content, "input_text")
        case "object":
            output = {**event.extras, "content": event.content}
        case _ if not isinstance(output, str):
            output = parts_of(event.content, "input_text")
    payload = {"type": marks.get("type", "function_call_output"), "output": output}
    if event.call_id is not None:
        payload["call_id"] = event.call_id
    elif event.origin is None and event.cause is not None:
        payload["call_id"] = f"call_{event.cause}"
    return payload


def _compacted(event: CondensationAction, marks: Marks, items: list[Any]) -> dict[str, Any]:
    if "type" in marks:
        return {"type": marks["type"]}
    summary = event.summary or ""
    payload: dict[str, Any] = {"message": summary[marks.get("prefix", 0) :]}
    if "history" in marks:
        place = marks.get("summary")
        history = list(items)
        if place is not None:
            history.insert(place, _message("user", summary))
        payload["replacement_history"] = history
    return payload
