"""What the operator of a store can write: every table, in SQLite and in PostgreSQL, with right
checksums and heads. The operator has neither the auditor's checkpoint nor the key that signed it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from foldlog.eventstore.log.row import (
    checksum_seed,
    link_of,
    record_checksum,
    seed,
    with_checksums,
)
from foldlog.eventstore.recorders.types import HEAD_BYTES, Row, as_text, utf8
from tests.stored_rows import with_fields

Stored = dict[str, Any]
"""A row of a table: the value of each column."""


class Operator:
    """Statements have ``?`` in place of parameters."""

    url: str

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: str, *values: Any) -> list[Any]:
        raise NotImplementedError

    def tables(self) -> list[str]:
        raise NotImplementedError

    @property
    def same(self) -> str:
        """Compares two values, of which both may be null."""
        raise NotImplementedError

    def as_body(self, row: Row) -> str:
        raise NotImplementedError

    def close(self) -> None:
        self._connection.close()

    # -- rows of any table

    def rows(self, table: str) -> list[Stored]:
        cursor = self._connection.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in cursor.description]
        found = sorted(cursor.fetchall(), key=lambda row: row[:2])
        return [dict(zip(names, row, strict=True)) for row in found]

    def _where(self, row: Stored) -> tuple[str, list[Any]]:
        return " AND ".join(f"{name} {self.same} ?" for name in row), [*row.values()]

    def update(self, table: str, row: Stored, **changed: Any) -> None:
        where, values = self._where(row)
        new = ", ".join(f"{name} = ?" for name in changed)
        self.execute(f"UPDATE {table} SET {new} WHERE {where}", *changed.values(), *values)

    def delete(self, table: str, row: Stored) -> None:
        where, values = self._where(row)
        self.execute(f"DELETE FROM {table} WHERE {where}", *values)

    def insert(self, table: str, row: Stored) -> None:
        marks = ", ".join("?" * len(row))
        self.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", *row.values())

    # -- conversations

    def conversation(self, name: str) -> Stored:
        return next(
            row
            for row in self.rows("conversations")
            if self.text(row["id"]) == name and row["visible"]
        )

    def text(self, value: Any) -> str:
        return value if isinstance(value, str) else as_text(bytes(value))

    def name_of(self, key: int) -> str:
        names = {row["key"]: self.text(row["id"]) for row in self.rows("conversations")}
        return names.get(abs(key), "")

    def events(self, key: int, first: int = 0) -> list[Row]:
        stored = self.execute(
            "SELECT id, meta, body FROM events WHERE conversation = ? AND id >= ? ORDER BY id",
            key,
            first,
        )
        return [
            Row(event_id, bytes(meta), utf8(body) if isinstance(body, str) else bytes(body))
            for event_id, meta, body in stored
        ]

    def count_redaction(self, key: int) -> None:
        count = "UPDATE conversations SET redactions = coalesce(redactions, 0) + 1 WHERE key = ?"
        self.execute(count, key)

    def put(self, key: int, rows: Sequence[Row]) -> None:
        """Replace the rows with the same ids, with right checksums and columns."""
        for row in with_checksums(checksum_seed(self.name_of(key)), rows):
            self.execute(
                f"UPDATE events SET kind = ?, shown = ?, structural = ?, meta = ?,"
                f" body = {self.as_body(row)} WHERE conversation = ? AND id = ?",
                *(self.kind(row), self.flag(row.shown), self.flag(row.structural)),
                *(row.meta, row.body, key, row.id),
            )

    def kind(self, row: Row) -> Any:
        raise NotImplementedError

    def flag(self, value: bool) -> Any:
        raise NotImplementedError

    def rewrite(self, key: int, row: Row) -> None:
        """Replace a row, and make the heads of this and all later events of the conversation and of
        its forks anew.
        """
        [state] = [stored for stored in self.rows("conversations") if stored["key"] == key]
        rows = [row if event.id == row.id else event for event in self.events(key)]
        self.relink(state, rows, row.id)

    def relink(self, state: Stored, rows: Sequence[Row], first: int) -> None:
        salt = bytes(state["salt"])
        before = [row for row in rows if row.id < first]
        if before:
            head = before[-1].head
        else:
            own_seed = state["seed"] and bytes(state["seed"])
            head = own_seed or seed(self.text(state["id"]), salt)
        linked = []
        for row in rows:
            if row.id >= first:
                head = link_of(head, salt, row)
                row = with_fields(row, proof=head + row.proof[HEAD_BYTES:])
                linked.append(row)
        self.put(state["key"], linked)
        for fork in self.rows("conversations"):
            if fork["parent"] == state["key"] and (fork["parent_version"] or 0) > first:
                own = self.events(fork["key"])
                if own:
                    self._relink_fork(fork, own, fork["parent_version"], [*before, *linked])

    def _relink_fork(
        self, fork: Stored, own: Sequence[Row], begins: int, past: Sequence[Row]
    ) -> None:
        head = next(row.head for row in past if row.id == begins - 1)
        linked = []
        for row in own:
            head = link_of(head, bytes(fork["salt"]), row)
            linked.append(with_fields(row, proof=head + row.proof[HEAD_BYTES:]))
        self.put(fork["key"], linked)

    def with_right_checksum(self, record: Stored) -> Stored:
        """Return a row of ``records`` with the checksum of its other columns."""
        seed_of_name = checksum_seed(self.name_of(record["conversation"]))
        checksum = record_checksum(
            seed_of_name,
            self.text(record["projection"]),
            record["version"],
            record["code"],
            bytes(record["body"]),
            record["encoding"],
        )
        return {**record, "checksum": self.checksum(checksum)}

    def checksum(self, value: int) -> int:
        return value


class SQLiteOperator(Operator):
    same = "IS"

    def __init__(self, path: Path) -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.text_factory = lambda text: text.decode("utf-8", "surrogatepass")
        super().__init__(connection)
        self.url = f"sqlite:///{path}"

    def execute(self, statement: str, *values: Any) -> list[Any]:
        return self._connection.execute(statement, values).fetchall()

    def tables(self) -> list[str]:
        found = self.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        return [name for (name,) in found if not name.startswith("sqlite_")]

    def as_body(self, row: Row) -> str:
        return "CAST(? AS TEXT)" if row.encoding == 0 else "?"

    def kind(self, row: Row) -> Any:
        return row.kind

    def flag(self, value: bool) -> Any:
        return int(value)


class PostgresOperator(Operator):
    same = "IS NOT DISTINCT FROM"

    def __init__(self, url: str, schema: str) -> None:
        super().__init__(psycopg.connect(url.partition("?")[0], autocommit=True))
        self.schema = schema
        self.url = url
        self._connection.execute(f"SET search_path = {schema}")

    def execute(self, statement: str, *values: Any) -> list[Any]:
        cursor = self._connection.execute(statement.replace("?", "%s"), values or None)
        return cursor.fetchall() if cursor.description else []

    def tables(self) -> list[str]:
        return self._tables_in(self.schema)

    def _tables_in(self, schema: str) -> list[str]:
        found = self.execute(
            "SELECT tablename::text FROM pg_tables WHERE schemaname = ? ORDER BY 1", schema
        )
        return [name for (name,) in found]

    def as_body(self, row: Row) -> str:
        return "?"

    def kind(self, row: Row) -> Any:
        return row.kind.encode()

    def flag(self, value: bool) -> Any:
        return value

    def checksum(self, value: int) -> int:
        return value - 2**32 if value >= 2**31 else value

    def save(self) -> None:
        self.execute(f"CREATE SCHEMA {self.schema}_saved")
        for table in self.tables():
            self.execute(f"CREATE TABLE {self.schema}_saved.{table} AS TABLE {self.schema}.{table}")

    def lacks_tables(self) -> bool:
        """Return whether a table is missing that was saved."""
        return not {*self._tables_in(f"{self.schema}_saved")}.issubset(self.tables())

    def restore(self) -> None:
        # One statement text is one transaction, and one round trip.
        self.execute(
            ";".join(
                f"DELETE FROM {table};"
                f" INSERT INTO {table} SELECT * FROM {self.schema}_saved.{table}"
                for table in self.tables()
            )
        )
