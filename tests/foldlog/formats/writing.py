"""Writes events as the records of a format, also of one that only an adapter writes."""

from collections.abc import Iterable
from typing import Any

from foldlog.eventstore import Event
from foldlog.formats import Encoder, StoredRecords
from foldlog.formats.encoding import NO_RECORDS
from foldlog.formats.registry import formats

WRITTEN = [name for name, format in formats().items() if format.lacks is not None]
"""The formats in which any history is exported."""


def written(events: Iterable[Event], format: str, stored: StoredRecords = NO_RECORDS) -> list[Any]:
    """Return the records of a whole history."""
    encoder = Encoder(format, stored=stored)
    return [*(record for event in events for record in encoder.records(event)), *encoder.end()]
