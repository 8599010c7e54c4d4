"""Read the events of a conversation page by page, each page in a transaction of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from eventstore.errors import CorruptEvent, StoreUnusable
from eventstore.events import Event
from eventstore.log.database import Database
from eventstore.log.reading import ReadTransaction, find_again, read_existing
from eventstore.recorders.base import Reader
from eventstore.recorders.errors import is_damage
from eventstore.recorders.types import Conversation

T = TypeVar("T")

PAGE = 1_000
_SHORT_PAGE = 64


def pages(
    database: Database, name: str, start: int, stop: int, read: Callable[[ReadTransaction, int, int], Iterable[T]]
) -> Iterator[Iterable[T]]:
    """Yield the results of ``read`` for each page. The first, often the only one, is read with the conversation."""

    def opening(reading: ReadTransaction) -> tuple[Conversation, Iterable[T]]:
        return reading.found, page(reading, start, reading.version)

    def following(reader: Reader, first: int) -> Iterable[T]:
        return page(find_again(database, reader, found), first, found.version)

    def page(reading: ReadTransaction, first: int, version: int) -> Iterable[T]:
        end = min(first + PAGE, stop, version)
        return read(reading, first, end) if first < end else ()

    def all_pages() -> Iterator[Iterable[T]]:
        yield opened
        for first in range(start + PAGE, min(stop, found.version), PAGE):
            with _named(name, first):
                following_page = database.query(partial(following, first=first))
            yield following_page

    with _named(name, start):
        found, opened = database.query(partial(read_existing, database, name, opening))
    return all_pages()


@contextmanager
def _named(conversation: str, first: int) -> Iterator[None]:
    """Raise ``CorruptEvent`` where the database cannot read a page of the file, so that others can be read on."""
    try:
        yield
    except StoreUnusable as error:
        if not is_damage(error.__cause__):
            raise
        raise CorruptEvent(conversation, first, f"it, or an event after it, cannot be read ({error})") from error


def pages_back(database: Database, name: str, start: int, stop: int) -> Iterator[list[Event]]:
    """Yield pages of events, newest first. The first page is short, and read at once with the conversation."""

    def opening(reading: ReadTransaction) -> tuple[Conversation, list[Event]]:
        return reading.found, page(reading, min(stop, reading.version), _SHORT_PAGE)

    def following(reader: Reader, end: int, size: int) -> list[Event]:
        return page(find_again(database, reader, found), end, size)

    def page(reading: ReadTransaction, end: int, size: int) -> list[Event]:
        first = max(start, end - size)
        return list(reading.page(first, end))[::-1] if first < end else []

    def all_pages() -> Iterator[list[Event]]:
        read, size = opened, _SHORT_PAGE
        while read:
            yield read
            if read[-1].id <= start:
                return
            size = min(4 * size, PAGE)
            read = database.query(partial(following, end=read[-1].id, size=size))

    found, opened = database.query(partial(read_existing, database, name, opening))
    return all_pages()
