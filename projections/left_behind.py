"""Find the events that are left behind: they stay when a condensation forgets another part of their
unit.

``left_behind_by_ids`` is the definition. The forgotten events are nearly always one piece of the
View that shares no unit with other events, and then nothing is left behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from foldlog.eventstore import Action, Event, Message, Observation
from foldlog.projections.units import is_unseen, units


def left_behind_after(
    shown: Sequence[Event], left_behind: frozenset[int], start: int, gone: Sequence[Event]
) -> frozenset[int]:
    """Return the ids of the events left behind after a View of ``shown`` loses ``gone``, which
    begin at ``start``.
    """
    stop = start + len(gone)
    is_piece = stop <= len(shown) and shown[start] is gone[0] and shown[stop - 1] is gone[-1]
    parts: Iterable[Sequence[Event]] = (shown[:start], gone, shown[stop:])
    if left_behind:
        parts = ([event for event in part if event.id not in left_behind] for part in parts)
    if is_piece and _is_apart(*parts):
        if left_behind:
            return left_behind.difference([event.id for event in gone])
        return left_behind
    ids = {event.id for event in gone}
    return (left_behind | left_behind_by_ids(shown, left_behind, ids)) - ids


def left_behind_by_ids(
    events: Sequence[Event], left_behind: Set[int], forgotten: Set[int]
) -> set[int]:
    """Return the ids of the events that stay in a unit when the events with the ``forgotten`` ids
    leave it.
    """
    found = units(events, left_behind)
    gone = {position for position, event in enumerate(events) if event.id in forgotten}
    parted: set[int] = set()
    for members in (*(calls.members for calls in found.parallel_calls), *found.loops, *found.bonds):
        if not gone.isdisjoint(members):
            parted.update(members)
    return {events[position].id for position in parted - gone}


def _is_apart(head: Sequence[Event], piece: Sequence[Event], tail: Sequence[Event]) -> bool:
    """Return whether certainly no event of the piece shares a unit with one of the head or the
    tail.
    """
    if not _are_alone(head) or not _are_alone(piece):
        # an observation may be in another part than its call, thinking in another one than its loop
        return False
    return not _are_joined(head, piece) and not _are_joined([*head, *piece], tail)


def _are_alone(events: Sequence[Event]) -> bool:
    """Return whether certainly all calls and observations here pair up, and no event stays with
    another one.
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
    """Return whether one response or a tool loop may cross this border."""
    response = _first_response(after)
    if response is not None and response == _first_response(reversed(before)):
        return True
    return _is_in_loop(before, after)


def _first_response(events: Iterable[Event]) -> str | None:
    """Return the response of the first action."""
    for event in events:
        if type(event) is Action:
            return event.response_id
    return None


def _is_in_loop(before: Sequence[Event], after: Sequence[Event]) -> bool:
    """Return whether a tool loop may cross this border. To be safe, orphans and all words of a
    reply count as of it.
    """
    following = next((event for event in after if not is_unseen(event)), None)
    if isinstance(following, Action):
        goes_on = not following.thinking
    else:
        goes_on = isinstance(following, Observation)
    if not goes_on and not _are_words(following):
        return False
    for event in reversed(before):
        if type(event) is Action:
            if event.thinking:
                return True
        elif type(event) is not Observation and not _are_words(event) and not is_unseen(event):
            return False
    return False


def _are_words(event: Event | None) -> bool:
    return isinstance(event, Message) and "reply" in event.meta
