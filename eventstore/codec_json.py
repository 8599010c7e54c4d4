"""Store values that JSON cannot hold, and refuse values that JSON would change.

    {"$exact":"<base64 of ASCII JSON>","kind":"message","content":"a form that any tool can read"}
    {"$bytes":[{"at":["content",0,"data"],"sha256":"…","size":1234}],"kind":"message",
     "content":[{"data":null}]}

The exact form holds values that JSON in UTF-8 cannot hold, such as a lone surrogate or an infinity.
An event's ``bytes`` are stored beside its JSON text. The JSON text contains the path of the field
and the SHA-256 of the bytes. The hash chain covers the JSON text, and thus the hashes of the bytes.
A plain body begins with the field ``kind``, so the decoder never mistakes a user's field named
``$exact`` for the exact form.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Sequence, Set as AbstractSet
from datetime import date, time
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from foldlog._base.json_types import JsonMap, JsonObject

EXACT = "$exact"
BEGINS_EXACT = b'{"$exact":'

_encode = msgspec.json.encode
BEGINS_WITH_LIST: Final = b'{"$bytes":'
_decoder = json.JSONDecoder()


class Undecodable(ValueError):
    """A stored body has an invalid form. The store turns ``Undecodable`` into ``CorruptEvent`` with
    the event's id.
    """


# -- the exact form


def text_of(fields: JsonObject) -> bytes:
    """Return ``fields`` as the body of an event. No field may contain bytes. If JSON in UTF-8
    cannot hold a field, the body begins with the field ``$exact``, which contains all fields as
    ASCII JSON in base64. The rest of the body contains an approximation that any tool can read.

    If a field of the event has the name ``$exact``, the body is stored in this form too.
    """
    fields = whole_pairs(fields)
    readable = whole_pairs(
        {name: value for name, value in fields.items() if name != EXACT}, alone="replace"
    )
    if readable == fields:
        return _encode(fields)
    exact = json.dumps(fields, separators=(",", ":")).encode("ascii")
    return _encode({EXACT: base64.b64encode(exact).decode("ascii"), **readable})


def whole_pairs(value: Any, alone: str = "surrogatepass") -> Any:
    """Join each surrogate pair to one character, as JSON does. If ``alone`` is "replace", replace
    lone surrogates, and turn NaN and infinities into None, so that any tool can read the value.
    """
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", alone)
    if isinstance(value, float):
        if alone == "replace" and not math.isfinite(value):
            return None
        return value
    if isinstance(value, dict):
        return {whole_pairs(key, alone): whole_pairs(item, alone) for key, item in value.items()}
    if isinstance(value, list):
        return [whole_pairs(item, alone) for item in value]
    return value


def exact_of(fields: JsonObject, text: bytes) -> JsonObject:
    """Return the exact fields of a body with the field ``$exact``: the reverse of ``text_of``.
    ``fields`` is the decoded ``text``. Raises ``Undecodable``.
    """
    try:
        exact: JsonObject = json.loads(base64.b64decode(fields[EXACT], validate=True))
        written = text_of(exact)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Undecodable(f"the field $exact cannot be read ({error})") from error
    if written != text:
        raise Undecodable("the field $exact and the fields after it differ")
    return exact


# -- bytes beside a body


class Attachment(NamedTuple):
    """Bytes that are stored beside a body. A conversation stores attachments with equal names and
    encodings only once.

    At first, the name is the SHA-256 of the bytes, and the encoding is 0. The row codec may change
    all three fields when it compresses or encrypts the bytes.
    """

    name: bytes
    encoding: int
    body: bytes


class Body(bytes):
    """A body that has attachments. Two bodies with the same text are equal, because the text names
    all attachments.
    """

    attachments: tuple[Attachment, ...] = ()

    @classmethod
    def of(cls, text: bytes, attachments: Iterable[Attachment]) -> Body:
        body = cls(text)
        body.attachments = tuple(attachments)
        return body


def attachment_of(plain: bytes) -> Attachment:
    return Attachment(sha256(plain).digest(), 0, plain)


def attachments_of(body: object) -> tuple[Attachment, ...]:
    return body.attachments if isinstance(body, Body) else ()


def size_of(body: bytes) -> int:
    """Return the size of a body with its attachments."""
    attachments = attachments_of(body)
    return len(body) + sum(len(item.body) for item in attachments) if attachments else len(body)


def take_bytes_out(value: Any) -> list[tuple[list[str | int], bytes]]:
    """Replace each ``bytes`` in the lists and maps of ``value`` by None, and each tuple by a list.
    Return the path and the bytes of each ``bytes``.
    """
    attached: list[tuple[list[str | int], bytes]] = []
    containers: list[tuple[list[str | int], Any]] = [([], value)]
    while containers:
        path, container = containers.pop()
        for step, item in (
            container.items() if isinstance(container, dict) else enumerate(container)
        ):
            if isinstance(item, bytes):
                container[step] = None
                attached.append(([*path, step], item if type(item) is bytes else bytes(item)))
            elif isinstance(item, dict | list):
                containers.append(([*path, step], item))
            elif isinstance(item, tuple):
                as_list = list(item)
                container[step] = as_list
                containers.append(([*path, step], as_list))
    return attached


def with_list(text: bytes, attached: Sequence[tuple[list[str | int], bytes]]) -> Body:
    """Return a body that begins with the list ``$bytes`` of its attachments. ``text`` is the body
    without the list, and ``attached`` comes from ``take_bytes_out``.
    """
    attachments: dict[bytes, Attachment] = {}
    listed = []
    for path, plain in attached:
        attachment = attachment_of(plain)
        attachments[attachment.name] = attachment
        listed.append({"at": path, "sha256": attachment.name.hex(), "size": len(plain)})
    names = json.dumps(listed, separators=(",", ":")).encode("ascii")
    return Body.of(b"%b%b,%b" % (BEGINS_WITH_LIST, names, text[1:]), attachments.values())


def without_list(body: bytes) -> tuple[list[JsonMap], bytes]:
    """Return the list ``$bytes`` of a body, and the body without the list. Raises
    ``Undecodable``.
    """
    if not body.startswith(BEGINS_WITH_LIST):
        return [], body
    try:
        text = body.decode()
        listed, end = _decoder.raw_decode(text, len(BEGINS_WITH_LIST))
        is_valid = all(
            len(bytes.fromhex(entry["sha256"])) == 32 and type(entry["size"]) is int and entry["at"]
            for entry in listed
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Undecodable(f"the list $bytes cannot be read ({error})") from error
    if not is_valid:
        raise Undecodable("the list $bytes has an invalid entry")
    if not listed or text[end : end + 1] != ",":
        raise Undecodable("no other field follows the list $bytes")
    return listed, b"{" + text[end + 1 :].encode()


def listed_in(body: bytes) -> set[bytes]:
    """Return the hashes of the attachments that a body needs. Raises ``Undecodable``."""
    return {bytes.fromhex(entry["sha256"]) for entry in without_list(body)[0]}


def put_back(fields: JsonObject, listed: Iterable[JsonMap], body: bytes) -> None:
    """Put the attachments of a body back at their paths in ``fields``. Raises ``Undecodable`` if
    one of them is missing.
    """
    plain = {attachment.name: attachment.body for attachment in attachments_of(body)}
    for entry in listed:
        value = plain.get(bytes.fromhex(entry["sha256"]))
        if value is None:
            raise Undecodable(
                f"the bytes with SHA-256 {entry['sha256'][:12]}… are missing or were changed"
            )
        try:
            container: Any = fields
            for step in entry["at"][:-1]:
                container = container[step]
            if container[entry["at"][-1]] is not None:
                raise Undecodable("a path in the list $bytes leads to a value other than null")
            container[entry["at"][-1]] = value
        except (LookupError, TypeError) as error:
            raise Undecodable("a path in the list $bytes leads to no value") from error


# -- values that JSON would change


def not_json(fields: JsonMap, *, finite: bool = False) -> str | None:
    """Return a message about the first value that JSON cannot hold, or None if JSON can hold all
    values. The message names the path and the type of the value, and advises what to write instead.
    JSON can hold None, texts, numbers, booleans, bytes, lists, tuples, and maps with texts as keys.

    If ``finite`` is true, NaN and infinities are refused.
    """
    for name, value in fields.items():
        problem = _problem(value, finite)
        if problem is not None:
            return f"its field {name}{problem}".encode(errors="backslashreplace").decode()
    return None


def _problem(value: Any, finite: bool) -> str | None:
    """Return what makes a value unfit for JSON, beginning with the path to the part at fault, or
    None if JSON can hold the value. ``finite`` forbids numbers that are infinite or NaN.
    """
    if isinstance(value, dict):
        for name, item in value.items():
            if not isinstance(name, str):
                return (
                    f" has the key {name!r:.60} of type {type(name).__name__}, and keys in JSON are"
                    f" texts; write it as text, such as {str(name)!r:.60}, or write a list of pairs"
                )
            if (problem := _problem(item, finite)) is not None:
                return f".{name:.60}{problem}"
        return None
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            if (problem := _problem(item, finite)) is not None:
                return f"[{index}]{problem}"
        return None
    if isinstance(value, float) and finite and not math.isfinite(value):
        return f" is {value}, which JSON cannot hold; write it as text, or None"
    if value is None or isinstance(value, str | int | float) or type(value) is bytes:
        return None
    return f" has a value of type {type(value).__name__}, which JSON cannot hold; {_remedy(value)}"


def brackets(text: bytes) -> int:
    """Return the number of opening brackets, which is never below the number of levels of a JSON
    text.
    """
    return 2 * len(text) - len(text.replace(b"[", b"")) - len(text.replace(b"{", b""))


def plain(value: object) -> object:
    """Convert a text or number of a subclass, such as NumPy's ``float64``, to the plain class."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise TypeError(f"an object of type {type(value).__name__} cannot be stored")


def describe_value(value: object) -> str:
    """Return a value as text. Bytes are described by their number and their hash."""
    if isinstance(value, bytes):
        return f"[{len(value):,} bytes, sha256 {sha256(value).hexdigest()[:12]}…]"
    return str(value)


def _remedy(value: object) -> str:
    """Return the end of an error about a value that JSON does not have: what to write in its
    place.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return "write bytes(value)"
    if isinstance(value, AbstractSet):
        return "write a list, such as sorted(value)"
    if isinstance(value, date | time):
        return "write value.isoformat()"
    return "write it as text, a number, a list or a map"
