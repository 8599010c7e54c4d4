"""Number the events that were made from one record, so that an export finds all of them.

``origin.rest`` is the number of earlier events from the same record, and None for the first event.
``origin.rest`` is also None for a step to another branch, which was not made from a record.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import force_setattr, replace

from foldlog.eventstore import CondensationAction, Event, Origin, Retraction


def number(events: Sequence[Event], format: str) -> None:
    """Set the format and the place in the origin of all events of one record. The events must be
    new, because they are changed in place.
    """
    of_record = events
    if len(events) > 1:
        of_record = [event for event in events if not is_step_aside(event)]
    for event in events:
        if event.origin is None:
            force_setattr(event, "origin", Origin(format=format))
    for place, event in enumerate(of_record[1:], 1):
        assert event.origin is not None
        force_setattr(event, "origin", replace(event.origin, rest=place))


def place_of(event: Event) -> int:
    """Return the number of earlier events from the same record."""
    rest = None if event.origin is None else event.origin.rest
    return rest if isinstance(rest, int) else 0


def is_of(event: Event, format: str) -> bool:
    """Return whether an event was imported from this format."""
    return event.origin is not None and event.origin.format == format


def is_step_aside(event: Event) -> bool:
    """Return whether an imported event has no record: a retraction, or a declined condensation."""
    return event.redacted is None and (is_declined(event) or isinstance(event, Retraction))


def is_declined(event: Event) -> bool:
    """Return whether an event is a condensation that was declined."""
    return isinstance(event, CondensationAction) and event.metadata.get("outcome") == "declined"
