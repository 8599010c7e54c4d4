"""Change a View as OpenHands V1 does when it loads a conversation, with V1's faults. Recorded answers of
V1 are compared with it.

V1 has four properties. Each returns the events that break it. V1 drops the events that break the first
broken property, and then checks all four again. Each property also returns the indices at which the
View must not be cut. Known faults: a pending call drops whole tool loops, and a View cannot be cut
after a call without an observation. ``foldlog.projections.units`` has neither fault.

Here events are identified by the ids of their source, so events with the same id are dropped together.
"""

from collections import defaultdict
from itertools import pairwise

from foldlog.eventstore.events import Action, Observation


def loaded_by_reference(view, history):
    """Return the View with the events that remain when every property holds. ``history`` is the whole
    conversation.
    """
    events = view.events
    while True:
        breaking = (find_breaking(events, history) for find_breaking, _ in PROPERTIES.values())
        dropped = next(filter(None, breaking), None)
        if dropped is None:
            return view.with_events(events)
        events = tuple(event for event in events if _identity(event) not in dropped)


def cut_points_of_reference(view):
    """Return the indices that every property allows."""
    forbidden = set().union(*(inside(view.events) for _, inside in PROPERTIES.values()))
    return tuple(index for index in range(len(view) + 1) if index not in forbidden)


def _identity(event):
    source_id = event.origin.id if event.origin is not None else None
    return event.id if source_id is None else source_id


def _call(event):
    if event.call_id is not None:
        return event.call_id
    return event.id if isinstance(event, Action) else event.cause


def _repeated_observations(shown, history):
    answered = set()
    repeated = set()
    for event in shown:
        if isinstance(event, Observation):
            if _call(event) in answered:
                repeated.add(_identity(event))
            answered.add(_call(event))
    return repeated


def _nowhere(shown):
    return set()


def _incomplete_responses(shown, history):
    complete = _by_response(history)
    return {
        member
        for response_id, members in _by_response(shown).items()
        if members != complete[response_id]
        for member in members
    }


def _by_response(events):
    responses = defaultdict(set)
    for event in events:
        if isinstance(event, Action) and event.response_id is not None:
            responses[event.response_id].add(_identity(event))
    return responses


def _between_parallel_calls(shown):
    return {
        index
        for index, (before, event) in enumerate(pairwise(shown), 1)
        if isinstance(before, Action)
        and isinstance(event, Action)
        and before.response_id is not None
        and before.response_id == event.response_id
    }


def _unmatched(shown, history):
    called = {_call(event) for event in shown if isinstance(event, Action)}
    answered = {_call(event) for event in shown if isinstance(event, Observation)}
    return {
        _identity(event)
        for event in shown
        if (isinstance(event, Action) and _call(event) not in answered)
        or (isinstance(event, Observation) and _call(event) not in called)
    }


def _after_open_calls(shown):
    waiting = set()
    after = set()
    for index, event in enumerate(shown, 1):
        if isinstance(event, Action):
            waiting.add(_call(event))
        elif isinstance(event, Observation):
            waiting.discard(_call(event))
        if waiting:
            after.add(index)
    return after


def _parts_of_loops(shown, history):
    remaining = {_identity(event) for event in shown}
    parts = set()
    for loop in _loops(history):
        members = {_identity(history[place]) for place in loop}
        if not members <= remaining:
            parts |= members & remaining
    return parts


def _loops(events):
    loops = []
    loop = None
    for place, event in enumerate(events):
        if isinstance(event, Action) and event.thinking:
            loop = []
            loops.append(loop)
        elif not isinstance(event, Action | Observation):
            loop = None
        if loop is not None:
            loop.append(place)
    return loops


def _inside_loops(shown):
    return {place for loop in _loops(shown) for place in loop[1:]}


PROPERTIES = {
    "ObservationUniquenessProperty": (_repeated_observations, _nowhere),
    "BatchAtomicityProperty": (_incomplete_responses, _between_parallel_calls),
    "ToolCallMatchingProperty": (_unmatched, _after_open_calls),
    "ToolLoopAtomicityProperty": (_parts_of_loops, _inside_loops),
}
"""V1's properties, in V1's order: functions that return the source ids of the events that break a
property, and the indices at which it forbids a cut.
"""
