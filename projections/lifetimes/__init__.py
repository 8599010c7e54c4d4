"""The lifetimes of events: the versions at which the View of a conversation shows an event, and why
the event left the View.

``fold.py`` computes the lifetimes in one pass over the log.
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
from foldlog.eventstore.errors import count
from foldlog.projections.errors import NoSuchEvent

__all__ = ["Departure", "Lifetime", "Lifetimes", "Moment", "Span", "Standing"]

Departure = Literal["summarized", "forgotten", "taken back"]
"""Why an event left the View: a condensation with a summary, a condensation without a summary, or a
retraction.
"""

Moment = Literal[
    "not yet", "never shown", "pending", "sent", "summarized", "forgotten", "taken back"
]
"""The state of an event at one version. ``pending`` means that the View shows the event, but the
event is not sent to a model yet.
"""


class Span(msgspec.Struct, frozen=True, gc=False):
    """Versions at which the View shows an event: ``start <= version < stop``. While the View shows
    the event, ``stop`` and ``by`` are None. If the event was removed, ``by`` is the id of the
    structural event that removed it. ``sent`` contains the versions at which the event enters and
    leaves the prompt, in turn. An action is sent only after its observation and the observations of
    its parallel calls.

    For a summary, ``place`` is the number of its place among the events: see ``Standing``. A
    summary of the V0 dialect has no fixed place: every reading of the View inserts it at ``index``.
    If the span ends only because the summary moves to another place, ``departure`` is None.
    """

    start: int
    stop: int | None = None
    by: int | None = None
    departure: Departure | None = None
    sent: tuple[int, ...] = ()
    place: int | None = None
    index: int | None = None

    def covers(self, version: int) -> bool:
        """Return whether the View of ``version`` shows the event."""
        return self.start <= version and (self.stop is None or version < self.stop)

    def is_sent(self, version: int) -> bool:
        """Return whether the event is sent to a model with the View of ``version``."""
        return self.covers(version) and bisect_right(self.sent, version) % 2 == 1


class Lifetime(msgspec.Struct, frozen=True, gc=False):
    """The versions at which the View shows one event or one summary. The id of a summary is
    negative. ``spans`` is empty if the View never shows the event. There are several spans if
    retractions removed the event and brought it back. ``tokens`` is the result of the caller's
    function ``count`` for the event. It is 0 if there is no such function, or if the event was
    never shown. If a retraction changed the reason why the event is hidden, ``returns`` contains
    the version of the retraction and the new reason.
    """

    id: int
    spans: tuple[Span, ...] = ()
    tokens: int = 0
    returns: tuple[tuple[int, Departure], ...] = ()

    def at(self, version: int) -> Moment:
        """Return the state of the event at ``version``."""
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
    """The place of a summary in the View: the number of the summary, and the id of the event before
    the summary. If the summary is the first item of the View, the id is -1.
    """

    summary: int
    place: int
    event: int


@dataclass(frozen=True)
class Lifetimes:
    """The lifetimes of all events of a conversation up to ``version``, by id. ``summaries``
    contains the lifetimes of summaries, by synthetic id.

    ``order`` contains the places of summaries, in the order of the Views. A summary usually has one
    place.
    """

    conversation: str
    version: int
    events: Sequence[Lifetime]
    summaries: Mapping[int, Lifetime]
    order: Sequence[Standing]

    def __repr__(self) -> str:
        return (
            f"<Lifetimes of {count(len(self.events), 'event')} and"
            f" {count(len(self.summaries), 'summary', 'summaries')} of {self.conversation!r}>"
        )

    def of(self, event_id: int) -> Lifetime:
        """Return the lifetime of an event or a summary. Raises ``NoSuchEvent`` if no event and no
        summary has the id.
        """
        if 0 <= event_id < len(self.events):
            return self.events[event_id]
        if event_id in self.summaries:
            return self.summaries[event_id]
        raise NoSuchEvent(self.conversation, event_id, self.version)

    def __iter__(self) -> Iterator[Lifetime]:
        yield from self.events
        yield from self.summaries.values()

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of tokens of the prompt at each version, from version 0 on. Cost: one pass
        over all lifetimes.
        """
        changes = [0] * (self.version + 2)
        for lifetime in self:
            for span in lifetime.spans:
                for number, version in enumerate(span.sent):
                    changes[version] += lifetime.tokens if number % 2 == 0 else -lifetime.tokens
                if len(span.sent) % 2 and span.stop is not None:
                    changes[span.stop] -= lifetime.tokens
        return tuple(accumulate(changes[: self.version + 1]))
