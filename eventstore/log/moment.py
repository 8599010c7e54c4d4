"""All conversations of a store as one transaction finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from foldlog.eventstore.log.database import Database, start_after
from foldlog.eventstore.log.reading import ReadTransaction, find_existing
from foldlog.eventstore.log.results import ConversationRow
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import Conversation

T = TypeVar("T")

_FIRST_PAGE, _PAGE = 2, 1_000


class Moment:
    """All conversations of a store as one transaction finds them. Use it while the transaction is open."""

    def __init__(self, database: Database, reader: Reader) -> None:
        self._database, self._reader = database, reader
        self._open: dict[str, ReadTransaction] = {}

    def conversation(self, conversation: str) -> ReadTransaction:
        """Return one conversation, the same object each time.

        Raises ``ConversationNotFound``, ``ConversationErased``, ``CorruptEvent``. Cost: one question, the first time.
        """
        found = self._open.get(conversation)
        if found is None:
            existing = find_existing(self._database, self._reader, conversation)
            found = self._open[conversation] = ReadTransaction(self._reader, existing, self._database)
        return found

    def beginning_with(self, start: str) -> Iterator[Conversation]:
        """Yield the conversations whose ids are longer than ``start`` and begin with it, erased ones too, in the order
        of their UTF-8 bytes. One that is damaged has no head.

        Cost: these. If there is none, one entry of an index.
        """
        first = self._reader.id_from(start_after(start))
        if first is not None and first.startswith(start):
            yield from beginning_with(start, partial(self._database.listed, self._reader))


def query_all(database: Database, work: Callable[[Moment], T]) -> T:
    """Run ``work`` on the newest state of all conversations and return what it returned.

    All that it reads is of one moment. ``work`` may be run again, as in ``Store.query``. Raises ``StoreUnavailable``.
    """
    return database.query(lambda reader: work(Moment(database, reader)))


Listed = TypeVar("Listed", Conversation, ConversationRow)


def beginning_with(start: str, listed: Callable[[str, int], Sequence[Listed]]) -> Iterator[Listed]:
    """Yield the conversations whose ids are longer than ``start`` and begin with it. ``listed(after, limit)`` returns a
    page of conversations; the pages grow, because the next one may hold others only.
    """
    after, size = start, _FIRST_PAGE
    while True:
        page = listed(after, size)
        for each in page:
            if not each.id.startswith(start):
                return
            yield each
        if len(page) < size:
            return
        after, size = page[-1].id, min(8 * size, _PAGE)
