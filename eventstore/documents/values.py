"""Read the values of documents from the events of a conversation: at any version, in one
transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from foldlog.eventstore.arguments import check_whole
from foldlog.eventstore.documents.differences import Difference, patched
from foldlog.eventstore.errors import CorruptEvent, InvalidArgument
from foldlog.eventstore.events import DocumentChanges
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.redacted import has_content

CHAIN_MAX: Final = 64
"""The most differences that may build on one whole value: a reader reads their events and the event
of that value.
"""


class DocumentValue(NamedTuple):
    """The value that event ``id`` gave a document: the last ``whole`` value before, and the
    ``differences`` since.
    """

    id: int
    value: Any
    whole: Any
    differences: list[Difference]
    is_redacted: bool


def newest_documents(read: ReadTransaction, version: int | None) -> Mapping[str, int]:
    """Return the documents that a conversation had at a version, each with the id of the event that
    holds its value.
    """
    stop = read.version if version is None else check_whole("version", version)
    if not 0 <= stop <= read.version:
        where = "below 0" if stop < 0 else "past its end"
        raise InvalidArgument(
            f"conversation {read.conversation!r} has {read.version} events; version {stop} is"
            f" {where} (use 0 to {read.version})"
        )
    changes = read.documents_before(stop)
    return {} if changes is None else changes.newest()


def newest_value(
    read: ReadTransaction, name: str, version: int | None = None, default: Any = None
) -> Any:
    """Return the value of a document at a version, or now; ``default`` if there is no such
    document.
    """
    ids = newest_documents(read, version)
    return read_value(read, name, ids[name]).value if name in ids else default


def newest_values(read: ReadTransaction, version: int | None = None) -> dict[str, Any]:
    """Return all documents by name at a version, or now if ``version`` is None, in the order of
    their names.
    """
    ids = newest_documents(read, version)
    return {name: read_value(read, name, ids[name]).value for name in sorted(ids)}


def read_value(read: ReadTransaction, name: str, event_id: int) -> DocumentValue:
    """Return the value that an event gave a document. Raises ``CorruptEvent`` where the events do
    not fit together.
    """
    differences: list[Difference] = []
    place = event_id
    while True:
        (event,) = read.events(place, place + 1) if 0 <= place < read.version else (None,)
        if isinstance(event, DocumentChanges):
            change = event.changed.get(name)
        else:
            change = None
        if change is None or len(differences) > CHAIN_MAX:
            raise CorruptEvent(
                read.conversation,
                event_id,
                f"the value of document {name!r} builds on event {place}",
            )
        if "value" in change:
            break
        differences.append(change["difference"])
        place = change["base"]
    differences.reverse()
    value = whole = change["value"]
    try:
        for later in differences:
            value = patched(value, later)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        problem = f"the differences of document {name!r} do not fit together"
        raise CorruptEvent(read.conversation, event_id, problem) from error
    return DocumentValue(
        event_id, value, whole, differences, event is None or not has_content(event)
    )
