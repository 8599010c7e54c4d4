"""Turn events back into records, for exports and runtimes. A stored record is returned unchanged.
If an event has no stored record, the encoder of the format makes a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import to_builtins
from msgspec.structs import asdict, replace

from foldlog._base.values import replace_texts, values_in
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
from foldlog.formats.event_fields import text_part
from foldlog.formats.event_places import is_of, is_step_aside, place_of
from foldlog.formats.export_notes import ExportNotes
from foldlog.formats.format import Format
from foldlog.formats.record import Fields, within
from foldlog.formats.registry import format_named
from foldlog.formats.repeated_records import is_repeated
from foldlog.projections.messages.content import content_of, data_url, sendable
from foldlog.projections.units import WaitingCalls


class StoredRecords(Protocol):
    """The stored records of one history."""

    def count(self, event: Event) -> int:
        """Return how many events were made from the stored record whose first event is ``event``.
        Return 0 if no stored record begins with ``event``.
        """

    def record(self, events: Sequence[Event]) -> Any:
        """Return the record from which ``events`` were made. Return None if the record is redacted
        or not stored.
        """


class _NoRecords:
    """Says for each event that no stored record has it."""

    def count(self, event: Event) -> int:
        return 0

    def record(self, events: Sequence[Event]) -> Any:
        return None


NO_RECORDS: StoredRecords = _NoRecords()
"""Pass this object as ``stored`` for a history that has no stored records."""


class Encoder:
    """Turns the events of one history back into records, one event after another.

    A ``stored`` record is returned unchanged. For events without a stored record, the encoder of
    the format makes new records. An export may begin at the first event of any record. ``notes``
    counts the events that the export leaves out. Raises ``UnknownFormat``.
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
        """The events of an incomplete record."""
        self._missing = 0
        """The number of events that the incomplete record still needs."""
        self._head: Sequence[Any] | None = None
        """The records at the beginning of the export. The value is None before the encoder makes
        the records, and empty after they are written.
        """
        self._notes = notes
        self._first: int | None = None
        """The id of the first exported event. The export contains a result even if its call is
        older than the first exported event.
        """
        self._waiting = WaitingCalls()
        self._calls_of_user = set[int]()
        self._passed: list[tuple[Sequence[Event], Any]] = []
        """Stored records that were not passed to the writer yet."""

    def pass_by(self, events: Sequence[Event], record: Any) -> None:
        """Tell the encoder about a stored record that the caller writes itself."""
        self._passed.append((events, record))

    def _follow_passed(self) -> None:
        """Tell the writer of the stored records that the caller has written itself."""
        passed = self._passed
        self._passed = []
        for events, record in passed:
            for event in events:
                self._as_sent(event)
            self._follow(events, record)

    def _follow(self, events: Sequence[Event], record: Any) -> None:
        """Tell the writer of a stored record that is written unchanged."""
        self._head = ()
        # a repetition is not the predecessor of the next record
        if not is_repeated(events[-1]):
            self._writer.follow(events, record)

    def records(self, event: Event) -> list[Any]:
        """Return the records that ``event`` completes. Bytes in the records become data URLs or
        base64. Raises ``InvalidEvent``.
        """
        self._follow_passed()
        is_ours = is_of(event, self._name)
        sent = self._as_sent(event)
        # A retraction or a declined condensation is a "step aside": it may come between two events
        # of a record without being a part of the record. Any other event of the group has the next
        # place in the record. A gap between the places means that events were left out.
        belongs_to_group = is_ours and (is_step_aside(event) or place_of(event) == self._numbered)
        unfinished = self.part() if self._group and not belongs_to_group else []
        if is_ours and not self._group:
            self._missing = self._stored.count(event)
        if not self._missing:
            return [*unfinished, *self._write_new(event, sent)]
        self._group.append(event)
        self._missing -= 1
        if self._missing:
            return unfinished
        return [*unfinished, *self._complete_group()]

    def _write_new(self, event: Event, sent: Event | None) -> list[Any]:
        """Return the records for an event that is in no stored record."""
        if not is_of(event, self._name):
            if sent is not None:
                return self._write(sent)
            if self._notes is not None:
                self._notes.leave_out(event, hidden=True)
            return []
        if is_step_aside(event):
            # a step aside between two records has no record, but the writer must know of it
            self._writer.follow([event], None)
            return []
        return [*self._write(event), *self._end_open_record()]

    def _complete_group(self) -> list[Any]:
        """Return the stored record of the group, or new records if it is redacted."""
        events = self._group
        self._group = []
        record = self._stored.record(events)
        if record is None:
            return self._write_remains(events)
        complete = self._end_open_record()
        self._follow(events, record)
        return [*complete, record]

    @property
    def _numbered(self) -> int:
        """The number of events of the group that have a place in their record."""
        return sum(not is_step_aside(event) for event in self._group)

    def _as_sent(self, event: Event) -> Event | None:
        """Return an event as a model receives it. Calls of the user, and results of these calls,
        become messages. A result names its call. Return None for an event that the model does not
        receive, such as a second result of a call.
        """
        if self._first is None:
            self._first = event.id
        match event:
            case SystemMessage() | Message() | Action() | Observation() if not event.shown:
                return None
            case Annotation(shown=True, origin=None):
                return _as_message(event, "environment", content_of(event))
            case Action(source=source):
                if not self._waiting.waiting:
                    self._waiting = WaitingCalls()
                self._waiting.add(event, event.id)
                if source == "agent":
                    return event
                self._calls_of_user.add(event.id)
                return _as_message(event, source, event.thought)
            case Observation():
                call = self._waiting.take(event)
                if call is None:
                    return event if self._may_answer_earlier(event) else None
                if call not in self._calls_of_user:
                    return replace(event, cause=call)
                self._calls_of_user.remove(call)
                return _as_message(event, "environment", event.content)
        return event

    def _may_answer_earlier(self, result: Observation) -> bool:
        """Return whether a result may answer a call before the first exported event. A result
        without a cause may answer any earlier call.
        """
        first = self._first or 0
        return first > 0 if result.cause is None else result.cause < first

    def end(self) -> list[Any]:
        """Return the records that were still incomplete at the end of the history.

        Raises ``InvalidEvent`` if later events of a record are missing.
        """
        if self._group:
            first = self._group[0]
            count = len(self._group)
            raise InvalidEvent(
                f"event {first.id} begins a record of {count + self._missing} events, but only"
                f" {count} of them are exported; export the history up to event {first.id}, or the"
                " whole record, or name another format with --format"
            )
        return self._end_open_record()

    def _end_open_record(self) -> list[Any]:
        """Return the records that the writer has not completed."""
        return self._with_head(self._writer.end())

    def part(self, without: Event | None = None) -> list[Any]:
        """Return new records for the first events of an incomplete record. ``without`` is the event
        of the record that is missing, because it was redacted or retracted.
        """
        group = self._group
        self._group = []
        self._missing = 0
        if without is not None:
            self._writer.follow([without], None)
        return [
            *(record for event in group for record in self._write(event)),
            *(self._end_open_record() if group else ()),
        ]

    def shown(self, events: Sequence[Event], stored: Sequence[Event]) -> list[Any]:
        """Return the records to export for ``events``, the shown events of one stored record.
        ``stored`` are all events of this record in the log. If ``events`` equal ``stored``, return
        the stored record. If they differ, an unchanged event keeps its part of the stored record,
        and a changed event gets a new part.
        """
        self._follow_passed()
        if [*events] == [*stored]:
            return [*(record for event in events for record in self.records(event)), *self.end()]
        record = None
        if self._parts and is_of(stored[0], self._name):
            record = self._stored.record(stored)
        if record is None:
            return self._write_remains(events)
        shown_parts = list[Any]()
        for event in events:
            index = event.id - stored[0].id
            if event == stored[index]:
                stored_parts = _parts_in(record, self._parts) or []
                shown_parts += stored_parts[index : index + 1]
                continue
            for made_record in self._write_remains([event]):
                shown_parts += _parts_in(made_record, self._parts) or []
        return [_with_parts(record, self._parts, shown_parts)] if shown_parts else []

    def _write_remains(self, events: Sequence[Event]) -> list[Any]:
        """After a redaction, return new records for the remaining events of one record. If the
        format has ``parts``, return a single record with the parts of all remaining events.
        """
        earlier_records = self._end_open_record()
        records = list[Any]()
        for event in events:
            origin = event.origin
            if self._parts:
                # only the first new record gets the id of the redacted record
                origin = None if records else events[0].origin
            records += self._write(replace(event, origin=origin))
        records += self._end_open_record()
        parts_of_records = [_parts_in(record, self._parts) for record in records if self._parts]
        if len(parts_of_records) < 2 or None in parts_of_records:
            return [*earlier_records, *records]
        records[0] = _with_parts(
            records[0], self._parts, [part for parts in parts_of_records for part in parts or ()]
        )
        self._writer.follow((), records[0])
        return [*earlier_records, records[0]]

    def _write(self, event: Event) -> list[Any]:
        """Return the records that the writer completes with a new event, and note what it leaves
        out.
        """
        event = in_json(event)
        if self._head is None:
            self._head = self._writer.head(event)
        records = self._writer.records(event)
        if self._notes is not None:
            if records is None:
                self._notes.leave_out(event)
            else:
                self._notes.write(event)
        return self._with_head(records) if records else []

    def _with_head(self, records: Sequence[Any]) -> list[Any]:
        """Return records, with the head of the export before the first."""
        if not records:
            return []
        head = self._head or ()
        self._head = ()
        return [*head, *records]


def _as_message(event: Event, source: Source, content: Content) -> Message | None:
    """Return a message in place of an event, or None without content."""
    message = Message(
        id=event.id, timestamp=event.timestamp, origin=event.origin, source=source, content=content
    )
    return message if content else None


def _parts_in(record: Any, path: Sequence[str]) -> list[Any] | None:
    """Return the parts that a record has at ``path``. A text becomes a single part."""
    value = within(record, *path)
    return [text_part(value)] if isinstance(value, str) else value


def _with_parts(record: Any, path: Sequence[str], parts: list[Any]) -> Any:
    """Return a copy of a record that has ``parts`` at ``path``."""
    if path:
        return {**record, path[0]: _with_parts(record[path[0]], path[1:], parts)}
    return parts


def in_json(event: Event) -> Event:
    """Return an event in a form that any program can read as JSON."""
    # Most events have neither bytes nor surrogates. A search in the event's ``repr`` finds this out
    # faster than a search in every value.
    text = repr(event)
    if "b'" in text or 'b"' in text:  # the event may contain bytes
        event = _without_bytes(event)
    # many programs cannot read half a surrogate pair
    return _sendable(event) if "\\ud" in text else event


def _sendable(event: Event) -> Event:
    """Return the event with a question mark in place of each half of a surrogate pair."""
    containers = (value if isinstance(value, dict) else [value] for _, value in values_in(event))
    replacements = {
        text: sendable(text) for texts in containers for text in texts if isinstance(text, str)
    }
    return _replace_changed(event, replace_texts(asdict(event), replacements, names=True))


def _replace_changed(event: Event, fields: Fields) -> Event:
    """Return the event with the values in ``fields``. Only changed values are set: a condensation
    has a field for a list of ids and fields for a range, and refuses to be made with both.
    """
    return replace(
        event, **{name: value for name, value in fields.items() if value != getattr(event, name)}
    )


def _without_bytes(event: Event) -> Event:
    """Return the event with data URLs in place of the bytes of images and files, and base64 in
    place of all other bytes.
    """
    containers = {
        name: value
        for name, value in asdict(event).items()
        if isinstance(value, dict | list | tuple)
    }
    if isinstance(containers.get("content"), tuple):
        containers["content"] = tuple(map(_with_url, containers["content"]))
    built = {name: to_builtins(value) for name, value in containers.items()}
    return _replace_changed(
        event,
        {
            name: tuple(built[name]) if type(containers[name]) is tuple else built[name]
            for name in built
        },
    )


def _with_url(part: Fields) -> Fields:
    """Return an image or a file with a data URL in place of its bytes."""
    for name, key in ("image_url", "url"), ("file", "file_data"):
        file = part.get(name)
        fields = file if isinstance(file, dict) else {key: file}
        data = fields.get(key)
        if isinstance(data, bytes):
            return {**part, name: {**fields, key: data_url(data)}}
    return part
