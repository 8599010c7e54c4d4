"""Convert events to bytes and bytes to events, without a clock or a database.

The stored form of an event is one JSON text. The event's id is a column beside the JSON text.
``docs/internals/STORED_BYTES.md`` defines the stored form for other programs that read it. A row
stores the kind of its event as a short name and a schema version, never as a Python path. ``KINDS``
lists the short names.

Stored bytes are never rewritten. A body of an older schema version is upgraded when it is read. The
decoder puts an unknown field into ``extra``, and returns an event of unknown kind as an
``UnknownEvent``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, repeat
from reprlib import repr as short
from types import NoneType
from typing import Any, NamedTuple, NoReturn, get_args

import msgspec
from msgspec.structs import asdict, astuple, force_setattr, replace

from foldlog._base.json_types import JsonObject
from foldlog.eventstore.codec_json import (
    BEGINS_EXACT,
    Undecodable,
    brackets,
    exact_of,
    not_json,
    plain,
    put_back,
    take_bytes_out,
    text_of,
    with_list,
    without_list,
)
from foldlog.eventstore.errors import InvalidEvent, UnknownEventType
from foldlog.eventstore.events import (
    NOT_RECORDED,
    Action,
    Entry,
    Event,
    KnownEvent,
    Origin,
    Source,
    UnknownEvent,
)
from foldlog.eventstore.times import event_time

_SOURCES = ", ".join(map(repr, get_args(Source)))

_Upcast = Callable[[dict[str, Any]], dict[str, Any]]

KINDS: Mapping[str, type[KnownEvent]] = {
    str(type_.__struct_config__.tag): type_ for type_ in get_args(KnownEvent)
}
UPCASTS: Mapping[str, tuple[_Upcast, ...]] = {}
"""Maps a kind to functions. Each function upgrades a body by one schema version, and the first
function upgrades version 1.
"""

_STORED_AS: Mapping[type, tuple[str, int]] = {
    type_: (kind, len(UPCASTS.get(kind, ())) + 1) for kind, type_ in KINDS.items()
}
ENTRY_KINDS = frozenset(kind for kind, type_ in KINDS.items() if issubclass(type_, Entry))
"""The kinds of the entries of ledgers. No event of a conversation has one of these kinds."""
_STORE_ONLY = ENTRY_KINDS | {"redaction"}
_TYPED = frozenset({"timestamp", "origin", "forgotten_event_ids", "redacted"})


class BodySums(NamedTuple):
    """The salt of an event, the commitment to its salt and body, and the checksum of its body. For
    a long body they are computed before the transaction, so that other writers do not wait.
    """

    salt: bytes
    commitment: bytes
    checksum: int


class Encoded(NamedTuple):
    """An event as the store writes it. ``body`` is JSON text in UTF-8.

    ``decoded`` is the event decoded from ``body``, with the id that the caller set. If another
    process encoded the event, ``decoded`` is None. ``sums`` are of a long body: see ``BodySums``.
    """

    kind: str
    schema: int
    shown: bool
    structural: bool
    body: bytes
    decoded: Event | None
    sums: BodySums | None = None

    @property
    def event(self) -> Event:
        return self.decoded or decode(
            *self[:2], self.body, NOT_RECORDED, self.shown, self.structural
        )


# ``tuple.__new__`` replaces ``Encoded(...)``, which would take a tenth of the time of ``encode``:
# benchmarks/append.py
_new = tuple.__new__
_to_json = msgspec.json.Encoder(enc_hook=plain).encode
_strict = msgspec.json.Decoder(KnownEvent, strict=True)
_any = msgspec.json.Decoder()

_SCALARS = frozenset({str, int, bool, NoneType})
_CONTAINERS = (dict, list, tuple)
_TEXT_PART = {"type": "text", "text": "hi"}
_TIME_AT = Entry.__struct_fields__.index("timestamp")  # every kind begins with the same fields
_LONG = 1_000
"""A body of fewer than ``_LONG`` bytes cannot have more than 500 levels, because each level needs
two brackets.
"""
_LONG_TOGETHER = 1_000_000
"""Bodies of more bytes are decoded one by one: a page of events of 14 MB would stop all other
threads for a second (``python -m benchmarks.tenants giant-events``).
"""
_DEPTH_MAX = _LONG // 2
"""The maximal number of levels of nested lists and objects in an event. The JSON parsers recurse,
so a deeper event could exhaust the Python stack. This limit leaves half of the default stack for
the callers of the parsers.
"""


def encode(event: Event, *, finite: bool = False, ours: bool = False) -> Encoded:
    """Return the stored form of ``event``, together with the event that a reader will get from it.
    The stored form does not contain the id.

    Bytes in the event are stored beside the body: see ``foldlog.eventstore.codec_json``. A time is
    stored in UTC if its offset from UTC is not a whole number of minutes. Raises ``InvalidEvent``
    if a value has a wrong type, or if JSON cannot hold the value (for example, a set). Raises
    ``InvalidEvent`` for a time without a zone or outside of the years 1 to 9999, and for an event
    of more than 500 levels. If ``finite`` is true, NaN and infinities are refused, except in
    imported events. If ``ours`` is false, events that only the store may make are refused.
    """
    stored = _STORED_AS.get(type(event))
    if stored is None:
        return _encoded_unknown(event)
    kind, schema = stored
    if not ours and (kind in _STORE_ONLY or event.redacted is not None):
        _refuse(event, kind)
    known_event: KnownEvent = event  # type: ignore[assignment]  # its type is in the registry
    try:
        if event.id == NOT_RECORDED:
            without_id = known_event
        else:
            without_id = replace(known_event, id=NOT_RECORDED)
        try:
            if isinstance(event.timestamp, datetime) and event.timestamp.tzinfo is not UTC:
                without_id = _with_event_time(without_id, event.timestamp)
            body, read_back = _round_trip(kind, schema, without_id, finite and event.origin is None)
        except (TypeError, ValueError) as error:  # ``Undecodable`` is a ``ValueError``
            if event.source not in get_args(Source):
                problem = f"its source is {short(event.source)}; use {_SOURCES}"
            else:
                problem = _not_storable(known_event) or str(error)
            raise InvalidEvent(f"this {kind} cannot be stored: {problem}") from None
    except RecursionError:
        raise InvalidEvent(
            f"this {kind} is nested too deep to be stored (over {_DEPTH_MAX} levels); store the"
            " inner values as text"
        ) from None
    timestamp = read_back.timestamp
    if timestamp is not None and timestamp.tzinfo is not UTC and timestamp.utcoffset() is None:
        raise InvalidEvent(
            f"the timestamp {timestamp.isoformat()} of a {kind} has no time zone; give an aware"
            " time, such as datetime.now(UTC)"
        )
    if without_id is not event:
        force_setattr(read_back, "id", event.id)
    return _new(Encoded, (kind, schema, read_back.shown, event.structural, body, read_back, None))


def encode_all(events: Iterable[Event | Encoded]) -> list[Encoded]:
    """Return imported events in their stored form. Some may be encoded already. Raises what
    ``encode`` raises.
    """
    return [
        event if type(event) is Encoded else encode(event)  # type: ignore[arg-type]
        for event in events
    ]


def _refuse(event: Event, kind: str) -> NoReturn:
    """Raise ``InvalidEvent`` for an event that only the store writes: an entry of the ledger, or
    redacted content.
    """
    if isinstance(event, Entry):
        raise InvalidEvent(
            f"an event of kind {kind!r} is an entry of the ledger: only the store appends entries"
        )
    raise InvalidEvent(
        f"this {kind} has redacted content, which only a redaction may write; append a copy with"
        " redacted=None"
    )


def _with_event_time(event: KnownEvent, timestamp: datetime) -> KnownEvent:
    stored_time = event_time(timestamp)
    return event if stored_time is timestamp else replace(event, timestamp=stored_time)


def _round_trip(kind: str, schema: int, event: KnownEvent, finite: bool) -> tuple[bytes, Event]:
    """Return the body of an event, and the event that a reader will get from the body. Raises
    ``TypeError`` or ``ValueError`` if JSON cannot hold the event.
    """
    # For a long event with only texts, whole numbers and flags, a check of its field types is
    # enough. An action has a map of arguments, so an action is always decoded.
    try:
        body = b"" if event.extra else _to_json(event)
    except UnicodeEncodeError:
        body = b""  # a text has a lone surrogate
    if len(body) > _LONG:
        if type(event) is not Action and not _nest(event):
            return body, msgspec.convert(asdict(event), type(event))
        _check_depth(event, body)
    if body:
        read_back: KnownEvent = _strict.decode(body)
        if read_back == event or not _differs(event, read_back):
            return body, read_back
    # The two events differ if JSON changed a value: for example, a tuple became a list, an infinity
    # became null, or bytes became base64.
    problem = _not_storable(event, finite)
    if problem is not None:
        raise ValueError(problem)
    body = _slow_body(event)
    _check_depth(event, body)
    return body, decode(kind, schema, body, NOT_RECORDED)


def _nest(event: KnownEvent) -> list[Any]:
    """Return the values of an event that may contain other values."""
    fields = astuple(event)
    others = (*fields[:_TIME_AT], *fields[_TIME_AT + 1 :])
    values = [
        value for value in others if type(value) not in _SCALARS and value != {} and value != ()
    ]
    if event.origin is None:
        return values
    return [*values, event.origin.id, event.origin.rest]


def _differs(event: KnownEvent, read_back: Event) -> bool:
    """Return whether two events differ. A list and a tuple with equal items are equal here."""
    pairs = zip(astuple(event), astuple(read_back), strict=True)
    return any(
        written != read_value and not (type(written) is list and tuple(written) == read_value)
        for written, read_value in pairs
    )


def _not_storable(event: KnownEvent, finite: bool = False) -> str | None:
    """Return why an event cannot be stored, or None. Bytes may be inside of any field, but only the
    field ``data`` may itself be bytes.
    """
    values = _values(event)
    for name, value in values.items():
        if isinstance(value, bytes) and name != "data":
            return (
                f"its field {name} has a value of type {type(value).__name__}; write it as text,"
                " such as base64"
            )
        if name in ("content", "thought") and isinstance(value, list | tuple):
            for index, part in enumerate(value):
                if not isinstance(part, dict):
                    return (
                        f"its field {name}[{index}] is {short(part)}; a part is a map, such as"
                        f" {_TEXT_PART}"
                    )
    return not_json(values, finite=finite)


def _values(event: KnownEvent) -> JsonObject:
    """Return the fields of an event whose types the decoder does not check, and the fields of its
    origin.
    """
    values = {name: getattr(event, name) for name in event.__struct_fields__ if name not in _TYPED}
    if isinstance(event.origin, Origin):
        values.update(
            (f"origin.{name}", getattr(event.origin, name)) for name in Origin.__struct_fields__
        )
    return values


def decode(
    kind: str,
    schema: int,
    body: bytes,
    event_id: int,
    shown: bool = False,
    structural: bool = False,
) -> Event:
    """Decode the event ``event_id`` from the columns of its row. Raises ``Undecodable`` for a body
    that no version of foldlog wrote.

    If this version of foldlog does not know the kind or the schema version, the returned
    ``UnknownEvent`` gets ``shown`` and ``structural`` from the row. An older schema version, an
    unknown field, or a body with ``$exact`` or ``$bytes`` makes decoding several times slower.
    """
    try:
        event: KnownEvent = _strict.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decoded_slowly(kind, schema, body, event_id, shown, structural)
    if _STORED_AS[type(event)] != (kind, schema):
        return _decoded_slowly(kind, schema, body, event_id, shown, structural)
    force_setattr(event, "id", event_id)  # no other code has seen this frozen value yet
    return event


def decode_all(
    kinds: Sequence[str], schemas: Sequence[int], bodies: Sequence[bytes], ids: Sequence[int]
) -> list[Event] | None:
    """Decode the events of many rows. Return None if one of the rows needs ``decode``, for example
    because its schema version is old. No Python code runs for each row, which saves time
    (``benchmarks/reading.py``).
    """
    try:
        events: list[Event]
        if sum(map(len, bodies)) > _LONG_TOGETHER:
            # Between two steps of a loop, other threads get the interpreter's lock.
            events = [_strict.decode(body) for body in bodies]
        else:
            events = list(map(_strict.decode, bodies))
    except (TypeError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if list(map(_STORED_AS.__getitem__, map(type, events))) != list(
        zip(kinds, schemas, strict=True)
    ):
        return None
    # No other code has seen these frozen values yet.
    deque(map(force_setattr, events, repeat("id"), ids), maxlen=0)
    return events


def _slow_body(event: KnownEvent) -> bytes:
    """Return the body of an event that the fast encoder cannot encode, such as an event with bytes,
    lone surrogates or extra fields.
    """
    fields: JsonObject = msgspec.to_builtins(event, builtin_types=(bytes,), enc_hook=plain)
    extra = fields.pop("extra", {})
    for name in extra:
        if name in event.__struct_encode_fields__ or name == "kind":
            raise ValueError(
                f"the extra field {name!r} has the name of a field of the kind; set that field"
                " instead"
            )
    fields.update(extra)
    attached = take_bytes_out(fields)
    text = text_of(fields)
    return with_list(text, attached) if attached else text


def _encoded_unknown(event: object) -> Encoded:
    """Return the stored form of an ``UnknownEvent``. Raises ``UnknownEventType`` if the object is
    not an event.
    """
    if not isinstance(event, UnknownEvent):
        name = type(event).__name__
        raise UnknownEventType(
            name,
            0,
            f"an object of type {name} is not an event; build one, such as Message(source='user',"
            " content='hi'), Action or Observation",
        )
    kind = event.stored_kind
    schema = event.stored_schema
    if type(kind) is not str or type(schema) is not int or not isinstance(event.body, bytes):
        raise InvalidEvent(
            "an UnknownEvent needs a text as stored_kind, a whole number as stored_schema, and"
            f" bytes as body, not {short(kind)}, {short(schema)} and {short(event.body)}"
        )
    if {type(event.shown), type(event.is_structural)} != {bool}:
        raise InvalidEvent(
            "an UnknownEvent needs True or False as shown and as is_structural, not"
            f" {short(event.shown)} and {short(event.is_structural)}"
        )
    known_type = KINDS.get(kind)
    if known_type is not None and schema <= _STORED_AS[known_type][1]:
        raise InvalidEvent(
            f"an UnknownEvent has the kind {kind!r}, which this version of foldlog knows; build a"
            f" {known_type.__name__}"
        )
    if not 0 <= schema < 2**31:
        raise InvalidEvent(f"schema version {schema} is out of range; use 0 to 2³¹ - 1")
    try:
        kind.encode()
    except UnicodeEncodeError:
        raise InvalidEvent(
            f"the kind {kind!r} is not Unicode text, so it cannot be stored"
        ) from None
    try:
        _parse(event.body)
    except Undecodable as error:
        raise InvalidEvent(f"an UnknownEvent of kind {kind!r} cannot be stored: {error}") from None
    return Encoded(kind, schema, event.shown, event.is_structural, event.body, event)


def _check_depth(event: KnownEvent, body: bytes) -> None:
    """Raise ``RecursionError`` if an event has more than ``_DEPTH_MAX`` levels. Most bodies have so
    few brackets that they need no slower check.
    """
    if brackets(body) <= _DEPTH_MAX:
        return
    depth = 1
    level = [value for value in _nest(event) if isinstance(value, _CONTAINERS)]
    while level:
        depth += 1
        items = chain.from_iterable(
            value.values() if isinstance(value, dict) else value for value in level
        )
        level = [item for item in items if isinstance(item, _CONTAINERS)]
    if depth > _DEPTH_MAX:
        raise RecursionError


def _parse(body: bytes) -> JsonObject:
    """Return the fields in a body, with their exact values and bytes. Raises ``Undecodable``."""
    listed, text = without_list(body)
    try:
        value = _any.decode(text)
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"the body is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise Undecodable(f"the body is a JSON {type(value).__name__}, not an object")
    fields: JsonObject = exact_of(value, text) if text.startswith(BEGINS_EXACT) else value
    put_back(fields, listed, body)
    return fields


def _decoded_slowly(
    kind: str, schema: int, body: bytes, event_id: int, shown: bool, structural: bool
) -> Event:
    """Decode an event that is not in the newest plain form: see ``decode``."""
    type_ = KINDS.get(kind)
    upcasts = UPCASTS.get(kind, ())
    if type_ is None or schema > len(upcasts) + 1:
        return UnknownEvent(
            id=event_id,
            stored_kind=kind,
            stored_schema=schema,
            body=body,
            shown=shown,
            is_structural=structural,
        )
    if schema < 1:
        raise Undecodable(f"the event has schema version {schema}; schema versions begin at 1")
    fields = _parse(body)
    for upcast in upcasts[schema - 1 :]:
        fields = upcast(fields)
    if fields.get("kind") != kind:
        raise Undecodable(
            f"the column has the kind {kind}, but the body has {short(fields.get('kind'))}"
        )
    own = {name: value for name, value in fields.items() if name in type_.__struct_encode_fields__}
    extra = {name: value for name, value in fields.items() if name not in own and name != "kind"}
    try:
        event: KnownEvent = msgspec.convert(own, type_)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Undecodable(str(error)) from error
    if extra:
        force_setattr(event, "extra", extra)
    force_setattr(event, "id", event_id)
    return event
