"""Convert records that consist of parts into events, one event for each part, and convert events
back into records.

Reading or writing a record does not need the records before it. So an export can begin at any
record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from foldlog.eventstore import Action, Annotation, Event, Message, Observation, Source
from foldlog.formats.blocks import thinking_of, thought_in
from foldlog.formats.event_fields import REDACTED, data_url, file_at, file_in, id_of_source
from foldlog.formats.format import Format, Options, RecordDecoder, RecordEncoder
from foldlog.formats.record import (
    Fields,
    SourceTime,
    TimeAndId,
    dict_or_empty,
    text_or_empty,
    text_or_none,
    within,
)
from foldlog.formats.record_events import FollowingDecoder, RecordEvents
from foldlog.formats.reply_encoders import RepliesEncoder

Made = tuple[type[Event], Fields]
"""The class of an event, and its fields."""


class PartsDecoder(FollowingDecoder):
    """Reads a record as one event for each part. A record without parts becomes one event, too."""

    keeps_shown = False
    format: PartsFormat

    def begin_record(self, record: Fields, time_and_id: TimeAndId) -> RecordEvents:
        """Set the usage of a record, and the response to which its calls belong."""
        collected = super().begin_record(record, time_and_id)
        format = self.format
        collected.meta = format.usage(record)
        own = text_or_none(collected.origin.id) or text_or_none(format.response(record))
        collected.response = own or f"{format.noun}-{self.next_id}"
        return collected

    def read(self, collected: RecordEvents, record: Fields) -> None:
        """Add an event for each part of a record."""
        format = self.format
        record_origin = collected.origin
        record_time = collected.timestamp
        parts = within(record, *format.parts) or _NO_PARTS
        for place, part in enumerate(parts):
            event_class, fields = format.read(part, record)
            if event_class is Action:
                fields["response_id"] = collected.response
            elif event_class is Message and len(parts) > 1 and format.source(record) == "agent":
                collected.meta["reply"] = collected.response
            if event_class is Message or event_class is Annotation:
                fields.setdefault("source", format.source(record))
            if fields.pop("thinks", False):
                fields["stays_with_next"] = place + 1 < len(parts)
            origin = record_origin
            timestamp = record_time
            if format.part_time is not None:
                timestamp, time = format.part_time(record, part, place)
                origin = replace(origin, time=time)
            collected.begin(replace(origin, id=None) if place else origin, timestamp)
            collected.add(event_class, **fields)


_NO_PARTS = (None,)
"""Stands for the parts of a record without parts, which becomes one event."""


class PartsEncoder(RepliesEncoder):
    """Writes one record for a message, one for the calls of a reply, and one for their results. An
    annotation becomes a record only if it is redacted.
    """

    format: PartsFormat

    def records_of_results(self, results: Sequence[Observation]) -> Sequence[Any]:
        return self.records_of(results)

    def records_of(self, events: Sequence[Any]) -> list[Any]:
        """Return the record of events, or nothing if they have no parts."""
        parts = [
            part
            for event in events
            for part in (*_parts_before(self.format, event), *self.format.part(event))
        ]
        return [self.format.written(events[0], parts)] if parts else []

    def records(self, event: Event) -> Sequence[Any] | None:
        if (
            isinstance(event, Annotation)
            and event.redacted is not None
            and event.origin is not None
        ):
            text, signature = thought_in(dict_or_empty(event.data))
            thought = self.format.thought(text if text or signature else REDACTED, signature)
            parts = [thought] if event.name == _THOUGHT else self.format.again(event)
            return [self.format.written(event, parts)] if parts else ()
        return super().records(event)


def _parts_before(format: PartsFormat, event: Any) -> list[Any]:
    """Return the parts that are written before an event: the model's thinking, and the text before
    a call.
    """
    thinking = event.thinking if isinstance(event, Action | Message) else ()
    parts = [
        part
        for thought in map(thought_in, thinking)
        if any(thought) and (part := format.thought(*thought))
    ]
    if not isinstance(event, Action) or not event.thought:
        return parts
    message = Message(
        source="agent", content=event.thought, timestamp=event.timestamp, origin=event.origin
    )
    return [*parts, *format.part(message)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsFormat(Format):
    """A format whose records have a list of parts at ``Format.parts``.

        noun       the word for a record; new response ids begin with it
        source     returns the source of a record
        read       returns the event for a part; it is called with None if the record has no parts
        part       returns the parts for an event
        thought    returns the part for a thought, from its text, and from its signature or its
                   redacted data
        written    returns the record for an event and its parts
        response   returns the id of a record's response, if it differs from ``source_id``
        part_time  returns the time of the part at an index, if it differs from the record's time
        usage      returns the ``meta`` with a record's usage
        again      returns the parts for an annotation that ``annotation`` made, and that may be
                   redacted

    All calls of a record get the same response id.
    """

    decoder: Callable[[Options], RecordDecoder] = PartsDecoder
    encoder: Callable[[], RecordEncoder] | None = PartsEncoder
    noun: str
    source: Callable[[Fields], Source]
    read: Callable[[Any, Fields], Made]
    part: Callable[[Any], list[Any]]
    thought: Callable[[str, str], Fields]
    written: Callable[[Any, list[Any]], Fields]
    response: Callable[[Fields], Any] = lambda record: None
    part_time: Callable[[Fields, Any, int], SourceTime] | None = None
    usage: Callable[[Fields], Fields] = lambda record: {}
    again: Callable[[Annotation], list[Any]] = lambda event: (
        [event.data] if isinstance(event.data, dict) else []
    )


# -- what a part becomes ---------------------------------------------------------------------------


def call_of(tool: str, arguments: Any, call_id: Any) -> Made:
    """Return a call of a tool. Arguments that are neither an object nor a text are left out."""
    accepted = arguments if type(arguments) in (dict, str) else None
    return Action, {"tool": tool, "arguments": accepted, "call_id": text_or_none(call_id)}


def result_of(
    call_id: Any, content: Any, *, is_error: bool, tool: str = "", parts: Sequence[Any] = ()
) -> Made:
    """Return the result of a call. The content of the result is ``parts`` if they include a file,
    and otherwise the text of ``content``.
    """
    result = tuple(parts) if any(map(file_in, parts)) else text_of(content)
    return Observation, {
        "content": result,
        "call_id": text_or_none(call_id),
        "is_error": is_error,
        "tool": tool,
    }


def annotation(name: str, data: Any, *, shown: bool = True) -> Made:
    """Return an annotation for a part that only the record's format understands."""
    return Annotation, {"name": name, "data": data, "shown": shown}


def thought(text: Any, signature: Any = None, *, is_redacted: bool = False) -> Made:
    """Return an annotation with the model's thinking. The annotation and the next part are
    forgotten or sent only together. If ``is_redacted``, ``signature`` is the encrypted thinking.
    """
    if is_redacted:
        data = {"type": "redacted_thinking", "data": signature}
    else:
        data = thinking_of(text_or_empty(text), signature)
    return Annotation, {"name": _THOUGHT, "data": data, "shown": True, "thinks": True}


_THOUGHT = "reasoning"
"""The name of annotations with the model's thinking."""


def record_id(key: str, event: Event) -> Fields:
    """Return ``{key: id}`` with the id of the event's record, or an empty dict if the record has no
    id.
    """
    source_id = id_of_source(event)
    return {} if source_id is None else {key: source_id}


def text_of(value: Any) -> str:
    """Return a text unchanged, and any other value as JSON text. Return an empty text for None, and
    for a value that JSON cannot represent.
    """
    if type(value) is str:
        return value
    try:
        if value is None:
            return ""
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return ""


def file_of(held: Any) -> Fields | None:
    """Return the file in a value of the SDK as a content part, or None if there is no file.

    The bytes may be base64, base64 for URLs, or ``{"$bytes": base64}``.
    """
    fields = dict_or_empty(held)
    data = fields.get("data")
    kind = text_or_empty(fields.get("media_type") or fields.get("mime_type"))
    if type(data) is dict:
        data = data.get("$bytes")
    if type(data) is str:
        url = data_url(kind, data.replace("-", "+").replace("_", "/"))
    else:
        url = ""
    return file_at(url, kind) if url and kind else None
