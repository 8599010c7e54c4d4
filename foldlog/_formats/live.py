"""Convert records one by one: to events that are appended to a history, and back, without reading the history first.

    decoder = Decoder("claude-code", history)     # continues at the end of the history
    events = decoder.events(record)               # append them, with expected_version=decoder.version before the call
    encoder = Encoder("claude-code")
    records = [*encoder.records(event), *encoder.end()]

For the state that events need of earlier ones (the call of a result, the events that a compaction forgets) the View is
asked, or in rare cases the whole history: each format says when.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from msgspec import to_builtins
from msgspec.structs import asdict, replace

from foldlog._formats.format import Format, Options, UnusableFormat
from foldlog._formats.losses import Losses
from foldlog._formats.packing import is_kept, is_step_aside, keep, parts_of, place_of, unpack
from foldlog._formats.past import Past, ReadableHistory, is_of
from foldlog._formats.record import Located, within
from foldlog._formats.record_events import happened_at, told_by
from foldlog._formats.registry import format_named
from foldlog._formats.repeats import is_repeated, key_of
from foldlog._values import replaced, values_in
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    Content,
    Event,
    EventStoreError,
    InvalidEvent,
    Message,
    Observation,
    Source,
    SystemMessage,
)
from foldlog.projections.messages.content import data_url, sendable
from foldlog.projections.messages.turns import words_of
from foldlog.projections.units import WaitingCalls


class NotLive(EventStoreError, ValueError):
    """Records of this format cannot be added one by one: import the whole history."""

    def __init__(self, format: str) -> None:
        super().__init__(
            f"records of {format} cannot be added one by one; decode the whole history and import it with store.ingest"
        )
        self.format = format


class Encoder:
    """Turns the events of one history back into records, one event after the other.

    An imported record is returned as it was; a writer of the format makes those of other events. Begin with any event
    that begins a record. ``losses`` are told what it writes of other events. Raises ``UnknownFormat``.
    """

    def __init__(self, format: str | Format, losses: Losses | None = None) -> None:
        chosen = format if isinstance(format, Format) else format_named(format)
        self._name, self._parts = chosen.name, chosen.parts
        self._writer = chosen.writer()
        self._group: list[Event] = []
        self._missing = 0
        self._head: Sequence[Any] | None = None
        """What the first record comes after; empty once it was written."""
        self._losses = losses
        self._first: int | None = None
        """The id of the first event: results of calls before it are written."""
        self._waiting = WaitingCalls()
        """The calls that wait for results, each with the id of its event, which is inverted where no model called."""

    def records(self, event: Event) -> list[Any]:
        """Return the records that are complete with ``event``. Bytes become data URLs or base64 in them. Raises
        ``InvalidEvent``.
        """
        is_ours, sent = is_of(event, self._name), self._as_sent(event)
        given_up = self.part() if self._group and not (is_ours and place_of(event) == len(self._group)) else []
        if is_ours and not self._group:
            self._missing = parts_of(event)
        if not self._missing and is_ours and is_step_aside(event):
            self._writer.follow([event], None)
            return given_up
        if not self._missing:
            if is_ours:
                return [*given_up, *self._written(event), *self._ended()]
            if sent is None and self._losses is not None:
                self._losses.leave_out(event, hidden=True)
            return [*given_up, *(() if sent is None else self._written(sent))]
        self._group.append(event)
        self._missing -= 1
        if self._missing:
            return given_up
        events, self._group = self._group, []
        if not is_kept(events):
            return [*given_up, *self._remains(events)]
        record, complete = unpack(events), self._ended()
        self._head = ()
        if not is_repeated(event):  # what follows the log follows its end, not the end of a copy
            self._writer.follow(events, record)
        return [*given_up, *complete, record]

    def _as_sent(self, event: Event) -> Event | None:
        """Return an event as a model is sent it: what the user did, and its results, are words, and a result names
        its call. None stands for an event that no model is sent, such as a second result of a call.
        """
        self._first = event.id if self._first is None else self._first
        match event:
            case SystemMessage() | Message() | Action() | Observation() if not event.shown:
                return None
            case Annotation(shown=True, origin=None):
                return _words(event, "environment", words_of(event))
            case Action(source=source):
                self._waiting = self._waiting if self._waiting.waiting else WaitingCalls()
                self._waiting.add(event, event.id if source == "agent" else ~event.id)
                return event if source == "agent" else _words(event, source, event.thought)
            case Observation():
                cause = self._waiting.take(event)
                if cause is None:
                    return None if (event.cause or 0) >= self._first else event
                return replace(event, cause=cause) if cause >= 0 else _words(event, "environment", event.content)
        return event

    def end(self) -> list[Any]:
        """Return the records that are complete only at the end of the history.

        Raises ``InvalidEvent`` where later events of a record are missing.
        """
        if self._group:
            first, count = self._group[0], len(self._group)
            raise InvalidEvent(
                f"event {first.id} begins a record of {count + self._missing} events, and {count} of them are here; "
                f"export the history up to event {first.id}, or the whole record, or name another format with --format"
            )
        return self._ended()

    def _ended(self) -> list[Any]:
        return self._made(self._writer.end())

    def part(self, without: Event | None = None) -> list[Any]:
        """Return records for the events of a record of which a later event is redacted or retracted: ``without``."""
        group, self._group, self._missing = self._group, [], 0
        if without is not None:
            self._writer.follow([without], None)
        return [*(record for event in group for record in self._written(event)), *(self._ended() if group else ())]

    def shown(self, events: Sequence[Event], stored: Sequence[Event]) -> list[Any]:
        """Return the records for events that a model is sent of one record, which has the events ``stored`` in the log:
        the record, if these are the same. A part of it is as the log has it, or written of the changed event.
        """
        if [*events] == [*stored]:
            return [*(record for event in events for record in self.records(event)), *self.end()]
        if not self._parts or not is_of(stored[0], self._name) or not is_kept(stored):
            return self._remains(events)
        record, shown = unpack(stored), list[Any]()
        for event in events:
            place = event.id - stored[0].id
            made = [record] if event == stored[place] else self._remains([event])
            parts = [part for each in made for part in _parts_in(each, self._parts) or ()]
            shown += parts[place : place + 1] if event == stored[place] else parts
        return [_with_parts(record, self._parts, shown)] if shown else []

    def _remains(self, events: Sequence[Event]) -> list[Any]:
        """Return what is written of a redacted record of several events: one record, where the format says how."""
        before, made = self._ended(), list[Any]()
        for event in events:  # the first one written has the id of the record
            origin = event.origin if not self._parts else None if made else events[0].origin
            made += self._written(replace(event, origin=origin))
        made += self._ended()
        held = [_parts_in(record, self._parts) for record in made if self._parts]
        if len(held) < 2 or None in held:
            return [*before, *made]
        made[0] = _with_parts(made[0], self._parts, [part for parts in held for part in parts or ()])
        self._writer.follow((), made[0])
        return [*before, made[0]]

    def _written(self, event: Event) -> list[Any]:
        event = in_json(event)
        self._head = self._writer.head(event) if self._head is None else self._head
        records = self._writer.records(event)
        if self._losses is not None:
            self._losses.leave_out(event) if records is None else self._losses.seek(event, self._writer)
        return self._made(records) if records else []

    def _made(self, records: Sequence[Any]) -> list[Any]:
        """Return records that the writer made, after those that a history begins with."""
        if not records:
            return []
        if self._losses is not None:
            self._losses.look_in(records)
        head, self._head = self._head or (), ()
        return [*head, *records]


def _words(event: Event, source: Source, content: Content) -> Message | None:
    said = Message(id=event.id, timestamp=event.timestamp, origin=event.origin, source=source, content=content)
    return said if content else None


def _parts_in(record: Any, path: Sequence[str]) -> list[Any] | None:
    """Return the parts at a place in a record; None where there are none. A text is one."""
    held = within(record, *path)
    return [{"type": "text", "text": held}] if isinstance(held, str) else held


def _with_parts(record: Any, path: Sequence[str], parts: list[Any]) -> Any:
    """Return a record with these parts at that place."""
    return {**record, path[0]: _with_parts(record[path[0]], path[1:], parts)} if path else parts


def in_json(event: Event) -> Event:
    """Return an event as the JSON of any program holds it."""
    text = repr(event)
    if "b'" in text or 'b"' in text:  # perhaps bytes
        event = _without_bytes(event)
    return _sendable(event) if "\\ud" in text else event  # half a surrogate pair: many programs cannot read it


def _sendable(event: Event) -> Event:
    """Return an event with its texts as they can be sent: half a surrogate pair becomes a question mark."""
    held = (each if isinstance(each, dict) else [each] for _, each in values_in(event))
    sent = {text: sendable(text) for texts in held for text in texts if isinstance(text, str)}
    return _changed(event, replaced(asdict(event), sent, names=True))


def _changed(event: Event, fields: dict[str, Any]) -> Event:
    """Return an event with these fields. A condensation refuses to be told twice what it forgets: only what differs."""
    return replace(event, **{name: value for name, value in fields.items() if value != getattr(event, name)})


def _without_bytes(event: Event) -> Event:
    """Return an event that JSON can hold: the bytes of an image or a file as a data URL, other bytes in base64."""
    held = {name: value for name, value in asdict(event).items() if isinstance(value, dict | list | tuple)}
    if isinstance(held.get("content"), tuple):
        held["content"] = tuple(map(_with_url, held["content"]))
    made = {name: to_builtins(value) for name, value in held.items()}
    return _changed(event, {name: tuple(made[name]) if type(held[name]) is tuple else made[name] for name in made})


def _with_url(part: dict[str, Any]) -> dict[str, Any]:
    """Return the part. If it is an image or a file of bytes, return it with a data URL, as formats have it."""
    for name, key in ("image_url", "url"), ("file", "file_data"):
        held = part.get(name)
        data = held.get(key) if isinstance(held, dict) else held
        if isinstance(data, bytes):
            return {**part, name: {**(held if isinstance(held, dict) else {}), key: data_url(data)}}
    return part


class Decoder:
    """Turns records into the events to append to a history, one record after the other.

    ``version`` is the version of the history that the next events are for. They have the next ids; append all events of
    a record, or of several records, in one batch with the version as it was before as ``expected_version``. After an
    append that failed, or events that came from elsewhere, make a new decoder. ``findings`` are the problems of the
    last record, if events were made of it all the same.

    Raises ``UnknownFormat``, and ``NotLive`` for a format that cannot do this. Cost: none; see ``docs/IMPORTING.md``
    for the records of which a format reads more.
    """

    def __init__(self, format: str | Format, history: ReadableHistory) -> None:
        self._format = format if isinstance(format, Format) else format_named(format)
        if not self._format.live:
            raise NotLive(self._format.name)
        self.version = history.version()
        self.findings: list[str] = []
        past = Past(self._format.name, history, self.version)
        options = Options(first_id=self.version, past=past, findings=self.findings)
        self._decoder = self._format.reader((), options)

    def events(self, record: Any) -> list[Event]:
        """Return the events of the next record. Raises ``NotAnEvent``; then nothing has changed."""
        self.findings.clear()
        events = self._decoder.events(record)
        keep(record, events, self._format.name)
        if events[0].id != self.version:
            raise UnusableFormat(
                f"the decoder of {self._format.name} gave event {events[0].id} to a history at version {self.version}; "
                f"a live format begins at Options.first_id"
            )
        self.version += len(events)
        return events

    def skip(self, count: int) -> None:
        """Reserve the next ``count`` ids for other events, which the caller appends in the same batch before the events
        of the next record.
        """
        self.version += count
        self._decoder.skip_to(self.version)


def read_on(format: Format, history: ReadableHistory, records: Iterable[Located]) -> list[Event] | None:
    """Return the events of the records that a source has beyond those of a history; None where a reading of the whole
    source could make others, or find a problem. Cost: those records, and what the decoder asks of the history.
    """
    events: list[Event] = []
    try:
        past = Past(format.name, history, history.version())
        is_copied = any(map(is_repeated, islice(past.newest_first(), 1)))  # perhaps not to its end
        if is_copied or not format.reads_on(past):
            return None
        decoder, first = Decoder(format, history), next((key_of(record) for record, _ in past.records()), None)
        newest = None
        for located in records:
            is_read = located.problem is None and key_of(located.value) != first
            made = decoder.events(located.value) if is_read else []
            at = happened_at(told_by(format, located.value)) if made else None
            if at is not None and newest is None:
                newest = next((each.timestamp for each in past.newest_first() if each.timestamp is not None), at)
            is_late = at is not None and newest is not None and at < newest  # it may be an earlier record again
            if not made or is_late or decoder.findings or any(map(_needs_more, made)):
                return None
            newest = at or newest
            events += made
    except EventStoreError:  # a record of none, or a damaged event: reading all of it tells
        return None
    return events


def _needs_more(event: Event) -> bool:
    """Return whether an event is made of more than a View: a compaction, or a result of a call on a hidden chain."""
    is_lost = isinstance(event, Observation) and event.call_id is not None and event.cause is None
    return is_lost or isinstance(event, CondensationAction)
