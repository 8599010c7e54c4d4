"""Import one history of a source into a store: find its conversation, and add the new events.

A history is named by its place below the folder that is imported. So a history that the store has by its name below
another folder is continued under that name. A later version of foldlog may read a record into other events: a history
whose records an earlier version imported is not imported again. A source that its program writes again grows by
retractions. A history of which events are redacted is recognized by what stays of it, under any name: an import does
not bring back what was redacted.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain, count, islice, takewhile, tee, zip_longest
from math import inf
from operator import itemgetter
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from foldlog._formats.conversion import encode_standing
from foldlog._formats.live import recorded
from foldlog._formats.packing import events_of, is_step_aside, place_of
from foldlog._formats.record import INCOMPLETE, UNREAD, dicts_in
from foldlog._formats.rewritten import StoredRecord, is_rewriting, is_same, standing_records
from foldlog._observed import tell
from foldlog._reports.usage import calls_of_imported
from foldlog._seen_files import Imported, SeenFiles, source_files
from foldlog._usage import IMPORTED, usage_of
from foldlog._words.gist import count as counted
from foldlog.eventstore import (
    ATTRIBUTES,
    DELETED,
    ConversationErased,
    ConversationRow,
    DocumentChanges,
    Documents,
    Event,
    HistoryDiverged,
    InvalidArgument,
    InvalidEvent,
    Redaction,
    Retraction,
    Store,
    VersionConflict,
    check_text,
)
from foldlog.eventstore.codec import encode as encoded
from foldlog.eventstore.codec_json import size_of
from foldlog.eventstore.log.importing import ids_moved, say_the_same, timed_as
from foldlog.eventstore.maintenance.redact import redact
from foldlog.formats import NotAHistory, Source, UnknownFormat, open_sources
from foldlog.projections import contains, intervals_kept

_SHARED_MIN = 3
"""This number of equal first events (or all events, if there are fewer) makes a conversation with a former name the
beginning of a history: two histories of one task begin with the same prompt.
"""
_LONG_ID = 16
"""The length of an id that no other history has."""
Watch = Callable[[Iterator[Event]], Iterator[Event]]
"""A function that the events pass through, to show progress."""


class InAFork(Imported):
    """The outcome for a history that is not what was imported before: its conversation is a fork of that one."""


class ReadOtherwise(HistoryDiverged):
    """A source has grown, but its beginning is now read into other events than those in the store. Nothing was
    added.
    """

    def __init__(self, conversation: str, version: int, records: int) -> None:
        Exception.__init__(
            self,
            f"conversation {conversation!r} holds the first {records} records of this source, but read into other "
            f"events: later records leave a branch, or an earlier version of foldlog imported it; nothing was added; "
            f"import the source under another name with --conversation or --prefix",
        )
        self.conversation, self.event_id, self.version = conversation, version, version


class HeldTwice(HistoryDiverged):
    """Two files of one import hold a conversation, and differ. Nothing was added of the second."""

    def __init__(self, conversation: str, version: int, other: Path) -> None:
        Exception.__init__(
            self,
            f"conversation {conversation!r} is in {other} too, which was imported, and there it is otherwise; nothing "
            f"was added; import the newer one alone, or this one under another name with --conversation or --prefix",
        )
        self.conversation, self.event_id, self.version = conversation, version, version


class WasRedacted(HistoryDiverged):
    """An import would bring redacted content back: under another name, or in the conversation itself, whose source
    differs from the stored events at ``differs_at``. Nothing was added.
    """

    def __init__(
        self, conversation: str, version: int, name: str, differs_at: int | None = None, *, in_parts: bool = False
    ) -> None:
        told = (
            f"is this history, as far as what is left tells, and events of it were redacted, which would come back in "
            f"{name!r}; nothing was added; import it whole and without --conversation to add what is new, with the "
            f"file that was imported first back in its place, or erase {conversation!r} first"
        )
        if differs_at is not None:
            lacks, remedy = "lacks records of this history, and cannot take them", ""
            if in_parts:
                lacks, remedy = (
                    "takes no file with a part of this history",
                    "put all its files into one and import that, or ",
                )
            told = (
                f"{lacks}: events of it were redacted, which would come back; nothing was added; {remedy}erase "
                f"{conversation!r}, import this source under another id with --prefix, and redact it there"
            )
        Exception.__init__(self, f"conversation {conversation!r} {told}")
        self.conversation, self.version = conversation, version
        self.event_id = version if differs_at is None else differs_at


class _How(NamedTuple):
    """How a source is imported. ``seen`` knows another file with a conversation: one of them must not take the other
    back. ``marks``: whether to mark a conversation that lacks records.
    """

    watch: Watch
    seen: SeenFiles
    marks: bool


def import_source(
    store: Store,
    source: Source,
    conversation: str | None = None,
    watch: Watch = iter,
    seen: SeenFiles | None = None,
    *,
    marks: bool = True,
) -> Imported:
    """Import a history into ``conversation``, by default into the one of its name, or where it differs from that after
    some events, into a fork of it there.

    Importing it again adds only new events. Raises what ``store.ingest`` raises, ``ReadOtherwise``, ``HeldTwice`` and
    ``WasRedacted`` among it.
    """
    if source.grown is not None:
        version, events = source.grown
        store.append(source.name, events, expected_version=version)
        return Imported(source.name, len(events), version + len(events), alone=True)
    seen = seen or SeenFiles(store, read_all=True)
    how = _How(watch, seen, marks)
    try:
        imported = _found_and_imported(store, source, conversation, how)
    except VersionConflict:  # another import of this history was first: what it added is compared now
        imported = _found_and_imported(store, source, conversation, how)
    if imported.version and store.conversation(imported.conversation).redactions:
        imported = _without_redacted(store, source, imported)
    return _marked(store, source, imported, how)


def _found_and_imported(store: Store, source: Source, conversation: str | None, how: _How) -> Imported:
    name = source.name if conversation is None else conversation
    if store.version(name) == 0:
        alike = how.seen.redacted_like(source)
        begins_unread = bool(alike and source.findings)
        redacted = (each for each in alike if _holds(store, each, source, name, by_redacted=True))
        if conversation is None:
            former = (each for each in _former_names(store, source) if _holds(store, each, source, name))
            name = next(chain(former, redacted), name)
        elif (other := next(redacted, None)) is not None:
            raise WasRedacted(other, store.version(other), name)
        if begins_unread and store.version(name) == 0:
            given = [event for _, made in source.decoded() for event in made if event.timestamp is not None]
            for other in alike:
                if any(each.redacted and _is_among(given, each) for each in store.events(other)):
                    raise WasRedacted(other, store.version(other), name)
    elif store.conversation(name).redactions:
        same, _, _, hidden, shared = _compare(store, name, source)
        if same and hidden and shared < inf and _is_in_its_files(store, name, source) is False:
            at = next(each.id for each in store.events(name) if each.redacted)
            raise HistoryDiverged(name, at, store.version(name))
    into = _ingest_or_fork if conversation is None else _ingest
    return into(store, source, name, how)


def _without_redacted(store: Store, source: Source, imported: Imported) -> Imported:
    """Take the records that came after the last redaction and may repeat what was redacted, as a redaction does with
    those that are there. Tell of new events that say it themselves. Memory: the events.
    """
    from foldlog._matching import records_with, that_say

    name, version, put_back = imported.conversation, imported.version, list[Event]()
    given = [event for _, made in source.decoded() for event in made]
    whole = [*_with_redacted(store, name, iter(given), source.format, put_back)]
    receipts = {each.id: stored.redacted for each in put_back for stored in store.events(name, each.id, each.id + 1)}
    gone = [each for each in put_back if (receipt := receipts[each.id]) is not None and not receipt.record]
    if not gone:
        return imported
    firsts = sorted({each.id - place_of(each) for each in gone})
    of_gone = [each for first in firsts for each in whole[first : first + events_of(whole[first])]]
    later = 1 + max((each.id for each in whole if isinstance(each, Redaction)), default=-1)
    repeating = records_with(gone, of_gone, whole[later:])
    owner, receipt = store.conversation(name), receipts[gone[0].id]
    while owner.parent is not None and gone[0].id < (owner.parent_version or 0):
        owner = store.conversation(owner.parent)
    if repeating and receipt is not None:
        by, reason, records = receipt.by, receipt.reason, {name: repeating}
        redact(store, owner.id, gone[0].id, reason=reason, by=by, records=records, complete=False)
        source.tell(
            f"conversation {name!r} does not keep {counted(len(repeating), 'record')} that may repeat what was "
            f"redacted, of events {', '.join(map(str, repeating))}; 'foldlog vacuum' removes the bytes from the file"
        )
    if again := ", ".join(map(str, that_say(gone, whole[version - imported.added :]))):
        source.tell(f"new events of conversation {name!r} say what was redacted: {again}; redact them too")
    more = store.version(name) - version
    return imported._replace(added=imported.added + more, version=version + more)


def _marked(store: Store, source: Source, imported: Imported, how: _How) -> Imported:
    """Keep in documents what is known of a source beside its events."""
    documents = Documents(store)
    changed = _usage(store, documents, source, imported)
    is_known = imported.is_older or (imported.added == imported.version and not source.findings)
    if imported.version and not is_known:  # an older source says nothing of what is missing
        changed |= _incomplete(store, imported.conversation, source, how)
    added = len(documents.append(imported.conversation, (), changed)) if changed else 0
    return imported._replace(added=imported.added + added, version=imported.version + added)


def _usage(store: Store, documents: Documents, source: Source, imported: Imported) -> dict[str, Any]:
    """Return the document with what calls of models used, as the source tells it beside its records: of each reply, and
    of each use in a run, unless an event or a reply tells of calls, which are calls of the run. Of two figures for the
    same calls the higher one is newer.
    """
    if not imported.version or not source.usage:
        return {}
    told: dict[str, dict[str, Any]] = {}
    known = dicts_in(documents.get(imported.conversation, IMPORTED))
    for each in (*known, *source.usage):
        key = repr((each.get("reply"), each.get("use")))
        told[key] = max(each, told.get(key, each), key=_size)
    found = [each for each in told.values() if type(each.get("reply")) is str]
    if not found and not any(calls_of_imported(store.events(imported.conversation), source.format)):
        found = [*told.values()]
    return {IMPORTED: found} if found or known else {}


def _size(told: dict[str, Any]) -> tuple[float, int]:
    cost = told.get("cost")
    return cost if isinstance(cost, int | float) else 0.0, sum(usage_of(told.get("usage")).values())


def _incomplete(store: Store, conversation: str, source: Source, how: _How) -> dict[str, Any]:
    """Return the documents that say which records of the source are missing, and no longer once all are there; empty
    where nothing changes.
    """
    unread = [finding.before for finding in source.findings if finding.before is not None]
    is_all = source.findings_count == len(source.findings)
    places = [place for place, _ in unread] + ([] if is_all else [-1])
    documents, is_begun = Documents(store), store.version(conversation) > 0
    known = documents.get(conversation, UNREAD) if is_begun else None
    attributes = documents.get(conversation, ATTRIBUTES, {}) if is_begun else {}
    if known == (places if unread else None) or (unread and not how.marks):
        return {}
    if not unread:
        return {ATTRIBUTES: {name: attributes[name] for name in attributes if name != INCOMPLETE}, UNREAD: DELETED}
    _, before = unread[0]
    number = f"{'' if is_all else 'at least '}{counted(len(unread), 'record')} of its source could not be read"
    where = f"{'the first ' if len(unread) > 1 else ''}{f'after event {before - 1}' if before else 'before event 0'}"
    return {ATTRIBUTES: {**attributes, INCOMPLETE: f"{number}, {where}"}, UNREAD: places}


def import_path(
    store: Store,
    path: str | PathLike[str],
    format: str,
    conversation: str | None,
    prefix: str,
    findings: Callable[[str], object] | None,
) -> list[str]:
    """Import every history at a path. Return their conversations: see ``foldlog.Histories.import_``."""
    seen = SeenFiles(store, check_text("format", format), check_text("prefix", prefix), conversation, below=[path])
    sources = open_sources([path], format, prefix=prefix, look=seen.look)
    if conversation is not None:
        check_text("conversation", conversation)
    if conversation is not None and len(list(islice(sources, 2))) > 1:
        raise InvalidArgument(f"conversation names one history, and {path} holds several; leave it out, or use prefix")
    find = findings or (lambda finding: tell("foldlog.import.finding", of=f"import of {path}", finding=finding))
    named: list[tuple[int, str]] = []
    diverged: HistoryDiverged | None = None
    for source in sources:
        try:
            imported = import_source(store, source, conversation, seen=seen)
        except HistoryDiverged as error:  # the others are imported, as by the command
            find(f"{source.path}: {error}")
            diverged = diverged or (None if isinstance(error, HeldTwice) else error)
            continue
        for finding in source.findings:
            find(str(finding))
        if imported.version:
            named.append((seen.place(source.path), imported.conversation))
            seen.imported(source, imported)
    seen.close_file()
    seen.flush()
    for finding in sources.findings:
        find(str(finding))
    if diverged is not None:
        raise diverged
    named += [(seen.place(one.path), one.conversation) for one in seen.unchanged.values()]
    return [*dict.fromkeys(name for _, name in sorted(named, key=itemgetter(0)))]


def _former_names(store: Store, source: Source) -> Iterator[str]:
    """Yield the conversations that may be this history under a former name. A number was added to a name in use."""
    for name in source.former_names:
        yield from takewhile(store.version, chain((name,), (f"{name}#{number}" for number in count(2))))


def _holds(store: Store, conversation: str, source: Source, name: str, *, by_redacted: bool = False) -> bool:
    """Return whether a conversation holds this history, or its beginning. ``by_redacted``: no name says that it may, so
    one of the events that they share is redacted, and each of these has the size of the source's. Raises
    ``WasRedacted`` where too little is left of them to tell.
    """
    with suppress(ConversationErased):  # since it was listed
        first = next(store.events(conversation, 0, 1))
        if first.origin is not None and first.origin.format == source.format:
            same, stored, given, redacted, shared = _compare(store, conversation, source, by_size=by_redacted)
            # A log of which only the title was there has the name of its file: the id that it tells now.
            is_begun = stored >= _SHARED_MIN or (not first.shown and conversation.endswith(f"/{source.name}"))
            is_it = _is_in_its_files(store, conversation, source) if same and redacted and shared < inf else same
            if is_it is None and shared - redacted < _SHARED_MIN:
                raise WasRedacted(conversation, store.version(conversation), name)
            return is_it is not False and (redacted > 0 if by_redacted else not given or is_begun)
    return False


def _is_in_its_files(store: Store, conversation: str, source: Source) -> bool | None:
    """Return whether a file from which a conversation was imported begins as a source; None if none is there still."""
    begun: list[bool] = []
    for path in source_files(store, [store.conversation(conversation)]).get(conversation, ()):
        with suppress(NotAHistory):
            others = [*open_sources([path], source.format)]
            for other in [each for each in others if conversation.endswith(each.name)] or others:
                same, records, *_ = _compare(store, conversation, other, by_size=True)
                begun += [all(map(is_same, islice(other.records(), records), source.records()))] if same else []
    return any(begun) if begun else None


def _ingest_or_fork(store: Store, source: Source, name: str, how: _How) -> Imported:
    """Import a history into a conversation; where it was edited since, or another hand wrote to the conversation, into
    its fork before the event that differs. The next import finds it there, by its name.
    """
    try:
        return _ingest(store, source, name, how)
    except (ReadOtherwise, HeldTwice):
        raise
    except HistoryDiverged as error:
        at, fork = error.event_id, f"{name}@{error.event_id}"
        if how.seen.elsewhere(source.path, name, asked_for=True) is not None:
            raise
        if store.version(fork) == 0:
            if source.is_rewritten:
                raise
            family = _with_its_forks(store, name)
            for other in family:  # that began elsewhere, at a gap
                if other.parent == name and other.version > (other.parent_version or 0):
                    with suppress(HistoryDiverged):
                        return InAFork(*_ingest(store, source, other.id, how))
            if any(each.redactions for each in family):
                raise  # what is redacted must not come back
            if at < _SHARED_MIN:
                raise
            store.fork(name, at, fork)
        return InAFork(*_ingest_or_fork(store, source, fork, how))


def _with_its_forks(store: Store, name: str) -> list[ConversationRow]:
    """Return the conversation that edits of this log began in, and all forks that they became, but erased ones."""
    row = store.conversation(name)
    while row.parent is not None and row.id.startswith(f"{row.parent}@"):
        row = store.conversation(row.parent)
    forks = takewhile(lambda each: each.id.startswith(f"{row.id}@"), store.iter_conversations(f"{row.id}@"))
    return [row, *(each for each in forks if each.erased_at is None)]


def _ingest(store: Store, source: Source, conversation: str, how: _How) -> Imported:
    source.as_read()
    if source.is_rewritten and store.version(conversation):
        grown = _grow(store, source, conversation, how)
        if grown is not None:
            return grown
    try:
        return _ingested(store, source, conversation, how)
    except HistoryDiverged as error:
        diverged = error
    if source.can_be_mended:
        with suppress(InvalidEvent):
            source.mend(_standing(store, source, conversation, []) or ())
            try:
                return _ingested(store, source, conversation, how)
            except HistoryDiverged as error:
                diverged = error
    same, records, more, redacted, _ = _compare(store, conversation, source)
    unread = Documents(store).get(conversation, UNREAD)
    differing = store.events(conversation, diverged.event_id, diverged.event_id + 1)
    by_others = any(event.origin is None for event in differing)
    if more > 0 and (by_others or unread is not None or _rewritings(store, conversation)):
        with suppress(InvalidEvent):
            grown = _grow(store, source, conversation, how, unread or ())
            if grown is not None:
                return grown
    version = store.version(conversation)
    may_lack = unread is not None or source.is_in_parts
    hidden = redacted if same else may_lack and store.conversation(conversation).redactions
    if more > 0 and hidden:  # under another name it is refused too
        raise WasRedacted(conversation, version, conversation, diverged.event_id, in_parts=source.is_in_parts)
    if not same:
        healed = _rewritings(store, conversation) and _standing(store, source, conversation, [])
        if healed and records >= _SHARED_MIN:  # what was written again is shared too
            raise HistoryDiverged(conversation, healed[records - 1].version, store.version(conversation)) from diverged
        raise diverged
    if more > 0:
        raise diverged if by_others else ReadOtherwise(conversation, version, records)
    return Imported(conversation, 0, version, is_older=more < 0)


def _ingested(store: Store, source: Source, conversation: str, how: _How) -> Imported:
    is_new, number = store.version(conversation) == 0, 0

    def given() -> Iterator[Event]:
        nonlocal number
        for event in source.events():
            number += 1
            yield event
        # A conversation that lacks records is never there without saying so.
        if number and is_new and (changed := _incomplete(store, conversation, source, how)):
            yield DocumentChanges(changed={name: {"value": value} for name, value in changed.items()})

    added, version = store.ingest(conversation, how.watch(given()))
    others = not added and number < version  # either later ones of the source, or of another hand
    stored = (each for each in store.events(conversation) if each.origin is not None) if others else ()
    return Imported(conversation, added, version, number == version, any(islice(stored, number, None)))


def _rewritings(store: Store, conversation: str) -> list[Retraction]:
    structural = store.query(conversation, lambda read: [*read.structural_events(0, read.version)])
    return [each for each in structural if isinstance(each, Retraction) and is_rewriting(each)]


def _grow(
    store: Store, source: Source, conversation: str, how: _How, unread: Sequence[int] | None = None
) -> Imported | None:
    """Add what a source has that its program wrote again, and take back what it no longer has; None where others than
    its imports wrote to the conversation. With the places of ``unread`` records, a log only adds: see ``_healed_by``.
    """
    version, put_back = store.version(conversation), list[Event]()
    standing = _standing(store, source, conversation, put_back)
    if standing is None:  # at most it is known that the source is older
        events = list(store.events(conversation, 0, version))
        whole = [each for each, _ in recorded(source.format, (each for each in events if each.redacted is None))]
        growth = source.growth([StoredRecord(each, 0, 0, 0) for each in whole], version)
        for record in source.records():
            growth.first_id(record, 0)
        gone = {each.origin.id for each in events if each.redacted is not None and each.origin is not None}
        is_older = growth.is_older or source.is_part_of(whole, gone - {None})
        return Imported(conversation, 0, version, is_older=True) if is_older else None
    source.mend(standing)
    rest = [] if unread is None else _healed_by(source, standing, unread)
    if type(rest) is not list:
        return None if rest is None else Imported(conversation, 0, version, is_older=True)
    source.go_on(rest)
    growth = source.growth(standing, version)
    new = list(how.watch(source.events_beyond(growth)))
    lost = growth.lost
    is_copy = lost and how.seen.elsewhere(source.path, conversation) is not None
    has_less = is_copy and not any(each.shown and not is_step_aside(each) for each in new)
    if growth.is_older or has_less or (growth.shrinks and not source.is_whole):
        # What cannot be read may be there: its program may be writing it.
        return Imported(conversation, 0, version, is_older=True)
    added = 0
    if new:
        other = how.seen.elsewhere(source.path, conversation, asked_for=True)
        if other is not None and any(each.shown for each in lost):
            raise HeldTwice(conversation, version, other)
        begins = new[0].version if isinstance(new[0], Retraction) and is_rewriting(new[0]) else version
        stored = store.events(conversation) if store.conversation(conversation).redactions else ()
        redacted = (each for each in stored if each.redacted is not None)
        if any(each.id >= begins for each in put_back) or any(_is_among(new, each) for each in redacted):
            raise WasRedacted(conversation, version, conversation, begins)
        changed = _incomplete(store, conversation, source, how)
        added = len(Documents(store).append(conversation, new, changed, expected_version=version))
    taken_back = 0 if unread is not None else growth.taken_back
    is_part = source.is_part and not new and source.is_whole
    return Imported(conversation, added, version + added, alone=not rest, is_older=is_part, taken_back=taken_back)


def _is_among(new: Sequence[Event], gone: Event) -> bool:
    """Return whether new events of a source have the content of a redacted one, also of one that was taken back: by
    the ids of its record and its call and its time, else by all that stays of it.
    """
    call, source_id = getattr(gone, "call_id", None), gone.origin and gone.origin.id
    for event in new:
        if type(event) is type(gone) and event.origin and event.origin.id == source_id:
            is_named = source_id is not None if event.timestamp is None else event.timestamp == gone.timestamp
            if is_named and (source_id, call) != (None, None) and getattr(event, "call_id", None) == call:
                return True
            alike = replace(event, cause=gone.cause)
            whole = replace(alike, timestamp=event.timestamp or gone.timestamp)
            if gone.redacted and size_of(encoded(alike).body) == gone.redacted.bytes and say_the_same(gone, whole):
                return True
    return False


def _standing(store: Store, source: Source, conversation: str, put_back: list[Event]) -> list[StoredRecord] | None:
    """Return the records that stand, as ``standing_records``, and redacted events as in ``_with_redacted``."""
    version = store.version(conversation)
    kept, events = intervals_kept(_rewritings(store, conversation), version), store.events(conversation, 0, version)
    if store.conversation(conversation).redactions:
        given = (event for _, made in source.decoded() for event in made)
        events = _with_redacted(store, conversation, given, source.format, put_back)
    return standing_records((event for event in events if contains(kept, event.id)), source.format)


def _healed_by(
    source: Source, standing: list[StoredRecord], unread: Sequence[int]
) -> list[StoredRecord] | Literal[False] | None:
    """Return the last records that a source lacks of those that stand, if beside them it has only the records that
    could not be read, in their places, and later ones; None where it is another one. An older one of which some of them
    are missing too heals nothing: False.
    """
    found: list[int] = []
    same = 0
    for record in source.records():
        if same < len(standing) and is_same(standing[same].record, record):
            same += 1
            continue
        place = same  # of two equal records in a row, either may be the one that was missing
        while place and place not in unread and is_same(standing[place - 1].record, record):
            place -= 1
        found.append(place if place in unread else same)
    if same == len(standing):
        return [] if -1 in unread or {*found} <= {*unread, same} else None
    if Counter(found) - Counter(unread):
        return None
    return standing[same:] if found == unread else False


class _Compared(NamedTuple):
    """Whether a conversation or a source begins with the other, how many records they have in common, whether the
    source has more or others (1), neither (0) or the conversation (-1), how many events in common are redacted, and how
    many are shown: inf where one has a time or a long id.
    """

    is_same: bool
    records: int
    more: int
    redacted: int
    shared: float


def _compare(store: Store, conversation: str, source: Source, *, by_size: bool = False) -> _Compared:
    """Compare the records of a conversation with those of a source; of a redacted event, what stays of it. With
    ``by_size`` also its former size, and nothing that another hand wrote.
    """
    nothing = object()
    records, shared = 0, 0.0
    put_back: list[Event] = []
    ours, theirs = tee(source.decoded())
    given = (event for _, events in ours for event in events)
    version, taken_back = store.version(conversation), _rewritings(store, conversation)
    whole = _with_redacted(store, conversation, given, source.format, put_back, by_size=by_size)
    try:
        stored_records = encode_standing(whole, version, taken_back, source.format, None)
        for stored, (record, events) in zip_longest(stored_records, theirs, fillvalue=(nothing, ())):
            if type(stored) is tuple or record is nothing:
                return _Compared(True, records, -1 if record is nothing else 1, len(put_back), shared)
            if not is_same(stored, record):
                break
            records += 1
            for event in events:
                named = event.origin and (event.origin.time or len(str(event.origin.id)) >= _LONG_ID)
                shared += inf if event.timestamp is not None or named else event.shown
        else:
            return _Compared(True, records, 0, len(put_back), shared)
    except (UnknownFormat, ValueError):  # of another format, or half a record
        pass
    return _Compared(False, records, 1, len(put_back), shared)


def _with_redacted(
    store: Store,
    conversation: str,
    given: Iterator[Event],
    format: str,
    put_back: list[Event],
    *,
    by_size: bool = False,
) -> Iterator[Event]:
    """Yield the stored events, and in the place of a redacted one that of the source with its names, the nth for the
    nth, if it stands and what stays of it is equal. Add that to ``put_back``. Memory: the events, if some are redacted.
    """
    version = store.version(conversation)
    standing = intervals_kept(_rewritings(store, conversation), version)
    others: list[int] = []  # the source knows nothing of these
    named: defaultdict[Any, deque[Event]] = defaultdict(deque)
    for event in given if store.conversation(conversation).redactions else ():
        if event.origin is not None and event.origin.format == format:
            named[_names(event, event.timestamp)].append(event)
    for event in store.events(conversation, 0, version):
        found = named[_names(event, event.timestamp)] or named[_names(event, None)]
        if event.origin is None or event.origin.format != format:
            others.append(event.id)
            # Of a receipt no format has a record.
            event = Redaction(id=event.id, event_ids=(), hashes=(), by="", reason="") if by_size else event
        elif not (contains(standing, event.id) and found):
            others.append(event.id)
        elif (receipt := event.redacted) is None:
            found.popleft()
        else:
            theirs = found.popleft()
            moved = ids_moved(encoded(timed_as(event, theirs)), others)
            whole = replace(moved.event, id=event.id, timestamp=theirs.timestamp or event.timestamp)
            if say_the_same(event, whole) and (not by_size or size_of(moved.body) == receipt.bytes):
                put_back.append(whole)
                event = whole
        yield event


def _names(event: Event, at: datetime | None) -> tuple[Any, ...]:
    """Return what names an event in its source, as far as it is named: its kind, its ids and its time."""
    return type(event), event.origin and event.origin.id, getattr(event, "call_id", None), at
