"""Which dropped terms the agent needed again, for a whole conversation in one pass."""

from __future__ import annotations

from collections.abc import Iterable

from foldlog._documents import DroppedTermDocument, NeededDocument
from foldlog._figures.sizes import event_tokens
from foldlog._reports.dropped import condensations, lost_terms
from foldlog._reports.recall_score import event_terms
from foldlog.eventstore import CorruptEvent, Event, Store
from foldlog.projections import View, Views, begins_reply

NEWEST = 50
"""Of how many condensations it is told what was needed again: a long conversation has thousands."""


def needed_again(store: Store, conversation: str) -> list[NeededDocument]:
    """Return of each of the newest condensations what it dropped that the agent needed again,
    oldest first; nothing where an event is damaged. Cost: the View before the first of them, the
    events from there on, and for each condensation the Views before and after it.
    """
    try:
        actions = sorted(action.id for action in condensations(store, conversation))[-NEWEST:]
        if not actions:
            return []
        view = Views(store).at(conversation, actions[0])
        return _needed_of_each(view, store.events(conversation, actions[0]), {*actions})
    except CorruptEvent:
        return []


def _needed_of_each(view: View, events: Iterable[Event], actions: set[int]) -> list[NeededDocument]:
    since_view = list[Event]()
    dropped: dict[int, tuple[tuple[Event, ...], dict[str, int]]] = {}
    waiting: dict[str, set[int]] = {}
    needed: dict[int, dict[str, int]] = {}
    for event in events:
        for term in (
            event_terms(event) & waiting.keys()
            if event.shown and waiting and begins_reply(event)
            else ()
        ):
            for condensation in waiting.pop(term):
                needed[condensation][term] = event.id
        if event.id not in actions:
            since_view.append(event)
            continue
        before = view.then(since_view)
        view = before.then([event])
        since_view = []
        gone, lost = lost_terms(before, view)
        dropped[event.id], needed[event.id] = (gone, lost), {}
        for term in lost:
            waiting.setdefault(term, set()).add(event.id)
    return [
        NeededDocument(
            condensation=condensation,
            events=len(gone),
            tokens=sum(map(event_tokens, gone)),
            dropped=len(lost),
            terms=tuple(
                DroppedTermDocument(term, lost[term], at)
                for term, at in needed[condensation].items()
            ),
        )
        for condensation, (gone, lost) in dropped.items()
    ]
