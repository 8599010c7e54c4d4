"""This module finds the dropped terms that the agent needed again, for the newest condensations of
a conversation.
"""

from __future__ import annotations

from foldlog._reports.answers.views import NeededDocument
from foldlog._reports.dropped import Dropped, dropped_in
from foldlog.eventstore import CorruptEvent, Store


def needed_again(store: Store, conversation: str) -> list[NeededDocument]:
    """Return the dropped terms that the agent needed again, for each of the newest condensations.
    If an event is damaged, return an empty list.
    """
    try:
        return [_needed_document(dropped) for dropped in dropped_in(store, conversation)]
    except CorruptEvent:
        return []


def _needed_document(dropped: Dropped) -> NeededDocument:
    return NeededDocument(
        condensation=dropped.condensation.id,
        events=len(dropped.events),
        tokens=dropped.tokens,
        dropped=len(dropped.terms),
        terms=dropped.needed,
    )
