"""Read the values of documents from the events of a conversation: at any version, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from foldlog.eventstore.arguments import whole
from foldlog.eventstore.documents.differences import json_text, patched
from foldlog.eventstore.errors import CorruptEvent, InvalidArgument
from foldlog.eventstore.events import DocumentChanges
from foldlog.eventstore.log.reading import ReadTransaction

CHAIN_MAX: Final = 64
"""The most differences that may build on one whole value: a reader reads their events and the event of that value."""


class DocumentValue(NamedTuple):
    """A value as it is stored in event ``id``. ``whole`` is the number of bytes of the last whole value, ``depth`` the
    number of differences that build on it, ``spent`` the bytes of these differences.
    """

    id: int
    value: Any
    whole: int
    spent: int
    depth: int


class Newest(NamedTuple):
    """The newest documents of a conversation, as of the event with this head; the head is None before the first event.
    ``redactions`` is the number of its redacted events.
    """

    head: bytes | None
    ids: Mapping[str, int]
    redactions: int = 0


def newest_documents(read: ReadTransaction, version: int | None) -> Newest:
    """Return the event ids of the documents that a conversation had at a version."""
    stop = read.version if version is None else whole("version", version)
    if not 0 <= stop <= read.version:
        where = "below 0" if stop < 0 else "past its end"
        raise InvalidArgument(
            f"conversation {read.conversation!r} has {read.version} events; version {stop} is {where} "
            f"(use 0 to {read.version})"
        )
    found = read.documents_before(stop)
    if found is None:
        return Newest(None, {})
    head, changes = found
    return Newest(head, changes.newest(), read.redactions)


def newest_value(read: ReadTransaction, name: str, version: int | None = None, default: Any = None) -> Any:
    """Return the value of a document at a version, or now; ``default`` if there is no such document."""
    ids = newest_documents(read, version).ids
    return _value(read, name, ids[name]) if name in ids else default


def newest_values(read: ReadTransaction, version: int | None = None) -> dict[str, Any]:
    """Return all documents by name at a version, or now if ``version`` is None, in the order of their names."""
    ids = newest_documents(read, version).ids
    return {name: _value(read, name, ids[name]) for name in sorted(ids)}


def read_value(read: ReadTransaction, name: str, event_id: int) -> DocumentValue:
    """Return the value that an event gave a document. Raises ``CorruptEvent`` where the events do not fit together."""
    whole, changes = _stored(read, name, event_id)
    value = _patched(read, name, event_id, whole, changes)
    spent = sum(len(json_text(later["difference"])) for later in changes)
    return DocumentValue(event_id, value, len(json_text(whole)), spent, len(changes))


def _value(read: ReadTransaction, name: str, event_id: int) -> Any:
    """Return the same without the sizes, which only a writer needs: they cost as much as encoding the value."""
    return _patched(read, name, event_id, *_stored(read, name, event_id))


def _stored(read: ReadTransaction, name: str, event_id: int) -> tuple[Any, list[dict[str, Any]]]:
    """Return the whole value that the value of an event builds on, and the changes since, in order."""
    changes: list[dict[str, Any]] = []
    place = event_id
    while True:
        (event,) = read.events(place, place + 1) if 0 <= place < read.version else (None,)
        change = event.changed.get(name) if isinstance(event, DocumentChanges) else None
        if change is None or len(changes) > CHAIN_MAX:
            raise CorruptEvent(read.conversation, event_id, f"the value of document {name!r} builds on event {place}")
        if "value" in change:
            changes.reverse()
            return change["value"], changes
        changes.append(change)
        place = change["base"]


def _patched(read: ReadTransaction, name: str, event_id: int, value: Any, changes: list[dict[str, Any]]) -> Any:
    try:
        for later in changes:
            value = patched(value, later["difference"])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        problem = f"the differences of document {name!r} do not fit together"
        raise CorruptEvent(read.conversation, event_id, problem) from error
    return value
