"""Read as many rows as possible from a damaged database, and name each part that cannot be read.

A database that meets a broken page fails the whole query. So a query that fails is repeated in halves, down to the
single row that cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from foldlog.eventstore.errors import EventStoreError, StoreUnusable
from foldlog.eventstore.log.database import start_after, translated
from foldlog.eventstore.log.results import ConversationRow
from foldlog.eventstore.recorders.base import Reader, Recorder
from foldlog.eventstore.recorders.errors import RecorderError, is_damage
from foldlog.eventstore.recorders.types import Conversation, Row
from foldlog.eventstore.store import Store

_PAGE = 1_000
_LIST_ENDS = "the list of conversations cannot be read to its end"


class Unreadable(NamedTuple):
    """The row with this id lies in a part of the database that cannot be read."""

    id: int
    problem: str


class Unlisted(NamedTuple):
    """A conversation that a list cannot show. Without ``id``, the list cannot be read from there on."""

    id: str | None
    problem: str


def raise_unless_damage(error: RecorderError) -> None:
    """Raise the error, unless it says that the file is damaged, and not locked, closed or out of reach."""
    if not is_damage(error):
        raise error


def readable_rows(
    recorder: Recorder, key: int, start: int, stop: int, page: int = _PAGE
) -> Iterator[Sequence[Row] | Unreadable]:
    """Yield the rows with ``start <= id < stop`` in pages; an id stands in the place of each row that cannot be read. A
    missing row is left out. Cost: the rows, one query for each gap, and about twenty for each row that cannot be read.
    """
    while start < stop:
        end = min(start + page, stop)
        is_gap = True
        for part in _part(recorder, key, start, end):
            is_gap = is_gap and not part
            yield part
        start = next_there(recorder, key, end, stop) if is_gap else end


def next_there(recorder: Recorder, key: int, start: int, stop: int) -> int:
    """Return the id of the next row after a gap; ``stop`` if no row follows, ``start`` where it cannot be read."""
    try:
        following = recorder.query(lambda reader: reader.rows(key, start, stop, 1)) if start < stop else ()
    except RecorderError as error:
        raise_unless_damage(error)
        return start
    return following[0].id if following else stop


def _part(recorder: Recorder, key: int, start: int, stop: int) -> Iterator[Sequence[Row] | Unreadable]:
    try:
        # Some rows may appear twice.
        rows = recorder.query(lambda reader: reader.rows(key, start, stop, 2 * (stop - start)))
    except RecorderError as error:
        raise_unless_damage(error)
        if stop - start == 1:
            yield Unreadable(start, str(error.__cause__ or error))
            return
        middle = (start + stop) // 2
        yield from _part(recorder, key, start, middle)
        yield from _part(recorder, key, middle, stop)
    else:
        yield rows


def readable_conversations(recorder: Recorder, after: str | None = None) -> Iterator[Conversation | Unlisted]:
    """Yield every conversation with an id after ``after``, in the order of ids, and in the place of each that cannot be
    read its name. Cost: the conversations, and some six queries for each that cannot be read.
    """
    limit = _PAGE
    while True:
        try:
            page = recorder.query(partial(_conversations, start=start_after(after), limit=limit))
        except RecorderError as error:
            raise_unless_damage(error)
            if limit == 1:
                problem = str(error.__cause__ or error)
                after = _name_after(recorder, after)
                yield Unlisted(after, f"it cannot be read: {problem}" if after else f"{_LIST_ENDS}: {problem}")
                if after is None:
                    return
            limit = max(limit // 10, 1)
            continue
        yield from page
        if len(page) < limit:
            return
        after = page[-1].id
        limit = min(10 * limit, _PAGE)


def listed(store: Store) -> Iterator[ConversationRow | Unlisted]:
    """Yield all conversations of a store, in the order of ids, and in the place of each that cannot be read its name
    and the problem. Cost: the conversations, and some six queries for each that cannot be read.
    """
    after = None
    try:
        for row in store.iter_conversations():
            yield row
            after = row.id
        return
    except StoreUnusable:
        pass  # below, one by one
    with translated():
        for found in readable_conversations(store.database.recorder, after):
            try:
                yield found if isinstance(found, Unlisted) else store.conversation(found.id)
            except EventStoreError as error:
                yield Unlisted(found.id, str(error))


def _name_after(recorder: Recorder, after: str | None) -> str | None:
    """Return the name of the next conversation from an index alone; None if that cannot be read either."""
    try:
        return recorder.query(lambda reader: reader.id_from(start_after(after)))
    except RecorderError as error:
        raise_unless_damage(error)
        return None


def _conversations(reader: Reader, start: str, limit: int) -> Sequence[Conversation]:
    return reader.conversations(start, limit)
