"""Pack a source record beside its events, and unpack it. ``docs/STORED_BYTES.md`` defines the bytes.

A record is stored as itself: its JSON text, in which each text that its events hold too is replaced by its place. What
remains is often short, and is kept as it is. Otherwise it is deflated, with a sample of the format as the dictionary,
and if it is long also with what the events hold. So a record needs nothing but its own events to be read, and no code
that writes records.

``origin.rest`` of the first event holds the packed record, alone or with the number of its events; ``origin.rest`` of
each later one the number of events since the first.
"""

from __future__ import annotations

import json
import zlib
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC
from functools import cache, partial
from importlib.resources import files
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr, replace

from foldlog._formats.json_text import UnreadableJson, check_depth, parse
from foldlog._values import replaced, texts_in
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
    has_content,
)
from foldlog.eventstore.codec_json import plain

_SHORT: Final[Any] = partial(zlib.compressobj, 3)
_LONGER: Any
try:
    from isal import isal_zlib

    _LONGER = partial(isal_zlib.compressobj, 1)  # half of the time, for a tenth more of what remains
except ImportError:
    _LONGER = _SHORT

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
"""The sample of a format with which new records are deflated: the first character of a deflated record."""
_PLAIN: Final = "="
"""The first character of a record that is not deflated."""
_TEXT_MIN: Final = 16
"""Texts of this length have places."""
_PLACES: Final = tuple(map(chr, range(0x81, 0xA0)))
"""The texts that stand for others."""
_TIMES: Final = ("\x80s", "\x80m", "\x80u")
"""The texts that stand for the time of the first event: down to seconds, milliseconds and microseconds."""
_OWN: Final[dict[str, Any]] = dict.fromkeys((*_PLACES, *_TIMES), ...)
"""A record with such a text of its own has no places: no encoder writes the dots."""
_LEVEL_MAX: Final = 50
"""A record that is nested deeper has no places."""
_PLAIN_SHARE: Final = 4
_PLAIN_SHARE_SHORT: Final = 11
_LONG: Final = 1024
"""What remains of a record is not deflated, which takes as long as all else, where it is at most this part of a long
record, or of a short one.
"""
_SAMPLE_ALONE_MAX: Final = 256
"""What remains of a record is deflated with the sample alone up to this length: that takes half the time."""
_LOOKAHEAD: Final = 262
"""The end of its window that zlib does not use."""
_DICTIONARY_MAX: Final = 24 * 1024
_MEMORY_LEVEL: Final = 6
"""Most records are short: with zlib's default, making its tables takes longer than compressing."""
_CHECK_BYTES: Final = 3
_QUOTES: Final = bytes.maketrans(b"\"'", b"'\"")
"""JSON escapes quotes: a record that is kept as it is has them exchanged."""

_encode = msgspec.json.Encoder(enc_hook=plain).encode
_decode = msgspec.json.Decoder().decode


def keep(record: Any, events: Sequence[Event], format: str, *, parsed: bool = False) -> None:
    """Pack a record into its events, which have an ``origin`` of this format. ``parsed``: the record was parsed from
    JSON.

    A step to another branch does not belong to the record: see ``is_step_aside``. Raises ``InvalidEvent`` where the
    record is not JSON, or nested deeper than what is unpacked.
    """
    if not parsed:
        try:
            check_depth(record)
        except UnreadableJson as error:
            raise InvalidEvent(f"the record is {error}") from error
    if len(events) != 1:
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
    """Return the number of events of the record that begins with this event; 0 where none begins, or it is redacted."""
    packed, parts = _packing_of(event)
    return 0 if packed is None else parts


def is_kept(events: Sequence[Event]) -> bool:
    """Return whether the record of these events is there, and the content of each: a fork that redacts one of them may
    share the record with others.
    """
    return events_of(events[0]) > 0 and all(map(has_content, events))


def parts_of(event: Event) -> int:
    """Return the same, also of a record of several events that is redacted."""
    return _packing_of(event)[1]


def _packing_of(event: Event) -> tuple[str | None, int]:
    """Return the packed record that begins with this event, if it is there, and the number of its events; 0 where no
    record begins, or another program wrote what is there.
    """
    match None if event.origin is None else event.origin.rest:
        case str(packed):
            return packed, 1
        case [None | str() as packed, int(parts)]:
            return packed, parts
    return None, 0


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
    """Return the record of these events. Raises ``InvalidEvent`` where one of them is damaged."""
    origin = events[0].origin
    assert origin is not None
    packed = origin.rest if isinstance(origin.rest, str) else origin.rest[0]
    try:
        check, has_places, text = _inflated(packed, events, origin.format)
        held = _held(events, _values(events)) if has_places else []
        if _check(text, sum(map(len, held))) != check:
            raise ValueError("its checksum differs")
        places = _times(events[0]) | dict(zip(held, _PLACES, strict=False)) if has_places else {}
        return replaced(parse(text), {place: known for known, place in places.items()}) if places else parse(text)
    except (ValueError, IndexError, OSError, zlib.error) as error:
        raise InvalidEvent(
            f"event {events[0].id}: the record that it was imported from cannot be unpacked ({error}); "
            f"run 'foldlog verify'"
        ) from error


def _inflated(packed: str, events: Sequence[Event], format: str) -> tuple[bytes, bool, bytes]:
    """Return the checksum of a packed record, whether it has places, and its JSON text."""
    if packed[0] == _PLAIN:
        return a2b_base64(packed[1:5]), True, packed[5:].encode().translate(_QUOTES)
    data = a2b_base64(packed[1:] + "==")
    inflating = zlib.decompressobj(-zlib.MAX_WBITS, _dictionary(_values(events), format, packed[0]))
    text = inflating.decompress(data[_CHECK_BYTES + 1 :]) + inflating.flush()
    return data[:_CHECK_BYTES], bool(data[_CHECK_BYTES]), text


def _packed(record: Any, events: Sequence[Event], format: str, *, parsed: bool) -> str:
    values = _values(events)
    held, has_places, instead = _held(events, values), True, _OWN.copy()
    try:
        instead.update(_times(events[0]))
        instead.update(zip(held, _PLACES, strict=False))
        rest = replaced(record, instead, levels=_LEVEL_MAX)
        text = _encode(rest) if parsed else json_of(rest)
    except (ValueError, TypeError):
        held, has_places, text = [], False, json_of(record)
    length = sum(map(len, held))
    check, size = _check(text, length), len(text) + length
    if has_places and len(text) <= size // (_PLAIN_SHARE if size >= _LONG else _PLAIN_SHARE_SHORT):
        return f"{_PLAIN}{_base64(check)}{text.translate(_QUOTES).decode()}"
    if len(text) <= _SAMPLE_ALONE_MAX:  # it is the end of the dictionary
        deflating = _deflating_alone(format).copy()
    else:
        deflating = _deflating(_dictionary(values, format, _SAMPLE), len(text), _LONGER)
    return _SAMPLE + _base64(b"%b%c%b%b" % (check, has_places, deflating.compress(text), deflating.flush()))


@cache
def _deflating_alone(format: str) -> Any:
    return _deflating(_sample(format, _SAMPLE), _SAMPLE_ALONE_MAX, _SHORT)


def _deflating(dictionary: bytes, length_max: int, make: Any) -> Any:
    """Return an object that deflates a text of this length or less, which zlib has no name for."""
    window = min((len(dictionary) + length_max + _LOOKAHEAD).bit_length(), zlib.MAX_WBITS)  # zlib clears all of it
    return make(zlib.DEFLATED, -window, _MEMORY_LEVEL, zdict=dictionary)


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).rstrip(b"=").decode("ascii")


def _check(text: bytes, length: int) -> bytes:
    """Return the checksum of a record's text with places, and of the length of the texts that its events hold."""
    return zlib.crc32(text, length).to_bytes(4, "big")[:_CHECK_BYTES]


def _values(events: Sequence[Event], *, parsed: bool = False) -> list[Any]:
    """Return what events hold; with ``parsed`` also the values in arguments that are text."""
    values: list[Any] = []
    for event in events:
        fields = _FIELDS[type(event)](event) if type(event) in _FIELDS else ()  # of kinds that are made of no record
        values += (None if event.origin is None else event.origin.id, *fields)
        if parsed and type(event) is Action and type(event.arguments) is str and len(event.arguments) > _TEXT_MIN:
            values.append(value_of(event.arguments))
    return values


def _held(events: Sequence[Event], values: list[Any]) -> list[str]:
    """Return the texts in what events hold: all, or the longest."""
    if any(type(event) is Action and type(event.arguments) is str for event in events):
        values = _values(events, parsed=True)
    texts = list(dict.fromkeys(texts_in(values, _TEXT_MIN)))
    return texts if len(texts) <= len(_PLACES) else sorted(texts, key=len, reverse=True)[: len(_PLACES)]


def _times(event: Event) -> dict[str, str]:
    """Return the places of the forms of an event's time that records have."""
    if event.timestamp is None:
        return {}
    at = event.timestamp.astimezone(UTC)
    second, part = _encode(at)[1:20].decode(), f"{at.microsecond:06}"  # ``isoformat`` takes ten times as long
    return dict(zip((f"{second}Z", f"{second}.{part[:3]}Z", f"{second}.{part}Z"), _TIMES, strict=True))


def _dictionary(values: list[Any], format: str, version: str) -> bytes:
    return bytes_of(values)[-_DICTIONARY_MAX:] + _sample(format, version)


def value_of(text: str) -> Any:
    """Return the value of a text of strict JSON; any other text unchanged."""
    try:
        return _decode(text)
    except (ValueError, RecursionError):
        return text


def bytes_of(value: Any) -> bytes:
    """Return a value as JSON, the same each time: in ASCII where strict JSON cannot hold it."""
    try:
        return _encode(value)
    except (ValueError, OverflowError, RecursionError):  # texts that are not Unicode, long numbers
        return json.dumps(value, separators=(",", ":"), default=str).encode("ascii")


@cache
def _sample(format: str, version: str) -> bytes:
    """Return a sample of a format; empty for formats without one. Raises ``ValueError`` for one of a later foldlog."""
    if version != _SAMPLE:
        raise ValueError(f"it needs sample {version!r} of {format}, which a later foldlog has; upgrade it")
    sample = files("foldlog._formats") / "samples" / f"{format}.{version}.json"
    return sample.read_bytes() if sample.is_file() else b""


def json_text(value: Any) -> str:
    """Return a text as it is, and the JSON text of another value."""
    return value if isinstance(value, str) else json_of(value).decode()


def json_of(value: Any) -> bytes:
    """Return the JSON text of a record: ASCII where strict JSON cannot hold it. Raises ``InvalidEvent``."""
    try:
        text = _encode(value)
        if _decode(text) == value:  # msgspec writes a value that JSON lacks as null or a text
            return text
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass
    try:
        return json.dumps(value, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEvent(f"the record is not JSON: {error}; write other values as text") from error
