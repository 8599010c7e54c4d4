"""Say what happened to rows that do not fit their places: changed, swapped, moved, or shifted by other rows.

The checksum and the head of a row depend on its content and on the place where it was written. So a row that fits
another place was moved from there, and a row that fits no place was changed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from eventstore.maintenance.damage import Unreadable, readable_rows
from eventstore.recorders.types import Row
from eventstore.stored import hash_chain
from eventstore.stored.database import Database
from eventstore.stored.row_codec import PLAIN, RowCodec

ONLY_ITS_HEAD = "its head was changed, its content was not"
UNPROVEN = "its checksum is right, and nothing else proves it: the row before it is not the one that was written there"

_SINGLE = 16
"""A run with more suspects than this is examined as a whole."""
_SHIFTS = (-1, 1, -2, 2, -3, 3)
_ROWS_MAX = 200
_WORK_MAX = 2**28
"""The limit of the work to compare suspects with one another: their number times the bytes of all of them."""
_OTHERS_MAX = 1_000


class SuspectRun(NamedTuple):
    """A run of consecutive rows that do not fit their places, and how each of its first rows shows it."""

    first: int
    last: int
    problems: tuple[str, ...]


class Suspects:
    """The rows that do not fit, in runs. Memory: one entry for each run."""

    def __init__(self) -> None:
        self.runs: list[SuspectRun] = []

    def add(self, event_id: int, problem: str) -> None:
        """Take the next row; ids come in ascending order."""
        if self.runs and self.runs[-1].last == event_id - 1:
            first, _, problems = self.runs[-1]
            more = (*problems, problem) if len(problems) < _SINGLE else problems
            self.runs[-1] = SuspectRun(first, event_id, more)
        else:
            self.runs.append(SuspectRun(event_id, event_id, (problem,)))

    def __bool__(self) -> bool:
        return bool(self.runs)


def diagnosed(
    database: Database, key: int, codec: RowCodec, salt: bytes, suspects: Suspects, others: Iterable[str] = ()
) -> Iterator[tuple[int, int, str]]:
    """Yield the first id, the last id and the problem of each suspect. A row whose only fault is that it follows
    another suspect is left out.

    ``others`` are the conversations that a row may come from; they are read only where there are suspects. Cost: up to
    two hundred of them are compared with one another.
    """
    single: dict[int, str] = {}
    for run in suspects.runs:
        if run.last - run.first >= _SINGLE:
            yield from _of_a_run(database, key, codec, run)
        else:
            single.update(enumerate(run.problems, run.first))
    if not single:
        return
    ward = _Ward(database, key, codec, salt, single, others)
    for event_id, seen in single.items():
        problem = ward.problem(event_id, seen)
        if problem is not None:
            yield event_id, event_id, problem


def _of_a_run(database: Database, key: int, codec: RowCodec, run: SuspectRun) -> Iterator[tuple[int, int, str]]:
    shifted = _shifted(database, key, codec, run)
    if shifted is None:  # or the first of them shifted the rows after it
        rest = run._replace(first=run.first + 1, problems=run.problems[1:])
        shifted = _shifted(database, key, codec, rest)
        if shifted is not None:
            yield run.first, run.first, run.problems[0]
            run = rest
    yield run.first, run.last, shifted or "they are not the rows that were written there"


def _shifted(database: Database, key: int, codec: RowCodec, run: SuspectRun) -> str | None:
    """Return whether all rows of a run moved by the same number of places."""
    possible = set(_SHIFTS)
    for part in readable_rows(database.recorder, key, run.first, run.last + 1):
        if isinstance(part, Unreadable):
            return None
        possible = {by for by in possible if all(_fits(codec.checksum_seed, row, row.id + by) for row in part)}
    if not possible:
        return None
    by = possible.pop()
    cause = f"{-by} rows too many are before them" if by < 0 else f"{by} rows before them are missing"
    return f"they were written as events {run.first + by} to {run.last + by}: {cause}"


class _Ward:
    """The suspects that are examined one by one, with their neighbours."""

    def __init__(
        self, database: Database, key: int, codec: RowCodec, salt: bytes, ids: Iterable[int], others: Iterable[str]
    ) -> None:
        self._key = key
        self._codec = codec
        self._salt = salt
        self._ids: list[int] = []
        self._stored: dict[int, Row] = {}
        self._opened: dict[int, Row] = {}
        size = 0
        for event_id in islice(ids, _ROWS_MAX):
            size += self._take_in(database, event_id)
            if self._ids and size * len(self._ids) > _WORK_MAX:
                break
            self._ids.append(event_id)
        self._seeds = {other: hash_chain.checksum_seed(other) for other in islice(others, _OTHERS_MAX)}
        self._places = {event_id: self._place_of(row) for event_id in self._ids if (row := self._stored.get(event_id))}

    def problem(self, event_id: int, problem: str) -> str | None:
        """Return the problem of this row; None if the row is sound and only the row before it is damaged."""
        row = self._stored.get(event_id)
        if row is None or event_id not in self._places:
            return problem
        fits = _fits(self._codec.checksum_seed, row, event_id)
        if fits and self._follows_another(event_id):
            return None
        place = self._places[event_id]
        if place is not None:
            return f"it was written as event {place} and was moved to this place"
        for other, seed in self._seeds.items():
            if _fits(seed, row, row.id):
                return f"it was written as event {row.id} of conversation {other!r}"
        after = self._opened.get(event_id + 1)
        computed = self._link(self._before(event_id), self._opened[event_id], event_id)
        if after is not None and computed is not None and self._link(computed, after, after.id) == after.head:
            return ONLY_ITS_HEAD
        return UNPROVEN if fits and self._is_not_as_written(event_id - 1) else problem

    def _take_in(self, database: Database, event_id: int) -> int:
        """Read the row and its neighbours. Return their size in bytes."""
        for near in (event_id - 1, event_id, event_id + 1):
            if near in self._stored or near < 0:
                continue
            for part in readable_rows(database.recorder, self._key, near, near + 1):
                if not isinstance(part, Unreadable):
                    for stored in part:
                        self._stored[stored.id] = stored
                        # A row whose checksum is wrong may still have the content that its head commits to.
                        self._opened[stored.id] = self._codec.unchecked(stored, database)
        return sum(_size(self._stored.get(near)) for near in (event_id - 1, event_id, event_id + 1))

    def _follows_another(self, event_id: int) -> bool:
        """Return whether the row before this one was moved, or lost its head."""
        row = self._opened[event_id]
        elsewhere = {self._stored[n].head for n, place in self._places.items() if place == event_id - 1}
        heads = elsewhere.union(self._heads_near(event_id)) - {self._before(event_id)}
        return any(self._link(head, row, event_id) == row.head for head in heads)

    def _is_not_as_written(self, event_id: int) -> bool:
        row = self._stored.get(event_id)
        return row is not None and not _fits(self._codec.checksum_seed, row, event_id)

    def _place_of(self, row: Row) -> int | None:
        """Return the place of another suspect where this row was written; None if it fits none of them."""
        places = [place for place in self._ids if place != row.id]
        for place in places:
            if _fits(self._codec.checksum_seed, row, place):
                return place
        opened = self._opened[row.id]
        for place in places:
            if any(self._link(head, opened, place) == row.head for head in self._heads_near(place)):
                return place
        return None

    def _heads_near(self, place: int) -> Iterator[bytes]:
        """Yield the heads of the rows that may stand before the row written at this place."""
        before = self._before(place)
        if before is not None:
            yield before
        for near in (place - 1, place, place + 1):
            row = self._stored.get(near)
            if row is not None and type(row.head) is bytes:
                yield row.head
        if place - 1 in self._opened:
            computed = self._link(self._before(place - 1), self._opened[place - 1], place - 1)
            if computed is not None:
                yield computed

    def _before(self, event_id: int) -> bytes | None:
        if event_id == 0:
            return hash_chain.seed(self._codec.conversation, self._salt)
        row = self._stored.get(event_id - 1)
        return None if row is None or type(row.head) is not bytes else row.head

    def _link(self, head: bytes | None, row: Row, event_id: int) -> bytes | None:
        if type(head) is not bytes or row.encoding != PLAIN:
            return None
        try:
            return hash_chain.link_of(head, self._salt, row._replace(id=event_id))
        except (TypeError, ValueError, AttributeError):  # a column of another type
            return None


def _fits(seed: int, row: Row, place: int) -> bool:
    """Return whether the row, as it is stored, was written at ``place``."""
    try:
        return row.checksum == hash_chain.checksum(seed, *row._replace(id=place)[:-1])
    except (struct.error, TypeError, AttributeError):  # a column of another type
        return False


def _size(row: Row | None) -> int:
    return 0 if row is None or not isinstance(row.body, bytes) else len(row.body)
