"""Read a store around damage, with the problem in the place of an event that cannot be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from foldlog.eventstore import CorruptEvent, Event, Logged, Store, UnknownEvent
from foldlog.projections import View

DAMAGED = "damaged"
"""The kind of what stands in the place of an event that cannot be read."""


def logged(
    store: Store, conversation: str, start: int = 0, stop: int | None = None
) -> Iterator[Logged | CorruptEvent]:
    """Yield the events of a conversation with ``start <= id < stop``. Raises what ``Store.log``
    raises, except these errors.
    """
    while stop is None or start < stop:
        try:
            yield from store.log(conversation, start, stop)
            return
        except CorruptEvent as error:
            yield error
            if error.event_id < start:  # it is the conversation itself that cannot be read
                return
            start = error.event_id + 1


def sound(
    store: Store, conversation: str, start: int, stop: int, findings: list[str]
) -> Iterator[Logged]:
    """Yield the events of ``logged`` that can be read; the others are ``findings``, one for a run
    of one problem.
    """
    first = 0
    following = (-1, "")
    for one in logged(store, conversation, start, stop):
        if not isinstance(one, CorruptEvent):
            yield one
            continue
        if following == (one.event_id, one.problem):
            findings[-1:] = [
                str(one).replace(f"event {one.event_id}: ", f"events {first} to {one.event_id}: ")
            ]
        else:
            first = one.event_id
            findings.append(str(one))
        following = one.event_id + 1, one.problem


def placeholder(error: CorruptEvent) -> UnknownEvent:
    """Return what stands in the place of an event that cannot be read: no View shows it."""
    return UnknownEvent(id=error.event_id, stored_kind=DAMAGED, stored_schema=0, body=b"")


def problems_of(
    found: Iterable[Logged | CorruptEvent], problems: dict[int, str]
) -> Iterator[Event]:
    """Yield the events of ``logged``, and a placeholder for each that cannot be read: ``problems``
    says why, by id.
    """
    for entry in found:
        if isinstance(entry, CorruptEvent):
            problems[entry.event_id] = entry.problem
            yield placeholder(entry)
        else:
            yield entry.event


def sound_view(
    store: Store, conversation: str, version: int | None, problems: dict[int, str]
) -> View:
    """Return the View of a version without the events that cannot be read: ``problems`` says why,
    by id. Cost: the events before that version.
    """
    stop = store.version(conversation) if version is None else version
    return View.from_events(problems_of(logged(store, conversation, 0, stop), problems))
