"""The tasks of an administrator as methods: functions of ``foldlog.eventstore.maintenance``."""

from __future__ import annotations

import getpass
import glob
import json
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, Protocol

from foldlog._archive.redacting import events_of_records, redact_records, source_files
from foldlog._companions import and_companions, companion_of, companions, forked_from, sub_agents
from foldlog._copies import (
    is_a_copy,
    is_gone,
    may_hold,
    note_sources,
    noted,
    path_in,
    read_models,
    source_name,
    stores_in,
    told,
)
from foldlog._unreadable import sound
from foldlog._whole_file import whole_file
from foldlog._words.event_json import event_document
from foldlog.eventstore import (
    NOT_RECORDED,
    ConversationErased,
    ConversationHasForks,
    ConversationRow,
    CorruptEvent,
    Event,
    EventStoreError,
    InvalidArgument,
    KeyRing,
    KeyUnavailable,
    Logged,
    Store,
    StoreDamaged,
    VersionConflict,
    confirm,
    open_store,
    recent_conversations,
    summary_of,
)
from foldlog.eventstore.inside import (
    as_url,
    can_be_redacted,
    check_reason,
    check_text,
    from_microseconds,
    newest_documents,
)
from foldlog.eventstore.maintenance import backup, copy, erase, redact, rekey, verify
from foldlog.eventstore.maintenance.unfinished import purge

_PAGE = 1_000

BackedUp = backup.BackedUp
Vacuumed = backup.Vacuumed
Moved = copy.Moved
UnequalConversation = copy.UnequalConversation
RedactionReceipt = redact.RedactionReceipt
Rekeyed = rekey.Rekeyed
Published = verify.Published
Verdict = verify.Verdict


class _Histories(Protocol):
    @property
    def store(self) -> Store: ...


class Maintenance:
    """The maintenance of one store. Each method is the function of the same name. ``stays`` returns why a conversation
    is not erased for its age.
    """

    def __init__(self, store: Store, stays: Callable[[str], EventStoreError | None] = lambda name: None) -> None:
        self._store, self._stays = store, stays

    def __repr__(self) -> str:
        return f"<Maintenance of {self._store.path or type(self._store.database.recorder).__name__}>"

    def verify(
        self,
        conversation: str | None = None,
        published: Mapping[str, Sequence[Published]] | None = None,
        *,
        start: str = "",
    ) -> Iterator[Verdict]:
        """Yield a verdict for each history, whether every event is unchanged, and, unless you name one, a last verdict
        for the database, whose ``conversation`` is None. Nothing happens until you iterate. See
        ``maintenance.verify.verify``.
        """
        return verify.verify(self._store, conversation, published, start=start)

    def rekey(self, *conversations: str, decrypt: bool = False) -> Iterator[Rekeyed]:
        """Yield each history as its stored events are encrypted and compressed again with the settings of this store;
        nothing happens until you iterate. See ``maintenance.rekey.rekey``.

        With keys, the last result names what else does (``plain``).
        """
        has_keys = self._store.database.settings.keys is not None
        for each in rekey.rekey(self._store, *and_companions(self._store, conversations), decrypt=decrypt):
            is_last = has_keys and not decrypt and each.bytes_pending is not None
            yield each._replace(plain=in_plain_text(self._store)) if is_last else each

    def back_up(self, path: str, on_progress: Callable[[int, int], object] = lambda done, of: None) -> BackedUp:
        """Copy the store to a new file and verify the copy. See ``maintenance.backup.back_up``.

        As long as the file is there, receipts of later erasures name it in ``unconfirmed``.
        """
        with noted(self._store, "backup", path):
            return backup.back_up(self._store, path, on_progress)

    def vacuum(self, on_progress: Callable[[int, int], object] = lambda done, of: None) -> Vacuumed:
        """Reclaim disk space, and remove the bytes of what was erased and the remains of interrupted operations.
        Cost: the whole store, rewritten. See ``maintenance.backup.vacuum``.
        """
        return backup.vacuum(self._store, on_progress)

    def retain(
        self,
        age: timedelta,
        attributes: Mapping[str, Any] | None = None,
        *,
        reason: str,
        dry_run: bool = False,
        detach_forks: bool = False,
        findings: Callable[[str], object] = lambda problem: None,
    ) -> Iterator[ConversationRow]:
        """Yield the tombstone of each conversation whose last event is older than ``age``, with ``attributes`` only of
        those that have them, as it is erased with its companions; nothing is erased until you iterate. With ``dry_run``
        yield the row of each, and erase nothing.

        A conversation stays, and ``findings`` is told why, that has a younger fork (``detach_forks`` gives the fork a
        copy of the shared events), a new event, or a worker with its lease: it is erased later. In a SQLite file the
        bytes stay until ``vacuum``; on PostgreSQL one vacuum follows the last erasure. Raises what ``Histories.erase``
        and ``Histories.list`` raise. Durability: each is erased when it is yielded. Cost: the list of conversations,
        and the events of those erased.
        """
        given: object = age
        if not isinstance(given, timedelta) or given < timedelta():
            raise InvalidArgument(f"age is a timedelta that is not negative, such as timedelta(days=90), not {age!r}")
        before = from_microseconds(self._store.database.now()) - age
        rows = conversations_with(self._store, attributes, before)
        expected = {row.id: row for row in rows}
        how: dict[str, Any] = {"expected": expected, "stays": self._stays, "dry_run": dry_run}
        return gone(erased(self._store, rows, reason=reason, detach_forks=detach_forks, **how), findings)

    def copy_from(
        self,
        source: Store | _Histories,
        *conversations: str,
        jobs: int = 4,
        damaged: str | os.PathLike[str] | None = None,
    ) -> Iterator[Moved]:
        """Yield every history of another store, or those named and their companions, as it is copied into this one;
        nothing is copied until you iterate. See ``maintenance.copy.copy_store``.

        ``damaged`` names a file. Then a damaged history is copied up to its first damaged event, and each later event
        that can be read is a line of JSON in that file, which only its owner can read.
        """
        store = _store_of(source)
        names = and_companions(store, conversations)
        moved = copy.copy_store(store, self._store, *names, jobs=jobs, damaged=damaged is not None)
        return moved if damaged is None else _with_the_rest(store, self._store, moved, Path(damaged))

    def differences_from(self, source: Store | _Histories, *conversations: str) -> Iterator[UnequalConversation]:
        """Yield the histories of another store, or those named and their companions, that have another head here."""
        store = _store_of(source)
        return copy.compare_stores(store, self._store, *and_companions(store, conversations))


def _with_the_rest(store: Store, new: Store, moved: Iterable[Moved], path: Path) -> Iterator[Moved]:
    """Yield the outcomes, and write the readable events that could not be copied to a file, which the new store notes:
    a damaged one may not be able to.
    """
    with noted(new, "export", path), whole_file(path) as file:
        for outcome in moved:
            if outcome.damaged is None:
                yield outcome
                continue
            number, problem = 0, outcome.problem
            try:
                for each in _readable_from(store, outcome.conversation, outcome.damaged):
                    number += 1
                    line = {"conversation": outcome.conversation, **event_document(each.event, each.recorded_at)}
                    file.write(f"{json.dumps(line)}\n".encode())
            except (CorruptEvent, StoreDamaged) as error:
                problem = f"{problem}; of the later events not all can be read: {error}"
            rest = f"{number:,} later event{'s' if number != 1 else ''} in {path}"
            yield outcome._replace(problem=f"copied up to event {outcome.damaged}, {rest}: {problem}")


def _readable_from(store: Store, conversation: str, start: int) -> Iterator[Logged]:
    """Yield the events that can be read. Those of a fork can, where those that it shares cannot."""
    row = store.conversation(conversation)
    begins = max(start, row.parent_version or 0)
    for first, stop in ((start, begins), (begins, row.version)):
        yield from sound(store, conversation, first, stop, [])


def gone(
    work: Iterable[tuple[ConversationRow, EventStoreError | None]], findings: Callable[[str], object] | None = None
) -> Iterator[ConversationRow]:
    """Yield the rows without an error. Tell ``findings`` of the others, or raise the error of the last in the end."""
    stays: EventStoreError | None = None
    for row, error in work:
        if error is None:
            yield row
        elif findings is not None:
            findings(str(error))
        else:
            stays = error
    if stays is not None:
        raise stays


def conversations_with(
    store: Store,
    attributes: Mapping[str, Any] | None = None,
    before: datetime | None = None,
    *,
    and_shared: bool = False,
) -> list[ConversationRow]:
    """Return the conversations that have these attributes, with their companions: those in which, and in whose
    companions, no event was recorded since ``before``. What several conversations share is left out as long as one of
    these is; it needs the attributes too, unless ``and_shared``.
    """
    named = ids_with(store, attributes) if attributes else None
    rows = [row for row in store.iter_conversations() if row.erased_at is None]
    young = {name for row in rows if before and row.updated_at >= before for name in (row.id, companion_of(row.id))}
    found = {row.id for row in rows if row.id not in young and (named is None or row.id in named)}
    stay = {row.id for row in rows if row.id not in found and not companion_of(row.id)}
    in_use, begun = (
        {start for name in names for start in accumulate(name.split("/"), "{}/{}".format)} - {""}
        for names in (stay, found)
    )
    wholes = {row.id: companion_of(row.id) for row in rows}
    if and_shared:
        found |= {name for name, whole in wholes.items() if whole in begun}
    return [row for row in rows if wholes[row.id] in found or (row.id in found and wholes[row.id] not in in_use)]


def ids_with(store: Store, attributes: Mapping[str, Any]) -> set[str]:
    """Return the ids of the conversations that have all of these attributes."""
    found, after = set[str](), None
    while True:
        page = recent_conversations(store.database, attributes, limit=_PAGE, after=after, age_max_s=0)
        found |= {one.id for one in page.conversations}
        if (after := page.after) is None:
            return found


def and_forks(
    store: Store, rows: Iterable[ConversationRow], but: Container[str] = frozenset()
) -> list[ConversationRow]:
    """Return conversations, each once, and their forks ``but`` these. Cost: a look-up for each, and for each fork."""
    found = {row.id: row for row in rows}
    for name in [row.id for row in found.values() if row.erased_at is None]:
        with suppress(ConversationErased):  # since it was listed
            forks = store.forks_sharing(name, NOT_RECORDED)
            found |= {fork: store.conversation(fork) for fork in forks if fork not in found and fork not in but}
    return [*found.values()]


def erased(
    store: Store,
    rows: Iterable[ConversationRow],
    *,
    reason: str,
    with_forks: bool = False,
    detach_forks: bool = False,
    expected: Mapping[str, ConversationRow] | None = None,
    stays: Callable[[str], EventStoreError | None] = lambda conversation: None,
    complete: bool = True,
    dry_run: bool = False,
) -> Iterator[tuple[ConversationRow, EventStoreError | None]]:
    """Erase conversations, forks before the conversations whose events they share, companions after theirs. Yield the
    tombstone of each, and ``with_forks`` those of their forks; for one that stays, its row and why. One that has a
    newer event than its row in ``expected`` stays, and one of which ``stays`` returns why. With ``dry_run``, erase
    nothing, and yield rows in the place of tombstones.
    """
    if with_forks and detach_forks:
        raise InvalidArgument("with_forks and detach_forks: forks are either erased or kept; give one of the two")
    known, gone = {row.id: row for row in rows}, set[str]()
    alone = (row for row in known.values() if companion_of(row.id) not in known)
    left = sorted(alone, key=lambda row: (_depth(row, known), row.created_at))
    erase_one = partial(erase.erase, store, reason=reason, with_forks=with_forks, detach_forks=detach_forks)
    while left:
        row = left.pop()
        if row.id in gone:
            continue
        if (reason_to_stay := stays(row.id)) is not None:
            yield row, reason_to_stay
            continue
        forks = and_forks(store, [row], gone)[:0:-1]
        sources = source_files(store, [each.id for each in (row, *forks)])
        origins = forked_from(store, row.id)
        its = [*forks, row] if with_forks else [row]
        noted_now: list[str] = []
        try:
            if not dry_run:
                paths = chain.from_iterable(sources.values())
                noted_now = note_sources(store, paths, [each.id for each in (row, *forks)])
                tombstone = erase_one(row.id, complete=False, expected=(expected or {}).get(row.id))
                its = [store.conversation(each.id) for each in its[:-1]]
                its = [*(each for each in its if each.erased_at is not None), tombstone]  # others were detached
            elif forks and not (with_forks or detach_forks):
                raise ConversationHasForks(row.id, tuple(fork.id for fork in forks if fork.parent == row.id))
        except (ConversationHasForks, VersionConflict) as error:
            for name in noted_now:
                confirm(store, name, None)
            yield row, error
            continue
        gone |= {each.id for each in its}
        beside = companions(store, *(each.id for each in its))
        left += [each for each in beside if row.erased_at is not None or each.erased_at is None]
        kept = [f"companion {each.id}" for each in companions(store, *origins) if each.erased_at is None]
        agents = [f"sub-agent {name}" for name in sub_agents(store, row.id)]
        its[-1] = its[-1]._replace(unconfirmed=(*kept, *agents, *its[-1].unconfirmed))
        for each in its:
            names = each.unconfirmed
            if not dry_run:
                names = holders(store, names, {each.id}, sources.get(each.id, ()))
            yield each._replace(unconfirmed=names), None
    if complete and gone and not dry_run:
        cleared(store)


def _depth(row: ConversationRow, known: dict[str, ConversationRow]) -> int:
    """Return how many of the conversations that a fork was begun from are known, one above the other."""
    depth = 0
    while row.parent in known:
        row, depth = known[row.parent], depth + 1
    return depth


def redacted(
    store: Store,
    conversation: str,
    event_ids: Sequence[int],
    *,
    reason: str,
    by: str | None,
    with_summaries: bool,
    for_content: bool = True,
) -> RedactionReceipt:
    """Redact events, with all that may repeat their content: see ``History.redact``. Where they do not go
    ``for_content``, but for their age, records without an id and a time stay welcome in other histories.
    """
    by, reason = check_text("by", _user() if by is None else by), check_reason(reason, "receipt")
    unread: list[str] = []
    named = {conversation: asked_for(store, conversation, event_ids)}
    asked = {event.id for event in named[conversation]}
    common = set[tuple[str, int]]()
    redact_with = partial(
        redact.redact,
        store,
        conversation,
        event_ids[0],
        reason=reason,
        by=by,
        complete=False,
        also=redact_records(store, common),
    )
    receipt: RedactionReceipt | None = None
    chosen: set[tuple[str, int]] = set()
    while True:  # until others have appended nothing that has to go too
        named = all_that_goes(store, named, unread, with_summaries=with_summaries)
        others = {name: [each.id for each in its] for name, its in named.items()}
        now = {(name, each) for name, its in others.items() for each in its}
        if receipt is not None and now <= chosen:
            break
        chosen |= now
        if not for_content:
            common |= {(name, each.id) for name, its in named.items() for each in its if not _is_named(each)}
        touched = {conversation}
        for name, its in others.items():
            with suppress(ConversationErased):  # since it was found
                touched |= {name, *(store.forks_sharing(name, min(its)) if its else ())}
        sources = source_files(store, sorted(touched))
        others[conversation] = [*event_ids, *(each for each in others.get(conversation, ()) if each not in asked)]
        after = redact_with(others=others)
        receipt = after._replace(position=receipt.position) if receipt and after.position is None else after
    files = chain.from_iterable(sources.values())
    unconfirmed = holders(store, (*dict.fromkeys(unread), *receipt.unconfirmed), touched, files)
    lost = documents_lost(store, conversation, receipt.event_ids)
    return receipt._replace(unconfirmed=unconfirmed, documents_lost=lost)


def _is_named(event: Event) -> bool:
    """Return whether the record of an event has an id or a time: no other history has it by chance."""
    origin = event.origin
    return origin is not None and (origin.id is not None or origin.time is not None or event.timestamp is not None)


def asked_for(store: Store, conversation: str, event_ids: Iterable[int]) -> list[Event]:
    """Return the events of these ids that are there, each once; for the id of a summary its condensation."""
    wanted = dict.fromkeys(summary_of(each) if each < NOT_RECORDED else each for each in event_ids)
    return [event for each in wanted if each >= 0 for event in store.events(conversation, each, each + 1)]


def documents_lost(store: Store, conversation: str, event_ids: Sequence[int]) -> tuple[str, ...]:
    """Return the documents whose newest values are in these events."""
    newest = store.query(conversation, partial(newest_documents, version=None))
    return tuple(name for name, event_id in newest.items() if event_id in event_ids)


def cleared(store: Store) -> bool:
    """Clear the tables of a server, once for all that is gone. Return whether bytes are pending."""
    purge(store.database.recorder, "what was erased is gone for every reader")
    return store.database.bytes_pending


def all_that_goes(
    store: Store, named: Mapping[str, Sequence[Event]], unread: list[str], *, with_summaries: bool
) -> dict[str, list[Event]]:
    """Return these events of conversations and all events whose content goes with theirs: those of the same records of
    a source and copies of them (``with_copies``), and with summaries the condensations that may quote them, in forks
    too, and copies of these.
    """
    goes = with_copies(store, with_records(store, named), unread)
    if not with_summaries:
        return goes
    for name, events in shown_by(store, goes).items():
        begins, known = store.conversation(name).parent_version or 0, {each.id for each in goes.get(name, ())}
        quotes = store.query(name, partial(redact.quotes_in, redacted=events))
        own = [each for each in quotes if each.id >= begins and each.id not in known]
        if own:
            goes.setdefault(name, []).extend(own)
    return with_copies(store, with_records(store, goes), unread)


def with_records(store: Store, named: Mapping[str, Sequence[Event]]) -> dict[str, list[Event]]:
    """Return these events, and those that came of the same records: see ``events_of_records``."""
    ids = events_of_records(store, {name: [each.id for each in events] for name, events in named.items()})
    found = {name: {each.id: each for each in events} for name, events in named.items()}
    for name, its in ids.items():
        there = found.setdefault(name, {})
        for missing in sorted(its - there.keys()):
            there |= {each.id: each for each in store.events(name, missing, missing + 1) if can_be_redacted(each)}
    return {name: [*events.values()] for name, events in found.items()}


def with_copies(store: Store, named: Mapping[str, Sequence[Event]], unread: list[str]) -> dict[str, list[Event]]:
    """Return these events of conversations, and those of companions that repeat their content. Of these, one that
    cannot be read is named in ``unread``. Cost: the events of a conversation that has companions; those of companions.
    """
    found = {name: [*events] for name, events in named.items()}
    for name, events in named.items():
        row = store.conversation(name)
        own = [event for event in events if event.id >= (row.parent_version or 0) and can_be_redacted(event)]
        for beside, copies in _copies_beside(store, row, own, unread):
            found[beside] = [*{each.id: each for each in (*found.get(beside, ()), *copies)}.values()]
    return found


def _copies_beside(
    store: Store, row: ConversationRow, gone: Sequence[Event], unread: list[str]
) -> Iterator[tuple[str, list[Event]]]:
    """Yield each companion that shows these events of a conversation, with its events that repeat their content."""
    from foldlog._matching import copies_of, texts_of

    ids = {each.id for each in gone}
    sharing = store.forks_sharing(row.id, min(ids)) if gone else ()
    found = companions(store, row.id, *forked_from(store, row.id), *sharing) if gone else ()
    if beside := [each for each in found if each.erased_at is None]:
        own = _readable(store, row, row.parent_version or 0, [])
        texts = texts_of(gone, (each for each in own if each.id not in ids))
        yield from ((each.id, copies_of(texts, _readable(store, each, 0, unread))) for each in beside)


def _readable(store: Store, row: ConversationRow, start: int, unread: list[str]) -> Iterator[Event]:
    """Yield the events from ``start`` on that can be read. The others are named in ``unread``."""
    from foldlog._unreadable import sound

    return (each.event for each in sound(store, row.id, start, row.version, unread))


def _user() -> str:
    """Return the name of the user that this process runs as; its number where it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}" if hasattr(os, "getuid") else ""


def shown_by(store: Store, named: Mapping[str, Iterable[Event]]) -> dict[str, list[Event]]:
    """Return which of these events of conversations each conversation shows: its own, and those that it shares as a
    fork. Cost: a look-up for each event.
    """
    shown: dict[str, list[Event]] = {}
    for name, events in named.items():
        begins = store.conversation(name).parent_version or 0
        for event in (event for event in events if event.id >= begins):
            for each in (name, *store.forks_sharing(name, event.id)):
                shown.setdefault(each, []).append(event)
    return shown


def holders(
    store: Store, unconfirmed: Iterable[str], conversations: Container[str] | None = None, sources: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return what may still hold what was erased of these conversations, or of any one: of ``unconfirmed`` the read
    models and the files that foldlog wrote of them, the former files that restores kept, and the files and folders
    ``sources``.
    """
    known = [name for name in unconfirmed if may_hold(name, conversations) and path_in(name) != store.path]
    noted_sources = {name: path_in(name) for name in known if name.startswith("imported ")}
    there = [told(store, name) for name in known if name not in noted_sources]  # a backup knows itself
    for name in filter(is_gone, noted_sources):
        told(store, name)
    former = [] if store.path is None else sorted(glob.glob(f"{glob.escape(store.path)}.replaced-*"))
    paths = filter(os.path.exists, dict.fromkeys((*noted_sources.values(), *sources)))
    return (*there, *(f"former file {path}" for path in former), *map(source_name, paths))


def note_files(store: Store, restored_from: str, former: str | None) -> None:
    """Note in a restored store the backup that it is, and the files that the former file knew: they may hold what is
    erased from now on.
    """
    names = {f"backup {os.path.abspath(restored_from)}"}
    if former is not None:
        with suppress(EventStoreError), open_store(f"{as_url(former)}?mode=ro") as earlier:  # else it is damaged
            names |= {name for name in read_models(earlier) if is_a_copy(name)}
    for name in names:
        confirm(store, name, 0)


def in_plain_text(store: Store) -> tuple[str, ...]:
    """Return what may still hold events of a store with keys as plain text: what ``holders`` names, but the stores in
    which nothing is plain. Cost: a look-up for each of them, and for each conversation of those stores.
    """
    names = holders(store, read_models(store))
    keys = store.database.settings.keys
    encrypted = {path for path in stores_in(names) if not _is_plain(path, keys)}
    return tuple(name for name in names if path_in(name) not in encrypted)


def _is_plain(path: str, keys: KeyRing | None) -> bool:
    """Return whether events of a store are not encrypted, as far as these keys tell, or it cannot be looked into."""
    try:
        with open_store(f"{as_url(path)}?mode=ro", keys=keys) as store:
            return holds_plain_events(store)
    except EventStoreError:
        return True


def holds_plain_events(store: Store) -> bool:
    """Return whether events of a store are not encrypted, as far as its keys tell. Cost: a look-up a conversation."""
    for found in rekey.named_or_all(store.database, ()):
        with suppress(KeyUnavailable):  # so it is encrypted
            if found.erasure is None and found.version and not store.database.codec_of(found).is_strict:
                return True
    return False


def _store_of(source: Store | _Histories) -> Store:
    """Return the store to copy from or to compare with. Raises ``TypeError``."""
    store = source if isinstance(source, Store) else getattr(source, "store", None)
    if not isinstance(store, Store):
        raise TypeError(f"source is what foldlog.open(URL) returns, not {source!r:.60}")
    return store
