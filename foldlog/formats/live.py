"""Convert records one by one: to events that are appended to a history, and back, without reading the history first.

    decoder = Decoder("claude-code", history)     # continues at the end of the history
    events = decoder.events(record)               # append them, with expected_version=decoder.version before the call
    encoder = Encoder("claude-code")
    records = [*encoder.records(event), *encoder.end()]

A record is stored as its difference from the prediction by the records before it. So a decoder reads *segments*: the
first record of a segment is read without the records before it, and its first event says so (``begins`` in
``origin.rest``). A segment ends after 128 records, with an event that changes the View other than by adding to its end,
and with every event of another source. A decoder of another process reads the last segment again, and continues in it.
For the state that events need of earlier ones (the call of a result, the events that a compaction forgets) the View is
asked, or in rare cases the whole history: each format says when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, cast

from msgspec.structs import force_setattr, replace

from foldlog.eventstore import Event, EventStoreError, Message, Observation, is_structural
from foldlog.formats.format import (
    Format,
    Options,
    RecordEncoder,
    RestartableDecoder,
    RestartableEncoder,
    UnusableFormat,
    new_decoder,
    new_encoder,
)
from foldlog.formats.registry import format_named

if TYPE_CHECKING:
    from foldlog.projections import View

BEGINS = "begins"
"""The mark of the first event of a segment, in ``origin.rest``."""
SEGMENT_RECORDS = 128
_TAIL_EVENTS = 2 * SEGMENT_RECORDS
"""The number of last events that are searched for the beginning of the last segment, where a decoder continues."""


class NotLive(EventStoreError, ValueError):
    """Records of this format cannot be added one by one: import the whole history."""

    def __init__(self, format: str, reason: str = "") -> None:
        because = f": {reason}" if reason else ""
        super().__init__(
            f"records of {format} cannot be added one by one{because}; "
            f"decode the whole history and import it with store.ingest"
        )
        self.format = format


class ReadableHistory(Protocol):
    """The methods of a history that a decoder needs, such as those of ``foldlog.History``."""

    def version(self) -> int: ...

    def at(self, version: int) -> View: ...

    def events(self, start: int = 0, stop: int | None = None, *, reverse: bool = False) -> Iterator[Event]: ...


class Encoder:
    """Turns the events of one history back into records, one event after the other.

    Begin with event 0, or with an event that begins a segment. Of a format whose records stand alone, with any event.
    Raises ``UnknownFormat``.
    """

    def __init__(self, format: str | Format) -> None:
        self._format = format if isinstance(format, Format) else format_named(format)
        self._encoder: RecordEncoder = new_encoder(self._format)

    @property
    def left_out(self) -> Counter[str]:
        """Counts the condensations and retractions that the format has no record for."""
        return self._encoder.left_out

    def records(self, event: Event) -> list[Any]:
        """Return the records that are complete with ``event``. Images that are bytes become data URLs in them."""
        if isinstance(event, Message | Observation) and isinstance(event.content, tuple):
            event = replace(event, content=tuple(map(_with_url, event.content)))
        if not _begins(event, self._format):
            return self._encoder.records(event)
        complete = self._encoder.end()
        cast(RestartableEncoder, self._encoder).restart(event.id)
        return [*complete, *self._encoder.records(event)]

    def end(self) -> list[Any]:
        """Return the record that is complete only at the end of the history, if there is one.

        Raises ``ValueError`` where a part of a record is missing.
        """
        return self._encoder.end()


def _with_url(part: dict[str, Any]) -> dict[str, Any]:
    """Return the part. If it is an image of bytes, return it with a data URL, as formats have it."""
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    if not isinstance(url, bytes):
        return part
    from foldlog.projections.messages.content import data_url  # few histories have bytes

    return {**part, "image_url": {**(image if isinstance(image, dict) else {}), "url": data_url(url)}}


class Decoder:
    """Turns records into the events to append to a history, one record after the other.

    ``version`` is the version of the history that the next events are for. They have the next ids; append all events of
    a record, or of several records, in one batch with the version as it was before as ``expected_version``. After an
    append that failed, or events that came from elsewhere, make a new decoder. ``findings`` are the problems of the
    last record, if events were made of it all the same.

    Raises ``UnknownFormat``, and ``NotLive`` for a format that cannot do this. Cost: the last events, up to 256.
    """

    def __init__(self, format: str | Format, history: ReadableHistory) -> None:
        self._format = format if isinstance(format, Format) else format_named(format)
        if not self._format.live:
            raise NotLive(self._format.name, self._format.not_live)
        self.version = history.version()
        self._in_segment = 0
        start = self.version
        segment: Sequence[Event] = ()
        last_source_id = None
        if self.version and not self._format.standalone:
            segment, last_source_id = self._last_segment(history)
            start -= len(segment)
        self._past = _Past(self._format, history, start, last_source_id)
        self.findings: list[str] = []
        options = Options(first_id=start, past=self._past, findings=self.findings)
        self._decoder = cast(RestartableDecoder, new_decoder(self._format, (), options))
        if segment:
            self._replay(segment)

    def events(self, record: Any) -> list[Event]:
        """Return the events of the next record. Raises ``NotAnEvent``; then nothing has changed."""
        begins = not self._format.standalone and not 0 < self._in_segment < SEGMENT_RECORDS
        if begins:
            self._decoder.restart(self.version)
        self.findings.clear()
        events = self._decoder.events(record)
        if events[0].id != self.version:
            raise UnusableFormat(
                f"the decoder of {self._format.name} gave event {events[0].id} to a history at version {self.version}; "
                f"a live format begins at Options.first_id"
            )
        if begins:
            _mark(events[0])
        self._in_segment = 1 if begins else self._in_segment + 1
        if any(map(is_structural, events)):
            self._in_segment = 0
        self.version += len(events)
        return events

    def skip(self, count: int) -> None:
        """Reserve the next ``count`` ids for other events, which the caller appends in the same batch before the events
        of the next record.
        """
        self.version += count
        self._in_segment = 0
        self._decoder.restart(self.version)

    def _last_segment(self, history: ReadableHistory) -> tuple[Sequence[Event], Any]:
        """Return the events of the last segment, or none if it cannot be continued; and the last source id
        before it.
        """
        reading = history.events(max(0, self.version - _TAIL_EVENTS), self.version, reverse=True)
        newest: list[Event] = []
        segment: Sequence[Event] = ()
        for event in reading:
            newest.append(event)
            if not self._is_ours(event) or is_structural(event):
                break
            if _begins(event, self._format):
                segment = newest[::-1]
                newest = []
                break
        origins = (event.origin for event in chain(newest, reading) if self._is_ours(event))
        return segment, next((origin.id for origin in origins if origin and origin.id is not None), None)

    def _is_ours(self, event: Event) -> bool:
        return event.origin is not None and event.origin.format == self._format.name

    def _replay(self, segment: Sequence[Event]) -> None:
        """Bring the decoder into the state after the records of these events."""
        start, self._past.segment = self.version - len(segment), segment
        self._decoder.restart(start)
        version = start
        encoder = Encoder(self._format)
        records = [record for event in segment for record in encoder.records(event)]
        for record in (*records, *encoder.end()):
            version += len(self._decoder.events(record))
            self._in_segment += 1
        self._past.segment = ()
        if version != self.version:  # only a part of a record was stored
            raise ValueError(
                f"the last {len(segment)} events are read as {version - start} events of {self._format.name}; "
                f"append all events of a record in one batch"
            )


class _Past:
    """The history before a decoder's records."""

    def __init__(self, format: Format, history: ReadableHistory, version: int, last_source_id: Any) -> None:
        self._format, self._history, self._version = format, history, version
        self.last_source_id = last_source_id
        self.segment: Sequence[Event] = ()
        """The events whose records are read again."""

    @property
    def replays(self) -> bool:
        return bool(self.segment)

    def replayed(self, event_id: int) -> Event | None:
        place = event_id - self._version
        return self.segment[place] if 0 <= place < len(self.segment) else None

    def newest_first(self) -> Iterator[Event]:
        return self._history.events(0, self._version, reverse=True) if self._version else iter(())

    def view(self, version: int | None = None) -> View:
        return self._history.at(self._version if version is None else version)

    def records(self, stop: int | None = None) -> Iterator[tuple[Any, Sequence[Event]]]:
        stop = self._version if stop is None else min(stop, self._version)
        return _recorded(self._format, self._history.events(0, stop) if stop else iter(()))

    def source_id(self, event_id: int) -> Any:
        (event,) = self._history.events(event_id, event_id + 1)
        origin = event.origin
        return origin.id if origin is not None and origin.format == self._format.name else None


def _recorded(format: Format, events: Iterator[Event] | Sequence[Event]) -> Iterator[tuple[Any, Sequence[Event]]]:
    """Yield each record from which imported events were made, with these events."""
    encoder = Encoder(format)
    group: list[Event] = []
    for event in events:
        complete = encoder.records(event)
        if event.origin is None or event.origin.format != format.name:
            group.clear()  # an event of another source is between records
            continue
        if complete:
            yield complete[-1], (*group, event)
            group.clear()
        else:
            group.append(event)


def begins_segment(event: Event, format: str) -> bool:
    """Return whether an encoder of this live format may begin with ``event``. Raises ``UnknownFormat``."""
    return _begins(event, format_named(format))


def _begins(event: Event, format: Format) -> bool:
    origin = event.origin
    return (
        origin is not None
        and type(origin.rest) is dict
        and BEGINS in origin.rest
        and origin.format == format.name
        and format.live
    )


def _mark(event: Event) -> None:
    assert event.origin is not None
    rest = event.origin.rest
    force_setattr(event.origin, "rest", {BEGINS: True, **(rest or {})})  # no other code has it before it is returned
