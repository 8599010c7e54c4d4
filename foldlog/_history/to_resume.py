"""Which conversations their workers left unfinished. The number of open calls of a conversation is
cached beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from foldlog._history.lease import read_ends, record_name
from foldlog.eventstore import (
    ConversationErased,
    ConversationNotFound,
    ConversationRow,
    EventStoreError,
    Store,
)
from foldlog.eventstore.cached_values import CachedValues
from foldlog.eventstore.log.finding import PAGE
from foldlog.eventstore.log.reading import views_up_to
from foldlog.projections.units import awaited_positions

if TYPE_CHECKING:
    from foldlog.projections import View, Views

OPEN_CALLS: Final = "open_calls"
_AWAITED: Final = 2
"""The version of the code that counts the calls for whose results something waits."""


def to_resume(
    store: Store, views: Views, rows: Iterable[ConversationRow], unread: Callable[..., object]
) -> Iterator[ConversationRow]:
    """Yield the conversations among ``rows`` that their workers left unfinished: see
    ``Histories.to_resume``. If a conversation cannot be read, it is left out, and ``unread`` is
    called with the problem. A reply that was begun without a lease may be written by a living
    worker, so it counts as left only if its last chunk is old. The worker of a conversation also
    resumes its sub-agents, so they are left out.
    """
    from foldlog._reports.figures.overview import parent_of
    from foldlog.eventstore.log.streams import conversations_with_left_reply

    read_parent = cache(partial(parent_of, store))
    remaining_rows = iter(rows)
    # Every page would read the row of each stream again.
    left_replies = conversations_with_left_reply(store.database)
    with CachedValues(store, OPEN_CALLS, _AWAITED) as counts:
        while page := list(islice(remaining_rows, PAGE)):
            open_calls = counts.load(page)
            lease_ends = store.database.recorder.query(partial(read_ends, store.database))
            is_left = partial(_is_left, views, counts, open_calls, lease_ends, left_replies)
            for row in page:
                try:
                    # No answer has these Views, and a count of open calls is made once.
                    with views_up_to(None):
                        is_to_resume = is_left(row) and not any(
                            map(is_left, _above(row, read_parent))
                        )
                    if is_to_resume:
                        yield row
                except (ConversationErased, ConversationNotFound):
                    continue  # The conversation was erased after it was listed.
                except EventStoreError as error:
                    unread(conversation=row.id, problem=str(error))


_WRONG_OPEN_CALLS = (
    "the stored number of its open calls differs from its events; to_resume may be wrong"
)


def find_wrong_open_calls(store: Store, views: Views, row: ConversationRow) -> Iterator[str]:
    """Yield a problem if the cached number of open calls, by which ``to_resume`` finds left
    conversations, differs from the View. Raises the errors of reading. Cost: the View, if a number
    is cached.
    """
    cached = CachedValues(store, OPEN_CALLS, _AWAITED).load([row]).get(row.id)
    if cached is None:
        return
    view = _view_of_stored_events(store, row) if row.unmade else views.current(row.id)
    if view.version != row.version:
        return  # another process has appended since
    if cached != len(awaited_positions(view.events, view.units)):
        yield _WRONG_OPEN_CALLS


def _view_of_stored_events(store: Store, row: ConversationRow) -> View:
    """Return the View of an import without making the events of its other records."""
    from foldlog._reports.records.decoding import stored_events  # loads all formats
    from foldlog.eventstore.sources.reading import source_of
    from foldlog.projections import View

    source = source_of(store.database, row.id)
    events = [] if source is None else stored_events(store, source, 0, row.version)
    return View.from_events(events)


def _above(
    row: ConversationRow, read_parent: Callable[[ConversationRow], ConversationRow | None]
) -> list[ConversationRow]:
    """Return the conversation that began ``row``, the conversation that began this one, and so on.
    The list is empty if they began each other in a circle, which attributes that a user set may
    make.
    """
    above = dict[str, ConversationRow]()
    parent = read_parent(row)
    while parent is not None and parent.id not in above:
        above[parent.id] = parent
        parent = read_parent(parent)
    return [] if row.id in above else [*above.values()]


def _is_left(
    views: Views,
    counts: CachedValues,
    open_calls: dict[str, int],
    lease_ends: Mapping[str, datetime | None],
    left_replies: frozenset[str],
    row: ConversationRow,
) -> bool:
    """Return whether a worker left the conversation of ``row`` unfinished."""
    name = record_name(row.id, row.generation)
    if row.erased_at is not None or lease_ends.get(name):
        return False
    if row.id in left_replies:
        return True
    if name not in lease_ends and row.id not in open_calls:
        view = views.current(row.id)
        open_calls[row.id] = len(awaited_positions(view.events, view.units))
        counts.keep(row, open_calls[row.id])
    return name in lease_ends or open_calls[row.id] > 0
