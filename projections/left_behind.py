"""Find the events that are left behind. An event is left behind if a condensation forgot a part of
its unit, but not the event itself.

``left_behind_by_ids`` defines exactly which events are left behind. Usually the forgotten events
share no unit with other events of the View, so nothing is left behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from foldlog.eventstore import Action, Event, Message, Observation
from foldlog.projections.units import has_no_message, units


def left_behind_after(
    shown: Sequence[Event], left_behind: frozenset[int], start: int, forgotten: Sequence[Event]
) -> frozenset[int]:
    """Return the ids of the events that are left behind if a condensation removes ``forgotten``
    from ``shown``. ``start`` is the index of the first forgotten event in ``shown``.
    """
    stop = start + len(forgotten)
    is_one_piece = (
        stop <= len(shown) and shown[start] is forgotten[0] and shown[stop - 1] is forgotten[-1]
    )
    parts: Iterable[Sequence[Event]] = (shown[:start], forgotten, shown[stop:])
    if left_behind:
        parts = ([event for event in part if event.id not in left_behind] for part in parts)
    if is_one_piece and _is_apart(*parts):
        if left_behind:
            return left_behind.difference([event.id for event in forgotten])
        return left_behind
    ids = {event.id for event in forgotten}
    return (left_behind | left_behind_by_ids(shown, left_behind, ids)) - ids


def left_behind_by_ids(
    events: Sequence[Event], left_behind: Set[int], forgotten: Set[int]
) -> set[int]:
    """Return the ids of the events that are not forgotten, but belong to a unit with a forgotten
    event.
    """
    view_units = units(events, left_behind)
    positions = {position for position, event in enumerate(events) if event.id in forgotten}
    members_of_parted: set[int] = set()
    for members in (
        *(calls.members for calls in view_units.parallel_calls),
        *view_units.loops,
        *view_units.bonds,
    ):
        if not positions.isdisjoint(members):
            members_of_parted.update(members)
    return {events[position].id for position in members_of_parted - positions}


def _is_apart(head: Sequence[Event], piece: Sequence[Event], tail: Sequence[Event]) -> bool:
    """Return True only if no event of ``piece`` shares a unit with an event of ``head`` or
    ``tail``.
    """
    if not _are_alone(head) or not _are_alone(piece):
        # A call and its observation, or thinking and its loop, may be in different parts.
        return False
    return not _are_joined(head, piece) and not _are_joined([*head, *piece], tail)


def _are_alone(events: Sequence[Event]) -> bool:
    """Return True only if every call in ``events`` has its observation there, every observation has
    its call there, and no event stays with the next event. False proves nothing.
    """
    waiting = dict[str | int | None, int]()
    for event in events:
        if event.stays_with_next:
            return False
        if type(event) is Action:
            key: str | int | None = event.id if event.call_id is None else event.call_id
            if key in waiting:
                return False
            waiting[key] = event.id
        elif type(event) is Observation:
            key = event.cause if event.call_id is None else event.call_id
            if key not in waiting or event.cause not in (None, waiting[key]):
                return False
            del waiting[key]
    return not waiting


def _are_joined(before: Sequence[Event], after: Sequence[Event]) -> bool:
    """Return False only if no response and no loop goes on from ``before`` to ``after``."""
    response = _first_response(after)
    if response is not None and response == _first_response(reversed(before)):
        return True
    return _is_in_loop(before, after)


def _first_response(events: Iterable[Event]) -> str | None:
    """Return the response of the first action, or None."""
    for event in events:
        if type(event) is Action:
            return event.response_id
    return None


def _is_in_loop(before: Sequence[Event], after: Sequence[Event]) -> bool:
    """Return whether a loop may go on from ``before`` to ``after``. To be safe, orphans and all
    texts of a reply count as parts of a loop.
    """
    following = next((event for event in after if not has_no_message(event)), None)
    if isinstance(following, Action):
        goes_on = not following.thinking
    else:
        goes_on = isinstance(following, Observation)
    if not goes_on and not _is_reply_text(following):
        return False
    for event in reversed(before):
        if type(event) is Action:
            if event.thinking:
                return True
        elif (
            type(event) is not Observation
            and not _is_reply_text(event)
            and not has_no_message(event)
        ):
            return False
    return False


def _is_reply_text(event: Event | None) -> bool:
    """Return whether the event is an imported text that names the reply to which it belongs."""
    return isinstance(event, Message) and "reply" in event.meta
