"""Make and read the lines of an archive. Each is one JSON object; its first key says what it is."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TypeVar

import msgspec
from msgspec import Meta

from foldlog.archives.compression import AGAIN, NotReadable, decompressed
from foldlog.eventstore import CorruptEvent, EventStoreError, codec, is_structural
from foldlog.eventstore.arguments import YEAR_10000
from foldlog.eventstore.codec_json import Body, attachment_of, attachments_of
from foldlog.eventstore.log.past import Link
from foldlog.eventstore.log.row import PLAIN, is_redacted
from foldlog.eventstore.maintenance.copy import CopiedConversation
from foldlog.eventstore.recorders.types import HEAD_BYTES, Erasure, Row

VERSION = 1
"""The version of the format. A reader refuses later ones."""

T = TypeVar("T")

_Moment = Annotated[int, Meta(ge=0, lt=YEAR_10000)]
"""Microseconds since 1970, before the year 10000."""
_Whole = Annotated[int, Meta(ge=0, le=2**53)]
_Head = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
_Salt = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
_Hex = Annotated[str, Meta(pattern="^([0-9a-f]{2}){0,64}$")]


class NotAnArchive(EventStoreError, ValueError):
    """The file is not an archive, or is damaged from here on: the message names the line. The part before was
    copied.
    """


class ArchiveLine(msgspec.Struct, forbid_unknown_fields=True):
    """The first line."""

    foldlog_archive: int
    store: str


class _Event(msgspec.Struct, forbid_unknown_fields=True):
    event: _Whole
    kind: str
    schema: _Whole
    shown: bool
    structural: bool
    recorded_at: _Moment
    head: _Head
    salt: _Salt | None = None
    commitment: _Head | None = None
    """The commitment of a redacted event, in the place of its salt."""
    bytes: list[str] = []
    """The attachments of the body, in base64."""
    body: msgspec.Raw = msgspec.Raw()
    body64: str | None = None


class _Erased(msgspec.Struct, forbid_unknown_fields=True):
    at: _Moment
    reason: str
    events: _Whole
    head: _Hex


class _Link(msgspec.Struct, forbid_unknown_fields=True):
    conversation: str
    salt: _Hex
    stop: _Whole


class ConversationLine(msgspec.Struct, forbid_unknown_fields=True):
    """The line before the events of a conversation, or in their place if it was erased."""

    conversation: str
    created_at: _Moment
    salt: _Hex = ""
    version: _Whole = 0
    head: _Head | None = None
    past: list[_Link] = []
    erased: _Erased | None = None
    replaces: _Erased | None = None
    """The tombstone of the erased conversation whose id it uses again."""


class KeyLine(msgspec.Struct, forbid_unknown_fields=True):
    """An idempotency key and its events."""

    key: str
    first: _Whole
    events: _Whole


class GivenUpLine(msgspec.Struct, forbid_unknown_fields=True):
    """The conversation before this line was found to be damaged while it was written: do not use its lines."""

    given_up: str
    problem: str


class EndLine(msgspec.Struct, forbid_unknown_fields=True):
    """The last line, with the totals of the lines before it."""

    end: bool
    conversations: _Whole
    events: _Whole


_event = msgspec.json.Decoder(_Event)
_raw = msgspec.json.Decoder(msgspec.Raw)


# -- making -----------------------------------------------------------------------------------------------------------


def line(fields: dict[str, Any]) -> bytes:
    """Return a line. It is ASCII, so that it can hold a name with lone surrogates."""
    return json.dumps(fields, separators=(",", ":")).encode("ascii") + b"\n"


def conversation_line(what: CopiedConversation) -> bytes:
    replaces = {} if what.replaces is None else {"replaces": _erased(what.replaces)}
    if what.erasure is not None:
        erased = _erased(what.erasure)
        return line({"conversation": what.id, "created_at": what.created_at, "erased": erased, **replaces})
    past = [{"conversation": link.id, "salt": link.salt.hex(), "stop": link.stop} for link in what.past]
    return line(
        {
            "conversation": what.id,
            "created_at": what.created_at,
            "salt": what.salt.hex(),
            "version": what.version,
            "head": None if what.head is None else what.head.hex(),
            **({"past": past} if past else {}),
            **replaces,
        }
    )


def _erased(erasure: Erasure) -> dict[str, Any]:
    at, reason, events, head, _ = erasure
    return {"at": at, "reason": reason, "events": events, "head": head.hex()}


def event_line(conversation: str, row: Row) -> bytes:
    """Return the line of an event, its body as it is or in base64. Raises ``CorruptEvent`` for a damaged row."""
    if row.encoding != PLAIN:
        raise CorruptEvent(conversation, row.id, row.body.decode(errors="replace"))
    fields: dict[str, Any] = {
        "event": row.id,
        "kind": row.kind,
        "schema": row.schema,
        "shown": row.shown,
        "structural": row.structural,
        "recorded_at": row.recorded_at,
        "head": row.head.hex(),
    }
    fields["commitment" if is_redacted(row.proof) else "salt"] = row.proof[HEAD_BYTES:].hex()
    beside = attachments_of(row.body)
    if beside:
        fields["bytes"] = [base64.b64encode(each.body).decode() for each in beside]
    if _stands_in_a_line(row):
        return b'%b,"body":%b}\n' % (line(fields)[:-2], row.body)
    return line({**fields, "body64": base64.b64encode(row.body).decode()})


def _stands_in_a_line(row: Row) -> bool:
    """Return whether the body can be put into a line of JSON and read back as the same bytes."""
    if b"\n" in row.body or b"\r" in row.body or not row.kind.isprintable():
        return False
    try:
        row.body.decode()
        return bytes(_raw.decode(row.body)) == row.body
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


# -- reading ----------------------------------------------------------------------------------------------------------


class ArchiveLines:
    """The lines of an archive, with one line read ahead. A line has at most ``length_max`` bytes.

    Raises ``NotAnArchive``, with the number of the line.
    """

    def __init__(self, path: Path, file: BinaryIO, length_max: int) -> None:
        self._path = path
        self._lines = _split(decompressed(file), length_max)
        self._number = 0
        self.copied = 0
        """How many conversations were copied from the lines before."""
        self._ahead: bytes | None = None

    def next(self) -> bytes | None:
        """Return the next line, or None at the end of the file."""
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            return ahead
        self._number += 1
        try:
            return next(self._lines, None)
        except NotReadable as error:
            raise self.bad(str(error)) from error

    def next_of(self, first_key: str) -> bytes | None:
        """Return the next line if it has this first key."""
        following = self.next()
        if following is not None and following.startswith(b'{"%b":' % first_key.encode()):
            return following
        self._ahead = following
        return None

    def bad(self, problem: str) -> NotAnArchive:
        """Return the error for this line."""
        copied = "the conversations before it were copied" if self.copied else "nothing was copied"
        return NotAnArchive(f"{self._path}, line {self._number}: {problem}; {copied}")

    def read(self, text: bytes, type_: type[T]) -> T:
        """Return the line ``text`` as a value of this type."""
        try:
            return msgspec.convert(json.loads(text), type_)
        except (ValueError, RecursionError) as error:  # msgspec.ValidationError is a ValueError
            raise self.bad(f"it is not what is expected here; {AGAIN}") from error


def conversation_of(read: ConversationLine) -> CopiedConversation:
    replaces = None if read.replaces is None else _erasure(read.replaces)
    if read.erased is not None:
        erasure = _erasure(read.erased)
        return CopiedConversation(
            read.conversation, read.created_at, b"", erasure.events, erasure.head, erasure, replaces=replaces
        )
    head = None if read.head is None else bytes.fromhex(read.head)
    past = tuple(Link(each.conversation, bytes.fromhex(each.salt), each.stop) for each in read.past)
    return CopiedConversation(
        read.conversation, read.created_at, bytes.fromhex(read.salt), read.version, head, None, past, replaces
    )


def _erasure(read: _Erased) -> Erasure:
    return Erasure(read.at, read.reason, read.events, bytes.fromhex(read.head))


def row_of(lines: ArchiveLines, conversation: str, text: bytes) -> Row:
    """Return the row of an event's line. Raises ``CorruptEvent`` if the line is not an event, even if its head fits: an
    archive may be forged.
    """
    try:
        read = _event.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        read = lines.read(text, _Event)  # an error to report, or a value that only the other parser accepts
    body = bytes(read.body)
    if read.body64 is not None:
        body = _from_base64(lines, "body64", read.body64)
    if read.bytes:
        body = Body.of(body, [attachment_of(_from_base64(lines, "bytes", each)) for each in read.bytes])
    if (read.salt is None) == (read.commitment is None):
        raise lines.bad("an event has either a salt or a commitment, and this one has both or neither")
    try:
        event = codec.decode(read.kind, read.schema, body, read.event, shown=read.shown, structural=read.structural)
    except codec.Undecodable as error:
        raise CorruptEvent(conversation, read.event, str(error)) from error
    if (event.shown, is_structural(event)) != (read.shown, read.structural):
        raise CorruptEvent(
            conversation, read.event, "its line and its body disagree on whether it is shown or structural"
        )
    return Row(
        read.event, read.kind, read.schema, read.shown, read.structural, read.recorded_at, PLAIN, body,
        bytes.fromhex(read.head + (read.commitment or read.salt or "")),
    )  # fmt: skip


def _from_base64(lines: ArchiveLines, field: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise lines.bad(f"its {field} is not base64 ({error})") from error


def _split(pieces: Iterator[bytes], length_max: int) -> Iterator[bytes]:
    rest = bytearray()
    for piece in pieces:
        start = 0
        while (end := piece.find(b"\n", start)) >= 0:
            yield bytes(rest) + piece[start:end]
            rest.clear()
            start = end + 1
        rest += piece[start:]
        if len(rest) > length_max:
            raise NotReadable(f"it is longer than {length_max:,} bytes, which is more than an event may have")
    if rest:
        raise NotReadable("it is not ended: the archive was cut off")
