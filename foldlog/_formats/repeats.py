"""Find records that stand in a log twice: a file that was written behind itself, or a line that was written again."""

from __future__ import annotations

from array import array
from typing import Any

from foldlog._formats.packing import bytes_of
from foldlog.eventstore import Annotation, Event

REPEATED = "repeated record"
"""The name of the annotation of a record that is an earlier one again."""
_RECORDS_MIN = 3
"""Fewer records that come again may be the same words, said twice."""


class Repeats:
    """Tells which records are earlier ones again: those with an id of their own, and those that begin with the first
    record of the log and follow in its order, if that tells its time.

    ``is_begun``: whether there are records before the first one. Memory: some words for each record.
    """

    def __init__(self, *, is_begun: bool) -> None:
        self._is_begun = is_begun
        self._known, self._in_order = set[int](), array("q")
        self._is_timed = False
        self._again = 0
        """How many of the first records came again in a row, up to the last record."""

    def has(self, key: int) -> bool:
        """Return whether the record with this key is an earlier one again."""
        return key in self._known or (self._is_timed and self._place(key) > 0)

    def add(self, key: int, *, is_own: bool, is_timed: bool) -> bool:
        """Take notice of a record. Return whether it is the last of several that are equal to all before them, of which
        none tells that they are the same.
        """
        if is_own:
            self._known.add(key)
        if self._is_begun:
            return False
        self._is_timed = self._is_timed if self._in_order else is_timed
        self._again = 0 if is_own and not self._is_timed else self._place(key)
        self._in_order.append(key)
        return not self._is_timed and self._again >= _RECORDS_MIN and 2 * self._again == len(self._in_order)

    def _place(self, key: int) -> int:
        """Return how many of the first records come again with the next one."""
        if not self._in_order:
            return 0
        return self._again + 1 if self._in_order[self._again] == key else int(self._in_order[0] == key)


def key_of(record: Any) -> int:
    """Return a number that equal records have in this process, and no others."""
    return hash(bytes_of(record))


def is_repeated(event: Event) -> bool:
    """Return whether an event stands for a record that is an earlier one again."""
    return isinstance(event, Annotation) and event.name == REPEATED and event.origin is not None
