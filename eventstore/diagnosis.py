"""What happened to rows that are not what was written at their places: changed, swapped, moved, or shifted by others.

A row's checksum and head are of what it was where it was written. So a row that fits another place was moved from
there, and one that fits none was changed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from eventstore import integrity
from eventstore.guard import Guard
from eventstore.reading import Unreadable, readable_rows
from eventstore.recorders.base import Row
from eventstore.sealing import PLAIN
from eventstore.vault import Known

__all__ = ["ONLY_ITS_HEAD", "Suspects", "diagnosed"]

ONLY_ITS_HEAD = "its head is not what was written, its content is"

_SINGLE = 16
"""A run of more suspects than these is looked at as a whole."""
_SHIFTS = (-1, 1, -2, 2, -3, 3)
_ROWS_MAX = 200
_OTHERS_MAX = 1_000


class Run(NamedTuple):
    """Rows one after the other that are not what was written there, and how the first of them shows it."""

    first: int
    last: int
    problem: str


class Suspects:
    """Rows that do not fit, as runs. Memory: one entry a run."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def add(self, event_id: int, problem: str) -> None:
        """Ids come ascending."""
        if self.runs and self.runs[-1].last == event_id - 1:
            self.runs[-1] = self.runs[-1]._replace(last=event_id)
        else:
            self.runs.append(Run(event_id, event_id, problem))

    def __bool__(self) -> bool:
        return bool(self.runs)


def diagnosed(
    guard: Guard, known: Known, salt: bytes, suspects: Suspects, others: Iterable[str] = ()
) -> Iterator[tuple[int, int, str]]:
    """First and last id, and what is wrong there, of each suspect that is not just behind another one.

    ``others`` are conversations that a row may come from.
    """
    single = [run for run in suspects.runs if run.last - run.first < _SINGLE]
    for run in suspects.runs:
        if run.last - run.first >= _SINGLE:
            yield from _of_a_run(guard, known, run)
    ward = _Ward(guard, known, salt, [n for run in single for n in range(run.first, run.last + 1)], others)
    for run in single:
        for event_id in range(run.first, run.last + 1):
            problem = ward.problem(event_id, run.problem)
            if problem is not None:
                yield event_id, event_id, problem


def _of_a_run(guard: Guard, known: Known, run: Run) -> Iterator[tuple[int, int, str]]:
    shifted = _shifted(guard, known, run)
    if shifted is None:  # or the first of them is what pushed the others on
        rest = run._replace(first=run.first + 1)
        shifted = _shifted(guard, known, rest)
        if shifted is not None:
            yield run.first, run.first, run.problem
            run = rest
    yield run.first, run.last, shifted or "they are not what was written there"


def _shifted(guard: Guard, known: Known, run: Run) -> str | None:
    """Whether all of a run stand so many places before or behind where they were written."""
    possible = set(_SHIFTS)
    for part in readable_rows(guard.unguarded, known.key, run.first, run.last + 1):
        if isinstance(part, Unreadable):
            return None
        possible = {by for by in possible if all(_fits(known.checksum_seed, row, row.id + by) for row in part)}
    if not possible:
        return None
    by = possible.pop()
    cause = f"{-by} too many stand before them" if by < 0 else f"{by} from before them are missing"
    return f"they were written as events {run.first + by} to {run.last + by}: {cause}"


class _Ward:
    """The suspects that are looked at one by one, with their neighbours."""

    def __init__(self, guard: Guard, known: Known, salt: bytes, ids: Sequence[int], others: Iterable[str]) -> None:
        self._known = known
        self._salt = salt
        self._ids = ids[:_ROWS_MAX]
        self._stored: dict[int, Row] = {}
        self._opened: dict[int, Row] = {}
        for event_id in {n + by for n in self._ids for by in (-1, 0, 1)}:
            for part in readable_rows(guard.unguarded, known.key, max(event_id, 0), event_id + 1):
                if not isinstance(part, Unreadable):
                    self._stored.update((row.id, row) for row in part)
                    for stored, opened in zip(part, guard.vault.opened(known, part), strict=True):
                        # A plain row whose checksum is wrong may still have the content that its head is of.
                        self._opened[stored.id] = stored if stored.encoding == PLAIN else opened
        self._seeds = {other: integrity.checksum_seed(other) for other in islice(others, _OTHERS_MAX)}

    def problem(self, event_id: int, problem: str) -> str | None:
        """What is wrong with this row; None if it is sound, and only the one before it is not."""
        row = self._stored.get(event_id)
        if row is None:
            return problem
        if self._follows_another(event_id):
            return None
        place = self._written_as(row)
        if place is not None:
            return f"it was written as event {place}, and stands where it does not belong"
        for other, seed in self._seeds.items():
            if _fits(seed, row, row.id):
                return f"it was written as event {row.id} of conversation {other!r}"
        after = self._opened.get(event_id + 1)
        computed = self._link(self._before(event_id), self._opened[event_id], event_id)
        if after is not None and computed is not None and self._link(computed, after, after.id) == after.head:
            return ONLY_ITS_HEAD
        return problem

    def _follows_another(self, event_id: int) -> bool:
        """Whether it is what was written here, and what was written before it stands elsewhere, or lost its head."""
        row = self._opened[event_id]
        return _fits(self._known.checksum_seed, self._stored[event_id], event_id) and any(
            self._link(head, row, event_id) == row.head for head in self._heads() if head != self._before(event_id)
        )

    def _written_as(self, row: Row) -> int | None:
        for place in self._ids:
            if place != row.id and _fits(self._known.checksum_seed, row, place):
                return place
        opened = self._opened[row.id]
        for place in self._ids:
            if place != row.id and any(self._link(head, opened, place) == row.head for head in self._heads()):
                return place
        return None

    def _heads(self) -> Iterator[bytes]:
        """Every head that may be the one before some suspect."""
        for event_id in self._ids:
            before = self._before(event_id)
            if before is not None:
                yield before
            row = self._opened.get(event_id)
            if row is not None:
                yield row.head
                computed = self._link(before, row, event_id)
                if computed is not None:
                    yield computed

    def _before(self, event_id: int) -> bytes | None:
        if event_id == 0:
            return integrity.seed(self._known.conversation, self._salt)
        row = self._stored.get(event_id - 1)
        return None if row is None else row.head

    def _link(self, head: bytes | None, row: Row, event_id: int) -> bytes | None:
        if type(head) is not bytes or row.encoding != PLAIN:
            return None
        try:
            return integrity.link(
                head, self._salt, event_id, row.kind, row.schema, row.shown, row.structural, row.recorded_at, row.body
            )
        except (TypeError, ValueError, AttributeError):  # a column of another type
            return None


def _fits(seed: int, row: Row, place: int) -> bool:
    """Whether the row, as it is stored, was written at ``place``."""
    try:
        return row.checksum == integrity.checksum(seed, *row._replace(id=place)[:-1])
    except (struct.error, TypeError, AttributeError):  # a column of another type
        return False
