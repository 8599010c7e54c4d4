"""Copy conversations from one store to another while the first is in use. Copying again adds only
what is new.

A copy follows its source. Every event keeps its id, its time and its place in the hash chain; every
conversation keeps its salt, its idempotency keys and its tombstone. So heads are equal in both
stores; those of copied events are computed again. What the source redacted is redacted in the copy.
A conversation that went on by itself in the target, and now differs, is left as it is and named.

Positions are new: followers of the target begin at 0. Of the records of projections only the
records of Views are copied.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import islice
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from foldlog.eventstore.arguments import check_whole
from foldlog.eventstore.errors import (
    CannotRedact,
    ConversationErased,
    ConversationNotFound,
    CorruptEvent,
    HistoryDiverged,
    StoreDamaged,
    StoreUnusable,
    VersionConflict,
)
from foldlog.eventstore.events import VIEWS, Event, Redaction, RedactionCopied
from foldlog.eventstore.log.database import Database, paged, start_after
from foldlog.eventstore.log.finding import find_again, tombstones_before
from foldlog.eventstore.log.importing import CHUNK, StagedWriter, chunked, stored_rows
from foldlog.eventstore.log.ledger import enter, enter_erasure
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.results import Border
from foldlog.eventstore.log.row import (
    commitment_of,
    first_head,
    from_microseconds,
    is_redacted,
    link_of,
    not_erased,
    sound,
    stored_event_of,
)
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.maintenance.redact import redact_rows
from foldlog.eventstore.maintenance.rekey import named_or_all
from foldlog.eventstore.maintenance.unfinished import check_finished, on_finished
from foldlog.eventstore.maintenance.verify import Unlisted, readable_conversations
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import HEAD_BYTES, Conversation, RecalledKey, Record, Row
from foldlog.eventstore.sources.moving import (
    RedactedRecords,
    copy_source,
    find_redacted_records,
    is_same_source,
    made_of,
    note_made,
    redact_records,
    split_at_records,
)
from foldlog.eventstore.sources.tables import Made, Sources, SourcesToWrite
from foldlog.eventstore.store import Store

Item = TypeVar("Item")

_JOBS_MAX = 64
"""The most conversations that may be copied at the same time."""


class Moved(NamedTuple):
    """The outcome for one conversation: how many events and tombstones were copied, and its version
    now; or its problem. Of a damaged one that was copied in part, ``damaged`` is the first event
    that was not. ``records`` are the copied records of its source that are no events yet.
    """

    conversation: str
    added: int
    version: int
    problem: str | None = None
    tombstones: int = 0
    damaged: int | None = None
    records: int = 0


class UnequalConversation(NamedTuple):
    """A difference between the two stores in one conversation. ``behind``: copying again makes them
    equal.
    """

    conversation: str
    problem: str
    behind: bool


def copy_store(
    source: Store, target: Store, *conversations: str, jobs: int = 4, damaged: bool = False
) -> Generator[Moved, None, None]:
    """Copy every conversation of ``source``, or those named, in no order, ``jobs`` at a time, as
    the outcomes are read from this iterator. Each appears whole in the target or not at all, or
    grows by its tail. With ``damaged``, a damaged one is copied up to its first damaged event.

    A conversation that is damaged or cannot be read, or that differs in the target, is yielded with
    its problem, and the others go on. Raises ``ConversationNotFound`` for a name,
    ``KeyUnavailable`` if a key is missing, and the target's errors if it cannot be written. Cost:
    one row of every conversation on both sides, and the events that the target does not have.
    """
    check_whole("jobs", jobs, 1, _JOBS_MAX)
    if not conversations:
        target.database.recorder.succeed(source.database.recorder)
    wanted = _conversations(source.database, conversations)
    stopped = threading.Event()
    move = partial(_move, source.database, target.database, stopped, damaged)
    with ThreadPoolExecutor(jobs) as pool:
        running: set[Future[Moved]] = set()
        try:
            while True:
                running |= {
                    pool.submit(move, found) for found in islice(wanted, 2 * jobs - len(running))
                }
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (each.result() for each in done)
        finally:
            stopped.set()
            pool.shutdown(cancel_futures=True)


def compare_stores(
    source: Store, target: Store, *conversations: str
) -> Generator[UnequalConversation, None, None]:
    """Yield every conversation of ``source``, or of those named, that ``target`` does not have with
    the same head and as many redactions, or more. Conversations that only the target has are
    ignored. Cost: one row of each on both sides.
    """
    for found in _conversations(source.database, conversations):
        if isinstance(found, Unlisted):
            yield UnequalConversation(found.id or "", found.problem, behind=False)
            continue
        there = _find(target.database, found.id)
        if there is None:
            problem = f"{_measure(found)} in the source, missing in the target"
            yield UnequalConversation(found.id, problem, behind=True)
        elif _state(found._replace(redactions=max(found.redactions, there.redactions))) != _state(
            there
        ):
            is_same = (
                there.created_at == found.created_at
                and there.erasure is None
                and found.erasure is None
            )
            behind = is_same and (there.version < found.version or there.end == found.end)
            problem = f"{_measure(found)} in the source, {_measure(there)} in the target"
            yield UnequalConversation(found.id, problem, behind=behind)
        elif not is_same_source(source.database, target.database, found, there):
            problem = "its source has other records in the target, or other ones are redacted there"
            yield UnequalConversation(found.id, problem, behind=True)


def _move(
    source: Database,
    target: Database,
    stopped: threading.Event,
    damaged: bool,
    found: Conversation | Unlisted,
) -> Moved:
    if isinstance(found, Unlisted):
        return Moved(found.id or "", 0, 0, found.problem)
    there = _find(target, found.id)
    version = 0 if there is None else there.end[0]
    if (
        there is not None
        and _state(found) == _state(there)
        and max(found.pending, there.pending) <= 0
        and is_same_source(source, target, found, there)
    ):
        return Moved(found.id, 0, version)
    try:
        return copy_conversation(source, target, found.id, stopped, damaged=damaged)
    except ConversationErased as error:
        return Moved(found.id, 0, version, error.problem)
    except (CannotRedact, CorruptEvent, HistoryDiverged, StoreDamaged, VersionConflict) as error:
        is_damage = damaged and isinstance(error, CorruptEvent | StoreDamaged)
        return Moved(found.id, 0, version, str(error), damaged=version if is_damage else None)
    except StoreUnusable as error:
        if error.kind != "archive":
            raise
        return Moved(found.id, 0, version, str(error))


def _conversations(database: Database, names: Sequence[str]) -> Iterator[Conversation | Unlisted]:
    """Yield these conversations, or all that have events or a tombstone, and those that a list
    cannot show.
    """
    if names:
        return named_or_all(database, names)
    found = readable_conversations(database.recorder)
    return (
        each
        for each in found
        if isinstance(each, Unlisted) or each.version or each.erasure or each.pending
    )


def _find(database: Database, conversation: str) -> Conversation | None:
    return database.recorder.query(lambda reader: database.find(reader, conversation, pending=True))


def _state(found: Conversation) -> tuple[object, ...]:
    """Return what two copies of a conversation have in common: when it was begun, as another
    conversation of its id may end with the same event, and, unless it is erased, how many events
    were redacted.
    """
    return found.created_at, found.end, found.redactions if found.erasure is None else "erased"


def _measure(found: Conversation) -> str:
    version, head = found.end
    return (
        f"{version} events with head"
        f" {(head or b'').hex()[:12]}…{'' if found.erasure is None else ', erased'}"
    )


# -- one conversation
# -------------------------------------------------------------------------------------------------


def copy_conversation(
    source: Database,
    target: Database,
    conversation: str,
    stopped: threading.Event,
    *,
    damaged: bool = False,
) -> Moved:
    """Copy one conversation, or the tail that the target does not have yet; with ``damaged``, up to
    the first damaged event. Where it is ``stopped``, it ends after the transaction that it is in.

    Raises ``ConversationNotFound``; ``CorruptEvent`` if the source is damaged; ``HistoryDiverged``
    if the target has other events, ``ConversationErased`` if the target erased it, and
    ``CannotRedact`` if it shares an event that the source redacted: then nothing of it is changed.
    A new conversation appears whole or not at all. Cost: the events to copy, in small transactions;
    where events were redacted since, all of them.
    """
    found, earlier = source.recorder.query(partial(_with_earlier, source, conversation))
    tombstones = copy_tombstones(
        source, target, earlier if found.erasure is None else (*earlier, found)
    )
    if found.erasure is not None:
        return Moved(found.id, 0, found.end[0], tombstones=tombstones)
    if not found.version:  # it is a source whose events were not made
        records = copy_source(source, target, found, 0)
        return Moved(found.id, 0, 0, tombstones=tombstones, records=records)
    source.data_key(found)  # its key is given, or the error comes before anything is copied
    damage: list[CorruptEvent | StoreDamaged] | None = [] if damaged else None
    with CopyWriter(target, found, earlier) as writer:
        there = writer.existing
        if there is not None:
            _check_same(source, found, target, there)
        # it is left as it is
        start = writer.end.version
        is_ahead = writer.end.version > found.version
        if there is not None and not is_ahead and there.redactions != found.redactions:
            redacted = (
                row
                for row in _up_to_damage(stored_rows(source, found), damage)
                if is_redacted(row.proof)
            )
            for chunk in chunked(row for row in redacted if row.id < there.version):
                redacted_records = find_redacted_records(source, found, (row.id for row in chunk))
                work = partial(
                    _redact_too, database=target, there=there, gone=chunk, records=redacted_records
                )
                on_finished(target, work)
        rows = writer.linked(stored_rows(source, found, start))
        if there is not None and start < found.version:
            # what is damaged is found again after the events
            new_keys = _keys_by_version(
                _up_to_damage(keys_of(source, found), None if damage is None else []), start
            )
        else:
            new_keys = {}
        if damaged or (there is not None and there.pending):
            made = made_of(source, found)
        else:
            made = {}
        for chunk in split_at_records(
            chunked(_up_to_damage(rows, damage)), made, lambda: not damage
        ):
            if stopped.is_set():
                raise CancelledError
            writer.copy(chunk, made, new_keys)
        keys = _up_to_damage(keys_of(source, found), damage)
        views = _up_to_damage(
            _read(source, found, lambda reading: reading.records(VIEWS, start)), damage
        )
        origins = _up_to_damage(_read(source, found, ReadTransaction.origins), damage)
        writer.finish(keys, 0 if is_ahead else found.redactions, [*views], [*origins])
    records = copy_source(source, target, found, writer.end.version)
    moved = Moved(
        found.id, writer.added, writer.end.version, tombstones=tombstones, records=records
    )
    if damage:
        return moved._replace(problem=str(damage[0]), damaged=writer.end.version)
    return moved


def _up_to_damage(
    items: Iterable[Item], damage: list[CorruptEvent | StoreDamaged] | None
) -> Iterator[Item]:
    """Yield the items. With ``damage``, they end where the first cannot be read, and its error is
    added there.
    """
    try:
        yield from items
    except (CorruptEvent, StoreDamaged) as error:
        if damage is None:
            raise
        damage.append(error)


def _with_earlier(
    source: Database, conversation: str, reader: Reader
) -> tuple[Conversation, Sequence[Conversation]]:
    """Return the conversation, and the earlier tombstones of its id."""
    found = source.find(reader, conversation, pending=True)
    if found is None:
        raise ConversationNotFound(conversation)
    return found, tombstones_before(reader, found)


def _read(
    source: Database, found: Conversation, work: Callable[[ReadTransaction], Iterable[Item]]
) -> Iterator[Item]:
    """Yield what ``work`` reads of a conversation, as it is now."""
    yield from source.recorder.query(lambda reader: [*work(find_again(source, reader, found))])


def _check_same(
    source: Database, found: Conversation, target: Database, there: Conversation
) -> None:
    """Raise ``HistoryDiverged`` unless one of the two is the beginning of the other."""

    def differ(version: int) -> bool:
        ours = source.recorder.query(
            lambda reader: find_again(source, reader, found).head_at(version)
        )
        return ours != target.recorder.query(
            lambda reader: find_again(target, reader, there).head_at(version)
        )

    both = min(found.version, there.version)
    if differ(both):  # as all versions from the first one on at which they differ
        raise HistoryDiverged(
            there.id, bisect_left(range(1, both), True, key=differ), there.version
        )


def keys_of(source: Database, found: Conversation) -> Iterator[tuple[str, RecalledKey]]:
    """Yield its idempotency keys lazily. Raises ``CorruptEvent`` at one that was changed without
    the key of the conversation.
    """

    def some(reader: Reader, after: str | None) -> Sequence[tuple[str, RecalledKey]]:
        page = reader.recalled(found.key, start_after(after), CHUNK)
        find_again(source, reader, found).check_proofs(page)  # it may have another key by now
        return page

    return paged(
        lambda after: source.recorder.query(partial(some, after=after)), itemgetter(0), CHUNK
    )


def _keys_by_version(
    keys: Iterable[tuple[str, RecalledKey]], start: int
) -> dict[int, list[tuple[str, RecalledKey]]]:
    """Return the keys whose last event is ``start`` or a later one, by the version that has all
    events of a key.
    """
    found: dict[int, list[tuple[str, RecalledKey]]] = {}
    for name, recalled in keys:
        version = recalled.first_id + recalled.events
        if version > start:
            found.setdefault(version, []).append((name, recalled))
    return found


class CopyWriter(StagedWriter):
    """One conversation that is being copied into a store. ``end`` is the conversation up to the
    last event that the store has; rows are added behind it, and the head of each is computed.

    Its constructor raises ``ConversationErased`` if the target erased the conversation, unless that
    is the last ``earlier`` tombstone, and ``HistoryDiverged`` where the conversation there is
    another one.
    """

    def __init__(
        self, target: Database, new: Conversation, earlier: Sequence[Conversation] = ()
    ) -> None:
        found = _find(target, new.id)
        if found is not None and earlier and _is_tombstone(found, earlier[-1]):
            replaces = found.key
        else:
            replaces = None
        there = None if replaces is not None else not_erased(found)
        if there is not None and (there.salt, there.created_at) != (new.salt, new.created_at):
            raise HistoryDiverged(new.id, 0, there.version)
        self.end = there or Conversation(
            0, new.id, new.created_at, new.salt, parent_version=new.parent_version, seed=new.seed
        )
        super().__init__(target, self.end, there, replaces=replaces)
        self._without_receipt: frozenset[int] = frozenset()
        """The copied events that are redacted, while their receipts are not copied."""

    def linked(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield plain rows that follow the last one, with the right counts. Raises ``CorruptEvent``
        at a row that does not follow the one before it.
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
                    "its head is not that of the event in the source: one was changed",
                )
            counted = row.counted(row.id, end.shown, end.structural)
            end = end.grown(counted)
            yield counted

    def copy(
        self,
        rows: Sequence[Row],
        made: Made = MappingProxyType({}),
        keys: Mapping[int, Sequence[tuple[str, RecalledKey]]] = MappingProxyType({}),
    ) -> None:
        """Add the next rows, of those that ``linked`` yields, at most some thousand; that these are
        the events of the records in ``made``; and their ``keys``, by the version that has all
        events of a key. Raises ``VersionConflict`` if another writer
        appends to the conversation during the copy.
        """
        redacted = {row.id for row in rows if is_redacted(row.proof)}
        without_receipt = (self._without_receipt | redacted) - _named_by_receipts(self.end.id, rows)

        def beside(writing: WriteTransaction) -> None:
            note_made(writing, made, rows[-1].id + 1)
            for row in rows if keys else ():
                _remember(writing, keys.get(row.id + 1, ()))
            if redacted:
                writing.count_redactions(len(redacted))
            if self._is_published:
                _enter_redactions(writing, without_receipt)

        self.add(rows, beside)
        self.end = self.end.grown(rows[-1])
        self._without_receipt = frozenset() if self._is_published else without_receipt

    def finish(
        self,
        keys: Iterable[tuple[str, RecalledKey]],
        redactions: int,
        views: Sequence[Record] = (),
        origins: Sequence[Border] = (),
    ) -> None:
        """Add keys, the count of redactions and records of Views after all rows; then make the
        conversation visible. ``origins``: see ``ReadTransaction.origins``.
        """
        version = self.end.version
        beside = partial(_write_beside, database=self.database, key=self.key or 0)
        there = (
            each
            for each in keys
            if 0 <= each[1].first_id < each[1].first_id + each[1].events <= version
        )
        while some := list(islice(there, CHUNK)):
            self.transact(partial(beside, keys=some))
        if redactions or views:
            self.transact(
                partial(
                    beside,
                    redactions=redactions,
                    views=[each for each in views if each[0] <= version],
                )
            )

        def enter_all(writing: WriteTransaction) -> None:
            writing.enter_origins(origins)
            _enter_redactions(writing, self._without_receipt)

        self.publish(version, enter_all)


def _named_by_receipts(conversation: str, rows: Iterable[Row]) -> set[int]:
    """Return the ids of the events that are redacted according to the receipts among the rows."""
    events = (stored_event_of(conversation, row) for row in rows if row.kind == "redaction")
    return {
        event_id for event in events if isinstance(event, Redaction) for event_id in event.event_ids
    }


def _enter_redactions(writing: WriteTransaction, event_ids: Iterable[int]) -> None:
    """Enter that events came without their content. The entry is their receipt, in case the copy
    of the event that is the receipt in the source never comes.
    """
    copied = RedactionCopied(event_ids=tuple(sorted(event_ids)))
    if copied.event_ids:
        found = writing.state
        enter(
            writing.transaction, found, copied, max(writing.database.now(), found.updated_at or 0)
        )


def _write_beside(
    transaction: Transaction,
    database: Database,
    key: int,
    keys: Sequence[tuple[str, RecalledKey]] = (),
    redactions: int = 0,
    views: Sequence[Record] = (),
) -> None:
    """Write idempotency keys, the number of redactions, and records of Views, beside the events of
    a conversation.
    """
    found = not_erased(database.find_key(transaction, key))
    if found is None:
        return  # a staged copy was discarded: its publication says so
    writing = WriteTransaction(transaction, found, database)
    _remember(writing, keys)
    if found.redactions < redactions:  # where the numbers are equal, both show the same content
        writing.count_redactions(redactions - found.redactions)
    writing.put_records(VIEWS, views)
    writing.end()


def _remember(writing: WriteTransaction, keys: Iterable[tuple[str, RecalledKey]]) -> None:
    """Write the idempotency keys that are not there yet."""
    for name, recalled in keys:
        if writing.recalled(name) is None:
            writing.remember(name, RecalledKey(recalled.first_id, recalled.events))


def copy_tombstones(source: Database, target: Database, tombstones: Sequence[Conversation]) -> int:
    """Add tombstones of one id, the first one first, which the target does not have, each with the
    sources that it refuses. Return how many were added. Raises ``ConversationErased`` if the
    conversation still has events there.
    """
    pairs = zip((None, *tombstones), tombstones, strict=False)
    works = (
        partial(_copy_tombstone, source=source, target=target, one=one, before=before)
        for before, one in pairs
    )
    return sum(map(target.recorder.transact, works))


def _copy_tombstone(
    transaction: Transaction,
    source: Database,
    target: Database,
    one: Conversation,
    before: Conversation | None,
) -> bool:
    erasure = one.erasure
    found = target.find(transaction, one.id, pending=True)
    assert erasure is not None
    if found is None:
        there = []
    else:
        there = [*tombstones_before(transaction, found), found]
    if any(_is_tombstone(each, one) for each in there):
        return False
    if found is not None and _is_tombstone(found, before):
        replaces = found.key
    else:
        replaces = None
    if found is None or replaces is not None:
        refused = source.recorder.query(lambda reader: Sources(source, reader).refused_of(one.key))
        begun = transaction.begin(Conversation(0, one.id, one.created_at, b"", replaces=replaces))
        enter_erasure(transaction, begun, erasure)
        SourcesToWrite(target, transaction).refuse(begun.key, refused)
        return True
    if found.erasure is None:
        when = from_microseconds(erasure.erased_at).isoformat()
        reason = (
            f"{erasure.reason}; the source erased it, and the target did not: erase it in the"
            " target too"
        )
        raise ConversationErased(one.id, when, reason)
    return False


def _is_tombstone(found: Conversation, one: Conversation | None) -> bool:
    """Return whether this row of a conversation is this tombstone."""
    return found.erasure is not None and one is not None and _state(found) == _state(one)


def _redact_too(
    transaction: Transaction,
    database: Database,
    there: Conversation,
    gone: Sequence[Row],
    records: RedactedRecords | None,
) -> None:
    """Redact events of the target that the source has redacted since they were copied, and the
    records of which they were made.
    """
    writing = WriteTransaction(
        transaction, find_again(database, transaction, there).state, database
    )
    check_finished(transaction, there.key)
    has_content: list[tuple[Event, Row]] = []
    for redacted in gone:
        for row in writing.rows(redacted.id, redacted.id + 1, 1):
            if is_redacted(row.proof):
                continue
            if redacted.head != row.head or redacted.proof[HEAD_BYTES:] != commitment_of(
                row.proof, row.body
            ):
                raise CorruptEvent(
                    there.id,
                    row.id,
                    "the source redacted another event: one of the two was changed",
                )
            if row.id < there.begins:
                raise CannotRedact(
                    f"conversation {there.id!r}, event {row.id}: the source redacted it, and the"
                    f" target stores it in {there.parent_id!r} or one before that, which"
                    f" {there.id!r} was forked from; redact it there, then copy again"
                )
            has_content.append((stored_event_of(there.id, row), redacted))
    if has_content:
        if records is not None:
            redact_records(writing, records)
        redact_rows(transaction, writing, has_content)
        _enter_redactions(writing, [event.id for event, _ in has_content])
