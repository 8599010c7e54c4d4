"""Import one history of a source into a store: add what that lacks, and take back what a program that writes again no
longer has. ``known`` tells which conversation has how much of it.

A history is named by its place below the folder that is imported. So a history that the store has by its name below
another folder is continued under that name. A later version of foldlog may read a record into other events: a history
whose records an earlier version imported is not imported again. A source that its program writes again grows by
retractions, and so does one whose first records were read as another format. A history of which events are redacted is
recognized by what stays of it, under any name: an import does not bring back what was redacted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice, takewhile
from typing import Any, NamedTuple

from foldlog._formats.conversion import format_of_history
from foldlog._formats.format import Earlier
from foldlog._formats.packing import is_step_aside, place_of
from foldlog._formats.past import recorded
from foldlog._formats.record import INCOMPLETE, UNREAD, dicts_in
from foldlog._formats.rewritten import OF_OTHERS, Growth, StoredRecord, healed_by, is_rewriting, standing_records
from foldlog._formats.tips import marked
from foldlog._importing.known import (
    AnotherHistory,
    HeldTwice,
    ReadOtherwise,
    WasRedacted,
    compare,
    conversation_of,
    is_another,
    without_repeating,
)
from foldlog._importing.redacted import SHARED_MIN, is_among, made_whole, rewritings
from foldlog._seen_files import Imported, SeenFiles
from foldlog._usage import IMPORTED, usage_of
from foldlog.eventstore import (
    ATTRIBUTES,
    DELETED,
    ConversationRow,
    DocumentChanges,
    Documents,
    Event,
    HistoryDiverged,
    InvalidEvent,
    Retraction,
    Store,
    VersionConflict,
)
from foldlog.eventstore.codec import Encoded
from foldlog.eventstore.recorders.base import Reader
from foldlog.formats import Source

_READ_OTHERWISE = (
    "holds the first {} records of this source, but read into other events: later records leave a branch, or an "
    "earlier version of foldlog imported it; nothing was added; import the source under another name with "
    "--conversation or --prefix"
)
_HELD_TWICE = (
    "is in {} too, which was imported, and there it is otherwise; nothing was added; import the newer one alone, or "
    "this one under another name with --conversation or --prefix"
)
Watch = Callable[[Iterator[Any]], Iterator[Any]]
"""A function that the events pass through, to show progress."""


_TRIES = 5


class _How(NamedTuple):
    """How a source is imported: under which ``name`` it is looked for. ``seen`` knows another file with a conversation:
    one of them must not take the other back. ``check`` ends the import where something was redacted after it was
    compared.
    """

    name: str
    watch: Watch
    seen: SeenFiles
    check: Callable[[Reader], object]


def import_source(
    store: Store,
    source: Source,
    conversation: str | None = None,
    watch: Watch = iter,
    seen: SeenFiles | None = None,
) -> Imported:
    """Import a history into ``conversation``, by default into the one of its name, or where it differs from that after
    some events, into a fork of it there.

    Importing it again adds only new events. Raises what ``store.ingest`` raises, ``ReadOtherwise``, ``HeldTwice`` and
    ``WasRedacted`` among it.
    """
    if source.grown is not None:
        version, events = source.grown
        store.append(source.name, events, expected_version=version)
        return Imported(source.name, len(events), version + len(events), True, format=source.format, path=source.path)
    into, name = (_add_or_fork, source.name) if conversation is None else (_add, conversation)
    seen = seen or SeenFiles(store, read_all=True)

    tries = 0
    while True:
        check = partial(_check_redactions, name, store.database.recorder.value("redactions"))
        try:
            known = conversation_of(store, source, seen, name, is_given=conversation is not None)
            imported = into(store, source, known, _How(name, watch, seen, check))
            break
        except VersionConflict:  # another process wrote: what it added or redacted is compared now
            if (tries := tries + 1) == _TRIES:
                raise
    imported = _with_documents(store, source, without_repeating(store, source, imported))
    told = imported.conversation not in source.former_names and not source.is_named
    if conversation is None and told and imported.conversation in seen.named_otherwise(source):
        where = " or ".join(map(str, source.others)) or "it"
        source.tell(f"its name is no longer in {where}; it goes on as conversation {imported.conversation!r}")
    return imported._replace(put_back=(), format=source.format, path=source.path)


def _check_redactions(name: str, before: str, reader: Reader) -> None:
    """Raise ``VersionConflict`` where something was redacted since."""
    if reader.value("redactions") != before:
        conflict = VersionConflict(name, 0, 0)
        conflict.args = (f"events were redacted again and again while {name!r} was imported; try later",)
        raise conflict


def _add_or_fork(store: Store, source: Source, name: str, how: _How) -> Imported:
    """Import a history into a conversation; where it was edited since, or another hand wrote to the conversation, into
    its fork before the event that differs. The next import finds it there, by its name.
    """
    try:
        return _add(store, source, name, how)
    except (AnotherHistory, HeldTwice, ReadOtherwise):
        raise
    except HistoryDiverged as error:
        differing = store.events(name, error.event_id, error.event_id + 1)
        at = error.event_id - sum(map(place_of, differing))  # where its record begins
        fork = f"{name}@{at}"
        if not source.rules.rewritten and how.seen.elsewhere(source.path, name, asked_for=True) is not None:
            raise
        if store.version(fork) == 0:
            family = _with_its_forks(store, name)
            for other in family:  # that began elsewhere, at a gap
                if other.parent == name and other.version > (other.parent_version or 0):
                    with suppress(HistoryDiverged):
                        return _add(store, source, other.id, how)._replace(is_fork=True)
            if any(each.redactions for each in family):
                raise  # what is redacted must not come back
            if at < SHARED_MIN:
                raise
            store.fork(name, at, fork)
        return _add_or_fork(store, source, fork, how)._replace(is_fork=True)


def _with_its_forks(store: Store, name: str) -> list[ConversationRow]:
    """Return the conversation that edits of this log began in, and all forks that they became, but erased ones."""
    row = store.conversation(name)
    while row.parent is not None and row.id.startswith(f"{row.parent}@"):
        row = store.conversation(row.parent)
    forks = takewhile(lambda each: each.id.startswith(f"{row.id}@"), store.iter_conversations(f"{row.id}@"))
    return [row, *(each for each in forks if each.erased_at is None)]


def _add(store: Store, source: Source, conversation: str, how: _How) -> Imported:
    """Import a history into a conversation, or raise ``HistoryDiverged`` for what keeps it from that."""
    source.as_read()
    goes_on = source.base
    if goes_on is not None and not store.version(conversation):
        _begin(store, goes_on, conversation, source.format)
    version, put_back, read = store.version(conversation), list[Event](), list[Event]()
    if version and store.conversation(conversation).redactions:
        read = [*source.events()]
        _, put_back = made_whole(store, conversation, read, source.format)
        if put_back and conversation == how.name and is_another(store, conversation, source, read):
            raise AnotherHistory(conversation, put_back[0].id, version)
    may_grow = source.rules.rewritten or goes_on is not None
    grows = version > 0 and (may_grow or format_of_history(store, conversation) != source.format)
    if grows and (grown := _grow(store, source, conversation, how)) is not None:
        return grown
    try:
        given = iter(read) if read else source.encoded()
        return _ingest(store, source, conversation, how, given)._replace(put_back=put_back)
    except HistoryDiverged as error:
        diverged = error
    is_part = False
    with suppress(InvalidEvent):
        is_part = source.may_be_part(_records(store, source, conversation)[0])
        if is_part and (grown := _grow(store, source, conversation, how)) is not None:
            return grown
    if source.can_be_mended:
        with suppress(InvalidEvent):
            source.mend(_records(store, source, conversation)[0])
            try:
                return _ingest(store, source, conversation, how, source.events())._replace(put_back=put_back)
            except HistoryDiverged as error:
                diverged = error
    same, records, more, _, put_back = compare(store, conversation, source)
    unread = [place for place, _ in Documents(store).get(conversation, UNREAD, ())]
    differing = store.events(conversation, diverged.event_id, diverged.event_id + 1)
    by_others = any(event.origin is None for event in differing)
    if more > 0 and (by_others or unread or rewritings(store, conversation)):
        with suppress(InvalidEvent):
            if (grown := _grow(store, source, conversation, how, unread)) is not None:
                return grown
    hidden = put_back if same else (unread or is_part) and store.conversation(conversation).redactions
    if more > 0 and hidden:  # under another name it is refused too
        raise _would_come_back(source, conversation, version, diverged.event_id)
    if not same:
        healed, others, _ = _records(store, source, conversation)
        if rewritings(store, conversation) and others is None and records >= SHARED_MIN:
            at = healed[records - 1].version  # what was written again is shared too
            raise HistoryDiverged(conversation, at, version) from diverged
        raise diverged
    if more > 0:
        raise diverged if by_others else ReadOtherwise(conversation, version, _READ_OTHERWISE.format(records))
    return Imported(conversation, 0, version, is_older=more < 0, put_back=put_back)


def _begin(store: Store, base: Earlier, conversation: str, format: str) -> None:
    """Begin a conversation as a fork of the history that it goes on from, if that is there up to this place."""
    history = base.history
    if history != conversation and store.version(history) and not store.conversation(history).redactions:
        with suppress(InvalidEvent):
            there = [each for each in standing_records(store.events(history), format) if base.is_last(each.record)]
            if there:
                store.fork(history, there[-1].version, conversation)


def _would_come_back(source: Source, conversation: str, version: int, at: int) -> WasRedacted:
    lacks, remedy = "lacks records of this history, and cannot take them", ""
    if source.rules.joins is not None:
        lacks, remedy = "takes no file with a part of this history", "put all its files into one and import that, or "
    problem = (
        f"{lacks}: events of it were redacted, which would come back; nothing was added; {remedy}erase "
        f"{conversation!r}, import this source under another id with --prefix, and redact it there"
    )
    return WasRedacted(conversation, version, problem, at)


def _ingest(store: Store, source: Source, conversation: str, how: _How, given: Iterator[Event | Encoded]) -> Imported:
    """Compare event by event, and add the events after those that are the same."""
    is_new, number = store.version(conversation) == 0, 0

    def events() -> Iterator[Event | Encoded]:
        nonlocal number
        for event in given:
            number += 1
            yield event
        # A conversation that lacks records is never there without saying so.
        if number and is_new and (changed := _incomplete(store, conversation, source)):
            yield DocumentChanges(changed={name: {"value": value} for name, value in changed.items()})

    added, version = store.ingest(conversation, how.watch(events()), check=how.check)
    others = not added and number < version  # either later ones of the source, or of another hand
    stored = (each for each in store.events(conversation) if each.origin is not None) if others else ()
    return Imported(conversation, added, version, number == version, any(islice(stored, number, None)))


def _records(store: Store, source: Source, conversation: str) -> tuple[list[StoredRecord], int | None, list[Event]]:
    """Return the records that stand, up to the first event that others made, the id of that event, None if there is
    none, and redacted events that the source has.
    """
    format = format_of_history(store, conversation)
    whole, put_back = made_whole(store, conversation, source.events(), format)
    records = [*standing_records(whole, format)]
    others = records.pop().first_id if records and records[-1].record is OF_OTHERS else None
    return records, others, put_back


def _grow(
    store: Store, source: Source, conversation: str, how: _How, unread: Sequence[int] | None = None
) -> Imported | None:
    """Add what a source has that its program wrote again, and take back what it no longer has. Where others than its
    imports wrote to the conversation, raise ``HistoryDiverged`` for it instead, at their first event; None where a log
    is compared event by event, or something is redacted there. With the places of ``unread`` records, a log only adds:
    see ``healed_by``. Where its first records passed for those of another format, all are read again.
    """
    version = store.version(conversation)
    records, others, put_back = _records(store, source, conversation)
    as_before = Imported(conversation, 0, version, is_older=True, put_back=put_back)
    read_again = format_of_history(store, conversation) != source.format
    if read_again and others is not None:
        return None
    if others is not None and unread is None and store.version(f"{conversation}@{others}"):
        raise HistoryDiverged(conversation, others, version)  # it goes on there
    if others is not None and (unread is not None or store.conversation(conversation).redactions):
        # at most it is known that the source is older
        events = list(store.events(conversation, 0, version))
        kept = [each for each, _ in recorded(source.format, (each for each in events if each.redacted is None))]
        stood = [StoredRecord(each, 0, 0, 0) for each in kept]
        growth = Growth(stood, [*source.records()], version, source.rules.changed_at)
        gone = {each.origin.id for each in events if each.redacted is not None and each.origin is not None}
        return as_before if growth.is_older or source.is_part_of(kept, gone - {None}) else None
    source.mend(records)
    if source.edited is not None:
        at = next(each.first_id for each in records if each.record is source.edited)
        raise HistoryDiverged(conversation, at, version)
    given = [*source.records()]
    rest = healed_by(given, records, unread or ()) if unread is not None or read_again else []
    if type(rest) is not list:
        return None if rest is None else as_before
    if read_again and len(given) == len(records):
        return None
    source.go_on(rest)
    all_given = [*given, *(each.record for each in rest)]
    growth = Growth(records, all_given, version, source.rules.changed_at, read_again=read_again)
    new = list(how.watch(source.events_beyond(growth)))
    lost = growth.lost
    is_copy = lost and how.seen.elsewhere(source.path, conversation) is not None
    has_less = is_copy and not any(each.shown and not is_step_aside(each) for each in new)
    if growth.is_older or has_less or (growth.shrinks and not source.is_whole):
        return as_before  # what cannot be read may be there: its program may be writing it
    added = 0
    if new:
        other = how.seen.elsewhere(source.path, conversation, asked_for=True)
        if other is not None and any(each.shown for each in lost):
            raise HeldTwice(conversation, version, _HELD_TWICE.format(other))
        if others is not None:
            raise HistoryDiverged(conversation, others, version)
        begins = new[0].version if isinstance(new[0], Retraction) and is_rewriting(new[0]) else version
        stored = store.events(conversation) if store.conversation(conversation).redactions else ()
        redacted = (each for each in stored if each.redacted is not None)
        if any(each.id >= begins for each in put_back) or any(is_among(new, each) for each in redacted):
            raise _would_come_back(source, conversation, version, begins)
        changed = _incomplete(store, conversation, source)
        added = len(Documents(store).append(conversation, new, changed, expected_version=version))
    taken_back = sum(each.shown for each in growth.gone) if new else 0
    is_part = source.is_part and not new and source.is_whole
    return as_before._replace(
        added=added, version=version + added, alone=not rest and source.is_end, is_older=is_part, taken_back=taken_back
    )


def _with_documents(store: Store, source: Source, imported: Imported) -> Imported:
    """Keep in documents what is known of a source beside its events."""
    if not imported.version:
        return imported
    changed = _usage(store, source, imported.conversation)
    is_known = imported.is_older or (imported.added == imported.version and not source.findings)
    if not is_known:  # an older source says nothing of what is missing
        changed |= _incomplete(store, imported.conversation, source)
    added = len(Documents(store).append(imported.conversation, (), changed)) if changed else 0
    return imported._replace(added=imported.added + added, version=imported.version + added)


def _usage(store: Store, source: Source, conversation: str) -> dict[str, Any]:
    """Return the document with what calls of models used, as the source tells it beside its records: of each reply, or
    of each use in a run. Of two figures for the same calls the higher one is newer.
    """
    if not source.usage:
        return {}
    told: dict[str, dict[str, Any]] = {}
    known = dicts_in(Documents(store).get(conversation, IMPORTED))
    for each in (*known, *source.usage):
        key = repr((each.get("reply"), each.get("use")))
        told[key] = max(each, told.get(key, each), key=_size)
    found = [each for each in told.values() if type(each.get("reply")) is str]
    return {IMPORTED: found or [*told.values()]}


def _size(told: dict[str, Any]) -> tuple[float, int]:
    cost = told.get("cost")
    return cost if isinstance(cost, int | float) else 0.0, sum(usage_of(told.get("usage")).values())


def _incomplete(store: Store, conversation: str, source: Source) -> dict[str, Any]:
    """Return the documents that say which records of the source are missing, and no longer once all are there; empty
    where nothing changes.
    """
    unread = [finding.before for finding in source.findings if finding.before is not None]
    if unread and source.findings_count > len(source.findings):
        unread.append((-1, unread[-1][1]))
    documents, is_begun = Documents(store), store.version(conversation) > 0
    known = documents.get(conversation, UNREAD, default=()) if is_begun else ()
    attributes = documents.get(conversation, ATTRIBUTES, {}) if is_begun else {}
    if [place for place, _ in known] == [place for place, _ in unread]:
        return {}
    if not unread:
        return {ATTRIBUTES: {name: attributes[name] for name in attributes if name != INCOMPLETE}, UNREAD: DELETED}
    return marked(attributes, unread)
