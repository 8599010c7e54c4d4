"""Load SQL from files: statements and numbered migrations.

Reading the files by their paths is faster than importing ``importlib.resources``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from foldlog.eventstore.errors import count

_FOLDERS = {"sqlite": "sqlite/sql", "postgresql": "postgres/sql"}
"""Maps a dialect to the folder of its files."""

_COMMAND = r"(?s)(?:\$\w*\$.*?\$\w*\$|[^;$])+;"
_CREATE = r"(?m)^CREATE (?:OR REPLACE |UNIQUE )?(\w+) (?:{schema}\.)?(\w+)"


def statements(dialect: str, instead: Mapping[str, str] = {}) -> Mapping[str, str]:
    """Return the named statements of the ``queries.sql`` of a dialect. In a statement, a name in
    braces stands for the part with this name. ``instead`` maps names of parts to other SQL.
    """
    return _statements(dialect, tuple(instead.items()))


@cache
def _statements(dialect: str, instead: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return _named_in(read_sql(dialect, "queries.sql"), instead)


def _named_in(queries: str, instead: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Return the statements in a file by name, with their parts inserted. ``instead`` replaces
    parts.
    """
    # Every first open of a process reads this file: compiling patterns would take half of the time.
    blocks: dict[tuple[str, str], list[str]] = {}
    lines: list[str] = []
    for line in queries.splitlines():
        if line.startswith(("-- name: ", "-- part: ")):
            what, _, name = line.removeprefix("-- ").partition(": ")
            lines = blocks[what, name] = []
        elif not _is_comment(line):
            lines.append(line)
    others = dict(instead)
    parts = {
        name: others.get(name, "\n".join(lines).strip())
        for (what, name), lines in blocks.items()
        if what == "part"
    }
    return {
        name: _with_parts("\n".join(lines).strip(), parts)
        for (what, name), lines in blocks.items()
        if what == "name"
    }


def _is_comment(line: str) -> bool:
    # A comment at the end of a part would hide the text after the part.
    return line.lstrip(" ").startswith("--")


def _with_parts(sql: str, parts: Mapping[str, str]) -> str:
    text, *pieces = sql.split("{")
    for piece in pieces:
        name, _, rest = piece.partition("}")
        text += f"{parts[name]}{rest}" if name in parts else f"{{{piece}"
    return text


def commands(script: str) -> Sequence[str]:
    """Return the commands of a script as a list, because Citus accepts only one command at a
    time.
    """
    code = "\n".join([line for line in script.splitlines() if not _is_comment(line)])
    return [command.strip() for command in re.findall(_COMMAND, code)]


@cache
def migrations(dialect: str) -> Mapping[int, str]:
    """Return the scripts of the migrations, in the order of their numbers. Script n changes a
    database from the schema before to schema n. A dialect lacks the numbers of the migrations that
    change only the other dialect.
    """
    names = sorted(os.listdir(_folder(dialect)))
    return {int(name[:4]): read_sql(dialect, name) for name in names if name[:4].isdigit()}


def missing_parts(dialect: str, there: Collection[tuple[str, str]]) -> list[str]:
    scripts = migrations(dialect).values()
    parts = {
        (kind.lower(), name) for script in scripts for kind, name in re.findall(_CREATE, script)
    }
    return [_describe_missing(kind, name) for kind, name in sorted(parts.difference(there))]


def changed_part(kind: str, name: str) -> str:
    return (
        f"the {kind} {name} was changed: it is not as foldlog makes it; copy the store, which"
        " makes it again (see 'foldlog store copy --help')"
    )


def added_part(kind: str, name: str) -> str:
    """Describe a part on a table of foldlog that changes what the table does or shows."""
    return (
        f"somebody added the {kind} {name}, which may change what is written or read; drop it, or"
        " copy the store (see 'foldlog store copy --help')"
    )


def orphans(
    rows: Iterable[Sequence[int]], attachments: int, streams: int, chunks: int
) -> Iterator[str]:
    """Describe rows of conversations that do not exist, as pairs of the conversation's key and the
    number of rows, a number of attachments without an event, of streams without a conversation, and
    of chunks without a stream.
    """
    for key, events in rows:
        belong = count(events, "event belongs", "events belong")
        yield f"{belong} to conversation number {key}, which does not exist"
    if attachments:
        belong = count(attachments, "attachment belongs", "attachments belong")
        yield f"{belong} to no event (an attachment is a value stored beside events)"
    if streams:
        belong = count(streams, "stream belongs", "streams belong")
        yield f"{belong} to no conversation (a stream is a reply that is being written)"
    if chunks:
        belong = count(chunks, "chunk belongs", "chunks belong")
        yield f"{belong} to no stream (a stream is a reply that is being written)"


def contradictions(
    lists: int,
    hidden: Iterable[Sequence[bytes]],
    without_position: Iterable[Sequence[Any]],
    with_two_positions: Iterable[Sequence[Any]],
) -> Iterator[str]:
    """Describe a number of conversations whose lists contradict their events, conversations that
    are hidden, and pairs of a conversation and the number of its events without a position, or with
    two.
    """
    if lists:
        yield (
            "the lists of conversations by attribute and activity contradict the events of"
            f" {count(lists, 'conversation')}; the events are intact, and a copy of the store"
            " has correct lists (see 'foldlog store copy --help')"
        )
    for (name,) in hidden:
        yield (
            f"conversation {str(name, 'utf-8', 'replace')!r} is hidden, as if it were still being"
            " imported, but it was visible before"
        )
    for name, events in without_position:
        have = count(events, "event has", "events have")
        yield (
            f"{have} no position in conversation {str(name, 'utf-8', 'replace')!r}, so no follower"
            " reads them"
        )
    for name, events in with_two_positions:
        have = count(events, "event has", "events have")
        yield (
            f"{have} two positions in conversation {str(name, 'utf-8', 'replace')!r}, so followers"
            " read them twice"
        )


def _describe_missing(kind: str, name: str) -> str:
    if kind == "index":
        return (
            f"the index {name} is missing, so reading is slow or fails; copy the store, which"
            " makes the index again (see 'foldlog store copy --help'); if copying fails, restore"
            " a backup"
        )
    return (
        f"the {kind} {name} is missing, so calls that need it fail; restore a backup, or copy the"
        " sound events to a new store with 'foldlog store copy --damaged'"
    )


def read_sql(dialect: str, name: str) -> str:
    """Return the text of a file of a dialect."""
    with open(os.path.join(_folder(dialect), name), encoding="utf-8") as file:
        return file.read()


def _folder(dialect: str) -> str:
    return os.path.join(os.path.dirname(__file__), _FOLDERS[dialect])
