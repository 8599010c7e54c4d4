"""Set and read documents, such as the state of an agent, beside the events of a conversation.

A change of documents is an event of the kind ``DocumentChanges``, written in one transaction with
the events that the caller appends. No View shows an event of the kind ``DocumentChanges``. The
store copies, encrypts and erases documents like events, and the hash chain covers documents. A
``DocumentChanges`` contains the changed documents, as whole values or as differences from earlier
values. For each unchanged document, a ``DocumentChanges`` contains the id of the event with its
newest value. The last ``DocumentChanges`` before a version therefore lists all documents at that
version.

See docs/internals/decisions/0034-documents.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog.eventstore.append_rules import ANY_VERSION, State, check_version
from foldlog.eventstore.arguments import check_map, check_text
from foldlog.eventstore.codec import encode
from foldlog.eventstore.codec_json import whole_pairs
from foldlog.eventstore.documents.differences import difference, json_text
from foldlog.eventstore.documents.values import (
    CHAIN_MAX,
    DocumentValue,
    newest_documents,
    newest_value,
    newest_values,
    read_value,
)
from foldlog.eventstore.errors import DocumentsChanged, IdempotencyConflict, InvalidEvent
from foldlog.eventstore.events import ATTRIBUTES, NOT_RECORDED, DocumentChanges, Event
from foldlog.eventstore.log.appending import (
    Appending,
    DocumentsUnchanged,
    ExpectedVersion,
    Seen,
    begin_fork,
    version_of,
)
from foldlog.eventstore.log.finding import Fence, find_existing, find_to_append
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.redacted import has_content
from foldlog.eventstore.log.results import Recorded
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import Conversation, RecalledKey
from foldlog.eventstore.store import Store, bind, prepare_append

Guard: TypeAlias = Callable[[ReadTransaction], object]

_CACHED_MAX: Final = 16
"""The maximal number of conversations whose newest documents stay in memory."""


class Deleted:
    """The type of ``DELETED``."""

    def __repr__(self) -> str:
        return "DELETED"


DELETED: Final = Deleted()
"""The value that deletes a document. The document's earlier values stay in the log."""


class Documents:
    """Sets and reads the documents of a store's conversations. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(
        self, conversation: str, name: str, default: Any = None, *, version: int | None = None
    ) -> Any:
        """Return the present value of a document. With ``version``, return its value after
        the first ``version`` events. If the document does not exist, return ``default``. The
        returned value is a copy, so the caller may change it.

        Raises ``ConversationNotFound``, ``ConversationErased`` or ``CorruptEvent``. Raises
        ``InvalidArgument`` if the conversation never had the version ``version``. Cost: reading at
        most 66 events.
        """
        check_text("name", name)
        return self._store.query(
            conversation, lambda read: newest_value(read, name, version, default)
        )

    def all(self, conversation: str, *, version: int | None = None) -> JsonObject:
        """Return all documents, sorted by name. Raises the errors of ``get``. Cost: one call of
        ``get`` for each document.
        """
        return self._store.query(conversation, lambda read: newest_values(read, version))

    def append(
        self,
        conversation: str,
        events: Event | Iterable[Event],
        changed: JsonMap,
        *,
        expected_version: ExpectedVersion = ANY_VERSION,
        idempotency_key: str | None = None,
        fence: Fence | None = None,
        dedupe: Literal["origin"] | None = None,
        guard: Guard | None = None,
        together: Sequence[Appending] = (),
        also: Callable[[WriteTransaction], object] | None = None,
    ) -> tuple[Recorded, ...]:
        """Append events and new values of documents, all or nothing.

        Args:
            conversation: The id of the conversation.
            events: One event, several, or none.
            changed: Maps names of documents to new values. The value ``DELETED`` removes a
                document.
            expected_version, idempotency_key, fence, dedupe, guard, together, also: As in
                ``Store.append``.

        Returns:
            The recorded events. If a value changes, the last one is a ``DocumentChanges`` with the
            new values. Without events and changed values, nothing is written, and ``guard``,
            ``together`` and ``also`` are not used.

        Raises:
            InvalidEvent: JSON cannot hold a value. Also raises the errors of ``Store.append``.

        Durability: as in ``Store.append``.

        Cost: writing the events and the new values, and comparing the new values with the newest
        values.
        """
        store = self._store
        binding = store.database.binding
        if binding is None or binding.id != conversation:
            binding, store = bind(store, conversation)
        events = [events] if isinstance(events, Event) else list(events)
        values = _check_values(changed)
        brings_change = _has_change(conversation, events, values)
        last = self._store.last_documents.pop(conversation, None)
        while True:
            change = None
            if last is not None and idempotency_key is None:
                change = _change_since(last, values)
            if change is None:
                # Without values, ``store.append`` alone compares the events of the key.
                change = self._prepare_change(
                    conversation, values, fence, idempotency_key if values else None
                )
            last = None
            batch = events if change.event is None else [*events, change.event]
            if not batch:
                state = change.state
                # Nothing is appended here. The expected version is checked as before an append.
                version = 0 if state is None else state.version
                check_version(State(conversation, version), version_of(expected_version))
                if state is not None:
                    binding.key = state.key
                return ()
            try:
                recorded = store.append(
                    conversation,
                    batch,
                    expected_version=expected_version,
                    idempotency_key=idempotency_key,
                    fence=fence,
                    dedupe=dedupe,
                    guard=change.guarded_by(guard),
                    together=together,
                    also=also,
                )
            except DocumentsChanged:  # another writer changed or redacted a document
                if together or brings_change:
                    raise
            else:
                key = binding.key
                if change.event is not None and recorded and not idempotency_key and key:
                    cache = self._store.last_documents
                    cache[conversation] = _values_after(
                        change, change.event, values, key, recorded[-1].id
                    )
                    if len(cache) > _CACHED_MAX:
                        cache.popitem(last=False)
                return recorded

    def prepare(
        self,
        conversation: str,
        changed: JsonMap,
        expected_version: ExpectedVersion,
    ) -> Appending | None:
        """Prepare an append that sets documents to the values in ``changed``. Pass the returned
        object in the argument ``together`` of another append. Return None if no value changes. If
        that append raises ``DocumentsChanged``, call ``prepare`` again.

        Raises ``InvalidEvent`` for a value that JSON cannot hold, and ``ConversationErased`` and
        ``CorruptEvent`` from the comparison with the stored values.
        """
        change = self._prepare_change(conversation, _check_values(changed))
        if change.event is None:
            return None
        return prepare_append(
            self._store,
            conversation,
            change.event,
            expected_version,
            guard=change.guard,
        )

    def fork(
        self,
        conversation: str,
        at: int,
        new_id: str,
        changed: JsonMap,
        seen: Seen | None = None,
    ) -> None:
        """Fork a conversation and append new values of documents to the fork, in one transaction.

        Args:
            conversation: The conversation to fork.
            at: The version up to which the fork shares its events.
            new_id: The id of the fork.
            changed: Maps names of documents to new values, as in ``append``.
            seen: The state of ``conversation`` from which ``changed`` was computed. The fork fails
                if an event of that state was redacted meanwhile. Its version is not compared.

        Raises:
            VersionConflict: ``new_id`` exists. If ``expected`` equals ``actual``, an event of
                ``conversation`` was redacted at the same time: call ``fork`` again. Also raises the
                errors of ``Store.fork`` and ``append``.
        """
        change = self._prepare_change(conversation, _check_values(changed), at=at)
        append = prepare_append(self._store, new_id, change.event or (), at)
        seen_states = [state for state in (seen, change.guard.seen) if state is not None]
        database = self._store.database

        def fork_and_append(transaction: Transaction) -> None:
            begin_fork(database, transaction, conversation, at, new_id)
            original = find_existing(database, transaction, conversation)
            for state in seen_states:
                state.at_any_version().check(original)
            append(transaction)

        database.recorder.transact(fork_and_append)

    def _prepare_change(
        self,
        conversation: str,
        values: JsonMap,
        fence: Fence | None = None,
        key: str | None = None,
        at: int | None = None,
    ) -> _PreparedChange:
        """Compare new values with the stored values, at the version ``at`` or at the present
        version, and return the change between them. If the idempotency key ``key`` was used before,
        return the change that was appended with it.

        Raises ``ConversationErased``, ``CorruptEvent`` and ``IdempotencyConflict``, and the error
        with which ``fence`` refuses the writer.
        """
        database = self._store.database

        def read(reader: Reader) -> _PreparedChange:
            state, _ = find_to_append(database, reader, conversation, fence)
            if state is None:
                return _PreparedChange(
                    _change_to_values({}, {}, values), DocumentsUnchanged(values, None, {})
                )
            reading = ReadTransaction(reader, state, database)
            ids = newest_documents(reading, at)
            guard = DocumentsUnchanged(values, Seen.of(reading), ids)
            if key is not None and (recalled := reading.recall(key)) is not None:
                return _PreparedChange(_find_repeat(reading, recalled, key, values), guard, state)
            stored = {name: read_value(reading, name, ids[name]) for name in values if name in ids}
            return _PreparedChange(_change_to_values(ids, stored, values), guard, state, stored)

        return database.recorder.query(read)


class _PreparedChange(NamedTuple):
    """A change of documents that is ready to be appended.

    ``event``   the event with the new values, or None if no value changes
    ``guard``   a guard that refuses the append if another writer has changed these documents
    ``state``   the conversation that was read for the comparison, or None if it does not exist
    ``stored``  the stored values before the change
    """

    event: DocumentChanges | None
    guard: DocumentsUnchanged
    state: Conversation | None = None
    stored: Mapping[str, DocumentValue] = {}

    def guarded_by(self, other: Guard | None) -> Guard:
        """Return a guard that runs both ``other`` and ``self.guard``."""
        if other is None:
            return self.guard
        own = self.guard

        def check_both(reading: ReadTransaction) -> None:
            other(reading)
            own(reading)

        return check_both


class LastValues(NamedTuple):
    """Values of documents after this store's last append to a conversation. The next append
    compares the new values with these values instead of reading the store. If another writer has
    changed a document since then, the guard of the next append refuses the append.

    ``ids`` maps each document to the event with its newest value.
    """

    seen: Seen
    ids: Mapping[str, int]
    values: Mapping[str, DocumentValue]


def _change_since(last: LastValues, values: JsonMap) -> _PreparedChange | None:
    """Return the change from the remembered values to new values. Return None if no value changes,
    or if ``last`` lacks a value for the comparison.
    """
    if any(name in last.ids and name not in last.values for name in values):
        return None
    event = _change_to_values(last.ids, last.values, values)
    if event is None:
        return None
    guard = DocumentsUnchanged(values, last.seen, last.ids)
    return _PreparedChange(event, guard, stored=last.values)


def _values_after(
    change: _PreparedChange, event: DocumentChanges, values: JsonMap, key: int, event_id: int
) -> LastValues:
    """Return the values to remember after ``event`` was appended with the id ``event_id``. ``key``
    is the key of the conversation.
    """
    newest = dict(change.stored)
    for name, step in event.changed.items():
        before = newest.pop(name, None)
        whole = values[name]
        differences = []
        if before is not None and "difference" in step:
            whole = before.whole
            differences = [*before.differences, step["difference"]]
        if values[name] is not DELETED:
            newest[name] = DocumentValue(
                event_id, values[name], whole, differences, is_redacted=False
            )
    redactions = 0 if change.guard.seen is None else change.guard.seen.redactions
    ids = replace(event, id=event_id).newest()
    return LastValues(Seen(key, event_id + 1, redactions), ids, newest)


def _check_values(changed: JsonMap) -> JsonObject:
    """Return new values of documents as they will be stored. Raises ``InvalidEvent`` if a name or a
    value cannot be stored.
    """
    values: JsonObject = {}
    for key, value in check_map("documents", changed).items():
        name = _check_name(key)
        values[name] = value if value is DELETED else _stored_copy(name, value)
    return values


def _has_change(conversation: str, events: Sequence[Event], values: JsonMap) -> bool:
    """Return whether a caller's events change documents, so that an append which finds the change
    outdated must not begin again. Raises ``InvalidEvent`` if the same append sets ``values``.
    """
    has_change = any(isinstance(event, DocumentChanges) for event in events)
    if has_change and values:
        raise InvalidEvent(
            f"this append to conversation {conversation!r} sets documents, and one of its events is"
            " a change of documents, too; append the two one after the other"
        )
    return has_change


def _find_repeat(
    reading: ReadTransaction, recalled: RecalledKey, key: str, values: JsonMap
) -> DocumentChanges | None:
    """Return the change that was appended under an idempotency key, or None if that append changed
    no document. Raises ``IdempotencyConflict`` if it set other documents or values. If a document
    was redacted, only its name can be compared.
    """
    stop = recalled.first_id + recalled.events
    ids = newest_documents(reading, stop)
    for name, value in values.items():
        stored = read_value(reading, name, ids[name]) if name in ids else None
        can_be_compared = stored is None or value is DELETED or not stored.is_redacted
        if can_be_compared and difference(stored.value if stored else DELETED, value) is not None:
            raise IdempotencyConflict(reading.conversation, key, recalled.first_id)
    (last,) = reading.events(stop - 1, stop)
    if not isinstance(last, DocumentChanges):
        return None
    changed = last.changed
    if not changed.keys() <= values.keys():
        raise IdempotencyConflict(reading.conversation, key, recalled.first_id)
    if not has_content(last):
        changed = {name: _as_change(values[name]) for name in changed}
    return replace(last, id=NOT_RECORDED, timestamp=None, redacted=None, changed=changed)


def _as_change(value: Any) -> JsonObject:
    return {"deleted": True} if value is DELETED else {"value": value}


def _change_to_values(
    ids: Mapping[str, int], stored: Mapping[str, DocumentValue], values: JsonMap
) -> DocumentChanges | None:
    """Return the event that changes the ``stored`` values to the new values, or None if no value
    changes. ``ids`` maps each document to the event with its newest value.
    """
    changes = ((name, _change_of(name, stored.get(name), value)) for name, value in values.items())
    changed = {name: change for name, change in changes if change is not None}
    if not changed:
        return None
    others = {name: event_id for name, event_id in ids.items() if name not in changed}
    return DocumentChanges(changed=changed, others=others)


def _change_of(name: str, before: DocumentValue | None, value: Any) -> JsonObject | None:
    """Return the change of one document, as a difference or as the whole value, whichever is
    smaller. Return None if the value does not change.
    """
    change = difference(DELETED if before is None else before.value, value)
    if change is None:
        return None
    # Attributes are small, and the list of conversations needs their whole value.
    if value is DELETED or before is None or name == ATTRIBUTES:
        return _as_change(value)
    whole_size = len(json_text(before.whole))
    size = len(json_text(change))
    # A reader needs all differences since the whole value, so the differences together stay smaller
    # than the whole value.
    size_before = sum(len(json_text(earlier)) for earlier in before.differences)
    is_long = len(before.differences) >= CHAIN_MAX
    if is_long or size_before + size > whole_size or 2 * size > whole_size:
        return {"value": value}
    return {"base": before.id, "difference": change}


def _check_name(name: object) -> str:
    if type(name) is not str or not name:
        raise InvalidEvent(
            f"a document has the name {name!r}; use a text of at least one character"
        )
    joined: str = whole_pairs(name)
    return joined


def _stored_copy(name: str, value: Any) -> Any:
    """Return a copy of a value as readers will get it. Raises ``InvalidEvent`` if JSON would change
    the value.
    """
    try:
        stored = encode(DocumentChanges(changed={name: {"value": value}}), finite=True).event
    except InvalidEvent as error:
        # The message names the place inside the event, but the caller knows only the name of the
        # document.
        problem = str(error).partition(": ")[2] or str(error)
        problem = problem.replace(f"changed.{name}.value", name, 1)
        problem = problem.replace("this document_changes", "it", 1)
        raise InvalidEvent(
            f"document {name!r} has a value that JSON cannot hold: {problem}"
        ) from None
    assert isinstance(stored, DocumentChanges)
    copy = stored.changed[name]["value"]
    if copy != value and copy != whole_pairs(value):
        raise InvalidEvent(
            f"document {name!r} has a value that JSON cannot hold as it is, such as a tuple;"
            " convert it to lists, texts and numbers"
        )
    return copy
