"""Find records that a log contains twice. A program may append a file to itself, or write a line
again.
"""

from __future__ import annotations

from array import array
from datetime import UTC, datetime

from foldlog.eventstore import Annotation, Event
from foldlog.formats.resuming import DecoderState, Facts, Past, time_of

REPEATED = "repeated record"
"""The name of the annotation for a record that repeats an earlier record."""
_RECORDS_MIN = 3
"""The smallest number of equal records that count as a repetition. Fewer equal records may be a
message that was sent again.
"""


class Repeats:
    """Recognizes records that repeat an earlier record.

    A record with an id is a repetition if it is equal to an earlier record. In a log with times, a
    repetition begins with a copy of the first record, or with a copy that is older than the newest
    record. The repetition goes on as long as the records come in their earlier order.

    A record takes about 100 bytes of memory.
    """

    def __init__(self, past: Past, state: DecoderState | None = None) -> None:
        """Continue from ``state``, which has only the first record."""
        self._past = past
        self._keys_with_id = set[int]()
        self._in_order = array("q", () if state is None else (state.first,))
        self._places = dict[int, int]()
        self._newest = datetime.min.replace(tzinfo=UTC) if state is None else time_of(state.newest)
        self._is_timed = state is not None and state.is_timed
        self._again = 0
        """The number of the record that the last record repeats, counted from 1, or 0 if the last
        record was new.
        """

    def state(self, reported: set[int], facts: Facts) -> DecoderState | None:
        """Return the state after the last record, or None if this record was a repetition."""
        if self._again or not self._in_order:
            return None
        return self._past.state(
            self._in_order[0], self._newest, reported, facts, is_timed=self._is_timed
        )

    def has(self, key: int, at: datetime | None) -> bool:
        """Return whether the next record is a repetition. ``at`` is the time of the record, or None
        if the record has an id.
        """
        if not self._past.is_whole:
            self._check_window(key, at)
        return key in self._keys_with_id or (self._is_timed and self._repeated_place(key, at) > 0)

    def add(self, key: int, at: datetime | None, *, has_own_id: bool, is_timed: bool) -> bool:
        """Add a record, which the methods ``has`` and ``add`` recognize later.

        ``at`` is the time of the record, or None if the record has an id. If ``has_own_id`` is
        true, every later record with the same key is a repetition. ``is_timed`` of the first record
        says whether the log has times. Return whether the log has no times, and so far consists of
        two equal halves.
        """
        if has_own_id:
            self._keys_with_id.add(key)
        if not self._in_order:
            self._is_timed = is_timed
        if has_own_id and not self._is_timed:
            self._again = 0
        else:
            self._again = self._repeated_place(key, at)
        if at is not None:
            self._past.set_time(at)
            self._places.setdefault(key, len(self._in_order))
            self._newest = max(self._newest, at)
        self._in_order.append(key)
        return (
            not self._is_timed
            and self._again >= _RECORDS_MIN
            and 2 * self._again == len(self._in_order)
        )

    def _check_window(self, key: int, at: datetime | None) -> None:
        """Raise ``NeedsAll`` if the next record may repeat one from before the window. An equal
        record has the same id or the same time.
        """
        is_old = at is not None and self._past.is_before(at)
        if is_old or key in self._places or key == self._in_order[0]:
            self._past.needs_all()

    def _repeated_place(self, key: int, at: datetime | None) -> int:
        """Return the number of the record that the next record repeats, counted from 1. Return 0
        for a new record.
        """
        if not self._in_order:
            return 0
        # the expected record comes after the last repeated record; if the last record was new, the
        # expected record is the first record
        if self._in_order[self._again] == key:
            return self._again + 1
        is_late = self._is_timed and at is not None and at < self._newest
        if is_late:
            return self._places.get(key, -1) + 1
        return int(self._in_order[0] == key)


def is_repeated(event: Event) -> bool:
    """Return whether an event stands for a record that repeats an earlier one."""
    return isinstance(event, Annotation) and event.name == REPEATED and event.origin is not None
