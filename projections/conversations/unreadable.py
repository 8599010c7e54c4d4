"""Read conversations of a damaged store. In place of an event that cannot be read, the functions
return an error or a placeholder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from foldlog import projections
from foldlog.eventstore import CorruptEvent, Event, Logged, Store, UnknownEvent

DAMAGED = "damaged"
"""The kind of the placeholder for an event that cannot be read."""


ReadLog = Callable[[str, int, int | None], Iterable[Logged]]
"""Reads the events of a conversation from one id to another, as ``Store.log`` does."""


def iter_log(
    store: Store,
    conversation: str,
    start: int = 0,
    stop: int | None = None,
    log: ReadLog | None = None,
) -> Iterator[Logged | CorruptEvent]:
    """Yield the events of a conversation with ``start <= id < stop``, and an error in place of each
    event that cannot be read. ``log`` reads the events, by default ``Store.log``. Raises all other
    errors of ``Store.log``.
    """
    read = log or store.log
    while stop is None or start < stop:
        try:
            yield from read(conversation, start, stop)
            return
        except CorruptEvent as error:
            yield error
            if error.event_id < start:
                return  # The conversation itself cannot be read.
            start = error.event_id + 1


def sound(
    store: Store,
    conversation: str,
    start: int,
    stop: int,
    findings: list[str],
    log: ReadLog | None = None,
) -> Iterator[Logged]:
    """Yield the readable events. Problems of unreadable events are added to ``findings``.
    Consecutive events with the same problem have a single finding. ``log`` reads the events.
    """
    first: CorruptEvent | None = None
    """The error of the first event in the present series of unreadable events."""
    next_id = start
    """The id after the last event in the present series of unreadable events."""
    for item in iter_log(store, conversation, start, stop, log):
        if not isinstance(item, CorruptEvent):
            yield item
            continue
        if first is not None and item.event_id == next_id and item.problem == first.problem:
            findings[-1] = _finding_of_series(first, item)
        else:
            first = item
            findings.append(str(item))
        next_id = item.event_id + 1


def _finding_of_series(first: CorruptEvent, last: CorruptEvent) -> str:
    """Return the finding about a series of unreadable events, for the user."""
    name = f"conversation {first.conversation!r}, event"
    rest = str(first).removeprefix(f"{name} {first.event_id}: ")
    return f"{name}s {first.event_id} to {last.event_id}: {rest}"


def placeholder(error: CorruptEvent) -> UnknownEvent:
    """Return the placeholder for an event that cannot be read. No View shows the placeholder."""
    return UnknownEvent(id=error.event_id, stored_kind=DAMAGED, stored_schema=0, body=b"")


def problems_of(
    entries: Iterable[Logged | CorruptEvent], problems: dict[int, str]
) -> Iterator[Event]:
    """Yield the events of ``iter_log``, with a placeholder for each event that cannot be read. The
    problems are added to ``problems`` by event id.
    """
    for entry in entries:
        if isinstance(entry, CorruptEvent):
            problems[entry.event_id] = entry.problem
            yield placeholder(entry)
        else:
            yield entry.event


def sound_view(
    store: Store, conversation: str, version: int | None, problems: dict[int, str]
) -> projections.View:
    """Return the View of a version without the events that cannot be read. The problems are added
    to ``problems`` by event id. Cost: the events before ``version`` are read.
    """
    stop = store.version(conversation) if version is None else version
    events = problems_of(iter_log(store, conversation, 0, stop), problems)
    return projections.View.from_events(events)
