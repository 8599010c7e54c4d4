"""Find what is wrong in the database of a PostgreSQL store: its schema, rows and indexes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import psycopg

from foldlog.eventstore.recorders.checking import (
    added_part,
    changed_part,
    contradictions,
    missing_parts,
    orphans,
)
from foldlog.eventstore.recorders.statements import (
    migrations,
    read_sql,
    statements as sql_statements,
)

Parts = dict[tuple[str, str], str]
"""Maps the kind and the name of each part of a schema to its description."""
_PATH: Final = '{"search_path=pg_catalog, pg_temp"}'
"""The settings of foldlog's functions."""
_QUOTED_PATH: Final = r'{"search_path=\"pg_catalog\", \"pg_temp\""}'


def parts_of(connection: psycopg.Connection[Any], statements: Mapping[str, bytes]) -> Parts:
    """Return the parts of the schema of a store. The description of a function has the name of the
    schema, and is the same for every schema.
    """
    [(schema,)] = connection.execute(statements["quoted_schema"]).fetchall()
    with connection.transaction():
        # A role may have settings that change how the server writes names and bytes, and how it
        # stores the settings of a function.
        connection.execute(
            "SELECT set_config('quote_all_identifiers', 'off', true),"
            " set_config('bytea_output', 'hex', true),"
            " set_config('standard_conforming_strings', 'on', true)"
        )
        described = connection.execute(statements["described_parts"]).fetchall()
    return {
        (kind, name): text.replace(f"{schema}.", "").replace(_QUOTED_PATH, _PATH)
        for kind, name, text in described
    }


def _made_parts() -> Parts:
    """Return the parts of a new store."""
    listed = msgspec.json.decode(read_sql("postgresql", "parts.json"), type=list[list[str]])
    return {(kind, name): described for kind, name, described in listed}


def _parts_of_search_index() -> Parts:
    """Return the function and the triggers of a search index, which a store may have."""
    index = {
        name: sql for name, sql in sql_statements("postgresql").items() if name.startswith("make_")
    }
    body = index["make_search_forgetting"].split("$search_forget$")[1].replace("{schema}.", "")
    options = f"plpgsql v t {_PATH}"
    triggers = (re.search(r"TRIGGER (\w+)\s.* ON {schema}\.(\w+)", sql) for sql in index.values())
    return {("function", "search_forget"): f"{options} {body}"} | {
        ("trigger", f"{found[1]} on {found[2]}"): "" for found in triggers if found is not None
    }


def _changed_parts(present: Parts) -> Iterator[str]:
    """Yield the parts of the schema that differ from the parts that foldlog makes."""
    made = _made_parts() | _parts_of_search_index()
    for (kind, name), described in sorted(present.items()):
        if kind in ("table", "index", "function"):
            # Tables, indexes and functions that somebody has added do no harm.
            if made.get((kind, name), described) != described:
                yield changed_part(kind, name)
        elif (kind, name) not in made:
            yield added_part(kind, name)


def _schema_number(connection: psycopg.Connection[Any], statements: Mapping[str, bytes]) -> int:
    # A child table of the facts, which somebody added, has a second row.
    numbers = connection.execute(statements["schema_number"]).fetchall()
    return int(min(numbers)[0])


def unchecked(
    connection: psycopg.Connection[Any], statements: Mapping[str, bytes]
) -> Iterator[str]:
    """Yield what ``findings`` does not check. A newer version of foldlog, whose store this one can
    use, may have made its parts in another way. A role may lack the right to check indexes.
    """
    number = _schema_number(connection, statements)
    newest = max(migrations("postgresql"))
    if number > newest:
        yield (
            f"its tables, functions and triggers were not compared: the store says that it has"
            f" schema {number}, and this version of foldlog knows schemas up to {newest}; check it"
            " with the version that made this schema"
        )
    if _may_check_indexes(connection) is False:
        yield (
            "its indexes were not checked: this role may not call the function bt_index_check of"
            " the extension amcheck; grant it EXECUTE on this function"
        )


def _may_check_indexes(connection: psycopg.Connection[Any]) -> bool | None:
    """Return whether this role may check indexes, or None if the database has no ``amcheck``."""
    [(answer,)] = connection.execute(
        "SELECT has_function_privilege(to_regprocedure('bt_index_check(regclass, boolean)'),"
        " 'EXECUTE')"
    ).fetchall()
    return None if answer is None else bool(answer)


def findings(connection: psycopg.Connection[Any], statements: Mapping[str, bytes]) -> Iterator[str]:
    """Yield the problems of the store: see ``Recorder.check``. Indexes are checked only if the
    database has the extension ``amcheck``, and this role may use it.
    """
    [(schemas,)] = connection.execute(
        "SELECT pg_catalog.current_schemas(true)::pg_catalog.text[]"
    ).fetchall()
    if schemas[0] != "pg_catalog":
        yield (
            f"the setting search_path puts the schema {schemas[0]} before pg_catalog, so the"
            " functions of somebody else may answer; set search_path back for the role and the"
            " database"
        )
    yield from missing_parts(
        "postgresql", set(connection.execute(statements["parts_of_schema"]).fetchall())
    )
    if _schema_number(connection, statements) <= max(migrations("postgresql")):
        yield from _changed_parts(parts_of(connection, statements))
    rows = connection.execute(statements["rows_without_conversation"]).fetchall()
    [(attachments,)] = connection.execute(statements["attachments_without_conversation"]).fetchall()
    [(streams, chunks)] = connection.execute(statements["streams_without_conversation"]).fetchall()
    yield from orphans(rows, attachments, streams, chunks)
    [(contradicting,)] = connection.execute(statements["lists_that_contradict"]).fetchall()
    hidden = connection.execute(statements["hidden"]).fetchall()
    without_position = connection.execute(statements["without_position"]).fetchall()
    with_two_positions = connection.execute(statements["with_two_positions"]).fetchall()
    followed_alone = connection.execute(statements["followed_alone"]).fetchall()
    yield from contradictions(
        contradicting, hidden, without_position, with_two_positions, followed_alone
    )
    if not _may_check_indexes(connection):
        return
    for (index,) in connection.execute(statements["b_trees"]).fetchall():
        try:
            connection.execute("SELECT bt_index_check(%s::regclass, true)", (index,))
        except psycopg.DatabaseError as error:
            has_answered = not isinstance(error, psycopg.OperationalError)
            if not has_answered and not isinstance(error, psycopg.errors.IoError):
                raise  # the connection broke, or another session has locked the index
            yield f"index {index.rpartition('.')[2]}: {' '.join(str(error).split())}"
