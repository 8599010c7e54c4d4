"""Find the events that are left behind: they stay when a condensation forgets another part of their unit.

``left_behind_by_ids`` is the definition, applied to one condensation after the other. The forgotten events are nearly
always one piece of the View, and then the open calls at its borders decide: ``left_behind_by_piece``.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

from eventstore import Action, Event, Observation
from projections.units import UNSEEN, units


def left_behind_after(
    shown: Sequence[Event], left_behind: frozenset[int], start: int, gone: Sequence[Event]
) -> frozenset[int]:
    """Return the ids of the events left behind after a View of ``shown`` loses ``gone``, which begin at ``start``."""
    stop = start + len(gone)
    if stop <= len(shown) and shown[start] is gone[0] and shown[stop - 1] is gone[-1]:
        parted = left_behind_by_piece(shown, left_behind, start, stop)
    else:
        parted = left_behind_by_ids(shown, left_behind, {event.id for event in gone})
    return (left_behind | parted).difference([event.id for event in gone]) if parted or left_behind else left_behind


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
    answers = _answers_parted(head, piece, tail)
    if answers is None:
        return left_behind_by_ids(events, left_behind, {event.id for event in events[start:stop]})
    return answers


def _answers_parted(head: Sequence[Event], piece: Sequence[Event], tail: Sequence[Event]) -> set[int] | None:
    """Return the ids of the observations in the tail for calls in the piece; None if other events may be left
    behind.
    """
    if (head and head[-1].stays_with_next) or (piece and piece[-1].stays_with_next):
        return None
    of_head = _read_calls(head, frozenset())
    if of_head is None or of_head.waiting:
        return None  # the observation of a call in the head may be in the piece
    responses = {event.response_id for part in (head, tail) for event in part if type(event) is Action}
    of_piece = _read_calls(piece, responses - {None})
    if of_piece is None:
        return None
    thinking = of_head.thinking or of_piece.thinking
    if thinking and (_is_in_loop(head, piece) or _is_in_loop([*head, *piece], tail)):
        return None
    return _answers(tail, of_piece.waiting) if of_piece.waiting else set()


class _Calls(NamedTuple):
    """The calls of some events: those that wait for an observation at the end, by call id or else by the action's id,
    and whether an action has thinking.
    """

    waiting: list[str | int | None]
    thinking: bool


def _read_calls(events: Sequence[Event], elsewhere: Set[str | None]) -> _Calls | None:
    """Return the calls of ``events``. Return None if one of their responses has calls elsewhere too, or an observation
    may belong to one of several calls.
    """
    waiting: list[str | int | None] = []
    thinking = False
    for event in events:
        if type(event) is Action:
            call_id = event.call_id
            waiting.append(event.id if call_id is None else call_id)
            if event.response_id in elsewhere:
                return None
            if event.thinking:
                thinking = True
        elif type(event) is Observation:
            call_id = event.call_id
            call = event.cause if call_id is None else call_id
            if call in waiting:
                waiting.remove(call)
            elif call_id is None and _may_wait_by_call_id(waiting):
                return None
    return _Calls(waiting, thinking)


def _answers(events: Sequence[Event], waiting: list[str | int | None]) -> set[int] | None:
    """Return the ids of the observations of the calls that wait; None if one may belong to several calls."""
    answers: set[int] = set()
    for event in events:
        if type(event) is Observation:
            call = event.cause if event.call_id is None else event.call_id
            if call in waiting:
                waiting.remove(call)
                answers.add(event.id)
            elif event.call_id is None and _may_wait_by_call_id(waiting):
                return None
    return answers


def _may_wait_by_call_id(waiting: Sequence[str | int | None]) -> bool:
    """Return whether an observation without a call id may belong to a call that waits by its call id."""
    return any(isinstance(call, str) for call in waiting)


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
