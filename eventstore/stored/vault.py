"""Rows and records as they are stored, made of plain ones and made plain again, and checked on the way.

A row whose bytes are not those that were written becomes one that says so: its encoding is ``DAMAGED``, its body the
reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from eventstore.errors import KeyUnavailable
from eventstore.recorders.base import Conversation, Record, Row
from eventstore.stored import hash_chain
from eventstore.stored.row_codec import DAMAGED, PLAIN, SEALED, DataKey, Sealing, Unopenable, packed, unpacked

__all__ = ["NOBODY", "Known", "Vault"]

_KEPT_MAX = 10_000


class Known(NamedTuple):
    """What the rows of one conversation are checked and opened with. Without ``data_key`` it is not sealed."""

    key: int
    conversation: str
    checksum_seed: int
    sealed_key: bytes | None
    data_key: DataKey | None


NOBODY = Known(0, "", 0, None, None)
"""A conversation that is not there."""


class Vault:
    """How this store seals, and the data keys that it has opened. Any number of threads may use it."""

    def __init__(self, sealing: Sealing) -> None:
        self.sealing = sealing
        self._by_key: dict[int, Known] = {}
        self._by_id: dict[str, Known] = {}

    # -- conversations ------------------------------------------------------------------------------------------------

    def known(self, found: Conversation) -> Known:
        """What the rows of ``found`` are opened with. Raises ``KeyUnavailable`` where it is sealed and the key is not
        here.
        """
        before = self._by_key.get(found.key)
        known = self.learn(found)
        if known is not before:
            if before is not None:
                self.forget(before)
            if len(self._by_key) >= _KEPT_MAX:
                self._by_key.clear()
                self._by_id.clear()
            self._by_key[found.key] = self._by_id[found.id] = known
        return known

    def learn(self, found: Conversation) -> Known:
        """The same, and nothing is kept that was not: for what may not be committed."""
        known = self._by_key.get(found.key)
        # A key may come again, after a staged import was discarded; a conversation may be sealed meanwhile.
        if known is not None and known.conversation == found.id and known.sealed_key == found.sealed_key:
            return known
        data_key = None
        if found.sealed_key is not None:
            keys = self.sealing.keys
            if keys is None:
                raise KeyUnavailable(
                    f"conversation {found.id!r} is sealed with key {found.key_id}; set FOLDLOG_KEY or FOLDLOG_KEY_FILE"
                )
            data_key = DataKey(found.id, keys.open(found.id, found.key_id or "", found.sealed_key))
        return Known(found.key, found.id, hash_chain.checksum_seed(found.id), found.sealed_key, data_key)

    def recalled(self, *, key: int | None = None, conversation: str = "") -> Known | None:
        """What is known by its key or its id without asking the database: it may be out of date."""
        return self._by_id.get(conversation) if key is None else self._by_key.get(key)

    def forget(self, known: Known) -> None:
        """Ask the database again when it is needed next."""
        self._by_id.pop(known.conversation, None)
        self._by_key.pop(known.key, None)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def opened(self, known: Known, rows: Sequence[Row]) -> Sequence[Row]:
        """Rows as they were given to the store, plain; those whose bytes are others are marked. The very same rows,
        where they are plain and sound. Cost: a checksum each.
        """
        unsound = hash_chain.unsound(known.checksum_seed, rows)
        if not unsound and not any(map(_encoding, rows)):
            return rows
        return [
            _damaged(row, "its checksum does not match, so these are not the bytes that were written")
            if place in unsound
            else row
            if row.encoding == PLAIN
            else self._opened_row(known, row)
            for place, row in enumerate(rows)
        ]

    def unchecked(self, known: Known, row: Row) -> Row:
        """One row, plain, whatever its checksum says: for those who have another proof of what was written. Marked
        where it cannot be opened.
        """
        return row if row.encoding == PLAIN and type(row.body) is bytes else self._opened_row(known, row)

    def closed(self, known: Known, rows: Sequence[Row]) -> Sequence[Row]:
        """Plain rows as this store stores them."""
        if known.data_key is None and self.sealing.compression == "none":
            return rows
        return [self._closed_row(known, row) for row in rows]

    def _opened_row(self, known: Known, row: Row) -> Row:
        try:
            body = row.body
            if row.encoding & SEALED:
                if known.data_key is None:
                    raise Unopenable("it is sealed, and its conversation has no key")
                body = known.data_key.open(b"event %d" % row.id, body)
            body = unpacked(row.encoding & ~SEALED, body)
        except Unopenable as error:
            return _damaged(row, str(error))
        except TypeError:  # only where the checksum was not asked
            return _damaged(row, "a column is of another type")
        return row._replace(encoding=PLAIN, body=body)

    def _closed_row(self, known: Known, row: Row) -> Row:
        encoding, body = packed(self.sealing.compression, row.body)
        if known.data_key is not None:
            encoding, body = encoding | SEALED, known.data_key.seal(b"event %d" % row.id, body)
        if encoding == PLAIN:
            return row
        stored = row._replace(encoding=encoding, body=body)
        return stored._replace(checksum=hash_chain.checksum(known.checksum_seed, *stored[:-1]))

    # -- records ------------------------------------------------------------------------------------------------------

    def opened_record(self, known: Known, projection: str, record: Record) -> Record | None:
        """The record as it was put, without checksum; None where its bytes are others."""
        try:
            sound = record.checksum == hash_chain.record_checksum(known.checksum_seed, projection, *record[:-1])
        except TypeError:  # a column of another type
            sound = False
        if not sound:
            return None
        body = record.body
        if record.encoding != PLAIN:
            if known.data_key is None:
                return None
            try:
                body = known.data_key.open(_place(projection, record), body)
            except Unopenable:
                return None
        return Record(record.version, record.code, record.base, body)

    def closed_record(self, known: Known, projection: str, record: Record) -> Record:
        if known.data_key is not None:
            sealed = known.data_key.seal(_place(projection, record), record.body)
            record = record._replace(encoding=SEALED, body=sealed)
        checksum = hash_chain.record_checksum(known.checksum_seed, projection, *record[:-1])
        return record._replace(checksum=checksum)


_encoding = attrgetter("encoding")


def _damaged(row: Row, problem: str) -> Row:
    return row._replace(encoding=DAMAGED, body=problem.encode())


def _place(projection: str, record: Record) -> bytes:
    return b"record %d of projection %b" % (record.version, projection.encode())
