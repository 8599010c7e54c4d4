"""This module translates the ids in a condensation of OpenHands V0 into ids of the log. A
condensation of V0 names events by their ids in the source.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from foldlog.eventstore import (
    Annotation,
    CondensationAction,
    ConversationErased,
    ConversationNotFound,
    Event,
    Origin,
    Store,
)
from foldlog.eventstore.events import names_source_ids
from foldlog.projections.conversations.unreadable import sound
from foldlog.projections.v0_dialect import entomb, is_buried


def in_own_ids(store: Store, conversation: str) -> Callable[[Event], Event]:
    """Return a function that replaces the source ids in a condensation of V0 by ids of the log. It
    returns any other event unchanged. Call it with the events in order. Cost: it reads each event
    before a condensation of V0 once.
    """
    before: list[Annotation] = []
    """The events before the last condensation, of which only the ids and sources are kept."""

    def renumber(event: Event) -> Event:
        if not (isinstance(event, CondensationAction) and names_source_ids(event)):
            return event
        start = before[-1].id + 1 if before else 0
        with suppress(ConversationErased, ConversationNotFound):
            for _, earlier in sound(store, conversation, start, event.id, []):
                origin: Origin | None = None
                if earlier.origin is not None:
                    origin = Origin(format=earlier.origin.format, id=earlier.origin.id)
                before.append(Annotation(id=earlier.id, name="", origin=origin))
        tomb = entomb((), event)
        ids = tuple(
            annotation.id
            for annotation in before
            if annotation.id < event.id and is_buried(tomb, annotation)
        )
        return replace(
            event,
            forgotten_event_ids=ids,
            forgotten_events_start_id=None,
            forgotten_events_end_id=None,
        )

    return renumber
