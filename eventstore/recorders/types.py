"""The values that a recorder stores and returns: rows, conversations, records, idempotency keys."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from operator import itemgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar
from uuid import UUID

from msgspec import Struct

from foldlog._base.json_types import JsonMap
from foldlog.eventstore.arguments import NUMBER_MAX, YEAR_10000
from foldlog.eventstore.errors import InvalidArgument, StoreDamaged

T = TypeVar("T")

_REMEDY: Final = "run 'foldlog store verify', then 'foldlog store copy --damaged'"
NOT_BEGUN: Final = 0
"""The key of a conversation that is not stored yet."""
HEAD_BYTES: Final = 32
"""The size in bytes of a head. The proof of a row begins with the head."""

# ``tuple.__new__`` makes a named tuple in less time than a call of the tuple's class. Every read
# makes a ``Row`` for each row.
_new: Final = tuple.__new__


_fields: Final = struct.Struct(">IIIIqI??BB")
unpacked: Final = _fields.unpack_from
"""Unpacks the ``meta`` of a row. The fields are: the checksum of the body, the id, the numbers of
shown and of structural events before the event, the time of recording, the schema, ``shown``,
``structural``, the encoding, and the size of the proof.
"""
packed: Final = _fields.pack
_FIELDS: Final = _fields.size
_CHECKSUM: Final = 4
UNREADABLE: Final = bytes(_FIELDS + _CHECKSUM)
"""Replaces a ``meta`` that is missing or incomplete. The checksum of ``UNREADABLE`` is always
wrong.
"""


class Row(NamedTuple):
    """A stored event. ``meta`` contains all data of the event except the body, in a fixed layout,
    and ends with its own checksum. ``log.row`` and ``docs/internals/STORED_BYTES.md`` describe the
    layout. A recorder never changes a row.

    ``recorded_at`` is in microseconds since 1970 (UTC). The ``encoding`` 0 means plain JSON text.
    ``proof`` is the head, followed by the salt of the body. If the body was redacted, the
    commitment to the body replaces the salt. ``shown_before`` and ``structural_before`` count the
    shown and the structural events before the row's event. A reader that finds events through an
    index notices by these counts that an event is missing.
    """

    id: int
    meta: bytes
    body: bytes

    @property
    def kind(self) -> str:
        return kind_name(self.meta[_FIELDS + self.meta[_PROOF_SIZE_AT] : -_CHECKSUM])

    @property
    def schema(self) -> int:
        return unpacked(self.meta)[5]  # type: ignore[no-any-return]

    @property
    def shown(self) -> bool:
        return self.meta[_SHOWN_AT] == 1

    @property
    def structural(self) -> bool:
        return self.meta[_SHOWN_AT + 1] == 1

    @property
    def recorded_at(self) -> int:
        return unpacked(self.meta)[4]  # type: ignore[no-any-return]

    @property
    def encoding(self) -> int:
        return self.meta[_ENCODING_AT]

    @property
    def proof(self) -> bytes:
        return self.meta[_FIELDS : _FIELDS + self.meta[_PROOF_SIZE_AT]]

    @property
    def shown_before(self) -> int:
        return unpacked(self.meta)[2]  # type: ignore[no-any-return]

    @property
    def structural_before(self) -> int:
        return unpacked(self.meta)[3]  # type: ignore[no-any-return]

    @property
    def head(self) -> bytes:
        return self.proof[:HEAD_BYTES]

    @property
    def columns(self) -> bytes:
        return self.meta[_CHECKSUM:-_CHECKSUM]

    def counted(self, event_id: int, shown_before: int, structural_before: int) -> Row:
        """Return a copy of the row with a new id and new counts of events. The caller has to
        compute the checksums of the copy again.
        """
        numbers = _numbers(event_id, shown_before, structural_before)
        return _new(
            Row, (event_id, self.meta[:_CHECKSUM] + numbers + self.meta[_RECORDED_AT:], self.body)
        )

    def in_form(self, encoding: int, body: bytes, proof: bytes | None = None) -> Row:
        """Return a copy of the row with a new encoding, body and proof. The caller has to compute
        the checksums of the copy again. The row ``self`` may be damaged.
        """
        meta = self.meta
        kind_at = _FIELDS + meta[_PROOF_SIZE_AT]
        if proof is None:
            proof = meta[_FIELDS:kind_at]
        form = bytes((encoding, len(proof)))
        return _new(Row, (self.id, meta[:_ENCODING_AT] + form + proof + meta[kind_at:], body))


_WHOLE: Final = len(UNREADABLE)
_numbers: Final = struct.Struct(">III").pack
_RECORDED_AT: Final = 16
_SHOWN_AT: Final = 28
_ENCODING_AT: Final = 30
_PROOF_SIZE_AT: Final = 31
_id_of = itemgetter(0)
_meta_of = itemgetter(1)
encoding_of: Final = itemgetter(_ENCODING_AT)
"""Returns the encoding in a ``meta``."""
NUMBERS: Final = frozenset((int,))
BYTES: Final = frozenset((bytes,))


def row_of(
    event_id: int,
    kind: str,
    schema: int,
    shown: bool,
    structural: bool,
    recorded_at: int,
    encoding: int,
    body: bytes,
    proof: bytes,
    shown_before: int = 0,
    structural_before: int = 0,
) -> Row:
    """Return a row whose two checksums are still 0: see ``log.row.with_checksums``."""
    fields = packed(
        0,
        event_id,
        shown_before,
        structural_before,
        recorded_at,
        schema,
        shown,
        structural,
        encoding,
        len(proof),
    )
    return Row(event_id, b"%b%b%b%b" % (fields, proof, kind.encode(), bytes(_CHECKSUM)), body)


_for_decoding: Final = struct.Struct(">16xqI3xB").unpack_from
counts: Final = struct.Struct(">8xII12xBB").unpack_from
"""Unpacks four numbers of a ``meta``: the number of shown events before the event, the number of
structural events before it, ``shown``, and ``structural``.
"""


def to_decode(metas: Sequence[bytes]) -> tuple[Sequence[str], Sequence[int], Sequence[int]]:
    """Return the kinds, the schemas and the times of recording of rows, from their ``meta``."""
    times, schemas, sizes = zip(*map(_for_decoding, metas), strict=True)
    kinds = [
        kind_name(meta[_FIELDS + size : -_CHECKSUM])
        for meta, size in zip(metas, sizes, strict=True)
    ]
    return kinds, schemas, times


def in_columns(meta: bytes) -> tuple[str, bool, bool]:
    """Return the fields of a ``meta`` that also have a column of their own, because an index needs
    them: the kind, ``shown`` and ``structural``.
    """
    return (
        kind_name(meta[_FIELDS + meta[_PROOF_SIZE_AT] : -_CHECKSUM]),
        meta[_SHOWN_AT] == 1,
        meta[_SHOWN_AT + 1] == 1,
    )


def body_bytes(body: object) -> int:
    """Return the size of a stored body. A damaged row may have a body of another type."""
    return len(body) if isinstance(body, bytes | str) else 0


def encodings(rows: Iterable[Row]) -> Iterable[int]:
    return map(encoding_of, map(_meta_of, rows))


Place = Callable[[], int]
"""A function that returns a position. Call a ``Place`` only after the commit."""


def no_position() -> int:
    # Staged rows get positions only when they are published.
    raise AssertionError("a staged event has no position yet")


class Erasure(NamedTuple):
    """The tombstone of an erased conversation: the time and the reason of the erasure, the number
    of events, and the last head. ``position`` is the position of the erasure in the ledger, or None
    before the tombstone is stored.
    """

    erased_at: int
    reason: str
    events: int
    head: bytes
    position: int | None = None


class Position(int):
    """A position in several joined stores. The integer value is the event's position in its own
    store. ``parts`` contains one number for each store: the position up to which a follower has
    read that store. ``follow`` accepts ``str(position)``, a text of all parts.
    """

    parts: tuple[int, ...]

    @classmethod
    def of(cls, own: int, parts: Iterable[int]) -> Position:
        position = cls(own)
        position.parts = tuple(parts)
        return position

    @classmethod
    def in_store(cls, own: int, store: int, count: int) -> Position:
        return cls.of(own, [own if number == store else 0 for number in range(count)])

    @classmethod
    def read(cls, text: str) -> Position:
        try:
            parts = [int(part, 16) for part in text.split(".")]
        except ValueError:
            parts = []
        if not parts or min(parts) < 0 or max(parts) > NUMBER_MAX:
            raise InvalidArgument(
                f"{text!r} is not the text of a position; pass str(recorded.position) of an event"
                " that follow yielded"
            )
        return cls.of(max(parts), parts)

    def moved(self, store: int, own: int) -> Position:
        return Position.of(own, (*self.parts[:store], own, *self.parts[store + 1 :]))

    def has_reached(self, other: int) -> bool:
        if isinstance(other, Position):
            parts = other.parts
        else:
            parts = (other,) * len(self.parts)
        return all(ours >= theirs for ours, theirs in zip(self.parts, parts, strict=True))

    def __eq__(self, other: object) -> bool:
        return int(self) == other and (not isinstance(other, Position) or self.parts == other.parts)

    def __ne__(self, other: object) -> bool:
        return not self == other  # ``int`` would compare only the numbers

    __hash__ = int.__hash__

    def __str__(self) -> str:
        return ".".join(f"{part:x}" for part in self.parts)


class PlacedRow(NamedTuple):
    """A row with its position in the whole store. ``is_entry`` is true if the row is an entry of
    the conversation's ledger. If the row is an entry of the store's own ledger, ``conversation`` is
    empty.
    """

    position: int
    conversation: str
    row: Row
    is_entry: bool = False


class Unfinished(NamedTuple):
    """An operation of several transactions that is not complete: it still runs, or it was killed.
    ``key`` and ``conversation`` are the key and the id of the operation's conversation. If the
    operation concerns the whole store, or is a reminder to delete objects, the key is negative and
    the id is empty.
    """

    key: int
    conversation: str
    operation: str
    state: str


class Ancestor(NamedTuple):
    """A conversation that stores a part of a fork's past. ``stop`` is the version up to which the
    fork shares the events of the ancestor. ``parent`` is the key of the ancestor's own parent.
    """

    key: int
    stop: int
    id: str
    encrypted: bool
    parent: int | None


class Conversation(NamedTuple):
    """The stored row of a conversation at the moment of a read. A conversation that has not begun
    has the key 0. ``version``, ``head`` and ``updated_at`` come from the last event. An empty
    conversation has version 0, no head and no ``updated_at``. ``shown`` and ``structural`` are the
    numbers of shown and structural events, computed from the last row. ``visible`` is false while
    the conversation is staged, so that no reader sees it yet. ``mark`` proves the last state of an
    encrypted conversation (``log.seal``).

    A fork has a ``parent`` with the id ``parent_id``. Events below ``parent_version`` are read from
    the parent. Until a fork has an event of its own, its last event is the last event that it
    shares with its parent. ``lineage`` contains the ancestors of the fork, beginning with the
    parent. In lists of conversations, ``lineage`` is empty. ``seed`` is the head before event 0, if
    the chain of heads begins in another conversation. A fork that has copied its past has a
    ``parent_version``, but no parent. ``replaces`` is the key of the erased conversation whose id
    this conversation uses again. ``unmade`` is the number of source records without events, and
    ``archived`` the number of events in the object of an archived conversation.
    ``redactions`` is the number of redacted events. For a fork, it begins with the number of its
    parent, also if the parent's redacted events are not shared. A caller may keep events in memory
    as long as ``redactions`` does not change.
    """

    key: int
    id: str
    created_at: int
    salt: bytes
    version: int = 0
    updated_at: int | None = None
    head: bytes | None = None
    shown: int = 0
    structural: int = 0
    parent: int | None = None
    parent_version: int | None = None
    key_id: str | None = None
    sealed_key: bytes | None = None
    erasure: Erasure | None = None
    visible: bool = True
    mark: bytes | None = None
    parent_id: str | None = None
    lineage: tuple[Ancestor, ...] = ()
    seed: bytes | None = None
    replaces: int | None = None
    redactions: int = 0
    unmade: int = 0
    archived: int = 0

    @property
    def lacks_events(self) -> bool:
        """Whether some of its events are not in the log: not made yet, or archived."""
        return self.unmade > 0 or self.archived > 0

    @property
    def changed_at(self) -> int:
        """The time of the last event, or for an import without events the time when it began."""
        return self.updated_at or self.created_at

    @property
    def begins(self) -> int:
        """The id of the first event that is stored under the conversation's own key."""
        return 0 if self.parent is None else self.parent_version or 0

    @property
    def end(self) -> tuple[int, bytes | None]:
        """The version of the conversation and its last head. For an erased conversation, both come
        from the tombstone.
        """
        if self.erasure is None:
            return (self.version, self.head)
        return (self.erasure.events, self.erasure.head)

    def grown(self, last: Row) -> Conversation:
        return _new(Conversation, (*self[:4], *_end_of(last), *self[9:]))


def _end_of(last: Row) -> tuple[int, int, bytes, int, int]:
    """Return the fields of a conversation that come from its last row."""
    fields = unpacked(last.meta)
    _, _, shown_before, structural_before, recorded_at, _, shown, structural, _, _ = fields
    return (
        last.id + 1,
        recorded_at,
        last.head,
        shown_before + shown,
        structural_before + structural,
    )


class Record(NamedTuple):
    """A record that a projection stores for one version of a conversation. ``code`` is the version
    of the projection's code. ``encoding`` and ``checksum`` mean the same as in a ``Row``.
    """

    version: int
    code: int
    body: bytes
    encoding: int = 0
    checksum: int = 0
    projection: str = ""


class Stream(NamedTuple):
    """A text of a conversation that is written piece by piece. ``number`` is never used again, and
    a later stream has a higher number. ``end`` is the number of its units so far: JSON values in a
    stream of JSON, else bytes. Times are in microseconds, and ``closed_at`` is None while the
    stream is open. If the stream became a reply, ``event`` is the id of its first event. ``state``
    is JSON, and belongs to the service.
    """

    number: int
    name: str
    type: str
    began_at: int
    closed_at: int | None = None
    end: int = 0
    event: int | None = None
    events: int | None = None
    state: bytes = b"{}"

    @property
    def event_ids(self) -> range:
        first = self.event or 0
        return range(first, first + (self.events or 0))


class Chunk(NamedTuple):
    """The units of a stream from ``begins`` to ``ends``, which were appended together.
    ``encoding`` and ``checksum`` mean the same as in a ``Row``.
    """

    begins: int
    ends: int
    body: bytes
    encoding: int = 0
    checksum: int = 0


class RecalledKey(NamedTuple):
    """The events that were appended under an idempotency key: the first id, and the number of
    events. The row codec makes and checks ``proof``.
    """

    first_id: int
    events: int
    proof: bytes | None = None
    position: int | None = None


def as_rows(columns: Iterable[Sequence[Any]]) -> list[Row]:
    """Return rows from database columns: id, ``meta``, body.

    The columns of a damaged row may have wrong types. A row whose id is not a number gets the id
    -1. A row without a complete ``meta`` gets ``UNREADABLE``, whose checksum is wrong.
    """
    rows = list(map(_new, repeat(Row), columns))
    try:
        are_whole = min(map(len, map(_meta_of, rows)), default=_WHOLE) >= _WHOLE
    except TypeError:
        are_whole = False
    if are_whole and NUMBERS.issuperset(map(type, map(_id_of, rows))):
        return rows
    return [
        Row(
            row.id if type(row.id) is int else -1,
            row.meta if _is_whole(row.meta) else UNREADABLE,
            row.body,
        )
        for row in rows
    ]


def _is_whole(meta: object) -> bool:
    return type(meta) is bytes and len(meta) >= _WHOLE


def as_recalled(columns: Sequence[Any]) -> RecalledKey:
    first_id, events, *rest = columns
    if type(first_id) is not int or type(events) is not int:
        # The row is damaged. Without events, the entry fits no append.
        return RecalledKey(-1, 0, *rest)
    return RecalledKey(first_id, events, *rest)


_SOME_NUMBERS: Final = NUMBERS | {type(None)}
_SOME_BYTES: Final = BYTES | {type(None)}


def check_types(what: str, kinds: frozenset[type], columns: Iterable[Any]) -> None:
    # Only a damaged file has a column of another type.
    others = {*map(type, columns)} - kinds
    if others:
        raise StoreDamaged(
            f"{what} is damaged: it has a value of type {others.pop().__name__}; {_REMEDY}"
        )


def as_record(columns: Sequence[Any]) -> Record:
    # A checksum covers the remaining columns.
    check_types("the version of a record of a projection", NUMBERS, columns[:1])
    return _new(Record, (*columns[:5], as_text(columns[5]) if len(columns) > 5 else ""))


def as_stream(columns: Sequence[Any]) -> Stream:
    what = "the row of a stream"
    check_types(what, _SOME_NUMBERS, _NUMBERS_OF_STREAM(columns))
    check_types(what, BYTES, [columns[8]])
    number, name, kind, *rest = columns
    return Stream(number, as_text(name), as_text(kind), *rest)


def as_chunk(columns: Sequence[Any]) -> Chunk:
    check_types("the place of a chunk of a stream", NUMBERS, columns[:2])
    return Chunk(*columns)


@lru_cache(1_000)  # there are few kinds and many rows
def kind_name(kind: object) -> str:
    # A damaged value is converted to a text too, and the row's checksum then does not match.
    if isinstance(kind, bytes):
        return str(kind, "utf-8", "replace")
    return repr(kind)


_YEARS: Final = range(YEAR_10000)
_NO_END: Final = (0, None, None, 0, 0)
"""The version, the time, the head and the counts of a conversation without events of its own."""
_NUMBERS_OF_CONVERSATION = itemgetter(0, 2, 4, 6, 7, 10, 12, 14, 18, 19, 20)
_NUMBERS_OF_STREAM = itemgetter(0, 3, 4, 5, 6, 7)
_BYTES_OF_CONVERSATION = itemgetter(3, 5, 9, 13, 16, 17)


def as_conversation(columns: Sequence[Any]) -> Conversation:
    """Return the state of a conversation from the columns of its row and of its last event. Ids and
    texts are UTF-8 bytes in these columns. Raises ``StoreDamaged`` if a column has a wrong type.
    """
    name_of_row = f"the row of conversation number {columns[0]}"
    check_types(name_of_row, _SOME_NUMBERS, _NUMBERS_OF_CONVERSATION(columns))
    check_types(name_of_row, _SOME_BYTES, _BYTES_OF_CONVERSATION(columns))
    (
        key,
        name,
        created_at,
        salt,
        last_id,
        meta,
        parent,
        parent_version,
        key_id,
        sealed_key,
        erased_at,
        reason,
        events,
        erased_head,
        erased_position,
        visible,
        mark,
        seed,
        replaces,
        redactions,
        pending,
        *parent_id,
    ) = columns
    if (created_at or 0) not in _YEARS or (erased_at or 0) not in _YEARS:
        raise StoreDamaged(
            f"{name_of_row} is damaged: it has a time outside the years 1970 to 9999; {_REMEDY}"
        )
    end: tuple[Any, ...] = _NO_END
    if last_id is not None:
        end = _end_of(Row(last_id, meta if _is_whole(meta) else UNREADABLE, b""))
    erasure = None
    if erased_at is not None:
        erasure = Erasure(
            erased_at, as_text(reason or b""), events or 0, erased_head or b"", erased_position
        )
    # A positive number counts records without events, and a negative number archived events.
    unmade = max(pending or 0, 0)
    archived = max(-(pending or 0), 0)
    return _new(Conversation, (
        key,
        as_text(name),
        created_at or 0,
        salt or b"",
        *end,
        parent,
        parent_version,
        None if key_id is None else as_text(key_id),
        sealed_key,
        erasure,
        visible == 1,
        mark,
        None if parent is None else as_text(*parent_id or (b"",)),
        (),
        seed,
        replaces,
        redactions or 0,
        unmade,
        archived,
    ))  # fmt: skip


class ListedConversation(NamedTuple):
    """A conversation in the stored list. ``at`` is the time of the last activity. ``at`` and
    ``version`` were current when the conversation was listed. ``attributes`` is a map, or the
    stored record of the attributes, which is not decoded. ``attributes`` is None if there are no
    attributes, or if they cannot be read. ``is_record_missing`` is true if the conversation has
    attributes, but the record that contains them is missing.
    """

    key: int
    id: str
    created_at: int
    is_encrypted: bool
    at: int
    version: int
    attributes: Record | JsonMap | None
    is_record_missing: bool = False


class Outcome(Struct, Generic[T], frozen=True):
    """The outcome of a call, possibly in another thread: the result, or the error that the call
    raised.
    """

    value: T | None = None
    error: BaseException | None = None

    @staticmethod
    def of(work: Callable[[], T]) -> Outcome[T]:
        """Call ``work`` in this thread, and return its outcome."""
        try:
            return Outcome(work())
        except BaseException as error:  # noqa: BLE001 - ``unwrap`` raises it
            return Outcome(error=error)

    def unwrap(self) -> T:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]


def utf8(text: str) -> bytes:
    # An id may contain lone surrogates.
    return text.encode("utf-8", "surrogatepass")


def as_text(stored: object) -> str:
    # Only a damaged file has a column of another type.
    if type(stored) is bytes:
        return stored.decode("utf-8", "surrogatepass")
    return ""


def new_store_uuid() -> str:
    # Tests of other programs replace ``uuid.uuid4`` to get known ids, and opening a store must not
    # use up one of these ids.
    return str(UUID(bytes=os.urandom(16), version=4))
