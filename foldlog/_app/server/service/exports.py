"""The exports that go on where their page before ended.

A record may depend on all earlier events of its conversation, so an export cannot begin in the
middle. The server holds an export between two pages, and a client reads all pages at the cost of
one export. A page whose export is not held any more costs a new export, without the records before
the page.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain, islice
from threading import Lock
from typing import Any, Final, NamedTuple

import msgspec

from foldlog._history.history import History
from foldlog.eventstore.log.appending import Seen
from foldlog.formats.conversion import ANY_HISTORY, format_of_history

_HELD_MAX: Final = 4
"""The number of exports that are held. An export holds up to a page of events, of 8 MiB, and some
blocks of records.
"""
_HELD_S: Final = 60.0
"""The time after which an export is dropped."""


class ExportPlace(NamedTuple):
    """A place in an export: behind the first ``after`` records. ``holder`` is the name of the token
    that reads it. ``format`` is the format that the client named, if it named one.
    """

    holder: str
    conversation: str
    format: str | None
    after: int


class Export:
    """The records of an export that were not read yet. ``notes`` grow with the records."""

    def __init__(self, history: History, format: str | None, *, view: bool) -> None:
        # An event that is redacted from here on may be in memory.
        self._seen: Seen = history._seen()
        self.format = format or (
            ANY_HISTORY if view else format_of_history(history._store, history.id)
        )
        self.notes: list[str] = []
        self._records: Iterator[Any] = history.export(
            self.format, view=view, notes=self.notes.append
        )
        self.held_at = 0.0

    def is_of(self, history: History) -> bool:
        """Return whether the export may go on: it has no content that was redacted or erased since
        it began.
        """
        return self._seen.is_unredacted_in(history._seen())

    def skip(self, count: int) -> None:
        """Leave out the next records."""
        self._records = islice(self._records, count, None)

    def read_page(self, page_bytes: int) -> tuple[list[Any], bool]:
        """Return the next records, up to the record that passes ``page_bytes``, and whether further
        records follow.
        """
        records: list[Any] = []
        size = 0
        for record in self._records:
            if size > page_bytes:
                self._records = chain([record], self._records)
                return records, True
            records.append(record)
            size += len(msgspec.json.encode(record))
        return records, False


class HeldExports:
    """The exports whose next page may be asked for, by their places."""

    def __init__(self) -> None:
        self._exports = OrderedDict[ExportPlace, Export]()
        self._lock = Lock()

    def take(self, place: ExportPlace) -> Export | None:
        """Return the export that is at a place, and hold it no more. Return None if none is held.
        The caller asks the export whether it may go on.
        """
        self.drop_old()
        with self._lock:
            return self._exports.pop(place, None)

    def hold(self, place: ExportPlace, export: Export) -> None:
        """Hold an export until its next page is asked for. If another export is at the same place,
        nobody can tell which one the next request means, so none of them is held.
        """
        export.held_at = time.monotonic()
        with self._lock:
            if self._exports.pop(place, None) is not None:
                return
            self._exports[place] = export
            while len(self._exports) > _HELD_MAX:
                self._exports.popitem(last=False)

    def clear(self) -> None:
        """Drop all exports. After a redaction or an erasure, forks lack the same events."""
        with self._lock:
            self._exports.clear()

    def drop_old(self) -> None:
        """Drop the exports that nobody went on with. Each request to an operation calls this."""
        if not self._exports:
            return
        oldest = time.monotonic() - _HELD_S
        with self._lock:
            while self._exports and next(iter(self._exports.values())).held_at < oldest:
                self._exports.popitem(last=False)
