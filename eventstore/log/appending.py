"""The work of an append in its transaction: find, decide, link, insert, tell the projections; and
of a fork.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import count, repeat
from operator import attrgetter
from typing import Final, Literal

from msgspec import Struct

from foldlog.eventstore.arguments import check_whole
from foldlog.eventstore.codec import Encoded, encode
from foldlog.eventstore.codec_json import size_of
from foldlog.eventstore.conversation import (
    AnyVersion,
    Append,
    State,
    decide,
    numbered,
    summaries_named,
)
from foldlog.eventstore.errors import (
    ConversationNotFound,
    CorruptEvent,
    DocumentsChanged,
    IdempotencyConflict,
    InvalidArgument,
    VersionConflict,
)
from foldlog.eventstore.events import (
    ATTRIBUTES,
    CondensationAction,
    DocumentChanges,
    Event,
    Forked,
    summary_of,
)
from foldlog.eventstore.log import origins
from foldlog.eventstore.log.database import Database, LastConversation
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
from foldlog.eventstore.recorders.types import (
    Ancestor,
    Conversation,
    Outcome,
    Place,
    RecalledKey,
    unplaced,
)
from foldlog.eventstore.times import EPOCH

_new: Final = tuple.__new__  # what Recorded(...) calls, without the call around it
_NO_SUMMARIES: frozenset[int] = frozenset()
_decoded_event = attrgetter("decoded")


class Besides(Struct, eq=False):
    """What only some appends ask for, beside their events and the version that they expect."""

    idempotency_key: str | None = None
    guard: Callable[[ReadTransaction], object] | None = None
    dedupe: Literal["origin"] | None = None
    project: Callable[[WriteTransaction, Sequence[Event]], None] | None = None
    """Tells the inline projections about structural events."""
    together: Sequence[Appending] = ()
    also: Callable[[WriteTransaction], object] | None = None
    """Writes what belongs to the events, in their transaction."""


class Appending(Struct, eq=False):
    """The work of one append. It is called with a transaction, and again with another one if the
    first is rolled back. Once that is committed, ``recorded`` returns the events.
    """

    database: Database
    conversation: str
    batch: list[Encoded]
    expected_version: int | Literal[AnyVersion.ANY_VERSION]
    generation: Generation | None = None
    besides: Besides | None = None
    """None for an append of events that are neither structural nor changes of documents, and
    nothing else.
    """
    any_thread: bool = False
    earlier: tuple[Recorded, ...] | None = None
    """What was recorded before, or nothing: then this transaction appends nothing."""
    decided: Sequence[Event] = ()
    place: Place = unplaced
    moment: datetime = EPOCH
    met: int = 0
    """The key of the conversation that it appended to."""
    last_conversation: LastConversation | None = None
    """How the transaction leaves the conversation."""

    def __call__(self, transaction: Transaction) -> None:
        besides = self.besides
        if besides is not None and besides.together:
            transaction.lock_all(each.conversation for each in (self, *besides.together))
        writing = open_to_append(self.database, transaction, self.conversation, self.generation)
        if besides is None:
            self._append(writing, self.batch, State(self.conversation, writing.state.version))
        elif not self._append_besides(writing, besides):
            return
        writing.end()
        self.met = writing.state.key
        self.last_conversation = transaction.last_conversation
        # last: one to this conversation goes on behind these
        for other in () if besides is None else besides.together:
            other(transaction)

    def _append(self, writing: WriteTransaction, batch: Sequence[Encoded], state: State) -> None:
        """Decide, link and insert: the whole of a plain append."""
        events = list(map(_decoded_event, batch))
        self.decided = decide(state, Append(events, self.expected_version))
        self.place, recorded_at = writing.append(batch, self.database.now())
        self.moment = from_microseconds(recorded_at)
        with_times(self.decided, self.moment)

    def _append_besides(self, writing: WriteTransaction, besides: Besides) -> bool:
        """Append with all that was asked for. Return False where nothing is to be appended: that
        sets ``earlier``.
        """
        key = besides.idempotency_key
        version = writing.version
        new = None
        self.earlier = self.last_conversation = None
        self.met = writing.key
        if key is not None and writing.is_begun:
            self.earlier = self._earlier(writing, key)
            if self.earlier is not None:
                return False
        if besides.guard is not None and writing.is_begun:
            besides.guard(writing)
        batch = self.batch
        if besides.dedupe is not None and batch:
            new = origins.unknown(writing if writing.is_begun else None, batch)
            batch = new.batch
            if not batch:
                self.earlier = ()
                return False
        self._append(writing, batch, _state(writing, batch))
        if key is not None:
            writing.remember(stored_key(writing.salt, key), RecalledKey(version, len(batch)))
        if new is not None:
            new.remember(writing, version, begins=version == 0)
        if besides.project is not None:
            besides.project(writing, self.decided)
        for event in self.decided:
            if type(event) is DocumentChanges and ATTRIBUTES in event.changed:
                list_again(writing, event.changed[ATTRIBUTES].get("value"))
        if besides.also is not None:
            besides.also(writing)
        return True

    def recorded(self) -> tuple[Recorded, ...]:
        """Return the recorded events: now that they are committed, they have their positions."""
        if self.generation is not None:
            self.generation.key = self.met or self.generation.key
        if self.last_conversation is not None and self.database.recorder.on_server:
            self.database.last_conversation = self.last_conversation
        if self.earlier is not None:
            return self.earlier
        places = count(self.place())
        fields = zip(
            places, repeat(self.conversation), repeat(self.moment), self.decided, strict=False
        )
        return tuple(map(_new, repeat(Recorded), fields))

    def _earlier(
        self, reading: ReadTransaction, idempotency_key: str
    ) -> tuple[Recorded, ...] | None:
        """Return the events that were recorded under the idempotency key before; None if it is new.
        Raises ``IdempotencyConflict`` if they were other events.
        """
        earlier = reading.recall(idempotency_key)
        if earlier is None:
            return None
        conversation = reading.conversation
        first_id, count, _, position = earlier
        if count < 1:
            raise CorruptEvent(
                conversation, 0, "the record of an idempotency key of the conversation is damaged"
            )
        rows = reading.rows(first_id, first_id + count, count)
        recorded = list(dense_events(conversation, rows, first_id, first_id + count))
        given = numbered(map(_decoded_event, self.batch), first_id)
        stored = [stored_event_of(conversation, row) for row in rows]
        if stored != list(given) and not _are_what_was_given(stored, given):
            raise IdempotencyConflict(conversation, idempotency_key, first_id)
        if position is None:
            raise CorruptEvent(conversation, first_id, "its position cannot be found")
        return tuple(
            Recorded(position + n, conversation, from_microseconds(row.recorded_at), event)
            for n, (row, event) in enumerate(zip(rows, recorded, strict=True))
        )


def open_to_append(
    database: Database, transaction: Transaction, conversation: str, generation: Generation | None
) -> WriteTransaction:
    """Open the conversation to append to; one that does not exist begins with its first event.
    Raises what ``find_meant`` raises. Costs no question where the last append of this connection
    was to it.
    """
    left: LastConversation | None = transaction.last_conversation
    if (
        left is not None
        and (left.state.id, left.settings) == (conversation, database.settings)
        and (generation is None or (generation.key == left.state.key and generation.fence is None))
    ):
        return WriteTransaction(transaction, left.state, database, left.codec)
    found, replaces = find_meant(database, transaction, conversation, generation)
    if found is not None:
        return WriteTransaction(transaction, found, database)
    new = Conversation(0, conversation, 0, new_salt(), replaces=replaces)
    return WriteTransaction.of_new(transaction, database, new)


def _state(reading: WriteTransaction, batch: Sequence[Encoded]) -> State:
    """Return the state that the rules of these events need."""
    version = reading.version
    events = list(map(_decoded_event, batch))
    kinds = set(map(type, events))
    existing = _NO_SUMMARIES
    documents = None
    if CondensationAction in kinds and reading.is_begun:
        existing = frozenset(i for i in summaries_named(events) if _brings_summary(reading, i))
    if DocumentChanges in kinds:
        last = reading.documents_before(version) if reading.is_begun else None
        documents = {} if last is None else last.newest()
    return State(reading.conversation, version, existing, documents)


def _are_what_was_given(stored: Sequence[Event], given: Sequence[Event]) -> bool:
    """Return whether stored events, some of them redacted, equal the given events, whatever their
    trace contexts. For a redacted event only its size, its kind and the other fields that stay are
    compared; for documents, which may be stored as differences, not the size.
    """
    return len(stored) == len(given) and all(
        (
            one == other
            if one.redacted is None
            else can_be_redacted(other)
            and (
                isinstance(other, DocumentChanges)
                or one.redacted.bytes == size_of(encode(other, ours=True).body)
            )
            and without_content(other, one.redacted) == one
        )
        for one, other in zip(map(untraced, stored), map(untraced, given), strict=True)
    )


def _brings_summary(reading: ReadTransaction, synthetic_id: int) -> bool:
    condensation = summary_of(synthetic_id)
    event = next(reading.structural_events(condensation, condensation + 1), None)
    return isinstance(event, CondensationAction) and event.summary is not None


class DocumentsUnchanged(Struct):
    """A guard: raise ``DocumentsChanged`` if since documents were read another writer changed one
    of them, redacted an event, or used the id for another conversation. It calls no code but
    foldlog's, so any thread may run it.
    """

    names: Iterable[str]
    state: tuple[int, int] | None
    """The key of the conversation and its number of redactions; None where there was none."""
    ids: Mapping[str, int]

    def __call__(self, reading: ReadTransaction) -> None:
        last = reading.documents_before(reading.version)
        now = {} if last is None else last.newest()
        for name in self.names:
            if (reading.key, reading.redactions) != self.state or now.get(name) != self.ids.get(
                name
            ):
                raise DocumentsChanged(reading.conversation, name, reading.version)


def can_append_all(database: Database) -> bool:
    """Return whether ``append_all`` is possible: not on a server, where each writer has a
    connection of its own.
    """
    return not database.recorder.on_server


def append_all(
    database: Database, works: Sequence[Appending]
) -> list[Outcome[tuple[Recorded, ...]]]:
    """Make several appends that ``store.prepare_append`` prepared, in their order, in as few
    transactions as possible. Return the outcome of each: what ``Store.append`` would have returned
    or raised. One that fails does not change the others.
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

    Raises ``ConversationNotFound``, ``ConversationErased`` (of either), ``InvalidArgument`` for a
    version that the conversation does not have or an empty ``new_id``, ``VersionConflict`` where
    ``new_id`` exists.
    """
    found = find_begun(database, transaction, conversation)
    if found is None:
        raise ConversationNotFound(conversation)
    if not 1 <= check_whole("at", at) <= found.version:
        raise InvalidArgument(
            f"conversation {conversation!r} has {found.version} events and cannot be forked at"
            f" {at}: use 1 to {found.version}"
        )
    rival, replaces = find_meant(database, transaction, new_id, generation)
    if rival is not None:
        raise VersionConflict(new_id, 0, rival.version)
    owner = _owner(database, transaction, found, at)
    parent = ReadTransaction(transaction, owner, database)
    new = Conversation(
        0,
        new_id,
        database.now(),
        # the fork gets a key below, which holds the salt
        owner.salt if owner.sealed_key is None else b"",
        parent=owner.key,
        parent_version=at,
        parent_id=owner.id,
        lineage=(
            Ancestor(owner.key, at, owner.id, owner.sealed_key is not None, owner.parent),
            *owner.lineage,
        ),
        seed=first_head(owner, parent.salt),
        replaces=replaces,
    )
    begun = begin_new(transaction, database, new.grown(parent.last_row(at)))._replace(
        salt=parent.salt
    )
    writing = WriteTransaction(transaction, begun, database)
    writing.begin()
    enter(transaction, begun, Forked(parent=owner.id, version=at), begun.created_at, is_first=True)
    if found.redactions:
        _keep_source_keys(ReadTransaction(transaction, found, database), writing, at)
    writing.end()
    return begun


def _keep_source_keys(parent: ReadTransaction, fork: WriteTransaction, at: int) -> None:
    """Have the fork know the ids that a source gave redacted events which it shares: these must not
    come back.
    """
    for name, each in parent.source_keys():
        if each.first_id < at:
            fork.remember(name, RecalledKey(each.first_id, 1))
    fork.count_redactions(parent.redactions)


def _owner(
    database: Database, transaction: Transaction, found: Conversation, at: int
) -> Conversation:
    """Return the conversation that event ``at - 1`` is stored under: ``found``, or one of its
    ancestors.
    """
    if at > found.begins:
        return found
    (part,) = (
        part for part in past_of(database, transaction, found) if part.start < at <= part.stop
    )
    return ancestor(database, transaction, part.key, part.id, at - 1)
