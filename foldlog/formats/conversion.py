"""Convert records to events and back, in the format that the caller names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, tee
from typing import Any

from msgspec.structs import replace

from foldlog.eventstore import (
    DocumentChanges,
    Event,
    InvalidEvent,
    Message,
    Retraction,
    Source,
    Store,
    SystemMessage,
)
from foldlog.formats.encoding import NO_RECORDS, Encoder, StoredRecords, in_json
from foldlog.formats.event_places import is_of, number
from foldlog.formats.export_notes import ExportNotes, several
from foldlog.formats.format import Format, Options, RecordDecoder
from foldlog.formats.openai_chat import thought
from foldlog.formats.record import Fields, ImportFinding, NotAnEvent
from foldlog.formats.registry import UnknownFormat, format_named, formats
from foldlog.formats.reply_encoders import join_contents
from foldlog.projections import Intervals, View, contains, intervals_kept
from foldlog.projections.messages.content import content_of
from foldlog.projections.messages.turns import Dialect, turns

ANY_HISTORY = "openai-chat"
"""The format as which every history can be written."""
_NATIVE = "openhands-v1"
"""The format of an export of a history that was not imported."""
_PLAIN: Fields = {"cause": None, "origin": None, "redacted": None, "meta": {}, "extra": {}}


class OtherFormat(UnknownFormat):
    """The history was imported from another format. Export the history in its own format or as
    ``openai-chat``, or export its View.
    """

    def __init__(self, format: str, origin: str) -> None:
        choices = " or ".join(
            repr(name) for name in dict.fromkeys((origin, ANY_HISTORY)) if name in formats()
        )
        instead = f"export it as {choices}, or export its View in any format (--view, or view=True)"
        ValueError.__init__(self, f"this history was imported from {origin!r}; {instead}")
        self.format = format


class NotWritten(UnknownFormat):
    """foldlog cannot write a history in this format. Choose another format. An imported history can
    always be exported in its own format.
    """

    def __init__(self, format: str) -> None:
        choices = ", ".join(writable_formats())
        ValueError.__init__(
            self, f"foldlog writes no history as {format!r}; choose one of {choices}"
        )
        self.format = format


def writable_formats() -> list[str]:
    """Return the formats that foldlog can write."""
    return [name for name, format in formats().items() if format.lacks is not None]


def check_written(format: str) -> Format:
    """Return the format with this name if foldlog can write the format. Raises ``NotWritten``,
    ``UnknownFormat``.
    """
    try:
        chosen = format_named(format)
    except UnknownFormat as error:
        raise UnknownFormat(format, writable_formats()) from error
    if chosen.lacks is None:
        raise NotWritten(format)
    return chosen


def check_callable(name: str, function: object) -> None:
    """Raise ``TypeError`` if ``function`` is not callable. ``name`` is the name of the argument in
    the error.
    """
    if function is not None and not callable(function):
        raise TypeError(
            f"{name} must be a function that is called with each of the {name}, such as print, not"
            f" {function!r}"
        )


def decode(
    records: Iterable[Any],
    format: str,
    *,
    as_history: bool = False,
    findings: Callable[[ImportFinding], None] | None = None,
) -> Iterator[Event]:
    """Return the events of one history, in order, with ids 0, 1, 2, …

    ``as_history`` only affects OpenHands V0. If ``as_history`` is true, the records are the agent's
    history, and all events are shown except condensations and requests. If ``as_history`` is false,
    the records are a stream, and only records of the agent's history are shown. If a log of V1 or
    Claude Code has branches, only the active branch is shown.

    If a record is not an event, ``decode`` calls ``findings`` with the problem and goes on with the
    next record. If ``findings`` is None, ``decode`` raises ``InvalidEvent``. ``findings`` also
    receives problems that do not prevent a record from becoming an event. Raises ``UnknownFormat``.
    ``decode`` reads ``records`` only once.
    """
    check_callable("findings", findings)
    chosen = format_named(format)
    options = Options(as_history=as_history)
    return _decode_all(records, chosen, options.findings, chosen.reader(options), findings)


def _decode_all(
    records: Iterable[Any],
    format: Format,
    problems: list[str],
    decoder: RecordDecoder,
    findings: Callable[[ImportFinding], None] | None,
) -> Iterator[Event]:
    """Yield the events of records. ``problems`` is the list to which the decoder adds problems of
    records that it could read.
    """
    for index, record in enumerate(records):
        try:
            events = decoder.events(record)
        except NotAnEvent as error:
            finding = ImportFinding(f"record {index}", str(error))
            if findings is None:
                raise InvalidEvent(
                    f"{finding}; correct the record, or collect findings with findings="
                ) from error
            findings(finding)
        else:
            number(events, format.name)
            yield from events
            if findings is not None:
                for problem in problems:
                    findings(ImportFinding(f"record {index}", problem))
            problems.clear()


def encode(
    events: Iterable[Event], format: str, *, notes: Callable[[str], None] | None = None
) -> Iterator[Any]:
    """Return the records of a whole history, which begins with event 0. ``format`` is
    ``openai-chat``, ``anthropic-messages``, ``openhands-v1``, ``otlp-genai`` or ``atif``.

    Retracted events are written too. ``history.export`` leaves out retracted events, and returns
    the records of an import unchanged. Any history can be written as ``openai-chat``, which leaves
    out bookkeeping. If the format cannot hold a kind of events, ``encode`` calls ``notes`` with a
    text about these events.

    Raises ``UnknownFormat`` if foldlog does not write the format, or if the history was imported
    from another format. Raises ``ValueError`` if an event is missing, because a record may refer to
    any earlier record.
    """
    check_callable("notes", notes)
    check_written(format)
    events = list(events)
    return encode_standing(events, len(events), (), format, notes)


def encode_standing(
    events: Iterable[Event],
    version: int,
    retractions: Iterable[Retraction],
    format: str,
    notes: Callable[[str], None] | None,
    stored: StoredRecords = NO_RECORDS,
) -> Iterator[Any]:
    """Return the records of a whole history up to ``version``, without events that ``retractions``
    took back. A branch that the imported source itself abandoned is written too. Raises the errors
    of ``encode``.
    """
    retractions_here = [retraction for retraction in retractions if not is_of(retraction, format)]
    kept_intervals = intervals_kept(retractions_here, version) if retractions_here else None
    events, look_ahead = tee(events)
    standing = (
        event
        for event in look_ahead
        if kept_intervals is None or contains(kept_intervals, event.id)
    )
    first = next((event for event in standing if not isinstance(event, DocumentChanges)), None)
    if first is not None:
        check_origin(first, format)
        if not is_of(first, format):
            check_written(format)
    del look_ahead, standing
    return _records(events, format_named(format), notes, kept_intervals, stored)


def encode_view(view: View, format: str, notes: Callable[[str], None] | None) -> Iterator[Any]:
    """Return the prompt that a View sends to a model, as records of a format. If the format has a
    dialect, the records are messages of this dialect. If the format has no dialect, the format's
    encoder makes the records. Raises ``UnknownFormat`` if foldlog does not write the format.
    """
    chosen = check_written(format)
    if chosen.dialect is None:
        return _records(_events_sent(view), chosen, notes, None, NO_RECORDS)
    if notes is not None:
        counts = ExportNotes(chosen)
        # The system prompts of a View come before all messages.
        for event in sorted(
            _events_sent(view), key=lambda sent: not isinstance(sent, SystemMessage)
        ):
            counts.write(in_json(event))
        _tell(counts, "a message to a model", notes)
    return iter(_messages(chosen.dialect, view))


def _messages(dialect: Dialect, view: View) -> list[Fields]:
    """Return the messages of a View. Messages in OpenAI's dialect also get the model's thinking."""
    if dialect == "openai":
        thinking = {
            turn.positions: turn.thinking for turn in turns(view.events, view.fit_positions)
        }
        return [
            message | thought(thinking[positions]) if message["role"] == "assistant" else message
            for message, positions in view.rendered(dialect)
        ]
    prompt = view.system_prompt
    opening = [{"role": "system", "content": prompt}] if prompt else []
    return [*opening, *(message for message, _ in view.rendered(dialect))]


def _events_sent(view: View) -> list[Event]:
    """Return events for a new history that sends a model the same prompt as ``view``."""
    events: list[Event] = []
    for turn in turns(view.events, view.fit_positions):
        shown_events: list[Any] = [view.events[position] for position in turn.positions]
        usage = {
            key: event.meta[key]
            for event in shown_events
            for key in ("usage", "cost")
            if key in event.meta
        }
        texts = map(content_of, shown_events)
        thoughts = iter(turn.thinking)
        first_id = len(events)
        for call in turn.calls:
            # the last call also gets the texts and thinking after the calls
            is_last = call is turn.calls[-1]
            fields: Fields = {
                "id": len(events),
                "call_id": call.id,
                "response_id": f"reply-{first_id}",
            }
            fields["thought"] = join_contents(
                texts if is_last else islice(texts, len(call.positions))
            )
            fields["thinking"] = tuple(
                thoughts if is_last else islice(thoughts, len(call.thinking))
            )
            meta = {key: value for key, value in call.action.meta.items() if key == "custom_tool"}
            if call is turn.calls[0]:
                meta |= usage
            events.append(replace(call.action, **{**_PLAIN, **fields, "meta": meta}))
        for cause, call in enumerate(turn.calls, first_id):
            fields = {"id": len(events), "call_id": call.id, "cause": cause, "extras": {}}
            events.append(replace(call.observation, **{**_PLAIN, **fields}))
        if turn.parts and not turn.calls:
            fields = {
                "id": first_id,
                "timestamp": shown_events[0].timestamp,
                "content": join_contents(texts),
            }
            if turn.role == "system":
                events.append(SystemMessage(**fields, tools=shown_events[0].tools))
            elif turn.role == "assistant":
                events.append(Message(**fields, source="agent", thinking=turn.thinking, meta=usage))
            else:
                source: Source = "user" if shown_events[0].source == "user" else "environment"
                events.append(Message(**fields, source=source))
    return events


def _records(
    events: Iterable[Event],
    format: Format,
    notes: Callable[[str], None] | None,
    kept_intervals: Intervals | None,
    stored: StoredRecords,
) -> Iterator[Any]:
    """Yield the records of events, and tell what the format left out. ``kept_intervals`` are the
    events that no retraction took back, or None for all events.
    """
    counts = None if notes is None else ExportNotes(format)
    retracted = 0
    encoder = Encoder(
        format if format.lacks is not None else dataclasses.replace(format, encoder=None),
        counts,
        stored,
    )
    for expected_id, event in enumerate(events):
        if event.id != expected_id:
            raise InvalidEvent(
                f"expected event {expected_id}, found event {event.id}; an export needs the whole"
                " history"
            )
        if kept_intervals is not None and not contains(kept_intervals, event.id):
            yield from encoder.part(event)
            retracted += not isinstance(event, Retraction)
            continue
        check_origin(event, format.name)
        yield from encoder.records(event)
    yield from encoder.end()
    if notes is None or counts is None:
        return
    if retracted:
        notes(
            f"left out: {several(retracted, 'event')} taken back by retractions; 'foldlog log ID'"
            " shows them"
        )
    _tell(counts, format.name, notes)


def _tell(counts: ExportNotes, format: str, notes: Callable[[str], None]) -> None:
    """Tell what an export left out."""
    hidden, without_place = counts.end()
    if hidden:
        notes(f"left out: {hidden}, which no model saw; 'foldlog log ID' shows them")
    if without_place:
        notes(f"left out: {without_place}, which {format} cannot hold")


def format_of_history(store: Store, conversation: str) -> str:
    """Return the default format for an export of a history: the format of the first event that is
    imported or shown. Earlier events are ignored, because an adapter may write documents before its
    first record.
    """
    events = store.events(conversation)
    first = next((event for event in events if event.origin is not None or event.shown), None)
    if first is None or first.origin is None:
        return _NATIVE
    return first.origin.format


def check_origin(event: Event, format: str) -> None:
    """Raise ``OtherFormat`` if an imported event cannot be written in this format."""
    if event.origin is not None and event.origin.format != format and format != ANY_HISTORY:
        raise OtherFormat(format, event.origin.format)
