"""Count the records of a format that has no skeleton of its own: from the events that they become,
in memory.

It costs a decoding at each import, and keeps of a redacted record its ids, time and kind. What a
record is counted as is then by construction what its events are counted as.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec.structs import force_setattr

from foldlog._formats.format import Format, Options, RecordDecoder
from foldlog._formats.json_text import UnreadableJson, bytes_of, parse
from foldlog._formats.places import number
from foldlog._formats.record import NotAnEvent, dict_or_empty
from foldlog._formats.skeleton import located
from foldlog.eventstore import Event

_STAY = frozenset(
    (
        "id",
        "uuid",
        "bubbleId",
        "parentUuid",
        "parentId",
        "parent_id",
        "parent",
        "parent_message_uuid",
        "sessionId",
        "timestamp",
        "created_at",
        "createdAt",
        "type",
        "subtype",
        "kind",
        "role",
        "sender",
        "source",
    )
)
"""The names of what stays of a redacted record: by these, later records name it, and are read as
before.
"""
_NAME = re.compile(r"[\w.:-]{1,64}", re.ASCII)
"""A text that stays: an id, a time or the name of a kind. Any other may be words."""

READER = 1
"""The version of what decoders make of records."""


def decoder_of(
    format: Format, prefix: str = "", findings: list[str] | None = None
) -> RecordDecoder:
    """Return the decoder of one history, which begins at its first record."""
    return format.reader(Options(prefix=prefix, findings=[] if findings is None else findings))


def events_of(decoder: RecordDecoder, format: Format, record: Any) -> list[Event]:
    """Return the events of the next record. Raises ``NotAnEvent`` for a value that is not a record
    of the format.
    """
    events = decoder.events(record)
    number(events, format.name)
    if format.time is None:  # it happened before the import, at no known time
        for event in events:
            assert event.origin is not None
            force_setattr(event.origin, "time", event.origin.time or "")
    return events


class DecodedRecords:
    """The records of one history as events, held in memory, in the place of a skeleton."""

    def __init__(self, format: Format) -> None:
        self.format, self.events = format, list[Event]()
        self.findings = list[str]()
        """What the decoder says of records."""
        self._decoder = decoder_of(format, findings=self.findings)
        self._first = list[Any]()
        self.where = dict[str, str]()
        """Where the source was written, as the skeletons of other formats say it."""

    def add(self, record: bytes, hashed: bytes) -> None:
        """Count a record. Raises ``UnreadableJson`` for one that is not JSON."""
        self.take(parse(record))

    def take(self, record: Any) -> None:
        """Count a record that is parsed."""
        if len(self._first) < 50:
            self._first.append(record)
        self.where = located(self.where, **self.format.where(record))
        try:
            self.events += events_of(self._decoder, self.format, record)
        except NotAnEvent as error:
            self.findings.append(str(error))

    @property
    def conversation(self) -> str | None:
        """The name that the records give their conversation."""
        return self.format.conversation(self._first)

    def encoded(self) -> bytes:
        """Return no state: when the source grows, all of its records are decoded."""
        return b""

    def left_of(self, record: bytes) -> bytes:
        """Return what stays of a redacted record: its ids, time and kind."""
        told = dict_or_empty(next(values_of(iter((record,)))))
        names = {name: told[name] for name in _STAY & told.keys()}
        stays = {
            n: each
            for n, each in names.items()
            if each is None or (type(each) is str and _NAME.fullmatch(each))
        }
        return bytes_of(stays)


def values_of(records: Iterator[bytes]) -> Iterator[Any]:
    """Yield the values of stored records, None for one that cannot be parsed any more."""
    for record in records:
        try:
            yield parse(record)
        except UnreadableJson:
            yield None
