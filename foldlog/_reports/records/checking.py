"""Compare the list of the events that the records of an import became with these events."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from foldlog.eventstore import Store
from foldlog.eventstore.errors import count
from foldlog.eventstore.sources.tables import Made, Source, Sources, query_sources

_UNLISTED = (
    "the list of the events that its records became lacks {}, which came from its source; an export"
    " may repeat them"
)
_TWICE = "the list of the events that its records became gives event {} to two records"


def find_wrong_events_of_records(store: Store, conversation: str) -> Iterator[str]:
    """Yield what is wrong with the list of the events that records became. Only events that name
    the format of the source are compared, which almost all imported events do.

    Raises the errors of reading. Cost: reading the conversation, if it has a source.
    """

    def read(sources: Sources) -> tuple[int, Source | None, Made]:
        state = sources.find(conversation)
        source = sources.of_state(state)
        if state is None or source is None:
            return 0, None, {}
        return state.begins, source, sources.made(source)

    begins, source, made = query_sources(store.database, read)
    if source is None or source.made < source.records:
        return
    spans = sorted(made.values())
    for (first, events), (next_first, _) in pairwise(spans):
        if next_first < first + events:
            yield _TWICE.format(next_first)
            return
    listed = {event_id for first, events in spans for event_id in range(first, first + events)}
    unlisted = [
        event.id
        for event in store.events(conversation, begins)
        if event.origin is not None
        and event.origin.format == source.format
        and event.id not in listed
    ]
    if unlisted:
        is_one = len(unlisted) == 1
        lacking = f"event {unlisted[0]}" if is_one else count(len(unlisted), "event")
        yield _UNLISTED.format(lacking)
