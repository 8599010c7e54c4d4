"""A summary without a model: a digest of the facts in the events, deterministic and bounded.

A digest is a fold over all forgotten events of the log, never over the last digest: a digest that
had little room says nothing about what the next one can say. It is a text of headings and lines. A
line ends with the id of the event that says it, so that the event can be read again.

    # Digest of 57 events, up to [56]; the conversation goes on
    ## Asked by the user
    - fix the date parser; no new dependencies [1]
    ## Files changed
    - (3 earlier left out)
    - src/dates.py: edited 4 times; last: def parse_week(text): [52]
    ## Commands run
    - `pytest -q` → exit 1 [56]

``fold.py`` is the fold, ``facts.py`` what calls do and how they end, ``commands.py`` commands of a
shell, ``names.py`` names, ``layout.py`` the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from foldlog.condensers.base import AgentModel, Overrun, Reason, Requirement, setting
from foldlog.condensers.models.estimate import ESTIMATE, counting
from foldlog.condensers.models.limits import window_in
from foldlog.condensers.selection import after_system_prompt, stands_for_forgotten
from foldlog.condensers.strategies.digest.fold import Digest as Digest
from foldlog.condensers.strategies.digest.layout import LENGTH_LEAST, text_of
from foldlog.condensers.strategies.summarizing import SummarizingCondenser, Summary, limit_of
from foldlog.condensers.strategies.user_words import of_user
from foldlog.eventstore import Event, Message, Retraction
from foldlog.projections import PastLog, View, begins_reply, contains, intervals_kept, words_of

_LENGTH_MIN = 500
"""The least ``max_length`` that a user may set."""

_LETTERS_A_TOKEN = 2
"""How long a digest may be for each estimated token that it replaces: a prompt gets shorter by it,
also on request.
"""

_TOKENS = 32_000
"""How many tokens a View may have besides its head where no limit of any kind is known, and no
reply of the agent names its model: few models take less.
"""

_MEMORY = "digest"
"""The name of the last fold in the memory of a View's past."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DigestCondenser(SummarizingCondenser):
    """Summarizes without a model, from the forgotten events: requests, steps, files, errors,
    commands, names.
    """

    type = "digest"

    max_size: int | None = setting(
        None,
        "a View with more events is condensed to a third of this number; by default only tokens"
        f" count, up to the limit, or to {_TOKENS:,} besides the head if no limit is known",
        ge=2,
    )
    max_length: int = setting(20_000, "how many characters a digest has at most", ge=_LENGTH_MIN)

    def summarize(self, events: Sequence[Event], max_event_length: int | None) -> Summary:
        return self._summary_of(Digest.of(events))

    def summary(self, view: View, span: slice, max_event_length: int | None) -> Summary:
        sums = ESTIMATE.token_sums(view)
        most = _LETTERS_A_TOKEN * (sums[span.stop] - sums[span.start])
        return self._summary_of(digest_of(view, view[span]), most)

    def _summary_of(self, digest: Digest, most: int | None = None) -> Summary:
        if most is None:
            length = self.max_length
        else:
            length = max(_LENGTH_MIN, min(most, self.max_length))

        def shorter(text: str) -> str | None:
            most = max(LENGTH_LEAST, len(text) * 7 // 8)
            return text_of(digest, most) if len(text) > LENGTH_LEAST else None

        return Summary(text_of(digest, length), shorter=shorter)

    def condensation_requirement(
        self, view: View, agent_llm: AgentModel | None = None
    ) -> Requirement | None:
        """Return how much a condensation is needed now. Nothing fails for want of one that no known
        limit asks for.
        """
        required = super().condensation_requirement(view, agent_llm)
        if (
            view.unhandled_condensation_request
            or super().limits(counting(agent_llm))[1] is not None
        ):
            return required
        return required and Requirement.SOFT

    def overrun(self, view: View, agent_llm: AgentModel | None) -> Overrun | None:
        if self.max_size is not None or super().limits(counting(agent_llm))[1] is not None:
            return super().overrun(view, counting(agent_llm))
        sums = ESTIMATE.token_sums(view)
        limit = limit_of(window_in(view), margin_ratio=self.token_margin_ratio)
        if limit is None:
            # so half of them are left for the tail
            limit = _TOKENS + 2 * sums[min(self._head(view), len(view))]
        # before the agent's first reply no event has been shown to it
        seen = any(map(begins_reply, view.events))
        if sums[-1] > limit and seen:
            return Overrun(sums, limit, ESTIMATE)
        return None

    def limits(self, agent_llm: AgentModel | None) -> tuple[int | None, int | None]:
        """Return the most events and tokens of a View that is not condensed; these besides the head
        if unknown.
        """
        known = super().limits(counting(agent_llm))[1]
        return self.max_size, _TOKENS if known is None and self.max_size is None else known

    def _head(self, view: View) -> int:
        """Return the number of events at the beginning that stay. What a runtime wrote before the
        user's first words does not count as the first message, and a digest is replaced also where
        it is the first event.
        """
        head = super()._head(view)
        if any(map(stands_for_forgotten, view.events[:head])):
            return after_system_prompt(view)
        while 0 < head < len(view) and _is_context(view.events[head - 1]):
            head += 1
        return head

    def _tails(self, view: View, due: Set[Reason]) -> list[int]:
        """Return two thirds of the tails beside a summary of a few lines: a digest tells more, and
        takes more room.
        """
        return [tail - max(0, tail) // 3 for tail in super()._tails(view, due)]


def default_condenser(
    *, max_size: int | None = None, keep_first: int = 1, max_tokens: int | None = None
) -> DigestCondenser:
    """Return the digest of a user who chooses no condenser: it works offline, costs nothing and is
    deterministic. It condenses by size, by tokens and on request. See
    ``docs/internals/decisions/0050-defaults-of-condensers.md``.
    """
    return DigestCondenser(max_size=max_size, keep_first=keep_first, max_tokens=max_tokens)


def _is_context(event: Event) -> bool:
    """Return whether an event is a message without a word of the user or the agent."""
    if not isinstance(event, Message) or event.source == "agent":
        return False
    return event.source == "environment" or not of_user(words_of(event.content)).asked


@dataclass(frozen=True, slots=True)
class _Folded:
    """A digest of the events before the id ``stop`` but those that the View ``shown`` there.
    ``newest`` is the last event that was folded in.
    """

    digest: Digest
    stop: int = 0
    shown: Set[int] = frozenset()
    newest: Event | None = None

    def goes_on(self, past: PastLog, stop: int, shown: Set[int]) -> bool:
        """Return whether a fold that goes on from here up to ``stop`` has the events that one from
        the start has.
        """
        if (
            self.stop > stop
            or self.newest is None
            or self.shown != {place for place in shown if place < self.stop}
        ):
            return False
        place = self.newest.id
        # an append that was rolled back left another
        return [*past.events(place, place + 1)] == [self.newest]


def digest_of(view: View, forgotten: Iterable[Event]) -> Digest:
    """Return the digest of all events of the log that ``view`` does not show once ``forgotten`` are
    gone, up to the last of these.

    The fold goes on from the digest of the last condensation, if the memory of the View's past has
    it. Cost: the events since then, else all events of the log. Raises what ``PastLog.events``
    raises.
    """
    going = {event.id for event in forgotten}
    past = view.state.past
    version = view.version
    if past is None:  # a View that was made by hand
        return Digest.of(event for event in view if event.id in going)
    stop = max(going) + 1
    shown = frozenset(event.id for event in view if 0 <= event.id < stop and event.id not in going)
    last = past.memory.get(_MEMORY)
    if not isinstance(last, _Folded) or not last.goes_on(past, stop, shown):
        last = _Folded(Digest())
    events = past.events(last.stop, version)
    if last.stop and any(isinstance(event, Retraction) for event in events):
        last = _Folded(Digest())
        events = past.events(0, version)
    kept = intervals_kept(events, version)
    new = [
        event
        for event in events
        if event.id < stop and event.id not in shown and contains(kept, event.id)
    ]
    digest = last.digest.plus(new)
    past.memory[_MEMORY] = _Folded(digest, stop, shown, new[-1] if new else last.newest)
    return digest
