"""Read the events of a conversation page by page, each page in a transaction of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from eventstore.errors import CorruptEvent, StoreUnusable
from eventstore.events import Event
from eventstore.recorders.base import Reader
from eventstore.recorders.errors import RecorderError, is_damage
from eventstore.recorders.types import Conversation
from eventstore.stored.database import Database, place_unreadable
from eventstore.stored.read_transaction import ReadTransaction, find_again, read_existing

T = TypeVar("T")

PAGE = 1_000
_SHORT_PAGE = 64


def pages(
    database: Database, name: str, start: int, stop: int, read: Callable[[ReadTransaction, int, int], Iterable[T]]
) -> Iterator[Iterable[T]]:
    """Yield the results of ``read`` for each page. The first, often the only one, is read with the conversation."""

    def opening(reading: ReadTransaction, size: int = PAGE) -> tuple[Conversation, Iterable[T]]:
        return reading.found, page(reading, start, size, reading.version)

    def following(reader: Reader, first: int, size: int) -> Iterable[T]:
        return page(find_again(database, reader, found), first, size, found.version)

    def page(reading: ReadTransaction, first: int, size: int, version: int) -> Iterable[T]:
        end = min(first + size, stop, version)
        return read(reading, first, end) if first < end else ()

    def parts(first: int, size: int) -> Iterator[Iterable[T]]:
        """Yield a page, in halves where a damaged database cannot read it, down to the event that is damaged."""
        try:
            yield database.query(partial(following, first=first, size=size))
        except StoreUnusable as error:
            damage = error.__cause__
            if not isinstance(damage, RecorderError) or not is_damage(damage):
                raise
            if size == 1:
                raise CorruptEvent(found.id, first, place_unreadable(damage)) from error
            yield from parts(first, size // 2)
            yield from parts(first + size // 2, size - size // 2)

    def all_pages() -> Iterator[Iterable[T]]:
        yield from parts(start, PAGE) if opened is None else (opened,)
        for first in range(start + PAGE, min(stop, found.version), PAGE):
            yield from parts(first, PAGE)

    opened: Iterable[T] | None = None
    try:
        found, opened = database.query(partial(read_existing, database, name, opening))
    except StoreUnusable as error:
        if not is_damage(error.__cause__):
            raise
        found, _ = database.query(partial(read_existing, database, name, partial(opening, size=0)))
    return all_pages()


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
