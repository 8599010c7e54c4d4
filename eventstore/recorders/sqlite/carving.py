"""A damaged file's rows in a new file, so that what can be read of it can be asked for as in any store.

Rows whose checksum is right come first, so that a damaged copy of one never takes its place. What is damaged comes
too, and is damaged still: whoever reads it is told so.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any, NamedTuple

from eventstore import integrity
from eventstore.recorders.sqlite.pages import PageFile, StoredRow
from eventstore.recorders.sqlite.reader import SQL
from eventstore.recorders.sqlite.recorder import SQLiteRecorder

__all__ = ["Carved", "carve"]

_EVENT_COLUMNS = 14
_CONVERSATION_COLUMNS = 15


class Carved(NamedTuple):
    """How many rows were found: events, sound ones and others, and conversations; ``nameless`` are those of which only
    events were found, and not even the id.
    """

    events: int
    damaged: int
    conversations: int
    nameless: int


def carve(path: str, into: str) -> Carved:
    """Bring every row of the SQLite file at ``path``, and of its log, into a new store at ``into``.

    Raises ``OSError``, and ``PersistenceError`` where the new file cannot be written. Cost: three readings of the file;
    memory for the conversations.
    """
    SQLiteRecorder(into).close()
    with PageFile(path) as pages, closing(sqlite3.connect(into, isolation_level=None)) as target:
        target.execute("PRAGMA synchronous = OFF")
        target.execute("BEGIN")
        names = _conversations(pages, target)
        sound, damaged, nameless = 0, 0, set()
        for row in _events(pages):
            seed = names.get(row.columns[1])
            if seed is None:
                nameless.add(row.columns[1])
            elif _is_sound(seed, row):
                sound += target.execute(SQL["carve_event"], _event_parameters(row)).rowcount
        for row in _events(pages):
            seed = names.get(row.columns[1])
            if seed is not None and not _is_sound(seed, row):
                parameters = (*_event_parameters(row), row.columns[1], row.columns[2])
                with suppress(sqlite3.IntegrityError):  # a column of another type: not even a damaged row is left
                    damaged += target.execute(SQL["carve_damaged_event"], parameters).rowcount
        target.executemany(SQL["carve_key"], _keys(pages, names))
        target.execute("COMMIT")
    return Carved(sound, damaged, len(names), len(nameless))


def _conversations(pages: PageFile, target: sqlite3.Connection) -> dict[Any, int]:
    """Bring in the visible conversations; returns where the checksums of each one's rows start, by its key.

    One whose row is lost is still named in the index of names. Its salt is lost, and with it the proof of its heads.
    """
    seeds: dict[Any, int] = {}
    named: dict[Any, bytes] = {}
    staged: set[Any] = set()
    for row in pages.rows():
        columns, texts = row.columns, row.texts
        if row.rowid is not None and len(columns) == _CONVERSATION_COLUMNS and texts[1] and type(columns[3]) is int:
            if columns[2] == 1:
                with suppress(sqlite3.IntegrityError):
                    target.execute(SQL["carve_conversation"], (row.rowid, *columns[1:]))
                    seeds[row.rowid] = _seed(columns[1])
            else:
                staged.add(row.rowid)
        elif row.rowid is None and len(columns) == 2 and texts == [True, False] and type(columns[1]) is int:
            named[columns[1]] = columns[0]
    for key, name in named.items():
        if key not in seeds and key not in staged and name not in (b"uuid", b"positions_given"):
            values = [name, 1, 0, None, None, b"", *[None] * 8]
            if target.execute(SQL["carve_conversation"], (key, *values)).rowcount:
                seeds[key] = _seed(name)
    return seeds


def _events(pages: PageFile) -> Iterator[StoredRow]:
    for row in pages.rows():
        columns = row.columns
        if (
            row.rowid is not None
            and len(columns) == _EVENT_COLUMNS
            and type(columns[1]) is int
            and type(columns[2]) is int
            and row.texts[3]
        ):
            yield row


def _is_sound(seed: int, row: StoredRow) -> bool:
    (_, _, event_id, kind, schema, shown, structural, recorded_at, encoding, shown_before, structural_before, checksum,
     head, body) = row.columns  # fmt: skip
    try:
        written: int = integrity.checksum(
            seed, event_id, kind.decode(), schema, shown == 1, structural == 1, recorded_at, encoding, body, head,
            shown_before, structural_before,
        )  # fmt: skip
    except (TypeError, ValueError, AttributeError, struct.error):
        return False
    return bool(checksum == written)


def _event_parameters(row: StoredRow) -> Sequence[Any]:
    return (row.rowid, *row.columns[1:-1], row.texts[-1], row.columns[-1], row.columns[-1])


def _keys(pages: PageFile, names: dict[Any, int]) -> Iterable[Sequence[Any]]:
    for row in pages.rows():
        columns = row.columns
        if (
            row.rowid is None
            and row.texts == [False, True, False, False]
            and all(type(columns[n]) is int for n in (0, 2, 3))
            and columns[0] in names
        ):
            yield columns


def _seed(name: object) -> int:
    assert isinstance(name, bytes)
    try:
        return integrity.checksum_seed(name.decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError:
        return -1  # no row of it is sound
