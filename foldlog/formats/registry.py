"""Which formats there are, and how to read and write one by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, NamedTuple, Protocol

from eventstore.errors import InvalidEvent
from eventstore.events import Event
from foldlog.formats import claude_code, codex, openai_chat, openhands_v0, openhands_v1, swe_agent
from foldlog.formats.record import NotAnEvent

__all__ = ["FORMATS", "Finding", "OtherFormat", "UnknownFormat", "check_format", "decode", "encode"]

FORMATS = (
    openhands_v0.FORMAT,
    openhands_v1.FORMAT,
    openai_chat.FORMAT,
    claude_code.FORMAT,
    codex.FORMAT,
    swe_agent.FORMAT,
)
"""The formats that can be imported and exported."""


class UnknownFormat(ValueError):
    """There is no such format: choose one of ``FORMATS``."""

    def __init__(self, format: str) -> None:
        super().__init__(f"{format!r} is not a format; choose one of {', '.join(FORMATS)}")
        self.format = format


class OtherFormat(UnknownFormat):
    """The history was imported from another format. Export it in that one, or as ``openai-chat``."""

    def __init__(self, format: str, origin: str) -> None:
        known = " or ".join(dict.fromkeys((repr(origin), repr(openai_chat.FORMAT))))
        ValueError.__init__(self, f"this history was imported from {origin!r}; export it as {known}")
        self.format = format


class Finding(NamedTuple):
    """Something in a source that could not be imported: where it is, and what is wrong with it."""

    place: str
    problem: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"


class Decoder(Protocol):
    def events(self, record: Any) -> list[Event]:
        """The events of the next record. Raises ``NotAnEvent``, having taken nothing."""


class Encoder(Protocol):
    def records(self, event: Event) -> list[Any]:
        """The records that are complete with ``event``."""

    def end(self) -> list[Any]:
        """The record that only the end completes, if one is. Raises ``ValueError`` where a part of one is missing."""


_LOOKED_THROUGH = (openhands_v0.FORMAT, openhands_v1.FORMAT, claude_code.FORMAT)
"""Formats whose records say later what is shown of earlier ones."""

_DECODERS: Mapping[str, Callable[[], Decoder]] = {
    openai_chat.FORMAT: openai_chat.Decoder,
    codex.FORMAT: codex.Decoder,
    swe_agent.FORMAT: swe_agent.decoder,
}
"""Of the other formats."""

_ENCODERS: Mapping[str, Callable[[], Encoder]] = {
    openhands_v0.FORMAT: openhands_v0.Encoder,
    openhands_v1.FORMAT: openhands_v1.Encoder,
    openai_chat.FORMAT: openai_chat.Encoder,
    claude_code.FORMAT: claude_code.Encoder,
    codex.FORMAT: codex.Encoder,
    swe_agent.FORMAT: swe_agent.encoder,
}


def check_format(format: str) -> None:
    """Raises ``UnknownFormat`` where ``format`` can be neither read nor written."""
    if format not in FORMATS:
        raise UnknownFormat(format)


def decode(
    records: Iterable[Any],
    format: str,
    *,
    as_history: bool = False,
    findings: Callable[[Finding], None] | None = None,
) -> Iterator[Event]:
    """The events of one history, in order, with ids 0, 1, 2, …

    ``as_history`` takes OpenHands V0 records as the agent's history: all of them are shown but condensations and
    requests. Otherwise they are a stream, and what the agent's history leaves out is kept and not shown. Of a log of V1
    or Claude Code that branches the active branch is shown.

    A record that is no event goes to ``findings`` and is left out; without ``findings`` it raises ``InvalidEvent``.
    Raises ``UnknownFormat``. Cost: one pass over the records, after a look through them for branches and delegates; a
    one-shot iterator is read into memory for that.
    """
    check_format(format)
    if format in _LOOKED_THROUGH and iter(records) is records:
        records = list(records)
    return _decoded(records, decoder_for(format, records, as_history=as_history), findings)


def decoder_for(format: str, records: Iterable[Any], *, as_history: bool = False, leaf: str | None = None) -> Decoder:
    """What turns ``records``, one after the other, into events. They are looked through, not kept."""
    if format in _DECODERS:
        return _DECODERS[format]()
    if format == openhands_v1.FORMAT:
        return openhands_v1.Decoder(outside=openhands_v1.outside_branch(records, leaf))
    if format == claude_code.FORMAT:
        return claude_code.Decoder(claude_code.active_branch(records))
    outside = () if as_history else openhands_v0.outside_history(records)
    return openhands_v0.Decoder(as_history=as_history, outside=outside)


def _decoded(records: Iterable[Any], decoder: Decoder, findings: Callable[[Finding], None] | None) -> Iterator[Event]:
    for number, record in enumerate(records):
        try:
            events = decoder.events(record)
        except NotAnEvent as error:
            finding = Finding(f"record {number}", str(error))
            if findings is None:
                raise InvalidEvent(f"{finding}; mend it, or collect what is wrong with findings=") from error
            findings(finding)
        else:
            yield from events


def encode(events: Iterable[Event], format: str) -> Iterator[Any]:
    """The records of a whole history, from its event 0 on, as the source wrote them.

    Events that were not imported are written as the format would have them. As ``openai-chat`` any history can be
    written: what was said and done in it, without its bookkeeping.

    Raises ``UnknownFormat``, also where the history was imported from another format; ``ValueError`` where the events
    do not begin at 0 or leave one out, since a record may refer to what an earlier one says.
    """
    check_format(format)
    ahead = iter(events)
    first = list(islice(ahead, 1))
    for event in first:
        _check_origin(event, format)
    return _encoded(chain(first, ahead), format)


def _encoded(events: Iterable[Event], format: str) -> Iterator[Any]:
    encoder = _ENCODERS[format]()
    for expected, event in enumerate(events):
        if event.id != expected:
            raise ValueError(f"expected event {expected}, found event {event.id}; an export needs the whole history")
        _check_origin(event, format)
        yield from encoder.records(event)
    yield from encoder.end()


def _check_origin(event: Event, format: str) -> None:
    if event.origin is not None and event.origin.format != format and format != openai_chat.FORMAT:
        raise OtherFormat(format, event.origin.format)
