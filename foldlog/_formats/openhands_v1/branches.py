"""Follow the branches of a log, a tree of events: ``parent_id`` names the event before each one. Old logs name no
parents.

A step that does not follow the newest step is a *switch* to another branch. Its events come after a retraction to the
version at which the step that it follows was the newest, so that the View there is the branch of that step. Going back
to a branch that was left works the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from foldlog._formats.record import has

_NOT_A_STEP = frozenset({"ConversationStateUpdateEvent", "ConversationErrorEvent"})
"""Kinds of records that cannot be the end of a branch."""


class ShownEvent(NamedTuple):
    """A member of the View: the id of its source, and the call that it makes or answers. ``is_prompt``: whether it is
    a system prompt.
    """

    source_id: str | None = None
    call_id: str | None = None
    is_answer: bool = False
    is_prompt: bool = False


class Place(NamedTuple):
    """A step: the version after it, and whether a condensation is requested there."""

    version: int
    requested: bool


_START = Place(0, requested=False)


class Branches:
    """The steps of a log that branches, while its records are read in order. Memory: some words for each record.

    ``leaf`` is the id of the step in which the active branch ends; None means the last step. ``count`` is the number of
    records, where there is a leaf.
    """

    def __init__(self, leaf: str | None = None, count: int = 0) -> None:
        self._leaf, self._left = leaf, count
        self._places: dict[str, Place | None] = {}
        self._newest: Place | None = None
        self._previous: Place | None = None

    def before(self, record: dict[str, Any]) -> Place | None:
        """Return the place to return to before this record, or None if it follows the newest step."""
        if self._newest is None or not _is_step(record):
            return None
        above = self._followed(record)
        return None if above is self._newest else above or _START

    def after(self, record: dict[str, Any], here: Place) -> Place | None:
        """Remember a record, and the place after its events. If it is the last record and not on the active branch,
        return the place of the active branch to go to.
        """
        place = here if _is_step(record) else self._followed(record)
        if _is_step(record):
            self._newest = place
        self._previous = place
        if type(record.get("id")) is str:
            self._places[record["id"]] = place
        self._left -= 1
        if self._left or self._leaf is None:
            return None
        leaf = self._places.get(self._leaf, self._newest)
        return None if leaf is self._newest else leaf or _START

    def _followed(self, record: dict[str, Any]) -> Place | None:
        parent = record.get("parent_id")
        return self._places.get(parent) if type(parent) is str else self._previous


accepts = has(kind=str)


def _is_step(record: dict[str, Any]) -> bool:
    return record.get("kind") not in _NOT_A_STEP
