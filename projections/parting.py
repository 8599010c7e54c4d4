"""Who is left behind: what stays of a unit when a condensation forgets another part of it.

The definition is ``parted_by_ids``, at one condensation after the other. Two things make it cheap. What is forgotten is
nearly always one piece of the View, and then a look at what is open at its borders will do: ``parted_by_piece``. And in
a long fold only those matter who are still shown at its end. So as soon as condensations seem to respect units,
``Parting`` looks no closer than it must to say in the end that nobody who is shown was left behind. Where it cannot say
so, the fold is run again and looks at each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence, Set
from typing import NamedTuple

from eventstore.events import Action, Event, Observation
from projections.units import UNSEEN, units

__all__ = ["Parting", "parted_by_ids", "parted_by_piece"]

TRIALS = 4
"""Condensations that part nothing before hope begins that the next ones will not either."""

RECENT = 4
"""Condensations that are remembered with what they forgot: more than those that the end of a View lived through."""


class _Cut(NamedTuple):
    """What the structural event with id ``by`` forgot, and the first id of it."""

    by: int
    first: int
    gone: Sequence[Event]


class Parting:
    """Who is left behind, while a fold goes on. A hopeful one may not know in the end."""

    def __init__(self, left_behind: frozenset[int], *, hopeful: bool) -> None:
        self._left_behind = left_behind
        self._trials_left = TRIALS if hopeful and not left_behind else -1
        self._head: Sequence[Event] = ()
        self._keys = _Keys(())
        self._heads_are_whole = True
        self._recent: deque[_Cut] = deque()
        self._older_by = self._older_first = -1

    def forget(self, by: int, shown: Sequence[Event], head: Sequence[Event], gone: Sequence[Event]) -> None:
        """A View of the events ``shown``, which begins with ``head``, forgets ``gone``, of which the first is next."""
        start, stop = len(head), len(head) + len(gone)
        in_one_piece = stop <= len(shown) and shown[start] is gone[0] and shown[stop - 1] is gone[-1]
        if self._trials_left == 0:
            # What stands between two pieces is neither head nor tail, so there is no more to hope for.
            self._heads_are_whole = self._heads_are_whole and in_one_piece
            self._hope(by, head, gone)
            return
        if in_one_piece:
            parted = parted_by_piece(shown, self._left_behind, start, stop)
        else:
            parted = parted_by_ids(shown, self._left_behind, {event.id for event in gone})
        if parted:
            self._trials_left = -1
        elif self._trials_left > 0:
            self._trials_left -= 1
        if parted or self._left_behind:
            self._left_behind = (self._left_behind | parted).difference([event.id for event in gone])

    def left_behind(self, items: Sequence[Event]) -> frozenset[int] | None:
        """Ids of those left behind of ``items``, the View at the end; None where that is not known."""
        return self._left_behind if self._trials_left != 0 or self._is_plain(items) else None

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
        """Whether plainly no call or answer that is shown was in one unit with one that was forgotten.

        Most condensations were lived through by the beginning of the View alone, which was looked at each time.
        """
        living = [event for event in items if type(event) is Action or type(event) is Observation]
        for cut in reversed(self._recent):
            living = [event for event in living if event.id < cut.by]
            if not living:
                return self._heads_are_whole
            if living[-1].id > cut.first and not _Keys(living).are_apart_from(cut.gone, behind=False):
                return False
        return self._heads_are_whole and not any(self._older_first < event.id < self._older_by for event in living)


class _Keys:
    """What may hold some events of a View, given in order, together with others: call ids, response ids, thinking."""

    def __init__(self, events: Sequence[Event]) -> None:
        acts = [event for event in events if type(event) is Action or type(event) is Observation]
        open_calls = _OpenCalls()
        self._none = not acts
        self._plain = open_calls.read(acts, ()) and not open_calls.thinking
        self._waiting = open_calls.waiting
        self._responses = {event.response_id for event in acts if type(event) is Action} - {None}
        self._calls = {event.call_id for event in acts}

    def are_apart_from(self, gone: Sequence[Event], *, behind: bool) -> bool:
        """Whether plainly none of ``gone``, which all come ``behind`` these or may not, was in one unit with them.

        Cost: ``gone``.
        """
        if self._none or not self._plain:
            return self._none
        responses: Set[str | None] = self._responses
        if [e for e in gone if type(e) is Action and (e.response_id in responses or e.thinking)]:
            return False
        if behind and not self._waiting:
            return True  # all calls among these are answered, and an answer never comes before its call
        calls = self._calls | {None}
        return None not in self._calls and not [
            e for e in gone if (type(e) is Action or type(e) is Observation) and e.call_id in calls
        ]


def parted_by_ids(events: Sequence[Event], left_behind: Set[int], forgotten: Set[int]) -> set[int]:
    """Ids of what stays of each unit that loses a member when the events with the ``forgotten`` ids go."""
    batches, _, loops, _, _ = units(events, left_behind)
    gone = {position for position, event in enumerate(events) if event.id in forgotten}
    parted: set[int] = set()
    for members in (*(batch.members for batch in batches), *loops):
        if not gone.isdisjoint(members):
            parted.update(members)
    return {events[position].id for position in parted - gone}


def parted_by_piece(events: Sequence[Event], left_behind: Set[int], start: int, stop: int) -> set[int]:
    """The same when ``events[start:stop]`` go."""
    head, piece, tail = events[:start], events[start:stop], events[stop:]
    if left_behind:
        head, piece, tail = ([event for event in part if event.id not in left_behind] for part in (head, piece, tail))
    answers = _answers_parted(head, piece, tail)
    if answers is None:
        return parted_by_ids(events, left_behind, {event.id for event in events[start:stop]})
    return answers


def _answers_parted(head: Sequence[Event], piece: Sequence[Event], tail: Sequence[Event]) -> set[int] | None:
    """Ids of the answers in the tail to calls in the piece, where no more than these can be left behind; else None."""
    open_calls = _OpenCalls()
    if not open_calls.read(head, ()) or open_calls.waiting:
        return None  # the answer to a call in the head may be in the piece
    responses = {event.response_id for part in (head, tail) for event in part if type(event) is Action}
    if not open_calls.read(piece, responses):
        return None
    if open_calls.thinking and (_is_in_loop(head, piece) or _is_in_loop([*head, *piece], tail)):
        return None
    return open_calls.answers(tail) if open_calls.waiting else set()


class _OpenCalls:
    """Calls that wait for an answer, by call id or else by the action's id, while events are read in order."""

    def __init__(self) -> None:
        self.waiting: list[str | int | None] = []
        self.thinking = False

    def read(self, events: Sequence[Event], elsewhere: Collection[str | None]) -> bool:
        """False where a call is of a response with calls elsewhere, or it is not plain which call is answered."""
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
        """Ids of the answers to the calls that wait; None where that is not plain."""
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
        """Whether an answer without a call id may be to a call that waits by its call id."""
        return any(isinstance(call, str) for call in self.waiting)


def _is_in_loop(before: Sequence[Event], after: Sequence[Event]) -> bool:
    """Whether a tool loop may go on across this border. Orphans count as answers here, which errs on the safe side."""
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
