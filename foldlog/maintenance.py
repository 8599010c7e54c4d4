"""The tasks of an administrator, such as backups and erasures. The methods call functions of
``foldlog.eventstore.maintenance``.
"""

from __future__ import annotations

import json
import os
from collections.abc import (
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import closing, suppress
from datetime import datetime, timedelta
from pathlib import Path
from reprlib import repr as short
from typing import Any, NamedTuple, Protocol, TypeVar

from foldlog._privacy.erasing import (
    Erasure,
    conversations_with,
    erase_conversations,
    not_erased_words,
    not_searched_words,
    old_tasks,
)
from foldlog._privacy.matching import holding
from foldlog._privacy.redacting import Redacting, RedactionReport, holders, redact_matching
from foldlog._reports.figures.agent_trees import NO_TREES
from foldlog._reports.figures.of_store import FiguresOfStore
from foldlog._reports.words.event_json import event_document
from foldlog.eventstore import (
    ConversationRow,
    CorruptEvent,
    EventStoreError,
    InvalidArgument,
    KeyRing,
    KeyUnavailable,
    Logged,
    Store,
    StoreDamaged,
    StoreRefused,
    StoreUnavailable,
    open_store,
    recent_conversations,
)
from foldlog.eventstore.arguments import check_reason, check_text, check_time
from foldlog.eventstore.errors import count
from foldlog.eventstore.files.whole_file import whole_file
from foldlog.eventstore.files.written_files import (
    is_a_copy,
    note_file,
    path_in,
    read_models,
    stores_in,
)
from foldlog.eventstore.log.row import time_before
from foldlog.eventstore.maintenance import (
    archive,
    backup,
    copy,
    redact,
    rekey,
    verify,
)
from foldlog.eventstore.maintenance.time_order import OldByOrder
from foldlog.eventstore.maintenance.unfinished import PURGE_PATIENCE_S
from foldlog.eventstore.proof import checkpoint, signed_note
from foldlog.eventstore.recorders.urls import as_url
from foldlog.projections.conversations.companions import and_companions
from foldlog.projections.conversations.unreadable import sound

__all__ = [
    "Archived",
    "BackedUp",
    "Expired",
    "Maintenance",
    "Moved",
    "RedactionReceipt",
    "RedactionReport",
    "Rekeyed",
    "StoreCheckpoint",
    "UnequalConversation",
    "Vacuumed",
    "Verdict",
]

_T = TypeVar("_T")

Archived = archive.Archived
BackedUp = backup.BackedUp
Vacuumed = backup.Vacuumed
Moved = copy.Moved
UnequalConversation = copy.UnequalConversation
RedactionReceipt = redact.RedactionReceipt
Rekeyed = rekey.Rekeyed
StoreCheckpoint = signed_note.StoreCheckpoint
Verdict = verify.Verdict


class _Histories(Protocol):
    """What ``foldlog.open`` returns, as far as this module uses it."""

    @property
    def store(self) -> Store: ...


class Expired(NamedTuple):
    """The result of ``Maintenance.expire``.

    ``conversations``  the tombstones of the erased conversations, or with ``dry_run`` the
                       conversations that would be erased
    ``not_erased``     a reason for each old conversation that was not erased
    ``bytes_pending``  whether bytes of erased conversations are still in the store's file
    """

    conversations: tuple[ConversationRow, ...]
    not_erased: tuple[str, ...]
    bytes_pending: bool


class Maintenance:
    """The maintenance of a store. Every method finishes its work before it returns. Before
    ``expire`` erases an old conversation, it calls ``stays`` with the id, and leaves the
    conversation out if ``stays`` returns an error.

    ``on_result`` is called with each result as soon as it is known, in the thread of the caller.
    Use it to show progress, or to keep the results if the call fails later. If ``on_result`` raises
    an error, the call ends, but finished work is not undone.
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
        *,
        start: str = "",
        on_result: Callable[[Verdict], object] = lambda verdict: None,
    ) -> tuple[Verdict, ...]:
        """Check that every event is unchanged. Return a verdict for each history. If you name no
        history, the last verdict is about the database, and its ``conversation`` is None. See
        ``maintenance.verify.verify``.
        """
        verdicts = verify.verify(self._store, conversation, start=start)
        return _all_results(
            (archive.check_archived(self._store, verdict) for verdict in verdicts), on_result
        )

    def checkpoint(self) -> StoreCheckpoint:
        """Make a checkpoint of all histories, to keep where the writers of the store cannot
        change it: ``str(checkpoint)`` is the text. See ``proof.checkpoint.make_checkpoint``.
        """
        return checkpoint.make_checkpoint(self._store)

    def verify_against(self, note: StoreCheckpoint) -> tuple[Verdict, ...]:
        """Check that every event is unchanged, and that no history was changed, shortened, removed
        or replaced since a checkpoint. See ``proof.comparison.verify_against``. If an import
        got events since then, also compare them with its records. Raises ``TypeError`` if ``note``
        is not a ``StoreCheckpoint``.
        """
        from foldlog._reports.records.compared_imports import verify_with_records  # all formats

        if not isinstance(note, signed_note.StoreCheckpoint):
            raise TypeError(f"note must be a StoreCheckpoint, not {short(note)}")
        return tuple(verify_with_records(self._store, note))

    def rekey(
        self,
        *conversations: str,
        decrypt: bool = False,
        on_result: Callable[[Rekeyed], object] = lambda rekeyed: None,
    ) -> tuple[Rekeyed, ...]:
        """Encrypt and compress stored events again with the settings of this store. By default, the
        events of all histories are rewritten. If you name histories, only their events and the
        events of their companions are rewritten. Return the outcome for each history. See
        ``maintenance.rekey.rekey``.

        If the store has keys, ``plain`` of the last result lists the files and tables outside the
        store that have unencrypted texts.
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

        While the file exists, receipts of later erasures list it in ``unconfirmed``.
        """
        with note_file(self._store, "backup", path):
            return backup.back_up(self._store, path, on_progress)

    def vacuum(self, *, copied_objects: bool = False) -> Vacuumed:
        """Reclaim disk space: remove the bytes of erased events, and the remains of interrupted
        operations. ``copied_objects`` also deletes objects of erased events that another copy of
        the store may need. Cost: the whole store is rewritten. See ``maintenance.backup.vacuum``.
        """
        return backup.vacuum(self._store, copied_objects=copied_objects)

    def index(self, *, again: bool = False, with_encrypted: bool = False) -> int:
        """Add new events to the search index of the store, and return the number of added events
        and records. If the store has no index, or with ``again``, the index is made. Encrypted
        conversations are in the index only if it was made ``with_encrypted``: hashes of their words
        are then in the store unencrypted. Cost: about 150 µs of CPU time for each new event of
        500 bytes. See ``foldlog store index``.
        """
        from foldlog._reports.search import index

        state = self._store.database.recorder.query(index.state_of)
        if again or not state.is_made or (with_encrypted and not state.with_encrypted):
            index.make(self._store, with_encrypted=with_encrypted or state.with_encrypted)
        return index.refresh(self._store)

    def keep_up(self) -> None:
        """Bring everything that is derived from events up to date: the figures of conversations and
        their sums, the list of conversations, and the search index if the store has one. Readers
        then find them ready; without this call, they count a few changes themselves, and say what
        they lack. Several processes may call this method at the same time. Raises ``StoreRefused``
        (``read_only``) if the store is open for reading only. Cost: about 70 µs of processor time
        for each new event, and 150 µs more with a search index.
        """
        from foldlog._reports.search import index

        if not self._store.database.recorder.writable:
            raise StoreRefused(
                "the store is open for reading only, so its figures, lists and search index cannot"
                " be brought up to date; open it without ?mode=ro at the end of its URL, as a user"
                " who may write it",
                kind="read_only",
            )
        recent_conversations(
            self._store.database, {}, limit=1, after=None, age_max_s=0, is_complete=True
        )
        FiguresOfStore(self._store).keep_up()
        index.refresh_if_made(self._store)

    def drop_index(self) -> None:
        """Remove the search index."""
        from foldlog._reports.search import index

        index.drop(self._store)

    def archive(
        self,
        older_than: timedelta | datetime,
        to: str,
        where: Mapping[str, Any] | None = None,
        *,
        on_result: Callable[[Archived], object] = lambda archived: None,
    ) -> tuple[Archived, ...]:
        """Move the events of old conversations to an object store. A conversation is old if its
        last event is older than ``older_than``, which is a ``timedelta`` or a ``datetime`` with a
        time zone. ``to`` is the URL of the object store, such as ``s3://bucket/prefix``. Each
        conversation becomes one object. With ``where``, only conversations with these attributes
        are archived. Return the outcome for each conversation.

        Archived conversations still appear in lists, and their figures, versions and heads stay in
        the store. The first use of an archived conversation restores it.
        ``maintenance.archive.archive`` describes the errors, and which conversations cannot be
        archived. See also ``docs/how-to/archiving.md``. Archiving needs the extra ``archive`` of
        the package.
        """
        if isinstance(older_than, datetime):
            before: datetime = check_time("older_than", older_than)
        else:
            before = self._ago(older_than)
        damaged = dict[str, CorruptEvent]()
        rows = conversations_with(self._store, where, before, damaged=damaged)
        # Lists show figures of the events, so the figures are made before the events leave the
        # store.
        recent_conversations(
            self._store.database, {}, limit=1, after=None, age_max_s=0, is_complete=True
        )
        FiguresOfStore(self._store).refresh()

        def outcomes() -> Generator[Archived, None, None]:
            for name, error in damaged.items():
                problem = f"its last import or its attributes cannot be read ({error.problem})"
                yield Archived(name, 0, 0, problem)
            for row in rows:
                if not row.archived:
                    yield archive.archive(self._store, row.id, to)

        return _all_results(outcomes(), on_result)

    def _ago(self, span: timedelta) -> datetime:
        """Return the time that is ``span`` before now, by the store's clock."""
        value: object = span
        if not isinstance(value, timedelta) or value < timedelta():
            raise InvalidArgument(
                "older_than must be a timedelta that is not negative, such as timedelta(days=90),"
                f" not {span!r}"
            )
        return time_before(self._store.database.now(), span)

    def expire(
        self,
        older_than: timedelta,
        where: Mapping[str, Any] | None = None,
        *,
        reason: str = "retention",
        dry_run: bool = False,
        with_children: bool = False,
        detach_forks: bool = False,
    ) -> Expired:
        """Erase the conversations without recent events, and vacuum the store once.

        An old conversation is not erased if it has a younger fork or a new event, or if a worker
        holds its lease. A later call of ``expire`` can erase the conversation. A conversation that
        a wrong clock dated before earlier events of the store stays too.

        Args:
            older_than: The least age of the last event of a conversation.
            where: Erase only conversations with these attributes.
            reason: The reason, which the tombstones store.
            dry_run: Erase nothing, and return the conversations that would be erased.
            with_children: Erase tasks as a whole: a conversation with all its sub-agents, once all
                of them are old.
            detach_forks: Give younger forks a copy of the shared events, so that they do not
                prevent the erasure.

        Returns:
            The erased conversations. The field ``not_erased`` names the reason for each old
            conversation that was not erased. If another reader prevents the vacuum,
            ``bytes_pending`` is true; then call ``vacuum`` later.

        Raises:
            InvalidArgument: ``older_than`` is not a time span. Also raises the errors of
                ``Histories.erase`` and ``Histories.list``.

        Durability: the conversations are erased in turn, and every finished erasure is permanent.

        Cost: the method reads the list of conversations, deletes the events of the erased
        conversations, and vacuums once.
        """
        before = self._ago(older_than)
        damaged = dict[str, CorruptEvent]()
        rows = conversations_with(self._store, where, before, damaged=damaged)
        trees = NO_TREES
        if with_children:
            from foldlog._reports.figures.documents import trees_of

            trees = trees_of(self._store)
            rows = old_tasks(self._store, rows, before, trees, damaged)
        by_order = OldByOrder(self._store, before)
        expected = {row.id: row for row in rows}
        not_erased = [*not_erased_words(damaged).values()]
        options = Erasure(
            reason,
            detach_forks=detach_forks,
            expected=expected,
            stays=lambda name: self._stays(name) or by_order.problem(name),
            complete=False,
            dry_run=dry_run,
            trees=trees,
            whole_tasks=with_children,
        )
        erased_rows = erase_conversations(self._store, rows, options, not_erased.append)
        if erased_rows and not dry_run:
            with suppress(StoreUnavailable):  # An earlier reader still needs the bytes.
                backup.vacuum(self._store, patience_s=PURGE_PATIENCE_S)
        is_pending = bool(erased_rows) and self._store.database.bytes_pending
        return Expired(
            tuple(row._replace(bytes_pending=is_pending) for row in erased_rows),
            tuple(not_erased),
            is_pending,
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
        """Redact the events that contain a text. Case and accents do not matter. An imported file
        may contain the text outside of its records, for example in a header; then the store erases
        everything that it keeps from outside the records. A stream that contains the text, such as
        a reply that a model is writing, is deleted.

        ``History.redact`` describes what else is redacted together with an event. A SQLite file
        still contains the redacted bytes until ``vacuum``.

        Args:
            text: The text.
            where: Search only conversations with these attributes. By default, all conversations
                are searched.
            reason: The reason, which the receipts store.
            by: The person who redacts, as in ``History.redact``.
            older_than: Redact only events that are older than this time span, and delete only
                streams that began earlier. What an import brought beside its records is erased only
                if the first import of its conversation is older.
            with_summaries: As in ``History.redact``.
            dry_run: Redact nothing, and return the events that would be redacted.

        Returns:
            The redacted events, the places where the store still contains the text, what was
            searched, and what was not searched, such as other files and encoded text.

        Raises:
            InvalidArgument: The text or the reason is empty. ``older_than`` is not a time span. Or
                ``reason`` or ``by`` contains the text, because the receipt stores both.

        Durability: the receipts are on disk when the method returns.

        Cost: the method reads all events and records of the searched conversations twice.
        """
        holds = holding(check_text("text", text))
        if by is not None:
            check_text("by", by)
        if holds(check_reason(reason, "receipt")) or holds(by or ""):
            raise InvalidArgument(
                "the argument 'reason' or 'by' contains the text to redact, and the receipt would "
                "store it; use other words"
            )
        before = None if older_than is None else self._ago(older_than)
        damaged = dict[str, CorruptEvent]()
        rows = conversations_with(self._store, where, and_shared=True, damaged=damaged)
        redacting = Redacting(self._store, rows, holds, before, everywhere=not where)
        redacting.problems |= not_searched_words(damaged)
        return redact_matching(
            redacting, reason=reason, by=by, with_summaries=with_summaries, dry_run=dry_run
        )

    def copy_from(
        self,
        source: Store | _Histories,
        *conversations: str,
        jobs: int = 4,
        damaged: str | os.PathLike[str] | None = None,
        again: bool = False,
        on_result: Callable[[Moved], object] = lambda moved: None,
    ) -> tuple[Moved, ...]:
        """Copy the histories of another store into this store, as ``maintenance.copy.copy_store``
        does.

        Args:
            source: The other store, or its histories.
            conversations: The histories to copy, together with their companions. The default is all
                histories.
            jobs: How many histories are copied at the same time, in any order.
            damaged: The path of a new file, which only its owner can read. A damaged history is
                copied up to its first damaged event, and the later events that can be read are
                written to this file as lines of JSON. By default, the outcome of a damaged history
                names the problem.
            again: As in ``copy_store``.
            on_result: Called with each outcome as soon as its history is copied.

        Returns:
            The outcome for each history. If an outcome has a ``problem``, its history was not
            copied, or only in part.

        Raises:
            ConversationNotFound: The other store lacks a named history. Also raises the
                errors of ``copy_store``, and those of ``on_result``.

        Cost: as in ``copy_store``.
        """
        store = _store_of(source)
        names = and_companions(store, conversations)
        moved = copy.copy_store(
            store, self._store, *names, jobs=jobs, damaged=damaged is not None, again=again
        )
        if damaged is not None:
            moved = _write_the_rest(store, self._store, moved, Path(damaged))
        return _all_results(moved, on_result)

    def differences_from(
        self,
        source: Store | _Histories,
        *conversations: str,
        on_result: Callable[[UnequalConversation], object] = lambda unequal: None,
    ) -> tuple[UnequalConversation, ...]:
        """Return the histories of another store whose heads differ from the heads in this store. If
        you name histories, only the named histories and their companions are compared. See
        ``maintenance.copy.compare_stores``.
        """
        store = _store_of(source)
        unequal = copy.compare_stores(store, self._store, *and_companions(store, conversations))
        return _all_results(unequal, on_result)


def _all_results(
    results: Generator[_T, None, None], on_result: Callable[[_T], object]
) -> tuple[_T, ...]:
    """Pass each result to ``on_result``, and return all of them."""
    collected: list[_T] = []
    # If on_result raises, the iterator is closed at once, because a copy has threads and an open
    # file.
    with closing(results):
        for result in results:
            on_result(result)
            collected.append(result)
    return tuple(collected)


def _with_plain_text(store: Store, results: Iterable[Rekeyed]) -> Generator[Rekeyed, None, None]:
    """Yield the results. The last one, which has ``bytes_pending``, gets the names of what is not
    encrypted.
    """
    for result in results:
        is_last = result.bytes_pending is not None
        yield result._replace(plain=in_plain_text(store)) if is_last else result


def _write_the_rest(
    store: Store, new: Store, moved: Iterable[Moved], path: Path
) -> Generator[Moved, None, None]:
    """Yield the outcomes. The readable events after the first damaged event of a conversation are
    written to the file ``path``, and the outcome's problem tells how many.
    """
    # The new store notes the file, because the damaged store may not be writable.
    with note_file(new, "export", path), whole_file(path) as file:
        for outcome in moved:
            if outcome.damaged is None:
                yield outcome
                continue
            written = 0
            problem = outcome.problem
            try:
                for logged in _readable_from(store, outcome.conversation, outcome.damaged):
                    written += 1
                    line = {
                        "conversation": outcome.conversation,
                        **event_document(logged.event, logged.recorded_at),
                    }
                    file.write(f"{json.dumps(line)}\n".encode())
            except (CorruptEvent, StoreDamaged) as error:
                problem = f"{problem}; some of the later events cannot be read: {error}"
            rest = f"{count(written, 'later event')} in {path}"
            yield outcome._replace(
                problem=f"copied up to event {outcome.damaged}, {rest}: {problem}"
            )


def _readable_from(store: Store, conversation: str, start: int) -> Iterator[Logged]:
    """Yield the events from ``start`` on, without those that cannot be read."""
    # A fork and its parent are read separately, so that damage in one of them does not end the
    # reading of the other.
    row = store.conversation(conversation)
    own_start = max(start, row.parent_version or 0)
    for first, stop in ((start, own_start), (own_start, row.version)):
        yield from sound(store, conversation, first, stop, [])


def files_to_note(backup: str, former: str | None) -> set[str]:
    """Return the files that a restored store must note: the backup from which it was restored, and
    the copies that the replaced store noted. ``former`` is the path of the replaced store.
    """
    names = {f"backup {os.path.abspath(backup)}"}
    if former is not None and os.path.exists(former):
        # If the replaced store is damaged and cannot be opened, its files are unknown.
        # Readers of a store never wait for its writers, so two seconds are much.
        address = f"{as_url(former)}?mode=ro&patience_s=2"
        with suppress(EventStoreError), open_store(address) as earlier:
            names |= {name for name in read_models(earlier) if is_a_copy(name)}
    return names


def in_plain_text(store: Store) -> tuple[str, ...]:
    """Return the names of the files and read models that are not encrypted. Cost: every backup and
    every file that a restore has replaced is opened, and its conversations are read until one is
    found that is not encrypted.
    """
    names = holders(store, read_models(store))
    keys = store.database.settings.keys
    encrypted = {path for path in stores_in(names) if not _is_plain(path, keys)}
    return tuple(name for name in names if path_in(name) not in encrypted)


def _is_plain(path: str, keys: KeyRing | None) -> bool:
    """Return whether a store's file has events that are not encrypted. A store that cannot be
    opened counts as unencrypted.
    """
    try:
        with open_store(f"{as_url(path)}?mode=ro", keys=keys) as store:
            return holds_plain_events(store)
    except EventStoreError:
        return True


def holds_plain_events(store: Store) -> bool:
    """Return whether any conversation has events that are not encrypted. Cost: the rows of
    conversations are read until such a conversation is found.
    """
    for conversation in rekey.named_or_all(store.database, ()):
        with suppress(KeyUnavailable):  # A conversation with a missing key is encrypted.
            if (
                conversation.erasure is None
                and conversation.version
                and not store.database.codec_of(conversation).is_strict
            ):
                return True
    return False


def _store_of(source: Store | _Histories) -> Store:
    """Return the store of ``source``. Raises ``TypeError`` if it has none."""
    store = source if isinstance(source, Store) else getattr(source, "store", None)
    if not isinstance(store, Store):
        raise TypeError(f"source must be what foldlog.open(URL) returns, not {source!r:.60}")
    return store
