"""Read the newest records of a source while its events are still to be made."""

from __future__ import annotations

from foldlog._formats.decoded import decoder_of, events_of, values_of
from foldlog._formats.record import NotAnEvent
from foldlog._formats.registry import format_named
from foldlog.eventstore import Event, Store
from foldlog.eventstore.sources.reading import blocks_of
from foldlog.eventstore.sources.tables import Sources


def newest_events(store: Store, conversation: str, records: int) -> list[Event]:
    """Return the events of the newest ``records`` of a source. The decoder begins at the first of
    these records.

    A page shows them while the events of the source are being made. Their ids begin at 0, and they
    lack what depends on earlier records. Cost: a block.
    """
    source = store.database.recorder.query(
        lambda reader: Sources(store.database, reader).of(conversation)
    )
    if source is None:
        return []
    start = max(0, source.records - records)
    format = format_named(source.format)
    decoder = decoder_of(format)
    events: list[Event] = []
    for block in blocks_of(store.database, source, start):
        for value in values_of(block.since(max(start, block.first)).records()):
            try:
                events += events_of(decoder, format, value)
            except NotAnEvent:  # the import has reported it
                continue
    return events
