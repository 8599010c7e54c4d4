"""Find the conversation that is meant, and read it: at one moment, page by page, or all
conversations together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TypeVar

from foldlog.eventstore.errors import ConversationNotFound, CorruptEvent, StoreDamaged
from foldlog.eventstore.events import Event
from foldlog.eventstore.log.database import Database, paged, start_after
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.results import ConversationRow
from foldlog.eventstore.log.row import begun, not_erased
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import Conversation

T = TypeVar("T")
Listed = TypeVar("Listed", Conversation, ConversationRow)

PAGE = 1_000
_SHORT_PAGE = 64
_FIRST_LISTED = 2


def find_begun(database: Database, reader: Reader, conversation: str) -> Conversation | None:
    """Return a conversation, or None. Raises ``ConversationErased``, and ``CorruptEvent`` where its
    events are lost.
    """
    return begun(database.find(reader, conversation))


def find_again(database: Database, reader: Reader, found: Conversation) -> ReadTransaction:
    """Return a conversation that an earlier transaction found, as it is now. Raises
    ``ConversationErased``, also where another conversation has its id now; ``EventsNotMade`` unless
    it was found so.
    """
    now = begun(database.find(reader, found.id, pending=found.pending > 0))
    if now is None:
        raise ConversationNotFound(found.id)
    if now.key != found.key:
        not_erased(database.find_key(reader, found.key), now)
        raise ConversationNotFound(found.id)
    return ReadTransaction(reader, now, database)


def read_existing(
    database: Database, conversation: str, work: Callable[[ReadTransaction], T], reader: Reader
) -> T:
    """Run ``work`` on a conversation. Raises what ``find_existing`` raises."""
    return work(ReadTransaction(reader, find_existing(database, reader, conversation), database))


def find_existing(
    database: Database, reader: Reader, conversation: str, *, pending: bool = False
) -> Conversation:
    """Return a conversation, as ``find_begun`` does; if it may be ``pending``, no events are made
    of its records. Raises ``ConversationNotFound`` where there is none.
    """
    found = begun(database.find(reader, conversation, pending=pending))
    if found is None:
        raise ConversationNotFound(conversation)
    return found


# -- the id of an erased conversation, used again
# ----------------------------------------------------------------------


@dataclass
class Generation:
    """One conversation of an id: the first one that a writer finds. ``key`` is its key, once it is
    found.

    ``replaces_erased``: if the conversation that it finds is erased, it begins another one with the
    same id. ``fence`` is called in the transaction of each append, before the append decides: what
    it raises refuses the append.
    """

    key: int | None = None
    replaces_erased: bool = False
    fence: Callable[[Reader], object] | None = None


def find_meant(
    database: Database, reader: Reader, conversation: str, generation: Generation | None
) -> tuple[Conversation | None, int | None]:
    """Return the conversation to append to, or None for one that is to begin, and the key of the
    erased one that it then replaces.

    Raises ``ConversationErased`` where that conversation is erased, whatever has its id now;
    ``ConversationNotFound`` where it was found before and is no longer in the store;
    ``CorruptEvent``.
    """
    found = database.find(reader, conversation)
    if generation is not None and generation.fence is not None:
        generation.fence(reader)
    if (
        generation is not None
        and generation.key is not None
        and (found is None or found.key != generation.key)
    ):
        not_erased(reader.conversation(generation.key), found)
        raise ConversationNotFound(conversation)
    if (
        generation is not None
        and generation.replaces_erased
        and found is not None
        and found.erasure is not None
    ):
        return None, found.key
    return begun(found), None


def tombstones_before(reader: Reader, found: Conversation) -> Sequence[Conversation]:
    """Return the erased conversations that had this id before, the first one first. Cost: these
    conversations.
    """
    tombstones = list[Conversation]()
    key = found.replaces
    while key is not None and all(key != one.key for one in tombstones):
        earlier = reader.conversation(key)
        if earlier is None or earlier.erasure is None:
            break
        tombstones.append(earlier)
        key = earlier.replaces
    return tombstones[::-1]


# -- all conversations
# -------------------------------------------------------------------------------------------------


class Moment:
    """All conversations of a store as one transaction finds them. Use it while the transaction is
    open.
    """

    def __init__(self, database: Database, reader: Reader) -> None:
        self._database = database
        self._reader = reader
        self._open: dict[str, ReadTransaction] = {}

    def conversation(self, conversation: str) -> ReadTransaction:
        """Return one conversation, the same object each time.

        Raises ``ConversationNotFound``, ``ConversationErased``, ``CorruptEvent``. Cost: one
        question, the first time.
        """
        found = self._open.get(conversation)
        if found is None:
            found = read_existing(
                self._database, conversation, lambda reading: reading, self._reader
            )
            self._open[conversation] = found
        return found

    def query(self, work: Callable[[Reader], T]) -> T:
        """Run ``work`` in the transaction, as ``Recorder.query`` runs it in one of its own."""
        return work(self._reader)

    def beginning_with(self, start: str) -> Iterator[Conversation]:
        """Yield the conversations whose ids are longer than ``start`` and begin with it, erased
        ones too, in the order of their UTF-8 bytes. Cost: these.
        """
        return beginning_with(
            start, lambda after, limit: self._reader.conversations(start_after(after), limit)
        )


def query_all(database: Database, work: Callable[[Moment], T]) -> T:
    """Run ``work`` on the newest state of all conversations and return what it returned.

    All that it reads is of one moment. ``work`` may be run again, as in ``Store.query``. Raises
    ``StoreUnavailable``.
    """
    return database.recorder.query(lambda reader: work(Moment(database, reader)))


def beginning_with(start: str, listed: Callable[[str, int], Sequence[Listed]]) -> Iterator[Listed]:
    """Yield the conversations whose ids are longer than ``start`` and begin with it.
    ``listed(after, limit)`` returns a page of conversations; the pages grow, because the next one
    may hold others only.
    """
    after = start
    size = _FIRST_LISTED
    while True:
        page = listed(after, size)
        for each in page:
            if not each.id.startswith(start):
                return
            yield each
        if len(page) < size:
            return
        after = page[-1].id
        size = min(8 * size, PAGE)


# -- forks
# --------------------------------------------------------------------------------------------------


def living_forks(reader: Reader, key: int) -> list[Conversation]:
    """Return the forks of the conversation with this key, without erased ones."""

    def page(after: str | None) -> Sequence[Conversation]:
        return reader.conversations(start_after(after), PAGE, forks_of=key)

    return [fork for fork in paged(page, attrgetter("id"), PAGE) if fork.erasure is None]


def forks_that_share(
    database: Database, reader: Reader, key: int, ids: Iterable[int]
) -> Iterator[tuple[Conversation, list[int]]]:
    """Yield the forks that share some of these events of the conversation with this key, with them,
    and their forks.
    """
    for fork in living_forks(reader, key):
        if shared := [each for each in ids if each < fork.begins]:
            whole_fork = database.find_key(reader, fork.key)  # a list leaves out its ancestors
            if whole_fork is not None:
                yield whole_fork, shared
                yield from forks_that_share(database, reader, fork.key, shared)


# -- page by page
# --------------------------------------------------------------------------------------------------


def pages(
    database: Database,
    name: str,
    start: int,
    stop: int,
    read: Callable[[ReadTransaction, int, int], Iterable[T]],
    *,
    reverse: bool = False,
) -> Iterator[Iterable[T]]:
    """Yield the results of ``read`` for each page, with ``reverse`` for the last page first. The
    first page, often the only one, is read with the conversation, at once.
    """

    def opening(
        reading: ReadTransaction,
    ) -> tuple[Conversation, Iterator[tuple[int, int]], Iterable[T]]:
        ranges = page_ranges(start, min(stop, reading.version), reverse=reverse)
        first = next(ranges, None)
        return reading.state, ranges, () if first is None else read(reading, *first)

    try:
        found, ranges, opened = database.recorder.query(
            partial(read_existing, database, name, opening)
        )
    except StoreDamaged:
        try:
            found = database.recorder.query(
                partial(read_existing, database, name, attrgetter("state"))
            )
        except StoreDamaged as error:
            raise unreadable(name, start, error) from error
        ranges = page_ranges(start, min(stop, found.version), reverse=reverse)
        opened = ()
    return chain([opened], pages_again(database, found, ranges, read, reverse=reverse))


def pages_again(
    database: Database,
    found: Conversation,
    ranges: Iterable[tuple[int, int]],
    read: Callable[[ReadTransaction, int, int], Iterable[T]],
    *,
    reverse: bool = False,
) -> Iterator[Iterable[T]]:
    """Yield the results of ``read`` for each page of a conversation that was found; where the
    database cannot read one, for shorter ones. Raises ``CorruptEvent`` at the event that it cannot
    read, and what ``find_again`` raises.
    """

    def following(reader: Reader, first: int, end: int) -> Iterable[T]:
        return read(find_again(database, reader, found), first, end)

    for first, end in ranges:
        try:
            page = database.recorder.query(partial(following, first=first, end=end))
        except StoreDamaged as error:
            if end - first == 1:
                raise unreadable(found.id, first, error) from error
            halves = [(first, (first + end) // 2), ((first + end) // 2, end)]
            yield from pages_again(
                database, found, halves[::-1] if reverse else halves, read, reverse=reverse
            )
        else:
            yield page


def events_back(reading: ReadTransaction, start: int, stop: int) -> list[Event]:
    """Return the events of a page, the newest first."""
    return list(reading.page(start, stop))[::-1]


def page_ranges(start: int, stop: int, *, reverse: bool = False) -> Iterator[tuple[int, int]]:
    """Yield the ranges of pages. With ``reverse`` the first one is short: most callers need only
    the newest events.
    """
    if not reverse:
        yield from ((first, min(first + PAGE, stop)) for first in range(start, stop, PAGE))
    size = _SHORT_PAGE
    while reverse and start < stop:
        yield max(start, stop - size), stop
        stop = stop - size
        size = min(4 * size, PAGE)


def unreadable(
    conversation: str, event_id: int, error: StoreDamaged, position: int | None = None
) -> CorruptEvent:
    return CorruptEvent(
        conversation, event_id, f"it cannot be read: {error.__cause__ or error}", position
    )
