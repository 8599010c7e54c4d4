"""The parameters of requests: their types come from the signatures of the functions that answer."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Container, Iterable, Mapping
from functools import partial
from inspect import Parameter, signature
from typing import Annotated, Any, Final, TypeVar, get_type_hints

import msgspec

from foldlog._app.server.problems import Refusal
from foldlog._app.server.remedies import neutral
from foldlog._base.json_types import JsonObject
from foldlog.eventstore import InvalidEvent

_SILENCE_MAX_S: Final = 30.0
"""A body must go on after this time."""
LARGE_BODY_BYTES: Final = 256 * 1024
"""The large bodies of a token are read one after the other."""
_BODY_BYTES_PER_S: Final = 10_000
"""After the first ``_SILENCE_MAX_S``, a body must arrive at least this fast on average."""
_LENGTH_DIGITS_MAX: Final = 20
"""``int`` refuses a text of thousands of digits. A body with a longer ``Content-Length`` is refused
when it has become too large.
"""

T = TypeVar("T")
Field = tuple[str, Any] | tuple[str, Any, Any]
Count = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Named = dict[Text, T]
"""Values by name."""


def signature_fields(function: Callable[..., Any]) -> list[Field]:
    """Return the parameters of a function, but for the request, as fields of a struct."""
    described = function.func if isinstance(function, partial) else function
    types = get_type_hints(described, include_extras=True)
    fields: list[Field] = []
    for name, parameter in signature(function).parameters.items():
        if name == "request":
            continue
        if parameter.default is Parameter.empty:
            fields.append((name, types[name]))
        else:
            fields.append((name, types[name], parameter.default))
    return fields


def fields_of(struct: msgspec.Struct) -> JsonObject:
    """Return the values of a struct by name, as arguments of a function."""
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def convert(what: str, value: object, kind: type[T]) -> T:
    """Return the texts of a path, a query or a header as a type. Raises a ``Refusal``."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Refusal(400, f"{what}: {error}") from None


def read_query(pairs: Iterable[tuple[str, str]], names: Container[str]) -> dict[str, str]:
    """Return the parameters of a query that have these names, without all others. Raises a
    ``Refusal`` if one of them comes more than once.
    """
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values:
            raise Refusal(400, f"the parameter {name!r} comes more than once; send it once")
        if name in names:
            values[name] = value
    return values


def is_json(headers: Mapping[str, str]) -> bool:
    """Return whether the media type of a body is JSON, whatever its parameters, such as
    ``charset``.
    """
    media_type = headers.get("content-type", "").partition(";")[0]
    return media_type.strip().lower() == "application/json"


async def read_body(
    headers: Mapping[str, str],
    parts: AsyncIterator[bytes],
    bytes_max: int,
    decode: Callable[[bytes | bytearray], T],
    take: Callable[[int], object] = lambda size: None,
    turns: asyncio.Semaphore | None = None,
) -> T:
    """Read the JSON body that comes in parts, and return what ``decode`` makes of it. A body may be
    compressed with gzip; neither the compressed nor the whole body may have more than
    ``bytes_max``. ``take`` is called with the number of bytes that come into memory, and may refuse
    them. While others have all ``turns``, no more of a large body is read.

    Raises a ``Refusal`` if the body is no JSON (415, 400), breaks a rule of events (422), is too
    large (413), or comes too slowly (408).
    """
    if not is_json(headers):
        raise Refusal(415, "send the body as application/json")
    body = await read_bytes(headers, parts, bytes_max, take, turns)
    try:
        return decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        is_rule = isinstance(error.__cause__, InvalidEvent) or "RFC3339" in str(error)
        raise Refusal(422 if is_rule else 400, f"the body: {neutral(str(error))}") from None


async def read_bytes(
    headers: Mapping[str, str],
    parts: AsyncIterator[bytes],
    bytes_max: int,
    take: Callable[[int], object] = lambda size: None,
    turns: asyncio.Semaphore | None = None,
) -> bytearray:
    """Read the body that comes in parts, whatever its media type, and return it: see ``read_body``.
    Raises a ``Refusal`` (400, 408, 413 or 415).
    """
    encoding = headers.get("content-encoding", "identity").lower()
    if encoding not in ("identity", "gzip"):
        raise Refusal(415, f"the content encoding {encoding!r} is not known; use gzip or none")
    length = headers.get("content-length", "0")
    if length.isdecimal() and len(length) < _LENGTH_DIGITS_MAX and int(length) > bytes_max:
        raise too_large(bytes_max)
    unzip = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
    body = bytearray()
    received = 0
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    try:
        async with asyncio.timeout(_SILENCE_MAX_S) as limit:
            async for part in parts:
                received += len(part)
                now = loop.time()
                # The next part has to come after at most ``_SILENCE_MAX_S``, and before a body that
                # comes as slowly as allowed would have come so far.
                slowest_end = began_at + _SILENCE_MAX_S + received / _BODY_BYTES_PER_S
                limit.reschedule(min(now + _SILENCE_MAX_S, max(now, slowest_end)))
                before = len(body)
                room = bytes_max + 1 - before  # one byte more shows that the body is too large
                try:
                    body += part if unzip is None else unzip.decompress(part, room)
                except zlib.error as error:
                    raise Refusal(400, f"the body is not compressed by gzip: {error}") from None
                if max(received, len(body)) > bytes_max:
                    raise too_large(bytes_max)
                take(len(body) - before)
                if turns is not None and len(body) > LARGE_BODY_BYTES and turns.locked():
                    limit.reschedule(None)
                    async with turns:
                        pass
                    began_at += loop.time() - now  # the client could not send meanwhile
                    limit.reschedule(loop.time() + _SILENCE_MAX_S)
    except TimeoutError:
        raise Refusal(
            408,
            f"the body came too slowly: {received:,} bytes in {loop.time() - began_at:.0f} s; send"
            f" {_BODY_BYTES_PER_S:,} bytes a second, and pause for {_SILENCE_MAX_S:.0f} s at most",
        ) from None
    if unzip is not None and (not unzip.eof or unzip.unused_data):
        raise Refusal(400, "the compressed body is cut off, or more follows it")
    return body


def too_large(bytes_max: int) -> Refusal:
    """Return the refusal of a body that is too large."""
    return Refusal(413, f"the body has more than {bytes_max:,} bytes", bytes_max=bytes_max)
