"""Find the events that are left behind: they stay when a condensation forgets another part of their unit.

``left_behind_by_ids`` is the definition, applied to one condensation after the other. Two shortcuts make it cheap.
First, the forgotten events are nearly always one piece of the View, and then the open calls at its borders decide:
``left_behind_by_piece``. Second, in a long fold only the events that are still shown at its end matter. So once
condensations seem to respect units, ``LeftBehind`` becomes hopeful: it only checks, at the end, that no shown event was
left behind. If it cannot tell, the fold runs again and examines each condensation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence, Set
from operator import attrgetter
from typing import NamedTuple

from eventstore.events import Action, Event, Observation
from projections.units import UNSEEN, units

__all__ = ["LeftBehind", "left_behind_by_ids", "left_behind_by_piece"]

TRIALS = 4
"""A fold becomes hopeful after this number of condensations that left nothing behind."""

RECENT = 4
"""The number of newest condensations whose forgotten events are remembered. The events at the end of a View saw few
condensations.
"""


_stays_with_next = attrgetter("stays_with_next")


class _Cut(NamedTuple):
    """The events that the structural event with id ``by`` forgot, and the first id of them."""

    by: int
    first: int
    gone: Sequence[Event]


class LeftBehind:
    """The events left behind during a fold. A hopeful one may not know them at the end."""

    def __init__(self, left_behind: frozenset[int], *, hopeful: bool) -> None:
        self._left_behind = left_behind
        self._trials_left = TRIALS if hopeful and not left_behind else -1
        self._head: Sequence[Event] = ()
        self._keys = _Keys(())
        self._heads_are_whole = True
        self._recent: deque[_Cut] = deque()
        self._older_by = self._older_first = -1

    def forget(self, by: int, shown: Sequence[Event], head: Sequence[Event], gone: Sequence[Event]) -> None:
        """Note that the event ``by`` forgets ``gone``: in a View of ``shown``, ``gone`` begins after ``head``."""
        start, stop = len(head), len(head) + len(gone)
        in_one_piece = stop <= len(shown) and shown[start] is gone[0] and shown[stop - 1] is gone[-1]
        if self._trials_left == 0:
            # Events between two pieces are neither head nor tail, so it can no longer be hopeful.
            self._heads_are_whole = self._heads_are_whole and in_one_piece
            self._hope(by, head, gone)
            return
        if in_one_piece:
            parted = left_behind_by_piece(shown, self._left_behind, start, stop)
        else:
            parted = left_behind_by_ids(shown, self._left_behind, {event.id for event in gone})
        if parted:
            self._trials_left = -1
        elif self._trials_left > 0:
            self._trials_left -= 1
        if parted or self._left_behind:
            self._left_behind = (self._left_behind | parted).difference([event.id for event in gone])

    def left_behind(self, items: Callable[[], Sequence[Event]]) -> frozenset[int] | None:
        """Return the ids of ``items``, the View at the end, that were left behind; None where that is not known."""
        return self._left_behind if self._trials_left != 0 or self._is_plain(items()) else None

    def _hope(self, by: int, head: Sequence[Event], gone: Sequence[Event]) -> None:
        if head != self._head:
            self._head, self._keys = head, _Keys(head)
        self._heads_are_whole = self._heads_are_whole and self._keys.are_apart_from(gone, behind=True)
        first = next((event.id for event in gone if event.id >= 0), by)
        self._recent.append(_Cut(by, first, gone))
        if len(self._recent) > RECENT:
            older = self._recent.popleft()
            self._older_by = older.by
            self._older_first = older.first if self._older_first < 0 else min(older.first, self._older_first)

    def _is_plain(self, items: Sequence[Event]) -> bool:
        """Return whether certainly no shown action or observation shared a unit with a forgotten one.

        Only the beginning of the View is older than most condensations, and it was examined each time.
        """
        living = [e for e in items if type(e) is Action or type(e) is Observation or e.stays_with_next]
        for cut in reversed(self._recent):
            living = [event for event in living if event.id < cut.by]
            if not living:
                return self._heads_are_whole
            if living[-1].id > cut.first and not _Keys(living).are_apart_from(cut.gone, behind=False):
                return False
        return self._heads_are_whole and not any(self._older_first < event.id < self._older_by for event in living)


class _Keys:
    """The ties of some events of a View, in order, to other events: call ids, response ids, thinking, bonds."""

    def __init__(self, events: Sequence[Event]) -> None:
        acts = [event for event in events if type(event) is Action or type(event) is Observation]
        open_calls = _OpenCalls()
        bound = any(map(_stays_with_next, events))
        self._none = not acts and not bound
        self._plain = open_calls.read(acts, ()) and not open_calls.thinking and not bound
        self._waiting = open_calls.waiting
        self._responses = {event.response_id for event in acts if type(event) is Action} - {None}
        self._calls = {event.call_id for event in acts}

    def are_apart_from(self, gone: Sequence[Event], *, behind: bool) -> bool:
        """Return whether certainly none of ``gone`` shared a unit with these events. ``behind``: all of ``gone`` come
        later.

        Cost: ``gone``.
        """
        if any(map(_stays_with_next, gone)):
            return False
        if self._none or not self._plain:
            return self._none
        responses: Set[str | None] = self._responses
        if [e for e in gone if type(e) is Action and (e.response_id in responses or e.thinking)]:
            return False
        if behind and not self._waiting:
            return True  # all of these calls have their observations, and an observation never comes before its call
        calls = self._calls | {None}
        return None not in self._calls and not [
            e for e in gone if (type(e) is Action or type(e) is Observation) and e.call_id in calls
        ]


def left_behind_by_ids(events: Sequence[Event], left_behind: Set[int], forgotten: Set[int]) -> set[int]:
    """Return the ids of the events that stay in a unit when the events with the ``forgotten`` ids leave it."""
    found = units(events, left_behind)
    gone = {position for position, event in enumerate(events) if event.id in forgotten}
    parted: set[int] = set()
    for members in (*(calls.members for calls in found.parallel_calls), *found.loops, *found.bonds):
        if not gone.isdisjoint(members):
            parted.update(members)
    return {events[position].id for position in parted - gone}


def left_behind_by_piece(events: Sequence[Event], left_behind: Set[int], start: int, stop: int) -> set[int]:
    """Return the ids of the events that stay in a unit when ``events[start:stop]`` leave it."""
    head, piece, tail = events[:start], events[start:stop], events[stop:]
    if left_behind:
        head, piece, tail = ([event for event in part if event.id not in left_behind] for part in (head, piece, tail))
    is_bound = any(part and part[-1].stays_with_next for part in (head, piece))
    answers = None if is_bound else _answers_parted(head, piece, tail)
    if answers is None:
        return left_behind_by_ids(events, left_behind, {event.id for event in events[start:stop]})
    return answers


def _answers_parted(head: Sequence[Event], piece: Sequence[Event], tail: Sequence[Event]) -> set[int] | None:
    """Return the ids of the observations in the tail for calls in the piece; None if other events may be left
    behind.
    """
    open_calls = _OpenCalls()
    if not open_calls.read(head, ()) or open_calls.waiting:
        return None  # the observation of a call in the head may be in the piece
    responses = {event.response_id for part in (head, tail) for event in part if type(event) is Action}
    if not open_calls.read(piece, responses):
        return None
    if open_calls.thinking and (_is_in_loop(head, piece) or _is_in_loop([*head, *piece], tail)):
        return None
    return open_calls.answers(tail) if open_calls.waiting else set()


class _OpenCalls:
    """Calls that wait for an observation, by call id or else by the action's id, while events are read in order."""

    def __init__(self) -> None:
        self.waiting: list[str | int | None] = []
        self.thinking = False

    def read(self, events: Sequence[Event], elsewhere: Collection[str | None]) -> bool:
        """Return False if a response has calls elsewhere too, or an observation may belong to one of several calls."""
        waiting = self.waiting
        for event in events:
            if type(event) is Action:
                waiting.append(event.id if event.call_id is None else event.call_id)
                if event.response_id in elsewhere and event.response_id is not None:
                    return False
                if event.thinking:
                    self.thinking = True
            elif type(event) is Observation:
                call = event.cause if event.call_id is None else event.call_id
                if call in waiting:
                    waiting.remove(call)
                elif event.call_id is None and self._may_wait_by_call_id():
                    return False
        return True

    def answers(self, events: Sequence[Event]) -> set[int] | None:
        """Return the ids of the observations of the calls that wait; None if one may belong to several calls."""
        answers: set[int] = set()
        for event in events:
            if type(event) is Observation:
                call = event.cause if event.call_id is None else event.call_id
                if call in self.waiting:
                    self.waiting.remove(call)
                    answers.add(event.id)
                elif event.call_id is None and self._may_wait_by_call_id():
                    return None
        return answers

    def _may_wait_by_call_id(self) -> bool:
        """Return whether an observation without a call id may belong to a call that waits by its call id."""
        return any(isinstance(call, str) for call in self.waiting)


def _is_in_loop(before: Sequence[Event], after: Sequence[Event]) -> bool:
    """Return whether a tool loop may cross this border. To be safe, orphans count as observations here."""
    following = next((event for event in after if type(event) not in UNSEEN), None)
    if not isinstance(following, Action | Observation) or (isinstance(following, Action) and following.thinking):
        return False
    for event in reversed(before):
        if type(event) is Action:
            if event.thinking:
                return True
        elif not isinstance(event, Observation) and type(event) not in UNSEEN:
            return False
    return False
