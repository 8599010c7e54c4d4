"""Count the events of a format without a skeleton, by decoding all records in memory.

The counts always match the stored events, but every import is slower. If a record is redacted, its
ids, its time and its kind stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import force_setattr

from foldlog.eventstore import Event
from foldlog.formats.format import Format, Options, RecordDecoder
from foldlog.formats.json_text import UnreadableJson, bytes_of, parse
from foldlog.formats.places import number
from foldlog.formats.record import NotAnEvent, dict_or_empty
from foldlog.formats.skeleton import with_place

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
"""Fields that a redaction leaves in a record, because later records refer to these fields."""
_NAME = re.compile(r"[\w.:-]{1,64}", re.ASCII)
"""Matches an id, a time or the name of a kind. A redaction deletes every text that does not match,
because a user may have written the text.
"""

READER = 1
"""The version of the decoders. Increase this version when a change makes a decoder return different
events.
"""


def decoder_of(
    format: Format, prefix: str = "", findings: list[str] | None = None
) -> RecordDecoder:
    """Return a decoder for one history. The decoder must read the history from the first
    record on.
    """
    return format.reader(Options(prefix=prefix, findings=[] if findings is None else findings))


def events_of(decoder: RecordDecoder, format: Format, record: Any) -> list[Event]:
    """Return the events of the next record. Raises ``NotAnEvent`` for a value that is not a record
    of the format.
    """
    events = decoder.events(record)
    number(events, format.name)
    if format.time is None:
        # an empty time means: at an unknown time before the import
        for event in events:
            assert event.origin is not None
            force_setattr(event.origin, "time", event.origin.time or "")
    return events


class DecodedRecords:
    """The records of one history as events in memory. ``DecodedRecords`` has the methods of
    ``Skeleton``.
    """

    def __init__(self, format: Format) -> None:
        self.format = format
        self.events = list[Event]()
        self.findings = list[str]()
        self._decoder = decoder_of(format, findings=self.findings)
        self._first = list[Any]()
        self.where = dict[str, str]()
        self.follows: tuple[str, int] | None = None
        """No format without a skeleton continues another conversation: see ``Skeleton``."""
        self.on_finding: Callable[[str], None] = lambda problem: None
        """A function that is called with each problem in a record that could be read."""
        """The folder, the branch and the model of the source: see ``SourceState.where``."""

    def add(self, record: bytes, record_hash: bytes) -> None:
        """Count a record. Raises ``UnreadableJson`` for a record that is not JSON."""
        self.take(parse(record))

    def check(self, record: bytes, record_hash: bytes) -> None:
        """Raise the error that ``add`` would raise."""
        parse(record)

    def take(self, record: Any) -> None:
        if len(self._first) < 50:
            self._first.append(record)
        self.where = with_place(self.where, **self.format.where(record))
        findings_before = len(self.findings)
        try:
            self.events += events_of(self._decoder, self.format, record)
        except NotAnEvent as error:
            self.findings.append(str(error))
        for problem in self.findings[findings_before:]:
            self.on_finding(problem)

    @property
    def conversation(self) -> str | None:
        return self.format.conversation(self._first)

    def encode(self) -> bytes:
        """Return an empty state, so that all records are decoded again when the source grows."""
        return b""

    def without_texts(self, record: bytes) -> bytes:
        (value,) = values_of(iter((record,)))
        fields = dict_or_empty(value)
        rest = {
            name: fields[name]
            for name in _STAY & fields.keys()
            if fields[name] is None or (type(fields[name]) is str and _NAME.fullmatch(fields[name]))
        }
        return bytes_of(rest)


def values_of(records: Iterator[bytes]) -> Iterator[Any]:
    """Yield the values of stored records. Yield None for a record that is not JSON."""
    for record in records:
        try:
            yield parse(record)
        except UnreadableJson:
            yield None
