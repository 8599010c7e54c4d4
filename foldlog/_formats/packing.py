"""Pack a source record beside its events, and unpack it. ``docs/STORED_BYTES.md`` defines the bytes.

A record is stored as itself: its JSON text, in which long texts that its events hold are replaced by their places, and
which is deflated with the rest of the events and a sample of the format as the dictionary. So a record needs nothing
but its own events to be read, and no code that writes records.

``origin.rest`` of the first event holds the packed record, alone or with the number of its events; ``origin.rest`` of
each later one the number of events since the first.
"""

from __future__ import annotations

import json
import zlib
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr, replace

from foldlog._formats.json_text import parse
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    Event,
    InvalidEvent,
    Message,
    Observation,
    Origin,
    Retraction,
    SystemMessage,
)
from foldlog.eventstore.codec_json import plain

_FIELDS: Final[Mapping[type, Callable[[Any], tuple[Any, ...]]]] = {
    SystemMessage: attrgetter("content", "tools"),
    Message: attrgetter("content", "thinking"),
    Action: attrgetter("tool", "arguments", "call_id", "response_id", "thought", "thinking"),
    Observation: attrgetter("content", "tool", "call_id", "extras"),
    Annotation: attrgetter("name", "data"),
    CondensationAction: attrgetter("summary", "metadata"),
    CondensationSummary: attrgetter("content", "source"),
    CondensationRequest: attrgetter("reason", "source"),
    Retraction: attrgetter("reason", "source"),
}
"""The fields that a packed record refers to. They are part of the stored format, as are all numbers here."""
_SAMPLE: Final = "1"
"""The sample of a format with which new records are packed: the first character of a packed record."""
_TEXT_MIN: Final = 512
"""Texts of this length have places; shorter ones are found again in the dictionary."""
_TEXTS_MAX: Final = 31
"""The places of texts are the control characters from 1 on, which JSON does not hold."""
_DICTIONARY_MAX: Final = 24 * 1024
_LEVEL: Final = 3
_MEMORY_LEVEL: Final = 6
"""Most records are short: with zlib's default, making its tables takes longer than compressing."""
_CHECK_BYTES: Final = 3

_encode = msgspec.json.Encoder(enc_hook=plain).encode
_decode = msgspec.json.Decoder().decode


class NotUnpacked(InvalidEvent):
    """The stored record and its events do not belong together: one of them is damaged."""


def keep(record: Any, events: Sequence[Event], format: str, *, parsed: bool = False) -> None:
    """Pack a record into its events, which have an ``origin`` of this format. ``parsed``: the record was parsed from
    JSON.

    A step to another branch does not belong to the record: see ``is_step_aside``. Raises ``InvalidEvent`` where the
    record is not JSON.
    """
    events = [event for event in events if not is_step_aside(event)]
    packed = _packed(record, events, format, parsed=parsed)
    for place, event in enumerate(events):
        rest: Any = place or (packed if len(events) == 1 else [packed, len(events)])
        origin = event.origin
        if origin is None:
            force_setattr(event, "origin", Origin(format=format, rest=rest))  # no other code has the event yet
        elif origin.rest is None:
            force_setattr(origin, "rest", rest)
        else:  # several events share it
            force_setattr(event, "origin", replace(origin, rest=rest))


def events_of(event: Event) -> int:
    """Return the number of events of the record that begins with this event; 0 where none begins."""
    rest = None if event.origin is None else event.origin.rest
    if isinstance(rest, str):
        return 1
    return rest[1] if isinstance(rest, list) else 0


def place_of(event: Event) -> int:
    """Return the number of events of its record before this event."""
    rest = None if event.origin is None else event.origin.rest
    return rest if isinstance(rest, int) else 0


def is_step_aside(event: Event) -> bool:
    """Return whether an imported event has no record: a retraction, or the condensation that declines the request of
    the branch that was left.
    """
    return event.redacted is None and (is_declined(event) or isinstance(event, Retraction))


def is_declined(event: Event) -> bool:
    """Return whether an event is a condensation that only records that nothing was condensed."""
    return isinstance(event, CondensationAction) and event.metadata.get("outcome") == "declined"


def unpack(events: Sequence[Event]) -> Any:
    """Return the record of these events. Raises ``NotUnpacked``."""
    origin = events[0].origin
    assert origin is not None
    packed = origin.rest if isinstance(origin.rest, str) else origin.rest[0]
    try:
        data = a2b_base64(packed[1:] + "==")
        body, used = data[_CHECK_BYTES + 1 + data[_CHECK_BYTES] :], data[_CHECK_BYTES + 1 :][: data[_CHECK_BYTES]]
        rest, texts = _held(events)
        found = [texts[place] for place in used]
        inflating = zlib.decompressobj(-zlib.MAX_WBITS, _dictionary(rest, origin.format, packed[0]))
        text = inflating.decompress(body) + inflating.flush()
        for place in reversed(range(len(found))):
            text = text.replace(b"%c" % (place + 1), found[place])
        if _check(text) != data[:_CHECK_BYTES]:
            raise ValueError("its checksum differs")
        return parse(text)
    except (ValueError, IndexError, OSError, zlib.error) as error:
        raise NotUnpacked(
            f"event {events[0].id}: the record that it was imported from cannot be unpacked ({error}); "
            f"run 'foldlog verify'"
        ) from error


def _packed(record: Any, events: Sequence[Event], format: str, *, parsed: bool) -> str:
    text = json_of(record, parsed=parsed)
    check = _check(text)
    rest, texts = _held(events)
    used = b""
    for place, held in enumerate(texts):
        if held in text:
            used += b"%c" % place
            text = text.replace(held, b"%c" % len(used))
    dictionary = _dictionary(rest, format, _SAMPLE)
    deflating = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, _MEMORY_LEVEL, zdict=dictionary)
    packed = b"%b%c%b%b%b" % (check, len(used), used, deflating.compress(text), deflating.flush())
    return _SAMPLE + b2a_base64(packed, newline=False).rstrip(b"=").decode("ascii")


def _check(text: bytes) -> bytes:
    return zlib.crc32(text).to_bytes(4, "big")[:_CHECK_BYTES]


def _held(events: Sequence[Event]) -> tuple[bytes, list[bytes]]:
    """Return what events hold, as JSON, and the long texts in it, the longest first."""
    values: list[Any] = []
    for event in events:
        origin = event.origin
        values += (None if origin is None else origin.id, *_fields(event))
    rest = _text_of(values)
    if len(rest) < _TEXT_MIN:
        return rest, []
    found: list[str] = []
    for value in values:
        _find_texts(value, found)
    for event in events:
        if type(event) is Action and type(event.arguments) is str and len(event.arguments) >= _TEXT_MIN:
            rest += event.arguments.encode(errors="replace")
            _find_texts(_called_with(event.arguments), found)
    texts = dict.fromkeys(map(_text_of, found))
    return rest, [text[1:-1] for text in sorted(texts, key=len, reverse=True)[:_TEXTS_MAX]]


def _fields(event: Event) -> tuple[Any, ...]:
    """Return the content of an event; empty for kinds that are made of no record."""
    getter = _FIELDS.get(type(event))
    return () if getter is None else getter(event)


def texts_of(event: Event, length_min: int) -> list[bytes]:
    """Return the texts in the content of an event, as they stand in JSON."""
    found: list[str] = []
    for value in _fields(event):
        _find_texts(value, found, length_min)
    if type(event) is Action and type(event.arguments) is str:
        _find_texts(_called_with(event.arguments), found, length_min)
    return [_text_of(text)[1:-1] for text in found]


def _called_with(arguments: str) -> Any:
    """Return the values in the text of a call: records hold them too. None where it is not JSON."""
    try:
        return _decode(arguments)
    except (ValueError, RecursionError):
        return None


def _find_texts(value: Any, found: list[str], length_min: int = _TEXT_MIN) -> None:
    if type(value) is str:
        if len(value) >= length_min:
            found.append(value)
    elif type(value) is dict:
        for item in value.values():
            _find_texts(item, found, length_min)
    elif type(value) is list or type(value) is tuple:
        for item in value:
            _find_texts(item, found, length_min)


def _text_of(value: Any) -> bytes:
    """Return the JSON text of what an event holds, the same each time."""
    try:
        return _encode(value)
    except (ValueError, OverflowError, RecursionError):  # texts that are not Unicode, long numbers
        return json.dumps(value, separators=(",", ":"), default=str).encode("ascii")


def _dictionary(rest: bytes, format: str, sample: str) -> bytes:
    """Return what is likely to occur in a record: the end of its events, and a sample of the format."""
    return rest[-_DICTIONARY_MAX:] + _sample(format, sample)


@cache
def _sample(format: str, version: str) -> bytes:
    """Return a sample of a format; empty for formats without one. Raises ``ValueError`` for one of a later foldlog."""
    if version != _SAMPLE:
        raise ValueError(f"it needs sample {version!r} of {format}, which a later foldlog has; upgrade it")
    sample = files("foldlog._formats") / "samples" / f"{format}.{version}.json"
    return sample.read_bytes() if sample.is_file() else b""


def json_of(value: Any, *, parsed: bool = False) -> bytes:
    """Return the JSON text of a record: ASCII where strict JSON cannot hold it. Raises ``InvalidEvent``."""
    try:
        text = _encode(value)
        # msgspec writes a value that JSON lacks as null or a text. Where JSON was parsed, only an infinity can be that.
        if (parsed and b"null" not in text) or _decode(text) == value:
            return text
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass
    try:
        return json.dumps(value, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEvent(f"the record is not JSON: {error}; write other values as text") from error
