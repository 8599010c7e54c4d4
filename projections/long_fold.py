"""Fold a long history by its ids: which events remain after its last condensation, without the Views before.

The result is that of a fold of one event after the other, or it is not known: an event may be left behind, or the
history holds something that this fold does not follow.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice

from eventstore.events import Action, CondensationAction, CondensationRequest, Event, is_structural, summary_id
from projections.left_behind import Ties
from projections.v0_dialect import clamp, is_from_v0

RECENT = 4
"""The number of newest condensations whose forgotten events are remembered. The events at the end of a View saw few
condensations.
"""


EARLY = 16
"""The number of first events whose responses are looked for in all later ones. Mostly no other event stays for ever."""


def early_responses(events: Sequence[Event]) -> frozenset[str | None]:
    """Return the ids of the responses that the first events are of."""
    return frozenset(event.response_id for event in events[:EARLY] if type(event) is Action) - {None}


class LongFold:
    """A fold of ``events``, whose ids are dense, after a View of ``known``, by id, none of which was left behind."""

    def __init__(self, known: Mapping[int, Event], events: Sequence[Event]) -> None:
        self._known = known
        self._events = events
        self._first = events[0].id
        self._cuts: deque[tuple[int, list[int]]] = deque(maxlen=RECENT + 1)
        """The newest condensations and the ids that they forgot, each one piece of its View."""
        self._untouched = sys.maxsize
        """The events before this place of the View were before all forgotten events, so only they are old."""

    def ids(self, places: Sequence[int]) -> list[int] | None:
        """Return the ids of the View after the last one of ``places``, which are those of the events that are not
        shown, or may be structural, and of all actions of ``early_responses``.

        Return None where an event may be left behind, for condensations that forget several pieces of a View, and for
        structural events that are not native condensations and requests. Cost: the events; for each condensation also
        the ids of the View at that moment.
        """
        ids = list(self._known)
        begin = self._first
        for place in places:
            event = self._events[place]
            ids += range(begin, self._first + place)
            begin = self._first + place + 1
            if type(event) is CondensationAction and not is_from_v0(event):
                if not self._forget(event, ids):
                    return None
                if event.summary is not None and event.summary_offset is not None:
                    ids.insert(clamp(event.summary_offset), summary_id(event.id))
            elif not is_structural(event):
                if event.shown:
                    ids.append(event.id)
            elif type(event) is not CondensationRequest or is_from_v0(event):
                return None
        return ids if self._is_whole(ids, places) else None

    def _forget(self, action: CondensationAction, ids: list[int]) -> bool:
        """Remove the ids that a condensation forgets. Return False where they are several pieces, or a bond crosses
        the end.
        """
        places = named_places(action, ids)
        if not places:
            return True
        start, stop = places[0], places[-1] + 1
        gone = ids[start:stop]
        del ids[start:stop]
        if start < self._untouched:
            self._untouched = start
        self._cuts.append((action.id, gone))
        last = gone[-1]
        return len(places) == len(gone) and not (last >= 0 and self._event(last).stays_with_next)

    def _event(self, event_id: int) -> Event:
        return self._known[event_id] if event_id < self._first else self._events[event_id - self._first]

    def _events_of(self, ids: Sequence[int]) -> list[Event]:
        """Return the events with these ids, without summaries."""
        return [self._event(event_id) for event_id in ids if event_id >= 0]

    def _is_whole(self, ids: Sequence[int], places: Sequence[int]) -> bool:
        """Return whether certainly none of ``ids`` shared a unit with a forgotten event."""
        if self._untouched == sys.maxsize:
            return True  # none was forgotten
        head = self._events_of(ids[: self._untouched])
        after = head[-1].id + 1 if head else 0
        later: Iterable[Event]
        if not self._known and after <= self._first + EARLY:
            later = [event for place in places if (event := self._events[place]).id >= after]
        else:
            known = [event for event in self._known.values() if event.id >= after]
            later = chain(known, islice(self._events, max(0, after - self._first), places[-1]))
        if not Ties(head).are_apart_from_later(later):
            return False
        tail = self._events_of(ids[self._untouched :])
        for by, gone in islice(reversed(self._cuts), RECENT):
            tail = [event for event in tail if event.id < by]
            if tail and not Ties(tail).are_apart_from(self._events_of(gone)):
                return False
        return not tail or len(self._cuts) <= RECENT or tail[0].id > self._cuts[0][0]


def named_places(action: CondensationAction, ids: Sequence[int]) -> Sequence[int]:
    """Return the places, ascending, of the ids that a native condensation forgets. Later events are not affected."""
    named = action.given_ids
    if named is None:
        start, end = action.forgotten_events_start_id or 0, action.forgotten_events_end_id or 0
        return [place for place, event_id in enumerate(ids) if start <= event_id <= end]
    if not named:
        return ()
    first = ids.index(named[0]) if named[0] in ids else 0
    stop = first + len(named)
    if named == ids[first:stop]:  # as condensers name them
        return range(first, stop)
    some = set(named)
    return [place for place, event_id in enumerate(ids) if event_id in some]
