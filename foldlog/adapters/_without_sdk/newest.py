"""Read what is newest in a history: a document with the version, and records from the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from foldlog._formats.live import Encoder
from foldlog._history import History
from foldlog.eventstore import ConversationNotFound, Event, newest_value


def newest_document(history: History, name: str) -> tuple[int, Any]:
    """Return the version of a history and a document of it, of one moment; 0 and None before the first event.

    The history remembers which conversation has its id, as with ``History.version``: an append to another one raises
    ``ConversationErased``, and so does this where the conversation is erased.
    """
    try:
        key, version, value = history._store.query(
            history.id, lambda read: (read.key, read.version, newest_value(read, name))
        )
    except ConversationNotFound:
        return 0, None
    history._generation.key = history._generation.key or key
    return version, value


def newest_records(history: History, stop: int, format: str) -> Iterator[dict[str, Any]]:
    """Yield the records of a format before the event ``stop``, the newest first, each with its source id.

    Its records must stand alone. Events of other formats are left out. Cost: the records taken.
    """
    group: list[Event] = []
    encoder = Encoder(format)
    for event in history.events(0, stop, reverse=True):
        if event.origin is None or event.origin.format != format:
            continue
        group.append(event)
        if event.origin.id is not None:
            yield next(record for each in reversed(group) for record in encoder.records(each))
            group.clear()
