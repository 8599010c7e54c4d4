"""What belongs together in a View: actions with their observations, parallel calls, the steps of a tool loop.

A model refuses a conversation in which an action has no observation, an observation has no action, one of several
parallel calls is missing, or a loop has lost the thinking that it began with. So everything that forgets must know
these units.

    observation      the nth action with a call id is answered by the nth later observation with it; an observation
                     without a call id answers the action that is its ``cause``. One that answers nothing is an orphan.
    parallel calls   the actions of one model response, with their observations. An action without a response id is
                     alone.
    loop             starts at an action with thinking, runs through actions and observations, ends at any other event,
                     or at the next action with thinking. Orphans, and events that no model sees, neither belong to it
                     nor end it.
    bond             an event that stays with the next, and the next one, if the agent said or did it; several in a row
                     are one bond. Without such a next event it is a bond of one, which is never sent.

Events that were *left behind*, when a condensation forgot another part of their unit, do not belong to a unit any more.

Units are of a View's events in order and the ids of those left behind; positions are indices into these events.
Cost: the events given, once, whatever the length of the history.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from eventstore.events import Action, Annotation, Event, Observation, UnknownEvent

__all__ = [
    "UNSEEN",
    "ParallelCalls",
    "Units",
    "WaitingCalls",
    "cut_positions",
    "fit_positions",
    "open_positions",
    "pending_positions",
    "units",
]

UNSEEN = frozenset({Annotation, UnknownEvent})
"""Kinds that a View may hold, where their writer said so, but that have no form as chat messages."""


class ParallelCalls:
    """The actions of one response and their observations: ``members`` are positions, ascending, an action first."""

    __slots__ = ("members", "unanswered")

    def __init__(self) -> None:
        self.members: list[int] = []
        self.unanswered = 0


class Units(NamedTuple):
    """Parallel calls in the order of their first actions; ``answers`` are the observations by their actions; loops,
    orphans and bonds are ascending. Of the positions that are not left behind, ``seen`` are those that a model may see,
    ``unseen`` those of kinds without a form as messages.
    """

    parallel_calls: list[ParallelCalls]
    answers: dict[int, int]
    loops: list[list[int]]
    orphans: list[int]
    seen: list[int]
    bonds: list[list[int]]
    unseen: list[int]


def units(events: Sequence[Event], left_behind: Set[int] = frozenset()) -> Units:
    """Return the units of a View."""
    parallel_calls, answers, loops, orphans, seen, _, unseen = found = Units([], {}, [], [], [], [], [])
    waiting = WaitingCalls()
    of_response: dict[str, ParallelCalls] = {}
    of_call: dict[int, ParallelCalls] = {}
    loop: list[int] | None = None
    for position, event in enumerate(events):
        if event.id in left_behind:
            continue
        if type(event) in UNSEEN:
            unseen.append(position)
            continue
        seen.append(position)
        if type(event) is Action:
            response_id = event.response_id
            calls = None if response_id is None else of_response.get(response_id)
            if calls is None:
                calls = ParallelCalls()
                parallel_calls.append(calls)
                if response_id is not None:
                    of_response[response_id] = calls
            calls.members.append(position)
            calls.unanswered += 1
            of_call[position] = calls
            waiting.add(event, position)
            if event.thinking:
                loop = []
                loops.append(loop)
        elif type(event) is Observation:
            call = waiting.take(event)
            if call is None:
                orphans.append(position)
                continue
            answers[call] = position
            calls = of_call[call]
            calls.members.append(position)
            calls.unanswered -= 1
        else:
            loop = None
        if loop is not None:
            loop.append(position)
    if [event for event in events if event.stays_with_next]:
        found.bonds.extend(_bonds(events, left_behind))
    return found


def _bonds(events: Sequence[Event], left_behind: Set[int]) -> Iterator[list[int]]:
    bond: list[int] = []
    for position, event in enumerate(events):
        if event.id in left_behind:
            continue
        if bond and event.source != "agent":
            yield from ([each] for each in bond)  # what came before is without its follower
            bond = []
        if event.stays_with_next:
            bond.append(position)
        elif bond:
            yield [*bond, position]
            bond = []
    yield from ([each] for each in bond)


class WaitingCalls:
    """Positions of actions without an observation yet, found by call id, the oldest first, or by the action's id."""

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
        """Return the position of the action that ``observation`` answers. That action waits no longer."""
        if observation.call_id is None:
            return None if observation.cause is None else self._by_event_id.pop(observation.cause, None)
        queue = self._by_call_id.get(observation.call_id)
        position = None
        while queue and position is None:  # one that was answered by its id is queued under its call id still
            position = self._by_event_id.pop(queue.pop(0), None)
        return position


def fit_positions(found: Units) -> list[int]:
    """Return the positions that can be sent to a model, ascending: whole, answered parallel calls and whole loops.

    Dropped are events left behind, orphans, all parallel calls of which one is unanswered, and then, until nothing
    changes, parallel calls and bonds that lost a member, and each loop that lost an event before its last surviving
    member. A call that waits at the end of a loop costs the loop nothing.
    """
    kept = set(found.seen).difference(found.orphans)
    kept.update(found.unseen)
    kept.difference_update(*(calls.members for calls in found.parallel_calls if calls.unanswered))
    answered = [calls.members for calls in found.parallel_calls if not calls.unanswered]
    shrinking = True
    while shrinking:
        before = len(kept)
        broken = [loop for loop in found.loops if _is_broken(loop, kept)]
        broken += [members for members in answered if not kept.issuperset(members)]
        broken += [bond for bond in found.bonds if len(bond) == 1 or not kept.issuperset(bond)]
        kept.difference_update(*broken)
        shrinking = len(kept) < before
    return sorted(kept)


def _is_broken(loop: list[int], kept: set[int]) -> bool:
    """Return whether a member is gone before the last member that is kept."""
    surviving = [place for place, position in enumerate(loop) if position in kept]
    return bool(surviving) and surviving[-1] >= len(surviving)


def open_positions(events: Sequence[Event], found: Units) -> list[int]:
    """Return the positions of the actions that no observation answers, ascending. Cost: the parallel
    calls that they are among."""
    return sorted(
        position
        for calls in found.parallel_calls
        if calls.unanswered
        for position in calls.members
        if type(events[position]) is Action and position not in found.answers
    )


def pending_positions(found: Units) -> list[int]:
    """Return the positions of the parallel calls that wait for an observation, with the observations that came.

    Calls wait if one of them is unanswered and only their own members come after them. Orphans do not count: an
    observation that is delivered twice does not end the waiting of the other calls. Unanswered calls that other events
    follow are abandoned.
    """
    orphans = set(found.orphans)
    followers = [position for position in found.seen if position not in orphans] if orphans else found.seen
    for calls in reversed(found.parallel_calls):
        if calls.unanswered and followers[-len(calls.members) :] == calls.members:
            return calls.members
    return []


def cut_positions(count: int, found: Units) -> tuple[int, ...]:
    """Return every index, of 0 to ``count``, at which ``count`` events may be cut, given the units found in them.
    Forgetting the events between two such indices takes nothing away from those that stay (but for one case:
    ``docs/decisions/0031-joined-loops.md``).

    Such an index is not inside parallel calls, from their first action to their last observation, nor inside a loop or
    a bond, nor after an event at the end that waits for the one that it stays with.
    It is not after the start of *pending* parallel calls either, so that an action is never forgotten before its
    observation comes. Unanswered calls that are abandoned forbid no index.
    """
    spans = [(loop[0], loop[-1]) for loop in found.loops]
    spans += [(calls.members[0], calls.members[-1]) for calls in found.parallel_calls if not calls.unanswered]
    spans += [(bond[0], bond[-1]) for bond in found.bonds]
    spans += [(bond[0], count) for bond in found.bonds[-1:] if bond == [count - 1]]
    spans += [(pending[0], count) for pending in [pending_positions(found)] if pending]
    free = [True] * (count + 1)
    for first, last in spans:
        free[first + 1 : last + 1] = [False] * (last - first)
    return tuple(position for position, may_cut in enumerate(free) if may_cut)
