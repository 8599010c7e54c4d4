"""Convert records to events and back, in the format that the caller names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice, pairwise, tee
from typing import Any

from msgspec.structs import replace

from foldlog._formats.format import Format, Options, RecordDecoder
from foldlog._formats.live import Encoder, in_json
from foldlog._formats.losses import Losses, several
from foldlog._formats.openai_chat import thought
from foldlog._formats.packing import keep
from foldlog._formats.pairs import joined
from foldlog._formats.past import is_of
from foldlog._formats.record import ImportFinding, NotAnEvent
from foldlog._formats.record_events import COMMENTARY
from foldlog._formats.registry import UnknownFormat, format_named, formats
from foldlog._formats.rewritten import is_rewriting, standing_in
from foldlog.eventstore import Event, InvalidEvent, Message, Retraction, Store, SystemMessage
from foldlog.projections import Intervals, View, contains, intervals_kept
from foldlog.projections.messages.turns import Dialect, turns, words_of

ANY_HISTORY = "openai-chat"
"""The format that can write every history."""
_NATIVE = "openhands-v1"
"""The format for a history that was not imported."""
_PLAIN: dict[str, Any] = {"cause": None, "origin": None, "redacted": None, "meta": {}, "extra": {}}
"""The fields of an event that a model is sent nothing of."""


class OtherFormat(UnknownFormat):
    """The history was imported from another format. Export it in that one, or as ``openai-chat``, or its View."""

    def __init__(self, format: str, origin: str) -> None:
        known = " or ".join(repr(each) for each in dict.fromkeys((origin, ANY_HISTORY)) if each in formats())
        instead = f"export it as {known}, or what a model is sent now in any format (--view, or view=True)"
        ValueError.__init__(self, f"this history was imported from {origin!r}; {instead}")
        self.format = format


def check_told(name: str, told: object) -> None:
    """Raise ``TypeError`` for an argument that is to be called with each finding or note, and cannot be called."""
    if told is not None and not callable(told):
        raise TypeError(f"{name} is a function that is called with each of them, such as print, not {told!r}")


def decode(
    records: Iterable[Any],
    format: str,
    *,
    as_history: bool = False,
    findings: Callable[[ImportFinding], None] | None = None,
) -> Iterator[Event]:
    """Return the events of one history, in order, with ids 0, 1, 2, …

    With ``as_history``, OpenHands V0 records are the agent's history: all of them are shown except condensations and
    requests. Otherwise they are a stream, and records outside the agent's history are kept and not shown. If a log of
    V1 or Claude Code branches, the active branch is shown.

    A record that is not an event goes to ``findings`` and is left out; without ``findings`` it raises ``InvalidEvent``.
    Problems of other records go to ``findings`` too. Raises ``UnknownFormat``. Cost: one pass over the records. If the
    format looks ahead, there is one before it, and a one-shot iterator is read into memory.
    """
    check_told("findings", findings)
    chosen, options = format_named(format), Options(as_history=as_history)
    ahead, records = tee(records) if iter(records) is records else (records, records)
    decoder = chosen.reader(ahead, options)
    del ahead  # an iterator that is not used keeps nothing in memory
    return _decoded(records, chosen, options.findings, decoder, findings)


def _decoded(
    records: Iterable[Any],
    format: Format,
    found: list[str],
    decoder: RecordDecoder,
    findings: Callable[[ImportFinding], None] | None,
) -> Iterator[Event]:
    for number, record in enumerate(records):
        try:
            events = decoder.events(record)
            keep(record, events, format.name)
        except NotAnEvent as error:
            finding = ImportFinding(f"record {number}", str(error))
            if findings is None:
                raise InvalidEvent(f"{finding}; correct the record, or collect findings with findings=") from error
            findings(finding)
        else:
            yield from events
            if findings is not None:
                for problem in found:
                    findings(ImportFinding(f"record {number}", problem))
            found.clear()


def encode(events: Iterable[Event], format: str, *, notes: Callable[[str], None] | None = None) -> Iterator[Any]:
    """Return the records of a whole history, from its event 0 on, as the source wrote them.

    Events that were not imported are written as records of the format, also those that were retracted:
    ``history.export`` leaves these out. Records that the source no longer has, because its program wrote it again, are
    left out. Any history can be written as ``openai-chat``, without its bookkeeping. ``notes`` gets what the format has
    no place for.

    Raises ``UnknownFormat``, also where the history was imported from another format; ``ValueError`` where the events
    do not begin at 0 or one is missing, because a record may refer to an earlier one.
    """
    check_told("notes", notes)
    events = list(events)
    rewritings = [each for each in events if isinstance(each, Retraction) and is_rewriting(each)]
    return encode_standing(events, len(events), rewritings, format, notes)


def encode_standing(
    events: Iterable[Event],
    version: int,
    retractions: Iterable[Retraction],
    format: str,
    notes: Callable[[str], None] | None,
) -> Iterator[Any]:
    """Return the records of a whole history up to ``version`` as it stands there: without events that ``retractions``
    took back. Those that the source made are its own way to branch: their records are written. Raises what ``encode``
    raises.
    """
    made = [each for each in retractions if not is_of(each, format) or is_rewriting(each)]
    kept = intervals_kept(made, version) if made else None
    of_source = intervals_kept((each for each in made if not is_rewriting(each)), version)
    events, ahead = tee(events)
    if (first := next((event for event in ahead if kept is None or contains(kept, event.id)), None)) is not None:
        check_origin(first, format)
    del ahead
    return _records(events, format_named(format), notes, kept, of_source)


def encode_view(view: View, format: str, notes: Callable[[str], None] | None) -> Iterator[Any]:
    """Return what a model is sent of a View as records of a format: the messages of its dialect, or else those that its
    writer makes. Raises ``UnknownFormat``.
    """
    chosen = format_named(format)
    if chosen.dialect is None:
        return _records(_events_sent(view), chosen, notes, None, ())
    write = partial(_messages, chosen.dialect)
    messages = write(view)
    if notes is not None:
        losses, writer = Losses(chosen, lambda events: write(View.from_events(events))), chosen.writer()
        for event in _events_sent(view):
            losses.seek(in_json(event), writer)
        losses.look_in(messages)
        _tell(losses, "what a model is sent", notes)
    return iter(messages)


def _messages(dialect: Dialect, view: View) -> list[dict[str, Any]]:
    """Return the messages of a View, those of OpenAI's chat with the thinking before them; those of Responses tell
    which words and calls are of one response.
    """
    if dialect == "openai":
        thinking = {turn.positions: turn.thinking for turn in turns(view.events, view.fit_positions)}
        return [
            message | thought(thinking[positions]) if message["role"] == "assistant" else message
            for message, positions in view.rendered(dialect)
        ]
    rendered = view.rendered(dialect)
    for (said, events), (_, of_next) in pairwise(rendered if dialect == "responses" else ()):
        if said.get("role") == "assistant" and events == of_next:
            said["phase"] = COMMENTARY
    prompt = view.system_prompt if dialect == "anthropic" else ""  # there is no role of a system
    return [*([{"role": "user", "content": prompt}] if prompt else ()), *(message for message, _ in rendered)]


def _events_sent(view: View) -> list[Event]:
    """Return what a model is sent of a View, as the events of a history that was not imported."""
    sent: list[Event] = []
    for turn in turns(view.events, view.fit_positions):
        shown: list[Any] = [view.events[position] for position in turn.positions]
        used = {key: each.meta[key] for each in shown for key in ("usage", "cost") if key in each.meta}
        said, thoughts, begin = map(words_of, shown), iter(turn.thinking), len(sent)
        for call in turn.calls:
            is_last = call is turn.calls[-1]  # it takes what was said and thought after it
            told: dict[str, Any] = {"id": len(sent), "call_id": call.id, "response_id": f"reply-{begin}"}
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
                sent.append(Message(**told, source="user" if shown[0].source == "user" else "environment"))
    return sent


def _records(
    events: Iterable[Event],
    format: Format,
    notes: Callable[[str], None] | None,
    kept: Intervals | None,
    of_source: Intervals,
) -> Iterator[Any]:
    """Yield the records of a history, of the events in ``kept``; None stands for all. The source itself took back
    what is not kept and ``of_source``.
    """
    losses, retracted = None if notes is None else Losses(format), 0
    encoder = Encoder(format, losses)
    for expected, event in enumerate(events):
        if event.id != expected:
            raise InvalidEvent(f"expected event {expected}, found event {event.id}; an export needs the whole history")
        if kept is not None and not contains(kept, event.id):
            yield from encoder.part(event)
            retracted += not isinstance(event, Retraction) and not contains(of_source, event.id)
            continue
        check_origin(event, format.name)
        yield from encoder.records(event)
    yield from encoder.end()
    if notes is None or losses is None:
        return
    if retracted:
        notes(f"left out: {several(retracted, 'event')} taken back by retractions; 'foldlog log ID' shows them")
    _tell(losses, format.name, notes)


def _tell(losses: Losses, format: str, notes: Callable[[str], None]) -> None:
    hidden, lost = losses.end()
    if hidden:
        notes(f"left out: {hidden}, which no model was shown; 'foldlog log ID' shows them")
    if lost:
        said = "other texts of messages, calls and results are written"  # times and bookkeeping need not be
        notes(f"left out: {lost}; {format} has no place for it; {said}")


def format_of_history(store: Store, conversation: str) -> str:
    """Return the format in which a history is exported. The first event decides that was imported, or that is shown:
    documents come before an adapter's first record. One that an import took back was of another format.
    """
    version, structural = store.query(conversation, lambda read: (read.version, [*read.structural_events()]))
    standing = filter(standing_in(structural, version), store.events(conversation, 0, version))
    first = next((event for event in standing if event.origin is not None or event.shown), None)
    return _NATIVE if first is None or first.origin is None else first.origin.format


def check_origin(event: Event, format: str) -> None:
    """Raise ``OtherFormat`` for an event that cannot be written in this format."""
    if event.origin is not None and event.origin.format != format and format != ANY_HISTORY:
        raise OtherFormat(format, event.origin.format)
