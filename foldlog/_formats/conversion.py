"""Convert records to events and back, in the format that the caller names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, tee
from typing import Any

from msgspec.structs import replace

from foldlog._formats.encoding import NO_RECORDS, Encoder, StoredRecords, in_json
from foldlog._formats.export_notes import ExportNotes, several
from foldlog._formats.format import Format, Options, RecordDecoder
from foldlog._formats.openai_chat import thought
from foldlog._formats.places import is_of, number
from foldlog._formats.record import ImportFinding, NotAnEvent
from foldlog._formats.registry import UnknownFormat, format_named, formats
from foldlog._formats.reply_encoders import joined
from foldlog.eventstore import (
    DocumentChanges,
    Event,
    InvalidEvent,
    Message,
    Retraction,
    Store,
    SystemMessage,
)
from foldlog.projections import Intervals, View, contains, intervals_kept
from foldlog.projections.messages.turns import Dialect, turns, words_of

ANY_HISTORY = "openai-chat"
"""The format that can write every history."""
_NATIVE = "openhands-v1"
"""The format for a history that was not imported."""
_PLAIN: dict[str, Any] = {"cause": None, "origin": None, "redacted": None, "meta": {}, "extra": {}}
"""The fields of an event that a model is sent nothing of."""


class OtherFormat(UnknownFormat):
    """The history was imported from another format. Export it in that one, or as ``openai-chat``,
    or its View.
    """

    def __init__(self, format: str, origin: str) -> None:
        known = " or ".join(
            repr(each) for each in dict.fromkeys((origin, ANY_HISTORY)) if each in formats()
        )
        instead = (
            f"export it as {known}, or what a model is sent now in any format (--view, or"
            " view=True)"
        )
        ValueError.__init__(self, f"this history was imported from {origin!r}; {instead}")
        self.format = format


class NotWritten(UnknownFormat):
    """foldlog writes no history in this format. Choose one that it writes; an import is exported as
    it came.
    """

    def __init__(self, format: str) -> None:
        ValueError.__init__(
            self, f"foldlog writes no history as {format!r}; choose one of {', '.join(written())}"
        )
        self.format = format


def written() -> list[str]:
    """Return the names of the formats in which a history can be written."""
    return [name for name, format in formats().items() if format.lacks is not None]


def check_written(format: str) -> Format:
    """Return a format in which a history can be written. Raises ``NotWritten``,
    ``UnknownFormat``.
    """
    chosen = format_named(format)
    if chosen.lacks is None:
        raise NotWritten(format)
    return chosen


def check_told(name: str, told: object) -> None:
    """Raise ``TypeError`` for an argument that is to be called with each finding or note, and
    cannot be called.
    """
    if told is not None and not callable(told):
        raise TypeError(
            f"{name} is a function that is called with each of them, such as print, not {told!r}"
        )


def decode(
    records: Iterable[Any],
    format: str,
    *,
    as_history: bool = False,
    findings: Callable[[ImportFinding], None] | None = None,
) -> Iterator[Event]:
    """Return the events of one history, in order, with ids 0, 1, 2, …

    With ``as_history``, OpenHands V0 records are the agent's history: all of them are shown except
    condensations and requests. Otherwise they are a stream, and records outside the agent's history
    are kept and not shown. If a log of V1 or Claude Code branches, the active branch is shown.

    A record that is not an event goes to ``findings`` and is left out; without ``findings`` it
    raises ``InvalidEvent``. Problems of other records go to ``findings`` too. Raises
    ``UnknownFormat``. Cost: one pass over the records.
    """
    check_told("findings", findings)
    chosen = format_named(format)
    options = Options(as_history=as_history)
    return _decoded(records, chosen, options.findings, chosen.reader(options), findings)


def _decoded(
    records: Iterable[Any],
    format: Format,
    found: list[str],
    decoder: RecordDecoder,
    findings: Callable[[ImportFinding], None] | None,
) -> Iterator[Event]:
    for place, record in enumerate(records):
        try:
            events = decoder.events(record)
        except NotAnEvent as error:
            finding = ImportFinding(f"record {place}", str(error))
            if findings is None:
                raise InvalidEvent(
                    f"{finding}; correct the record, or collect findings with findings="
                ) from error
            findings(finding)
        else:
            number(events, format.name)
            yield from events
            if findings is not None:
                for problem in found:
                    findings(ImportFinding(f"record {place}", problem))
            found.clear()


def encode(
    events: Iterable[Event], format: str, *, notes: Callable[[str], None] | None = None
) -> Iterator[Any]:
    """Return the records of a whole history, from its event 0 on, as the format writes them:
    ``openai-chat``, ``anthropic-messages``, ``openhands-v1``, ``otlp-genai`` or ``atif``.

    Retracted events are written too: ``history.export`` leaves these out, and returns the records
    of an import as they came. Any history can be written as ``openai-chat``, without its
    bookkeeping. ``notes`` gets what the format has no place for.

    Raises ``UnknownFormat``, also where foldlog does not write the format, or the history was
    imported from another one; ``ValueError`` where the events do not begin at 0 or one is missing,
    because a record may refer to an earlier one.
    """
    check_told("notes", notes)
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
    """Return the records of a whole history up to ``version`` as it stands there: without events
    that ``retractions`` took back. Those that the source made are its own way to branch: their
    records are written. Raises what ``encode`` raises.
    """
    made = [each for each in retractions if not is_of(each, format)]
    kept = intervals_kept(made, version) if made else None
    events, ahead = tee(events)
    standing = (event for event in ahead if kept is None or contains(kept, event.id))
    first = next((event for event in standing if not isinstance(event, DocumentChanges)), None)
    if first is not None:
        check_origin(first, format)
        if first.origin is None or first.origin.format != format:
            check_written(format)
    del ahead, standing
    return _records(events, format_named(format), notes, kept, stored)


def encode_view(view: View, format: str, notes: Callable[[str], None] | None) -> Iterator[Any]:
    """Return what a model is sent of a View as records of a format: the messages of its dialect, or
    else those that its writer makes. Raises ``UnknownFormat``, also for a format that foldlog does
    not write.
    """
    chosen = check_written(format)
    if chosen.dialect is None:
        return _records(_events_sent(view), chosen, notes, None, NO_RECORDS)
    if notes is not None:
        counted = ExportNotes(chosen)
        for event in _events_sent(view):
            counted.write(in_json(event))
        _tell(counted, "what a model is sent", notes)
    return iter(_messages(chosen.dialect, view))


def _messages(dialect: Dialect, view: View) -> list[dict[str, Any]]:
    """Return the messages of a View, those of OpenAI's chat with the thinking before them."""
    if dialect == "openai":
        thinking = {
            turn.positions: turn.thinking for turn in turns(view.events, view.fit_positions)
        }
        return [
            message | thought(thinking[positions]) if message["role"] == "assistant" else message
            for message, positions in view.rendered(dialect)
        ]
    prompt = view.system_prompt  # Anthropic's messages have no role of a system
    before = [{"role": "user", "content": prompt}] if prompt else []
    return [*before, *(message for message, _ in view.rendered(dialect))]


def _events_sent(view: View) -> list[Event]:
    """Return what a model is sent of a View, as the events of a history that was not imported."""
    sent: list[Event] = []
    for turn in turns(view.events, view.fit_positions):
        shown: list[Any] = [view.events[position] for position in turn.positions]
        used = {
            key: each.meta[key] for each in shown for key in ("usage", "cost") if key in each.meta
        }
        said = map(words_of, shown)
        thoughts = iter(turn.thinking)
        begin = len(sent)
        for call in turn.calls:
            is_last = call is turn.calls[-1]  # it takes what was said and thought after it
            told: dict[str, Any] = {
                "id": len(sent),
                "call_id": call.id,
                "response_id": f"reply-{begin}",
            }
            told["thought"] = joined(said if is_last else islice(said, len(call.positions)))
            told["thinking"] = tuple(thoughts if is_last else islice(thoughts, len(call.thinking)))
            form = {key: value for key, value in call.action.meta.items() if key == "custom_tool"}
            form |= used if call is turn.calls[0] else {}
            sent.append(replace(call.action, **{**_PLAIN, **told, "meta": form}))
        for cause, call in enumerate(turn.calls, begin):
            told = {"id": len(sent), "call_id": call.id, "cause": cause, "extras": {}}
            sent.append(replace(call.observation, **{**_PLAIN, **told}))
        if turn.parts and not turn.calls:
            told = {"id": begin, "timestamp": shown[0].timestamp, "content": joined(said)}
            if turn.role == "system":
                sent.append(SystemMessage(**told, tools=shown[0].tools))
            elif turn.role == "assistant":
                sent.append(Message(**told, source="agent", thinking=turn.thinking, meta=used))
            else:
                sent.append(
                    Message(**told, source="user" if shown[0].source == "user" else "environment")
                )
    return sent


def _records(
    events: Iterable[Event],
    format: Format,
    notes: Callable[[str], None] | None,
    kept: Intervals | None,
    stored: StoredRecords,
) -> Iterator[Any]:
    """Yield the records of a history, of the events in ``kept``; None stands for all."""
    counted = None if notes is None else ExportNotes(format)
    retracted = 0
    encoder = Encoder(
        format if format.lacks is not None else dataclasses.replace(format, encoder=None),
        counted,
        stored,
    )
    for expected, event in enumerate(events):
        if event.id != expected:
            raise InvalidEvent(
                f"expected event {expected}, found event {event.id}; an export needs the whole"
                " history"
            )
        if kept is not None and not contains(kept, event.id):
            yield from encoder.part(event)
            retracted += not isinstance(event, Retraction)
            continue
        check_origin(event, format.name)
        yield from encoder.records(event)
    yield from encoder.end()
    if notes is None or counted is None:
        return
    if retracted:
        notes(
            f"left out: {several(retracted, 'event')} taken back by retractions; 'foldlog log ID'"
            " shows them"
        )
    _tell(counted, format.name, notes)


def _tell(counted: ExportNotes, format: str, notes: Callable[[str], None]) -> None:
    hidden, lost = counted.end()
    if hidden:
        notes(f"left out: {hidden}, which no model was shown; 'foldlog log ID' shows them")
    if lost:
        notes(f"left out: {lost}; {format} has no place for it")


def format_of_history(store: Store, conversation: str) -> str:
    """Return the format in which a history is exported. The first event decides that was imported,
    or that is shown: documents come before an adapter's first record.
    """
    events = store.events(conversation)
    first = next((event for event in events if event.origin is not None or event.shown), None)
    if first is None or first.origin is None:
        return _NATIVE
    return first.origin.format


def check_origin(event: Event, format: str) -> None:
    """Raise ``OtherFormat`` for an event that cannot be written in this format."""
    if event.origin is not None and event.origin.format != format and format != ANY_HISTORY:
        raise OtherFormat(format, event.origin.format)
