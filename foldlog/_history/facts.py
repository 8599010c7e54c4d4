"""Whether the agent knows a fact: some words that the events and summaries that a model is sent
have, or have not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from foldlog._reports.as_sent import Sent, sent
from foldlog._search import SearchTerms, events_with
from foldlog._words.texts import text_of
from foldlog.eventstore import CondensationAction, Event, Retraction, Store, summary_of
from foldlog.eventstore.inside import is_structural
from foldlog.projections import Views, contains, intervals_kept, summary_event
from foldlog.projections.explain import forgetting

_WORDS_MAX = 100
"""Characters of the words that an answer repeats."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Whether ``words`` are known at ``version``: an event or a summary that a model is sent has
    all of them.

    ``known_by``      these events, by id; the id of a summary is below -1
    ``events``        all events and summaries with the words that were shown once, without those
                      that were taken back
    ``others``        other events with the words: taken back, or never shown to a model
    ``unknown_from``  the version from which on the words were last unknown; None if they never
                      were, once they had come
    ``by``            what made them unknown then: a condensation, for some imported histories a
                      request; or where only
                      events that were taken back have them, the last retraction
    ``reason``        the answer in words, for people
    """

    words: str
    version: int
    known_by: tuple[int, ...]
    events: tuple[int, ...]
    others: tuple[int, ...]
    unknown_from: int | None
    by: Event | None
    reason: str

    @property
    def is_known(self) -> bool:
        """Whether the agent knows the words."""
        return bool(self.known_by)

    def __repr__(self) -> str:
        return f"<Fact {self.words!r} at version {self.version}: {self.reason}>"


@dataclass(frozen=True, slots=True)
class _Span:
    """The versions at which the View shows an event: ``stop`` is None while it does."""

    event: Event
    start: int
    stop: int | None = None
    by: Event | None = None

    def covers(self, version: int) -> bool:
        return self.start <= version and (self.stop is None or version < self.stop)


def fact(store: Store, views: Views, conversation: str, words: str, at: int | None = None) -> Fact:
    """Return whether the words are known now, or at a version. See ``foldlog.History.fact``."""
    wanted = SearchTerms(words)
    if at is None:
        view = views.current(conversation)
    else:
        view = views.at(conversation, at)
    prompt = sent(store, conversation, view)
    unread = list[str]()
    with_words = [
        e for e in events_with(store, conversation, wanted, unread) if e.id < view.version
    ]
    structural = store.query(
        conversation, lambda reading: [*reading.structural_events(0, view.version)]
    )
    kept = intervals_kept(structural, view.version)
    standing = [
        event
        for event in map(_as_shown, with_words)
        if event is not None and contains(kept, _came(event.id) - 1)
    ]
    shown = {event.id for event in view}
    spans = _spans(standing, shown, [event for event in structural if contains(kept, event.id)])
    sent_events = [prompt.sent[position] for position in prompt.sent.fit_positions]
    ids = {span.event.id for span in spans}
    known_by = [
        event.id for event in sent_events if event.id in ids and wanted.stand_in(text_of(event))
    ]
    gap = _last_gap(spans)
    by = None if gap is None else gap.by
    if not standing and with_words:
        by = next((event for event in reversed(structural) if isinstance(event, Retraction)), None)
    quoted = repr(words[:_WORDS_MAX])
    reason = _reason(quoted, known_by, spans, gap, prompt)
    if not spans and isinstance(by, Retraction):
        reason = (
            f"{quoted} is not known: only events that were taken back have it, the last by"
            f" retraction {by.id}"
        )
    if unread:
        reason += f"; {len(unread)} events could not be read: {unread[0]}"
    return Fact(
        words,
        view.version,
        tuple(known_by),
        tuple(span.event.id for span in spans),
        tuple(
            event.id
            for event in with_words
            if event.id not in ids and not isinstance(event, CondensationAction)
        ),
        None if gap is None else gap.stop,
        by,
        reason,
    )


def _as_shown(event: Event) -> Event | None:
    """Return the event as a View shows it: the summary of a condensation. None for what no View
    shows.
    """
    if isinstance(event, CondensationAction):
        return None if event.summary is None else summary_event(event)
    return None if is_structural(event) or not event.shown else event


def _came(event_id: int) -> int:
    """Return the first version whose View may show the event or the summary with this id."""
    return 1 + (event_id if event_id >= 0 else summary_of(event_id))


def _spans(events: Iterable[Event], shown: set[int], structural: Sequence[Event]) -> list[_Span]:
    """Return when each event was shown; without those that never were, since an import had
    forgotten them before.
    """
    forgets = [(one, forgetting(one)) for one in structural]
    spans = []
    for event in events:
        start = _came(event.id)
        if event.id in shown:
            spans.append(_Span(event, start))
            continue
        by = next(
            (one for one, is_forgotten in forgets if one.id >= start and is_forgotten(event)), None
        )
        if by is not None:
            spans.append(_Span(event, start, by.id + 1, by))
    return spans


def _last_gap(spans: Sequence[_Span]) -> _Span | None:
    """Return the span with the last end at which no other span goes on."""
    ended = [span for span in spans if span.stop is not None]
    ends = sorted(ended, key=lambda span: (span.stop or 0, span.event.id), reverse=True)
    return next(
        (span for span in ends if not any(other.covers(span.stop or 0) for other in spans)), None
    )


def _reason(
    quoted: str, known_by: Sequence[int], spans: Sequence[_Span], gap: _Span | None, prompt: Sent
) -> str:
    if not spans:
        return f"no event that was ever shown has {quoted}"
    until = "" if gap is None else _forgotten(gap)
    if known_by:
        more = f" and {len(known_by) - 1} more" if len(known_by) > 1 else ""
        return f"{quoted} is known, by {_named(known_by[0])}{more}" + (
            f"; before that it {until}" if until else ""
        )
    unsent = [span.event.id for span in spans if span.stop is None]
    if unsent:
        if prompt.rules:
            rules = f": {prompt.rules}"
        else:
            rules = ", since its call or its result is missing"
        return (
            f"{quoted} is not known: the View has it in {_named(unsent[-1])}, but no model is sent"
            f" that{rules}"
        )
    return f"{quoted} is not known: it {until}; {_named(spans[-1].event.id)} had it last"


def _forgotten(gap: _Span) -> str:
    """Return until when a fact was known, and what forgot it."""
    assert gap.by is not None
    if not isinstance(gap.by, CondensationAction):
        return f"was known until version {gap.by.id}, request {gap.by.id} forgot it"
    if gap.by.summary is None:
        instead = "no summary replaces it"
    else:
        instead = "its summary does not contain it"
    return f"was known until version {gap.by.id}, condensation {gap.by.id} forgot it; {instead}"


def _named(event_id: int) -> str:
    if event_id >= 0:
        return f"event {event_id}"
    return f"the summary of condensation {_came(event_id) - 1}"
