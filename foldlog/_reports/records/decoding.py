"""Decode the stored records of a source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from foldlog.eventstore import DocumentChanges, Event, Redaction, Store
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.row import dense_events
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.sources.reading import about, blocks_of, continued
from foldlog.eventstore.sources.tables import Continued, Source, Sources, query_sources
from foldlog.formats.format import RecordDecoder
from foldlog.formats.record import NotAnEvent
from foldlog.formats.record_decoding import decoder_of, values_of
from foldlog.formats.record_events import FollowingDecoder, events_of
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
    stands: Callable[[int], bool] | None = None,
) -> Iterator[tuple[int, list[Event]]]:
    """Yield each record's number and events. ``events_of_records`` maps the number of a record to
    the id of its first event and the count of its events. The events of record ``start`` and of
    later records have the ids from ``version`` on. A record that was handed over to the program has
    no events of its own. A record has its stored events if ``stands`` is true for its number, by
    default if it was redacted after its events were made. If ``window`` is not None, ``decoder``
    continues from a state, and begins so many records before ``start``.
    """
    format = format_named(source.format)
    if decoder is None:
        decoder = decoder_of(format, str(about(source).get("prefix", "")), findings)
    handed_over = continued(source)
    if stands is None:
        stands = query_sources(store.database, Sources.all_redacted, source).__contains__
    number = 0 if window is None else start - window
    for block in blocks_of(store.database, source, number):
        for value in values_of(block.since(max(number, block.first)).records()):
            if window is not None and number == start and isinstance(decoder, FollowingDecoder):
                decoder.end_window()
            if handed_over is not None and number < len(handed_over.event_ids):
                _adopt(decoder, value, number, handed_over)
                yield number, []
                number += 1
                continue
            stored: Sequence[Event] = ()
            if number in events_of_records:
                first, count = events_of_records[number]
                _skip_to(store, source, decoder, first)
                if stands(number):
                    stored = stored_events(store, source, first, count)
            elif number == start:
                _skip_to(store, source, decoder, version)
            try:
                events = events_of(decoder, format, value, stored)
            except NotAnEvent as error:
                events = []
                if format.skeleton is None:  # otherwise the import has reported this problem
                    findings.append(str(error))
            yield number, events
            number += 1


def _skip_to(store: Store, source: Source, decoder: RecordDecoder, next_id: int) -> None:
    """Continue with an event id. A growth is decoded as one import, although foldlog may have
    appended documents and redactions before it.
    """
    skipped = next_id - decoder.next_id
    if skipped == 0:
        return
    if skipped < 0 or decoder.next_id == 0 or not decoder.minds_others:
        decoder.skip_to(next_id)
        return
    others = stored_events(store, source, decoder.next_id, skipped)
    if all(isinstance(event, DocumentChanges | Redaction) for event in others):
        decoder.next_id = next_id
    else:
        decoder.skip_to(next_id)


def stored_events(store: Store, source: Source, first: int, count: int) -> list[Event]:
    """Return stored events, or none if the conversation was erased meanwhile."""
    database = store.database

    def read(reader: Reader) -> list[Event]:
        conversation = database.find_key(reader, source.conversation)
        if conversation is None or conversation.erasure is not None:
            return []
        rows = ReadTransaction(reader, conversation, database).rows(first, first + count)
        return [*dense_events(conversation.id, rows, first, first + count)]

    return database.recorder.query(read)


def _adopt(decoder: RecordDecoder, record: Any, number: int, handed_over: Continued) -> None:
    """Pass a record that was handed over to the program to the decoder, with the ids of the events
    from which it was made.
    """
    assert isinstance(decoder, FollowingDecoder)
    decoder.adopt(record, handed_over.event_ids[number])
    if number + 1 == len(handed_over.event_ids):
        decoder.end_adoption(handed_over.version)
