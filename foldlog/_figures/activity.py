"""When conversations were last active, and which of them a program wrote, without reading them."""

from __future__ import annotations

from collections.abc import Callable

from foldlog._figures.overview import near_the_ends
from foldlog._figures.tables import FigureTables, Where, text_of
from foldlog.eventstore import ConversationRow, Store
from foldlog.eventstore.inside import EventTime, event_microseconds

_ALL = 2**31


def activity_of(store: Store) -> Callable[[ConversationRow], tuple[bool, float]]:
    """Return a key that sorts conversations by when they were last active, as lists do: by the time
    of the last event; where figures are not counted, by when it was recorded. Those whose source
    tells no times are the smallest, by when they were stored.

    Cost: SQL over the rows of figures.
    """
    counted = _counted(store, Where())

    def last_activity(row: ConversationRow) -> tuple[bool, float]:
        stored_at = event_microseconds(EventTime(row.updated_at))
        at = counted.get(row.id, stored_at)
        return at is not None, stored_at if at is None else at

    return last_activity


def written_by(store: Store, program: str) -> Callable[[ConversationRow], bool]:
    """Return what says whether a program wrote a conversation, by the name of its format, as lists
    show it. Cost: SQL over the rows of figures; some events of one that is not counted.
    """
    counted = _counted(store, Where())
    of_program = _counted(store, Where(program=program))

    def is_of_program(row: ConversationRow) -> bool:
        if row.id in counted:
            return row.id in of_program
        return near_the_ends(store, row).format == program

    return is_of_program


def _counted(store: Store, where: Where) -> dict[str, float | None]:
    """Return the ids of the chosen conversations whose figures are counted as they are now, with
    the microseconds of their last activity.
    """
    tables = FigureTables(store.database)
    to_count = tables.to_count()
    rows = tables.ask("figures_sorted", where, "activity", 1, _ALL)
    named = ((text_of(name), at) for _, at, name in rows)
    return {name: at for name, at in named if name not in to_count}
