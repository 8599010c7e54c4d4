"""Find a conversation by its id, and read several conversations in one read transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TypeVar

from foldlog.eventstore.errors import ConversationNotFound, CorruptEvent, StoreDamaged
from foldlog.eventstore.events import Event
from foldlog.eventstore.log.database import Database, begun, check_not_erased, start_after
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.results import ConversationRow
from foldlog.eventstore.log.row import dense_events
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import Conversation, Row

T = TypeVar("T")
Listed = TypeVar("Listed", Conversation, ConversationRow)

PAGE = 1_000
_SHORT_PAGE = 64
"""The number of events on the first page of a caller that reads backwards."""
_FIRST_LISTED = 2
"""The number of conversations on the first page of ``beginning_with``."""


def find_begun(database: Database, reader: Reader, conversation: str) -> Conversation | None:
    return begun(database.find(reader, conversation))


def find_again(database: Database, reader: Reader, former: Conversation) -> ReadTransaction:
    """Find a conversation again in a new transaction. ``former`` is the state of the conversation
    in an earlier transaction. Raises ``ConversationErased`` if the conversation was erased, even if
    a new conversation now has its id, and ``ConversationNotFound`` if the store has lost it. Raises
    ``EventsNotMade`` if an import has since added records whose events are not made yet.
    """
    present = begun(database.find(reader, former.id, as_stored=former.unmade > 0))
    if present is None:
        raise ConversationNotFound(former.id)
    if present.key != former.key:
        check_not_erased(database.find_key(reader, former.key), present)
        raise ConversationNotFound(former.id)
    return ReadTransaction(reader, present, database)


def read_existing(
    database: Database, conversation: str, work: Callable[[ReadTransaction], T], reader: Reader
) -> T:
    return work(ReadTransaction(reader, find_existing(database, reader, conversation), database))


def find_existing(
    database: Database, reader: Reader, conversation: str, *, as_stored: bool = False
) -> Conversation:
    state = begun(database.find(reader, conversation, as_stored=as_stored))
    if state is None:
        raise ConversationNotFound(conversation)
    return state


# -- an id that is used again after an erasure

Fence = Callable[[Reader], object]
"""A function that runs in the transaction of an append, before the rules are checked. If it raises
an error, the append fails with this error.
"""


def find_to_append(
    database: Database,
    reader: Reader,
    conversation: str,
    fence: Fence | None = None,
) -> tuple[Conversation | None, int | None]:
    """Return the conversation to append to, or None if the append begins a conversation. If a new
    conversation replaces an erased conversation, also return the key of the erased conversation.

    Raises ``ConversationErased`` if the conversation of the database's ``Binding`` is erased, even
    if a new conversation uses its id. Raises ``ConversationNotFound`` if the store has lost this
    conversation. Raises the errors of ``fence``.
    """
    state = database.find(reader, conversation, binds=False)
    if fence is not None:
        fence(reader)
    binding = database.binding
    if binding is None or binding.id != conversation:
        return begun(state), None
    if state is None and binding.key is not None:
        check_not_erased(reader.conversation(binding.key), state)
        raise ConversationNotFound(conversation)
    return begun_or_replaced(state, replaces_erased=binding.replaces_erased)


def begun_or_replaced(
    state: Conversation | None, *, replaces_erased: bool
) -> tuple[Conversation | None, int | None]:
    """Return the conversation ``state``, or None if a new one begins under its id. If the new
    conversation replaces an erased one, also return the key of the erased one.
    """
    if replaces_erased and state is not None and state.erasure is not None:
        return None, state.key
    return begun(state), None


def tombstones_before(reader: Reader, conversation: Conversation) -> Sequence[Conversation]:
    """Return the erased conversations that had the id of a conversation before it. The oldest
    conversation comes first.
    """
    tombstones = list[Conversation]()
    key = conversation.replaces
    while key is not None and all(key != tombstone.key for tombstone in tombstones):
        earlier = reader.conversation(key)
        if earlier is None or earlier.erasure is None:
            break
        tombstones.append(earlier)
        key = earlier.replaces
    return tombstones[::-1]


# -- all conversations


class Moment:
    """Reads any conversations of a store in one transaction. Use a ``Moment`` only while its
    transaction is open.
    """

    def __init__(self, database: Database, reader: Reader) -> None:
        self._database = database
        self.reader = reader
        self._open: dict[str, ReadTransaction] = {}

    def conversation(self, conversation: str) -> ReadTransaction:
        reading = self._open.get(conversation)
        if reading is None:
            state = find_existing(self._database, self.reader, conversation)
            reading = ReadTransaction(self.reader, state, self._database)
            self._open[conversation] = reading
        return reading

    def forks_sharing(
        self, conversation: Conversation, ids: Iterable[int]
    ) -> list[tuple[Conversation, list[int]]]:
        """Return the forks that share some of the events ``ids``, with the ids that each shares."""
        return [*forks_that_share(self._database, self.reader, conversation.key, [*ids])]

    def query(self, work: Callable[[Reader], T]) -> T:
        return work(self.reader)

    def beginning_with(self, start: str) -> Iterator[Conversation]:
        return beginning_with(
            start, lambda after, limit: self.reader.conversations(start_after(after), limit)
        )


def query_all(database: Database, work: Callable[[Moment], T]) -> T:
    return database.recorder.query(lambda reader: work(Moment(database, reader)))


def beginning_with(start: str, listed: Callable[[str, int], Sequence[Listed]]) -> Iterator[Listed]:
    """Yield the conversations whose ids begin with ``start``, except ``start`` itself. ``listed``
    returns a page of conversations after an id. The first pages are short, because often only a few
    ids begin with ``start``.
    """
    after = start
    size = _FIRST_LISTED
    while True:
        page = listed(after, size)
        for conversation in page:
            if not conversation.id.startswith(start):
                return
            yield conversation
        if len(page) < size:
            return
        after = page[-1].id
        size = min(8 * size, PAGE)


# -- forks


def forks_that_share(
    database: Database, reader: Reader, key: int, ids: Iterable[int]
) -> Iterator[tuple[Conversation, list[int]]]:
    """Yield the forks that share some of the events ``ids`` of the conversation ``key``, with the
    ids that each shares. Forks of forks are included.
    """
    for fork in reader.living_forks(key):
        if shared := [event_id for event_id in ids if event_id < fork.begins]:
            # A conversation from a list has no lineage.
            with_lineage = database.find_key(reader, fork.key)
            if with_lineage is not None:
                yield with_lineage, shared
                yield from forks_that_share(database, reader, fork.key, shared)


# -- by pages


Decode = Callable[[str, Sequence[Row], int, int], Iterable[T]]
"""Makes the items of a page from the name of the conversation, the rows, and the ids at which they
begin and end.
"""


def pages(
    database: Database,
    name: str,
    start: int,
    stop: int,
    decode: Decode[T],
    *,
    reverse: bool = False,
) -> Iterator[Iterable[T]]:
    """Yield a conversation by pages. A page has at most 1,000 events, and ends with the event that
    passes some megabytes, so that long events do not fill the memory.
    """

    def read_first_page(
        reading: ReadTransaction,
    ) -> tuple[Conversation, Iterator[tuple[int, int]], Iterable[T]]:
        # The first page is often the only page, so it is read in the transaction that finds the
        # conversation.
        ranges = page_ranges(start, min(stop, reading.version), reverse=reverse)
        first_range = next(ranges, None)
        if first_range is None:
            return reading.state, ranges, ()
        page, rest = _read_page(reading, *first_range, decode, reverse=reverse)
        return reading.state, chain(rest, ranges), page

    try:
        state, ranges, first_page = database.recorder.query(
            partial(read_existing, database, name, read_first_page)
        )
    except StoreDamaged:
        try:
            state = database.recorder.query(
                partial(read_existing, database, name, attrgetter("state"))
            )
        except StoreDamaged as error:
            raise unreadable(name, start, error) from error
        ranges = page_ranges(start, min(stop, state.version), reverse=reverse)
        first_page = ()
    return chain([first_page], pages_again(database, state, ranges, decode, reverse=reverse))


def pages_again(
    database: Database,
    state: Conversation,
    ranges: Iterable[tuple[int, int]],
    decode: Decode[T],
    *,
    reverse: bool = False,
) -> Iterator[Iterable[T]]:
    """Yield pages of a conversation that was read before: see ``find_again``. An unreadable page is
    halved again and again, down to the single unreadable event.
    """

    def read_page(
        reader: Reader, first: int, end: int
    ) -> tuple[Iterable[T], Sequence[tuple[int, int]]]:
        reading = find_again(database, reader, state)
        return _read_page(reading, first, end, decode, reverse=reverse)

    for first, end in ranges:
        try:
            page, rest = database.recorder.query(partial(read_page, first=first, end=end))
        except StoreDamaged as error:
            if end - first == 1:
                raise unreadable(state.id, first, error) from error
            halves = [(first, (first + end) // 2), ((first + end) // 2, end)]
            yield from pages_again(
                database, state, halves[::-1] if reverse else halves, decode, reverse=reverse
            )
        else:
            yield page
            del page
            yield from pages_again(database, state, rest, decode, reverse=reverse)


def _read_page(
    reading: ReadTransaction, first: int, stop: int, decode: Decode[T], *, reverse: bool
) -> tuple[Iterable[T], Sequence[tuple[int, int]]]:
    """Read the page from ``first`` to ``stop``. If it has too many bytes, read only its beginning,
    or with ``reverse`` only its end. Return the page, and the range that was not read, if any.
    """
    begin = first
    rows, end = reading.first_rows(begin, stop)
    while reverse and end < stop:
        begin = (begin + stop + 1) // 2
        rows, end = reading.first_rows(begin, stop)
    if reverse:
        unread = [(first, begin)] if first < begin else []
        return decode(reading.conversation, rows, begin, stop), unread
    unread = [(end, stop)] if end < stop else []
    return decode(reading.conversation, rows, first, end), unread


def events_back(conversation: str, rows: Sequence[Row], start: int, stop: int) -> list[Event]:
    return list(dense_events(conversation, rows, start, stop))[::-1]


def page_ranges(start: int, stop: int, *, reverse: bool = False) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the pages from ``start`` to ``stop``. With ``reverse``, the last page
    comes first, and is short, because most callers that read backwards need only the newest events.
    """
    if not reverse:
        yield from ((first, min(first + PAGE, stop)) for first in range(start, stop, PAGE))
        return
    size = _SHORT_PAGE
    while start < stop:
        yield max(start, stop - size), stop
        stop = stop - size
        size = min(4 * size, PAGE)


def unreadable(
    conversation: str, event_id: int, error: StoreDamaged, position: int | None = None
) -> CorruptEvent:
    return CorruptEvent(
        conversation, event_id, f"it cannot be read: {error.__cause__ or error}", position
    )
