"""Copy the rows of a damaged file to a new file, so that the readable part can be used like any store.

Rows with a right checksum come first, so that a damaged copy of a row never takes its place. Damaged rows are copied
too and stay damaged: reading them raises an error.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, NamedTuple

from eventstore.recorders.sqlite.damaged.pages import PageFile, StoredRow
from eventstore.recorders.sqlite.errors import translated
from eventstore.recorders.sqlite.reader import SQL
from eventstore.recorders.sqlite.recorder import SQLiteRecorder
from eventstore.stored import hash_chain

_EVENT_COLUMNS = 14
_CONVERSATION_COLUMNS = 21
_EARLIER_COLUMNS = (15, 16, 18, 19, 20)
"""The numbers of columns that a conversation's row had before schema 3, 7, 8, 9 and 11."""
_NAME_BYTES = 32
"""The name of an attachment: a hash."""
_TRIED_MAX = 16
_SHIFTS = (-1, 1, -2, 2, -3, 3)
_ASTRAY_MAX = 200
"""The most rows that are checked for having been swapped with one another."""
_OF_THE_STORE = (b"uuid", b"positions_given")
"""The names in the table ``store``: an entry of its index looks like an entry of the index of conversations' names."""

_KEPT = (b"event_bytes_max", b"salvaged")
"""The names in the table ``store`` whose values belong to a copy too."""
_INDEXES_OF_NAMES = (b"conversations_by_id", b"conversations_in_staging")
"""Entries of others look like theirs: those of the keys of conversations, for example."""


_IN_AN_INDEX = ("it is lost: an index names it", "they are lost: an index names the last of them")
_AND_MORE = "; later events may be lost too"
_MAY_BE_LOST = "its end may be lost: nothing shows that no row of it was on pages that are lost or damaged"


class LostEnd(NamedTuple):
    """The lost events at the end of a conversation. Without ``first`` and ``last``, it is unknown which they are."""

    first: int | None
    last: int | None
    problem: str


class Carved(NamedTuple):
    """The numbers of rows that were found: sound and damaged events, and conversations.

    ``nameless`` is the number of conversations of which only events were found, without their id. ``pages`` is how many
    pages are there, and how many there were; ``frames`` how many frames of the log SQLite reads, and how many later
    ones it would delete though they were committed. ``ends`` has, by key, each conversation whose end is lost, or may
    be.
    """

    events: int
    damaged: int
    conversations: int
    nameless: int
    pages: tuple[int, int]
    frames: tuple[int, int]
    ends: Mapping[int, LostEnd]


def carve(path: str, into: str) -> Carved:
    """Copy every row of the SQLite file at ``path``, and of its log, into a new store at ``into``.

    Raises ``OSError``, and ``RecorderError`` where the new file cannot be written. Cost: three readings of the file,
    and two more where rows are damaged; memory for the conversations.
    """
    SQLiteRecorder(into).close()
    with (
        PageFile(path) as pages,
        translated(f"salvage {path} into {into}"),
        closing(sqlite3.connect(into, isolation_level=None)) as target,
    ):
        target.execute("PRAGMA synchronous = OFF")
        target.execute("BEGIN")
        names = _Names(pages)
        sound, damaged = 0, 0
        astray: dict[int, list[int]] = {}
        for row in _events(pages):
            key, event_id = row.columns[1:3]
            if names.vouch_for(row):
                sound += target.execute(SQL["carve_event"], _event_parameters(row)).rowcount
            elif len(astray.setdefault(key, [])) < _ASTRAY_MAX:
                astray[key].append(event_id)
        swapped = {key: ids for key, ids in astray.items() if len(ids) < _ASTRAY_MAX}
        for row in _events(pages) if astray else ():
            written = names.in_its_place(row, swapped.get(row.columns[1], ()))
            if written is not None:
                sound += target.execute(SQL["carve_damaged_event"], _unless_there(written)).rowcount
        conversations = names.conversations()
        target.executemany(SQL["carve_conversation"], conversations.values())
        for row in _events(pages) if astray else ():
            if row.columns[1] in conversations and not names.vouch_for(row):
                with suppress(sqlite3.IntegrityError):  # a column of another type: not even a damaged row is left
                    damaged += target.execute(SQL["carve_damaged_event"], _unless_there(row)).rowcount
        target.executemany(SQL["carve_key"], _keys(pages, conversations))
        target.executemany(SQL["carve_attachment"], _attachments(pages))
        target.executemany(SQL["carve_attached"], _attached(pages))
        target.executemany(SQL["set_store_value"], _facts(pages))
        carved = target.execute("SELECT count(*) FROM conversations").fetchone()[0]
        ends = _Ends(pages, target)
        lost_ends = {key: end for key in conversations if (end := ends.lost(key)) is not None}
        nameless = names.strangers() | ends.named.keys() - names.known()
        target.execute("COMMIT")
        frames = pages.log.read, pages.log.committed - pages.log.read
        return Carved(sound, damaged, carved, len(nameless), pages.there_and_recorded(), frames, lost_ends)


class _Names:
    """Find the name of each conversation. Its row and an index of names have it; if one is damaged, the checksums of
    its events decide: they are right only under its name.
    """

    def __init__(self, pages: PageFile) -> None:
        self._rows: dict[int, Sequence[Any]] = {}
        """The rows of conversations, by key; their first column is the key."""
        self._named: dict[int, list[bytes]] = {}
        entries: list[StoredRow] = []
        roots: dict[bytes, int] = {}
        for row in pages.rows():
            columns, texts = row.columns, row.texts
            if (
                row.rowid is not None
                and len(columns) in (_CONVERSATION_COLUMNS, *_EARLIER_COLUMNS)
                and texts[1]
                and columns[2] in (0, 1)
            ):
                added = [None] * (_CONVERSATION_COLUMNS - len(columns))
                self._rows.setdefault(row.rowid, (row.rowid, *columns[1:], *added))
            elif row.rowid is None and len(columns) == 2 and texts == [True, False] and type(columns[1]) is int:
                entries.append(row)
            elif row.rowid is not None and texts[:4] == [True, True, True, False] and type(columns[3]) is int:
                roots[columns[1]] = columns[3]
        for entry in _of_names(pages, roots, entries):
            self._named.setdefault(entry.columns[1], []).append(entry.columns[0])
        for key, columns in self._rows.items():
            self._named.setdefault(key, []).insert(0, columns[1])
        self._seeds = {name: _seed(name) for names in self._named.values() for name in names}
        self._name_of: dict[int, bytes] = {}
        self._seen_before: set[int] = set()
        """The conversations with published events."""
        self._strangers: dict[int, int] = {}
        """Keys without a conversation, and how many of their rows were tried under every name."""

    def vouch_for(self, row: StoredRow) -> bool:
        """Return whether the row is unchanged, in the conversation of its key."""
        key = row.columns[1]
        name = self._name_of.get(key)
        if name is None:
            name = next((name for name in self._candidates(key) if _is_sound(self._seeds[name], row)), None)
            if name is None:
                return False
            self._name_of[key] = name
        elif not _is_sound(self._seeds[name], row):
            return False
        if row.rowid is not None and row.rowid > 0:
            self._seen_before.add(key)
        return True

    def in_its_place(self, row: StoredRow, places: Iterable[int]) -> StoredRow | None:
        """Return the row at its original place, if that is near its present place or is one of ``places``: then rows
        were swapped, inserted or removed. Return None if it is in its place, or fits no place.
        """
        key, event_id = row.columns[1:3]
        name = self._name_of.get(key)
        if name is None or _is_sound(self._seeds[name], row):
            return None
        for place in (*(event_id + by for by in _SHIFTS), *places):
            there = row._replace(columns=[*row.columns[:2], place, *row.columns[3:]])
            if _is_sound(self._seeds[name], there):
                return there
        return None

    def _candidates(self, key: int) -> Iterable[bytes]:
        tried = self._strangers.get(key, 0)
        if tried == _TRIED_MAX:
            return self._named.get(key, ())
        self._strangers[key] = tried + 1
        return [*self._named.get(key, ()), *self._seeds]

    def strangers(self) -> set[int]:
        """Return the keys of conversations that have events but no name."""
        return self._strangers.keys() - self._name_of.keys() - self._named.keys()

    def known(self) -> set[int]:
        """Return the keys of all conversations with a name, staged ones too."""
        return self._rows.keys() | self._name_of.keys() | self._named.keys()

    def conversations(self) -> dict[int, Sequence[Any]]:
        """Return the columns of every visible conversation by key; conversations that their events prove come first.

        If a row is lost, its salt is lost too, and then nothing proves its heads.
        """
        rows = {columns[1]: columns for columns in self._rows.values()}
        found: dict[int, Sequence[Any]] = {}
        for key in [*self._name_of, *self._named]:
            name = self._name_of.get(key) or self._named[key][0]
            columns = rows.get(name) or self._rows.get(key)
            if columns is None and key not in self._name_of and name in _OF_THE_STORE:
                continue
            columns = _typed(columns or (key, name, 1, 0, *[None] * 17))
            is_hidden_tombstone = columns[2] == 0 and columns[11] is not None
            if columns[2] == 1 or columns[10] is not None or is_hidden_tombstone or key in self._seen_before:
                found.setdefault(key, (key, name, 0 if is_hidden_tombstone else 1, *columns[3:]))
        return found


class _Ends:
    """Find the conversations whose last events are lost, or may be: no later row of theirs shows it.

    The index by id names every event. A conversation's end is proved where the next entry is another conversation's, or
    where nothing of the table is missing.
    """

    def __init__(self, pages: PageFile, target: sqlite3.Connection) -> None:
        self._target = target
        self._versions: dict[int, int] = dict(target.execute(SQL["carved_versions"]))
        self._at_least = {key: (version, why) for key, version, why in target.execute(SQL["carved_at_least"])}
        self.named: dict[int, int] = {}
        """The last event that the index names, by key, where its row does not exist."""
        self._gaps: list[tuple[int, float]] = []
        """The ranges of keys whose last entries may be in a part of the index that cannot be read."""
        root = pages.root(b"events_by_id")
        self._follow(pages.in_order(root) if root is not None else iter([None]))
        if pages.is_any_page_unsure:
            self._gaps = [(0, float("inf"))]
        elif self._gaps:
            table = pages.root(b"events")
            if table is not None and None not in pages.in_order(table):
                self._gaps = []

    def lost(self, key: int) -> LostEnd | None:
        """Return what is lost of the end of a conversation; None if its end is proved."""
        version = self._versions.get(key, 0)
        is_open = any(start <= key < stop for start, stop in self._gaps)
        if key in self.named:
            last = self.named[key]
            return LostEnd(version, last, _IN_AN_INDEX[version < last] + _AND_MORE * is_open)
        at_least, why = self._at_least.get(key, (0, ""))
        if at_least > version:
            return LostEnd(None, None, f"its end is lost: {why} {at_least:,} events, and there are only {version:,}")
        return LostEnd(None, None, _MAY_BE_LOST) if is_open else None

    def _follow(self, entries: Iterator[StoredRow | None]) -> None:
        last, gap = 0, False
        for entry in entries:
            if entry is None or len(entry.columns) != 4 or not all(type(column) is int for column in entry.columns):
                gap = True
                continue
            key, event_id, _, position = entry.columns
            if gap:
                self._gaps.append((last, key))
                gap = False
            last = key
            if event_id >= max(self._versions.get(key, 0), self.named.get(key, 0)) and not self._is_there(position):
                self.named[key] = event_id
        if gap:
            self._gaps.append((last, float("inf")))

    def _is_there(self, position: int) -> bool:
        return self._target.execute(SQL["carved_row"], (position,)).fetchone() is not None


def _of_names(pages: PageFile, roots: dict[bytes, int], entries: Iterable[StoredRow]) -> Iterator[StoredRow]:
    """Yield the entries of the indexes of names; where these are damaged, those on pages of no other index."""
    found = [entry for name in _INDEXES_OF_NAMES for entry in pages.in_order(roots.pop(name, 0))]
    theirs = {entry.page for entry in found if entry is not None}
    others = set().union(*map(pages.pages_of_index, roots.values())) if None in found else None
    for entry in entries:
        if entry.page in theirs or (others is not None and entry.page not in others):
            yield entry


def _typed(columns: Sequence[Any]) -> list[Any]:
    """Return the columns of a conversation, without columns whose type the damage changed."""
    texts_and_blobs = {1, 6, 7, 8, 12, 14, 15, 17}
    typed = [
        value if type(value) is (bytes if n in texts_and_blobs else int) else None for n, value in enumerate(columns)
    ]
    return [*typed[:3], typed[3] or 0, *typed[4:]]


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
        written: int = hash_chain.checksum(
            seed, event_id, kind.decode(), schema, shown == 1, structural == 1, recorded_at, encoding, body, head,
            shown_before, structural_before,
        )  # fmt: skip
    except (TypeError, ValueError, AttributeError, struct.error):
        return False
    return bool(checksum == written)


def _event_parameters(row: StoredRow) -> Sequence[Any]:
    return (row.rowid, *row.columns[1:-1], row.texts[-1], row.columns[-1], row.columns[-1])


def _unless_there(row: StoredRow) -> Sequence[Any]:
    return (*_event_parameters(row), *row.columns[1:3])


def _keys(pages: PageFile, conversations: Mapping[int, object]) -> Iterable[Sequence[Any]]:
    for row in pages.rows():
        columns = row.columns
        if (
            row.rowid is None
            and row.texts in ([False, True, False, False], [False, True, False, False, False])
            and all(type(columns[n]) is int for n in (0, 2, 3))
            and type(columns[-1]) in (int, bytes, type(None))
            and columns[0] in conversations
        ):
            yield (*columns[:4], columns[4] if len(columns) == 5 else None)


def _attachments(pages: PageFile) -> Iterable[Sequence[Any]]:
    """Yield the attachments of bodies. Their events tell whether they are unchanged."""
    for row in pages.rows():
        if row.rowid is not None and _is(row, int, bytes, int, bytes) and len(row.columns[1]) == _NAME_BYTES:
            yield row.columns


def _attached(pages: PageFile) -> Iterable[Sequence[Any]]:
    for row in pages.rows():
        if row.rowid is None and _is(row, int, int, bytes, int) and len(row.columns[2]) == _NAME_BYTES:
            yield row.columns


def _is(row: StoredRow, *types: type) -> bool:
    return tuple(map(type, row.columns)) == types and not any(row.texts)


def _facts(pages: PageFile) -> Iterable[Sequence[Any]]:
    """Yield the largest size of an event and what earlier salvages lost, if the store has recorded them."""
    for row in pages.rows():
        if row.rowid is None and row.texts == [True, True] and row.columns[0] in _KEPT:
            yield tuple(value.decode("utf-8", "replace") for value in row.columns)


def _seed(name: bytes) -> int:
    try:
        return hash_chain.checksum_seed(name.decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError:
        return -1  # no row of it is sound
