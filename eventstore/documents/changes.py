"""Documents: values with names beside the events of a conversation, such as the state of an agent.

Changes of documents are stored as events of the kind ``DocumentChanges``, in the same transaction
as other events. No View shows these events. The hash chain covers documents, and documents are
stored, copied, encrypted and erased like every event. A ``DocumentChanges`` has the changed
documents, as whole values or as differences to earlier values. For each unchanged document, the
event has the id of the event with the newest value. So the last ``DocumentChanges`` before a
version leads to all documents of that version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from msgspec.structs import replace

from foldlog.eventstore.arguments import check_map, check_text
from foldlog.eventstore.codec import encode
from foldlog.eventstore.codec_json import whole_pairs
from foldlog.eventstore.conversation import ANY_VERSION, AnyVersion, State, check_version
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
from foldlog.eventstore.log.appending import Appending, DocumentsUnchanged, begin_fork
from foldlog.eventstore.log.finding import Generation, find_named
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.redacted import has_content
from foldlog.eventstore.log.results import Recorded
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import Conversation, RecalledKey
from foldlog.eventstore.store import Store, prepare_append

_CACHED_MAX: Final = 16
"""The number of conversations whose newest documents stay in memory."""


class Deleted:
    """The type of ``DELETED``."""

    def __repr__(self) -> str:
        return "DELETED"


DELETED: Final = Deleted()
"""The new value that removes a document. The document's earlier values stay in the log."""


class Documents:
    """The documents of the conversations of a store. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(
        self, conversation: str, name: str, default: Any = None, *, version: int | None = None
    ) -> Any:
        """Return the value of a document now, or when the conversation had ``version`` events;
        ``default`` if the conversation has no such document. The value is a copy, which the caller
        may change.

        Raises ``ConversationNotFound``, ``ConversationErased``, ``CorruptEvent``,
        ``InvalidArgument`` for a version that the conversation never had. Cost: reading at most 65
        events: the last whole value and the later differences.
        """
        check_text("name", name)
        return self._store.query(
            conversation, lambda read: newest_value(read, name, version, default)
        )

    def all(self, conversation: str, *, version: int | None = None) -> dict[str, Any]:
        """Return all documents by name, in the order of names. Raises the errors of ``get``. Cost:
        one call of ``get`` for each document.
        """
        return self._store.query(conversation, lambda read: newest_values(read, version))

    def append(
        self,
        conversation: str,
        events: Event | Iterable[Event],
        changed: Mapping[str, Any],
        *,
        expected_version: int | Literal[AnyVersion.ANY_VERSION] = ANY_VERSION,
        idempotency_key: str | None = None,
        generation: Generation | None = None,
        dedupe: Literal["origin"] | None = None,
        together: Sequence[Appending] = (),
        also: Callable[[WriteTransaction], object] | None = None,
    ) -> tuple[Recorded, ...]:
        """Append events and new values of documents, all or nothing. Return the recorded events.

        ``changed`` maps names to new values; ``DELETED`` removes a document. If a value differs
        from the document's newest value, the last returned event is the ``DocumentChanges`` with
        the new value; equal values add nothing. See ``Store.append`` for arguments, errors and
        durability. ``InvalidEvent`` is also raised for a value that JSON cannot hold. Cost: writing
        the events and the new values, and comparing the new values with the newest ones.
        """
        generation = generation or Generation()
        events = [events] if isinstance(events, Event) else list(events)
        values = _checked(changed)
        last = self._store.last_documents.pop(conversation, None)
        while True:
            change = None
            if last is not None and idempotency_key is None:
                change = _change_since(last, values)
            if change is None:
                change = self._change(conversation, values, generation, idempotency_key, None)
            last = None
            batch = events if change.event is None else [*events, change.event]
            if not batch:
                state = change.state
                # Nothing is appended, but the expected version and the generation are checked as
                # for an append.
                check_version(
                    State(conversation, 0 if state is None else state.version), expected_version
                )
                if state is not None:
                    generation.key = generation.key or state.key
                return ()
            try:
                recorded = self._store.append(
                    conversation,
                    batch,
                    expected_version=expected_version,
                    idempotency_key=idempotency_key,
                    generation=generation,
                    dedupe=dedupe,
                    guard=change.guard,
                    together=together,
                    also=also,
                )
            except DocumentsChanged:  # another writer changed or redacted a document
                if together:
                    raise
            else:
                if change.event is not None and recorded and idempotency_key is None:
                    left = _values_after(change, values, generation, recorded[-1].id)
                    cache = self._store.last_documents
                    cache[conversation] = left
                    if len(cache) > _CACHED_MAX:
                        cache.popitem(last=False)
                return recorded

    def prepare(
        self,
        conversation: str,
        changed: Mapping[str, Any],
        expected_version: int,
        generation: Generation,
    ) -> Appending | None:
        """Return an append of these values, to pass as ``together`` to another append; None if no
        value changes. After a conflict, call ``prepare`` again.
        """
        change = self._change(conversation, _checked(changed), generation, None, None)
        if change.event is None:
            return None
        return prepare_append(
            self._store,
            conversation,
            change.event,
            expected_version,
            guard=change.guard,
            generation=generation,
        )

    def fork(self, conversation: str, at: int, new_id: str, changed: Mapping[str, Any]) -> None:
        """Fork a conversation, and append new values of documents to the fork, as ``Store.fork``
        and ``append`` do.
        """
        change = self._change(conversation, _checked(changed), Generation(), None, at)
        append = prepare_append(self._store, new_id, change.event or (), at)
        database = self._store.database

        def fork_and_append(transaction: Transaction) -> None:
            begin_fork(database, transaction, conversation, at, new_id)
            append(transaction)

        database.recorder.transact(fork_and_append)

    def _change(
        self,
        conversation: str,
        values: Mapping[str, Any],
        generation: Generation,
        key: str | None,
        at: int | None,
    ) -> _Change:
        """Return the change that gives documents these values. The values are compared with the
        documents' values at the version ``at``, or with their newest values.
        """
        database = self._store.database

        def read(reader: Reader) -> _Change:
            state, _ = find_named(database, reader, conversation, generation)
            if state is None:
                return _Change(
                    _change_to_values({}, {}, values), DocumentsUnchanged(values, None, {})
                )
            reading = ReadTransaction(reader, state, database)
            ids = newest_documents(reading, at)
            guard = DocumentsUnchanged(values, (reading.key, reading.redactions), ids)
            if key is not None and (recalled := reading.recall(key)) is not None:
                return _Change(_repeated(reading, recalled, key, values), guard, state)
            stored = {name: read_value(reading, name, ids[name]) for name in values if name in ids}
            return _Change(_change_to_values(ids, stored, values), guard, state, stored)

        return database.recorder.query(read)


class _Change(NamedTuple):
    """A change of documents, before its append.

    ``event``  the event with the new values; None if no value changes
    ``guard``  the guard of the append: no other writer may change these documents before it
    ``state``  the conversation with which the values were compared; None if it does not exist
    ``stored`` the values with which they were compared
    """

    event: DocumentChanges | None
    guard: DocumentsUnchanged
    state: Conversation | None = None
    stored: Mapping[str, DocumentValue] = {}


class LastValues(NamedTuple):
    """The newest values of some documents of a conversation after the last append of a store. The
    next append need not read these values: its guard finds out whether another writer has changed
    one of them since.

    ``key`` and ``redactions`` are the key and the number of redactions of the conversation; ``ids``
    has the event of each document's newest value.
    """

    key: int
    redactions: int
    ids: Mapping[str, int]
    values: Mapping[str, DocumentValue]


def _change_since(last: LastValues, values: Mapping[str, Any]) -> _Change | None:
    """Return the change that gives documents these values; None if no value changes, or if the
    values in memory are not enough to compare.
    """
    if any(name in last.ids and name not in last.values for name in values):
        return None
    event = _change_to_values(last.ids, last.values, values)
    if event is None:
        return None
    guard = DocumentsUnchanged(values, (last.key, last.redactions), last.ids)
    return _Change(event, guard, stored=last.values)


def _values_after(
    change: _Change, values: Mapping[str, Any], generation: Generation, event_id: int
) -> LastValues:
    """Return the documents' newest values after an append of ``values``. ``event_id`` is the id of
    the event with the change.
    """
    assert change.event is not None
    assert generation.key is not None
    newest = dict(change.stored)
    for name, step in change.event.changed.items():
        before = newest.pop(name, None)
        whole = values[name]
        differences = []
        if before is not None and "difference" in step:
            whole = before.whole
            differences = [*before.differences, step["difference"]]
        if values[name] is not DELETED:
            newest[name] = DocumentValue(event_id, values[name], whole, differences, False)
    redactions = 0 if change.guard.state is None else change.guard.state[1]
    ids = replace(change.event, id=event_id).newest()
    return LastValues(generation.key, redactions, ids, newest)


def _checked(changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return copies of new values by name. Raises ``InvalidEvent`` for a name or a value that
    cannot be stored.
    """
    values: dict[str, Any] = {}
    for key, value in check_map("documents", changed).items():
        name = _checked_name(key)
        values[name] = value if value is DELETED else _stored_copy(name, value)
    return values


def _repeated(
    reading: ReadTransaction, recalled: RecalledKey, key: str, values: Mapping[str, Any]
) -> DocumentChanges | None:
    """Return the changes of documents that were appended under an idempotency key; None if the key
    stands for events without such changes. If a document was redacted, only its name is compared.

    Raises ``IdempotencyConflict`` if the changes have other values.
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
    if not has_content(last):
        changed = {name: _whole(values.get(name, DELETED)) for name in changed}
    return replace(last, id=NOT_RECORDED, timestamp=None, redacted=None, changed=changed)


def _whole(value: Any) -> dict[str, Any]:
    return {"deleted": True} if value is DELETED else {"value": value}


def _change_to_values(
    ids: Mapping[str, int], stored: Mapping[str, DocumentValue], values: Mapping[str, Any]
) -> DocumentChanges | None:
    """Return the event that gives documents these values; None if the documents have these values
    already. ``ids`` has the event of each document's newest value, ``stored`` the newest values.
    """
    changes = ((name, _change_of(name, stored.get(name), value)) for name, value in values.items())
    changed = {name: change for name, change in changes if change is not None}
    if not changed:
        return None
    others = {name: event_id for name, event_id in ids.items() if name not in changed}
    return DocumentChanges(changed=changed, others=others)


def _change_of(name: str, before: DocumentValue | None, value: Any) -> dict[str, Any] | None:
    """Return the change of a document: a difference, if it is small and follows few other
    differences; otherwise the whole value. None if the value does not change.
    """
    change = difference(DELETED if before is None else before.value, value)
    if change is None:
        return None
    # Attributes are small, and the list of conversations needs their whole value.
    if value is DELETED or before is None or name == ATTRIBUTES:
        return _whole(value)
    whole_size = len(json_text(before.whole))
    size = len(json_text(change))
    # Reading costs all differences since the whole value: together they stay smaller than it.
    size_before = sum(len(json_text(earlier)) for earlier in before.differences)
    is_long = len(before.differences) >= CHAIN_MAX
    if is_long or size_before + size > whole_size or 2 * size > whole_size:
        return {"value": value}
    return {"base": before.id, "difference": change}


def _checked_name(name: object) -> str:
    if type(name) is not str or not name:
        raise InvalidEvent(f"a document has the name {name!r}; a name is a text that is not empty")
    joined: str = whole_pairs(name)
    return joined


def _stored_copy(name: str, value: Any) -> Any:
    """Return the copy of a value that a reader will get. Raises ``InvalidEvent`` if the copy
    differs from the value: a tuple, for example, is read as a list.
    """
    try:
        stored = encode(DocumentChanges(changed={name: {"value": value}}), finite=True).event
    except InvalidEvent as error:
        # The message names the place of the value inside the event: name the document instead.
        problem = str(error).partition(": ")[2] or str(error)
        problem = problem.replace(f"changed.{name}.value", name, 1)
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
