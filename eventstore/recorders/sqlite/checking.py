"""Find what is wrong in a SQLite database: its pages, its schema and its rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

from foldlog.eventstore.recorders.checking import (
    added_part,
    changed_part,
    contradictions,
    missing_parts,
    orphans,
)
from foldlog.eventstore.recorders.sqlite.reader import SQL
from foldlog.eventstore.recorders.statements import migrations

Parts = dict[tuple[str, str], str]
"""Maps the type and the name of each part of a schema to the statement that made it."""


def _parts_of(connection: sqlite3.Connection) -> Parts:
    return {
        (str(kind, "utf-8"), str(name, "utf-8")): str(sql or b"", "utf-8")
        for kind, name, sql in connection.execute(SQL["parts_of_schema"])
    }


def _made_parts(number: int) -> Parts:
    """Return the parts of a new store of schema ``number``."""
    with closing(sqlite3.connect(":memory:")) as made:
        made.text_factory = bytes
        for migration, script in migrations("sqlite").items():
            if migration <= number:
                made.executescript(script)
        return _parts_of(made)


def _changed_parts(reader: sqlite3.Connection, present: Parts) -> Iterator[str]:
    """Yield the parts of the schema that differ from the parts that foldlog makes. An index that
    leaves rows out passes SQLite's own check, and reads then fail or miss rows.
    """
    schema = reader.execute("PRAGMA user_version").fetchone()[0]
    made = _made_parts(schema)
    for (kind, name), sql in made.items():
        if present.get((kind, name), sql) != sql:
            yield changed_part(kind, name)
    for kind, name in present.keys() - made.keys():
        # A search index has triggers.
        if kind == "trigger" and present[kind, name] != SQL.get(f"make_{name}"):
            yield added_part(kind, name)


def findings(reader: sqlite3.Connection) -> Iterator[str]:
    """Yield the problems of the database: see ``Recorder.check``."""
    for (finding,) in reader.execute("PRAGMA integrity_check"):
        if finding != b"ok":
            yield str(finding, "utf-8", "replace")
    present = _parts_of(reader)
    yield from missing_parts("sqlite", present)
    yield from _changed_parts(reader, present)
    attachments = reader.execute(SQL["attachments_without_conversation"]).fetchone()[0]
    streams, chunks = reader.execute(SQL["streams_without_conversation"]).fetchone()
    rows = reader.execute(SQL["rows_without_conversation"])
    yield from orphans(rows, attachments, streams, chunks)
    yield from contradictions(
        reader.execute(SQL["lists_that_contradict"]).fetchone()[0],
        reader.execute(SQL["hidden"]),
        reader.execute(SQL["without_position"]),
        reader.execute(SQL["with_two_positions"]),
        reader.execute(SQL["followed_alone"]),
    )
    recorded, stored, is_a_number = reader.execute(SQL["positions_given_and_found"]).fetchone()
    if type(recorded) is not int or not is_a_number:
        yield "the number of recorded events cannot be read"
    elif stored < recorded:
        # Entries of the ledger have positions too.
        lost = f"{recorded - stored} of the {recorded} recorded events and ledger entries"
        yield f"{lost} are missing, and no tombstone of an erased conversation counts them"
