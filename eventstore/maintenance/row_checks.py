"""Check all rows of one conversation: each is unchanged, none is missing, each is in its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from foldlog.eventstore.log.past import Link, follows
from foldlog.eventstore.log.row import Chain, border, link_of, sound_rows
from foldlog.eventstore.log.seal import DAMAGED, RowCodec
from foldlog.eventstore.maintenance.damage import Unreadable, next_there, raise_unless_damage, readable_rows
from foldlog.eventstore.maintenance.redaction_receipts import KIND, Receipts
from foldlog.eventstore.recorders.base import Reader, Recorder
from foldlog.eventstore.recorders.errors import RecorderError
from foldlog.eventstore.recorders.types import Conversation, Row

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


def salt_of(found: Conversation, codec: RowCodec) -> bytes:
    """Return the salt of a conversation, empty where it is lost."""
    return found.salt if codec.data_key is None else codec.data_key.salt


def start_of(reader: Reader, found: Conversation, salt: bytes, links: Sequence[Link]) -> Start:
    """Return where the rows of a conversation begin: for a fork, after its parent's last shared event."""
    if found.parent is None:
        return Start(0, follows(found.id, salt, links, 0, None)[0], (0, 0))
    begins = found.begins
    rows = reader.rows(found.parent, begins - 1, begins, 1)
    if not rows or type(rows[0].proof) is not bytes:
        return Start(begins, None, None)
    last = rows[0]
    counts = last.shown_before + last.shown, last.structural_before + last.structural
    return Start(begins, border(found.id, salt, begins, last.head), counts)


class HashChain:
    """The hash chain along the rows of a conversation. After a gap, and without a salt, its head is unknown: None."""

    def __init__(self, conversation: str, salt: bytes, links: Sequence[Link], head: bytes | None) -> None:
        self._conversation, self._salt, self._links = conversation, salt, links
        self.head = head if salt else None
        self.follow = self.stray = 0
        """The numbers of rows that follow the head before them, and of those that do not: if none does, the salt may
        have been changed.
        """

    def before(self, event_id: int) -> tuple[bytes, bytes] | None:
        """Return the head and the salt from which the next head is computed; None where they are unknown."""
        if self.head is None:
            return None
        return follows(self._conversation, self._salt, self._links, event_id, self.head)

    def skip(self, count: int, head: bytes) -> None:
        """Go on behind rows that follow each other, the last of them with this head."""
        self.follow += count
        self.head = head

    def take(self, row: Row) -> bool:
        """Go on to a plain row. Return whether it follows the head before it; true where that is unknown."""
        before = self.before(row.id)
        is_next = before is None or link_of(*before, row) == row.head
        if before is not None:
            self.follow += is_next
            self.stray += not is_next
        self.head = row.head if self._salt else None
        return is_next


class Pass:
    """The pass over one conversation's rows, in the order of their ids."""

    def __init__(
        self,
        codec: RowCodec,
        salt: bytes,
        wanted: dict[int, bytes],
        start: Start,
        links: Sequence[Link],
    ) -> None:
        self.findings: list[VerifyFinding] = []
        self.receipts = Receipts()
        self.wanted = wanted
        """The published heads by version that were not found yet."""
        self._codec = codec
        self.chain = HashChain(codec.conversation, salt, links, start.head)
        self._stops = [link.stop for link in links]
        """Where the salt of copied events changes."""
        self._next = start.id
        self._counts = start.counts

    def over(self, recorder: Recorder, key: int, version: int) -> None:
        """Check all rows of the conversation."""
        while self._next < version:
            page = min(self._next + _PAGE, version, *(stop for stop in self._stops if stop > self._next))
            if not self._sound(recorder, key, page):
                self._look_at_all(recorder, key, page)
                last = self.findings[-1] if self.findings else None
                if last is not None and last.problem in MISSING and last.last == self._next - 1:
                    self._miss(next_there(recorder, key, self._next, version))
        self._miss(version)

    def _sound(self, recorder: Recorder, key: int, stop: int) -> bool:
        """Check quickly whether all rows up to ``stop`` are sound. Skip the sound ones."""
        before = self.chain.before(self._next)
        if before is None or self._counts is None:
            return False
        head, salt = before
        try:
            # Some rows may appear twice.
            rows = recorder.query(lambda reader: reader.rows(key, self._next, stop, 2 * (stop - self._next)))
        except RecorderError as error:
            raise_unless_damage(error)
            return False
        start, after = self._next, Chain(head, self._next, *self._counts)
        count, after = sound_rows(after, salt, self._codec.checksum_seed, rows)
        if count:
            self.chain.skip(count, after.head)
        self._next, self._counts = after.next_id, (after.shown, after.structural)
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
            for stored, row in zip(part, self._codec.decoded(part), strict=True):
                self._look_at(stored, row)
        self._miss(stop)

    def _skip(self, unreadable: Unreadable) -> None:
        self._miss(unreadable.id)
        self._find(unreadable.id, f"it cannot be read: {unreadable.problem}")
        self._next = unreadable.id + 1
        self.chain.head = self._counts = None

    def _look_at(self, stored: Row, row: Row) -> None:
        """Check one row that is encrypted, or near a row that is not sound: both as it is stored and decrypted."""
        if stored.id < self._next:
            self._find(stored.id, "it is stored twice", sound=True)
            return
        if stored.id != self._next:
            self._miss(stored.id)
            self.chain.head = self._counts = None
        if row.encoding == DAMAGED:
            self._find(row.id, row.body.decode())
            self.chain.head = self._counts = None
        else:
            if not self.chain.take(row):
                self._find(row.id, _STRAY)
            elif self._counts not in (None, (row.shown_before, row.structural_before)):
                problem = f"it counts {row.shown_before} shown and {row.structural_before} structural events before it"
                self._find(row.id, problem, sound=True)
            elif (problem_of_redaction := self.receipts.take(row)) is not None:
                self._find(row.id, problem_of_redaction)
            self._counts = (row.shown_before + row.shown, row.structural_before + row.structural)
        self._next = stored.id + 1
        if self._next in self.wanted and self.wanted[self._next] == stored.head:
            del self.wanted[self._next]

    def _miss(self, until: int) -> None:
        if until <= self._next:
            return
        first = self._next
        if self.findings and self.findings[-1].problem in MISSING and self.findings[-1].last == first - 1:
            first = self.findings.pop().first or 0
        self.findings.append(VerifyFinding(first, until - 1, MISSING[first < until - 1]))
        self._next, self.chain.head, self._counts = until, None, None

    def _find(self, event_id: int, problem: str, *, sound: bool = False) -> None:
        before = self.findings[-1] if self.findings else None
        if before is not None and before.last == event_id - 1 and before[2:4] == (problem, sound):
            self.findings[-1] = before._replace(last=event_id)
        else:
            self.findings.append(VerifyFinding(event_id, event_id, problem, sound))
