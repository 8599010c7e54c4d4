"""The tasks of an administrator as methods: functions of ``foldlog.eventstore.maintenance``."""

from __future__ import annotations

import json
import os
from collections.abc import (
    Callable,
    Container,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import closing, suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from foldlog._archive.redacting import imported_at, source_files
from foldlog._companions import and_companions, companion_of, companions, forked_from, sub_agents
from foldlog._figures.stored import FiguresOfStore
from foldlog._matching import holding
from foldlog._redacting import Redacting, RedactionReport, holders, redact_matching
from foldlog._unreadable import sound
from foldlog._whole_file import whole_file
from foldlog._words.event_json import event_document
from foldlog._written_files import (
    is_a_copy,
    note_sources,
    noted,
    path_in,
    read_models,
    stores_in,
)
from foldlog.eventstore import (
    NOT_RECORDED,
    ConversationErased,
    ConversationHasForks,
    ConversationRow,
    CorruptEvent,
    EventStoreError,
    InvalidArgument,
    KeyRing,
    KeyUnavailable,
    Logged,
    Store,
    StoreDamaged,
    StoreUnavailable,
    VersionConflict,
    confirm,
    open_store,
    recent_conversations,
)
from foldlog.eventstore.inside import (
    as_url,
    check_reason,
    from_microseconds,
)
from foldlog.eventstore.maintenance import archive, backup, copy, erase, redact, rekey, verify
from foldlog.eventstore.maintenance.unfinished import purge

_T = TypeVar("_T")

_PAGE = 1_000

Archived = archive.Archived
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


class Expired(NamedTuple):
    """What ``Maintenance.expire`` did: the tombstones of what it erased, or with ``dry_run`` the
    conversations that would go; why others that are old stay; whether bytes of what was erased are
    still in the store's file.
    """

    conversations: tuple[ConversationRow, ...]
    stay: tuple[str, ...]
    bytes_pending: bool


class Maintenance:
    """The maintenance of one store. Each method runs when it is called. ``stays`` returns why a
    conversation is not erased for its age.

    ``on_result`` is called with each result as soon as it is there, in the thread of the caller:
    show progress with it, or keep the results that an error would lose. An error that it raises
    ends the call; what is done by then stays done.
    """

    def __init__(
        self, store: Store, stays: Callable[[str], EventStoreError | None] = lambda name: None
    ) -> None:
        self._store = store
        self._stays = stays

    def __repr__(self) -> str:
        return (
            f"<Maintenance of {self._store.path or type(self._store.database.recorder).__name__}>"
        )

    def verify(
        self,
        conversation: str | None = None,
        published: Mapping[str, Sequence[Published]] | None = None,
        *,
        start: str = "",
        on_result: Callable[[Verdict], object] = lambda verdict: None,
    ) -> tuple[Verdict, ...]:
        """Check that every event is unchanged. Return a verdict for each history and, unless you
        name one, a last verdict for the database, whose ``conversation`` is None. See
        ``maintenance.verify.verify``.
        """
        verdicts = verify.verify(self._store, conversation, published, start=start)
        return _all_results((archive.checked(self._store, each) for each in verdicts), on_result)

    def rekey(
        self,
        *conversations: str,
        decrypt: bool = False,
        on_result: Callable[[Rekeyed], object] = lambda rekeyed: None,
    ) -> tuple[Rekeyed, ...]:
        """Encrypt and compress the stored events of all histories, or of those named and their
        companions, again with the settings of this store. Return the outcome for each. See
        ``maintenance.rekey.rekey``.

        With keys, the last result names the files and tables outside of the store that hold its
        texts as plain text (``plain``).
        """
        names = and_companions(self._store, conversations)
        rekeyed = rekey.rekey(self._store, *names, decrypt=decrypt)
        if self._store.database.settings.keys is not None and not decrypt:
            rekeyed = _with_plain_text(self._store, rekeyed)
        return _all_results(rekeyed, on_result)

    def back_up(
        self, path: str, on_progress: Callable[[int, int], object] = lambda done, of: None
    ) -> BackedUp:
        """Copy the store to a new file and verify the copy. See ``maintenance.backup.back_up``.

        As long as the file is there, receipts of later erasures name it in ``unconfirmed``.
        """
        with noted(self._store, "backup", path):
            return backup.back_up(self._store, path, on_progress)

    def vacuum(self, on_progress: Callable[[int, int], object] = lambda done, of: None) -> Vacuumed:
        """Reclaim disk space, and remove the bytes of what was erased and the remains of
        interrupted operations. Cost: the whole store, rewritten. See ``maintenance.backup.vacuum``.
        """
        return backup.vacuum(self._store, on_progress)

    def archive(
        self,
        older_than: timedelta | datetime,
        to: str,
        where: Mapping[str, Any] | None = None,
        *,
        on_result: Callable[[Archived], object] = lambda archived: None,
    ) -> tuple[Archived, ...]:
        """Move the events of the conversations whose last event is older than this span, or than
        this moment, to the object store ``to``, a URL such as ``s3://bucket/prefix``: one object a
        conversation. With ``where`` only of the conversations that have these attributes. Return
        the outcome for each.

        Lists, figures, versions and heads stay in the store. The first use of an archived
        conversation restores it. See ``maintenance.archive.archive`` for which stay and for errors,
        ``docs/how-to/archiving.md`` for what else to know. It needs the extra ``archive``.
        """
        if isinstance(older_than, datetime):
            before = older_than
        else:
            before = self._ago(older_than)
        rows = [row for row in conversations_with(self._store, where, before) if not row.archived]
        # what lists show is made of the events, so it is made now
        recent_conversations(self._store.database, {}, limit=1, after=None, age_max_s=0)
        FiguresOfStore(self._store).refresh()
        outcomes = (archive.archive(self._store, row.id, to) for row in rows)
        return _all_results(outcomes, on_result)

    def _ago(self, span: timedelta) -> datetime:
        """Return the moment this long ago. Raises ``InvalidArgument``."""
        given: object = span
        if not isinstance(given, timedelta) or given < timedelta():
            raise InvalidArgument(
                "older_than is a timedelta that is not negative, such as timedelta(days=90), not"
                f" {span!r}"
            )
        return from_microseconds(self._store.database.now()) - span

    def expire(
        self,
        older_than: timedelta,
        where: Mapping[str, Any] | None = None,
        *,
        reason: str = "retention",
        dry_run: bool = False,
        detach_forks: bool = False,
    ) -> Expired:
        """Erase the conversations whose last event is older than this, with ``where`` only those
        that have these attributes, and vacuum the store once. With ``dry_run`` erase nothing, and
        return what would go.

        A conversation stays, and ``stay`` says why, that has a younger fork (``detach_forks`` gives
        the fork a copy of the shared events), a new event, or a worker with its lease: a later call
        erases it. Where a reader keeps the vacuum waiting, ``bytes_pending`` is true: call
        ``vacuum`` later. Raises what ``Histories.erase`` and ``Histories.list`` raise. Durability:
        each is erased when its turn is over. Cost: the list of conversations, the events of those
        erased, and one vacuum.
        """
        rows = conversations_with(self._store, where, self._ago(older_than))
        expected = {row.id: row for row in rows}
        how: dict[str, Any] = {
            "expected": expected,
            "stays": self._stays,
            "dry_run": dry_run,
            "complete": False,
        }
        stay: list[str] = []
        went = finish_erasing(
            iter_erased(self._store, rows, reason=reason, detach_forks=detach_forks, **how),
            stay.append,
        )
        if went and not dry_run:
            with suppress(StoreUnavailable):  # a reader that was opened before needs the bytes
                self.vacuum()
        is_pending = bool(went) and self._store.database.bytes_pending
        return Expired(
            tuple(row._replace(bytes_pending=is_pending) for row in went), tuple(stay), is_pending
        )

    def redact_matching(
        self,
        text: str,
        where: Mapping[str, Any] | None = None,
        *,
        reason: str,
        by: str | None = None,
        older_than: timedelta | None = None,
        with_summaries: bool = False,
        dry_run: bool = False,
    ) -> RedactionReport:
        """Redact the events that hold a text, in any case, with or without accents, and what
        sources hold of it beside their records: of all conversations, or of those with the
        attributes ``where``; with ``older_than`` only events that were recorded longer ago. With
        ``dry_run`` redact nothing, and return what would go.

        The result says where the store still holds the text, what was searched, and what was not:
        other files, and text that is encoded, as in base64, are not. See ``History.redact`` for
        what goes with an event, and for ``with_summaries``. The bytes stay in a SQLite file until
        ``vacuum``. Raises ``InvalidArgument`` for an empty text, and for a reason or a name that
        holds it: the receipt keeps these.

        Durability: each receipt is on disk when this returns. Cost: all events and records of these
        conversations, twice.
        """
        holds = holding(text)
        if holds(check_reason(reason, "receipt")) or holds(by or ""):
            raise InvalidArgument(
                "the reason, or the name in by, holds the text to redact, and the receipt keeps it"
            )
        if older_than is None:
            before = None
        else:
            before = from_microseconds(self._store.database.now()) - older_than
        rows = conversations_with(self._store, where, and_shared=True)
        redacting = Redacting(self._store, rows, holds, before, everywhere=not where)
        return redact_matching(
            redacting, reason=reason, by=by, with_summaries=with_summaries, dry_run=dry_run
        )

    def copy_from(
        self,
        source: Store | _Histories,
        *conversations: str,
        jobs: int = 4,
        damaged: str | os.PathLike[str] | None = None,
        on_result: Callable[[Moved], object] = lambda moved: None,
    ) -> tuple[Moved, ...]:
        """Copy every history of another store, or those named and their companions, into this one.
        Return the outcome for each: one with a ``problem`` was not copied, or not whole. See
        ``maintenance.copy.copy_store``.

        ``damaged`` names a file. Then a damaged history is copied up to its first damaged event,
        and each later event that can be read is a line of JSON in that file, which only its owner
        can read.
        """
        store = _store_of(source)
        names = and_companions(store, conversations)
        moved = copy.copy_store(store, self._store, *names, jobs=jobs, damaged=damaged is not None)
        if damaged is not None:
            moved = _with_the_rest(store, self._store, moved, Path(damaged))
        return _all_results(moved, on_result)

    def differences_from(
        self,
        source: Store | _Histories,
        *conversations: str,
        on_result: Callable[[UnequalConversation], object] = lambda unequal: None,
    ) -> tuple[UnequalConversation, ...]:
        """Return the histories of another store, of all or of those named and their companions,
        that have another head here. See ``maintenance.copy.compare_stores``.
        """
        store = _store_of(source)
        unequal = copy.compare_stores(store, self._store, *and_companions(store, conversations))
        return _all_results(unequal, on_result)


def _all_results(
    results: Generator[_T, None, None], on_result: Callable[[_T], object]
) -> tuple[_T, ...]:
    """Do the work of an iterator to its end, and call ``on_result`` with each result."""
    done: list[_T] = []
    # closed at once where on_result raises: a copy has threads and a file
    with closing(results):
        for result in results:
            on_result(result)
            done.append(result)
    return tuple(done)


def _with_plain_text(store: Store, results: Iterable[Rekeyed]) -> Generator[Rekeyed, None, None]:
    """Yield the outcomes of a rekey, the last with the names of what holds texts as plain text."""
    for result in results:
        is_last = result.bytes_pending is not None
        yield result._replace(plain=in_plain_text(store)) if is_last else result


def _with_the_rest(
    store: Store, new: Store, moved: Iterable[Moved], path: Path
) -> Generator[Moved, None, None]:
    """Yield the outcomes, and write the readable events that could not be copied to a file, which
    the new store notes: a damaged one may not be able to.
    """
    with noted(new, "export", path), whole_file(path) as file:
        for outcome in moved:
            if outcome.damaged is None:
                yield outcome
                continue
            number = 0
            problem = outcome.problem
            try:
                for each in _readable_from(store, outcome.conversation, outcome.damaged):
                    number += 1
                    line = {
                        "conversation": outcome.conversation,
                        **event_document(each.event, each.recorded_at),
                    }
                    file.write(f"{json.dumps(line)}\n".encode())
            except (CorruptEvent, StoreDamaged) as error:
                problem = f"{problem}; of the later events not all can be read: {error}"
            rest = f"{number:,} later event{'s' if number != 1 else ''} in {path}"
            yield outcome._replace(
                problem=f"copied up to event {outcome.damaged}, {rest}: {problem}"
            )


def _readable_from(store: Store, conversation: str, start: int) -> Iterator[Logged]:
    """Yield the events that can be read. Those of a fork can, where those that it shares cannot."""
    row = store.conversation(conversation)
    begins = max(start, row.parent_version or 0)
    for first, stop in ((start, begins), (begins, row.version)):
        yield from sound(store, conversation, first, stop, [])


def finish_erasing(
    work: Iterable[tuple[ConversationRow, EventStoreError | None]],
    on_stay: Callable[[str], object] | None = None,
) -> tuple[ConversationRow, ...]:
    """Erase what ``iter_erased`` yields, to its end. Return the rows of what went. Call ``on_stay``
    with the reason why another one stays, or raise the error of the last in the end.
    """
    went: list[ConversationRow] = []
    stays: EventStoreError | None = None
    for row, error in work:
        if error is None:
            went.append(row)
        elif on_stay is not None:
            on_stay(str(error))
        else:
            stays = error
    if stays is not None:
        raise stays
    return tuple(went)


def conversations_with(
    store: Store,
    attributes: Mapping[str, Any] | None = None,
    before: datetime | None = None,
    *,
    and_shared: bool = False,
) -> list[ConversationRow]:
    """Return the conversations that have these attributes, with their companions: those in which,
    and in whose companions, no event was recorded, and no record imported, since ``before``. What
    several conversations share is left out as long as one of these is; it needs the attributes too,
    unless ``and_shared``.
    """
    named = ids_with(store, attributes) if attributes else None
    rows = [row for row in store.iter_conversations() if row.erased_at is None]
    young = set[str]()
    if before is not None:
        imports = imported_at(store)
        last = {row.id: max(row.updated_at, imports.get(row.id, row.updated_at)) for row in rows}
        young = {
            name
            for row in rows
            if last[row.id] >= before
            for name in (row.id, companion_of(row.id))
        }
    found = {row.id for row in rows if row.id not in young and (named is None or row.id in named)}
    stay = {row.id for row in rows if row.id not in found and not companion_of(row.id)}
    in_use, begun = (
        {start for name in names for start in accumulate(name.split("/"), "{}/{}".format)} - {""}
        for names in (stay, found)
    )
    wholes = {row.id: companion_of(row.id) for row in rows}
    if and_shared:
        found |= {name for name, whole in wholes.items() if whole in begun}
    return [
        row
        for row in rows
        if wholes[row.id] in found or (row.id in found and wholes[row.id] not in in_use)
    ]


def ids_with(store: Store, attributes: Mapping[str, Any]) -> set[str]:
    """Return the ids of the conversations that have all of these attributes."""
    found = set[str]()
    after = None
    while True:
        page = recent_conversations(
            store.database, attributes, limit=_PAGE, after=after, age_max_s=0
        )
        found |= {one.id for one in page.conversations}
        if (after := page.after) is None:
            return found


def and_forks(
    store: Store, rows: Iterable[ConversationRow], but: Container[str] = frozenset()
) -> list[ConversationRow]:
    """Return conversations, each once, and their forks ``but`` these. Cost: a look-up for each, and
    for each fork.
    """
    found = {row.id: row for row in rows}
    for name in [row.id for row in found.values() if row.erased_at is None]:
        with suppress(ConversationErased):  # since it was listed
            forks = store.forks_sharing(name, NOT_RECORDED)
            found |= {
                fork: store.conversation(fork)
                for fork in forks
                if fork not in found and fork not in but
            }
    return [*found.values()]


def erase_conversations(
    store: Store,
    rows: Iterable[ConversationRow],
    *,
    reason: str,
    with_forks: bool = False,
    detach_forks: bool = False,
    expected: Mapping[str, ConversationRow] | None = None,
    complete: bool = True,
) -> tuple[ConversationRow, ...]:
    """Erase conversations with their companions. Return the tombstones; see ``iter_erased``. Raises
    the error of the last one that stays, after the others were erased.
    """
    work = iter_erased(
        store,
        rows,
        reason=reason,
        with_forks=with_forks,
        detach_forks=detach_forks,
        expected=expected,
        complete=complete,
    )
    return finish_erasing(work)


def iter_erased(
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
    """Erase conversations as they are read from this iterator, forks before the conversations whose
    events they share, companions after theirs. Yield the tombstone of each, and ``with_forks``
    those of their forks; for one that stays, its row and why. One that has a newer event than its
    row in ``expected`` stays, and one of which ``stays`` returns why. With ``dry_run``, erase
    nothing, and yield rows in the place of tombstones.
    """
    if with_forks and detach_forks:
        raise InvalidArgument(
            "with_forks and detach_forks: forks are either erased or kept; give one of the two"
        )
    known = {row.id: row for row in rows}
    gone = set[str]()
    alone = (row for row in known.values() if companion_of(row.id) not in known)
    left = sorted(alone, key=lambda row: (_depth(row, known), row.created_at))
    erase_one = partial(
        erase.erase, store, reason=reason, with_forks=with_forks, detach_forks=detach_forks
    )
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
                # others were detached
                its = [*(each for each in its if each.erased_at is not None), tombstone]
            elif forks and not (with_forks or detach_forks):
                raise ConversationHasForks(
                    row.id, tuple(fork.id for fork in forks if fork.parent == row.id)
                )
        except (ConversationHasForks, VersionConflict) as error:
            for name in noted_now:
                confirm(store, name, None)
            yield row, error
            continue
        gone |= {each.id for each in its}
        beside = companions(store, *(each.id for each in its))
        left += [each for each in beside if row.erased_at is not None or each.erased_at is None]
        kept = [
            f"companion {each.id}" for each in companions(store, *origins) if each.erased_at is None
        ]
        agents = [f"sub-agent {name}" for name in sub_agents(store, row.id)]
        its[-1] = its[-1]._replace(unconfirmed=(*kept, *agents, *its[-1].unconfirmed))
        for each in its:
            names = each.unconfirmed
            if not dry_run:
                names = holders(store, names, {each.id}, sources.get(each.id, ()))
            yield each._replace(unconfirmed=names), None
    if complete and gone and not dry_run:
        _clear(store)


def _depth(row: ConversationRow, known: dict[str, ConversationRow]) -> int:
    """Return how many of the conversations that a fork was begun from are known, one above the
    other.
    """
    depth = 0
    while row.parent in known:
        row = known[row.parent]
        depth = depth + 1
    return depth


def cleared(store: Store) -> bool:
    """Clear the tables of a server, once for all that is gone. Return whether bytes are pending."""
    _clear(store)
    return store.database.bytes_pending


def _clear(store: Store) -> None:
    purge(store.database.recorder, "what was erased is gone for every reader")


def note_files(store: Store, restored_from: str, former: str | None) -> None:
    """Note in a restored store the backup that it is, and the files that the former file knew: they
    may hold what is erased from now on.
    """
    names = {f"backup {os.path.abspath(restored_from)}"}
    if former is not None:
        # else it is damaged
        with suppress(EventStoreError), open_store(f"{as_url(former)}?mode=ro") as earlier:
            names |= {name for name in read_models(earlier) if is_a_copy(name)}
    for name in names:
        confirm(store, name, 0)


def in_plain_text(store: Store) -> tuple[str, ...]:
    """Return what may still hold events of a store with keys as plain text: what ``holders`` names,
    but the stores in which nothing is plain. Cost: a look-up for each of them, and for each
    conversation of those stores.
    """
    names = holders(store, read_models(store))
    keys = store.database.settings.keys
    encrypted = {path for path in stores_in(names) if not _is_plain(path, keys)}
    return tuple(name for name in names if path_in(name) not in encrypted)


def _is_plain(path: str, keys: KeyRing | None) -> bool:
    """Return whether events of a store are not encrypted, as far as these keys tell, or it cannot
    be looked into.
    """
    try:
        with open_store(f"{as_url(path)}?mode=ro", keys=keys) as store:
            return holds_plain_events(store)
    except EventStoreError:
        return True


def holds_plain_events(store: Store) -> bool:
    """Return whether events of a store are not encrypted, as far as its keys tell. Cost: a look-up
    a conversation.
    """
    for found in rekey.named_or_all(store.database, ()):
        with suppress(KeyUnavailable):  # so it is encrypted
            if (
                found.erasure is None
                and found.version
                and not store.database.codec_of(found).is_strict
            ):
                return True
    return False


def _store_of(source: Store | _Histories) -> Store:
    """Return the store to copy from or to compare with. Raises ``TypeError``."""
    store = source if isinstance(source, Store) else getattr(source, "store", None)
    if not isinstance(store, Store):
        raise TypeError(f"source is what foldlog.open(URL) returns, not {source!r:.60}")
    return store
