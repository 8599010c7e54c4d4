"""Decode the records of a source, and read the names in the records of a format without a skeleton.

The figures of such a format are counted from its events. If a record is redacted, the fields stay
that ``NamedRecords.without_texts`` names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from foldlog.eventstore import Event
from foldlog.formats.format import LOOK_AT, Format, Options, RecordDecoder
from foldlog.formats.json_text import UnreadableJson, bytes_of, parse
from foldlog.formats.record import NotAnEvent, dict_or_empty
from foldlog.formats.record_events import events_of
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
"""The fields of a record whose value stays in a redaction if it matches ``_NAME`` or is null. Later
records refer to ids.
"""
_NAME = re.compile(r"[\w.:-]{1,64}", re.ASCII)
"""Matches an id, the name of a kind, or a time in UTC or without a zone. A redaction deletes every
text that does not match, because a user may have written the text. A time such as
``2026-03-05T10:00:00+01:00`` does not match.
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


def parent_named_in(events: Iterable[Event]) -> str | None:
    """Return the conversation that began this one, if an event names it."""
    parents = (event.meta.get("parent") for event in events)
    return next((parent for parent in parents if type(parent) is str and parent), None)


class NamedRecords:
    """The names in the records of a format without a skeleton. The class has the methods of
    ``Skeleton``.
    """

    def __init__(self, format: Format) -> None:
        self.format = format
        self._first = list[Any]()
        self.where = dict[str, str]()
        """The folder, the branch and the model of the source: see ``SourceState.where``."""
        self.parent: str | None = None
        """The conversation that began this one, if its decoded records name it."""
        self.follows: tuple[str, int] | None = None
        """No format without a skeleton continues another conversation: see ``Skeleton``."""
        self.on_finding: Callable[[str], None] = lambda problem: None
        """A function that is called with each problem in a record that could be read."""

    def add(self, record: bytes, record_hash: bytes) -> None:
        """Read a record. Raises ``UnreadableJson`` for a record that is not JSON."""
        self.take(parse(record))

    def check(self, record: bytes, record_hash: bytes) -> None:
        """Raise the error that ``add`` would raise."""
        parse(record)

    def take(self, record: Any) -> None:
        """Read the names in the value of a record."""
        if len(self._first) < LOOK_AT:
            self._first.append(record)
        self.where = with_place(self.where, **self.format.where(record))

    @property
    def conversation(self) -> str | None:
        """Return the conversation that the first records name, or None."""
        return self.format.conversation(self._first)

    def encode(self) -> bytes:
        """Return the state that a store keeps of the skeleton: nothing."""
        return b""

    def without_texts(self, record: bytes) -> bytes:
        """Return a redacted record: the fields of ``_STAY`` whose value is null or a text that
        matches ``_NAME``, in the record's order. Numbers and fields of nested objects do not stay,
        even if they are ids or times.
        """
        (value,) = values_of([record])
        fields = dict_or_empty(value)
        rest = {
            name: field
            for name, field in fields.items()
            if name in _STAY and (field is None or (type(field) is str and _NAME.fullmatch(field)))
        }
        return bytes_of(rest)


class DecodedRecords(NamedRecords):
    """Decodes the records too, so that an import reports what the decoder does not read. The events
    are dropped: the last record of a document may still change, so the events of a document are
    made when the conversation is used.
    """

    def __init__(self, format: Format) -> None:
        super().__init__(format)
        self._findings = list[str]()
        self._decoder = decoder_of(format, findings=self._findings)

    def take(self, record: Any) -> None:
        super().take(record)
        self._findings.clear()
        try:
            events = events_of(self._decoder, self.format, record)
        except NotAnEvent as error:
            events = []
            self._findings.append(str(error))
        self.parent = self.parent or parent_named_in(events)
        for problem in self._findings:
            self.on_finding(problem)


def values_of(records: Iterable[bytes]) -> list[Any]:
    """Return the values of stored records. A record that is not JSON has the value None."""
    values = list[Any]()
    for record in records:
        try:
            values.append(parse(record))
        except UnreadableJson:
            values.append(None)
    return values
