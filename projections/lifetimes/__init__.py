"""The lifetimes of events: the versions at which the View of a conversation shows each event, and
why the event left the View.

``fold.py`` is the one pass over the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Literal, NamedTuple

import msgspec

from foldlog.eventstore import summary_of
from foldlog.projections.errors import NoSuchEvent

__all__ = ["Departure", "Lifetime", "Lifetimes", "Moment", "Span", "Standing"]

Departure = Literal["summarized", "forgotten", "taken back"]
"""Why an event left the View: by a condensation with a summary or without one, or by a
retraction.
"""

Moment = Literal[
    "not yet", "never shown", "pending", "sent", "summarized", "forgotten", "taken back"
]
"""The state of an event at one version. ``pending`` means that the View shows the event, but a
model is not sent the event.
"""


class Span(msgspec.Struct, frozen=True, gc=False):
    """Versions at which the View shows an event: ``start <= version < stop``; ``stop`` is None
    while it is shown.

    ``by`` is the id of the structural event that removed the event; None while the event is shown.
    ``sent`` has the versions at which the event becomes part of the prompt and leaves it,
    alternating. An action is not sent before its observation and the observations of its parallel
    calls have come.

    For a summary, ``place`` is its place in ``Lifetimes.order``. In the V0 dialect a summary has,
    instead of a place, the ``index`` at which each reading of the View inserts it. ``departure`` is
    None if the next span continues the summary at another place.
    """

    start: int
    stop: int | None = None
    by: int | None = None
    departure: Departure | None = None
    sent: tuple[int, ...] = ()
    place: int | None = None
    index: int | None = None

    def covers(self, version: int) -> bool:
        """Return whether the View of this version shows the event."""
        return self.start <= version and (self.stop is None or version < self.stop)

    def is_sent(self, version: int) -> bool:
        """Return whether a model is sent the event with the View of this version."""
        return self.covers(version) and bisect_right(self.sent, version) % 2 == 1


class Lifetime(msgspec.Struct, frozen=True, gc=False):
    """The versions at which the View shows one event, or the summary with this (negative) id.
    ``spans`` is empty if the View never shows the event; it has several members if retractions
    removed the event and brought it back. ``tokens`` is the number of tokens that the caller
    counted; 0 without a count, and for events that were never shown. ``returns`` has pairs of a
    version and a reason: a retraction at this version left the event hidden, for another reason
    than its last span has.
    """

    id: int
    spans: tuple[Span, ...] = ()
    tokens: int = 0
    returns: tuple[tuple[int, Departure], ...] = ()

    def at(self, version: int) -> Moment:
        """Return the state of the event at this version."""
        origin_id = self.id if self.id >= 0 else summary_of(self.id)
        if version <= origin_id:
            return "not yet"
        ended: Span | None = None
        for span in self.spans:
            if span.covers(version):
                return "sent" if span.is_sent(version) else "pending"
            if span.stop is not None and span.stop <= version:
                ended = span
        if ended is None or ended.departure is None or ended.stop is None:
            return "never shown"
        newer_reasons = (
            departure
            for returned_at, departure in reversed(self.returns)
            if ended.stop <= returned_at <= version
        )
        return next(newer_reasons, ended.departure)


class Standing(NamedTuple):
    """A place of a summary: its number, and the id of the event after which the summary stands; -1
    for the beginning.
    """

    summary: int
    place: int
    event: int


@dataclass(frozen=True)
class Lifetimes:
    """The lifetimes of all events of a conversation up to ``version``, by id, and of its summaries,
    by synthetic id.

    ``order`` has the places of the summaries in the order in which Views show them. Nearly always a
    summary has one place.
    """

    conversation: str
    version: int
    events: Sequence[Lifetime]
    summaries: Mapping[int, Lifetime]
    order: Sequence[Standing]

    def __repr__(self) -> str:
        return (
            f"<Lifetimes of {len(self.events)} events and {len(self.summaries)} summaries of"
            f" {self.conversation!r}>"
        )

    def of(self, event_id: int) -> Lifetime:
        """Return the lifetime of an event or a summary. Raises ``NoSuchEvent``."""
        if 0 <= event_id < len(self.events):
            return self.events[event_id]
        if event_id in self.summaries:
            return self.summaries[event_id]
        raise NoSuchEvent(self.conversation, event_id, self.version)

    def __iter__(self) -> Iterator[Lifetime]:
        """Yield all lifetimes, first of the events, then of the summaries."""
        yield from self.events
        yield from self.summaries.values()

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The tokens of the prompt at each version, from 0 on. Cost: one pass over all
        lifetimes.
        """
        changes = [0] * (self.version + 2)
        for lifetime in self:
            for span in lifetime.spans:
                for number, version in enumerate(span.sent):
                    changes[version] += lifetime.tokens if number % 2 == 0 else -lifetime.tokens
                if len(span.sent) % 2 and span.stop is not None:
                    changes[span.stop] -= lifetime.tokens
        return tuple(accumulate(changes[: self.version + 1]))
