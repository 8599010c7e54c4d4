"""Documents: values with names beside the events of a conversation, such as the state of an agent.

They are written in the transaction of events, as events of their own kind, ``DocumentChanges``, which no View shows. So
the hash chain covers them, and whatever keeps, copies, encrypts or erases events does the same for them. An event holds
what changed in it, as differences to earlier values, and says where the newest value of every other document is. So one
look at the last such event before a version leads to all documents as of that version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from eventstore.conversation import ANY_VERSION, AnyVersion
from eventstore.differences import difference, patched
from eventstore.errors import (
    ConversationNotFound,
    CorruptEvent,
    DocumentsChanged,
    IdempotencyConflict,
    InvalidArgument,
    InvalidEvent,
)
from eventstore.events import NOT_RECORDED, DocumentChanges, Event
from eventstore.results import Recorded
from eventstore.store import Store
from eventstore.transaction import ReadTransaction

__all__ = ["DELETED", "Documents"]


class Deleted:
    """The type of ``DELETED``."""

    def __repr__(self) -> str:
        return "DELETED"


DELETED: Final = Deleted()
"""Given as the new value of a document: there is no such document any more. Its earlier values stay."""

_CHAIN_MAX: Final = 64
"""Differences that build on one whole value, at most: a reader reads these events and the one before them."""
_REMEMBERED: Final = 32
"""Number of conversations whose newest documents stay in memory, to take differences from."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class _Value(NamedTuple):
    """A value as it is stored in event ``id``; ``whole`` are the bytes of the last whole value, ``spent`` those of the
    differences on it, ``depth`` is their number.
    """

    id: int
    value: Any
    whole: int
    spent: int
    depth: int


class _Newest(NamedTuple):
    """The newest documents of a conversation, as of the event with this head; None before the first one."""

    head: bytes | None
    ids: Mapping[str, int]


class Documents:
    """The documents of the conversations of a store. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[bytes | None, dict[str, _Value]]] = {}

    def get(self, conversation: str, name: str, default: Any = None, *, version: int | None = None) -> Any:
        """Return the value of a document now, or when the conversation had ``version`` events; ``default`` where it
        has none. The value is the caller's own.

        Raises ``ConversationNotFound``, ``ConversationErased``, ``CorruptEvent``, ``InvalidArgument`` for a version
        that the conversation never had. Cost: the last whole value and the differences since, 64 events at most.
        """
        return self._store.query(conversation, lambda read: _value_at(read, name, version, default))

    def all(self, conversation: str, *, version: int | None = None) -> dict[str, Any]:
        """Return all documents by name, in the order of their names. Raises what ``get`` raises. Cost: that of each."""

        def values(read: ReadTransaction) -> dict[str, Any]:
            newest = _newest(read, version)
            return {name: _read(read, name, newest.ids[name]).value for name in sorted(newest.ids)}

        return self._store.query(conversation, values)

    def append(
        self,
        conversation: str,
        events: Event | Iterable[Event],
        changed: Mapping[str, Any],
        *,
        expected_version: int | Literal[AnyVersion.ANY_VERSION] = ANY_VERSION,
        idempotency_key: str | None = None,
    ) -> tuple[Recorded, ...]:
        """Append events and new values of documents, all or nothing. Return the events as recorded.

        ``changed`` are the new values by name; ``DELETED`` removes a document. Where a value is new, the last event
        that is returned is the ``DocumentChanges`` that holds it; values that stay the same add nothing. Arguments,
        errors and durability are those of ``Store.append``; ``InvalidEvent`` also for a value that JSON cannot hold.
        Cost: the events, the values given, and the differences to those before.
        """
        given = [events] if isinstance(events, Event) else list(events)
        values = {
            _checked_name(name): value if value is DELETED else _own(name, value) for name, value in changed.items()
        }
        while True:
            newest, known = self._newest(conversation, values)
            repeated = idempotency_key is not None and self._repeated(conversation, idempotency_key, values)
            change = repeated[0] if repeated else _change(newest, known, values)
            if change is None and not given:
                if expected_version is not ANY_VERSION:
                    _check_version(self._store, conversation, expected_version)
                return ()
            batch = given if change is None else [*given, change]
            try:
                recorded = self._store.append(
                    conversation, batch, expected_version=expected_version, idempotency_key=idempotency_key
                )
            except DocumentsChanged:
                continue  # another writer changed a document: take the differences from its value
            return recorded

    def _newest(self, conversation: str, names: Iterable[str]) -> tuple[_Newest, dict[str, _Value]]:
        """Return where the newest documents are, and the values of some of them."""

        def read(reading: ReadTransaction) -> tuple[_Newest, dict[str, _Value]]:
            newest = _newest(reading, None)
            head, values = self._known.get(conversation, (None, {}))
            known = values if head is not None and head == newest.head else {}
            kept = {
                name: known.get(name) or _read(reading, name, newest.ids[name]) for name in names if name in newest.ids
            }
            return newest, {**known, **kept}

        try:
            newest, values = self._store.query(conversation, read)
        except ConversationNotFound:
            return _Newest(None, {}), {}
        self._known.pop(conversation, None)
        while len(self._known) >= _REMEMBERED:
            self._known.pop(next(iter(self._known), conversation), None)
        self._known[conversation] = newest.head, values
        return newest, values

    def _repeated(self, conversation: str, key: str, values: Mapping[str, Any]) -> list[DocumentChanges | None]:
        """Return the changes that were appended under an idempotency key, if they brought these values, or None where
        there were none; an empty list where the key is new.

        Raises ``IdempotencyConflict`` where they brought others.
        """

        def read(reading: ReadTransaction) -> list[DocumentChanges | None]:
            recalled = reading.recall(key)
            if recalled is None:
                return []
            stop = recalled.first_id + recalled.events
            before, after = _newest(reading, recalled.first_id), _newest(reading, stop)
            for name, value in values.items():
                if (name in after.ids) is (value is DELETED):
                    raise IdempotencyConflict(conversation, key, recalled.first_id)
                if value is not DELETED and difference(_read(reading, name, after.ids[name]).value, value) is not None:
                    raise IdempotencyConflict(conversation, key, recalled.first_id)
            (last,) = reading.events(stop - 1, stop)
            if before.head == after.head or not isinstance(last, DocumentChanges):
                return [None]
            return [replace(last, id=NOT_RECORDED, timestamp=None)]

        try:
            return self._store.query(conversation, read)
        except ConversationNotFound:
            return []


# --- reading ---


def _newest(read: ReadTransaction, version: int | None) -> _Newest:
    """Return where the documents are that a conversation had at a version."""
    stop = read.version if version is None else version
    if not 0 <= stop <= read.version:
        raise InvalidArgument(f"conversation {read.conversation!r} has {read.version} events; it had no version {stop}")
    found = read.documents_before(stop)
    if found is None:
        return _Newest(None, {})
    head, changes = found
    return _Newest(head, changes.newest())


def _value_at(read: ReadTransaction, name: str, version: int | None, default: Any) -> Any:
    newest = _newest(read, version)
    return _read(read, name, newest.ids[name]).value if name in newest.ids else default


def _read(read: ReadTransaction, name: str, event_id: int) -> _Value:
    """Return the value that an event gave a document. Raises ``CorruptEvent`` where the events do not fit together."""
    changes: list[dict[str, Any]] = []
    place = event_id
    while True:
        (event,) = read.events(place, place + 1) if 0 <= place < read.version else (None,)
        change = event.changed.get(name) if isinstance(event, DocumentChanges) else None
        if change is None or len(changes) > _CHAIN_MAX:
            raise CorruptEvent(read.conversation, event_id, f"the value of document {name!r} builds on event {place}")
        if "value" in change:
            break
        changes.append(change)
        place = change["base"]
    value = change["value"]
    whole = len(_text(value))
    try:
        for later in reversed(changes):
            value = patched(value, later["difference"])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        problem = f"the value of document {name!r} cannot be made of its differences"
        raise CorruptEvent(read.conversation, event_id, problem) from error
    return _Value(event_id, value, whole, sum(len(_text(later["difference"])) for later in changes), len(changes))


# --- writing ---


def _change(newest: _Newest, known: Mapping[str, _Value], values: Mapping[str, Any]) -> DocumentChanges | None:
    """Return the event that brings these values; None where all of them are the newest ones."""
    changed: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        before = known.get(name) if name in newest.ids else None
        if value is DELETED:
            if before is not None:
                changed[name] = {"deleted": True}
        elif before is None:
            changed[name] = {"value": value}
        elif (change := _step(before, value)) is not None:
            changed[name] = change
    if not changed:
        return None
    return DocumentChanges(changed=changed, others={name: i for name, i in newest.ids.items() if name not in changed})


def _step(before: _Value, value: Any) -> dict[str, Any] | None:
    """Return the change of one document: a difference where that is small and few came before it, or the value."""
    try:
        found = difference(before.value, value)
    except (UnicodeEncodeError, OverflowError, RecursionError):
        return {"value": value}  # JSON that msgspec cannot encode
    if found is None:
        return None
    size = len(_text(found))
    if before.depth >= _CHAIN_MAX or before.spent + size > before.whole or 2 * size > before.whole:
        return {"value": value}
    return {"base": before.id, "difference": found}


def _checked_name(name: object) -> str:
    if type(name) is not str or not name:
        raise InvalidEvent(f"a document is named by a text that is not empty, not by {name!r}")
    return name


def _own(name: str, value: Any) -> Any:
    """Return a copy of a value as JSON has it. Raises ``InvalidEvent`` where the copy would be another value."""
    try:
        copy = _decode(_encode(value))
        if copy == value:
            return copy
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError, RecursionError):
        pass  # Python's own encoder knows lone surrogates and long numbers
    try:
        copy = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidEvent(f"document {name!r} holds a value that JSON cannot hold: {error}") from error
    if copy != value:
        raise InvalidEvent(
            f"document {name!r} holds a value that JSON cannot hold as it is, such as a tuple, a set or a number as "
            f"a key; convert it to lists, texts and numbers"
        )
    return copy


def _text(value: Any) -> bytes:
    try:
        return _encode(value)
    except (UnicodeEncodeError, OverflowError, RecursionError):
        return json.dumps(value).encode()


def _check_version(store: Store, conversation: str, expected: int) -> None:
    from eventstore.errors import VersionConflict

    actual = store.version(conversation)
    if actual != expected:
        raise VersionConflict(conversation, expected, actual)
