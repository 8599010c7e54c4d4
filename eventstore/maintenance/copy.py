"""Copy conversations from one store to another while the source is in use. A second copy adds only
the new events.

A copied event keeps its id, its time and its place in the hash chain. A copied conversation keeps
its salt, its idempotency keys and its tombstone. A conversation has the same heads in the source
and in the target. The copy computes the heads of copied events, and compares them with the heads in
the source. Events that the source has redacted become redacted in the copy. If source and target
have different events at the same version of a conversation, the copy leaves the target's
conversation unchanged and reports the problem.

Copied events get new positions, so followers of the target begin at position 0. The copy includes
the records of Views and the streams, but not the records of other projections.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Final, NamedTuple, TypeVar

from foldlog.eventstore.arguments import NUMBER_MAX, check_whole
from foldlog.eventstore.errors import (
    CannotRedact,
    ConversationErased,
    ConversationNotFound,
    CorruptEvent,
    HistoryDiverged,
    StoreDamaged,
    StoreRefused,
    VersionConflict,
    count,
)
from foldlog.eventstore.events import VIEWS, Event, Redaction
from foldlog.eventstore.log.database import (
    Database,
    check_not_erased,
    iter_pages,
    start_after,
)
from foldlog.eventstore.log.finding import find_again, forks_that_share, tombstones_before
from foldlog.eventstore.log.importing import CHUNK, StagedWriter, split_into_batches, stored_rows
from foldlog.eventstore.log.ledger import enter_erasure
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.results import Border
from foldlog.eventstore.log.row import (
    commitment_of,
    first_head,
    from_microseconds,
    is_redacted,
    link_of,
    sound,
    stored_event_of,
)
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.maintenance.redact import (
    enter_copied_redactions,
    redact_rows,
    redacted_bodies,
    sharing_events,
)
from foldlog.eventstore.maintenance.rekey import named_or_all
from foldlog.eventstore.maintenance.unfinished import check_finished, on_finished
from foldlog.eventstore.maintenance.verify import Unlisted, readable_conversations
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import (
    HEAD_BYTES,
    NOT_BEGUN,
    Chunk,
    Conversation,
    RecalledKey,
    Record,
    Row,
    Stream,
)
from foldlog.eventstore.sources.moving import (
    CopiedRecords,
    RedactedRecords,
    copy_source,
    event_beyond,
    find_redacted_records,
    has_source,
    note_made,
    redact_records,
    split_at_records,
)
from foldlog.eventstore.sources.tables import Made, Sources, SourcesToWrite, query_sources
from foldlog.eventstore.store import Store

Item = TypeVar("Item")
_Damage = list[CorruptEvent | StoreDamaged]

_JOBS_MAX = 64
"""The maximal number of conversations that are copied at the same time."""
OF_THE_STORE: Final = 0
"""The number of a conversation in records that belong to the store and to no conversation."""
LISTS_OF_CHECKPOINTS: Final = "checkpoints "
"""Records of the store whose projection begins with this text are lists of checkpoints. The rest of
the name is the store that made the checkpoints.
"""
_LIST_PAGE: Final = 100
_ALL: Final = 2**62


class Moved(NamedTuple):
    """The result of copying one conversation: how many events and tombstones were copied, and the
    conversation's version in the target. If the copy failed, ``problem`` says why. If a
    conversation was copied up to its damage, ``damaged`` is the id of the first event that was not
    copied. ``records`` is the number of copied source records from which no events have been made
    yet.
    """

    conversation: str
    added: int
    version: int
    problem: str | None = None
    tombstones: int = 0
    damaged: int | None = None
    records: int = 0


class CopyOptions(NamedTuple):
    """``stopped``: when it is set, the copy ends with the current transaction. ``damaged``: copy a
    damaged conversation up to its first damaged event. ``again``: copy records that the target
    redacted or erased in other conversations.
    """

    stopped: threading.Event
    damaged: bool = False
    again: bool = False


class UnequalConversation(NamedTuple):
    """A conversation that differs between two stores. If ``behind`` is true, a second copy makes
    the two conversations equal.
    """

    conversation: str
    problem: str
    behind: bool


def copy_store(
    source: Store,
    target: Store,
    *conversations: str,
    jobs: int = 4,
    damaged: bool = False,
    again: bool = False,
) -> Generator[Moved, None, None]:
    """Copy conversations to another store. The copy proceeds only while the caller reads the
    results from the returned iterator. A new conversation appears in the target completely or not
    at all. An existing conversation gets the new events at its end.

    Args:
        source: The store to copy. Programs may use it.
        target: The store that gets the copies.
        conversations: The conversations to copy, or none to copy all.
        jobs: How many conversations are copied at the same time, in any order.
        damaged: Copy a damaged conversation up to its first damaged event.
        again: Also copy source records that the target redacted or erased in another conversation,
            outside of the family of the copied source. Without ``again``, the copy refuses a
            conversation with such a record, unless ``source`` itself redacted or erased the record
            in another conversation.

    Returns:
        The result of each conversation. If a conversation is damaged or differs in the target, its
        result names the problem, and the copy continues with the next conversation.

    Raises:
        ConversationNotFound: A name is unknown.
        KeyUnavailable: A key is missing.
        StoreUnavailable, StoreRefused: The target cannot be written.

    Cost: reading one row of every conversation in both stores, and copying the events that the
    target lacks.
    """
    check_whole("jobs", jobs, 1, _JOBS_MAX)
    # Only a copy of all conversations may replace the source.
    if not conversations:
        target.database.recorder.succeed(source.database.recorder)
    conversations_to_copy = _conversations(source.database, conversations)
    stopped = threading.Event()
    options = CopyOptions(stopped, damaged, again)
    move = partial(_copy_if_different, source.database, target.database, options)
    with ThreadPoolExecutor(jobs) as pool:
        running: set[Future[Moved]] = set()
        try:
            while True:
                # Submit few conversations at a time, because the caller may stop reading the
                # results.
                running |= {
                    pool.submit(move, conversation)
                    for conversation in islice(conversations_to_copy, 2 * jobs - len(running))
                }
                if not running:
                    break
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
        finally:
            stopped.set()
            pool.shutdown(cancel_futures=True)
    if not conversations:
        # Damage beside the events costs the copy no event. Verifying the copy names a missing list.
        with suppress(StoreDamaged):
            _copy_lists_of_checkpoints(source.database, target.database)


def _copy_lists_of_checkpoints(source: Database, target: Database) -> None:
    """Copy the lists of checkpoints as they are stored, so that the copy can be verified against
    the same checkpoints. A damaged row is copied too, and verifying the copy names it.
    """

    def names(reader: Reader) -> list[str]:
        newest = reader.newest_records(OF_THE_STORE, _ALL)
        return [
            record.projection
            for record in newest
            if record.projection.startswith(LISTS_OF_CHECKPOINTS)
        ]

    for name in source.recorder.query(names):
        after = 0
        while page := source.recorder.query(
            lambda reader: reader.records(OF_THE_STORE, name, after, _LIST_PAGE)  # noqa: B023
        ):
            target.recorder.transact(
                lambda transaction: transaction.put_records(OF_THE_STORE, name, page)  # noqa: B023
            )
            after = page[-1].version


def compare_stores(
    source: Store, target: Store, *conversations: str
) -> Generator[UnequalConversation, None, None]:
    """Yield the conversations of ``source`` that ``target`` lacks. Also yield the conversations
    whose head in ``target`` is different, that have fewer redactions there, or whose source records
    differ. If names are passed, compare only the named conversations. Ignore the conversations that
    only ``target`` has. Cost: reading one row of each conversation in both stores, and the rows of
    their sources.
    """
    for original in _conversations(source.database, conversations):
        if isinstance(original, Unlisted):
            yield UnequalConversation(original.id or "", original.problem, behind=False)
            continue
        copy = query_sources(target.database, Sources.find, original.id)
        if copy is None:
            problem = f"{_describe(original)} in the source, missing in the target"
            yield UnequalConversation(original.id, problem, behind=True)
            continue
        redactions = max(original.redactions, copy.redactions)
        if _compared_by(original._replace(redactions=redactions)) != _compared_by(copy):
            is_same = (
                copy.created_at == original.created_at
                and copy.erasure is None
                and original.erasure is None
            )
            behind = is_same and (copy.version < original.version or copy.end == original.end)
            problem = f"{_describe(original)} in the source, {_describe(copy)} in the target"
            yield UnequalConversation(original.id, problem, behind=behind)
        elif not has_source(source.database, target.database, original, copy):
            problem = "the source records or their redactions differ between source and target"
            # A target with further records stays as it is.
            behind = _records(target.database, copy) <= _records(source.database, original)
            yield UnequalConversation(original.id, problem, behind=behind)


def _records(database: Database, conversation: Conversation) -> int:
    """Return the number of records of a conversation's source, 0 without a source."""
    stored = query_sources(database, Sources.of_state, conversation)
    return 0 if stored is None else stored.records


def _copy_if_different(
    source: Database,
    target: Database,
    options: CopyOptions,
    original: Conversation | Unlisted,
) -> Moved:
    """Copy a conversation, unless the target has the same. Problems that concern only this
    conversation are returned with the outcome, not raised.
    """
    if isinstance(original, Unlisted):
        return Moved(original.id or "", 0, 0, original.problem)
    copy = query_sources(target, Sources.find, original.id)
    version = 0 if copy is None else copy.end[0]
    if (
        copy is not None
        and _compared_by(original) == _compared_by(copy)
        and original.unmade == copy.unmade
        and has_source(source, target, original, copy)
    ):
        return Moved(original.id, 0, version)
    try:
        try:
            return _copy_with_redactions(source, target, original.id, options)
        except ConversationErased:
            # The source has erased the conversation: copy its tombstone.
            return _copy_with_redactions(source, target, original.id, options)
    except ConversationErased as error:
        return Moved(original.id, 0, version, error.problem)
    except (CannotRedact, CorruptEvent, HistoryDiverged, StoreDamaged, VersionConflict) as error:
        if options.damaged and isinstance(error, CorruptEvent | StoreDamaged):
            return Moved(original.id, 0, version, _damage_of(error), damaged=version)
        return Moved(original.id, 0, version, str(error))
    except StoreRefused as error:
        if error.kind != "archive":
            raise
        return Moved(original.id, 0, version, str(error))


def _copy_with_redactions(
    source: Database,
    target: Database,
    conversation: str,
    options: CopyOptions,
) -> Moved:
    """Copy a conversation, and copy it again after each redaction during the copy."""
    redactions = query_sources(source, _redactions_of, conversation)
    moved = copy_conversation(source, target, conversation, options)
    while True:
        later = query_sources(source, _redactions_of, conversation)
        if later == redactions:
            return moved
        redactions = later
        again = copy_conversation(source, target, conversation, options)
        moved = again._replace(
            added=moved.added + again.added,
            tombstones=moved.tombstones + again.tombstones,
            records=moved.records + again.records,
        )


def _redactions_of(sources: Sources, conversation: str) -> object:
    """Return the number of redactions and the redacted records, or None after an erasure."""
    state = sources.find(conversation)
    if state is None or state.erasure is not None:
        return None
    stored = sources.of_state(state)
    return state.redactions, set() if stored is None else sources.all_redacted(stored)


def _conversations(database: Database, names: Sequence[str]) -> Iterator[Conversation | Unlisted]:
    """Yield the named conversations, or else all conversations that have anything to copy."""
    if names:
        return named_or_all(database, names)
    conversations = readable_conversations(database.recorder)
    return (
        conversation
        for conversation in conversations
        if isinstance(conversation, Unlisted)
        or conversation.version
        or conversation.erasure
        or conversation.lacks_events
    )


def _compared_by(conversation: Conversation) -> tuple[object, ...]:
    """Return the values that are equal if two conversations have the same events and redactions."""
    # The time of creation distinguishes two conversations that had the same id and end with equal
    # events. An erased conversation has no number of redactions to compare.
    return (
        conversation.created_at,
        conversation.end,
        conversation.redactions if conversation.erasure is None else "erased",
    )


def _describe(conversation: Conversation) -> str:
    version, head = conversation.end
    return (
        f"{count(version, 'event')} with head"
        f" {(head or b'').hex()[:12]}…{'' if conversation.erasure is None else ', erased'}"
    )


# -- one conversation


def copy_conversation(
    source: Database,
    target: Database,
    conversation: str,
    options: CopyOptions,
) -> Moved:
    """Copy one conversation. If the target has the conversation, copy only its new events.

    Raises ``ConversationNotFound``, and ``CorruptEvent`` if the source is damaged. Raises
    ``HistoryDiverged`` if the target has different events, and ``ConversationErased`` if the target
    erased the conversation. Raises ``CannotRedact`` if the source redacted an event that the target
    stores in an ancestor of the conversation, or an event whose source record only the target has.
    Raises ``CannotRedact`` if the target redacted an event or a record that the copy would restore.

    A new conversation appears completely or not at all. After an error, an existing conversation
    may have some of the new events. The next copy adds the remaining events. Events are copied
    before their records. If the target redacts a record in between, the copied events of the record
    stay until the source redacts the record too and you copy the conversation again. Cost: copying
    the new events in small transactions. If events were redacted after the last copy, all events
    are read. They are read at each copy of a fork that has redacted events and whose parent the
    target lacks. If the target has redacted events in an ancestor or a related fork, the copy also
    reads the events of that ancestor or fork.
    """
    original, earlier = query_sources(source, _with_earlier, conversation)
    tombstones = copy_tombstones(
        source, target, earlier if original.erasure is None else (*earlier, original)
    )
    if original.erasure is not None:
        return Moved(original.id, 0, original.end[0], tombstones=tombstones)
    records = CopiedRecords(source, target, original, again=options.again)
    if not original.version:  # the source of the conversation has records without events
        pending = copy_source(records, 0)
        return Moved(original.id, 0, 0, tombstones=tombstones, records=pending)
    source.data_key(original)  # raises ``KeyUnavailable`` before anything is copied
    damage: _Damage | None = [] if options.damaged else None
    with CopyWriter(target, original, earlier, records) as writer:
        existing = writer.existing
        if existing is not None:
            _check_same(source, original, target, existing)
            if _may_lack_redactions(source, original, existing):
                _copy_redactions(source, original, target, existing, damage)
        start = writer.end.version
        # If the target has more events than the source, it gets only the source's redactions.
        is_ahead = start > original.version
        _copy_events(records, writer, options, damage)
        keys = _up_to_damage(keys_of(source, original), damage)
        views = _up_to_damage(
            _read(source, original, lambda reading: reading.records(VIEWS, start)), damage
        )
        origins = _up_to_damage(_read(source, original, ReadTransaction.origins), damage)
        redactions = 0 if is_ahead else original.redactions
        streams = None if is_ahead else _up_to_damage(_read(source, original, _streams), damage)
        writer.finish(keys, redactions, [*views], [*origins], streams)
    pending = copy_source(records, writer.end.version)
    moved = Moved(
        original.id, writer.added, writer.end.version, tombstones=tombstones, records=pending
    )
    if damage:
        return moved._replace(problem=_damage_of(damage[0]), damaged=writer.end.version)
    return moved


def _copy_events(
    records: CopiedRecords, writer: CopyWriter, options: CopyOptions, damage: _Damage | None
) -> None:
    """Copy the events that the target lacks, up to the first damaged one. Raises ``CannotRedact``
    if the target has redacted one of them in a related conversation.
    """
    source = records.source
    target = records.target
    original = records.conversation
    existing = writer.existing
    start = writer.end.version
    rows = writer.link_rows(stored_rows(source, original, start))
    # Damaged keys and origins are not reported here, because they are read again after the events.
    unreported: _Damage | None = [] if options.damaged else None
    ancestors = [*_up_to_damage(_read(source, original, ReadTransaction.origins), unreported)]
    if existing is not None and start < original.version:
        new_keys = _keys_by_version(_up_to_damage(keys_of(source, original), unreported), start)
    else:
        new_keys = {}
    # If the target may later make events from the records, a group of rows must contain all events
    # of a record.
    if options.damaged or (existing is not None and existing.lacks_events):
        made = records.made
    else:
        made = {}
    for chunk in split_at_records(
        split_into_batches(_up_to_damage(rows, damage)), made, lambda: not damage
    ):
        if options.stopped.is_set():
            raise CancelledError
        if existing is not None:
            _check_not_redacted(source, original, target, ancestors, chunk[0].id, chunk[-1].id + 1)
        writer.copy(chunk, made, new_keys)
    if existing is None:
        _check_not_redacted(source, original, target, ancestors, 0, writer.end.version)


def _damage_of(error: CorruptEvent | StoreDamaged) -> str:
    """Return the message without its remedy, which is this copy."""
    if isinstance(error, CorruptEvent):
        return f"event {error.event_id}: {error.problem}"
    return str(error)


def _up_to_damage(items: Iterable[Item], damage: _Damage | None) -> Iterator[Item]:
    """Yield items up to the first damaged one, and add its error to ``damage``. If ``damage`` is
    None, raise the error.
    """
    try:
        yield from items
    except (CorruptEvent, StoreDamaged) as error:
        if damage is None:
            raise
        damage.append(error)


def _with_earlier(
    sources: Sources, conversation: str
) -> tuple[Conversation, Sequence[Conversation]]:
    """Return a conversation, and the erased conversations that had its id before."""
    state = sources.find(conversation)
    if state is None:
        raise ConversationNotFound(conversation)
    return state, tombstones_before(sources.reader, state)


def _read(
    source: Database, conversation: Conversation, work: Callable[[ReadTransaction], Iterable[Item]]
) -> Iterator[Item]:
    """Yield what ``work`` reads of a conversation in one transaction, when the first item is
    read.
    """
    yield from source.recorder.query(
        lambda reader: [*work(find_again(source, reader, conversation))]
    )


def _check_same(
    source: Database, original: Conversation, target: Database, existing: Conversation
) -> None:
    """Raise ``HistoryDiverged`` if the two conversations have different events at a version that
    both have.
    """

    def differ(version: int) -> bool:
        ours = source.recorder.query(
            lambda reader: find_again(source, reader, original).head_at(version)
        )
        return ours != target.recorder.query(
            lambda reader: find_again(target, reader, existing).head_at(version)
        )

    common_version = min(original.version, existing.version)
    # From the first difference on, the heads differ at every version, so a binary search finds the
    # first difference.
    if differ(common_version):
        raise HistoryDiverged(
            existing.id, bisect_left(range(1, common_version), True, key=differ), existing.version
        )


def _may_lack_redactions(source: Database, original: Conversation, existing: Conversation) -> bool:
    """Return whether the source may have redacted events that the target has with content."""
    if existing.redactions != original.redactions:
        return True
    # Equal numbers may count different redactions, because the target may have redacted other
    # events. A redaction of an own event has appended a receipt after the events of the target. A
    # redaction of an event that the source shares with its parent has appended none here.
    return original.redactions > 0 and (
        existing.begins < original.begins
        or any(row.kind == "redaction" for row in stored_rows(source, original, existing.version))
    )


def _copy_redactions(
    source: Database,
    original: Conversation,
    target: Database,
    existing: Conversation,
    damage: _Damage | None,
) -> None:
    """Redact in the target the events that the source has redacted."""
    redacted = (
        row
        for row in _up_to_damage(stored_rows(source, original), damage)
        if is_redacted(row.proof)
    )
    redacted_records = find_redacted_records(source, original)
    for chunk in split_into_batches(row for row in redacted if row.id < existing.version):
        work = partial(
            _redact_too,
            database=target,
            existing=existing,
            redacted_rows=chunk,
            records=redacted_records,
        )
        on_finished(target, work)


def _check_not_redacted(
    source: Database,
    original: Conversation,
    target: Database,
    ancestors: Iterable[Border],
    start: int,
    stop: int,
) -> None:
    """Raise ``CannotRedact`` if the target has redacted one of the events ``start <= id < stop`` in
    a related conversation. A related conversation shares the event: it is an ancestor, a fork of an
    ancestor, or a fork of this conversation. A detached fork shares no events. Cost: a few small
    reads for each related conversation.
    """

    def read_forks(reader: Reader) -> list[str]:
        present = find_again(source, reader, original).state
        # Only the conversation that stores the first event, and its forks, share the event.
        keys = [present.key, *(part.key for part in present.lineage if part.stop > start)]
        return [fork.id for fork, _ in forks_that_share(source, reader, keys[-1], [start])]

    def read_row(reader: Reader, event_id: int) -> Row:
        return find_again(source, reader, original).last_row(event_id + 1)

    names = [ancestor.parent for ancestor in ancestors]
    names += source.recorder.query(read_forks)
    # The check runs before the transaction, because a transaction cannot read another server. A
    # redaction after the check is missed, as a redaction right after the copy would be.
    for name in dict.fromkeys(names):
        if name == original.id:
            continue
        relative = query_sources(target, Sources.find, name)
        if relative is None or relative.erasure is not None or not relative.redactions:
            continue
        for row in stored_rows(target, relative, start):
            if row.id >= stop:
                break
            if not is_redacted(row.proof):
                continue
            own = source.recorder.query(partial(read_row, event_id=row.id))
            if own.head == row.head and not is_redacted(own.proof):
                raise CannotRedact(
                    f"conversation {original.id!r}: the target redacted event {row.id} in {name!r},"
                    " and a copy would bring the event back; redact the event in the source too,"
                    " then copy again"
                )


def keys_of(source: Database, conversation: Conversation) -> Iterator[tuple[str, RecalledKey]]:
    """Yield the idempotency keys of a conversation by pages. Raises ``CorruptEvent`` if a program
    without the data key changed one of them.
    """

    def read_page(reader: Reader, after: str | None) -> Sequence[tuple[str, RecalledKey]]:
        page = reader.recalled(conversation.key, start_after(after), CHUNK)
        # The conversation may have a new key by now.
        find_again(source, reader, conversation).check_proofs(page)
        return page

    return iter_pages(
        lambda after: source.recorder.query(partial(read_page, after=after)), itemgetter(0), CHUNK
    )


def _keys_by_version(
    keys: Iterable[tuple[str, RecalledKey]], start: int
) -> dict[int, list[tuple[str, RecalledKey]]]:
    """Group the keys whose events end after the version ``start`` by the version at which their
    events end.
    """
    keys_by_version: dict[int, list[tuple[str, RecalledKey]]] = {}
    for name, recalled in keys:
        version = recalled.first_id + recalled.events
        if version > start:
            keys_by_version.setdefault(version, []).append((name, recalled))
    return keys_by_version


class CopyWriter(StagedWriter):
    """A conversation that is being copied into a store. ``end`` is the conversation's state after
    the last event in the target. New rows are added after ``end``. The copy computes the heads of
    new rows again.

    The constructor raises ``HistoryDiverged`` if the target has another conversation with the same
    id. It raises ``ConversationErased`` if the target erased the conversation. But if the target's
    tombstone is the same as the source's last tombstone in ``earlier``, the source has used the id
    again after the erasure. The copied conversation then replaces the tombstone.
    """

    def __init__(
        self,
        target: Database,
        new: Conversation,
        earlier: Sequence[Conversation],
        records: CopiedRecords,
    ) -> None:
        present = query_sources(target, Sources.find, new.id)
        replaces = _replaced_key(present, earlier[-1] if earlier else None)
        existing = None if replaces is not None else check_not_erased(present)
        if existing is not None and (existing.salt, existing.created_at) != (
            new.salt,
            new.created_at,
        ):
            raise HistoryDiverged(new.id, 0, existing.version)
        self.end = existing or Conversation(
            NOT_BEGUN,
            new.id,
            new.created_at,
            new.salt,
            parent_version=new.parent_version,
            seed=new.seed,
            replaces=replaces,
        )
        super().__init__(target, self.end, existing)
        self._records = records
        self._without_receipt: Mapping[int, str] = {}
        """The redacted events whose receipts have not been copied yet, with hashes of their bodies.
        """

    def link_rows(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the decoded rows, and count again how many shown and structural rows come before
        each row. Raises ``CorruptEvent`` if the head of a row does not follow from the previous
        row.
        """
        end = self.end
        for row in rows:
            if (
                link_of(end.head or first_head(end, end.salt), end.salt, sound(end.id, row))
                != row.head
            ):
                raise CorruptEvent(
                    end.id,
                    row.id,
                    "the head differs from the head of the event in the source: one of the two"
                    " events was changed",
                )
            counted = row.counted(row.id, end.shown, end.structural)
            end = end.grown(counted)
            yield counted

    def copy(
        self,
        rows: Sequence[Row],
        made: Made,
        keys: Mapping[int, Sequence[tuple[str, RecalledKey]]],
    ) -> None:
        """Add the next rows, a few thousand at most, in one transaction. ``made`` names the source
        records from which the events were made. ``keys`` maps a version to the idempotency keys
        whose events end at that version.
        """
        redacted = redacted_bodies(rows)
        named = _named_by_receipts(self.end.id, rows)
        without_receipt = {
            event_id: body
            for event_id, body in (*self._without_receipt.items(), *redacted.items())
            if event_id not in named
        }
        start = rows[0].id
        stop = rows[-1].id + 1

        def makes_a_row(_number: int, events: tuple[int, int]) -> bool:
            first, count = events
            return first < stop and start < first + count

        def work(writing: WriteTransaction) -> None:
            if self._is_published:
                self._records.check(writing.transaction, makes_a_row)
            writing.insert(rows)
            note_made(writing, made, stop)
            if keys:
                for row in rows:
                    _remember(writing, keys.get(row.id + 1, ()))
            if redacted:
                writing.count_redactions(len(redacted))
            if self._is_published:
                enter_copied_redactions(writing, without_receipt)

        self._write(start, work)
        self.added += len(rows)
        self.end = self.end.grown(rows[-1])
        self._without_receipt = {} if self._is_published else without_receipt

    def finish(
        self,
        keys: Iterable[tuple[str, RecalledKey]],
        redactions: int,
        views: Sequence[Record],
        origins: Sequence[Border],
        streams: Iterable[tuple[Stream, Sequence[Chunk]]] | None,
    ) -> None:
        """Write what belongs to the conversation beside its events, and make a new conversation
        visible. If ``streams`` is None, the streams in the target stay.
        """
        version = self.end.version
        copied_streams = None if streams is None else [*streams]
        copied_keys = (
            (name, recalled)
            for name, recalled in keys
            if 0 <= recalled.first_id < recalled.first_id + recalled.events <= version
        )
        while page := list(islice(copied_keys, CHUNK)):
            self._write_beside(partial(_remember, keys=page))

        def count_and_put(writing: WriteTransaction) -> None:
            if writing.redactions < redactions:
                writing.count_redactions(redactions - writing.redactions)
            writing.put_records(VIEWS, [record for record in views if record.version <= version])
            if copied_streams is not None:
                _put_streams(writing, copied_streams)

        if redactions or views or copied_streams:
            self._write_beside(count_and_put)

        # A new conversation becomes visible only now, when it is complete.
        def enter_all(writing: WriteTransaction) -> None:
            writing.enter_origins(origins)
            enter_copied_redactions(writing, self._without_receipt)

        check = partial(self._records.check, is_new=lambda _, events: events[0] < version)
        self.publish(version, enter_all, check)

    def _write_beside(self, work: Callable[[WriteTransaction], object]) -> None:
        """Run ``work``, which writes no events, in a transaction on the copied conversation."""
        key = self.key
        if key is None:
            return  # no row was copied, so the conversation was not begun

        def in_transaction(transaction: Transaction) -> None:
            state = check_not_erased(self.database.find_key(transaction, key))
            # If the staged copy was discarded, publishing it raises the error.
            if state is not None:
                writing = WriteTransaction(transaction, state, self.database)
                work(writing)
                writing.end()

        self.transact(in_transaction)


def _streams(reading: ReadTransaction) -> Iterator[tuple[Stream, Sequence[Chunk]]]:
    # A stream is short, and closed streams are deleted soon.
    for stream in reading.streams():
        yield stream, reading.chunks(stream, 0, NUMBER_MAX)


def _put_streams(
    writing: WriteTransaction, streams: Iterable[tuple[Stream, Sequence[Chunk]]]
) -> None:
    """Write the streams of a conversation in place of those that an earlier copy wrote."""
    for copied_before in writing.streams():
        writing.drop_stream(copied_before.number)
    for stream, chunks in streams:
        writing.put_stream(stream)
        for chunk in chunks:
            writing.put_chunk(stream.number, chunk)


def _named_by_receipts(conversation: str, rows: Iterable[Row]) -> set[int]:
    """Return the ids of redacted events whose receipts are among the rows."""
    events = (stored_event_of(conversation, row) for row in rows if row.kind == "redaction")
    return {
        event_id for event in events if isinstance(event, Redaction) for event_id in event.event_ids
    }


def _remember(writing: WriteTransaction, keys: Iterable[tuple[str, RecalledKey]]) -> None:
    """Store the idempotency keys that the conversation does not have yet."""
    for name, recalled in keys:
        if writing.recalled(name) is None:
            writing.remember(name, RecalledKey(recalled.first_id, recalled.events))


def copy_tombstones(source: Database, target: Database, tombstones: Sequence[Conversation]) -> int:
    """Copy the tombstones that the target lacks, from the oldest to the newest. Also copy the
    fingerprints that make the target refuse later imports of erased content.
    """
    pairs = zip((None, *tombstones), tombstones, strict=False)
    works = (
        partial(_copy_tombstone, source=source, target=target, tombstone=tombstone, earlier=earlier)
        for earlier, tombstone in pairs
    )
    return sum(map(target.recorder.transact, works))


def _copy_tombstone(
    transaction: Transaction,
    source: Database,
    target: Database,
    tombstone: Conversation,
    earlier: Conversation | None,
) -> bool:
    """Copy a tombstone, which replaces the tombstone ``earlier``. Return False if the target has it
    already, or another tombstone in its place. Raises ``ConversationErased`` if the target has not
    erased the conversation.
    """
    erasure = tombstone.erasure
    present = target.find(transaction, tombstone.id, as_stored=True)
    assert erasure is not None
    if present is None:
        existing = []
    else:
        existing = [*tombstones_before(transaction, present), present]
    if any(_is_tombstone(existing_tombstone, tombstone) for existing_tombstone in existing):
        return False
    replaces = _replaced_key(present, earlier)
    if present is None or replaces is not None:
        refused = query_sources(source, Sources.refused_of, tombstone.key)
        new = transaction.begin(
            Conversation(NOT_BEGUN, tombstone.id, tombstone.created_at, b"", replaces=replaces)
        )
        enter_erasure(transaction, new, erasure)
        SourcesToWrite(target, transaction).refuse(new.key, refused, own=False)
        return True
    if present.erasure is None:
        when = from_microseconds(erasure.erased_at).isoformat()
        reason = (
            f"{erasure.reason}; the source erased the conversation, but the target did not: erase"
            " it in the target too"
        )
        raise ConversationErased(tombstone.id, when, reason)
    return False


def _replaced_key(present: Conversation | None, tombstone: Conversation | None) -> int | None:
    """Return the key of the conversation ``present`` in the target if it is the tombstone that a
    new conversation replaces. Otherwise, return None.
    """
    if present is None or not _is_tombstone(present, tombstone):
        return None
    return present.key


def _is_tombstone(conversation: Conversation, tombstone: Conversation | None) -> bool:
    return (
        conversation.erasure is not None
        and tombstone is not None
        and _compared_by(conversation) == _compared_by(tombstone)
    )


def _redact_too(
    transaction: Transaction,
    database: Database,
    existing: Conversation,
    redacted_rows: Sequence[Row],
    records: RedactedRecords | None,
) -> None:
    """Repeat in the target the redactions that the source made after the last copy: redact the same
    events and their source records.
    """
    writing = WriteTransaction(
        transaction, find_again(database, transaction, existing).state, database
    )
    check_finished(transaction, existing.key)
    to_redact: list[tuple[Event, Row]] = []
    for redacted in redacted_rows:
        for row in writing.rows(redacted.id, redacted.id + 1):
            if is_redacted(row.proof):
                continue
            if redacted.head != row.head or redacted.proof[HEAD_BYTES:] != commitment_of(
                row.proof, row.body
            ):
                raise CorruptEvent(
                    existing.id,
                    row.id,
                    "the target has a different event in place of the redacted event: one of the"
                    " two events was changed",
                )
            if row.id < existing.begins:
                raise CannotRedact(
                    f"conversation {existing.id!r}, event {row.id}: the source redacted this"
                    f" event, but the target stores the event in {existing.parent_id!r} (the parent"
                    f" of {existing.id!r}) or in an earlier ancestor; redact the event there, then"
                    " copy again"
                )
            to_redact.append((stored_event_of(existing.id, row), redacted))
    if to_redact:
        event_ids = [event.id for event, _ in to_redact]
        if records is not None:
            redact_records(writing, records)
        event_id = event_beyond(writing, records, {*event_ids})
        if event_id is not None:
            raise CannotRedact(
                f"conversation {existing.id!r}: the copied store redacted event {event_id}, but"
                f" does not have its source record; redact event {event_id} in the target too,"
                " then copy again"
            )
        sharing = sharing_events(transaction, writing, event_ids)
        redact_rows(writing, to_redact, sharing)
        enter_copied_redactions(writing, redacted_bodies(row for _, row in to_redact))
