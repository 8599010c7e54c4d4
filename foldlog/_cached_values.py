"""What reports keep beside conversations, so that they read only those that have changed since.

It is kept as records of a projection are: in the store, encrypted with the conversation. Whatever
changes a history after the fact deletes it, or gives the conversation another version; then it is
made again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Self

from msgspec import convert, to_builtins
from msgspec.json import Decoder

from foldlog.eventstore import (
    ConversationErased,
    ConversationRow,
    CorruptEvent,
    KeyUnavailable,
    Store,
)
from foldlog.eventstore.inside import Record, WriteTransaction
from foldlog.eventstore.log.finding import find_begun
from foldlog.eventstore.log.seal import RowCodec
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import utf8

_TOGETHER = 200
"""Conversations in one transaction."""
_FEW = 100
"""Conversations that are asked for one by one."""
_decoder = cache(Decoder)


class KeptBeside:
    """The values that one report keeps, each for a conversation at its present version."""

    def __init__(self, store: Store, projection: str, code: int, *, at_once: bool = True) -> None:
        """``code`` is the version of what makes the values: those of another one are made again.
        Values that cannot be made again wait for other writers: ``at_once=False``.
        """
        self._store = store
        self._projection = projection
        self._code = code
        self._at_once = at_once
        self._held: dict[str, tuple[ConversationRow, Any]] = {}
        """Those that the store did not write, or not yet: ``_new``."""
        self._new = set[str]()

    def load(
        self, rows: Sequence[ConversationRow], kind: Any = Any, *, of_any_version: bool = False
    ) -> dict[str, Any]:
        """Return the values of these conversations that are kept, and are those of the present
        version, by their ids. ``of_any_version``: also those that do not depend on what was
        appended since. ``kind`` is their type.

        Cost: the conversations from the first of these ids to the last; of a few, which may be
        anywhere, a statement for each.
        """
        records = self._records([row.id for row in rows])
        there = {
            row.id: value_of(record.body, kind)
            for row in rows
            if (record := records.get(row.id, (0, None))[1]) is not None
            and record.code == self._code
            and (of_any_version or record.version == row.version)
        }
        held = ((row, *value) for row in rows if (value := self._held.get(row.id)))
        return there | {
            row.id: convert(value, kind, str_keys=True)
            for row, then, value in held
            if (then.generation, then.redactions) == (row.generation, row.redactions)
            and (of_any_version or then.version == row.version)
        }

    def _records(self, conversations: Sequence[str]) -> dict[str, tuple[int, Record | None]]:
        ids = sorted(conversations, key=utf8)
        spans = zip(ids, ids, strict=True) if len(ids) <= _FEW else [(ids[0], ids[-1])]
        records: dict[str, tuple[int, Record | None]] = {}
        for first, last in spans:
            records |= kept_records(self._store, self._projection, first, last)
        return records

    def below(self, start: str) -> Iterator[tuple[str, Any, bool]]:
        """Yield the ids that begin with ``start``, in any order, without those of erased
        conversations, each with the newest value that is kept, None where there is none, and
        whether it is that of the present version.

        Cost: these conversations, in one statement.
        """
        after = start[:-1] + chr(ord(start[-1]) + 1)
        for name, (version, record) in kept_records(
            self._store, self._projection, start, after
        ).items():
            if not name.startswith(start):
                continue
            if record is None or record.code != self._code:
                yield name, None, False
            else:
                yield name, value_of(record.body), record.version == version

    def keep(self, row: ConversationRow, value: Any) -> None:
        """Keep a value that was made of a conversation as it is in this row, some time before
        ``flush`` returns.
        """
        self._held[row.id] = row, to_builtins(value, str_keys=True)
        self._new.add(row.id)
        if len(self._new) % _TOGETHER == 0:
            self.flush()

    def flush(self) -> None:
        """Write what was kept, a few in a transaction. A value whose conversation has changed is
        dropped: it is made again. Those that are not written stay in memory: another process
        writes, the store only reads, its disk is full, or a conversation is still to be encrypted.
        """
        while self._wrote(
            {name: value for name in [*self._new][:_TOGETHER] if (value := self._held.get(name))}
        ):
            pass

    def _wrote(self, new: dict[str, tuple[ConversationRow, Any]]) -> bool:
        database = self._store.database
        tried = set[str]()

        def write(transaction: Transaction) -> None:
            for name in sorted(new, key=utf8):
                with suppress(ConversationErased, CorruptEvent, KeyUnavailable):
                    found = find_begun(database, transaction, name)
                    if found is None or (
                        found.sealed_key is None and database.settings.keys is not None
                    ):
                        continue
                    tried.add(name)
                    row, value = new[name]
                    now = found.version, (found.head or b"").hex(), found.redactions
                    if now == (row.version, row.head, row.redactions):
                        record = Record(row.version, self._code, json.dumps(value).encode())
                        writing = WriteTransaction(transaction, found, database)
                        writing.put_records(self._projection, [record], replace_all=True)
                        writing.end()

        if not new or not database.recorder.offer(write, at_once=self._at_once):
            return False
        for name, value in new.items():
            if self._held.get(name) is value:  # else another thread keeps a newer one
                self._new.discard(name)
                if name in tried:
                    self._held.pop(name, None)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.flush()


def kept_records(
    store: Store, projection: str, first: str, last: str
) -> dict[str, tuple[int, Record | None]]:
    """Return the conversations with an id from ``first`` to ``last`` that are not erased, by their
    ids: the version, and the newest record that a projection keeps beside it. One that cannot be
    read, because it is damaged or its key is not given, is left out: it is made again. Cost: these
    conversations.
    """
    database = store.database

    def read(reader: Reader) -> dict[str, tuple[int, Record | None]]:
        kept: dict[str, tuple[int, Record | None]] = {}
        for name, is_encrypted, version, record in reader.records_of(projection, first, last):
            codec = RowCodec(name)
            if is_encrypted and record is not None:
                try:
                    found = database.find(reader, name)
                    codec = codec if found is None else database.codec_of(found)
                except (CorruptEvent, KeyUnavailable):
                    record = None
            kept[name] = version, record and codec.decoded_record(projection, record)
        return kept

    return database.recorder.query(read)


def value_of(body: bytes, kind: Any = Any) -> Any:
    """Return the JSON value of a record, as a value of this type."""
    try:
        return _decoder(kind).decode(body)
    except ValueError:  # a text that is not Unicode, or NaN
        return convert(json.loads(body), kind, str_keys=True)
