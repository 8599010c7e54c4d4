"""What OpenHands V1 does to a View when it loads a conversation, its faults included.

Four properties are asked in turn which events break them; the first that names some has them dropped, and all are asked
again. Each also says at which indices the View must not be cut. Known to lose whole tool loops to a call that still
waits, and to find no index at all behind a call without an answer: ``projections.units`` does better.

An event is known by its source's id here, so that copies of one id go together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from itertools import pairwise

from eventstore.events import Action, Event, Observation

__all__ = ["PROPERTIES", "cut_points", "enforced"]


def enforced(events: Sequence[Event], history: Sequence[Event]) -> tuple[Event, ...]:
    """The events of a View that stay once every property holds. ``history`` are all events of the conversation.

    Cost: the history, once a round; each round drops something.
    """
    shown = tuple(events)
    while True:
        dropped = next(filter(None, (breaking(shown, history) for breaking, _ in PROPERTIES.values())), None)
        if dropped is None:
            return shown
        shown = tuple(event for event in shown if _identity(event) not in dropped)


def cut_points(events: Sequence[Event]) -> tuple[int, ...]:
    """The indices that no property forbids."""
    forbidden: set[int] = set().union(*(inside(events) for _, inside in PROPERTIES.values()))
    return tuple(index for index in range(len(events) + 1) if index not in forbidden)


def _identity(event: Event) -> Hashable:
    source_id: Hashable = event.origin.id if event.origin is not None else None
    return event.id if source_id is None else source_id


def _call(event: Action | Observation) -> Hashable:
    if event.call_id is not None:
        return event.call_id
    return event.id if isinstance(event, Action) else event.cause


def _repeated_answers(shown: Sequence[Event], history: Sequence[Event]) -> set[Hashable]:
    answered: set[Hashable] = set()
    repeated: set[Hashable] = set()
    for event in shown:
        if isinstance(event, Observation):
            if _call(event) in answered:
                repeated.add(_identity(event))
            answered.add(_call(event))
    return repeated


def _nowhere(shown: Sequence[Event]) -> set[int]:
    return set()


def _parts_of_batches(shown: Sequence[Event], history: Sequence[Event]) -> set[Hashable]:
    whole, here = _batches(history), _batches(shown)
    return {member for response_id, members in here.items() if members != whole[response_id] for member in members}


def _batches(events: Iterable[Event]) -> dict[str, set[Hashable]]:
    batches: dict[str, set[Hashable]] = defaultdict(set)
    for event in events:
        if isinstance(event, Action) and event.response_id is not None:
            batches[event.response_id].add(_identity(event))
    return batches


def _between_calls_of_a_batch(shown: Sequence[Event]) -> set[int]:
    return {
        index
        for index, (before, event) in enumerate(pairwise(shown), 1)
        if isinstance(before, Action)
        and isinstance(event, Action)
        and before.response_id is not None
        and before.response_id == event.response_id
    }


def _unmatched(shown: Sequence[Event], history: Sequence[Event]) -> set[Hashable]:
    called = {_call(event) for event in shown if isinstance(event, Action)}
    answered = {_call(event) for event in shown if isinstance(event, Observation)}
    return {
        _identity(event)
        for event in shown
        if (isinstance(event, Action) and _call(event) not in answered)
        or (isinstance(event, Observation) and _call(event) not in called)
    }


def _behind_open_calls(shown: Sequence[Event]) -> set[int]:
    waiting: set[Hashable] = set()
    behind: set[int] = set()
    for index, event in enumerate(shown, 1):
        if isinstance(event, Action):
            waiting.add(_call(event))
        elif isinstance(event, Observation):
            waiting.discard(_call(event))
        if waiting:
            behind.add(index)
    return behind


def _parts_of_loops(shown: Sequence[Event], history: Sequence[Event]) -> set[Hashable]:
    here = {_identity(event) for event in shown}
    parts: set[Hashable] = set()
    for loop in _loops(history):
        members = {_identity(history[place]) for place in loop}
        if not members <= here:
            parts |= members & here
    return parts


def _loops(events: Sequence[Event]) -> list[list[int]]:
    loops: list[list[int]] = []
    loop: list[int] | None = None
    for place, event in enumerate(events):
        if isinstance(event, Action) and event.thinking:
            loop = []
            loops.append(loop)
        elif not isinstance(event, Action | Observation):
            loop = None
        if loop is not None:
            loop.append(place)
    return loops


def _inside_loops(shown: Sequence[Event]) -> set[int]:
    return {place for loop in _loops(shown) for place in loop[1:]}


PROPERTIES = {
    "ObservationUniquenessProperty": (_repeated_answers, _nowhere),
    "BatchAtomicityProperty": (_parts_of_batches, _between_calls_of_a_batch),
    "ToolCallMatchingProperty": (_unmatched, _behind_open_calls),
    "ToolLoopAtomicityProperty": (_parts_of_loops, _inside_loops),
}
"""By V1's name, in V1's order: which events of a View break it, by source id; at which indices it forbids to cut."""
