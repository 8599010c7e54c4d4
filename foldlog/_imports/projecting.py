"""This module makes events from the records of a source when its conversation is used.

A decoder always begins at the first record. The ids of a record's events are stored with the
events, so the ids never change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from foldlog._base.json_types import JsonMap
from foldlog._base.telemetry import tell
from foldlog._base.usage import IMPORTED
from foldlog.eventstore import (
    ATTRIBUTES,
    ConversationNotFound,
    DocumentChanges,
    Event,
    EventStoreError,
    ReadTransaction,
    Store,
    VersionConflict,
)
from foldlog.eventstore.documents.values import newest_documents, newest_value
from foldlog.eventstore.log.appending import Seen
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.errors import FAILURES, NOTHING_WRITTEN
from foldlog.eventstore.sources.reading import IMPORTED_AT, about, blocks_of, continued
from foldlog.eventstore.sources.tables import (
    REDACTED,
    TITLE,
    Continued,
    Source,
    Sources,
    SourcesToWrite,
    query_sources,
)
from foldlog.formats.decoded import decoder_of, events_of, values_of
from foldlog.formats.forking import incomplete
from foldlog.formats.format import RecordDecoder
from foldlog.formats.record import INCOMPLETE, UNREAD, NotAnEvent
from foldlog.formats.record_events import FollowingDecoder
from foldlog.formats.registry import format_named

SECRET: Final = "secret"
"""The name of the field that holds a source's secret. The salts of the source's events are computed
from the secret, so every copy of a store makes the same events. The field is deleted as soon as all
events are made.
"""
SECRET_BYTES: Final = 32
_EVENTS: Final = 1_000
_TRIES: Final = 5


class ReadOtherwise(EventStoreError):
    """This version of foldlog makes more or fewer events from a record than an earlier version
    made. The stored events stay. To read a source again with this version, import it under another
    name.
    """

    def __init__(self, conversation: str, number: int) -> None:
        super().__init__(
            f"conversation {conversation!r}: record {number} of its source now becomes more or "
            f"fewer events than are stored; the stored events stay, and later records are not "
            f"added. To read the source again, import it under another name with --prefix"
        )
        self.conversation = conversation
        self.record = number


def make_events(store: Store, conversation: str) -> None:
    """Make the missing events of a conversation. Raises ``ReadOtherwise`` if a record now has more
    or fewer events than before. Raises ``VersionConflict`` if several tries in a row fail because
    other writers append. Durability: the events are on disk when the function returns. Cost: the
    function reads nothing if all events are made, and otherwise all records.
    """
    tries = 0
    before = -1
    while True:
        making = _Making(store, conversation)
        try:
            if making.make():
                return
        except VersionConflict:
            # Another thread or process made events, or appended. Count only tries without progress.
            tries = tries + 1 if making.made == before else 1
            before = making.made
            if tries == _TRIES:
                raise


def decode_records(
    store: Store,
    source: Source,
    events_of_records: Mapping[int, tuple[int, int]],
    start: int,
    version: int,
    findings: list[str],
    decoder: RecordDecoder | None = None,
) -> Iterator[tuple[int, list[Event]]]:
    """Yield each record's number and events. ``events_of_records`` maps the number of a record to
    the id of its first event and the count of its events. The events of record ``start`` and of
    later records have the ids from ``version`` on. A record that was handed over to the program has
    no events of its own.
    """
    format = format_named(source.format)
    if decoder is None:
        decoder = decoder_of(format, str(about(source).get("prefix", "")), findings)
    handed_over = continued(source)
    number = 0
    for block in blocks_of(store.database, source):
        for value in values_of(block.records()):
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
            except NotAnEvent:  # The import has already reported this problem.
                events = []
            yield number, events
            number += 1


def _adopt(decoder: RecordDecoder, record: Any, number: int, handed_over: Continued) -> None:
    assert isinstance(decoder, FollowingDecoder)
    decoder.adopt(record, handed_over.event_ids[number])
    if number + 1 == len(handed_over.event_ids):
        decoder.end_adoption(handed_over.version)


def change_of_documents(
    store: Store,
    conversation: str,
    documents: JsonMap,
    attributes: JsonMap | None = None,
) -> tuple[DocumentChanges | None, Seen]:
    """Return the event that sets documents and attributes, or None if the conversation already has
    them. Also return what was read, which the caller passes to the append. The event repeats the
    present attributes. If one of them was redacted in the meantime, the append is refused, because
    it would bring back the redacted attribute.
    """
    database = store.database

    def read(reader: Reader) -> tuple[Mapping[str, int], JsonMap, Seen]:
        conversation_row = database.find(reader, conversation, as_stored=True)
        if conversation_row is None:
            raise ConversationNotFound(conversation)
        reading = ReadTransaction(reader, conversation_row, database)
        present = {
            name: newest_value(reading, name, default=None) for name in (*documents, ATTRIBUTES)
        }
        return newest_documents(reading, None), present, Seen.of(reading)

    newest, present, seen = database.recorder.query(read)
    values = dict(documents)
    if attributes:
        values[ATTRIBUTES] = {**(present[ATTRIBUTES] or {}), **attributes}
    changes = {name: {"value": value} for name, value in values.items() if value != present[name]}
    if not changes:
        return None, seen
    others = {name: newest[name] for name in newest if name not in changes}
    return DocumentChanges(changed=changes, others=others), seen


class _Making:
    def __init__(self, store: Store, conversation: str) -> None:
        self.store = store
        self.conversation = conversation

        def read(sources: Sources) -> tuple[Source | None, int, dict[int, tuple[int, int]]]:
            source = sources.of(conversation)
            conversation_row = sources.find(conversation)
            event_spans = {} if source is None else sources.made(source)
            return source, 0 if conversation_row is None else conversation_row.version, event_spans

        self.source, self.version, self.events_of_records = query_sources(store.database, read)
        self.made = 0 if self.source is None else self.source.made
        facts = {} if self.source is None else about(self.source)
        self._recorded_at: int | None = facts.get(IMPORTED_AT)
        self._secret = bytes.fromhex(facts[SECRET]) if SECRET in facts else None

    def make(self) -> bool:
        """Make events, and return whether all events are made."""
        source = self.source
        if source is None or source.made == source.records:
            return True
        redacted = query_sources(self.store.database, Sources.all_redacted, source)
        start = source.made
        findings = list[str]()
        # A redacted record is blank, and may have fewer events than before. Later records depend on
        # it, so they may have fewer events, too.
        first_redacted = min(redacted, default=start)
        first = start
        new_records = dict[int, tuple[int, int]]()
        new_events = list[Event]()
        first_ids = {number: place[0] for number, place in self.events_of_records.items()}
        number = start
        for number, events in decode_records(
            self.store, source, self.events_of_records, start, self.version, findings
        ):
            if number < start:
                event_count = self.events_of_records.get(number, (0, 0))[1]
                if event_count != len(events) and number < first_redacted:
                    raise ReadOtherwise(self.conversation, number)
                continue
            if events:
                new_records[number] = events[0].id, len(events)
                first_ids[number] = events[0].id
                new_events += events
            if len(new_events) >= _EVENTS and number + 1 < source.records:
                self._write(first, number + 1, new_records, new_events)
                first = number + 1
                new_records = {}
                new_events = []
        for finding in findings:
            tell(
                "foldlog.import.finding", of=f"conversation {self.conversation!r}", finding=finding
            )
        changes, seen = self._documents(
            first_ids, self.version + len(new_events), is_new=start == source.from_record
        )
        if changes is not None:
            new_events.append(changes)
        self._write(first, source.records, new_records, new_events, seen)
        return True

    def _write(
        self,
        first: int,
        stop: int,
        records_made: Mapping[int, tuple[int, int]],
        events: list[Event],
        seen: Seen | None = None,
    ) -> None:
        assert self.source is not None
        source = self.source

        def write_progress(writing: WriteTransaction) -> None:
            sources = SourcesToWrite.beside(writing)
            stored = sources.settle(source.conversation)
            # If a record was redacted since it was read, the new events may contain its text.
            if stored is None or (stored.made, _redacted_in(stored)) != (
                first,
                _redacted_in(source),
            ):
                raise VersionConflict(self.conversation, self.version, self.version)
            sources.put_made(source, records_made)
            if stop < stored.records:
                sources.set_progress(stored, stored.records, stop, stored.head)
            else:
                facts = {name: value for name, value in about(stored).items() if name != SECRET}
                sources.put(stored._replace(made=stop, about=msgspec.json.encode(facts)))
            writing.set_unmade(stored.records - stop)

        try:
            self.version = self.store.extend(
                self.conversation,
                events,
                expected_version=self.version if seen is None else seen.at(self.version),
                also=write_progress,
                recorded_at=self._recorded_at,
                secret=self._secret,
            )
        except FAILURES as error:
            if first > self.made:
                progress = (
                    f"the events of {first:,} of {source.records:,} records are stored, and the "
                    f"next use of the conversation adds the rest"
                )
                error.args = (f"{str(error).removesuffix(NOTHING_WRITTEN)}; {progress}",)
            raise

    def _documents(
        self, first_ids: Mapping[int, int], end: int, *, is_new: bool
    ) -> tuple[DocumentChanges | None, Seen]:
        # The usage, the title and the places of unread records are facts that no record contains.
        assert self.source is not None
        facts = about(self.source)
        changed = {IMPORTED: facts["usage"]} if facts.get("usage") else {}
        attributes = {TITLE: facts[TITLE]} if is_new and TITLE in facts else {}
        if places := facts.get("unread"):
            unread = [(place, _first_since(first_ids, place, end)) for place in places]
            changed[UNREAD] = [*map(list, unread)]
            attributes[INCOMPLETE] = incomplete(unread)
        return change_of_documents(self.store, self.conversation, changed, attributes)


def _redacted_in(source: Source) -> tuple[object, ...]:
    # The second value changes if a redaction removes the title or another text that no record
    # contains, but redacts no record.
    return source.redacted, REDACTED in about(source)


def _first_since(first_ids: Mapping[int, int], record: int, end: int) -> int:
    return min((first for number, first in first_ids.items() if number >= record), default=end)
