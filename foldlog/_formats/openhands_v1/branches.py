"""Follow the branches of a log, a tree of events: ``parent_id`` names the event before each one. Old logs name no
parents.

A step that does not follow the newest step is a *switch* to another branch. Its events come after a retraction to the
version at which the step that it follows was the newest, so that the View there is the branch of that step. Going back
to a branch that was left works the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from foldlog._formats.openhands_v1.standing import Note, StandingIds

_NOT_A_STEP = frozenset({"ConversationStateUpdateEvent", "ConversationErrorEvent"})
"""Kinds of records that cannot be the end of a branch."""
_ROOT = "__root__"


class Place:
    """A step: the step before it, the version after it, its change of the View, and whether a condensation is requested
    after it.
    """

    __slots__ = ("above", "notes", "requested", "version")

    def __init__(self, above: Place | None, version: int, standing: StandingIds) -> None:
        self.above = above
        self.version = version
        self.notes = standing.take_notes()
        self.requested = standing.awaits_condensation

    def notes_from_root(self) -> Sequence[list[Note]]:
        """Return the changes of the steps of this branch, from the root on."""
        path = [self.notes]
        place = self.above
        while place is not None:
            path.append(place.notes)
            place = place.above
        return path[::-1]


class Branches:
    """The steps of a log that branches, while its records are read in order. Memory: some words for each record.

    ``leaf`` is the id of the step in which the active branch ends; None means the last step. ``last`` is the number of
    the last event, where there is a leaf.
    """

    def __init__(self, leaf: str | None = None, last: int = -1) -> None:
        self._leaf, self._last = leaf, last
        self._places: dict[str, Place | None] = {}
        self._newest: Place | None = None
        self._previous: Place | None = None
        self._root = Place(None, 0, StandingIds())

    def before(self, record: dict[str, Any]) -> Place | None:
        """Return the place to return to before this record, or None if it follows the newest step."""
        if self._newest is None or not _is_step(record):
            return None
        above = self._followed(record)
        return None if above is self._newest else above or self._root

    def after(self, record: dict[str, Any], number: int, version: int, standing: StandingIds) -> Place | None:
        """Remember a record whose events brought the log to ``version``. If it is the last record and not on the active
        branch, return the place of the active branch to go to.
        """
        place = self._followed(record)
        if _is_step(record):
            self._newest = place = Place(place, version, standing)
        self._previous = place
        if type(record.get("id")) is str:
            self._places[record["id"]] = place
        if number != self._last or self._leaf is None:
            return None
        leaf = self._places.get(self._leaf, self._newest)
        return None if leaf is self._newest else leaf or self._root

    def _followed(self, record: dict[str, Any]) -> Place | None:
        parent = record.get("parent_id")
        return self._places.get(parent) if type(parent) is str else self._previous


class Trunk:
    """Follows the parents of records as long as the log has one branch."""

    def __init__(self) -> None:
        self.ends: tuple[Any, Any] = (None, None)
        """The id of the last record, and that of the last step."""
        self._has_begun = False

    def takes(self, record: Any) -> bool:
        """Return whether the next record continues the one branch. Then it is the last one."""
        if type(record) is not dict or type(record.get("kind")) is not str:
            return True  # it is not an event
        parent = record.get("parent_id")
        if type(parent) is str and (self._has_begun if parent == _ROOT else parent not in self.ends):
            return False
        own_id = record.get("id")
        self.ends = (own_id, own_id if _is_step(record) else self.ends[1])
        self._has_begun = True
        return True


def find_branches(records: Iterable[Any], leaf: str) -> Branches | None:
    """Return the branches of a log; None if it has one branch, which ends in ``leaf``. Cost: one pass."""
    trunk, last, is_linear = Trunk(), -1, True
    for number, record in enumerate(records):
        if type(record) is dict and type(record.get("kind")) is str:
            last = number
            is_linear = is_linear and trunk.takes(record)
    return None if is_linear and leaf in trunk.ends else Branches(leaf, last)


def _is_step(record: dict[str, Any]) -> bool:
    return record.get("kind") not in _NOT_A_STEP
