"""A cache of computed values, so that a report reads only the conversations that have changed.

A cached value is stored like a projection's record, encrypted with the key of its conversation.
Every change of a history deletes its cached values, or changes the version of its conversation. The
next report computes the missing values again.

The cache makes ``Histories.to_resume`` 12 to 53 times faster: for 1,000 conversations of 10 events,
19 ms of processor time instead of 226 ms; for 1,000 conversations of 200 events, 25 ms instead of
1,339 ms.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any, Self

from msgspec import convert, to_builtins
from msgspec.json import Decoder

from foldlog._base.json_types import JsonObject
from foldlog.eventstore import (
    ConversationErased,
    ConversationRow,
    CorruptEvent,
    KeyUnavailable,
    Store,
)
from foldlog.eventstore.log.finding import find_begun
from foldlog.eventstore.log.seal import RowCodec
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import Record, utf8

_TOGETHER = 200
"""The maximum number of conversations in one transaction."""
_FEW = 100
"""The maximum number of conversations that are read one by one. Above this number, all
conversations from the first id to the last are read as one range.
"""
_decoder = cache(Decoder)


class CachedValues:
    """The cached values of a report. A value belongs to a version of its conversation."""

    def __init__(self, store: Store, projection: str, code: int, *, at_once: bool = True) -> None:
        """Open the cached values of a report. ``code`` is the version number of the function that
        computes the values. Change ``code`` whenever the function changes. Values with another
        ``code`` are computed again.

        With ``at_once=False``, ``flush`` waits while others write. Use this for values that cannot
        be computed again.
        """
        self._store = store
        self._projection = projection
        self._code = code
        self._at_once = at_once
        self._held: dict[str, tuple[ConversationRow, Any]] = {}
        """The values that are not stored yet."""
        self._new = set[str]()
        """The conversations whose values ``flush`` must write."""

    def load(
        self, rows: Sequence[ConversationRow], kind: Any = Any, *, of_any_version: bool = False
    ) -> JsonObject:
        """Return the up-to-date cached values of conversations, by id.

        With ``of_any_version``, also return values of earlier versions.

        Cost: for more than 100 conversations, the values of all conversations between the first and
        the last id are read.
        """
        records = self._records([row.id for row in rows])
        values = dict[str, Any]()
        for row in rows:
            _, record = records.get(row.id, (0, None))
            if record is None or record.code != self._code:
                continue
            if of_any_version or record.version == row.version:
                with suppress(ValueError):  # as if it were damaged
                    values[row.id] = value_of(record.body, kind)
        # Values in memory are newer than stored values.
        for row in rows:
            row_then, value = self._held.get(row.id, (None, None))
            if row_then is None:
                continue
            is_unchanged = (row_then.generation, row_then.redactions) == (
                row.generation,
                row.redactions,
            )
            if is_unchanged and (of_any_version or row_then.version == row.version):
                values[row.id] = convert(value, kind, str_keys=True)
        return values

    def _records(self, conversations: Sequence[str]) -> dict[str, tuple[int, Record | None]]:
        ids = sorted(conversations, key=utf8)
        spans = zip(ids, ids, strict=True) if len(ids) <= _FEW else [(ids[0], ids[-1])]
        records: dict[str, tuple[int, Record | None]] = {}
        for first, last in spans:
            records |= cached_records(self._store, self._projection, first, last)
        return records

    def below(self, start: str) -> Iterator[tuple[str, Any, bool]]:
        """Yield ``(id, value, is_current)`` for each id that begins with ``start``, in any order,
        without erased conversations.

        ``value`` is the newest cached value, or None. ``is_current`` is true if the value is up to
        date. Cost: one statement reads all conversations whose ids begin with ``start``.
        """
        end = start[:-1] + chr(ord(start[-1]) + 1)
        for name, (version, record) in cached_records(
            self._store, self._projection, start, end
        ).items():
            if not name.startswith(start):
                continue
            value = None
            is_current = False
            if record is not None and record.code == self._code:
                with suppress(ValueError):  # as if it were damaged
                    value = value_of(record.body)
                    is_current = record.version == version
            yield name, value, is_current

    def keep(self, row: ConversationRow, value: Any) -> None:
        """Cache a value of a conversation. ``flush`` writes the value."""
        self._held[row.id] = row, to_builtins(value, str_keys=True)
        self._new.add(row.id)
        if len(self._new) % _TOGETHER == 0:
            self.flush()

    def flush(self) -> None:
        """Write the new values in small transactions.

        If a conversation has changed, its value is dropped. Values stay in memory if another
        process writes, if the store is read-only, or if the disk is full. The value of a
        conversation that is not yet encrypted also stays in memory.
        """
        while self._wrote(
            {name: value for name in [*self._new][:_TOGETHER] if (value := self._held.get(name))}
        ):
            pass

    def _wrote(self, new: dict[str, tuple[ConversationRow, Any]]) -> bool:
        """Write some values, in one transaction for each of several joined stores. Return False if
        ``new`` is empty, or if the store cannot be written now.
        """
        database = self._store.database
        decided = set[str]()
        """The conversations whose values were written, or belong to an earlier version."""

        def write(names: Sequence[str], transaction: Transaction) -> None:
            for name in names:
                with suppress(ConversationErased, CorruptEvent, KeyUnavailable):
                    conversation = find_begun(database, transaction, name)
                    if conversation is None:
                        continue
                    if conversation.sealed_key is None and database.settings.keys is not None:
                        continue  # the conversation is still to be encrypted
                    decided.add(name)
                    row, value = new[name]
                    present = (
                        conversation.version,
                        (conversation.head or b"").hex(),
                        conversation.redactions,
                    )
                    if present == (row.version, row.head, row.redactions):
                        record = Record(row.version, self._code, json.dumps(value).encode())
                        writing = WriteTransaction(transaction, conversation, database)
                        writing.put_records(self._projection, [record], replace_all=True)

        parts = database.recorder.by_store(sorted(new, key=utf8), str)
        if not new or not all(
            database.recorder.offer(partial(write, names), at_once=self._at_once) for names in parts
        ):
            return False
        for name, value in new.items():
            if self._held.get(name) is value:  # otherwise another thread has cached a newer value
                self._new.discard(name)
                if name in decided:
                    self._held.pop(name, None)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.flush()


def cached_records(
    store: Store, projection: str, first: str, last: str
) -> dict[str, tuple[int, Record | None]]:
    """Return the version and the newest record of each conversation from ``first`` to ``last``.
    Erased conversations are left out.

    A record is None if it is damaged, or if its key is missing. The caller computes such a record
    again. Cost: the rows of all conversations from ``first`` to ``last`` are read.
    """
    database = store.database

    def read(reader: Reader) -> dict[str, tuple[int, Record | None]]:
        records: dict[str, tuple[int, Record | None]] = {}
        for name, is_encrypted, version, record in reader.records_of(projection, first, last):
            codec = RowCodec(name)
            if is_encrypted and record is not None:
                try:
                    conversation = database.find(reader, name)
                    if conversation is not None:
                        codec = database.codec_of(conversation)
                except (CorruptEvent, KeyUnavailable):
                    record = None
            records[name] = version, record and codec.decoded_record(projection, record)
        return records

    return database.recorder.query(read)


def value_of(body: bytes, kind: Any = Any) -> Any:
    """Return the value in a record. Raises ``ValueError`` if the body is no JSON of this kind."""
    try:
        return _decoder(kind).decode(body)
    except ValueError:  # a text that is not Unicode, or NaN
        return convert(json.loads(body), kind, str_keys=True)
