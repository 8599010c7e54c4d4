"""Decode the stored records of a source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from foldlog.eventstore import Event, Store
from foldlog.eventstore.sources.reading import about, blocks_of, continued
from foldlog.eventstore.sources.tables import Continued, Source
from foldlog.formats.decoded import decoder_of, events_of, values_of
from foldlog.formats.format import RecordDecoder
from foldlog.formats.record import NotAnEvent
from foldlog.formats.record_events import FollowingDecoder
from foldlog.formats.registry import format_named


def decode_records(
    store: Store,
    source: Source,
    events_of_records: Mapping[int, tuple[int, int]],
    start: int,
    version: int,
    findings: list[str],
    decoder: RecordDecoder | None = None,
    window: int | None = None,
) -> Iterator[tuple[int, list[Event]]]:
    """Yield each record's number and events. ``events_of_records`` maps the number of a record to
    the id of its first event and the count of its events. The events of record ``start`` and of
    later records have the ids from ``version`` on. A record that was handed over to the program has
    no events of its own. If ``window`` is not None, ``decoder`` continues from a state, and begins
    so many records before ``start``.
    """
    format = format_named(source.format)
    if decoder is None:
        decoder = decoder_of(format, str(about(source).get("prefix", "")), findings)
    handed_over = continued(source)
    number = 0 if window is None else start - window
    for block in blocks_of(store.database, source, number):
        for value in values_of(block.since(max(number, block.first)).records()):
            if handed_over is not None and number < len(handed_over.event_ids):
                _adopt(decoder, value, number, handed_over)
                yield number, []
                number += 1
                continue
            if number in events_of_records:
                decoder.skip_to(events_of_records[number][0])
            elif number == start:
                decoder.skip_to(version)
            try:
                events = events_of(decoder, format, value)
            except NotAnEvent as error:
                events = []
                if format.skeleton is None:  # otherwise the import has reported this problem
                    findings.append(str(error))
            yield number, events
            number += 1


def _adopt(decoder: RecordDecoder, record: Any, number: int, handed_over: Continued) -> None:
    """Pass a record that was handed over to the program to the decoder, with the ids of the events
    from which it was made.
    """
    assert isinstance(decoder, FollowingDecoder)
    decoder.adopt(record, handed_over.event_ids[number])
    if number + 1 == len(handed_over.event_ids):
        decoder.end_adoption(handed_over.version)
