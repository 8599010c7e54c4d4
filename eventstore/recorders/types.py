"""The values that a recorder stores and returns: rows, conversations, records, idempotency keys."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from operator import itemgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar
from uuid import UUID

from msgspec import Struct

from foldlog.eventstore.arguments import NUMBER_MAX, YEAR_10000
from foldlog.eventstore.errors import InvalidArgument, StoreDamaged

T = TypeVar("T")

_REMEDY: Final = "run 'foldlog store verify', then 'foldlog store copy --damaged'"
HEAD_BYTES: Final = 32
"""The size of a head, with which the proof of a row begins."""

# Makes a named tuple without the call of its own ``__new__``: every read makes a Row for each row.
_new: Final = tuple.__new__


_fields: Final = struct.Struct(">IIIIqI??BB")
unpacked: Final = _fields.unpack_from
"""Returns the fields of a ``meta``: the checksum of the body, the id, the number of shown events
and of structural events before it, the time of recording, the schema, whether the event is shown,
whether the event is structural, the encoding, and the size of the proof.
"""
packed: Final = _fields.pack
_FIELDS: Final = _fields.size
_CHECKSUM: Final = 4
UNREADABLE: Final = bytes(_FIELDS + _CHECKSUM)
"""The ``meta`` of a row whose own ``meta`` is missing or too short. No checksum accepts this
``meta``.
"""


class Row(NamedTuple):
    """One stored event. ``meta`` has all data of the event besides the body, in a fixed layout that
    ends with the checksum of ``meta``: see ``log.row`` and ``docs/internals/STORED_BYTES.md``. A
    recorder does not change a row.

    ``recorded_at`` is in microseconds since 1970, UTC. ``encoding`` 0 is plain JSON text. ``proof``
    is the head, followed by the salt of the body, or by the commitment to a redacted body.
    ``shown_before`` and ``structural_before`` count the shown and the structural events before this
    one, so that a reader of an index notices a missing event.
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
        """The head after this event."""
        return self.proof[:HEAD_BYTES]

    @property
    def columns(self) -> bytes:
        """The ``meta`` without its checksums: the fields, the proof and the kind."""
        return self.meta[_CHECKSUM:-_CHECKSUM]

    def counted(self, event_id: int, shown_before: int, structural_before: int) -> Row:
        """Return the row with another id and other counts of events before it. The returned row has
        wrong checksums.
        """
        numbers = _numbers(event_id, shown_before, structural_before)
        return _new(
            Row, (event_id, self.meta[:_CHECKSUM] + numbers + self.meta[_RECORDED_AT:], self.body)
        )

    def in_form(self, encoding: int, body: bytes, proof: bytes | None = None) -> Row:
        """Return the row with another encoding, body and proof. The returned row has wrong
        checksums, and the passed row need not be sound.
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
_encoding_of = itemgetter(_ENCODING_AT)
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
    """Return a row, without checksums: see ``log.row.with_checksums``."""
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
"""Returns four numbers of a ``meta``: the shown events before its event, the structural events
before its event, whether the event is shown, and whether it is structural.
"""


def to_decode(metas: Sequence[bytes]) -> tuple[Sequence[str], Sequence[int], Sequence[int]]:
    """Return the kinds, the schemas and the times of recording of rows with these ``meta``."""
    times, schemas, sizes = zip(*map(_for_decoding, metas), strict=True)
    kinds = [
        kind_name(meta[_FIELDS + size : -_CHECKSUM])
        for meta, size in zip(metas, sizes, strict=True)
    ]
    return kinds, schemas, times


def in_columns(meta: bytes) -> tuple[str, bool, bool]:
    """Return the fields of a ``meta`` that are also columns, for indices: the kind, whether the
    event is shown, and whether it is structural.
    """
    return (
        kind_name(meta[_FIELDS + meta[_PROOF_SIZE_AT] : -_CHECKSUM]),
        meta[_SHOWN_AT] == 1,
        meta[_SHOWN_AT + 1] == 1,
    )


def encodings(rows: Iterable[Row]) -> Iterable[int]:
    """Return the encodings of rows."""
    return map(_encoding_of, map(_meta_of, rows))


Place = Callable[[], int]
"""A function that returns a position. Call this function after the transaction was committed, not
earlier.
"""


def unplaced() -> int:
    """Stand for the ``Place`` of staged rows. Staged rows get positions when they are published."""
    raise AssertionError("a staged event has no position yet")


class Erasure(NamedTuple):
    """The tombstone of an erased conversation: when and why it was erased, the number of its
    events, and its last head. ``position`` is the position of the erasure's entry in the ledger;
    None before the entry is stored.
    """

    erased_at: int
    reason: str
    events: int
    head: bytes
    position: int | None = None


class Position(int):
    """A position in several joined stores. As a number, the position is the event's position in its
    own store. ``parts`` has a number for each store: the position up to which a follower has read.
    ``str(position)`` is a text of all parts, which ``follow`` accepts.
    """

    parts: tuple[int, ...]

    @classmethod
    def of(cls, own: int, parts: Iterable[int]) -> Position:
        position = cls(own)
        position.parts = tuple(parts)
        return position

    @classmethod
    def in_store(cls, own: int, store: int, count: int) -> Position:
        """Return the place of an event in its own store alone."""
        return cls.of(own, [own if number == store else 0 for number in range(count)])

    @classmethod
    def read(cls, text: str) -> Position:
        """Return the position with this text. Raises ``InvalidArgument``."""
        try:
            parts = [int(part, 16) for part in text.split(".")]
        except ValueError:
            parts = []
        if not parts or min(parts) < 0 or max(parts) > NUMBER_MAX:
            raise InvalidArgument(f"{text!r} is not the text of a position")
        return cls.of(max(parts), parts)

    def moved(self, store: int, own: int) -> Position:
        """Return the position of a follower after it has read one more event of a store."""
        return Position.of(own, (*self.parts[:store], own, *self.parts[store + 1 :]))

    def has_reached(self, other: int) -> bool:
        """Return whether a follower at this position has read the event at another position."""
        if isinstance(other, Position):
            parts = other.parts
        else:
            parts = (other,) * len(self.parts)
        return all(ours >= theirs for ours, theirs in zip(self.parts, parts, strict=True))

    def __eq__(self, other: object) -> bool:
        return int(self) == other and (not isinstance(other, Position) or self.parts == other.parts)

    __hash__ = int.__hash__

    def __str__(self) -> str:
        return ".".join(f"{part:x}" for part in self.parts)


class PlacedRow(NamedTuple):
    """A row with its position in the whole store. ``is_entry`` says that the row is an entry of the
    conversation's ledger. Entries of the store's own ledger have an empty ``conversation``.
    """

    position: int
    conversation: str
    row: Row
    is_entry: bool = False


class Unfinished(NamedTuple):
    """An operation of several transactions that is not complete, because it still runs or was
    killed. ``key`` and ``conversation`` are the key and the id of its conversation. An operation on
    the whole store has a negative key and an empty id.
    """

    key: int
    conversation: str
    operation: str
    state: str


class Ancestor(NamedTuple):
    """A conversation under whose key a part of a fork's past is stored. ``stop`` is the version at
    which the fork leaves it. ``parent`` is the key of this conversation's own parent.
    """

    key: int
    stop: int
    id: str
    encrypted: bool
    parent: int | None


class Conversation(NamedTuple):
    """The stored row of a conversation at the time of one read, or the row of a conversation that
    will begin, with the key 0. ``version``, ``head`` and ``updated_at`` come from its last event;
    an empty conversation has version 0, no head and ``updated_at`` None. ``shown`` and
    ``structural`` are the numbers of its shown and structural events, computed from its last row.
    ``visible`` says that the conversation is not staged. ``mark`` belongs to the row codec
    (``log.seal``).

    A fork has a ``parent``, whose id is ``parent_id``: events below ``parent_version`` are read
    from the parent. Before a fork has an event of its own, its last event is its parent's last
    shared event. ``lineage`` has the ancestors of the fork, its parent first; in lists ``lineage``
    is empty. ``seed`` is the head before event 0, if another conversation recorded event 0. A fork
    that has copied its past has a ``parent_version``, but no parent. ``replaces`` is the key of the
    erased conversation whose id it uses again. ``pending`` counts the records of the conversation's
    source that have no events yet; for an archived conversation ``pending`` is the negative number
    of the events in the conversation's object. ``redactions`` counts the redacted events; in a fork
    also the shared events that were redacted since it began. While this number is unchanged, a copy
    of the events in memory is right.
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
    pending: int = 0

    @property
    def begins(self) -> int:
        """The id of the first event that is stored under the conversation's own key."""
        return 0 if self.parent is None else self.parent_version or 0

    @property
    def end(self) -> tuple[int, bytes | None]:
        """The version and the last head. If the conversation is erased, they come from its
        tombstone.
        """
        if self.erasure is None:
            return (self.version, self.head)
        return (self.erasure.events, self.erasure.head)

    def grown(self, last: Row) -> Conversation:
        """Return the conversation with ``last`` as its newest row."""
        _, _, before, turns, recorded_at, _, shown, structural, _, _ = unpacked(last.meta)
        return self.ending(last.id + 1, recorded_at, last.head, before + shown, turns + structural)

    def ending(
        self, version: int, updated_at: int, head: bytes, shown: int, structural: int
    ) -> Conversation:
        """Return the conversation with another end."""
        return _new(
            Conversation, (*self[:4], version, updated_at, head, shown, structural, *self[9:])
        )


class Record(NamedTuple):
    """A record that a projection stores for one version of a conversation. ``code`` is the version
    of the projection's code. ``encoding`` and ``checksum`` mean what they mean in a ``Row``.
    """

    version: int
    code: int
    body: bytes
    encoding: int = 0
    checksum: int = 0
    projection: str = ""


class RecalledKey(NamedTuple):
    """The entry of an idempotency key: the first id and the number of the events that were appended
    under it. ``proof`` belongs to the row codec.
    """

    first_id: int
    events: int
    proof: bytes | None = None
    position: int | None = None


def as_rows(columns: Iterable[Sequence[Any]]) -> list[Row]:
    """Return rows from the columns that a database returned: id, ``meta``, body.

    The columns of a damaged row may have wrong types. A row with such columns gets a ``meta`` that
    no checksum accepts, and an id that is a number.
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
    """Return whether a ``meta`` has all its fields."""
    return type(meta) is bytes and len(meta) >= _WHOLE


def as_recalled(columns: Sequence[Any]) -> RecalledKey:
    """Return the entry of an idempotency key from the columns that a database returned. If a column
    has a wrong type, the entry has no events.
    """
    first_id, events, *rest = columns
    is_damaged = type(first_id) is not int or type(events) is not int
    return RecalledKey(*((-1, 0) if is_damaged else (first_id, events)), *rest)


_SOME_NUMBERS: Final = NUMBERS | {type(None)}
_SOME_BYTES: Final = BYTES | {type(None)}


def check_types(what: str, kinds: frozenset[type], columns: Iterable[Any]) -> None:
    """Raise ``StoreDamaged`` for a column of another type, which only a damaged file has."""
    others = {*map(type, columns)} - kinds
    if others:
        raise StoreDamaged(
            f"{what} is damaged: it has a value of type {others.pop().__name__}; {_REMEDY}"
        )


def as_record(columns: Sequence[Any]) -> Record:
    """Return a record from the columns that a database returned; the name of its projection may be
    missing. Raises ``StoreDamaged`` if the record's version is not a number. A checksum covers the
    other columns.
    """
    check_types("the version of a record of a projection", NUMBERS, columns[:1])
    return _new(Record, (*columns[:5], as_text(columns[5]) if len(columns) > 5 else ""))


@lru_cache(1_000)  # there are few kinds and many rows
def kind_name(kind: object) -> str:
    """Return a kind as text. A damaged value gives some other text, which no checksum accepts."""
    if isinstance(kind, str):
        return kind
    if isinstance(kind, bytes):
        return str(kind, "utf-8", "replace")
    return repr(kind)


_YEARS: Final = range(YEAR_10000)
_NUMBERS_OF_CONVERSATION = itemgetter(0, 2, 4, 6, 7, 10, 12, 14, 18, 19)
_BYTES_OF_CONVERSATION = itemgetter(3, 5, 9, 13, 16, 17)


def as_conversation(columns: Sequence[Any]) -> Conversation:
    """Return a conversation from the columns that a database returned; the id of its parent may be
    missing. Ids and texts are UTF-8 bytes. Raises ``StoreDamaged`` for a column of another type,
    and for an impossible time.
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
    empty = Conversation(
        key,
        as_text(name),
        created_at or 0,
        salt or b"",
        0,
        None,
        None,
        0,
        0,
        parent,
        parent_version,
        None if key_id is None else as_text(key_id),
        sealed_key,
        None
        if erased_at is None
        else Erasure(
            erased_at, as_text(reason or b""), events or 0, erased_head or b"", erased_position
        ),
        visible == 1,
        mark,
        None if parent is None else as_text(*parent_id or (b"",)),
        (),
        seed,
        replaces,
        redactions or 0,
        pending or 0,
    )
    if last_id is None:
        return empty
    return empty.grown(Row(last_id, meta if _is_whole(meta) else UNREADABLE, b""))


class ListedConversation(NamedTuple):
    """A conversation in a list. ``at``, the time of the conversation's last activity, and
    ``version`` are from the time when the conversation was listed. ``attributes`` is the record
    with the conversation's attributes, the attributes themselves, or None. ``is_record_missing``
    says that the conversation has attributes, and no record of them.
    """

    key: int
    id: str
    created_at: int
    is_encrypted: bool
    at: int
    version: int
    attributes: Record | Mapping[str, Any] | None
    is_record_missing: bool = False


class Outcome(Struct, Generic[T], frozen=True):
    """The outcome of a call that another thread may have made: the call's result, or the error that
    it raised.
    """

    value: T | None = None
    error: BaseException | None = None

    @staticmethod
    def of(work: Callable[[], T]) -> Outcome[T]:
        """Make a call in this thread and return its outcome."""
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
    """Return a text in UTF-8. Lone surrogates, which are not Unicode but may be in an id, are
    kept.
    """
    return text.encode("utf-8", "surrogatepass")


def as_text(stored: object) -> str:
    """Return a stored text; an empty text if the column of a damaged file has another type."""
    if type(stored) is bytes:
        return stored.decode("utf-8", "surrogatepass")
    return ""


def new_store_uuid() -> str:
    """Return a random UUID, version 4, as text.

    ``uuid.uuid4`` is not called: programs replace ``uuid.uuid4`` in their tests to get known ids,
    and opening a store must not use up a known id.
    """
    return str(UUID(bytes=os.urandom(16), version=4))
