"""Find out whether the agent knows some words. The agent knows words if an event or a summary that
is sent to the model contains them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from foldlog._reports.as_sent import Sent, sent
from foldlog._reports.search.searching import SearchTerms, events_with
from foldlog._reports.words.gist import count
from foldlog._reports.words.texts import text_of
from foldlog.eventstore import CondensationAction, Event, Retraction, Store, summary_of
from foldlog.eventstore.events import is_structural
from foldlog.projections import Views, contains, intervals_kept, summary_event
from foldlog.projections.explain import explain_event, forgets_of
from foldlog.projections.units import has_no_message

_WORDS_MAX = 100
"""The number of characters of the words that a sentence quotes."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Says whether the agent knows ``words`` at ``version``. The agent knows the words if an event
    or a summary that is sent to the model contains all of them.

    ``known_by``      contains the ids of the events that are sent to the model and contain the
                      words. The id of a summary is below -1.
    ``events``        contains the ids of all shown or forgotten events with the words.
    ``others``        contains the ids of all other events with the words.
    ``unknown_from``  is the version at which the words were last forgotten, or None if they were
                      never forgotten. The words may be known again since then.
    ``by``            is the event that forgot the words at ``unknown_from``: a condensation, or in
                      a history from OpenHands V0 perhaps a request for a condensation. If only
                      retracted events contain the words, ``by`` is the last retraction of the
                      history, and ``unknown_from`` is None.
    ``reason``        is the answer as a sentence for people.
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
        """Whether an event or a summary with the words is sent to the model."""
        return bool(self.known_by)

    def __repr__(self) -> str:
        return f"<Fact {self.words!r} at version {self.version}: {self.reason}>"


@dataclass(frozen=True, slots=True)
class _Span:
    """An event or a summary, and the versions at which the View showed it: from ``start`` to before
    ``stop``, or until now if ``stop`` is None. ``by`` is the event that forgot it.
    """

    event: Event
    start: int
    stop: int | None = None
    by: Event | None = None

    def covers(self, version: int) -> bool:
        return self.start <= version and (self.stop is None or version < self.stop)


def fact(store: Store, views: Views, conversation: str, words: str, at: int | None = None) -> Fact:
    """Return whether the agent knows some words at the version ``at``, or now. Raises
    ``InvalidArgument`` if there is no word to search for.

    Cost: the function reads the stored bytes of the conversation, its structural events, and the
    View.
    """
    terms = SearchTerms(words)
    view = views.current(conversation) if at is None else views.at(conversation, at)
    prompt = sent(store, conversation, view)
    unread_problems = list[str]()
    with_words = [
        event
        for event in events_with(store, conversation, terms, unread_problems)
        if event.id < view.version
    ]
    structural = store.query(
        conversation, lambda reading: [*reading.structural_events(0, view.version)]
    )
    kept_intervals = intervals_kept(structural, view.version)
    shown = [event for event in map(_as_shown, with_words) if event is not None]
    candidates = [
        event for event in shown if contains(kept_intervals, _first_version(event.id) - 1)
    ]
    spans = _spans(
        candidates,
        shown_ids={event.id for event in view},
        structural=[event for event in structural if contains(kept_intervals, event.id)],
    )
    known_by = _known_by(prompt, spans, terms)
    gap = _last_gap(spans)
    by = None if gap is None else gap.by
    if shown and not candidates:
        by = next((event for event in reversed(structural) if isinstance(event, Retraction)), None)
    reason = _reason(repr(words[:_WORDS_MAX]), known_by, spans, by, prompt)
    if unread_problems:
        unread = count(len(unread_problems), "event")
        reason += f"; {unread} could not be read: {unread_problems[0]}"
    span_ids = {span.event.id for span in spans}
    return Fact(
        words,
        view.version,
        tuple(known_by),
        tuple(span.event.id for span in spans),
        tuple(
            event.id
            for event in with_words
            if event.id not in span_ids and not isinstance(event, CondensationAction)
        ),
        None if gap is None else gap.stop,
        by,
        reason,
    )


def _known_by(prompt: Sent, spans: Sequence[_Span], terms: SearchTerms) -> list[int]:
    """Return the ids of the events that the model is sent, and that contain the words."""
    span_ids = {span.event.id for span in spans}
    sent_events = (prompt.sent[position] for position in prompt.sent.fit_positions)
    return [
        event.id
        for event in sent_events
        if event.id in span_ids and not has_no_message(event) and terms.stand_in(text_of(event))
    ]


def _as_shown(event: Event) -> Event | None:
    """Return the event as a View shows it, for example a condensation as its summary. Return None
    for an event that no View shows.
    """
    if isinstance(event, CondensationAction):
        return None if event.summary is None else summary_event(event)
    return None if is_structural(event) or not event.shown else event


def _first_version(event_id: int) -> int:
    """Return the version at which the View first showed an event or a summary."""
    return 1 + (event_id if event_id >= 0 else summary_of(event_id))


def _spans(
    events: Iterable[Event], shown_ids: set[int], structural: Sequence[Event]
) -> list[_Span]:
    """Return when the View showed each event. ``structural`` are the structural events that are not
    retracted. An event that is neither shown nor forgotten was never shown, and is left out: the
    source of an import may have forgotten it before the import.
    """
    forgetting_events = [(event, forgets_of(event)) for event in structural]
    spans = []
    for event in events:
        start = _first_version(event.id)
        if event.id in shown_ids:
            spans.append(_Span(event, start))
            continue
        for by, is_forgotten in forgetting_events:
            if by.id >= start and is_forgotten(event):
                spans.append(_Span(event, start, by.id + 1, by))
                break
    return spans


def _last_gap(spans: Sequence[_Span]) -> _Span | None:
    """Return the last span after which no event showed the words. A span is skipped if another one
    covers the version at which it ended.
    """
    ended = [span for span in spans if span.stop is not None]
    ends = sorted(ended, key=lambda span: (span.stop or 0, span.event.id), reverse=True)
    return next(
        (span for span in ends if not any(other.covers(span.stop or 0) for other in spans)), None
    )


def _reason(
    quoted: str, known_by: Sequence[int], spans: Sequence[_Span], by: Event | None, prompt: Sent
) -> str:
    """Return the answer as a sentence. ``by`` is ``Fact.by``, and ``quoted`` are the words."""
    if not spans:
        if isinstance(by, Retraction):
            return (
                f"{quoted} is not known: only retracted events contain it; the last retraction is"
                f" {by.id}"
            )
        return f"no event that was ever shown contains {quoted}"
    forgetting_text = "" if by is None else _describe_forgetting(by)
    if known_by:
        reason = f"{quoted} is known, by {_name_event(known_by[0])}"
        if len(known_by) > 1:
            reason += f" and {len(known_by) - 1} more"
        if forgetting_text:
            reason += f"; before that it {forgetting_text}"
        return reason
    unsent = [span.event for span in spans if span.stop is None]
    if unsent:
        holder = _name_event(unsent[-1].id)
        why = explain_event(unsent[-1], prompt.view, lambda start: ())
        if not why.sent:
            return f"{quoted} is not known: {holder} contains it; {why.reason}"
        return (
            f"{quoted} is not known: {holder} in the View contains it, but is not sent to a model:"
            f" {prompt.rules}"
        )
    last_holder = _name_event(spans[-1].event.id)
    return f"{quoted} is not known: it {forgetting_text}; {last_holder} contained it last"


def _describe_forgetting(by: Event) -> str:
    """Say until when some words were known, and what forgot them."""
    if not isinstance(by, CondensationAction):
        return f"was known until version {by.id}, request {by.id} forgot it"
    if by.summary is None:
        instead = "no summary replaces it"
    else:
        instead = "its summary does not contain it"
    return f"was known until version {by.id}, condensation {by.id} forgot it; {instead}"


def _name_event(event_id: int) -> str:
    """Return the words for an event or a summary in a sentence."""
    if event_id >= 0:
        return f"event {event_id}"
    return f"the summary of condensation {summary_of(event_id)}"
