"""Convert records that are made of parts: one event for each part, and back.

A record is read and written without the records before it, so any part of a history that begins with a record can be
written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from foldlog._formats.blocks import thought_in
from foldlog._formats.format import Format, Options, RecordDecoder
from foldlog._formats.pairs import RepliesEncoder
from foldlog._formats.record import dict_or_empty, text_or_empty, text_or_none
from foldlog._formats.record_events import FollowingDecoder, RecordEvents
from foldlog._formats.told import data_url, file_at, file_in, id_of_source
from foldlog.eventstore import Action, Annotation, Event, Message, Observation, Origin, Source

Record = dict[str, Any]
Made = tuple[type[Event], dict[str, Any]]
"""The kind of the event that a part becomes, and its fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsKind:
    """What a format says of its records.

    ``name accepts matches source_id``  as ``Format`` has them
    ``expected``  a record, for the message about another value
    ``noun``      what a record is, for the response of one without an id: the calls of a record share it
    ``parts``     the parts of a record; what stands for none where it has none
    ``source``    who says it
    ``read``      what a part becomes
    ``part``      the parts of an event that was not imported
    ``thought``   the part of what the model thought: a text, and its signature or an empty text
    ``written``   the record of such an event, with these parts
    ``response``  the id of its response, where that is not ``source_id``
    ``time``      the time of a part, and its place: as ``read_time`` returns it
    ``usage``     ``meta`` with its usage
    ``kept_at``   the keys under which a record has its parts
    ``again``     the parts that ``kept`` kept, of which a redaction may have left nothing
    """

    name: str
    accepts: Callable[[Any], bool]
    matches: Callable[[Any], bool]
    source_id: Callable[[Any], Any]
    expected: str
    noun: str
    parts: Callable[[Record], Sequence[Any]]
    source: Callable[[Record], Source]
    read: Callable[[Any, Record], Made]
    part: Callable[[Any], list[Any]]
    thought: Callable[[str, str], Record]
    written: Callable[[Any, list[Any]], Record]
    response: Callable[[Record], Any] = lambda record: None
    time: Callable[[Record, Any, int], tuple[datetime | None, str | None]] = lambda record, part, place: (None, None)
    usage: Callable[[Record], dict[str, Any]] = lambda record: {}
    kept_at: Sequence[str] = ()
    again: Callable[[Annotation], list[Any]] = lambda event: [event.data] if isinstance(event.data, dict) else []


def in_parts(kind: PartsKind, decoder: Callable[[Options], RecordDecoder] | None = None) -> Format:
    """Return the format of this kind of records. ``decoder`` is its own, where it has one."""
    return Format(
        name=kind.name,
        matches=kind.matches,
        accepts=kind.accepts,
        decoder=lambda records, options: decoder(options) if decoder else PartsDecoder(options, kind),
        encoder=lambda: PartsEncoder(kind),
        live=True,
        source_id=kind.source_id,
        parts=kind.kept_at,
    )


class PartsEncoder(RepliesEncoder):
    """Writes a record for each message, for the calls of a reply and for their results; for what stays of a redacted
    one also the parts that no event is read of.
    """

    def __init__(self, kind: PartsKind) -> None:
        super().__init__()
        self._kind = kind

    def answered(self, results: Sequence[Observation]) -> Sequence[Any]:
        return self.written(results)

    def written(self, events: Sequence[Any]) -> list[Any]:
        parts = [part for event in events for part in (*_before(self._kind, event), *self._kind.part(event))]
        return [self._kind.written(events[0], parts)]

    def records(self, event: Event) -> Sequence[Any] | None:
        if isinstance(event, Annotation) and event.redacted is not None and event.origin is not None:
            parts = self._kind.again(event)
            return [self._kind.written(event, parts)] if parts else ()
        return super().records(event)


def _before(kind: PartsKind, event: Any) -> list[Any]:
    """Return the parts of what the model thought before an event, and of what it said before a call."""
    thinking = event.thinking if isinstance(event, Action | Message) else ()
    parts = [kind.thought(*told) for told in map(thought_in, thinking) if told[0]]
    if not isinstance(event, Action) or not event.thought:
        return parts
    told = Message(source="agent", content=event.thought, timestamp=event.timestamp, origin=event.origin)
    return [*parts, *kind.part(told)]


class PartsDecoder(FollowingDecoder):
    """Reads records part by part."""

    keeps_shown = False

    def __init__(self, options: Options, kind: PartsKind) -> None:
        super().__init__(options)
        self.format, self.accepts, self.expected, self._kind = kind.name, kind.accepts, kind.expected, kind

    def begun(self, record: Record) -> RecordEvents:
        kind, source_id = self._kind, self._kind.source_id(record)
        read = RecordEvents(self, Origin(format=kind.name, id=source_id), None)
        read.meta = kind.usage(record)
        read.response = text_or_none(source_id) or text_or_none(kind.response(record)) or f"{kind.noun}-{self.next_id}"
        return read

    def read(self, read: RecordEvents, record: Record) -> None:
        kind, source_id, parts = self._kind, read.origin.id, self._kind.parts(record)
        for place, part in enumerate(parts):
            made, fields = kind.read(part, record)
            timestamp, time = kind.time(record, part, place)
            if made is Action:
                fields["response_id"] = read.response
            elif made is Message or made is Annotation:
                fields.setdefault("source", kind.source(record))
            if fields.pop("thinks", False):
                fields["stays_with_next"] = place + 1 < len(parts)
            read.begin(Origin(format=kind.name, id=None if place else source_id, time=time), timestamp)
            read.add(made, **fields)


# -- what a part becomes ----------------------------------------------------------------------------------------------


def called(tool: str, arguments: Any, call_id: Any) -> Made:
    """Return a call."""
    given = arguments if type(arguments) in (dict, str) else None
    return Action, {"tool": tool, "arguments": given, "call_id": text_or_none(call_id)}


def answered(call_id: Any, content: Any, *, is_error: bool, tool: str = "", parts: Sequence[Any] = ()) -> Made:
    """Return the result of a call: a text, or a value as JSON; its ``parts``, where one of them is a file."""
    told = tuple(parts) if any(map(file_in, parts)) else text_of(content)
    return Observation, {"content": told, "call_id": text_or_none(call_id), "is_error": is_error, "tool": tool}


def kept(name: str, data: Any, *, thinks: bool = False, shown: bool = True) -> Made:
    """Return what only the format knows: thinking stays with the next part."""
    return Annotation, {"name": name, "data": data, "shown": shown, "thinks": thinks}


def named(key: str, event: Event) -> dict[str, Any]:
    """Return the id that the source gave the record of an event, under its key; empty where it has none."""
    known = id_of_source(event)
    return {} if known is None else {key: known}


def text_of(value: Any) -> str:
    """Return a text, or a value as JSON; empty for None, and for what JSON cannot hold."""
    if type(value) is str:
        return value
    try:
        return "" if value is None else json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return ""


def file_of(held: Any) -> dict[str, Any] | None:
    """Return a part with a file that a record has in base64, also in that of URLs or as an adapter keeps other bytes
    (``{"$bytes": base64}``), beside its type; None for other values.
    """
    data, *kinds = (dict_or_empty(held).get(key) for key in ("data", "media_type", "mime_type"))
    kind, data = text_or_empty(kinds[0] or kinds[1]), data.get("$bytes") if type(data) is dict else data
    url = data_url(kind, data.replace("-", "+").replace("_", "/")) if type(data) is str else ""
    return file_at(url, kind) if url and kind else None
