"""Check all rows of one conversation: each is unchanged, none is missing, each is in its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eventstore.log.past import Link, follows
from eventstore.log.row import Chain, link_of, sound_rows
from eventstore.log.seal import DAMAGED, Limit, RowCodec
from eventstore.maintenance.damage import Unreadable, next_there, raise_unless_damage, readable_rows
from eventstore.maintenance.redaction_receipts import KIND, Receipts
from eventstore.recorders.base import Recorder
from eventstore.recorders.errors import RecorderError
from eventstore.recorders.types import Row

_PAGE = 1_000
MISSING = ("it is missing", "they are missing")
_STRAY = "it does not follow the event before it: one of the two was changed, or is not in its place"


class VerifyFinding(NamedTuple):
    """A problem of events ``first`` to ``last``; without them, a problem of the whole conversation. ``sound``: the
    content of the events is unchanged. ``needs_key``: nothing was checked, because a key is missing. ``of_head``: only
    a published head shows it.
    """

    first: int | None
    last: int | None
    problem: str
    sound: bool = False
    needs_key: bool = False
    of_head: bool = False

    def __str__(self) -> str:
        if self.first is None:
            return self.problem
        where = f"event {self.first}" if self.last == self.first else f"events {self.first} to {self.last}"
        return f"{where}: {self.problem}"


def of_all(problem: str, *, sound: bool = False, needs_key: bool = False) -> VerifyFinding:
    """Return a problem of the whole conversation."""
    return VerifyFinding(None, None, problem, sound, needs_key)


class Start(NamedTuple):
    """The start of a pass: the id of the first row, and the head and counts before it, None where they are unknown."""

    id: int
    head: bytes | None
    counts: tuple[int, int] | None


class Pass:
    """The pass over one conversation's rows, in the order of their ids."""

    def __init__(
        self,
        codec: RowCodec,
        limit: Limit,
        salt: bytes,
        wanted: dict[int, bytes],
        start: Start | None = None,
        links: Sequence[Link] = (),
    ) -> None:
        self.findings: list[VerifyFinding] = []
        self.receipts = Receipts()
        self.wanted = wanted
        """The published heads by version that were not found yet."""
        self._codec = codec
        self._limit = limit
        self._salt = salt
        self.follow = self.stray = 0
        """The numbers of rows that follow the head before them, and of those that do not: if none does, the salt may
        have been changed.
        """
        self._own_salt, self._links = salt, links
        start = start or Start(0, follows(codec.conversation, salt, links, 0, None)[0], (0, 0))
        self._next = start.id
        self._head: bytes | None = start.head if salt else None
        self._counts: tuple[int, int] | None = start.counts

    def over(self, recorder: Recorder, key: int, version: int) -> None:
        """Check all rows of the conversation."""
        while self._next < version:
            self._enter()
            stops = (link.stop for link in self._links if link.stop > self._next)
            page = min(self._next + _PAGE, version, next(stops, version))
            if not self._sound(recorder, key, page):
                self._look_at_all(recorder, key, page)
                last = self.findings[-1] if self.findings else None
                if last is not None and last.problem in MISSING and last.last == self._next - 1:
                    self._miss(next_there(recorder, key, self._next, version))
        self._miss(version)

    def _enter(self) -> None:
        """Take the salt of the next row; after the last copied event of a conversation also the head to follow."""
        if self._links and self._own_salt:
            head, self._salt = follows(
                self._codec.conversation, self._own_salt, self._links, self._next, self._head or b""
            )
            if self._next and self._head is not None:
                self._head = head

    def _sound(self, recorder: Recorder, key: int, stop: int) -> bool:
        """Check quickly whether all rows up to ``stop`` are sound. Skip the sound ones."""
        if self._head is None or self._counts is None or not self._salt:
            return False
        try:
            # Some rows may appear twice.
            rows = recorder.query(lambda reader: reader.rows(key, self._next, stop, 2 * (stop - self._next)))
        except RecorderError as error:
            raise_unless_damage(error)
            return False
        start, chain = self._next, Chain(self._head, self._next, *self._counts)
        count, chain = sound_rows(chain, self._salt, self._codec.checksum_seed, rows)
        self.follow += count
        self._head, self._next, self._counts = chain.head, chain.next_id, (chain.shown, chain.structural)
        for row in rows[:count]:
            if row.kind == KIND:
                self.receipts.take(row)
        for version, head in list(self.wanted.items()):
            if start < version <= self._next and rows[version - 1 - start].head == head:
                del self.wanted[version]
        if count < len(rows) and 0 <= rows[count].id < self._next:
            self._find(rows[count].id, "it is stored twice", sound=True)
        return count == stop - start

    def _look_at_all(self, recorder: Recorder, key: int, stop: int) -> None:
        """Check the rows up to ``stop`` one by one."""
        for part in readable_rows(recorder, key, self._next, stop):
            if isinstance(part, Unreadable):
                self._skip(part)
                continue
            for stored, row in zip(part, self._codec.decoded(part, self._limit), strict=True):
                self._look_at(stored, row)
        self._miss(stop)

    def _skip(self, unreadable: Unreadable) -> None:
        self._miss(unreadable.id)
        self._find(unreadable.id, f"it cannot be read: {unreadable.problem}")
        self._next = unreadable.id + 1
        self._head = self._counts = None

    def _look_at(self, stored: Row, row: Row) -> None:
        """Check one row that is encrypted, or near a row that is not sound: both as it is stored and decrypted."""
        if stored.id < self._next:
            self._find(stored.id, "it is stored twice", sound=True)
            return
        if stored.id != self._next:
            self._miss(stored.id)
            self._head = self._counts = None
        if row.encoding == DAMAGED:
            self._find(row.id, row.body.decode())
            self._head = self._counts = None
        else:
            if not self._follows(row):
                self._find(row.id, _STRAY)
            elif self._counts not in (None, (row.shown_before, row.structural_before)):
                problem = f"it counts {row.shown_before} shown and {row.structural_before} structural events before it"
                self._find(row.id, problem, sound=True)
            elif (problem_of_redaction := self.receipts.take(row)) is not None:
                self._find(row.id, problem_of_redaction)
            self._head = row.head
            self._counts = (row.shown_before + row.shown, row.structural_before + row.structural)
        self._next = stored.id + 1
        if self._next in self.wanted and self.wanted[self._next] == stored.head:
            del self.wanted[self._next]

    def _follows(self, row: Row) -> bool:
        """Return whether the row follows the head before it; true if that is unknown, after a gap or without a salt."""
        if self._head is None or not self._salt:
            return True
        is_next = link_of(self._head, self._salt, row) == row.head
        self.follow += is_next
        self.stray += not is_next
        return is_next

    def _miss(self, until: int) -> None:
        if until <= self._next:
            return
        first = self._next
        if self.findings and self.findings[-1].problem in MISSING and self.findings[-1].last == first - 1:
            first = self.findings.pop().first or 0
        self.findings.append(VerifyFinding(first, until - 1, MISSING[first < until - 1]))
        self._next, self._head, self._counts = until, None, None

    def _find(self, event_id: int, problem: str, *, sound: bool = False) -> None:
        before = self.findings[-1] if self.findings else None
        if before is not None and before.last == event_id - 1 and before[2:4] == (problem, sound):
            self.findings[-1] = before._replace(last=event_id)
        else:
            self.findings.append(VerifyFinding(event_id, event_id, problem, sound))
