"""The statements of a database, and what every database answers and writes by statements of the same name.

SQL is in files beside the code. They are read by their paths: to import ``importlib.resources`` takes longer than to
read them, in each process.
"""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, Final

from foldlog.eventstore.codec_json import Attachment, Body, attachments_of
from foldlog.eventstore.recorders import changes
from foldlog.eventstore.recorders.base import Only
from foldlog.eventstore.recorders.errors import DatabaseError, IntegrityError
from foldlog.eventstore.recorders.types import (
    Ancestor,
    Conversation,
    Erasure,
    ListedConversation,
    PlacedRow,
    RecalledKey,
    Record,
    Row,
    Unfinished,
    as_conversation,
    as_record,
    as_rows,
    as_text,
)

_SQL = os.path.join(os.path.dirname(__file__), "sql")

_BLOCK = re.compile(r"^-- (name|part): (\w+)\n(.*?)(?=^-- (?:name|part): |\Z)", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"^ *--(?! (?:name|part): ).*\n", re.MULTILINE)

_WITH_BYTES = 16
"""The bit that the encoding of a row has where bytes stand beside its body; see the row codec."""
_encoding = itemgetter(6)
_without_bytes: Final = frozenset(range(_WITH_BYTES, 2 * _WITH_BYTES)).isdisjoint
_POSITION_MAX: Final = 2**63 - 1

Columns = tuple[Any, ...]
"""One row of an answer. Ids, names and texts are UTF-8 bytes."""


def statements(dialect: str) -> Mapping[str, str]:
    """Return the named blocks of ``sql/<dialect>/queries.sql``, each part inserted at its name in braces."""
    text = _COMMENT.sub("", _text(dialect, "queries.sql"))  # one at the end of a part would hide what follows its place
    blocks = [(what, name, sql.strip()) for what, name, sql in _BLOCK.findall(text)]
    parts = {f"{{{name}}}": sql for what, name, sql in blocks if what == "part"}
    return {name: _with(parts, sql) for what, name, sql in blocks if what == "name"}


def _with(parts: Mapping[str, str], sql: str) -> str:
    for place, part in parts.items():
        sql = sql.replace(place, part)
    return sql


@cache
def migrations(dialect: str) -> Mapping[int, str]:
    """Return the scripts that change a database from schema n-1 to schema n, by n, ascending."""
    names = sorted(os.listdir(os.path.join(_SQL, dialect)))
    return {int(name[:4]): _text(dialect, name) for name in names if name[:4].isdigit()}


def _text(dialect: str, name: str) -> str:
    with open(os.path.join(_SQL, dialect, name), encoding="utf-8") as file:
        return file.read()


class StatementReader(ABC):
    """The questions of a transaction whose statements every database has. See ``base.Reader``."""

    @abstractmethod
    def _ask(self, statement: str, *parameters: Any) -> list[Columns]:
        """Ask by the name of a statement. Texts become UTF-8 bytes."""

    @abstractmethod
    def _numbers(self, numbers: Sequence[int]) -> Any:
        """Return whole numbers as one parameter."""

    def era(self, cache: object) -> int | None:
        return None  # other writers may commit at any time

    def value(self, name: str) -> str:
        """Return a fact about the store."""
        kind, _, application = name.partition(" ")
        if kind == "tracking":
            [(newest,)] = self._ask("max_tracking_id", application)
            return "" if newest is None else str(newest)
        if name == "trackings":
            return json.dumps([(as_text(follower), newest) for follower, newest in self._ask("trackings")])
        if name == "key_ids":
            # A damaged one names a key too: that none is in use would let plain text be written.
            return " ".join(as_text(key_id) or "(damaged)" for (key_id,) in self._ask("key_ids"))
        found = self._ask("store_value", name)
        return as_text(found[0][0]) if found else ""

    def conversation(self, name: str | int, expected: Conversation | None = None) -> Conversation | None:
        answer = self._ask("conversation_of" if isinstance(name, int) else "conversation", name)
        found = self._found(answer[0]) if answer else None
        if found is None or found.parent is None:
            return found
        lineage = tuple(
            Ancestor(key, stop, as_text(its_name), encrypted == 1, parent)
            for key, stop, its_name, encrypted, parent in self._ask("lineage", found.parent, found.parent_version)
        )
        return found._replace(parent_id=lineage[0].id if lineage else "", lineage=lineage)

    def conversations(self, start: str, limit: int, *, forks_of: int | None = None) -> Sequence[Conversation]:
        if forks_of is None:
            return list(map(self._found, self._ask("conversations", start, limit)))
        return list(map(self._found, self._ask("forks", forks_of, start, limit)))

    def unfinished(self, key: int | None = None) -> Sequence[Unfinished]:
        return [Unfinished(each, *map(as_text, texts)) for each, *texts in self._ask("unfinished", key)]

    def rows(
        self, key: int, start: int, stop: int, limit: int, only: Only = "all", *, kind: str | None = None
    ) -> Sequence[Row]:
        statement = "rows" if only == "all" else "structural_rows"
        if kind is not None:
            statement = f"rows_of_{kind}"  # such as rows_of_document_changes
        return self._whole(as_rows(self._ask(statement, key, start, stop, limit)), key)

    def placed_rows(self, after_position: int, limit: int) -> Sequence[PlacedRow]:
        """Return rows with their positions. Positions of imported rows are computed from that of the publication."""
        placed: list[PlacedRow] = []
        while len(placed) < limit:
            block = self._ask("publications", after_position)
            if not block:
                return placed + self._live_rows(after_position, _POSITION_MAX, limit - len(placed))
            [(first, key, first_id, size, conversation)] = block
            if after_position + 1 < first:
                placed += self._live_rows(after_position, first, limit - len(placed))
                after_position = first - 1
                if len(placed) == limit:
                    break
            start = first_id + after_position + 1 - first
            rows = self.rows(key, start, first_id + size, limit - len(placed))
            placed += [PlacedRow(first + row.id - first_id, as_text(conversation), row) for row in rows]
            after_position = first + size - 1
        return placed

    def records(
        self, key: int, projection: str | None, version: int, limit: int, *, backwards: bool = False
    ) -> Sequence[Record]:
        if projection is None:
            return list(map(as_record, self._ask("newest_records", key, limit)))
        statement = "records_back" if backwards else "records"
        return list(map(as_record, self._ask(statement, projection, key, version, limit)))

    def records_of(self, projection: str, first: str, last: str) -> Sequence[tuple[str, bool, Record]]:
        found = self._ask("records_of", projection, first, last)
        return [(as_text(name), encrypted == 1, as_record(row)) for name, encrypted, *row in found]

    def recalled(self, key: int, start: str, limit: int, *, exactly: bool = False) -> Sequence[tuple[str, RecalledKey]]:
        found = self._ask("recall", key, start) if exactly else self._ask("recalled", key, start, limit)
        return [(as_text(name), RecalledKey(*entry)) for name, *entry in found]

    def id_from(self, start: str) -> str | None:
        found = self._ask("id_from", start)
        return as_text(found[0][0]) if found else None

    def touched(self, after_position: int, until_position: int, least: int) -> Sequence[tuple[int, int]]:
        if after_position <= 0:
            return [(key, version) for key, version in self._ask("all_visible")]
        return [(key, version) for key, version in self._ask("touched", after_position, until_position, least)]

    def listed(
        self, digests: Sequence[bytes], before: tuple[int, int] | None, limit: int
    ) -> Sequence[ListedConversation]:
        found = self._ask_listed(digests, *(before or (_POSITION_MAX, _POSITION_MAX)), limit)
        return [
            ListedConversation(
                key, as_text(name), created_at, encrypted == 1, at, version,
                None if attributes[0] is None else as_record(attributes),
            )
            for key, name, created_at, encrypted, at, version, *attributes in found
        ]  # fmt: skip

    @abstractmethod
    def _ask_listed(self, digests: Sequence[bytes], at: int, key: int, limit: int) -> list[Columns]:
        """Ask for the conversations that have these digests."""

    def _found(self, columns: Columns) -> Conversation:
        """Return the conversation in the columns of an answer. A fork without events of its own ends at its border."""
        try:
            found = as_conversation(columns)
            if found.parent is None or found.version:
                return found
            border = self.rows(found.parent, found.begins - 1, found.begins, 1)
        except (AttributeError, TypeError) as error:  # a column of another type
            raise DatabaseError(
                f"the row of conversation number {columns[0]} is damaged; run 'foldlog verify', then 'foldlog salvage'"
            ) from error
        return found.grown(border[0]) if border else found

    def _live_rows(self, after_position: int, before: int, limit: int) -> list[PlacedRow]:
        """Return the rows that were not imported, between two positions."""
        found = self._ask("live_rows", after_position + 1, before, limit)
        rows = self._whole_of(as_rows([columns[:12] for columns in found]), [columns[14] for columns in found])
        return [
            PlacedRow(columns[12], as_text(columns[13]), row, columns[14] <= 0)
            for columns, row in zip(found, rows, strict=True)
        ]

    # -- bytes beside the bodies of rows ------------------------------------------------------------------------------

    def _whole(self, rows: Sequence[Row], key: int, intervals: Sequence[tuple[int, ...]] = ()) -> Sequence[Row]:
        """Return rows of a conversation with their attachments. An interval may name another: see ``flagged_rows``."""
        if _without_bytes(map(_encoding, rows)):
            return rows
        others = [(first, last, its_key[0]) for first, last, *its_key in intervals if its_key]
        keys = [next((k for first, last, k in others if first <= row.id <= last), key) for row in rows]
        return self._whole_of(rows, keys)

    def _whole_of(self, rows: Sequence[Row], keys: Sequence[int]) -> Sequence[Row]:
        """Return rows with their attachments. ``keys`` are those that they are stored under.

        A missing attachment is left out: the row codec finds that. Each one is read once, and rows share it.
        """
        if _without_bytes(map(_encoding, rows)):
            return rows
        wanted: dict[int, list[int]] = {}
        for key, row in zip(keys, rows, strict=True):
            if _has_attachments(row):
                wanted.setdefault(key, []).append(row.id)
        read: dict[tuple[int, bytes, int], list[Columns]] = {}
        of_row: dict[tuple[int, int], list[Attachment]] = {}
        for key, ids in wanted.items():
            for event_id, name, encoding in self._ask("attached", key, self._numbers(ids)):
                place = (key, name, encoding)
                if place not in read:
                    read[place] = self._ask("attachment", *place)
                for (body,) in read[place]:
                    of_row.setdefault((key, event_id), []).append(Attachment(name, encoding, body))
        return [
            row._replace(body=Body.of(row.body, of_row.get((key, row.id), ()))) if _has_attachments(row) else row
            for key, row in zip(keys, rows, strict=True)
        ]


def _has_attachments(row: Row) -> bool:
    return not _without_bytes((row.encoding,)) and isinstance(row.body, bytes)


class StatementTransaction(StatementReader):
    """The writes of a transaction whose statements every database has. See ``base.Transaction``."""

    @abstractmethod
    def _write(self, statement: str, *parameters: Any) -> object:
        """Write by the name of a statement. Texts become UTF-8 bytes."""

    @abstractmethod
    def _delete(self, statement: str, key: int, limit: int) -> bool:
        """Delete at most ``limit`` rows. Return whether all are gone."""

    @abstractmethod
    def _place_first(self, key: int, size: int) -> int:
        """Give the first events of a conversation the next positions. Return the first of these."""

    def change(self, key: int, change: changes.Change) -> None:
        match change:
            case changes.PlacedPast(events):
                self._place_first(key, events)
            case changes.NewForm(rows):
                for row in rows:
                    self._write("replace_row", row.encoding, row.checksum, row.body, row.proof, key, row.id)
                self._write("detach", key, self._numbers([row.id for row in rows]))
                self._attach(key, rows)
                self._write("delete_unattached", key)
            case changes.RememberedKey(idempotency_key, recalled, again=True):
                self._write("prove", recalled.proof, key, idempotency_key)
            case changes.RememberedKey(idempotency_key, (first_id, events, proof, _)):
                self._write("remember", key, idempotency_key, first_id, events, proof)
            case changes.NewRecords(projection, records, replace_all):
                if replace_all:
                    self._write("delete_records", projection, key)
                for record in records:
                    self._write("put_record", projection, key, *record[:6])
            case Erasure(erased_at, reason, events, head):
                self._write("erase_conversation", erased_at, reason, events, head, key)
        if type(change) in changes.STATEMENTS:
            self._write(changes.STATEMENTS[type(change)], *change, key)

    def set_value(self, name: str, value: str) -> None:
        kind, _, application = name.partition(" ")
        if kind != "tracking":
            self._write("set_value", name, value)
        elif not value:
            self._write("forget_tracking", application)
        else:
            newest = self.value(name)
            if newest and int(newest) >= int(value):
                raise IntegrityError(f"{application!r} is at notification {newest} already, {value} comes too late")
            self._insert_tracking(application, int(value))

    def _insert_tracking(self, application: str, notification_id: int) -> None:
        self._write("insert_tracking", application, notification_id)

    def _attach(self, key: int, rows: Sequence[Row]) -> None:
        """Keep the attachments of these rows; those that are stored already are not stored again."""
        for row in rows:
            for name, encoding, body in attachments_of(row.body):
                self._write("keep_attachment", key, name, encoding, body)
                self._write("attach", key, row.id, name, encoding)

    def _delete_all(self, key: int, limit: int) -> bool:
        """Delete the rows of a conversation and what is beside them, at most ``limit`` at a time."""
        if not (self._delete("delete_rows", key, limit) and self._delete("delete_attachments", key, limit)):
            return False
        for statement in ("detach_all", "forget_keys", "forget_records", "finish"):
            self._write(statement, key)
        return True

    def _delete_copies(self, key: int, limit: int) -> bool:
        """Delete the rows of its parent that a fork has under its own key."""
        if not self._delete("delete_copies", key, limit):
            return False
        self._write("detach_copies", key)
        self._write("delete_unattached", key)
        return True
