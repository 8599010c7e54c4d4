"""This module finds the last activity and the program of conversations in their figures. Only the
program of a conversation without figures is read from its events.
"""

from __future__ import annotations

from collections.abc import Callable

from foldlog._reports.figures.overview import near_the_ends
from foldlog._reports.figures.tables import FigureTables, Where, text_of
from foldlog.eventstore import ConversationRow, Store
from foldlog.eventstore.times import EventTime, event_microseconds

_ALL = 2**31
"""A limit for a query that should return all conversations: no store has so many."""


def activity_of(store: Store) -> Callable[[ConversationRow], tuple[bool, float]]:
    """Return a key function that sorts conversations by their last activity, as lists do. For a
    conversation without figures, the key is the time when its last event was recorded.
    Conversations without times come first.

    Cost: two SQL statements read the versions of all conversations and the rows of figures.
    """
    last_activities = _last_activities(store)

    def last_activity(row: ConversationRow) -> tuple[bool, float]:
        stored_at = event_microseconds(EventTime(row.updated_at))
        at = last_activities.get(row.id, stored_at)
        return at is not None, stored_at if at is None else at

    return last_activity


def written_by(store: Store, program: str) -> Callable[[ConversationRow], bool]:
    """Return a function that says whether ``program`` wrote a conversation. If a conversation has
    no figures, or outdated figures, the function reads some of its events.
    """
    counted_ids = _last_activities(store)
    rows = FigureTables(store.database).ask("figures_sorted", Where(program=program), "id", 1, _ALL)
    ids_of_program = {text_of(name) for _, _, name in rows}

    def is_of_program(row: ConversationRow) -> bool:
        if row.id in counted_ids:
            return row.id in ids_of_program
        return near_the_ends(store, row).format == program

    return is_of_program


def _last_activities(store: Store) -> dict[str, float | None]:
    """Return the last activity of each conversation, in microseconds since 1970. Conversations
    whose figures are missing or outdated are left out.
    """
    tables = FigureTables(store.database)
    to_count = tables.to_count()
    rows = tables.ask("figures_sorted", Where(), "activity", 1, _ALL)
    activities = ((text_of(name), at) for _, at, name in rows)
    return {name: at for name, at in activities if name not in to_count}
