"""This module finds the terms that a condensation took out of a View, and the terms that the agent
needed again. No model is called to find dropped terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from foldlog._answers.views import DroppedDocument, DroppedTermDocument
from foldlog._base.values import named_in
from foldlog._figures.savings import is_made
from foldlog._figures.sizes import event_tokens
from foldlog._reports.recall_score import event_terms, event_words, terms_in
from foldlog._words.gist import count
from foldlog.eventstore import (
    Action,
    CondensationAction,
    CondensationSummary,
    Event,
    InvalidArgument,
    Store,
    SystemMessage,
)
from foldlog.projections import View, Views, begins_reply, contains, intervals_kept, summary_event

NEWEST = 50
"""Only this number of the newest condensations is read, because a history may have thousands."""
EVENTS_AFTER = 10_000
"""The number of events after a condensation that are searched for its dropped terms."""


class DroppedTerm(NamedTuple):
    """A term (see ``docs/internals/COMPACTION.md``) that was in the View before a condensation and
    is nowhere in the View after it.

    ``term``       the term as it was written
    ``event``      the last dropped event with the term, or a dropped summary with the term
    ``needed_in``  the event in which the agent wrote the term again, among the next 10,000 events,
                   or None; always None if the system prompt or a tool contains the term
    """

    event: int
    term: str
    needed_in: int | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """The content that ``condensation`` took out of the View.

    ``events``   the events and summaries that left the View, in the order of the View
    ``tokens``   the tokens of ``events``, estimated
    ``summary``  the summary that replaced the events, or None
    ``terms``    the terms of ``events`` that the new View does not contain, not even as a part of
                 a longer term; sorted by event, then by the alphabet
    """

    condensation: CondensationAction
    events: tuple[Event, ...]
    tokens: int
    summary: CondensationSummary | None
    terms: tuple[DroppedTerm, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the events. The ids of summaries are below -1."""
        return tuple(event.id for event in self.events)

    @property
    def needed(self) -> tuple[DroppedTerm, ...]:
        """The dropped terms that the agent wrote again, in the order in which it wrote them."""
        again = [(term.needed_in, term) for term in self.terms if term.needed_in is not None]
        return tuple(term for _, term in sorted(again))

    def __repr__(self) -> str:
        counts = (
            f"{count(len(self.events), 'event')}, {count(len(self.terms), 'term')},"
            f" {len(self.needed)} needed again"
        )
        return f"<Dropped by condensation {self.condensation.id}: {counts}>"


def dropped_by(
    store: Store, views: Views, conversation: str, condensation: int | None = None
) -> Dropped | None:
    """Return what a condensation dropped: the condensation with this id, or by default the newest.
    Return None if there is no condensation. Cost: the function reads two Views, and at most 10,000
    events after the condensation.
    """
    version = store.version(conversation)
    if condensation is None:
        action = _newest(store, conversation, version)
    else:
        action = _condensation(store, conversation, condensation, version)
    if action is None:
        return None
    before, after = (views.at(conversation, at) for at in (action.id, action.id + 1))
    stop = min(version, action.id + 1 + EVENTS_AFTER)
    return find_dropped(action, before, after, store.events(conversation, action.id + 1, stop))


def find_dropped(
    action: CondensationAction, before: View, after: View, later: Iterable[Event]
) -> Dropped:
    loss = _loss(action, before, after)
    waiting = {term: [loss] for term in loss.terms.keys() - _terms_of_the_program(before)}
    for event in later:
        _find_terms_again(event, waiting)
    return loss.dropped()


def dropped_in(
    store: Store, conversation: str, start: int = 0, stop: int | None = None
) -> list[Dropped]:
    """Return what each of the newest 50 condensations between ``start`` and ``stop`` dropped.
    Raises ``CorruptEvent`` if an event is damaged. Cost: the function reads two Views for each
    condensation, and the View before the first condensation. The function also reads the events
    from the first condensation on, and at most 10,000 events after the last condensation.
    """
    version = store.version(conversation)
    last = version if stop is None else min(stop, version)
    in_range = [
        action for action in condensations(store, conversation) if start <= action.id < last
    ]
    if not in_range:
        return []
    actions = {action.id: action for action in in_range[-NEWEST:]}
    first = min(actions)
    end = min(version, max(actions) + 1 + EVENTS_AFTER)
    view = Views(store).at(conversation, first)
    losses = _losses_in(view, store.events(conversation, first, end), actions)
    return [loss.dropped() for loss in losses]


@dataclass(frozen=True, slots=True)
class _Loss:
    action: CondensationAction
    gone: tuple[Event, ...]
    terms: dict[str, int]
    needed: dict[str, int]

    def dropped(self) -> Dropped:
        terms = [
            DroppedTerm(event, term, self.needed.get(term)) for term, event in self.terms.items()
        ]
        return Dropped(
            self.action,
            self.gone,
            sum(map(event_tokens, self.gone)),
            None if self.action.summary is None else summary_event(self.action),
            tuple(sorted(terms)),
        )


def _loss(action: CondensationAction, before: View, after: View) -> _Loss:
    forgotten, terms = lost_terms(before, after)
    return _Loss(action, forgotten, terms, {})


def _losses_in(
    view: View, events: Iterable[Event], actions: Mapping[int, CondensationAction]
) -> list[_Loss]:
    losses: list[_Loss] = []
    waiting: dict[str, list[_Loss]] = {}
    since_view: list[Event] = []
    for event in events:
        _find_terms_again(event, waiting)
        action = actions.get(event.id)
        if action is None:
            if len(losses) < len(actions):
                since_view.append(event)
            continue
        before = view.then(since_view)
        view = before.then([event])
        since_view = []
        loss = _loss(action, before, view)
        losses.append(loss)
        for term in loss.terms.keys() - _terms_of_the_program(before):
            waiting.setdefault(term, []).append(loss)
    return losses


def _terms_of_the_program(events: Iterable[Event]) -> set[str]:
    terms = set[str]()
    for event in events:
        if isinstance(event, SystemMessage):
            terms |= event_terms(event)
            terms |= terms_in(word for _, text in named_in(event.tools) for word in text.split())
        elif isinstance(event, Action):
            terms.add(event.tool)
    return terms


def _find_terms_again(event: Event, waiting: dict[str, list[_Loss]]) -> None:
    if not waiting or not event.shown or not begins_reply(event):
        return
    for term in event_terms(event) & waiting.keys():
        for loss in waiting.pop(term):
            if event.id <= loss.action.id + EVENTS_AFTER:
                loss.needed[term] = event.id


def lost_terms(before: View, after: View) -> tuple[tuple[Event, ...], dict[str, int]]:
    still_shown = {event.id for event in after}
    forgotten = tuple(event for event in before if event.id not in still_shown)
    last: dict[str, int] = {}
    words = set[str]()
    for event in sorted(forgotten, key=lambda event: event.id, reverse=True):
        new = event_words(event) - words
        words |= new
        for term in terms_in(new):
            last.setdefault(term, event.id)
    shown = set().union(*map(event_terms, after))
    in_longer = "\n".join(sorted(shown))
    return forgotten, {
        term: event for term, event in last.items() if term not in shown and term not in in_longer
    }


def condensations(store: Store, conversation: str) -> list[CondensationAction]:
    """Return the condensations of a conversation. Retracted condensations, and condensations that
    forgot nothing, are left out.
    """
    structural = store.query(
        conversation, lambda reading: [*reading.structural_events(0, reading.version)]
    )
    intervals = intervals_kept(structural, store.version(conversation))
    actions = (
        event
        for event in structural
        if isinstance(event, CondensationAction) and contains(intervals, event.id)
    )
    return [action for action in actions if is_made(action)]


def _newest(store: Store, conversation: str, version: int) -> CondensationAction | None:
    earlier = [action for action in condensations(store, conversation) if action.id < version]
    return earlier[-1] if earlier else None


def _condensation(
    store: Store, conversation: str, event_id: int, version: int
) -> CondensationAction:
    events = store.events(conversation, event_id, event_id + 1) if 0 <= event_id < version else ()
    for event in events:
        if isinstance(event, CondensationAction):
            return event
    raise InvalidArgument(
        f"conversation {conversation!r} has no condensation {event_id}; 'foldlog log ID --kind"
        " condensation' shows them"
    )


def dropped_document(drop: Dropped) -> DroppedDocument:
    terms = tuple(map(term_document, drop.terms))
    return DroppedDocument(
        condensation=drop.condensation.id, events=drop.ids, tokens=drop.tokens, terms=terms
    )


def term_document(term: DroppedTerm) -> DroppedTermDocument:
    return DroppedTermDocument(term.term, term.event, term.needed_in)
