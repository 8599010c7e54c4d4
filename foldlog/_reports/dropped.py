"""This module finds the terms that a condensation took out of a View, and the terms that the agent
needed again. No model is called to find dropped terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter

from foldlog._base.values import named_in
from foldlog._reports.answers.views import DroppedDocument, DroppedTermDocument
from foldlog._reports.figures.savings import is_made
from foldlog._reports.figures.tokens import event_tokens
from foldlog._reports.recall_score import event_terms, event_words, terms_in
from foldlog._reports.words.gist import count
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


@dataclass(frozen=True, slots=True)
class Dropped:
    """The content that ``condensation`` took out of the View.

    ``events``   the events and summaries that left the View, in the order of the View
    ``tokens``   the tokens of ``events``, estimated
    ``summary``  the summary that replaced the events, or None
    ``terms``    the terms (see ``docs/internals/COMPACTION.md``) of ``events`` that the new View
                 does not contain, not even as a part of a longer term; sorted by event, then by
                 the alphabet. ``needed_in`` is among the next 10,000 events, and None if the
                 system prompt or a tool contains the term
    """

    condensation: CondensationAction
    events: tuple[Event, ...]
    tokens: int
    summary: CondensationSummary | None
    terms: tuple[DroppedTermDocument, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the events. The ids of summaries are below -1."""
        return tuple(event.id for event in self.events)

    @property
    def needed(self) -> tuple[DroppedTermDocument, ...]:
        """The dropped terms that the agent wrote again, in the order in which it wrote them."""
        again = (term for term in self.terms if term.needed_in is not None)
        return tuple(sorted(again, key=attrgetter("needed_in")))

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
    Return None if the conversation has no condensation. Raises ``InvalidArgument`` if no
    condensation has the id. Cost: the function reads two Views, and at most ``EVENTS_AFTER`` events
    after the condensation.
    """
    version = store.version(conversation)
    if condensation is None:
        action = _newest(store, conversation, version)
    else:
        action = _condensation(store, conversation, condensation, version)
    if action is None:
        return None
    before = views.at(conversation, action.id)
    stop = min(version, action.id + 1 + EVENTS_AFTER)
    events = store.events(conversation, action.id, stop)
    return dropped_among(before, events, {action.id: action})[0]


def dropped_in(
    store: Store, conversation: str, start: int = 0, stop: int | None = None
) -> list[Dropped]:
    """Return what each of the ``NEWEST`` newest condensations from ``start`` to ``stop`` dropped.
    Raises ``CorruptEvent`` if an event is damaged. Cost: the function reads all structural events,
    two Views for each condensation, and the View before the first condensation. The function also
    reads the events from the first condensation on, and at most ``EVENTS_AFTER`` events after the
    last condensation.
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
    return dropped_among(view, store.events(conversation, first, end), actions)


@dataclass(frozen=True, slots=True)
class _Loss:
    """What a condensation dropped, while later events are read.

    ``gone``    the events and summaries that left the View
    ``terms``   maps each dropped term to the last of these events that has it
    ``needed``  maps a dropped term to the event in which the agent wrote it again
    """

    action: CondensationAction
    gone: tuple[Event, ...]
    terms: dict[str, int]
    needed: dict[str, int]

    def dropped(self) -> Dropped:
        return Dropped(
            self.action,
            self.gone,
            sum(map(event_tokens, self.gone)),
            None if self.action.summary is None else summary_event(self.action),
            _sorted_terms(self.terms, self.needed),
        )


def _sorted_terms(
    events: Mapping[str, int], needed: Mapping[str, int]
) -> tuple[DroppedTermDocument, ...]:
    """Return terms in the order of ``events``, which maps each term to its last event."""
    return tuple(
        DroppedTermDocument(term, event, needed.get(term))
        for event, term in sorted((event, term) for term, event in events.items())
    )


def dropped_among(
    view: View, events: Iterable[Event], actions: Mapping[int, CondensationAction]
) -> list[Dropped]:
    """Return what each of ``actions`` dropped. ``events`` are the events after ``view``, up to the
    last event in which the agent may have needed a dropped term again.
    """
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
        loss = _Loss(action, *_lost_terms(before, view), {})
        losses.append(loss)
        for term in loss.terms.keys() - _terms_of_the_program(before):
            waiting.setdefault(term, []).append(loss)
    return [loss.dropped() for loss in losses]


def _terms_of_the_program(events: Iterable[Event]) -> set[str]:
    """Return the terms of system prompts and tools, which the agent writes because it is shown them
    again.
    """
    terms = set[str]()
    for event in events:
        if isinstance(event, SystemMessage):
            terms |= event_terms(event)
            terms |= terms_in(word for _, text in named_in(event.tools) for word in text.split())
        elif isinstance(event, Action):
            terms.add(event.tool)
    return terms


def _find_terms_again(event: Event, waiting: dict[str, list[_Loss]]) -> None:
    """If an event of the agent has terms in ``waiting``, note it in their losses, and remove the
    terms.
    """
    if not waiting or not event.shown or not begins_reply(event):
        return
    for term in event_terms(event) & waiting.keys():
        for loss in waiting.pop(term):
            if event.id <= loss.action.id + EVENTS_AFTER:
                loss.needed[term] = event.id


def _lost_terms(before: View, after: View) -> tuple[tuple[Event, ...], dict[str, int]]:
    """Return the events that left a View, and the terms that left it with them."""
    still_shown = {event.id for event in after}
    forgotten = tuple(event for event in before if event.id not in still_shown)
    return forgotten, _terms_only_in(forgotten, after)


def terms_not_passed_on(
    known_events: Sequence[Event], passed_on: Iterable[Event], later: Iterable[Event]
) -> tuple[DroppedTermDocument, ...]:
    """Return the terms of ``known_events`` that ``passed_on`` does not contain. ``needed_in`` is
    the first event of ``later`` in which the agent wrote the term.
    """
    terms = _terms_only_in(known_events, passed_on)
    waiting = terms.keys() - _terms_of_the_program(known_events)
    needed = dict[str, int]()
    for event in islice(later, EVENTS_AFTER):
        if event.shown and begins_reply(event):
            needed = dict.fromkeys(event_terms(event) & waiting, event.id) | needed
    return _sorted_terms(terms, needed)


def _terms_only_in(events: Iterable[Event], shown: Iterable[Event]) -> dict[str, int]:
    """Return the terms of ``events`` that ``shown`` does not contain, each with the last event that
    contains it.
    """
    last: dict[str, int] = {}
    words = set[str]()
    for event in sorted(events, key=lambda event: event.id, reverse=True):
        new = event_words(event) - words
        words |= new
        for term in terms_in(new):
            last.setdefault(term, event.id)
    shown_terms = set().union(*map(event_terms, shown))
    in_longer = "\n".join(sorted(shown_terms))
    return {term: event for term, event in last.items() if term not in in_longer}


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
    """Return the newest condensation before a version."""
    earlier = [action for action in condensations(store, conversation) if action.id < version]
    return earlier[-1] if earlier else None


def _condensation(
    store: Store, conversation: str, event_id: int, version: int
) -> CondensationAction:
    """Return the condensation with this id. Raises ``InvalidArgument`` if there is none."""
    events = store.events(conversation, event_id, event_id + 1) if 0 <= event_id < version else ()
    for event in events:
        if isinstance(event, CondensationAction):
            return event
    raise InvalidArgument(
        f"conversation {conversation!r} has no condensation {event_id}; 'foldlog log ID --kind"
        " condensation' shows them"
    )


def dropped_document(drop: Dropped) -> DroppedDocument:
    """Return what a condensation dropped, as a document."""
    return DroppedDocument(
        condensation=drop.condensation.id, events=drop.ids, tokens=drop.tokens, terms=drop.terms
    )
