"""List the conversations of a damaged store, and name each that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from foldlog.eventstore.errors import EventStoreError, StoreUnusable
from foldlog.eventstore.log.database import start_after, translated
from foldlog.eventstore.log.results import ConversationRow
from foldlog.eventstore.maintenance.check import raise_unless_damage
from foldlog.eventstore.recorders.base import Recorder
from foldlog.eventstore.recorders.errors import RecorderError
from foldlog.eventstore.recorders.types import Conversation
from foldlog.eventstore.store import Store

_PAGE = 1_000
_LIST_ENDS = "the list of conversations cannot be read to its end"


class Unlisted(NamedTuple):
    """A conversation that a list cannot show. Without ``id``, the list cannot be read from there on."""

    id: str | None
    problem: str


def readable_conversations(recorder: Recorder, after: str | None = None) -> Iterator[Conversation | Unlisted]:
    """Yield every conversation with an id after ``after``, in the order of ids, and in the place of each that cannot be
    read its name. Cost: the conversations, and some six queries for each that cannot be read.
    """
    limit = _PAGE
    while True:
        start = start_after(after)
        try:
            page = recorder.query(lambda reader, start=start, limit=limit: reader.conversations(start, limit))  # type: ignore[misc]
        except RecorderError as error:
            raise_unless_damage(error)
            if limit == 1:
                problem = str(error.__cause__ or error)
                after = _name_from(recorder, start)
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


def _name_from(recorder: Recorder, start: str) -> str | None:
    """Return the name of the next conversation from an index alone; None if that cannot be read either."""
    try:
        return recorder.query(lambda reader: reader.id_from(start))
    except RecorderError as error:
        raise_unless_damage(error)
        return None
