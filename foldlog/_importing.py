"""Import one history of a source into a store: find its conversation, and add the new events.

A history is named by its place below the folder that is imported. So a history that the store has by its name below
another folder is continued under that name. A later version of foldlog may read a record into other events: a history
whose records an earlier version imported is not imported again. A source that its program writes again grows by
retractions. A history of which events are redacted is recognized by what stays of it, under any name: an import does
not bring back what was redacted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, count, islice, tee, zip_longest
from operator import itemgetter
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from foldlog._formats.conversion import encode_standing
from foldlog._formats.live import recorded
from foldlog._formats.record import INCOMPLETE, dicts_in
from foldlog._formats.rewritten import StoredRecord, is_rewriting, is_same, standing_records
from foldlog._observed import tell
from foldlog._reports.usage import calls_of_imported
from foldlog._seen_files import SeenFiles
from foldlog._usage import IMPORTED, usage_of
from foldlog._words.gist import count as counted
from foldlog.eventstore import (
    ATTRIBUTES,
    ConversationErased,
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
from foldlog.formats import Source, UnknownFormat, open_sources
from foldlog.projections import Intervals, contains, intervals_kept

_UNREAD = "of its source could not be read, "
_SHARED_MIN = 3
"""This number of equal first events (or all events, if there are fewer) makes a conversation with a former name the
beginning of a history: two histories of one task begin with the same prompt.
"""

Watch = Callable[[Iterator[Event]], Iterator[Event]]
"""A function that the events pass through, to show progress."""


class Imported(NamedTuple):
    """The outcome for a history: its conversation, how many events were added, and its version now. ``alone``: the
    conversation has the events of the source, and no others; ``is_older``: it has records that the source lacks, or
    the source says so. ``taken_back`` is how many of its events, without bookkeeping, the source no longer has.
    """

    conversation: str
    added: int
    version: int
    alone: bool = False
    is_older: bool = False
    taken_back: int = 0


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

    def __init__(self, conversation: str, version: int, name: str, differs_at: int | None = None) -> None:
        told = (
            f"is this history, and events of it were redacted, which would come back in {name!r}; nothing was added; "
            f"import it without --conversation to add what is new, or erase {conversation!r} first"
        )
        if differs_at is not None:
            told = (
                f"lacks records of this history, and cannot take them: events of it were redacted, which would come "
                f"back; nothing was added; erase {conversation!r}, import this source under another id with --prefix, "
                f"and redact it there"
            )
        Exception.__init__(self, f"conversation {conversation!r} {told}")
        self.conversation, self.version = conversation, version
        self.event_id = version if differs_at is None else differs_at


Elsewhere = Callable[[Path, str], Path | None]
"""A function that names another file of this import with a conversation: one of them must not take the other back."""


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
    try:
        imported = _found_and_imported(store, source, conversation, watch, seen)
    except VersionConflict:  # another import of this history was first: what it added is compared now
        imported = _found_and_imported(store, source, conversation, watch, seen)
    return _marked(store, source, imported, marks=marks)


def _found_and_imported(
    store: Store, source: Source, conversation: str | None, watch: Watch, seen: SeenFiles | None
) -> Imported:
    seen = seen or SeenFiles(store, read_all=True)
    name = source.name if conversation is None else conversation
    if store.version(name) == 0:
        redacted = (each for each in seen.redacted_like(source) if _holds(store, each, source, by_redacted=True))
        if conversation is None:
            former = (each for each in _former_names(store, source) if _holds(store, each, source))
            name = next(chain(former, redacted), name)
        elif (other := next(redacted, None)) is not None:
            raise WasRedacted(other, store.version(other), name)
    into = _ingest_or_fork if conversation is None else _ingest
    return into(store, source, name, watch, seen.elsewhere)


def _marked(store: Store, source: Source, imported: Imported, *, marks: bool) -> Imported:
    """Keep in documents what is known of a source beside its events."""
    documents = Documents(store)
    changed = _usage(store, documents, source, imported) | _incomplete(documents, source, imported, marks=marks)
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


def _incomplete(documents: Documents, source: Source, imported: Imported, *, marks: bool) -> dict[str, Any]:
    """Return the attributes that say which records of the source are missing, and no longer once all are there. Without
    ``marks``, only the latter. A source that is older says nothing of that.
    """
    before = [finding.before for finding in source.findings if finding.before is not None]
    may_change = marks if before else imported.added < imported.version
    if imported.is_older or not (imported.version and may_change):
        return {}
    mark = _mark(before)
    attributes = documents.get(imported.conversation, ATTRIBUTES, {})
    known = attributes.get(INCOMPLETE)
    if known == mark or (mark is None and _UNREAD not in str(known)):  # such an attribute of the user stays
        return {}
    attributes = {name: value for name, value in {**attributes, INCOMPLETE: mark}.items() if value is not None}
    return {ATTRIBUTES: attributes}


def _mark(before: Sequence[int]) -> str | None:
    """Return the text for records that are missing before these events; None where none are."""
    if not before:
        return None
    where = f"after event {before[0] - 1}" if before[0] else "before event 0"
    return f"{counted(len(before), 'record')} {_UNREAD}{'the first ' if len(before) > 1 else ''}{where}"


def import_path(
    store: Store,
    path: str | PathLike[str],
    format: str,
    conversation: str | None,
    prefix: str,
    findings: Callable[[str], object] | None,
) -> list[str]:
    """Import every history at a path. Return their conversations: see ``foldlog.Histories.import_``."""
    seen = SeenFiles(store, check_text("format", format), check_text("prefix", prefix), conversation)
    sources = open_sources([path], format, prefix=prefix, look=seen.look)
    if conversation is not None:
        check_text("conversation", conversation)
    if conversation is not None and len(list(islice(sources, 2))) > 1:
        raise InvalidArgument(f"conversation names one history, and {path} holds several; leave it out, or use prefix")
    find = findings or partial(_tell, f"import of {path}")
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
            alone, is_new = imported.version * imported.alone, imported.added == imported.version
            seen.imported(source, imported.conversation, alone, is_new=is_new)
    seen.close_file()
    seen.flush()
    for finding in sources.findings:
        find(str(finding))
    if diverged is not None:
        raise diverged
    named += [(seen.place(one.path), one.conversation) for one in seen.unchanged.values()]
    return [*dict.fromkeys(name for _, name in sorted(named, key=itemgetter(0)))]


def _tell(of: str, finding: str) -> None:
    tell("foldlog.import.finding", of=of, finding=finding)


def _former_names(store: Store, source: Source) -> Iterator[str]:
    """Yield the conversations that may be this history under a former name. A number was added to a name in use."""
    for name in source.former_names:
        if store.version(name) > 0:
            yield name
            numbered = (f"{name}#{number}" for number in count(2))
            for again in numbered:
                if store.version(again) == 0:
                    break
                yield again


def _holds(store: Store, conversation: str, source: Source, *, by_redacted: bool = False) -> bool:
    """Return whether a conversation holds this history, or its beginning. ``by_redacted``: no name says that it may, so
    one of the events that they share is redacted, and each of these has the size of the source's.
    """
    with suppress(ConversationErased):  # since it was listed
        format = next(store.events(conversation, 0, 1)).origin
        if format is not None and format.format == source.format:
            same, stored, given, redacted = _compare(store, conversation, source, by_size=by_redacted)
            return same and (redacted > 0 if by_redacted else not given or stored >= _SHARED_MIN)
    return False


def _ingest_or_fork(store: Store, source: Source, name: str, watch: Watch, elsewhere: Elsewhere) -> Imported:
    """Import a history into a conversation; where it was edited since, or another hand wrote to the conversation, into
    its fork before the event that differs. The next import finds it there, by its name.
    """
    try:
        return _ingest(store, source, name, watch, elsewhere)
    except (ReadOtherwise, HeldTwice):
        raise
    except HistoryDiverged as error:
        at, fork = error.event_id, f"{name}@{error.event_id}"
        if elsewhere(source.path, name) is not None:
            raise
        if store.version(fork) == 0:
            if at < _SHARED_MIN or source.is_rewritten or store.conversation(name).redactions:
                raise  # what is redacted must not come back
            store.fork(name, at, fork)
        return InAFork(*_ingest_or_fork(store, source, fork, watch, elsewhere))


def _ingest(store: Store, source: Source, conversation: str, watch: Watch, elsewhere: Elsewhere) -> Imported:
    source.as_read()
    if source.is_rewritten and store.version(conversation):
        grown = _grow(store, source, conversation, watch, elsewhere)
        if grown is not None:
            return grown
    try:
        return _ingested(store, source, conversation, watch)
    except HistoryDiverged as error:
        diverged = error
    if source.can_be_mended:
        with suppress(InvalidEvent):
            source.mend(standing_records(store.events(conversation), source.format) or ())
            try:
                return _ingested(store, source, conversation, watch)
            except HistoryDiverged as error:
                diverged = error
    same, records, more, redacted = _compare(store, conversation, source)
    mark = str(Documents(store).get(conversation, ATTRIBUTES, {}).get(INCOMPLETE))
    if (not same or more > 0) and (_UNREAD in mark or _rewritings(store, conversation)):
        with suppress(InvalidEvent):
            grown = _grow(store, source, conversation, watch, elsewhere, mark)
            if grown is not None:
                return grown
        if _UNREAD in mark and store.conversation(conversation).redactions:
            raise WasRedacted(conversation, store.version(conversation), conversation, diverged.event_id)
    if not same:
        healed = _rewritings(store, conversation) and standing_records(store.events(conversation), source.format)
        if healed and records >= _SHARED_MIN:  # what was written again is shared too
            raise HistoryDiverged(conversation, healed[records - 1].version, store.version(conversation)) from diverged
        raise diverged
    version = store.version(conversation)
    if more > 0 and redacted:  # under another name it is refused too
        raise WasRedacted(conversation, version, conversation, diverged.event_id)
    if more > 0:
        raise ReadOtherwise(conversation, version, records)
    return Imported(conversation, 0, version, is_older=more < 0)


def _ingested(store: Store, source: Source, conversation: str, watch: Watch) -> Imported:
    given = count()
    events = (event for event, _ in zip(source.events(), given, strict=False))
    added, version = store.ingest(conversation, watch(events))
    number = next(given)
    others = not added and number < version  # either later ones of the source, or of another hand
    stored = (each for each in store.events(conversation) if each.origin is not None) if others else ()
    return Imported(conversation, added, version, number == version, any(islice(stored, number, None)))


def _rewritings(store: Store, conversation: str) -> list[Retraction]:
    structural = store.query(conversation, lambda read: [*read.structural_events(0, read.version)])
    return [each for each in structural if isinstance(each, Retraction) and is_rewriting(each)]


def _grow(
    store: Store, source: Source, conversation: str, watch: Watch, elsewhere: Elsewhere, mark: str | None = None
) -> Imported | None:
    """Add what a source has that its program wrote again, and take back what it no longer has; None where others than
    its imports wrote to the conversation. With the ``mark`` of missing records, a source only adds: see ``_healed_by``.
    """
    version = store.version(conversation)
    standing = standing_records(store.events(conversation, 0, version), source.format)
    if standing is None:  # at most it is known that the source is older
        whole = (event for event in store.events(conversation, 0, version) if event.redacted is None)
        kept = [StoredRecord(each, 0, 0, 0) for each, _ in recorded(source.format, whole)]
        growth = source.growth(kept, version)
        for record in source.records():
            growth.first_id(record, 0)
        return Imported(conversation, 0, version, is_older=True) if growth.is_older else None
    source.mend(standing)
    if mark is not None and (healed := _healed_by(source, standing, mark)) is not True:
        return None if healed is None else Imported(conversation, 0, version, is_older=True)
    growth = source.growth(standing, version)
    events = list(watch(source.events_beyond(growth)))
    if growth.is_older or (growth.shrinks and not source.is_whole):
        # What cannot be read may be there: its program may be writing it.
        return Imported(conversation, 0, version, is_older=True)
    if events:
        if (other := elsewhere(source.path, conversation)) is not None:
            raise HeldTwice(conversation, version, other)
        store.append(conversation, events, expected_version=version)
    taken_back = 0 if mark is not None else growth.taken_back
    return Imported(conversation, len(events), version + len(events), taken_back=taken_back)


def _healed_by(source: Source, standing: Sequence[StoredRecord], mark: str) -> bool | None:
    """Return whether a source has records that could not be read, as ``mark`` says, beside those that stand; None where
    it is another one. An older one lacks the last of those that stand: where it has all that are missing, it goes on
    with them; else it is not healed by this source.
    """
    lacking: list[int] = []
    same = beyond = 0
    for record in source.records():
        if same < len(standing) and is_same(standing[same].record, record):
            same, beyond = same + 1, 0
        else:
            lacking.append(standing[same - 1].version if same else 0)
            beyond += 1
    if same == len(standing):
        return True
    if _mark(lacking) == mark:
        source.go_on(standing[same:])
        return True
    if beyond and mark.endswith(str(_mark(lacking[-1:])).partition(_UNREAD)[2]):  # where the first ones are missing
        beyond = int(mark.partition(" ")[0].replace(",", "")) < len(lacking)
    return None if beyond else False


class _Compared(NamedTuple):
    """Whether a conversation or a source begins with the other, how many records they have in common, whether the
    source has more (1), neither (0) or the conversation (-1), and how many events of those in common are redacted.
    """

    is_same: bool
    records: int
    more: int
    redacted: int


def _compare(store: Store, conversation: str, source: Source, *, by_size: bool = False) -> _Compared:
    """Compare the records of a conversation with those of a source; of a redacted event, what stays of it. With
    ``by_size`` also its former size, and nothing that another hand wrote.
    """
    nothing = object()
    records = 0
    put_back: list[int] = []
    ours, theirs = tee(source.decoded())
    given = (event for _, events in ours for event in events)
    version, taken_back = store.version(conversation), _rewritings(store, conversation)
    standing, events = intervals_kept(taken_back, version), store.events(conversation, 0, version)
    whole = _with_redacted(events, given, source.format, standing, put_back, by_size=by_size)
    try:
        stored_records = encode_standing(whole, version, taken_back, source.format, None)
        for stored, (record, _) in zip_longest(stored_records, theirs, fillvalue=(nothing, ())):
            if type(stored) is tuple or record is nothing:
                return _Compared(True, records, -1 if record is nothing else 1, len(put_back))
            if not is_same(stored, record):
                break
            records += 1
        else:
            return _Compared(True, records, 0, len(put_back))
    except (UnknownFormat, ValueError):  # of another format, or half a record
        pass
    return _Compared(False, records, 1, len(put_back))


def _with_redacted(
    stored: Iterator[Event],
    given: Iterator[Event],
    format: str,
    standing: Intervals,
    put_back: list[int],
    *,
    by_size: bool,
) -> Iterator[Event]:
    """Yield the stored events, and in the place of a redacted one that of the source, if it is ``standing`` and what
    stays of it is equal. Add its id to ``put_back``.
    """
    others: list[int] = []  # the source knows nothing of these
    of_source = (event for event in given if event.origin is not None and event.origin.format == format)
    for event in stored:
        if event.origin is None or event.origin.format != format:
            others.append(event.id)
            # Of a receipt no format has a record.
            event = Redaction(id=event.id, event_ids=(), hashes=(), by="", reason="") if by_size else event
        elif not contains(standing, event.id):
            others.append(event.id)
        elif (theirs := next(of_source, None)) is not None and (receipt := event.redacted) is not None:
            moved = ids_moved(encoded(timed_as(event, theirs)), others)
            whole = replace(moved.event, id=event.id, timestamp=theirs.timestamp or event.timestamp)
            if say_the_same(event, whole) and (not by_size or size_of(moved.body) == receipt.bytes):
                put_back.append(event.id)
                event = whole
        yield event
