"""Documents: values with names beside the events of a conversation, such as the state of an agent.

Changes of documents are stored as events of the kind ``DocumentChanges``, in the same transaction
as other events. No View shows them. So the hash chain covers documents, and they are kept, copied,
encrypted and erased like every event. A ``DocumentChanges`` holds the changed documents, as
differences to earlier values, and the ids of the events that hold the newest values of all other
documents. So the last ``DocumentChanges`` before a version leads to all documents of that version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

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


class Deleted:
    """The type of ``DELETED``."""

    def __repr__(self) -> str:
        return "DELETED"


DELETED: Final = Deleted()
"""The new value that removes a document. Its earlier values stay."""


class Documents:
    """The documents of the conversations of a store. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(
        self, conversation: str, name: str, default: Any = None, *, version: int | None = None
    ) -> Any:
        """Return the value of a document now, or when the conversation had ``version`` events;
        ``default`` where it has none. The value is the caller's own.

        Raises ``ConversationNotFound``, ``ConversationErased``, ``CorruptEvent``,
        ``InvalidArgument`` for a version that the conversation never had. Cost: the last whole
        value and the differences since, 64 events at most.
        """
        check_text("name", name)
        return self._store.query(
            conversation, lambda read: newest_value(read, name, version, default)
        )

    def all(self, conversation: str, *, version: int | None = None) -> dict[str, Any]:
        """Return all documents by name, in the order of names. Raises what ``get`` raises. Cost:
        ``get`` for each.
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
        """Append events and new values of documents, all or nothing. Return the events as recorded.

        ``changed`` maps names to new values; ``DELETED`` removes a document. If a value differs
        from the newest one, the last returned event is the ``DocumentChanges`` that holds it; equal
        values add nothing. Arguments, errors and durability are those of ``Store.append``;
        ``InvalidEvent`` is raised also for a value that JSON cannot hold. Cost: the events, the
        given values, and their differences to the newest values.
        """
        generation = generation or Generation()
        given = [events] if isinstance(events, Event) else list(events)
        values = _checked(changed)
        while True:
            change, guard, found = self._change(
                conversation, values, generation, idempotency_key, None
            )
            batch = given if change is None else [*given, change]
            if not batch:  # the rules of an append, as of the moment at which nothing changes
                check_version(
                    State(conversation, 0 if found is None else found.version), expected_version
                )
                generation.key = generation.key or (None if found is None else found.key)
                return ()
            try:
                return self._store.append(
                    conversation,
                    batch,
                    expected_version=expected_version,
                    idempotency_key=idempotency_key,
                    generation=generation,
                    dedupe=dedupe,
                    guard=guard,
                    together=together,
                    also=also,
                )
            except DocumentsChanged:  # another writer changed or redacted a document
                if together:
                    raise

    def prepare(
        self,
        conversation: str,
        changed: Mapping[str, Any],
        expected_version: int,
        generation: Generation,
    ) -> Appending | None:
        """Return the append of values for ``together``; None if nothing changes. After a conflict,
        prepare it again.
        """
        change, guard, _ = self._change(conversation, _checked(changed), generation, None, None)
        given = (conversation, change or (), expected_version, None, None, guard, generation)
        if change is not None:
            return prepare_append(self._store, *given)
        return None

    def fork(self, conversation: str, at: int, new_id: str, changed: Mapping[str, Any]) -> None:
        """Fork a conversation, and append new values of documents to the fork: see ``Store.fork``
        and ``append``.
        """
        change, _, _ = self._change(conversation, _checked(changed), Generation(), None, at)
        append = prepare_append(self._store, new_id, change or (), at)
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
    ) -> tuple[DocumentChanges | None, DocumentsUnchanged, Conversation | None]:
        """Return the event that holds these values, None where nothing changes; the guard of its
        append; and the conversation that this is true of.
        """
        database = self._store.database

        def read(
            reader: Reader,
        ) -> tuple[DocumentChanges | None, DocumentsUnchanged, Conversation | None]:
            found, _ = find_named(database, reader, conversation, generation)
            if found is None:
                return _of_values({}, {}, values), DocumentsUnchanged(values, None, {}), None
            reading = ReadTransaction(reader, found, database)
            ids = newest_documents(reading, at)
            guard = DocumentsUnchanged(values, (reading.key, reading.redactions), ids)
            if key is not None and (recalled := reading.recall(key)) is not None:
                return _repeated(reading, recalled, key, values), guard, found
            known = {name: read_value(reading, name, ids[name]) for name in values if name in ids}
            return _of_values(ids, known, values), guard, found

        return database.recorder.query(read)


def _checked(changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return new values by name, the values as copies of our own."""
    return {
        (joined := _checked_name(name)): value if value is DELETED else _own(joined, value)
        for name, value in check_map("documents", changed).items()
    }


def _repeated(
    reading: ReadTransaction, recalled: RecalledKey, key: str, values: Mapping[str, Any]
) -> DocumentChanges | None:
    """Return the changes that were appended under an idempotency key; None if it stands for events
    without changes. Of a document that was redacted only its name is compared.

    Raises ``IdempotencyConflict`` if the changes have other values.
    """
    stop = recalled.first_id + recalled.events
    ids = newest_documents(reading, stop)
    for name, value in values.items():
        known = read_value(reading, name, ids[name]) if name in ids else None
        is_known = known is None or value is DELETED or not known.is_redacted
        if is_known and difference(known.value if known else DELETED, value) is not None:
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


def _of_values(
    ids: Mapping[str, int], known: Mapping[str, DocumentValue], values: Mapping[str, Any]
) -> DocumentChanges | None:
    """Return the event that holds these values; None if all of them are the newest ones already."""
    steps = ((name, _step(name, known.get(name), value)) for name, value in values.items())
    changed = {name: change for name, change in steps if change is not None}
    if not changed:
        return None
    return DocumentChanges(
        changed=changed, others={name: i for name, i in ids.items() if name not in changed}
    )


def _step(name: str, before: DocumentValue | None, value: Any) -> dict[str, Any] | None:
    """Return the change of a document: a difference, if it is small and follows few others; else
    the value. None where nothing changes.
    """
    found = difference(DELETED if before is None else before.value, value)
    if found is None:
        return None
    # attributes are few, and lists need them whole
    if value is DELETED or before is None or name == ATTRIBUTES:
        return _whole(value)
    whole = len(json_text(before.whole))
    size = len(json_text(found))
    spent = sum(len(json_text(each)) for each in before.differences)
    if len(before.differences) >= CHAIN_MAX or spent + size > whole or 2 * size > whole:
        return {"value": value}
    return {"base": before.id, "difference": found}


def _checked_name(name: object) -> str:
    if type(name) is not str or not name:
        raise InvalidEvent(f"a document has the name {name!r}; a name is a text that is not empty")
    joined: str = whole_pairs(name)
    return joined


def _own(name: str, value: Any) -> Any:
    """Return a copy of a value as a reader gets it, with its bytes. Raises ``InvalidEvent`` where
    that is another value.
    """
    try:
        stored = encode(DocumentChanges(changed={name: {"value": value}}), finite=True).event
    except InvalidEvent as error:
        said = str(error).partition(": ")[2].replace(f"changed.{name}.value", name, 1) or str(error)
        raise InvalidEvent(
            f"document {name!r} holds a value that JSON cannot hold: {said}"
        ) from None
    assert isinstance(stored, DocumentChanges)
    copy = stored.changed[name]["value"]
    if copy != value and copy != whole_pairs(value):
        raise InvalidEvent(
            f"document {name!r} holds a value that JSON cannot hold as it is, such as a tuple;"
            " convert it to lists, texts and numbers"
        )
    return copy
