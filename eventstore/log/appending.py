"""The work of an append in its transaction: find, decide, link, insert, tell the projections; and of a fork."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Literal

from msgspec import Struct

from foldlog.eventstore.arguments import check_whole
from foldlog.eventstore.codec import Encoded, encode
from foldlog.eventstore.codec_json import size_of
from foldlog.eventstore.conversation import AnyVersion, Append, State, decide, numbered, summaries_named
from foldlog.eventstore.errors import (
    ConversationNotFound,
    CorruptEvent,
    DocumentsChanged,
    IdempotencyConflict,
    InvalidArgument,
    VersionConflict,
)
from foldlog.eventstore.events import ATTRIBUTES, CondensationAction, DocumentChanges, Event, Forked, summary_of
from foldlog.eventstore.log import origins
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.finding import Generation, find_begun, find_meant
from foldlog.eventstore.log.ledger import enter
from foldlog.eventstore.log.past import ancestor, past_of
from foldlog.eventstore.log.reading import ReadTransaction, stored_key
from foldlog.eventstore.log.redacted import can_be_redacted, untraced, without_content
from foldlog.eventstore.log.results import Recorded
from foldlog.eventstore.log.row import (
    dense_events,
    first_head,
    from_microseconds,
    new_salt,
    stored_event_of,
    with_times,
)
from foldlog.eventstore.log.writing import WriteTransaction, begin_new, list_again
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.types import Beginning, Conversation, Fork, Outcome, Place, RecalledKey, unplaced
from foldlog.eventstore.times import EPOCH

_NO_SUMMARIES: frozenset[int] = frozenset()
_event = attrgetter("event")


class Appending(Struct, eq=False):
    """The work of one append. It is called with a transaction, and again with another one if the first is rolled back.
    Once that is committed, ``recorded`` returns the events.
    """

    database: Database
    conversation: str
    batch: list[Encoded]
    expected_version: int | Literal[AnyVersion.ANY_VERSION]
    idempotency_key: str | None
    guard: Callable[[ReadTransaction], object] | None
    project: Callable[[WriteTransaction, Sequence[Event]], None] | None
    dedupe: Literal["origin"] | None
    generation: Generation | None
    any_thread: bool
    together: Sequence[Appending] = ()
    also: Callable[[WriteTransaction], object] | None = None
    """Writes what belongs to the events, in their transaction."""
    met: int | None = None
    """The key of the conversation that it appended to."""
    earlier: tuple[Recorded, ...] | None = None
    """What was recorded before, or nothing: then this transaction appends nothing."""
    decided: Sequence[Event] = ()
    place: Place = unplaced
    moment: datetime = EPOCH

    def __call__(self, transaction: Transaction) -> None:
        self.earlier = None
        if self.together:
            transaction.lock_all(each.conversation for each in (self, *self.together))
        database, batch, version, writing, new, key = self.database, self.batch, 0, None, None, None
        found, replaces = find_meant(database, transaction, self.conversation, self.generation)
        if found is not None:
            self.met, version = found.key, found.version
            writing = WriteTransaction(transaction, found, database)
            if self.idempotency_key is not None:
                key = stored_key(writing.salt, self.idempotency_key)
                self.earlier = self._earlier(writing, self.idempotency_key, key)
                if self.earlier is not None:
                    return
            if self.guard is not None:
                self.guard(writing)
        if self.dedupe is not None and batch:
            new = origins.unknown(writing, batch)
            if not new.batch:
                self.earlier = ()
                return
            batch = new.batch
        self.decided = decided = self._decided(version, batch, writing)
        now = database.now()
        if writing is None:
            beginning = Beginning(self.conversation, now, new_salt(), replaces=replaces)
            begun = begin_new(transaction, database, beginning)
            self.met, writing = begun.key, WriteTransaction(transaction, begun, database)
        self.place, recorded_at = writing.append(batch, now)
        if self.idempotency_key is not None:
            key = key or stored_key(writing.salt, self.idempotency_key)
            writing.remember(key, RecalledKey(version, len(batch)))
        if new is not None:
            new.remember(writing, version, begins=version == 0)
        self.moment = from_microseconds(recorded_at)
        with_times(decided, self.moment)
        if self.project is not None:
            self.project(writing, decided)
        for event in decided:
            if type(event) is DocumentChanges and ATTRIBUTES in event.changed:
                list_again(writing, event.changed[ATTRIBUTES].get("value"))
        if self.also is not None:
            self.also(writing)
        writing.end()
        for other in self.together:  # last: one to this conversation goes on behind these events
            other(transaction)

    def recorded(self) -> tuple[Recorded, ...]:
        """Return the recorded events: now that they are committed, they have their positions."""
        if self.generation is not None:
            self.generation.key = self.met or self.generation.key
        if self.earlier is not None:
            return self.earlier
        first = self.place()
        events = enumerate(self.decided, first)
        return tuple([Recorded(position, self.conversation, self.moment, event) for position, event in events])

    def _decided(self, version: int, batch: list[Encoded], reading: ReadTransaction | None) -> Sequence[Event]:
        """Return the events with their ids. Raises an error where one of them breaks a rule."""
        events = list(map(_event, batch))
        existing, documents = _NO_SUMMARIES, None
        kinds = set(map(type, events))
        if CondensationAction in kinds and reading is not None:
            existing = frozenset(i for i in summaries_named(events) if _brings_summary(reading, i))
        if DocumentChanges in kinds:
            last = None if reading is None else reading.documents_before(version)
            documents = {} if last is None else last.newest()
        return decide(State(self.conversation, version, existing, documents), Append(events, self.expected_version))

    def _earlier(self, reading: ReadTransaction, idempotency_key: str, key: str) -> tuple[Recorded, ...] | None:
        """Return the events that were recorded under the idempotency key before, which is stored as ``key``; None if it
        is new. Raises ``IdempotencyConflict`` if they were other events.
        """
        earlier = reading.recalled(key)
        if earlier is None:
            return None
        conversation = reading.conversation
        first_id, count, _, position = earlier
        if count < 1:
            raise CorruptEvent(conversation, 0, "the record of an idempotency key of the conversation is damaged")
        rows = reading.rows(first_id, first_id + count, count)
        recorded = list(dense_events(conversation, rows, first_id, first_id + count))
        given = numbered(map(_event, self.batch), first_id)
        stored = [stored_event_of(conversation, row) for row in rows]
        if stored != list(given) and not _are_what_was_given(stored, given):
            raise IdempotencyConflict(conversation, idempotency_key, first_id)
        if position is None:
            raise CorruptEvent(conversation, first_id, "its position cannot be found")
        return tuple(
            Recorded(position + n, conversation, from_microseconds(row.recorded_at), event)
            for n, (row, event) in enumerate(zip(rows, recorded, strict=True))
        )


def _are_what_was_given(stored: Sequence[Event], given: Sequence[Event]) -> bool:
    """Return whether stored events, some of them redacted, equal the given events, whatever their trace contexts. For a
    redacted event only its size, its kind and the other fields that stay are compared.
    """
    return len(stored) == len(given) and all(
        one == other
        if one.redacted is None
        else _may_take(one.redacted.bytes, other)
        and can_be_redacted(other)
        and without_content(other, one.redacted) == one
        for one, other in zip(map(untraced, stored), map(untraced, given), strict=True)
    )


def _may_take(size: int, event: Event) -> bool:
    """Return whether an event takes ``size`` bytes, or holds an empty difference, which stands for one that is lost."""
    changes = event.changed.values() if isinstance(event, DocumentChanges) else ()
    return any(each.get("difference") == {} for each in changes) or size == size_of(encode(event, ours=True).body)


def _brings_summary(reading: ReadTransaction, synthetic_id: int) -> bool:
    condensation = summary_of(synthetic_id)
    event = next(reading.structural_events(condensation, condensation + 1), None)
    return isinstance(event, CondensationAction) and event.summary is not None


class DocumentsUnchanged(Struct):
    """A guard: raise ``DocumentsChanged`` if since documents were read another writer changed one of them, redacted an
    event, or used the id for another conversation. It calls no code but foldlog's, so any thread may run it.
    """

    names: Iterable[str]
    state: tuple[int, int] | None
    """The key of the conversation and its number of redactions; None where there was none."""
    ids: Mapping[str, int]

    def __call__(self, reading: ReadTransaction) -> None:
        last = reading.documents_before(reading.version)
        now = {} if last is None else last.newest()
        for name in self.names:
            if (reading.key, reading.redactions) != self.state or now.get(name) != self.ids.get(name):
                raise DocumentsChanged(reading.conversation, name, reading.version)


def can_append_all(database: Database) -> bool:
    """Return whether ``append_all`` is possible: not on a server, where each writer has a connection of its own."""
    return not database.recorder.on_server


def append_all(database: Database, works: Sequence[Appending]) -> list[Outcome[tuple[Recorded, ...]]]:
    """Make several appends that ``store.prepare_append`` prepared, in their order, in as few transactions as possible.
    Return the outcome of each: what ``Store.append`` would have returned or raised. One that fails does not change the
    others.
    """
    outcomes = database.recorder.transact_all([(work, work.any_thread) for work in works])
    return [
        Outcome.of(work.recorded) if outcome.error is None else Outcome(error=outcome.error)
        for work, outcome in zip(works, outcomes, strict=True)
    ]


def begin_fork(
    database: Database,
    transaction: Transaction,
    conversation: str,
    at: int,
    new_id: str,
    generation: Generation | None = None,
) -> Conversation:
    """Begin the fork ``new_id`` of a conversation at a version, and return it.

    Raises ``ConversationNotFound``, ``ConversationErased`` (of either), ``InvalidArgument`` for a version that the
    conversation does not have or an empty ``new_id``, ``VersionConflict`` where ``new_id`` exists.
    """
    found = find_begun(database, transaction, conversation)
    if found is None:
        raise ConversationNotFound(conversation)
    if not 1 <= check_whole("at", at) <= found.version:
        raise InvalidArgument(
            f"conversation {conversation!r} has {found.version} events and cannot be forked at {at}: use 1 to "
            f"{found.version}"
        )
    rival, replaces = find_meant(database, transaction, new_id, generation)
    if rival is not None:
        raise VersionConflict(new_id, 0, rival.version)
    owner = _owner(database, transaction, found, at)
    parent = ReadTransaction(transaction, owner, database)
    fork = Fork(owner, parent.last_row(at))
    new = Beginning(
        new_id,
        database.now(),
        owner.salt if owner.sealed_key is None else b"",  # the fork gets a key below, which holds the salt
        fork=fork,
        replaces=replaces,
        parent_version=at,
        seed=first_head(owner, parent.salt),
    )
    begun = begin_new(transaction, database, new)._replace(salt=parent.salt)
    writing = WriteTransaction(transaction, begun, database)
    writing.begin()
    enter(transaction, begun, Forked(parent=owner.id, version=at), begun.created_at, is_first=True)
    if found.redactions:
        _keep_source_keys(ReadTransaction(transaction, found, database), writing, at)
    writing.end()
    return begun


def _keep_source_keys(parent: ReadTransaction, fork: WriteTransaction, at: int) -> None:
    """Have the fork know the ids that a source gave redacted events which it shares: these must not come back."""
    for name, each in parent.source_keys():
        if each.first_id < at:
            fork.remember(name, RecalledKey(each.first_id, 1))
    fork.count_redactions(parent.redactions)


def _owner(database: Database, transaction: Transaction, found: Conversation, at: int) -> Conversation:
    """Return the conversation that event ``at - 1`` is stored under: ``found``, or one of its ancestors."""
    if at > found.begins:
        return found
    (part,) = (part for part in past_of(database, transaction, found) if part.start < at <= part.stop)
    return ancestor(database, transaction, part.key, part.id, at - 1)
