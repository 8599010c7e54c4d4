"""Bytes that belong to a body: an event's ``bytes`` are stored beside its JSON text, and the text says where they
belong.

    {"$bytes":[{"at":["content",0,"data"],"sha256":"…","size":1234}],"kind":"message","content":[{"data":null}]}

The store writes the first field of a body: in every other body it is ``kind`` or ``$exact``. So a value of a user is
never mistaken for such a list. The text holds the SHA-256 of the bytes, so every proof of the text, the hash chain
above all, proves the bytes too. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

BEGINS_WITH_LIST: Final = b'{"$bytes":'
_decoder = json.JSONDecoder()


class Attachment(NamedTuple):
    """Bytes beside a body. A conversation keeps those with the same name and encoding only once.

    For a plain body: the SHA-256 of the bytes, 0, and the bytes. For a stored body: what the row codec makes of these.
    """

    name: bytes
    encoding: int
    body: bytes


class Body(bytes):
    """A body that has attachments. It is compared and hashed by its text, which names them all."""

    attachments: tuple[Attachment, ...] = ()

    @classmethod
    def of(cls, text: bytes, attachments: Iterable[Attachment]) -> Body:
        body = cls(text)
        body.attachments = tuple(attachments)
        return body


class NotListed(ValueError):
    """The body does not begin with a readable list of bytes."""


def attachment_of(plain: bytes) -> Attachment:
    """Return the attachment that holds these bytes."""
    return Attachment(sha256(plain).digest(), 0, plain)


def attachments_of(body: object) -> tuple[Attachment, ...]:
    """Return the attachments of a body; most bodies have none."""
    return body.attachments if isinstance(body, Body) else ()


def size_of(body: bytes) -> int:
    """Return the size of an event in bytes, with the bytes beside its body."""
    return len(body) + sum(len(each.body) for each in attachments_of(body))


def taken_out(value: Any) -> list[tuple[list[str | int], bytes]]:
    """Replace all bytes in maps and lists by None, and tuples by lists, in place. Return the places and the bytes.
    Cost: one visit of each list and map.
    """
    found: list[tuple[list[str | int], bytes]] = []
    waiting: list[tuple[list[str | int], Any]] = [([], value)]
    while waiting:
        path, container = waiting.pop()
        for step, item in container.items() if isinstance(container, dict) else enumerate(container):
            if isinstance(item, bytes):
                container[step] = None
                found.append(([*path, step], item if type(item) is bytes else bytes(item)))
            elif isinstance(item, dict | list):
                waiting.append(([*path, step], item))
            elif isinstance(item, tuple):
                container[step] = as_list = list(item)
                waiting.append(([*path, step], as_list))
    return found


def with_list(text: bytes, found: Sequence[tuple[list[str | int], bytes]]) -> Body:
    """Return the body of a JSON object without these bytes, with the list that names them."""
    attachments: dict[bytes, Attachment] = {}
    listed = []
    for path, plain in found:
        attachment = attachment_of(plain)
        attachments[attachment.name] = attachment
        listed.append({"at": path, "sha256": attachment.name.hex(), "size": len(plain)})
    names = json.dumps(listed, separators=(",", ":")).encode("ascii")
    return Body.of(b"%b%b,%b" % (BEGINS_WITH_LIST, names, text[1:]), attachments.values())


def without_list(body: bytes) -> tuple[list[Mapping[str, Any]], bytes]:
    """Return the list with which a body begins, and the JSON object after it; a body without a list is returned
    unchanged.

    Raises ``NotListed``.
    """
    if not body.startswith(BEGINS_WITH_LIST):
        return [], body
    try:
        text = body.decode()
        listed, end = _decoder.raw_decode(text, len(BEGINS_WITH_LIST))
        for each in listed:
            if len(bytes.fromhex(each["sha256"])) != 32 or type(each["size"]) is not int or not each["at"]:
                raise NotListed("its list of bytes holds something else")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise NotListed(f"its list of bytes cannot be read ({error})") from error
    if not listed or text[end : end + 1] != ",":
        raise NotListed("its list of bytes is not followed by its fields")
    return listed, b"{" + text[end + 1 :].encode()


def listed_in(body: bytes) -> set[bytes]:
    """Return the names of the attachments that a plain body needs. Raises ``NotListed``."""
    return {bytes.fromhex(each["sha256"]) for each in without_list(body)[0]}


def put_back(fields: dict[str, Any], listed: Iterable[Mapping[str, Any]], body: bytes) -> None:
    """Put the attachments of ``body`` back in their places. Raises ``NotListed`` where one or its place is missing."""
    plain = {each.name: each.body for each in attachments_of(body)}
    for each in listed:
        value = plain.get(bytes.fromhex(each["sha256"]))
        if value is None:
            raise NotListed(
                f"its bytes with SHA-256 {each['sha256'][:12]}… are missing, or not those that were written"
            )
        try:
            container: Any = fields
            for step in each["at"][:-1]:
                container = container[step]
            if container[each["at"][-1]] is not None:
                raise NotListed("its list of bytes names a place that holds something else")
            container[each["at"][-1]] = value
        except (LookupError, TypeError) as error:
            raise NotListed("its list of bytes names a place that does not exist") from error
