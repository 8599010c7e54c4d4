"""Read the events of a conversation page by page, each page in a transaction of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from foldlog.eventstore.errors import CorruptEvent, StoreUnusable
from foldlog.eventstore.events import Event
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.reading import ReadTransaction, find_again, read_existing
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import Conversation

T = TypeVar("T")

PAGE = 1_000
_SHORT_PAGE = 64


def pages(
    database: Database,
    name: str,
    start: int,
    stop: int,
    read: Callable[[ReadTransaction, int, int], Iterable[T]],
    *,
    reverse: bool = False,
) -> Iterator[Iterable[T]]:
    """Yield the results of ``read`` for each page, with ``reverse`` for the last page first. The first page, often the
    only one, is read with the conversation, at once.
    """

    def opening(reading: ReadTransaction) -> tuple[Conversation, Iterator[tuple[int, int]], Iterable[T]]:
        ranges = _ranges(start, min(stop, reading.version), reverse=reverse)
        first = next(ranges, None)
        return reading.found, ranges, () if first is None else read(reading, *first)

    def following(reader: Reader, first: int, end: int) -> Iterable[T]:
        return read(find_again(database, reader, found), first, end)

    def all_pages() -> Iterator[Iterable[T]]:
        yield opened
        for first, end in ranges:
            with _named(name, first):
                page = database.query(partial(following, first=first, end=end))
            yield page

    with _named(name, start):
        found, ranges, opened = database.query(partial(read_existing, database, name, opening))
    return all_pages()


def events_back(reading: ReadTransaction, start: int, stop: int) -> list[Event]:
    """Return the events of a page, the newest first."""
    return list(reading.page(start, stop))[::-1]


def _ranges(start: int, stop: int, *, reverse: bool) -> Iterator[tuple[int, int]]:
    """Yield the ranges of pages. With ``reverse`` the first one is short: most callers need only the newest events."""
    size = _SHORT_PAGE if reverse else PAGE
    while start < stop:
        if reverse:
            yield max(start, stop - size), stop
            stop, size = stop - size, min(4 * size, PAGE)
        else:
            yield start, min(start + size, stop)
            start += size


@contextmanager
def _named(conversation: str, first: int) -> Iterator[None]:
    """Raise ``CorruptEvent`` where the database cannot read a page of the file, so that others can be read on."""
    try:
        yield
    except StoreUnusable as error:
        if not error.is_damage:
            raise
        raise CorruptEvent(conversation, first, f"it, or an event after it, cannot be read ({error})") from error
