"""Golden stores of PostgreSQL: the commands that made the tables, and the rows of each table.

``python -m tests.golden.postgres`` writes ``parts.json``, with which ``foldlog store verify``
compares the schema of a store.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from foldlog.eventstore import open_store
from foldlog.eventstore.recorders.postgres.checking import parts_of
from foldlog.eventstore.recorders.postgres.setup import in_schema
from foldlog.eventstore.recorders.statements import commands, migrations, statements
from tests.postgres.servers import new_primary

PARTS = Path(__file__).parents[2] / "eventstore/recorders/postgres/sql/parts.json"

_OPTIONS = {
    "{unique}": "UNIQUE",
    "{by_conversation}": "",
    "{partitions}": "1",
    "{lz4}": "",
    "{external}": "",
}


def dump(url: str, schema: str) -> dict[str, Any]:
    scripts = migrations("postgresql").values()
    with psycopg.connect(url, autocommit=True) as connection:
        return {
            "commands": [command for script in scripts for command in commands(script)],
            "rows": {
                table: _copy_from(connection, _in(schema, table))
                for table in _tables(connection, schema)
            },
        }


def load(url: str, schema: str, dumped: dict[str, Any]) -> None:
    """Make the tables as the version of the dump made them, and fill them."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        for command in dumped["commands"]:
            connection.execute(_rendered(command, schema))
        for table, rows in dumped["rows"].items():
            connection.execute(sql.SQL("DELETE FROM {}").format(_in(schema, table)))
            statement = sql.SQL("COPY {} FROM STDIN").format(_in(schema, table))
            with connection.cursor().copy(statement) as copy:
                copy.write(rows)


def shape(url: str, schema: str) -> list[str]:
    """Return the columns, indexes and functions of a store, without the name of its schema."""
    query = """
        SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable, column_default)
        FROM information_schema.columns WHERE table_schema = %(schema)s
        UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = %(schema)s
        UNION ALL SELECT pg_get_functiondef(p.oid) FROM pg_proc p
        WHERE pronamespace = %(schema)s::regnamespace"""
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(query, {"schema": schema}).fetchall()
    return sorted(row.replace(schema, "SCHEMA") for (row,) in rows)


def described_parts(url: str, schema: str) -> list[list[str]]:
    """Return the parts of the schema of a store, as ``parts.json`` has them."""
    named = {name: in_schema(schema, query) for name, query in statements("postgresql").items()}
    with psycopg.connect(url, autocommit=True) as connection:
        parts = parts_of(connection, named)
    return [[*part, described] for part, described in sorted(parts.items())]


def write(path: Path, golden: dict[str, Any]) -> None:
    path.write_bytes(gzip.compress(json.dumps(golden).encode(), mtime=0))


def read(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()))


def moved(rows: dict[str, str], before: str, after: str) -> dict[str, str]:
    """Return rows that name another folder of archived conversations."""
    state = rows["unfinished"].replace(before.encode().hex(), after.encode().hex())
    return {**rows, "unfinished": state}


def _copy_from(connection: psycopg.Connection[Any], table: sql.Composable) -> str:
    statement = sql.SQL("COPY {} TO STDOUT").format(table)
    with connection.cursor().copy(statement) as copy:
        return b"".join(map(bytes, copy)).decode()


def _tables(connection: psycopg.Connection[Any], schema: str) -> list[str]:
    query = "SELECT tablename::text FROM pg_tables WHERE schemaname = %s ORDER BY 1"
    return [table for (table,) in connection.execute(query, [schema]).fetchall()]


def _in(schema: str, table: str) -> sql.Identifier:
    return sql.Identifier(schema, table)


def _rendered(command: str, schema: str) -> bytes:
    for place, words in _OPTIONS.items():
        command = command.replace(place, words)
    command = command.replace("{schema_name}", f"'{schema}'")
    return command.replace("{schema}", f'"{schema}"').encode()


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = new_primary(folder / "server")
        try:
            open_store(server.url(schema="made")).close()
            parts = described_parts(server.url(), "made")
        finally:
            server.remove()
    PARTS.write_text(json.dumps(parts, indent=1) + "\n")


if __name__ == "__main__":
    main()
