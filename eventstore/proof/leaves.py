"""What a checkpoint covers: a leaf for each conversation, and the hashes in it.

``docs/internals/STORED_BYTES.md`` defines the bytes of a leaf.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import accumulate
from typing import Any, Final

import msgspec

from foldlog.eventstore.log.ledger import entries
from foldlog.eventstore.log.row import is_redacted
from foldlog.eventstore.maintenance.archive_objects import address_of_object, read_archived
from foldlog.eventstore.proof.merkle import leaf_hash
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import (
    HEAD_BYTES,
    Conversation,
    Erasure,
    Row,
    unpacked,
    utf8,
)

NO_HEAD: Final = bytes(HEAD_BYTES)
"""Stands where a conversation has no head, and where a ledger has no entry."""
FORM: Final = 2
"""The form of new extents, the first byte of what their hash covers."""
_numbers: Final = struct.Struct(">BIQ").pack
_time: Final = struct.Struct(">q").pack
_number: Final = struct.Struct(">Q").pack
_begins: Final = struct.Struct(">BQQ").pack
_NO_TEXT: Final = sha256().digest()
_NOTHING_OF_FORM_0: Final = _number(0) + NO_HEAD + 3 * _NO_TEXT
_NOTHING_BESIDE: Final = _NOTHING_OF_FORM_0 + 2 * (_number(0) + NO_HEAD) + _number(0) + _NO_TEXT
"""What an extent of form 1 hashes after its times if a conversation has events and nothing else."""
_PAGE: Final = 1_000


class Extent(msgspec.Struct, frozen=True, array_like=True):
    """What a leaf covers beside the events: the source of an import, what is left of redacted
    events, and from where a fork comes. Leaves of checkpoints of earlier versions have no extent.

    ``recorded_at``       the time of the last event, in microseconds since 1970
    ``records``           the number of records of the source, 0 without a source
    ``source_head``       the end of the chain of the records' hashes
    ``format``            the name of the source's format
    ``redacted_records``  the numbers of its redacted records
    ``redacted``          the ids of redacted events, with SHA-256 of what is left of each. The hash
                          is empty if the key of the conversation was missing
    ``clear_from``, ``clear``  of an encrypted conversation, a hash over the ids, kinds, times and
                          heads of the events from ``clear_from`` on. Each leaf has the events that
                          were new. Empty for a conversation that was not encrypted
    ``created_at``        when the conversation began, in microseconds since 1970
    ``form``              0 in checkpoints of earlier versions, which lack the next fields, and 1 in
                          those that lack the last one
    ``between_from``, ``between``  a hash over the texts between the records of the source, from the
                          record ``between_from`` on. Each leaf has the records that were new. Empty
                          if there is only white space and commas
    ``parent``, ``parent_version``  the id of a fork's parent, and the first event of the fork
    ``made``              how many of the first records of the source had become events
    """

    recorded_at: int
    records: int = 0
    source_head: bytes = b""
    format: str = ""
    redacted_records: tuple[int, ...] = ()
    redacted: tuple[tuple[int, str], ...] = ()
    clear_from: int = 0
    clear: bytes = b""
    created_at: int = 0
    form: int = 0
    between_from: int = 0
    between: bytes = b""
    parent: str = ""
    parent_version: int = 0
    made: int = 0

    @property
    def hash(self) -> bytes:
        if self.form:
            beside = _NOTHING_BESIDE if self._is_plain else self._beside
            if self.form > 1:
                beside += _number(self.made)
            return sha256(_begins(self.form, self.recorded_at, self.created_at) + beside).digest()
        created_at = _number(self.created_at) if self.created_at else b""
        clear = _number(self.clear_from) + self.clear if self.clear else b""
        return sha256(
            _number(self.recorded_at) + self._source_and_redacted + clear + created_at
        ).digest()

    @property
    def _beside(self) -> bytes:
        return b"".join(
            (
                self._source_and_redacted,
                _number(self.clear_from) + (self.clear or NO_HEAD),
                _number(self.between_from) + (self.between or NO_HEAD),
                _number(self.parent_version) + sha256(utf8(self.parent)).digest(),
            )
        )

    @property
    def _source_and_redacted(self) -> bytes:
        records = b"".join(map(_number, self.redacted_records))
        redacted = b"".join(
            _number(event_id) + (bytes.fromhex(body) or NO_HEAD) for event_id, body in self.redacted
        )
        return b"".join(
            (
                _number(self.records) + (self.source_head or NO_HEAD),
                sha256(utf8(self.format)).digest(),
                sha256(records).digest(),
                sha256(redacted).digest(),
            )
        )

    @property
    def has_right_lengths(self) -> bool:
        return (
            all(len(digest) in (0, HEAD_BYTES) for digest in (self.source_head, self.clear))
            and len(self.between) in (0, HEAD_BYTES)
            and all(len(body) in (0, 2 * HEAD_BYTES) for _, body in self.redacted)
        )

    @property
    def without_texts_between(self) -> Extent:
        return msgspec.structs.replace(self, between_from=0, between=b"")

    @property
    def _is_plain(self) -> bool:
        # Most extents are, so their hash costs less. Without records, ``made`` is 0.
        return not (
            self.records
            or self.redacted
            or self.source_head
            or self.format
            or self.redacted_records
            or self.clear
            or self.clear_from
            or self.between
            or self.between_from
            or self.parent
            or self.parent_version
        )


class Leaf(msgspec.Struct, frozen=True, array_like=True):
    """The state of a conversation at a checkpoint.

    ``name``        the id of the conversation, in UTF-8; empty for the store itself
    ``generation``  how many erased conversations had this id before
    ``erased``      whether the conversation is a tombstone
    ``version``     the number of events
    ``head``        the last head; for a tombstone, a hash of the tombstone; for an import without
                    events, the head before its first event
    ``ledger``      a hash over the entries of the conversation's ledger
    ``extent``      what the leaf covers beside the events; None in older checkpoints, and for
                    the store itself. The extent of a tombstone has only ``created_at`` and the
                    parent
    """

    name: bytes
    generation: int
    erased: bool
    version: int
    head: bytes
    ledger: bytes
    extent: Extent | None = None

    @property
    def hash(self) -> bytes:
        numbers = _numbers(self.erased, self.generation, self.version)
        extent = b"" if self.extent is None else self.extent.hash
        return leaf_hash(sha256(self.name).digest() + numbers + self.head + self.ledger + extent)

    @property
    def has_right_lengths(self) -> bool:
        if not len(self.head) == len(self.ledger) == HEAD_BYTES:
            return False
        return self.extent is None or self.extent.has_right_lengths

    @property
    def is_empty(self) -> bool:
        records = 0 if self.extent is None else self.extent.records
        return not (self.version or records) and self.ledger == NO_HEAD


def origin_of_fork(state: Conversation) -> dict[str, Any]:
    """Return the fields of an extent that say from where a fork comes."""
    if state.parent is None and state.version:
        return {}  # a fork that has copied its past keeps ``parent_version``
    return {"parent": state.parent_id or "", "parent_version": state.parent_version or 0}


def hash_of_texts(texts: Iterable[tuple[int, bytes]], start: int, stop: int) -> bytes:
    """Return a hash over the texts before the records ``start`` to ``stop`` - 1, or nothing if
    there are none.
    """
    covered = [_number(number) + digest for number, digest in texts if start <= number < stop]
    return sha256(b"".join(covered)).digest() if covered else b""


def hash_in_clear(reader: Reader, state: Conversation, first: int, stop: int) -> bytes:
    """Return a hash over what is not encrypted of the events ``first`` to ``stop`` - 1."""
    hashed = sha256()
    for row in _rows_without_bodies(reader, state, first, stop):
        _, event_id, _, _, recorded_at, schema, shown, structural, _, _ = unpacked(row.meta)
        kind = row.kind.encode()
        fields = f"{event_id} {schema} {shown:d} {structural:d} {recorded_at} {len(kind)} "
        hashed.update(fields.encode() + kind + b"\n" + row.head)
    return hashed.digest()


def _rows_without_bodies(
    reader: Reader, state: Conversation, first: int, stop: int
) -> Iterator[Row]:
    """Yield the rows of events from ``first`` up to ``stop``. Rows in the store come without their
    bodies.
    """
    if state.archived:
        archived = read_archived(state.id, address_of_object(reader, state.key))
        yield from (row for row, _ in archived if first <= row.id < stop)
    while page := reader.ask("metas", state.key, first, stop, _PAGE):
        yield from (Row(event_id, meta, b"") for event_id, meta in page)
        first = page[-1][0] + 1


def redacted_pages(reader: Reader, state: Conversation) -> Iterator[Sequence[Row]]:
    """Yield the rows of the redacted events of a conversation, in pages."""
    start = state.begins
    if state.archived:
        archived = read_archived(state.id, address_of_object(reader, state.key))
        yield [row for row, _ in archived if is_redacted(row.proof)]
    while page := reader.rows(state.key, start, state.version, _PAGE, "redacted_rows"):
        yield page
        start = page[-1].id + 1


def receipt_of(erasure: Erasure) -> bytes:
    """Return the hash that the leaf of a tombstone has as its head."""
    return sha256(erasure.head + _time(erasure.erased_at) + utf8(erasure.reason)).digest()


def ledger_hash(reader: Reader, key: int) -> bytes:
    """Return the hash of all entries of the ledger of a conversation, or of the store."""
    *_, newest = ledger_hashes(reader, key)
    return newest


def ledger_hashes(reader: Reader, key: int) -> Iterator[bytes]:
    """Yield the hash of a ledger before its first entry, then after each entry."""
    return accumulate(entries(reader, key), _hash_of_entry, initial=NO_HEAD)


def _hash_of_entry(former: bytes, row: Row) -> bytes:
    body: object = row.body
    if not isinstance(body, bytes):  # only in a damaged file
        body = b""
    return sha256(former + row.columns + body).digest()
