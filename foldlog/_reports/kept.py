"""What reports keep beside conversations, so that they read only those that have changed since.

It is kept as records of a projection are: in the store, encrypted with the conversation. Whatever changes a history
after the fact deletes it, or gives the conversation another version; then it is made again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Self

from msgspec import convert, to_builtins
from msgspec.json import Decoder

from foldlog.eventstore import ConversationRow, EventStoreError, Record, Store, WriteTransaction

_AT_ONCE = 200
"""Conversations in one transaction."""
_FEW = 100
"""Conversations that are asked for one by one."""
_NEITHER = (0, None)
_decoder = cache(Decoder)


class KeptBeside:
    """The values that one report keeps, each for a conversation at its present version."""

    def __init__(self, store: Store, projection: str, code: int) -> None:
        """``code`` is the version of what makes the values: those of another one are made again."""
        self._store, self._projection, self._code = store, projection, code
        self._new: dict[str, tuple[ConversationRow, Any]] = {}
        self._held: dict[str, tuple[ConversationRow, Any]] = {}
        """Those that the store did not write."""

    def load(self, rows: Sequence[ConversationRow], kind: Any = Any, *, of_any_version: bool = False) -> dict[str, Any]:
        """Return the values of these conversations that are kept, and are those of the present version, by their ids.
        ``of_any_version``: also those that do not depend on what was appended since. ``kind`` is their type.

        Cost: the conversations from the first of these ids to the last; of a few, which may be anywhere, a statement
        for each.
        """
        ids = sorted((row.id for row in rows), key=_in_order)
        spans = zip(ids, ids, strict=True) if len(ids) <= _FEW else [(ids[0], ids[-1])]
        records: dict[str, tuple[int, Record | None]] = {}
        for first, last in spans:
            records |= self._store.records(self._projection, first, last)
        there = {
            row.id: value_of(record.body, kind)
            for row in rows
            if (record := records.get(row.id, _NEITHER)[1]) is not None
            and record.code == self._code
            and (of_any_version or record.version == row.version)
        }
        held = ((row, *value) for row in rows if (value := self._new.get(row.id) or self._held.get(row.id)))
        return there | {
            row.id: convert(value, kind, str_keys=True)
            for row, then, value in held
            if (then.generation, then.redactions) == (row.generation, row.redactions)
            and (of_any_version or then.version == row.version)
        }

    def below(self, start: str) -> Iterator[tuple[str, Any, bool]]:
        """Yield the ids that begin with ``start``, in any order, without those of erased conversations, each with the
        newest value that is kept, None where there is none, and whether it is that of the present version.

        Cost: these conversations, in one statement.
        """
        after = start[:-1] + chr(ord(start[-1]) + 1)
        for name, (version, record) in self._store.records(self._projection, start, after).items():
            if not name.startswith(start):
                continue
            if record is None or record.code != self._code:
                yield name, None, False
            else:
                yield name, value_of(record.body), record.version == version

    def keep(self, row: ConversationRow, value: Any) -> None:
        """Keep a value that was made of a conversation as it is in this row, some time before ``flush`` returns."""
        self._new[row.id] = row, to_builtins(value, str_keys=True)
        if len(self._new) >= _AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Write what was kept. A value whose conversation has changed is dropped: it is made again. Those that are not
        written stay in memory: the store only reads, its disk is full, or a conversation is still to be encrypted.
        """
        if not self._new or not self._store.database.recorder.writable:
            return
        new, self._new = self._new, {}
        self._held |= new
        tried = set[str]()

        def write(writing: WriteTransaction) -> None:
            found = writing.found
            tried.add(found.id)
            row, value = new[found.id]
            if (found.version, (found.head or b"").hex(), found.redactions) == (row.version, row.head, row.redactions):
                record = Record(row.version, self._code, None, json.dumps(value).encode())
                writing.put_records(self._projection, [record], replace_all=True)

        with suppress(EventStoreError):
            self._store.project_each(sorted(new, key=_in_order), write)
            for name in tried:
                if self._held.get(name) is new[name]:  # else another thread keeps a newer one
                    del self._held[name]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.flush()


def value_of(body: bytes, kind: Any = Any) -> Any:
    """Return the JSON value of a record, as a value of this type."""
    try:
        return _decoder(kind).decode(body)
    except ValueError:  # a text that is not Unicode, or NaN
        return convert(json.loads(body), kind, str_keys=True)


def _in_order(conversation: str) -> bytes:
    return conversation.encode("utf-8", "surrogatepass")
