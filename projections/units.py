"""What belongs together in a View: calls with their answers, the calls of one response, the steps of a tool loop.

A model refuses a conversation in which a call has no answer, an answer has no call, half of a parallel batch is
missing, or a loop has lost the thinking that it began with. Everything that forgets must therefore know these units.

    answer   the nth action with a call id is answered by the nth observation with it that follows; an observation
             without a call id answers the action that is its ``cause``. One that answers nothing is an orphan.
    batch    the actions of one model response, with their answers. An action without a response id is alone.
    loop     starts at an action with thinking, runs through actions and answers, ends at any other event, or at the
             next action with thinking. Orphans, and events that no model sees, neither belong to it nor end it.

Events that were *left behind*, when a condensation forgot another part of their unit, belong to no unit any more.

All functions are of a View's events in order and the ids of those left behind; positions are indices into these events.
Cost: the events given, once, whatever the length of the history.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from eventstore.events import Action, Annotation, Event, Observation, UnknownEvent

__all__ = ["Batch", "Units", "cut_positions", "fit_positions", "parted", "units"]


@dataclass(slots=True)
class Batch:
    """The calls of one response. ``answers`` holds, for each of ``actions``, its answer's position or None."""

    actions: list[int] = field(default_factory=list)
    answers: list[int | None] = field(default_factory=list)

    @property
    def members(self) -> list[int]:
        return [*self.actions, *(answer for answer in self.answers if answer is not None)]

    @property
    def answered(self) -> bool:
        return None not in self.answers


class Units(NamedTuple):
    """Batches in the order of their first actions; loops as ascending positions; orphans ascending.

    ``seen`` are the positions of what a model may see and what is not left behind.
    """

    batches: list[Batch]
    loops: list[list[int]]
    orphans: list[int]
    seen: list[int]


class _Calls:
    """Calls that wait for an answer, each found by its call id and by its event's id."""

    def __init__(self) -> None:
        self._by_call_id: dict[str, deque[int]] = {}
        self._by_event_id: dict[int, tuple[Batch, int]] = {}

    def opened(self, action: Action, batch: Batch) -> None:
        self._by_event_id[action.id] = batch, len(batch.actions) - 1
        if action.call_id is not None:
            self._by_call_id.setdefault(action.call_id, deque()).append(action.id)

    def answered(self, observation: Observation, position: int) -> bool:
        """Give the answer to the call that waits for it; False where none does."""
        if observation.call_id is None:
            waiting = self._by_event_id.pop(observation.cause, None) if observation.cause is not None else None
        else:
            queue = self._by_call_id.get(observation.call_id, ())
            waiting = None
            while queue and waiting is None:  # one that was answered through its ``cause`` is still queued
                waiting = self._by_event_id.pop(queue.popleft(), None)
        if waiting is None:
            return False
        batch, place = waiting
        batch.answers[place] = position
        return True


def units(events: Sequence[Event], left_behind: Set[int] = frozenset()) -> Units:
    """The units of a View."""
    found = Units([], [], [], [])
    calls = _Calls()
    of_response: dict[str, Batch] = {}
    loop: list[int] | None = None
    for position, event in enumerate(events):
        kind = type(event)
        if kind in _UNSEEN or event.id in left_behind:
            continue
        found.seen.append(position)
        if isinstance(event, Action):
            batch = of_response.get(event.response_id) if event.response_id is not None else None
            if batch is None:
                batch = Batch()
                found.batches.append(batch)
                if event.response_id is not None:
                    of_response[event.response_id] = batch
            batch.actions.append(position)
            batch.answers.append(None)
            calls.opened(event, batch)
            if event.thinking:
                loop = []
                found.loops.append(loop)
        elif isinstance(event, Observation):
            if not calls.answered(event, position):
                found.orphans.append(position)
                continue
        else:
            loop = None
        if loop is not None:
            loop.append(position)
    return found


_UNSEEN = frozenset({Annotation, UnknownEvent})
"""Kinds that a View may hold, where their writer said so, but that have no form as chat messages."""


def parted(events: Sequence[Event], left_behind: Set[int], is_forgotten: Callable[[int], bool]) -> set[int]:
    """Ids of what stays of each unit that loses a member when the events at some positions are forgotten."""
    found = units(events, left_behind)
    stay: set[int] = set()
    for members in (*(batch.members for batch in found.batches), *found.loops):
        staying = [position for position in members if not is_forgotten(position)]
        if len(staying) < len(members):
            stay.update(events[position].id for position in staying)
    return stay


def fit_positions(events: Sequence[Event], left_behind: Set[int]) -> list[int]:
    """Positions of what can be sent to a model, ascending: whole, answered batches and whole loops.

    Dropped are what was left behind, orphans, every batch with an unanswered call, and then, until nothing changes,
    each batch that lost a member, and each loop that lost something before its last surviving member. A call that waits
    at the end of a loop costs the loop nothing.
    """
    found = units(events, left_behind)
    kept = set(found.seen).difference(found.orphans)
    kept.difference_update(*(batch.members for batch in found.batches if not batch.answered))
    batches = [batch.members for batch in found.batches if batch.answered]
    changed = True
    while changed:
        broken = [loop for loop in found.loops if _is_broken(loop, kept)]
        broken += [members for members in batches if not kept.issuperset(members)]
        before = len(kept)
        kept.difference_update(*broken)
        changed = len(kept) < before
    return [position for position, event in enumerate(events) if position in kept or type(event) in _UNSEEN]


def _is_broken(loop: list[int], kept: set[int]) -> bool:
    """Whether something is gone before the last member that is kept."""
    surviving = [place for place, position in enumerate(loop) if position in kept]
    return bool(surviving) and surviving[-1] >= len(surviving)


def cut_positions(events: Sequence[Event], left_behind: Set[int]) -> tuple[int, ...]:
    """Every index at which the events may be cut, of 0 to their number: forgetting what lies between two such indices
    takes nothing away from what stays.

    Not inside a batch, from its first action to its last answer, nor inside a loop; and not behind the start of a
    *pending* batch, one that has an unanswered call and is followed by nothing but its own members, so that no call is
    forgotten before its answer comes. Unanswered calls that others follow are abandoned: they hinder nothing.
    """
    found = units(events, left_behind)
    free = [True] * (len(events) + 1)
    spans = list(found.loops)
    for batch in found.batches:
        if batch.answered:
            spans.append(sorted(batch.members))
        elif _is_pending(batch, found.seen):
            spans.append([batch.actions[0], len(events)])
    for span in spans:
        inside = slice(span[0] + 1, span[-1] + 1)
        free[inside] = [False] * (span[-1] - span[0])
    return tuple(position for position, may_cut in enumerate(free) if may_cut)


def _is_pending(batch: Batch, seen: list[int]) -> bool:
    members = sorted(batch.members)
    return seen[-len(members) :] == members
