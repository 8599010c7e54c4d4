"""Events back to records: those that are stored as they were, others as the format writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import to_builtins
from msgspec.structs import asdict, replace

from foldlog._formats.export_notes import ExportNotes
from foldlog._formats.format import Format
from foldlog._formats.places import is_of, is_step_aside, place_of
from foldlog._formats.record import within
from foldlog._formats.registry import format_named
from foldlog._formats.repeats import is_repeated
from foldlog._values import replaced, values_in
from foldlog.eventstore import (
    Action,
    Annotation,
    Content,
    Event,
    InvalidEvent,
    Message,
    Observation,
    Source,
    SystemMessage,
)
from foldlog.projections.messages.content import data_url, sendable
from foldlog.projections.messages.turns import words_of
from foldlog.projections.units import WaitingCalls


class StoredRecords(Protocol):
    """The records of one history that are stored apart from its events."""

    def count(self, event: Event) -> int:
        """Return how many events the record became that begins with this event; 0 where none
        begins.
        """

    def record(self, events: Sequence[Event]) -> Any:
        """Return the record that became these events; None where it is redacted, or not stored."""


class _NoRecords:
    def count(self, event: Event) -> int:
        return 0

    def record(self, events: Sequence[Event]) -> Any:
        return None


NO_RECORDS: StoredRecords = _NoRecords()
"""Of a history that is not stored, or that no source told."""


class Encoder:
    """Turns the events of one history back into records, one event after the other.

    A record that is ``stored`` is returned as it was; a writer of the format makes those of other
    events. Begin with any event that begins a record. ``notes`` count what it leaves out of other
    events. Raises ``UnknownFormat``.
    """

    def __init__(
        self,
        format: str | Format,
        notes: ExportNotes | None = None,
        stored: StoredRecords = NO_RECORDS,
    ) -> None:
        self._stored = stored
        chosen = format if isinstance(format, Format) else format_named(format)
        self._name = chosen.name
        self._parts = chosen.parts
        self._writer = chosen.writer()
        self._group: list[Event] = []
        """The events of a record of which later ones are missing."""
        self._missing = 0
        self._head: Sequence[Any] | None = None
        """What the first record comes after; empty once it was written."""
        self._notes = notes
        self._first: int | None = None
        """The id of the first event: results of calls before it are written."""
        self._waiting = WaitingCalls()
        """The calls that wait for results, each with the id of its event, which is inverted where
        no model called.
        """
        self._passed: list[tuple[Sequence[Event], Any]] = []
        """Stored records that the writer has not followed yet: it must, once it writes one."""

    def pass_by(self, events: Sequence[Event], record: Any) -> None:
        """Take notice of all events of a record, and of the record, which is stored as it was."""
        self._passed.append((events, record))

    def _follow_passed(self) -> None:
        passed = self._passed
        self._passed = []
        for events, record in passed:
            for event in events:
                self._as_sent(event)
            self._follow(events, record)

    def _follow(self, events: Sequence[Event], record: Any) -> None:
        self._head = ()
        # what follows the log follows its end, not the end of a copy
        if not is_repeated(events[-1]):
            self._writer.follow(events, record)

    def records(self, event: Event) -> list[Any]:
        """Return the records that are complete with ``event``. Bytes become data URLs or base64 in
        them. Raises ``InvalidEvent``.
        """
        self._follow_passed()
        is_ours = is_of(event, self._name)
        sent = self._as_sent(event)
        goes_on = is_ours and (is_step_aside(event) or place_of(event) == self._numbered)
        given_up = self.part() if self._group and not goes_on else []
        if is_ours and not self._group:
            self._missing = self._stored.count(event)
        if not self._missing and is_ours and is_step_aside(event):
            self._writer.follow([event], None)
            return given_up
        if not self._missing:
            if is_ours:
                return [*given_up, *self._written(event), *self._ended()]
            if sent is None and self._notes is not None:
                self._notes.leave_out(event, hidden=True)
            return [*given_up, *(() if sent is None else self._written(sent))]
        self._group.append(event)
        self._missing -= 1
        if self._missing:
            return given_up
        events = self._group
        self._group = []
        record = self._stored.record(events)
        if record is None:
            return [*given_up, *self._remains(events)]
        complete = self._ended()
        self._follow(events, record)
        return [*given_up, *complete, record]

    @property
    def _numbered(self) -> int:
        """The number of events in the group that have a place in their record."""
        return sum(not is_step_aside(event) for event in self._group)

    def _as_sent(self, event: Event) -> Event | None:
        """Return an event as a model is sent it: what the user did, and its results, are words, and
        a result names its call. None stands for an event that no model is sent, such as a second
        result of a call.
        """
        self._first = event.id if self._first is None else self._first
        match event:
            case SystemMessage() | Message() | Action() | Observation() if not event.shown:
                return None
            case Annotation(shown=True, origin=None):
                return _words(event, "environment", words_of(event))
            case Action(source=source):
                if self._waiting.waiting:
                    self._waiting = self._waiting
                else:
                    self._waiting = WaitingCalls()
                self._waiting.add(event, event.id if source == "agent" else ~event.id)
                if source == "agent":
                    return event
                return _words(event, source, event.thought)
            case Observation():
                cause = self._waiting.take(event)
                if cause is None:
                    return None if (event.cause or 0) >= self._first else event
                if cause >= 0:
                    return replace(event, cause=cause)
                return _words(event, "environment", event.content)
        return event

    def end(self) -> list[Any]:
        """Return the records that are complete only at the end of the history.

        Raises ``InvalidEvent`` where later events of a record are missing.
        """
        if self._group:
            first = self._group[0]
            count = len(self._group)
            raise InvalidEvent(
                f"event {first.id} begins a record of {count + self._missing} events, and {count}"
                f" of them are here; export the history up to event {first.id}, or the whole"
                " record, or name another format with --format"
            )
        return self._ended()

    def _ended(self) -> list[Any]:
        return self._made(self._writer.end())

    def part(self, without: Event | None = None) -> list[Any]:
        """Return records for the events of a record of which a later event is redacted or
        retracted: ``without``.
        """
        group = self._group
        self._group = []
        self._missing = 0
        if without is not None:
            self._writer.follow([without], None)
        return [
            *(record for event in group for record in self._written(event)),
            *(self._ended() if group else ()),
        ]

    def shown(self, events: Sequence[Event], stored: Sequence[Event]) -> list[Any]:
        """Return the records for events that a model is sent of one record, which has the events
        ``stored`` in the log: the record, if these are the same. A part of it is as the log has it,
        or written of the changed event.
        """
        self._follow_passed()
        if [*events] == [*stored]:
            return [*(record for event in events for record in self.records(event)), *self.end()]
        if self._parts and is_of(stored[0], self._name):
            record = self._stored.record(stored)
        else:
            record = None
        if record is None:
            return self._remains(events)
        shown = list[Any]()
        for event in events:
            place = event.id - stored[0].id
            if event == stored[place]:
                made = [record]
            else:
                made = self._remains([event])
            parts = [part for each in made for part in _parts_in(each, self._parts) or ()]
            shown += parts[place : place + 1] if event == stored[place] else parts
        return [_with_parts(record, self._parts, shown)] if shown else []

    def _remains(self, events: Sequence[Event]) -> list[Any]:
        """Return what is written of a redacted record of several events: one record, where the
        format says how.
        """
        before = self._ended()
        made = list[Any]()
        for event in events:  # the first one written has the id of the record
            if not self._parts:
                origin = event.origin
            elif made:
                origin = None
            else:
                origin = events[0].origin
            made += self._written(replace(event, origin=origin))
        made += self._ended()
        held = [_parts_in(record, self._parts) for record in made if self._parts]
        if len(held) < 2 or None in held:
            return [*before, *made]
        made[0] = _with_parts(
            made[0], self._parts, [part for parts in held for part in parts or ()]
        )
        self._writer.follow((), made[0])
        return [*before, made[0]]

    def _written(self, event: Event) -> list[Any]:
        event = in_json(event)
        if self._head is None:
            self._head = self._writer.head(event)
        else:
            self._head = self._head
        records = self._writer.records(event)
        if self._notes is not None:
            self._notes.leave_out(event) if records is None else self._notes.write(event)
        return self._made(records) if records else []

    def _made(self, records: Sequence[Any]) -> list[Any]:
        """Return records that the writer made, after those that a history begins with."""
        if not records:
            return []
        head = self._head or ()
        self._head = ()
        return [*head, *records]


def _words(event: Event, source: Source, content: Content) -> Message | None:
    said = Message(
        id=event.id, timestamp=event.timestamp, origin=event.origin, source=source, content=content
    )
    return said if content else None


def _parts_in(record: Any, path: Sequence[str]) -> list[Any] | None:
    """Return the parts at a place in a record; None where there are none. A text is one."""
    held = within(record, *path)
    return [{"type": "text", "text": held}] if isinstance(held, str) else held


def _with_parts(record: Any, path: Sequence[str], parts: list[Any]) -> Any:
    """Return a record with these parts at that place."""
    if path:
        return {**record, path[0]: _with_parts(record[path[0]], path[1:], parts)}
    return parts


def in_json(event: Event) -> Event:
    """Return an event as the JSON of any program holds it."""
    text = repr(event)
    if "b'" in text or 'b"' in text:  # perhaps bytes
        event = _without_bytes(event)
    # half a surrogate pair: many programs cannot read it
    return _sendable(event) if "\\ud" in text else event


def _sendable(event: Event) -> Event:
    """Return an event with its texts as they can be sent: half a surrogate pair becomes a question
    mark.
    """
    held = (each if isinstance(each, dict) else [each] for _, each in values_in(event))
    sent = {text: sendable(text) for texts in held for text in texts if isinstance(text, str)}
    return _changed(event, replaced(asdict(event), sent, names=True))


def _changed(event: Event, fields: dict[str, Any]) -> Event:
    """Return an event with these fields. A condensation refuses to be told twice what it forgets:
    only what differs.
    """
    return replace(
        event, **{name: value for name, value in fields.items() if value != getattr(event, name)}
    )


def _without_bytes(event: Event) -> Event:
    """Return an event that JSON can hold: the bytes of an image or a file as a data URL, other
    bytes in base64.
    """
    held = {
        name: value
        for name, value in asdict(event).items()
        if isinstance(value, dict | list | tuple)
    }
    if isinstance(held.get("content"), tuple):
        held["content"] = tuple(map(_with_url, held["content"]))
    made = {name: to_builtins(value) for name, value in held.items()}
    return _changed(
        event,
        {name: tuple(made[name]) if type(held[name]) is tuple else made[name] for name in made},
    )


def _with_url(part: dict[str, Any]) -> dict[str, Any]:
    """Return the part. If it is an image or a file of bytes, return it with a data URL, as formats
    have it.
    """
    for name, key in ("image_url", "url"), ("file", "file_data"):
        held = part.get(name)
        data = held.get(key) if isinstance(held, dict) else held
        if isinstance(data, bytes):
            return {**part, name: {**(held if isinstance(held, dict) else {}), key: data_url(data)}}
    return part
