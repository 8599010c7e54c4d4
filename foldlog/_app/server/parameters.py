"""The parameters of requests: their types come from the signatures of the functions that answer."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from inspect import Parameter, signature
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec

from foldlog._app.server.problems import Refusal
from foldlog._base.json_types import JsonObject

T = TypeVar("T")
Field = tuple[str, Any] | tuple[str, Any, Any]
Count = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
Text = Annotated[str, msgspec.Meta(min_length=1)]


def signature_fields(function: Callable[..., Any]) -> list[Field]:
    """Return the parameters of a function, but for the request, as fields of a struct."""
    described = function.func if isinstance(function, partial) else function
    types = get_type_hints(described, include_extras=True)
    return [
        (each.name, types[each.name])
        if each.default is Parameter.empty
        else (each.name, types[each.name], each.default)
        for each in signature(function).parameters.values()
        if each.name != "request"
    ]


def fields_of(struct: msgspec.Struct) -> JsonObject:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def convert(what: str, value: object, kind: type[T]) -> T:
    """Return the texts of a path, a query or a header as a type. Raises a ``Refusal``."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Refusal(400, f"{what}: {error}") from None


async def read_body(
    headers: Mapping[str, str],
    parts: AsyncIterator[bytes],
    bytes_max: int,
    decode: Callable[[bytes | bytearray], T],
) -> T:
    """Return the JSON body that comes in parts. A body may be compressed with gzip, and counts by
    its bytes before and after. Raises a ``Refusal``.
    """
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise Refusal(415, "send the body as application/json")
    encoding = headers.get("content-encoding", "identity").lower()
    if encoding not in ("identity", "gzip"):
        raise Refusal(415, f"the content encoding {encoding!r} is not known; use gzip or none")
    unzip = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
    body = bytearray()
    received = 0
    async for part in parts:
        received += len(part)
        room = bytes_max + 1 - len(body)
        try:
            body += part if unzip is None else unzip.decompress(part, room)
        except zlib.error as error:
            raise Refusal(400, f"the body is not compressed by gzip: {error}") from None
        if max(received, len(body)) > bytes_max:
            raise Refusal(413, f"the body has more than {bytes_max:,} bytes", bytes_max=bytes_max)
    if unzip is not None and (not unzip.eof or unzip.unused_data):
        raise Refusal(400, "the compressed body is cut off, or more follows it")
    try:
        return decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Refusal(400, f"the body: {error}") from None
