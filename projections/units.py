"""What belongs together in a View: calls with their answers, the calls of one response, the steps of a tool loop.

A model refuses a conversation in which a call has no answer, an answer has no call, half of a parallel batch is
missing, or a loop has lost the thinking that it began with. Everything that forgets must therefore know these units.

    answer   the nth action with a call id is answered by the nth observation with it that follows; an observation
             without a call id answers the action that is its ``cause``. One that answers nothing is an orphan.
    batch    the actions of one model response, with their answers. An action without a response id is alone.
    loop     starts at an action with thinking, runs through actions and answers, ends at any other event, or at the
             next action with thinking. Orphans, and events that no model sees, neither belong to it nor end it.

Events that were *left behind*, when a condensation forgot another part of their unit, belong to no unit any more.

Units are of a View's events in order and the ids of those left behind; positions are indices into these events.
Cost: the events given, once, whatever the length of the history.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

from eventstore.events import Action, Annotation, Event, Observation, UnknownEvent

__all__ = ["Batch", "Units", "cut_positions", "fit_positions", "units"]

UNSEEN = frozenset({Annotation, UnknownEvent})
"""Kinds that a View may hold, where their writer said so, but that have no form as chat messages."""


class Batch:
    """The calls of one response and their answers: ``members`` are positions, ascending; the first is a call."""

    __slots__ = ("members", "unanswered")

    def __init__(self) -> None:
        self.members: list[int] = []
        self.unanswered = 0


class Units(NamedTuple):
    """Batches in the order of their first calls; ``answers`` by their calls; loops and orphans, ascending.

    ``seen`` are the positions of what a model may see and what is not left behind.
    """

    batches: list[Batch]
    answers: dict[int, int]
    loops: list[list[int]]
    orphans: list[int]
    seen: list[int]


def units(events: Sequence[Event], left_behind: Set[int] = frozenset()) -> Units:
    """The units of a View."""
    batches, answers, loops, orphans, seen = found = Units([], {}, [], [], [])
    calls = _Calls()
    of_response: dict[str, Batch] = {}
    of_call: dict[int, Batch] = {}
    loop: list[int] | None = None
    for position, event in enumerate(events):
        if type(event) in UNSEEN or event.id in left_behind:
            continue
        seen.append(position)
        if type(event) is Action:
            response_id = event.response_id
            batch = None if response_id is None else of_response.get(response_id)
            if batch is None:
                batch = Batch()
                batches.append(batch)
                if response_id is not None:
                    of_response[response_id] = batch
            batch.members.append(position)
            batch.unanswered += 1
            of_call[position] = batch
            calls.add(event, position)
            if event.thinking:
                loop = []
                loops.append(loop)
        elif type(event) is Observation:
            call = calls.take(event)
            if call is None:
                orphans.append(position)
                continue
            answers[call] = position
            batch = of_call[call]
            batch.members.append(position)
            batch.unanswered -= 1
        else:
            loop = None
        if loop is not None:
            loop.append(position)
    return found


class _Calls:
    """Positions of calls that wait for an answer, found by call id, the oldest first, or by the action's id."""

    def __init__(self) -> None:
        self._by_call_id: dict[str, list[int]] = {}
        self._by_event_id: dict[int, int] = {}

    def add(self, action: Action, position: int) -> None:
        event_id, call_id = action.id, action.call_id
        self._by_event_id[event_id] = position
        if call_id is None:
            return
        if call_id in self._by_call_id:
            self._by_call_id[call_id].append(event_id)
        else:
            self._by_call_id[call_id] = [event_id]

    def take(self, observation: Observation) -> int | None:
        """The call that ``observation`` answers, which waits no longer."""
        if observation.call_id is None:
            return None if observation.cause is None else self._by_event_id.pop(observation.cause, None)
        queue = self._by_call_id.get(observation.call_id)
        position = None
        while queue and position is None:  # one that was answered by its id is queued under its call id still
            position = self._by_event_id.pop(queue.pop(0), None)
        return position


def fit_positions(events: Sequence[Event], found: Units) -> list[int]:
    """Positions of what can be sent to a model, of events and the units found in them, ascending: whole, answered
    batches and whole loops.

    Dropped are what was left behind, orphans, every batch with an unanswered call, and then, until nothing changes,
    each batch that lost a member, and each loop that lost something before its last surviving member. A call that waits
    at the end of a loop costs the loop nothing.
    """
    kept = set(found.seen).difference(found.orphans)
    kept.difference_update(*(batch.members for batch in found.batches if batch.unanswered))
    answered = [batch.members for batch in found.batches if not batch.unanswered]
    shrinking = True
    while shrinking:
        before = len(kept)
        broken = [loop for loop in found.loops if _is_broken(loop, kept)]
        broken += [members for members in answered if not kept.issuperset(members)]
        kept.difference_update(*broken)
        shrinking = len(kept) < before
    return [position for position, event in enumerate(events) if position in kept or type(event) in UNSEEN]


def _is_broken(loop: list[int], kept: set[int]) -> bool:
    """Whether something is gone before the last member that is kept."""
    surviving = [place for place, position in enumerate(loop) if position in kept]
    return bool(surviving) and surviving[-1] >= len(surviving)


def cut_positions(count: int, found: Units) -> tuple[int, ...]:
    """Every index, of 0 to ``count``, at which so many events may be cut, of the units found in them: forgetting what
    lies between two such indices takes nothing away from what stays (but for one case:
    ``docs/decisions/0031-joined-loops.md``).

    Not inside a batch, from its first action to its last answer, nor inside a loop; and not behind the start of a
    *pending* batch, one that has an unanswered call and is followed by nothing but its own members, so that no call is
    forgotten before its answer comes. Unanswered calls that others follow are abandoned: they hinder nothing.
    """
    spans = [(loop[0], loop[-1]) for loop in found.loops]
    for batch in found.batches:
        if not batch.unanswered:
            spans.append((batch.members[0], batch.members[-1]))
        elif found.seen[-len(batch.members) :] == batch.members:
            spans.append((batch.members[0], count))
    free = [True] * (count + 1)
    for first, last in spans:
        free[first + 1 : last + 1] = [False] * (last - first)
    return tuple(position for position, may_cut in enumerate(free) if may_cut)
