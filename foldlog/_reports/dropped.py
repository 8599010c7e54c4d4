"""What a condensation took out of a View, and what of it the agent needed again. No model is
asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from foldlog._documents import DroppedDocument, DroppedTermDocument
from foldlog._figures.savings import is_made
from foldlog._figures.sizes import event_tokens
from foldlog._reports.recall_score import event_terms, event_words, terms_in
from foldlog.eventstore import (
    CondensationAction,
    CondensationSummary,
    Event,
    InvalidArgument,
    Store,
)
from foldlog.projections import View, Views, begins_reply, contains, intervals_kept, summary_event


class DroppedTerm(NamedTuple):
    """A term (``docs/RECALL.md``) that was in the View before a condensation and stands nowhere in
    the View after it.

    ``term``       the term as it stood there
    ``event``      the last event that had it of those that left; the id of a summary, where only
                   one had it
    ``needed_in``  the first later event in which the agent wrote it again; None if there is none
    """

    event: int
    term: str
    needed_in: int | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """What ``condensation`` took out of the View.

    ``events``   those that left the View, earlier summaries too, in its order; ``tokens`` is their
                 estimate
    ``summary``  the summary that it put in their place; None without one
    ``terms``    the terms of these events that neither the summary nor another shown event has,
                 also not as a part of a
                 longer term: in the order of the events, then of the alphabet
    """

    condensation: CondensationAction
    events: tuple[Event, ...]
    tokens: int
    summary: CondensationSummary | None
    terms: tuple[DroppedTerm, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the events; ids of summaries are below -1."""
        return tuple(event.id for event in self.events)

    @property
    def needed(self) -> tuple[DroppedTerm, ...]:
        """The terms that the agent wrote again later, in the order in which it did."""
        again = [(term.needed_in, term) for term in self.terms if term.needed_in is not None]
        return tuple(term for _, term in sorted(again))

    def __repr__(self) -> str:
        counts = (
            f"{len(self.events)} events, {len(self.terms)} terms, {len(self.needed)} needed again"
        )
        return f"<Dropped by condensation {self.condensation.id}: {counts}>"


def dropped_by(
    store: Store, views: Views, conversation: str, condensation: int | None = None
) -> Dropped | None:
    """Return what a condensation dropped; without an id the newest one that was not taken back.
    None if there is none.

    Raises ``InvalidArgument`` for the id of another event. Cost: two Views, and the later events.
    """
    version = store.version(conversation)
    if condensation is None:
        action = _newest(store, conversation, version)
    else:
        action = _condensation(store, conversation, condensation, version)
    if action is None:
        return None
    before, after = (views.at(conversation, at) for at in (action.id, action.id + 1))
    return dropped(action, before, after, store.events(conversation, action.id + 1, version))


def dropped(
    action: CondensationAction, before: View, after: View, later: Iterable[Event]
) -> Dropped:
    """Return what a condensation dropped: from the Views before and after it, and the events after
    it.
    """
    gone, lost = lost_terms(before, after)
    needed = _needed_again(set(lost), later)
    return Dropped(
        action,
        gone,
        sum(map(event_tokens, gone)),
        None if action.summary is None else summary_event(action),
        tuple(sorted(DroppedTerm(event, term, needed.get(term)) for term, event in lost.items())),
    )


def lost_terms(before: View, after: View) -> tuple[tuple[Event, ...], dict[str, int]]:
    """Return the events that left a View, and the terms that left with them, each with its last
    event.
    """
    still_shown = {event.id for event in after}
    gone = tuple(event for event in before if event.id not in still_shown)
    last: dict[str, int] = {}
    words = set[str]()
    for event in sorted(gone, key=lambda event: event.id, reverse=True):
        new = event_words(event) - words
        words |= new
        for term in terms_in(new):
            last.setdefault(term, event.id)
    shown = set().union(*map(event_terms, after))
    in_longer = "\n".join(sorted(shown))
    return gone, {
        term: event for term, event in last.items() if term not in shown and term not in in_longer
    }


def _needed_again(lost: set[str], later: Iterable[Event]) -> dict[str, int]:
    """Return the first event in which the agent wrote each of these terms again."""
    needed: dict[str, int] = {}
    for event in later:
        if event.shown and begins_reply(event):
            again = lost & event_terms(event)
            needed |= dict.fromkeys(again, event.id)
            lost = lost - again
    return needed


def condensations(store: Store, conversation: str) -> list[CondensationAction]:
    """Return the condensations that made the View of a conversation, oldest first, without those
    that a retraction took back or that forgot nothing. Cost: the structural events.
    """
    structural = store.query(
        conversation, lambda reading: [*reading.structural_events(0, reading.version)]
    )
    kept = intervals_kept(structural, store.version(conversation))
    actions = (
        event
        for event in structural
        if isinstance(event, CondensationAction) and contains(kept, event.id)
    )
    return [action for action in actions if is_made(action)]


def _newest(store: Store, conversation: str, version: int) -> CondensationAction | None:
    made = [action for action in condensations(store, conversation) if action.id < version]
    return made[-1] if made else None


def _condensation(
    store: Store, conversation: str, event_id: int, version: int
) -> CondensationAction:
    found = store.events(conversation, event_id, event_id + 1) if 0 <= event_id < version else ()
    for event in found:
        if isinstance(event, CondensationAction):
            return event
    raise InvalidArgument(
        f"conversation {conversation!r} has no condensation {event_id}; 'foldlog log ID --kind"
        " condensation' shows them"
    )


def dropped_in(
    store: Store, views: Views, conversation: str, start: int, stop: int
) -> list[Dropped]:
    """Return what the condensations with ``start <= id < stop`` dropped. Cost: that of
    ``dropped_by``, for each.
    """
    made = (action.id for action in condensations(store, conversation) if start <= action.id < stop)
    found = (dropped_by(store, views, conversation, action_id) for action_id in made)
    return [each for each in found if each is not None]


def dropped_document(found: Dropped) -> DroppedDocument:
    """Return the JSON document of what a condensation dropped."""
    terms = tuple(map(term_document, found.terms))
    return DroppedDocument(
        condensation=found.condensation.id, events=found.ids, tokens=found.tokens, terms=terms
    )


def term_document(term: DroppedTerm) -> DroppedTermDocument:
    return DroppedTermDocument(term.term, term.event, term.needed_in)
