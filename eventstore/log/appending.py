"""The work of an append or a fork inside its transaction: find the conversation, check the rules,
link the hash chain, insert, and call the projections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from foldlog.eventstore.append_rules import (
    ANY_VERSION,
    AnyVersion,
    Append,
    State,
    decide,
    number_events,
    summaries_named,
)
from foldlog.eventstore.arguments import check_whole
from foldlog.eventstore.codec import Encoded, encode
from foldlog.eventstore.codec_json import size_of
from foldlog.eventstore.errors import (
    ConversationNotFound,
    CorruptEvent,
    DocumentsChanged,
    IdempotencyConflict,
    InvalidArgument,
    VersionConflict,
)
from foldlog.eventstore.events import (
    CondensationAction,
    DocumentChanges,
    Event,
    Forked,
    summary_of,
)
from foldlog.eventstore.log import origins
from foldlog.eventstore.log.database import Database, LastConversation
from foldlog.eventstore.log.finding import Fence, begun_or_replaced, find_begun, find_to_append
from foldlog.eventstore.log.ledger import enter
from foldlog.eventstore.log.past import find_ancestor, past_of
from foldlog.eventstore.log.reading import ReadTransaction, stored_key
from foldlog.eventstore.log.redacted import may_remain_of, without_trace
from foldlog.eventstore.log.results import Recorded
from foldlog.eventstore.log.row import (
    dense_events,
    first_head,
    from_microseconds,
    new_salt,
    stored_event_of,
    with_times,
)
from foldlog.eventstore.log.writing import WriteTransaction, begin_new, list_changes
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.types import (
    NOT_BEGUN,
    Ancestor,
    Conversation,
    Outcome,
    Place,
    RecalledKey,
    no_position,
)
from foldlog.eventstore.times import EPOCH

Version: TypeAlias = int | Literal[AnyVersion.ANY_VERSION]

# ``tuple.__new__`` makes a named tuple in less time than a call of the tuple's class.
_new: Final = tuple.__new__
_decoded_event = attrgetter("decoded")


class Seen(Struct, frozen=True):
    """What a caller read of a conversation. Pass a ``Seen`` as ``expected_version`` of an append
    that repeats or answers what was read. The append raises ``VersionConflict``, possibly with
    equal versions, if the conversation has another version, if an event was redacted after the
    read, or if the conversation was begun or erased and begun again. A check of the version is not
    enough: if an event that a fork shares is redacted, the fork's version stays the same. See
    docs/internals/decisions/0099-nothing-redacted.md.
    """

    key: int
    """The key of the conversation's row, or 0 if the caller read none of its events."""
    version: int
    redactions: int
    """The number of redactions of the conversation and of the past that it shares."""
    allows_appends: bool = False
    """Whether others may have appended events since, so that the versions are not compared."""

    @classmethod
    def of(cls, reading: ReadTransaction) -> Seen:
        """Return what a transaction sees of its conversation."""
        return cls(reading.key, reading.version, reading.redactions)

    def at(self, version: int) -> Seen:
        """Return a copy for an append at another version."""
        return Seen(self.key, version, self.redactions)

    def at_any_version(self) -> Seen:
        """Return a copy for an append that only a redaction or an erasure refuses."""
        return Seen(self.key, self.version, self.redactions, allows_appends=True)

    def is_unredacted_in(self, present: Seen | Conversation) -> bool:
        """Return whether ``present`` is the same conversation, and no event was redacted since the
        caller read it.
        """
        if self.key == 0:
            return present.redactions == 0
        return (present.key, present.redactions) == (self.key, self.redactions)

    def check(self, present: Conversation) -> None:
        """Raise ``VersionConflict`` if an event was redacted, or if this is another conversation.
        ``decide`` compares the versions.
        """
        if not self.is_unredacted_in(present):
            expected = present.version if self.allows_appends else self.version
            raise VersionConflict(present.id, expected, present.version)


def version_of(expected: ExpectedVersion) -> Version:
    """Return the version that an append expects, without the redactions."""
    if not isinstance(expected, Seen):
        return expected
    return ANY_VERSION if expected.allows_appends else expected.version


ExpectedVersion: TypeAlias = Version | Seen
NOTHING_SEEN: Final = Seen(0, 0, 0)
"""What a caller read of a conversation that does not exist."""


class Appending(Struct, eq=False):
    """The work of one append. The recorder calls an ``Appending`` with a transaction. If the
    transaction is rolled back, the recorder calls the ``Appending`` again with a new transaction.
    After the commit, ``recorded`` returns the events.
    """

    database: Database
    conversation: str
    batch: list[Encoded]
    expected_version: ExpectedVersion
    fence: Fence | None = None
    idempotency_key: str | None = None
    dedupe: Literal["origin"] | None = None
    guard: Callable[[ReadTransaction], object] | None = None
    together: Sequence[Appending] = ()
    """Appends to other conversations in the same transaction."""
    also: Callable[[WriteTransaction], object] | None = None
    """``also`` writes further data in the same transaction."""
    project: Callable[[WriteTransaction, Sequence[Event]], None] | None = None
    """``project`` calls the inline projections with the new events, if one of the events is
    structural.
    """
    is_plain: bool = True
    """Whether the append has no options, no structural event and no change of documents. Most
    appends are plain, and take less time.
    """
    any_thread: bool = False
    """Whether another thread may run the append, because it calls only foldlog's own code."""
    earlier: tuple[Recorded, ...] | None = None
    """The events that an earlier append recorded under the idempotency key. ``earlier`` is empty if
    ``dedupe`` left out all events. If ``earlier`` is not None, the transaction appends nothing.
    """
    appended: Sequence[Encoded] = ()
    """The events that this append wrote, which may be fewer than ``batch``."""
    decided: Sequence[Event] = ()
    """The events of ``appended``, with their ids and times."""
    place: Place = no_position
    """Returns the position of the first appended event after the commit."""
    moment: datetime = EPOCH
    """The time at which the events were recorded."""
    key: int = 0
    """The key of the conversation, or 0 before the transaction has begun it."""
    last_conversation: LastConversation | None = None
    """The state of the conversation after the append: see ``Reader.last_conversation``."""

    def __call__(self, transaction: Transaction) -> None:
        is_plain = self.is_plain
        if not is_plain and self.together:
            transaction.lock_all(work.conversation for work in (self, *self.together))
        writing = open_to_append(self.database, transaction, self.conversation, self.fence)
        version = writing.state.version
        batch = self.batch
        self.appended = ()
        state = State(self.conversation, version)
        new_events = None
        if not is_plain:
            new_events = self._select_new(writing)
            if self.earlier is not None:
                self._recall_together(transaction)
                return
            if new_events is not None:
                batch = new_events.batch
            state = _state(writing, batch)
        expected = self.expected_version
        if isinstance(expected, Seen):
            expected.check(writing.state)
            expected = version_of(expected)
        events = list(map(_decoded_event, batch))
        self.decided = decide(state, Append(events, expected))
        self.place, recorded_at = writing.append(batch, self.database.now())
        self.appended = batch
        self.moment = from_microseconds(recorded_at)
        with_times(self.decided, self.moment)
        if not is_plain:
            self._write_records(writing, version, new_events)
        writing.end()
        self.key = writing.state.key
        self.last_conversation = transaction.last_conversation
        if is_plain:
            return
        # The appends of ``together`` come last, because they may append to this conversation too.
        for other in self.together:
            other(transaction)
            if other.idempotency_key is not None and other.earlier:
                first_id = other.earlier[0].id
                raise IdempotencyConflict(other.conversation, other.idempotency_key, first_id)

    def _select_new(self, writing: WriteTransaction) -> origins.NewEvents | None:
        """Return the events that remain after ``dedupe``, or None if ``dedupe`` is not set. Set
        ``earlier`` if nothing remains to append. If the guard raises an error, the error passes to
        the caller.
        """
        key = self.idempotency_key
        self.earlier = self.last_conversation = None
        self.key = writing.key
        if key is not None and writing.is_begun:
            self.earlier = self._earlier(writing, key)
            if self.earlier is not None:
                return None
        if self.guard is not None and writing.is_begun:
            self.guard(writing)
        if self.dedupe is None or not self.batch:
            return None
        reading = writing if writing.is_begun else None
        new_events = origins.select_new(reading, self.batch, all_or_none=self.also is not None)
        if not new_events.batch:
            self.earlier = ()
        return new_events

    def _recall_together(self, transaction: Transaction) -> None:
        """Find the events that the appends of ``together`` recorded under their keys, when this
        append was repeated. Appends without a key do not happen.
        """
        for other in self.together:
            if other.idempotency_key is None or not self.earlier:
                continue
            other._select_new(
                open_to_append(self.database, transaction, other.conversation, other.fence)
            )
            if other.earlier is None:
                # The append under this append's own key was without the other one.
                assert self.idempotency_key is not None
                raise IdempotencyConflict(
                    self.conversation, self.idempotency_key, self.earlier[0].id
                )

    def _write_records(
        self, writing: WriteTransaction, version: int, new_events: origins.NewEvents | None
    ) -> None:
        """Write what belongs to the new events in the same transaction: the idempotency key, their
        origins, the projections, the listed attributes, and the caller's own records.
        """
        key = self.idempotency_key
        if key is not None:
            recalled = RecalledKey(version, len(self.decided))
            writing.remember(stored_key(writing.salt, key), recalled)
        if new_events is not None:
            new_events.remember(writing, version, begins=version == 0)
        if self.project is not None:
            self.project(writing, self.decided)
        list_changes(writing, self.decided)
        if self.also is not None:
            self.also(writing)

    def recorded(self) -> tuple[Recorded, ...]:
        """Return the recorded events. Call ``recorded`` only after the commit, because the commit
        gives the events their positions.
        """
        binding = self.database.binding
        if binding is not None and self.key and self.conversation == binding.id:
            binding.key = self.key
        if self.database.recorder.on_server and self.last_conversation is not None:
            self.database.last_conversation = self.last_conversation
        if self.earlier is not None:
            return self.earlier
        recorded = []
        for position, event in enumerate(self.decided, self.place()):
            recorded.append(_new(Recorded, (position, self.conversation, self.moment, event)))
        return tuple(recorded)

    def _earlier(
        self, reading: ReadTransaction, idempotency_key: str
    ) -> tuple[Recorded, ...] | None:
        """Return the events that an earlier append recorded under the key, or None. Raises
        ``IdempotencyConflict`` if these events differ from the events of this append.
        """
        earlier = reading.recall(idempotency_key)
        if earlier is None:
            return None
        conversation = reading.conversation
        first_id = earlier.first_id
        count = earlier.events
        rows = reading.rows(first_id, first_id + count)
        recorded = list(dense_events(conversation, rows, first_id, first_id + count))
        requested = number_events(map(_decoded_event, self.batch), first_id)
        stored = [stored_event_of(conversation, row) for row in rows]
        if stored != list(requested) and not _are_equal_but_for_redactions(stored, requested):
            raise IdempotencyConflict(conversation, idempotency_key, first_id)
        position = position_of(conversation, earlier)
        return tuple(
            Recorded(position + index, conversation, from_microseconds(row.recorded_at), event)
            for index, (row, event) in enumerate(zip(rows, recorded, strict=True))
        )


def position_of(conversation: str, recalled: RecalledKey) -> int:
    """Return the position of the first event of an idempotency key. Raises ``CorruptEvent`` if the
    store does not have it.
    """
    if recalled.position is None:
        raise CorruptEvent(
            conversation, recalled.first_id, "the position of the event cannot be found"
        )
    return recalled.position


def open_to_append(
    database: Database,
    transaction: Transaction,
    conversation: str,
    fence: Fence | None,
) -> WriteTransaction:
    """Return the conversation, ready for an append. If the conversation does not exist, the append
    begins it. Cost: one query. If this connection's last append was to the same conversation, no
    query is sent.
    """
    last: LastConversation | None = transaction.last_conversation
    if (
        last is not None
        and (last.state.id, last.settings) == (conversation, database.settings)
        and (database.binding is None or database.binding.key == last.state.key)
    ):
        if fence is not None:
            fence(transaction)
        return WriteTransaction(transaction, last.state, database, last.codec)
    state, replaces = find_to_append(database, transaction, conversation, fence)
    if state is None:
        state = Conversation(NOT_BEGUN, conversation, 0, new_salt(), replaces=replaces)
    return WriteTransaction(transaction, state, database)


def _state(reading: WriteTransaction, batch: Sequence[Encoded]) -> State:
    """Return the state with which ``decide`` compares the events. It has only the summaries and
    documents that the events need.
    """
    version = reading.version
    events = list(map(_decoded_event, batch))
    existing = frozenset(
        summary for summary in summaries_named(events) if _brings_summary(reading, summary)
    )
    documents = None
    if any(isinstance(event, DocumentChanges) for event in events):
        last = reading.documents_before(version) if reading.is_begun else None
        documents = {} if last is None else last.newest()
    return State(reading.conversation, version, existing, documents)


def _are_equal_but_for_redactions(stored: Sequence[Event], requested: Sequence[Event]) -> bool:
    """Return whether the stored events may be the requested events, some of which were redacted.
    For a redacted event, only the size, the kind and the remaining fields can be compared.
    """
    return len(stored) == len(requested) and all(
        map(_is_equal_but_for_redaction, map(without_trace, stored), map(without_trace, requested))
    )


def _is_equal_but_for_redaction(stored: Event, requested: Event) -> bool:
    """Return whether a stored event is the requested one, or what a redaction left of it."""
    if stored.redacted is None:
        return stored == requested
    # A document may be stored as a difference, so the size of the event proves nothing.
    if not isinstance(requested, DocumentChanges):
        size = size_of(encode(requested, ours=True).body)
        if size != stored.redacted.bytes:
            return False
    return may_remain_of(stored, requested)


def _brings_summary(reading: ReadTransaction, synthetic_id: int) -> bool:
    """Return whether the conversation has the condensation of a summary's id, with a summary."""
    condensation = summary_of(synthetic_id)
    if condensation >= reading.version:
        return False
    event = next(reading.structural_events(condensation, condensation + 1), None)
    return isinstance(event, CondensationAction) and event.summary is not None


class DocumentsUnchanged(Struct):
    """A guard that refuses an append if documents changed after the caller had read them. The guard
    raises ``DocumentsChanged`` if another writer has changed one of the documents, redacted an
    event, or used the conversation's id again. The guard calls only foldlog's code, so any thread
    may run the guard.
    """

    names: Iterable[str]
    seen: Seen | None
    """None if the conversation did not exist when the caller read the documents."""
    ids: Mapping[str, int]

    def __call__(self, reading: ReadTransaction) -> None:
        last = reading.documents_before(reading.version)
        newest = {} if last is None else last.newest()
        is_other_state = self.seen is None or not self.seen.is_unredacted_in(reading.state)
        for name in self.names:
            if is_other_state or newest.get(name) != self.ids.get(name):
                raise DocumentsChanged(reading.conversation, name, reading.version)


def append_all(
    database: Database, works: Sequence[Appending]
) -> list[Outcome[tuple[Recorded, ...]]]:
    """Run several prepared appends in their order, in as few transactions as possible. Return one
    outcome for each append: the result that ``Store.append`` would return, or the error that it
    would raise. A failed append does not change the outcomes of other appends.
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
    *,
    replaces_erased: bool = False,
) -> Conversation:
    """Begin a fork, and return its row: see ``Store.fork``."""
    original = find_begun(database, transaction, conversation)
    if original is None:
        raise ConversationNotFound(conversation)
    if not 1 <= check_whole("at", at) <= original.version:
        raise InvalidArgument(
            f"conversation {conversation!r} cannot be forked at {at}: use a version from 1 to"
            f" {original.version}"
        )
    existing, replaces = begun_or_replaced(
        database.find(transaction, new_id), replaces_erased=replaces_erased
    )
    if existing is not None:
        raise VersionConflict(new_id, 0, existing.version)
    owner = _find_owner(database, transaction, original, at)
    parent = ReadTransaction(transaction, owner, database)
    new = Conversation(
        NOT_BEGUN,
        new_id,
        database.now(),
        # If the owner is encrypted, the fork gets a data key too, and the data key contains the
        # salt.
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
    fork = begin_new(transaction, database, new.grown(parent.last_row(at)))._replace(
        salt=parent.salt
    )
    writing = WriteTransaction(transaction, fork, database)
    writing.begin()
    enter(transaction, fork, Forked(parent=owner.id, version=at), fork.created_at, is_first=True)
    if original.redactions:
        _keep_source_keys(ReadTransaction(transaction, original, database), writing, at)
    writing.end()
    return writing.state


def _keep_source_keys(parent: ReadTransaction, fork: WriteTransaction, at: int) -> None:
    """Copy the source ids of the shared events to the fork. Without source ids in the fork, an
    import into the fork could bring redacted events back. The fork's number of redactions begins
    with its parent's.
    """
    for name, recalled in parent.source_keys():
        if recalled.first_id < at:
            fork.remember(name, RecalledKey(recalled.first_id, 1))
    fork.count_redactions(parent.redactions)


def _find_owner(
    database: Database, transaction: Transaction, conversation: Conversation, at: int
) -> Conversation:
    """Return the conversation under whose key the last event before version ``at`` is stored: the
    conversation itself, or one of its ancestors.
    """
    if at > conversation.begins:
        return conversation
    (part,) = (
        part
        for part in past_of(database, transaction, conversation)
        if part.start < at <= part.stop
    )
    return find_ancestor(database, transaction, part.key, part.id, at - 1)
