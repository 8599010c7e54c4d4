"""Schemas for empty stores. Making a schema costs the server more than most tests do, so used
schemas are emptied.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

import psycopg

from foldlog.eventstore.recorders.statements import migrations
from foldlog.eventstore.recorders.types import new_store_uuid
from tests.waiting import until

_TABLES = set(
    re.findall(r"CREATE TABLE \{schema\}\.(\w+)", "".join(migrations("postgresql").values()))
)


class EmptyStores:
    """The names of schemas of one database. ``used`` are those whose tests have ended. A server that
    somebody else runs has schemas of earlier runs too, so each run has a ``prefix``.
    """

    def __init__(
        self, connection: psycopg.Connection[Any], stores: int = 1, *, prefix: str = "store"
    ) -> None:
        self.used: list[str] = []
        self._connection = connection
        self._stores = stores
        self._prefix = prefix
        self._numbers = itertools.count()

    def until_quiet(self) -> None:
        """Wait until no earlier test has a transaction on the server. A session whose client was
        killed may still commit, and hold followers and erasures back, for a moment.
        """
        query = """SELECT count(*) FROM pg_stat_activity WHERE application_name = 'foldlog'
            AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL)"""
        until(lambda: self._connection.execute(query).fetchone() == (0,))

    def new(self) -> str:
        """Return a name that no schema has."""
        return f"{self._prefix}_{next(self._numbers)}"

    def drop(self) -> None:
        """Drop all schemas of this run."""
        query = "SELECT nspname::text FROM pg_namespace WHERE starts_with(nspname, %s)"
        for (schema,) in self._connection.execute(query, [f"{self._prefix}_"]).fetchall():
            self._connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())

    def take(self) -> str:
        """Return the name of a schema that has an empty store, or none yet."""
        while self.used:
            schema = self.used.pop()
            if all(map(self._is_emptied, self._schemas(schema))):
                return schema
        return self.new()

    def _schemas(self, schema: str) -> list[str]:
        return (
            [f"{schema}_{number:02d}" for number in range(self._stores)]
            if self._stores > 1
            else [schema]
        )

    def _is_emptied(self, schema: str) -> bool:
        """Empty a store that nobody has in use, and that has no other tables and was never
        large.
        """
        query = """SELECT tablename::text, pg_relation_size(format('%%I.%%I', schemaname, tablename)::regclass)
            FROM pg_tables WHERE schemaname = %s"""
        sizes: dict[str, int] = dict(self._connection.execute(query, [schema]).fetchall())
        if {re.sub(r"_\d+$", "", table) for table in sizes} != _TABLES or max(
            sizes.values()
        ) > 1 << 20:
            return False
        emptied = [
            f"DELETE FROM {schema}.{table}" for table in sorted(_TABLES - {"store", "epoch"})
        ]
        others = (
            f"DELETE FROM {schema}.store WHERE name NOT IN ('uuid', 'part', 'schema',"
            " 'readable_by', 'made_by')"
        )
        identity = f"UPDATE {schema}.store SET value = '{new_store_uuid()}' WHERE name = 'uuid'"
        try:
            self._connection.execute(
                "; ".join(["SET lock_timeout = '1s'", *emptied, others, identity]).encode()
            )
        except psycopg.errors.LockNotAvailable:
            return False
        return True
