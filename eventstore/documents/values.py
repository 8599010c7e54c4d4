"""Read documents at any version of a conversation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from foldlog._base.json_types import JsonObject
from foldlog.eventstore.arguments import check_whole
from foldlog.eventstore.documents.differences import Difference, apply_change
from foldlog.eventstore.errors import CorruptEvent, InvalidArgument, count
from foldlog.eventstore.events import DocumentChanges
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.redacted import has_content

CHAIN_MAX: Final = 64
"""A document is stored in full again after at most ``CHAIN_MAX`` differences. To read the document,
a reader reads the last full value and all later differences.
"""


class DocumentValue(NamedTuple):
    """The value of a document. ``id`` is the id of the event that set the value. ``whole`` is the
    last value that was stored in full, and applying ``differences`` to ``whole`` gives ``value``.
    ``is_redacted`` is true if ``whole`` was redacted.
    """

    id: int
    value: Any
    whole: Any
    differences: list[Difference]
    is_redacted: bool


def newest_documents(reading: ReadTransaction, version: int | None) -> Mapping[str, int]:
    """Map each document to the id of the event with its newest value, at ``version`` or at the
    present version. Raises ``InvalidArgument`` if the conversation never had the version.
    """
    stop = reading.version if version is None else check_whole("version", version)
    if not 0 <= stop <= reading.version:
        problem = "below 0" if stop < 0 else "past its end"
        raise InvalidArgument(
            f"conversation {reading.conversation!r} has {count(reading.version, 'event')}; version"
            f" {stop} is {problem} (use 0 to {reading.version})"
        )
    changes = reading.documents_before(stop)
    return {} if changes is None else changes.newest()


def newest_value(
    reading: ReadTransaction, name: str, version: int | None = None, default: Any = None
) -> Any:
    """Return the value of a document, or ``default`` if the document does not exist."""
    ids = newest_documents(reading, version)
    return read_value(reading, name, ids[name]).value if name in ids else default


def newest_values(reading: ReadTransaction, version: int | None = None) -> JsonObject:
    """Return the values of all documents, sorted by name."""
    ids = newest_documents(reading, version)
    return {name: read_value(reading, name, ids[name]).value for name in sorted(ids)}


def read_value(reading: ReadTransaction, name: str, event_id: int) -> DocumentValue:
    """Return the value of a document that the event ``event_id`` has set. Raises ``CorruptEvent``
    if the events on which the value builds do not fit together.
    """
    differences: list[Difference] = []
    base_id = event_id
    while True:
        base = _changes_in(reading, base_id)
        change = {} if base is None else base.changed.get(name, {})
        # A deletion, which an imported history may name as a base, has no value.
        has_value = "value" in change or "difference" in change
        if base is None or not has_value or len(differences) > CHAIN_MAX:
            raise CorruptEvent(
                reading.conversation,
                event_id,
                f"the value of document {name!r} builds on event {base_id}, which has no value of"
                " that document",
            )
        if "value" in change:
            break
        differences.append(change["difference"])
        base_id = change["base"]
    differences.reverse()
    whole = change["value"]
    value = whole
    try:
        for difference in differences:
            value = apply_change(value, difference)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        problem = f"the differences of document {name!r} do not fit together"
        raise CorruptEvent(reading.conversation, event_id, problem) from error
    return DocumentValue(event_id, value, whole, differences, not has_content(base))


def _changes_in(reading: ReadTransaction, event_id: int) -> DocumentChanges | None:
    if not 0 <= event_id < reading.version:
        return None
    (event,) = reading.events(event_id, event_id + 1)
    return event if isinstance(event, DocumentChanges) else None
