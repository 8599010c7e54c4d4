"""Read the records of a history from its end, for formats whose records stand alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eventstore import Event
from foldlog.formats import Encoder
from foldlog.history import History

__all__ = ["newest_records"]


def newest_records(history: History, stop: int, format: str) -> Iterator[dict[str, Any]]:
    """Yield the records of a format before the event ``stop``, the newest first, each with its source id.

    Events of other formats are left out. Cost: the records taken.
    """
    group: list[Event] = []
    for event in history.events(0, stop, reverse=True):
        if event.origin is None or event.origin.format != format:
            continue
        group.append(event)
        if event.origin.id is not None:
            encoder = Encoder(format)
            yield next(record for each in reversed(group) for record in encoder.records(each))
            group.clear()
