"""Make the events of a source at the first use of its conversation, and of what it has grown by
since.

A decoder always begins at the first record. Which events each record became is stored with the
events, in one transaction: so their ids never move, whatever was appended between them, or
redacted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from foldlog._formats.decoded import decoder_of, events_of, values_of
from foldlog._formats.files.frames import TITLE
from foldlog._formats.forking import incomplete
from foldlog._formats.format import RecordDecoder
from foldlog._formats.record import INCOMPLETE, UNREAD, NotAnEvent
from foldlog._formats.registry import format_named
from foldlog._telemetry import tell
from foldlog._usage import IMPORTED
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
from foldlog.eventstore.inside import newest_documents, newest_value
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.errors import FAILURES, NOTHING_WRITTEN
from foldlog.eventstore.sources.reading import IMPORTED_AT, about, blocks_of
from foldlog.eventstore.sources.tables import Source, Sources, SourcesToWrite

SECRET: Final = "secret"
"""What is stored about a source with records that are no events yet: the secret of which the salts
of these events are made, in hexadecimal. So copies that make them apart have the same heads. It
goes when all are made.
"""
SECRET_BYTES: Final = 32
_EVENTS: Final = 1_000
"""The number of events in one transaction."""
_TRIES: Final = 5


class ReadOtherwise(EventStoreError):
    """This version of foldlog reads a record into other events than the version that made them. The
    events that are here stay; import the source under another name to have it read again.
    """

    def __init__(self, conversation: str, number: int) -> None:
        super().__init__(
            f"conversation {conversation!r}: record {number} of its source is now read into more or"
            " fewer events than before; its events stay, and later records are not added: import"
            " the source under another name with --prefix to read it again"
        )
        self.conversation = conversation
        self.record = number


def make_events(store: Store, conversation: str) -> None:
    """Have the events of all records of a conversation in the log.

    Each transaction has some events with their records, so what is killed is gone on with. Raises
    ``ReadOtherwise``, ``VersionConflict`` where other writers were in the way again and again, and
    no records were made in between. On disk when it returns. Cost: nothing where all are there;
    else all records.
    """
    tries = 0
    before = -1
    while True:
        making = _Making(store, conversation)
        try:
            if making.make():
                return
        except VersionConflict:  # another thread or process made some, or appended
            tries = tries + 1 if making.made == before else 1
            before = making.made
            if tries == _TRIES:
                raise


def decoded(
    store: Store,
    source: Source,
    known: Mapping[int, tuple[int, int]],
    start: int,
    version: int,
    findings: list[str],
    decoder: RecordDecoder | None = None,
) -> Iterator[tuple[int, list[Event]]]:
    """Yield the number of each record with the events that it becomes. Those of ``known`` records
    have the ids that they have in the log; those from record ``start`` on follow ``version``.
    """
    format = format_named(source.format)
    if decoder is None:
        decoder = decoder_of(format, str(about(source).get("prefix", "")), findings)
    number = 0
    for block in blocks_of(store.database, source):
        for value in values_of(block.records()):
            if number in known:
                decoder.skip_to(known[number][0])
            elif number == start:
                decoder.skip_to(version)
            try:
                events = events_of(decoder, format, value)
            except NotAnEvent:  # the import said so
                events = []
            yield number, events
            number += 1


def change_of_documents(
    store: Store,
    conversation: str,
    told: Mapping[str, Any],
    attributes: Mapping[str, Any] | None = None,
) -> DocumentChanges | None:
    """Return the change of documents to these values, and of some attributes; None where they are
    so.
    """
    database = store.database

    def read(reader: Reader) -> tuple[Mapping[str, int], Mapping[str, Any]]:
        found = database.find(reader, conversation, pending=True)
        if found is None:
            raise ConversationNotFound(conversation)
        reading = ReadTransaction(reader, found, database)
        before = {name: newest_value(reading, name, default=None) for name in (*told, ATTRIBUTES)}
        return newest_documents(reading, None), before

    newest, before = database.recorder.query(read)
    values = dict(told)
    if attributes:
        values[ATTRIBUTES] = {**(before[ATTRIBUTES] or {}), **attributes}
    changed = {name: {"value": value} for name, value in values.items() if value != before[name]}
    if not changed:
        return None
    return DocumentChanges(
        changed=changed, others={name: newest[name] for name in newest if name not in changed}
    )


class _Making:
    """One pass over the records of a source, as it is now."""

    def __init__(self, store: Store, conversation: str) -> None:
        self.store = store
        self.conversation = conversation
        database = store.database

        def read(reader: Any) -> tuple[Source | None, int, dict[int, tuple[int, int]]]:
            sources = Sources(database, reader)
            source = sources.of(conversation)
            found = database.find(reader, conversation, pending=True)
            made = {} if source is None else sources.made(source)
            return source, 0 if found is None else found.version, made

        self.source, self.version, self.known = database.recorder.query(read)
        self.made = 0 if self.source is None else self.source.made
        told = {} if self.source is None else about(self.source)
        self._recorded_at: int | None = told.get(IMPORTED_AT)
        self._secret = bytes.fromhex(told[SECRET]) if SECRET in told else None

    def make(self) -> bool:
        """Make the events that are missing. Return whether there are none left, as far as this pass
        knew.
        """
        source = self.source
        if source is None or source.made == source.records:
            return True
        redacted = self.store.database.recorder.query(
            lambda reader: Sources(self.store.database, reader).all_redacted(source)
        )
        start = source.made
        findings = list[str]()
        # what stays of a record may be read into fewer events
        first_gone = min(redacted, default=start)
        first = start
        made = dict[int, tuple[int, int]]()
        events = list[Event]()
        firsts = {number: place[0] for number, place in self.known.items()}
        number = start
        for number, of_record in decoded(
            self.store, source, self.known, start, self.version, findings
        ):
            if number < start:
                there = self.known.get(number, (0, 0))[1]
                if there != len(of_record) and number < first_gone:
                    raise ReadOtherwise(self.conversation, number)
                continue
            if of_record:
                made[number] = of_record[0].id, len(of_record)
                firsts[number] = of_record[0].id
                events += of_record
            if len(events) >= _EVENTS and number + 1 < source.records:
                self._write(first, number + 1, made, events)
                first = number + 1
                made = {}
                events = []
        for finding in findings:
            tell(
                "foldlog.import.finding", of=f"conversation {self.conversation!r}", finding=finding
            )
        changes = self._documents(
            firsts, self.version + len(events), is_new=start == source.from_record
        )
        if changes is not None:
            events.append(changes)
        self._write(first, source.records, made, events)
        return True

    def _write(
        self, first: int, stop: int, made: Mapping[int, tuple[int, int]], events: list[Event]
    ) -> None:
        """Write events, and that the records up to ``stop`` are made."""
        assert self.source is not None
        source = self.source

        def also(writing: WriteTransaction) -> None:
            sources = SourcesToWrite.beside(writing)
            now = sources.find_by_key(source.conversation)
            if now is None or now.made != first:
                raise VersionConflict(self.conversation, self.version, self.version)
            sources.put_made(source, made)
            if stop < now.records:
                sources.set_progress(now, now.records, stop, now.head)
            else:
                beside = {name: value for name, value in about(now).items() if name != SECRET}
                sources.put(now._replace(made=stop, about=msgspec.json.encode(beside)))
            writing.set_pending(now.records - stop)

        try:
            self.version = self.store.extend(
                self.conversation,
                events,
                expected_version=self.version,
                also=also,
                recorded_at=self._recorded_at,
                secret=self._secret,
            )
        except FAILURES as error:
            if first > self.made:
                there = (
                    f"the events of {first:,} of {source.records:,} records stay, and the next use"
                    " makes the others"
                )
                error.args = (f"{str(error).removesuffix(NOTHING_WRITTEN)}; {there}",)
            raise

    def _documents(
        self, firsts: Mapping[int, int], end: int, *, is_new: bool
    ) -> DocumentChanges | None:
        """Return the change of the documents that say what is known beside the records: ``firsts``
        are the ids of their first events, ``end`` is the version after them.
        """
        assert self.source is not None
        told = about(self.source)
        changed = {IMPORTED: told["usage"]} if told.get("usage") else {}
        attributes = {TITLE: told[TITLE]} if is_new and TITLE in told else {}
        if places := told.get("unread"):
            unread = [(place, _first_since(firsts, place, end)) for place in places]
            changed[UNREAD] = [*map(list, unread)]
            attributes[INCOMPLETE] = incomplete(unread)
        return change_of_documents(self.store, self.conversation, changed, attributes)


def _first_since(firsts: Mapping[int, int], record: int, end: int) -> int:
    """Return the first event of the records from one on."""
    return min((first for number, first in firsts.items() if number >= record), default=end)
