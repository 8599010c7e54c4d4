"""Find records that stand in a log twice: a file that was written behind itself, or a line that was
written again.
"""

from __future__ import annotations

from array import array
from datetime import UTC, datetime
from typing import Any

from foldlog._formats.json_text import TOO_DEEP, bytes_of
from foldlog._formats.record import NotAnEvent
from foldlog.eventstore import Annotation, Event

REPEATED = "repeated record"
"""The name of the annotation of a record that is an earlier one again."""
_RECORDS_MIN = 3
"""Fewer records that come again may be the same words, said twice."""


class Repeats:
    """Tells which records are earlier ones again: those with an id of their own; in a log that
    tells its times also those that begin with its first record, or with one that happened before
    the newest, and follow in their order.

    Memory: some words for each record.
    """

    def __init__(self) -> None:
        self._known, self._in_order = set[int](), array("q")
        self._places, self._newest = dict[int, int](), datetime.min.replace(tzinfo=UTC)
        self._is_timed = False
        self._again = 0
        """The place after that of the record which the last record is again; 0 for a new one."""

    @property
    def is_again(self) -> bool:
        """Whether the last record is an earlier one again."""
        return self._is_timed and self._again > 0

    def has(self, key: int, at: datetime | None) -> bool:
        """Return whether the record with this key is an earlier one again. ``at`` is when it
        happened, if it has no id of its own.
        """
        return key in self._known or (self._is_timed and self._place(key, at) > 0)

    def add(self, key: int, at: datetime | None, *, is_own: bool, is_timed: bool) -> bool:
        """Take notice of a record. Return whether it is the last of several that are equal to all
        before them, of which none tells that they are the same.
        """
        if is_own:
            self._known.add(key)
        self._is_timed = self._is_timed if self._in_order else is_timed
        if is_own and not self._is_timed:
            self._again = 0
        else:
            self._again = self._place(key, at)
        if at is not None:
            self._places.setdefault(key, len(self._in_order))
            self._newest = max(self._newest, at)
        self._in_order.append(key)
        return (
            not self._is_timed
            and self._again >= _RECORDS_MIN
            and 2 * self._again == len(self._in_order)
        )

    def _place(self, key: int, at: datetime | None) -> int:
        """Return the place after that of the record which the next one is again; 0 for a new
        one.
        """
        if not self._in_order:
            return 0
        if self._in_order[self._again] == key:
            return self._again + 1
        is_late = self._is_timed and at is not None and at < self._newest
        if is_late:
            return self._places.get(key, -1) + 1
        return int(self._in_order[0] == key)


def key_of(record: Any) -> int:
    """Return a number that equal records have in this process, and no others. Raises ``NotAnEvent``
    for one that is nested too deep.
    """
    try:
        return hash(bytes_of(record))
    except RecursionError:
        raise NotAnEvent(TOO_DEEP) from None


def is_repeated(event: Event) -> bool:
    """Return whether an event stands for a record that is an earlier one again."""
    return isinstance(event, Annotation) and event.name == REPEATED and event.origin is not None
