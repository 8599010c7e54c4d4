"""Make events from the records of a source when its conversation is used.

A decoder begins at the first record, or continues from the state after the last record with events:
see ``formats.resuming``. The state is stored as a record of a projection, so a redaction deletes
it. The ids of a record's events are stored with the events, so the ids never change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Final

import msgspec

from foldlog._base.json_types import JsonMap
from foldlog._base.telemetry import tell
from foldlog._base.version import VERSION
from foldlog._reports.figures.overview import PARENT
from foldlog._reports.records.decoding import decode_records, stored_events
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
from foldlog.eventstore.recorders.types import Conversation, Record
from foldlog.eventstore.sources.reading import IMPORTED_AT, about, continued
from foldlog.eventstore.sources.tables import (
    CONTINUED,
    REDACTED,
    TITLE,
    TITLED,
    WHERE,
    Source,
    Sources,
    SourcesToWrite,
    query_sources,
)
from foldlog.eventstore.usage import IMPORTED
from foldlog.formats.forking import incomplete
from foldlog.formats.record import INCOMPLETE, UNREAD
from foldlog.formats.record_decoding import (
    READER,
    decoder_of,
    parent_named_in,
)
from foldlog.formats.record_events import FollowingDecoder
from foldlog.formats.registry import format_named
from foldlog.formats.resuming import DecoderState, NeedsAll

SECRET: Final = "secret"
"""The name of the field that holds a source's secret. The salts of the source's events are computed
from the secret, so every copy of a store makes the same events. The field is deleted as soon as all
events are made.
"""
SECRET_BYTES: Final = 32
_PROJECTION: Final = "decoder"
"""The name of the projection whose record has the state of a decoder."""
_EVENTS: Final = 1_000
"""The number of events after which a transaction writes no more records."""
_TRIES: Final = 5
_STANDING_MAX: Final = 8
"""The number of records that stand for themselves one by one: see ``_Standing``."""


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


def make_events(
    store: Store,
    conversation: str,
    findings: list[tuple[int, str]] | None = None,
    *,
    leaves_last: bool = False,
) -> None:
    """Make the missing events of a conversation. Add what the decoder does not read to
    ``findings``: the number of each record with a problem, and the problem. Without ``findings``,
    the function logs the problems. With ``leaves_last``, the events of the last record are not
    stored, because its program may still write this record.

    Raises ``ReadOtherwise`` if a record now has more or fewer events than before. Raises
    ``VersionConflict`` if several tries in a row fail because other writers append. Durability: the
    events are on disk when the function returns. Cost: the function reads no record if all events
    are made. If a decoder can continue, the function reads its state, about 5 bytes for each id in
    the source, and the last records. Otherwise it reads all records.
    """
    tries = 0
    made_before: int | None = None
    continues = True
    standing = _Standing()
    while True:
        making = _Making(
            store, conversation, standing, continues=continues, leaves_last=leaves_last
        )
        try:
            making.make()
            making.report(findings)
            return
        except NeedsAll:
            if making.is_written:
                # Only the last record was left, and its events are made later.
                making.report(findings)
                return
            continues = False
        except _DiffersAfterRedaction as difference:
            standing.add(difference.number)
        except VersionConflict:
            # Another thread or process made events, or appended. Count only tries without progress.
            tries = tries + 1 if making.made == made_before else 1
            made_before = making.made
            if tries == _TRIES:
                raise


def change_of_documents(
    store: Store,
    conversation: str,
    documents: JsonMap,
    attributes: JsonMap | None = None,
    titled: str | None = None,
) -> tuple[DocumentChanges | None, Seen, bool]:
    """Return the event that sets documents and attributes, or None if the conversation already has
    them. Also return what was read, which the caller passes to the append. The event repeats the
    present attributes. If one of them was redacted in the meantime, the append is refused, because
    it would bring back the redacted attribute. With ``titled``, the title is set only if it is this
    title now, because a user may have chosen another one. Also return whether the title was set.
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
    is_chosen = titled is not None and (present[ATTRIBUTES] or {}).get(TITLE) != titled
    if attributes and is_chosen:
        attributes = {name: attributes[name] for name in attributes if name != TITLE}
    if attributes:
        values[ATTRIBUTES] = {**(present[ATTRIBUTES] or {}), **attributes}
    changes = {name: {"value": value} for name, value in values.items() if value != present[name]}
    sets_title = TITLE in (attributes or {})
    if not changes:
        return None, seen, sets_title
    others = {name: newest[name] for name in newest if name not in changes}
    return DocumentChanges(changed=changes, others=others), seen, sets_title


class _DiffersAfterRedaction(Exception):
    """A record after a redacted record now has more or fewer events than are stored."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Standing:
    """The records whose stored events a decoder follows, although they were not redacted.

    A record that repeats an earlier message is read otherwise after the redaction of this message.
    The stored events are still in the View, so the decoder begins again, and follows them.
    """

    def __init__(self) -> None:
        self._first = inf
        """The first record from which on all records stand for themselves."""
        self._numbers = set[int]()

    def has(self, number: int) -> bool:
        return number >= self._first or number in self._numbers

    def add(self, number: int) -> None:
        """Add a record. If there are many, all records from the first of them on are added."""
        self._numbers.add(number)
        if len(self._numbers) > _STANDING_MAX:
            self._first = min(self._numbers)


class _Stored(msgspec.Struct):
    """The state of a decoder, and for what it is valid: the version of foldlog, the number of
    records that were read, and how many of them were redacted.
    """

    program: str
    records: int
    redacted: int
    state: DecoderState


_decode_stored = msgspec.msgpack.Decoder(_Stored).decode


class _Making:
    """One try to make the missing events of a conversation. If ``continues`` is true, the decoder
    may continue from its stored state.
    """

    def __init__(
        self,
        store: Store,
        conversation: str,
        standing: _Standing,
        *,
        continues: bool,
        leaves_last: bool,
    ) -> None:
        self.store = store
        self._standing = standing
        self.leaves_last = leaves_last
        self.conversation = conversation
        self.state: DecoderState | None = None
        self.redacted = set[int]()
        """The numbers of the redacted records, including shared records."""

        def read(sources: Sources) -> tuple[Source | None, int, dict[int, tuple[int, int]]]:
            row = sources.find(conversation)
            source = sources.of_state(row)
            if source is None or row is None or source.made == source.records:
                return source, 0 if row is None else row.version, {}
            self.redacted = sources.all_redacted(source)
            if source.made == 0:
                return source, row.version, {}
            if continues and continued(source) is None:
                self.state = _state_of(sources, source, row)
            if self.state is None or about(source).get("unread"):
                event_spans = sources.made(source)
            else:
                event_spans = sources.made_since(source, source.made - self.state.window)
            return source, row.version, event_spans

        self.source, self.version, self.events_of_records = query_sources(store.database, read)
        self.made = 0 if self.source is None else self.source.made
        self._facts = {} if self.source is None else about(self.source)
        self._recorded_at: int | None = self._facts.get(IMPORTED_AT)
        self._secret = bytes.fromhex(self._facts[SECRET]) if SECRET in self._facts else None
        self.findings = list[tuple[int, str]]()
        self.is_written = False
        """Whether all events that are to be stored are stored."""
        self._parent: str | None = None
        """The conversation that began this one, if the events stored so far name it."""

    def make(self) -> None:
        """Make and store the events. Raises ``NeedsAll`` if the decoder cannot continue from its
        state, ``_DiffersAfterRedaction`` if it must follow the stored events of a record, and the
        errors of ``make_events``.
        """
        source = self.source
        if source is None or source.made == source.records:
            return
        start = source.made
        stop = max(source.records - self.leaves_last, start)
        findings = list[str]()
        # A redacted record is blank, and may have fewer events than before. Later records depend on
        # it, so they may have fewer events, too.
        first_redacted = min(self.redacted, default=start)
        first = start
        new_records = dict[int, tuple[int, int]]()
        new_events = list[Event]()
        first_ids = {number: place[0] for number, place in self.events_of_records.items()}
        prefix = str(self._facts.get("prefix", ""))
        self.decoder = decoder_of(format_named(source.format), prefix, findings)
        for number, events in self._decode(source, findings):
            if number < start:
                first_id, event_count = self.events_of_records.get(number, (0, 0))
                differs = event_count != len(events)
                if number >= first_redacted and any(event.structural for event in events):
                    stored = stored_events(self.store, source, first_id, event_count)
                    differs = [*map(type, stored)] != [*map(type, events)]
                if differs:
                    self._check_difference(number, event_count, first_redacted)
                findings.clear()
                continue
            if findings:
                self.findings += [(number, finding) for finding in findings]
                findings.clear()
            if number == stop:  # only the findings of the last record are wanted
                return
            if events:
                new_records[number] = events[0].id, len(events)
                first_ids[number] = events[0].id
                new_events += events
            if number + 1 == stop:
                is_new = start == source.from_record
                changes, seen, sets_title = self._documents(
                    first_ids, self.version + len(new_events), is_new=is_new
                )
                if changes is not None:
                    new_events.append(changes)
                self._write(first, stop, new_records, new_events, seen, sets_title=sets_title)
                self.is_written = True
            elif len(new_events) >= _EVENTS:
                self._write(first, number + 1, new_records, new_events)
                first = number + 1
                new_records = {}
                new_events = []

    def _check_difference(self, number: int, event_count: int, first_redacted: int) -> None:
        """Raise the error for a record whose ``event_count`` stored events are not those that the
        decoder made. Return if the decoder cannot follow them.
        """
        if self.state is not None:
            raise NeedsAll
        if number < first_redacted:
            raise ReadOtherwise(self.conversation, number)
        can_follow = isinstance(self.decoder, FollowingDecoder) and event_count > 0
        if can_follow and not self._standing.has(number):
            raise _DiffersAfterRedaction(number)

    def _decode(self, source: Source, findings: list[str]) -> Iterator[tuple[int, list[Event]]]:
        """Return the number and the events of each record, from the first record that the decoder
        needs on.
        """
        decoder = self.decoder
        window = None
        if self.state is not None and isinstance(decoder, FollowingDecoder):
            window = self.state.window
            decoder.continue_from(self.state)
        return decode_records(
            self.store,
            source,
            self.events_of_records,
            source.made,
            self.version,
            findings,
            decoder,
            window,
            self._stands,
        )

    def _stands(self, number: int) -> bool:
        """Return whether the stored events of a record stand for it."""
        return number in self.redacted or self._standing.has(number)

    def report(self, findings: list[tuple[int, str]] | None) -> None:
        """Add the findings to a list, or log them without a list."""
        if findings is not None:
            findings += self.findings
            return
        for _, finding in self.findings:
            tell(
                "foldlog.import.finding", of=f"conversation {self.conversation!r}", finding=finding
            )

    def _write(
        self,
        first: int,
        stop: int,
        records_made: Mapping[int, tuple[int, int]],
        events: list[Event],
        seen: Seen | None = None,
        *,
        sets_title: bool = False,
    ) -> None:
        """Store the events of the records from ``first`` to ``stop``, and the progress. With
        ``seen``, the append is refused if an event was redacted since. With ``sets_title``, the
        events set the title of the source.
        """
        assert self.source is not None
        source = self.source
        self._parent = self._parent or parent_named_in(events)

        def write_progress(writing: WriteTransaction) -> None:
            sources = SourcesToWrite.beside(writing)
            stored = sources.settle(source.conversation)
            facts = {} if stored is None else about(stored)
            # If the source was erased since it was read, and another conversation has its name, the
            # new events are not of that one. If a record was redacted, they may contain its text.
            # The mark tells of a redaction of only the title or another text that no record has.
            if (
                stored is None
                or writing.state.key != source.conversation
                or (stored.made, stored.redacted) != (first, source.redacted)
                or (REDACTED in facts) != (REDACTED in self._facts)
            ):
                raise VersionConflict(self.conversation, self.version, self.version)
            sources.add_made(stored, records_made)
            if stop < stored.records - self.leaves_last:
                sources.set_progress(stored, stored.records, stop, stored.head)
            else:
                if stop == stored.records:
                    facts.pop(SECRET, None)
                if sets_title:
                    facts[TITLED] = self._facts[TITLE]
                if self._parent is not None and REDACTED not in facts:
                    facts[WHERE] = {PARENT: self._parent, **facts.get(WHERE, {})}
                sources.put(stored._replace(made=stop, about=msgspec.json.encode(facts)))
                self._put_state(writing, stop)
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
                    f"the events of {first:,} of {source.records:,} records are stored, and the"
                    " next use of the conversation adds the rest"
                )
                error.args = (f"{str(error).removesuffix(NOTHING_WRITTEN)}; {progress}",)
            raise

    def _put_state(self, writing: WriteTransaction, records: int) -> None:
        """Store the state of the decoder after ``records`` records, if it has one."""
        state = None
        if isinstance(self.decoder, FollowingDecoder) and CONTINUED not in self._facts:
            state = self.decoder.state()
        rows = []
        if state is not None:
            stored = _Stored(VERSION, records, len(self.redacted), state)
            rows = [Record(writing.version, READER, msgspec.msgpack.encode(stored))]
        writing.put_records(_PROJECTION, rows, replace_all=True)

    def _documents(
        self, first_ids: Mapping[int, int], end: int, *, is_new: bool
    ) -> tuple[DocumentChanges | None, Seen | None, bool]:
        """Return the change that sets the facts which no record contains: the usage, the title and
        the places of unread records. Also return what ``change_of_documents`` returns beside it. A
        source without such facts changes nothing, so nothing is read.
        """
        facts = self._facts
        changed = {IMPORTED: facts["usage"]} if facts.get("usage") else {}
        title = self._new_title(is_new=is_new)
        attributes = {} if title is None else {TITLE: title}
        if places := facts.get("unread"):
            unread = [(place, _first_since(first_ids, place, end)) for place in places]
            changed[UNREAD] = [*map(list, unread)]
            attributes[INCOMPLETE] = incomplete(unread)
        if not (changed or attributes):
            return None, None, False
        titled = None if is_new else facts.get(TITLED)
        return change_of_documents(self.store, self.conversation, changed, attributes, titled)

    def _new_title(self, *, is_new: bool) -> str | None:
        """Return the title of the source if it is to be set: of a new source, or if the last title
        that an import set was another one.
        """
        title: str | None = self._facts.get(TITLE)
        return title if is_new or self._facts.get(TITLED) not in (None, title) else None


def _state_of(sources: Sources, source: Source, row: Conversation) -> DecoderState | None:
    """Return the state after the last record with events, or None if it is not valid any more."""
    codec = sources.database.codec_of(row)
    for encoded in sources.reader.records(row.key, _PROJECTION, 0, 1):
        record = codec.decoded_record(_PROJECTION, encoded)
        if record is None or record.code != READER:
            continue
        try:
            stored = _decode_stored(record.body)
        except msgspec.DecodeError:  # as if it were damaged
            continue
        redacted = len(sources.all_redacted(source))
        is_valid = (stored.program, stored.records, stored.redacted) == (
            VERSION,
            source.made,
            redacted,
        )
        if is_valid and stored.state.window < source.made:
            return stored.state
    return None


def _first_since(first_ids: Mapping[int, int], record: int, end: int) -> int:
    """Return the id of the first event from a record on, or ``end`` if there is none."""
    return min((first for number, first in first_ids.items() if number >= record), default=end)
