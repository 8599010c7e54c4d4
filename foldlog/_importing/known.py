"""What a store has of a source already: in which conversation, how much of it, and what of that was redacted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice, takewhile, tee
from itertools import count as numbers
from math import inf
from typing import NamedTuple

from foldlog._formats.conversion import format_of_history
from foldlog._formats.packing import events_of, place_of
from foldlog._formats.rewritten import is_same, standing_records, text_of
from foldlog._importing.redacted import (
    SHARED_MIN,
    has_records,
    is_among,
    made_whole,
    packed_in,
    redacted_alike,
    texts_of,
)
from foldlog._seen_files import Imported, SeenFiles, source_files
from foldlog._words.gist import count, interval_words
from foldlog.eventstore import (
    ConversationErased,
    Event,
    HistoryDiverged,
    InvalidEvent,
    Redaction,
    Store,
    has_content,
)
from foldlog.eventstore.maintenance.redact import redact
from foldlog.formats import NotAHistory, Source, open_sources

_LONG_ID = 16
"""The length of an id that no other history has."""


_NAMED = "It is the same history: import it without --conversation, then its new events are added to that conversation"
_RESUMED = (
    "It is a session that was resumed in another file: take the records of these events out of the file, and import "
    "it again"
)
_EDITED = "Records of it were edited or are missing: import the history with the records that were imported first"
_UNREADABLE = "Some records of it cannot be read: repair them, and import it again"
_TOO_LITTLE_LEFT = (
    "Too little else is left to tell whether it is the same history: put the file that was imported first back in its "
    "place, and import this again"
)


class AnotherHistory(HistoryDiverged):
    """A history has the name of one of which events were redacted."""


class _Refused(HistoryDiverged):
    def __init__(self, conversation: str, version: int, problem: str, differs_at: int | None = None) -> None:
        Exception.__init__(self, f"conversation {conversation!r} {problem}")
        self.conversation, self.version = conversation, version
        self.event_id = version if differs_at is None else differs_at


class ReadOtherwise(_Refused):
    """A source has grown, but its beginning is now read into other events than those in the store."""


class HeldTwice(_Refused):
    """Two files of one import hold a conversation, and differ."""


class WasRedacted(_Refused):
    """An import would bring redacted content back: under another name, or in the conversation itself."""


class Compared(NamedTuple):
    """Whether a conversation or a source begins with the other, how many records they have in common, whether the
    source has more or others (1), neither (0) or the conversation (-1), how many events in common are shown, inf where
    one is of no other history, and the redacted events of the conversation that the source has.
    """

    is_same: bool
    records: int
    more: int
    shared: float
    put_back: list[Event]


def _is_named(event: Event) -> bool:
    """Return whether an event of a source has a time or a long id, which no event of another history has."""
    return event.timestamp is not None or bool((of := event.origin) and (of.time or len(str(of.id)) >= _LONG_ID))


def compare(store: Store, conversation: str, source: Source, *, without_others: bool = False) -> Compared:
    """Compare the records of a conversation with those of a source; of a redacted event, what stays of it. Without
    others: nothing that another hand wrote, and of a redacted event also its size.
    """
    records, shared = 0, 0.0
    ours, theirs = tee(source.decoded())
    given = (event for _, events in ours for event in events)
    whole, put_back = made_whole(store, conversation, given, source.format, without_others=without_others)
    stored = standing_records(whole, source.format, shown=True)
    with suppress(InvalidEvent):  # half a record
        for record, events in theirs:
            there = next(stored, None)
            if there is None or not is_same(there.record, record):
                return Compared(there is None, records, 1, shared, put_back)
            records += 1
            shared += sum(inf if _is_named(event) else event.shown for event in events)
        return Compared(True, records, 0 if next(stored, None) is None else -1, shared, put_back)
    return Compared(False, records, 1, shared, put_back)


def without_repeating(store: Store, source: Source, imported: Imported) -> Imported:
    """Take the records that came after the last redaction and may repeat what was redacted, as a redaction does with
    those that are there. Tell of new events that say it themselves. Memory: the events.
    """
    if not imported.put_back:
        return imported
    from foldlog._matching import records_with, that_say

    name, version = imported.conversation, imported.version
    known, stored = {each.id: each for each in imported.put_back}, list(store.events(name))
    whole = [known.get(each.id, each) for each in stored]
    receipts = {each.id: each.redacted for each in stored if each.redacted is not None and not each.redacted.record}
    gone = [known[event_id] for event_id in receipts if event_id in known]
    if not gone:
        return imported
    firsts = sorted({each.id - place_of(each) for each in gone})
    of_gone = [each for first in firsts for each in whole[first : first + events_of(whole[first])]]
    later = 1 + max((each.id for each in whole if isinstance(each, Redaction)), default=-1)
    if repeating := records_with(gone, of_gone, whole[later:]):
        owner, at = store.conversation(name), gone[0].id
        while owner.parent is not None and at < (owner.parent_version or 0):
            owner = store.conversation(owner.parent)
        by, reason = receipts[at].by, receipts[at].reason
        redact(store, owner.id, at, reason=reason, by=by, records={name: repeating}, complete=False)
        source.tell(
            f"conversation {name!r} does not keep {count(len(repeating), 'record')} that may repeat what was "
            f"redacted, of events {', '.join(map(str, repeating))}; 'foldlog vacuum' removes the bytes from the file"
        )
    if again := ", ".join(map(str, that_say(gone, whole[version - imported.added :]))):
        source.tell(f"new events of conversation {name!r} say what was redacted: {again}; redact them too")
    more = store.version(name) - version
    return imported._replace(added=imported.added + more, version=version + more)


def conversation_of(store: Store, source: Source, seen: SeenFiles, name: str, *, is_given: bool) -> str:
    """Return the conversation that is this history, by its records unless it has this name: the name, if there is none.
    Raises ``WasRedacted`` if it is not the one of a name that was given, or too little is left of it to tell.
    """
    if store.version(name):
        return name
    former = (each for each in _former_names(store, source) if _holds(store, each, source, name))
    there = ((each, texts_of(store.events(each), source.format)) for each in seen.named_otherwise(source))
    here = (each for each, texts in there if has_records(texts, {*map(text_of, source.records())}))
    found = None if is_given else next(chain(former, here), None)
    alike = {} if found else redacted_alike(store, source, seen)
    found = found or next((each for each in alike if _holds(store, each, source, name, by_redacted=True)), None)
    if found is None and alike:
        given = [*source.events()]
        other = next((each for each in alike if _has_redacted(store, each, source, given, is_of=alike[each])), None)
        if other is not None:
            is_resumed = source.is_named and not f"/{source.name}".endswith(f"/{other.rpartition('/')[-1]}")
            remedy = _UNREADABLE if not source.is_whole else _RESUMED if is_resumed else _EDITED
            raise _would_come_back(store, other, name, remedy)
    if found is not None and is_given:
        raise _would_come_back(store, found, name, _NAMED)
    return found or name


def _former_names(store: Store, source: Source) -> Iterator[str]:
    """Yield the conversations that may be this history under a former name. A number was added to a name in use."""
    for name in source.former_names:
        yield from takewhile(store.version, chain((name,), (f"{name}#{number}" for number in numbers(2))))


def _has_redacted(store: Store, conversation: str, source: Source, given: Sequence[Event], *, is_of: bool) -> bool:
    """Return whether a source, which may be edited, has what was redacted of a conversation: an event with its time, or
    if they have records in common (``is_of``), one that is as a file of it tells, or what stays of it, of its size, or
    where all else is equal, but packed in another way. If some of the source cannot be read, these records are enough.
    """
    with suppress(ConversationErased):  # since it was listed
        if is_of and not source.is_whole:
            return True
        may_say = given if is_of else [event for event in given if event.timestamp is not None]
        paths = source_files(store, [store.conversation(conversation)]).get(conversation, ()) if is_of else ()
        files = _compared_with_files(store, conversation, paths, source.format)
        known = {each.id: each for _, compared in files for each in compared.put_back}
        events = [*store.events(conversation)]
        gone = (known.get(event.id, event) for event in events if not has_content(event))
        if any(is_among(may_say, each) for each in gone):
            return True
        if is_of and not known and not packed_in(events) <= packed_in(given):  # then an equal record has another size
            compared = compare(store, conversation, source)
            return compared.is_same and bool(compared.put_back)
    return False


def _holds(store: Store, conversation: str, source: Source, name: str, *, by_redacted: bool = False) -> bool:
    """Return whether a conversation holds this history, or its beginning. ``by_redacted``: no name says that it may, so
    one of the events that they share is redacted, and each of these has the size of the source's. Raises
    ``WasRedacted`` where too little is left of them to tell.
    """
    with suppress(ConversationErased):  # since it was listed
        first = next(store.events(conversation, 0, 1))
        if first.origin is not None and format_of_history(store, conversation) == source.format:
            alone = by_redacted or not store.conversation(conversation).redactions
            same, stored, more, shared, put_back = compare(store, conversation, source, without_others=alone)
            redacted = len(put_back)
            # A log of which only the title was there has the name of its file: the id that it tells now.
            is_begun = stored >= SHARED_MIN or (not first.shown and conversation.endswith(f"/{source.name}"))
            is_it = _is_in_its_files(store, conversation, source) if same and redacted and shared < inf else same
            if is_it is None and shared - redacted < SHARED_MIN:
                raise _would_come_back(store, conversation, name, _TOO_LITTLE_LEFT)
            return is_it is not False and (redacted > 0 if by_redacted else not more or is_begun)
    return False


def _would_come_back(store: Store, conversation: str, name: str, remedy: str) -> WasRedacted:
    gone = interval_words([(event.id, event.id) for event in store.events(conversation) if event.redacted], 10)
    problem = (
        f"has records of this history, and events of it were redacted ({gone}), which would come back in {name!r}; "
        f"nothing was added. {remedy}. Else erase {conversation!r}, import this and redact it again"
    )
    return WasRedacted(conversation, store.version(conversation), problem)


def is_another(store: Store, conversation: str, source: Source, given: Iterable[Event]) -> bool:
    """Return whether a history is not the one of its name of which events were redacted, if only these tell it."""
    return not any(map(_is_named, given)) and _is_in_its_files(store, conversation, source) is False


def _is_in_its_files(store: Store, conversation: str, source: Source) -> bool | None:
    """Return whether a file from which a conversation was imported begins as a source; None if none is there still."""
    paths = source_files(store, [store.conversation(conversation)]).get(conversation, ())
    if os.path.abspath(source.path) in paths and conversation.endswith(source.name):
        return True
    begun: list[bool] = []
    for other, (same, records, *_) in _compared_with_files(store, conversation, paths, source.format):
        begun += [all(map(is_same, islice(other.records(), records), source.records()))] if same else []
    return any(begun) if begun else None


def _compared_with_files(
    store: Store, conversation: str, paths: Sequence[str], format: str
) -> Iterator[tuple[Source, Compared]]:
    """Yield what the files from which a conversation was imported hold, compared with it."""
    for path in paths:
        with suppress(NotAHistory):
            others = [*open_sources([path], format)]
            for other in [each for each in others if conversation.endswith(each.name)] or others:
                yield other, compare(store, conversation, other, without_others=True)
