"""Who is left behind: what stays of a unit when a condensation forgets another part of it.

``parted_by_ids`` finds it for anything that is forgotten. Nearly always that is one piece of the View, and then a look
at what is open at its two borders will do: a fold looks at every condensation, and should cost little more than that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set

from eventstore.events import Action, Event, Observation
from projections.units import UNSEEN, units

__all__ = ["parted_by_ids", "parted_by_piece"]


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
