"""A summary without a model: a digest of the facts in the events. A digest is deterministic and has
a maximum length.

A digest is made from all forgotten events of the log, and never from an earlier digest. A long
digest can thus list facts that a short earlier digest left out. A digest is a text of headings and
lines. A line ends with the id of the event that it comes from, so the agent can read this event
again.

    # Digest of 57 events, up to [56]; the conversation goes on
    ## Asked by the user
    - fix the date parser; no new dependencies [1]
    ## Files changed
    - (3 earlier left out)
    - src/dates.py: edited 4 times; last: def parse_week(text): [52]
    ## Commands run
    - `pytest -q` → exit 1 [56]

``fold.py`` contains the fold. ``facts.py`` finds out what calls do and how they end.
``order.py`` gives results of parallel calls the order of their calls. ``commands.py`` parses shell
commands, ``names.py`` finds names, ``rare.py`` finds facts in plain words, and ``layout.py`` writes
the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
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

LENGTH_MIN = 500
_LENGTH_MAX = 20_000

_LETTERS_A_TOKEN = 2
"""How many characters a digest may have for each estimated token that it replaces. The limit
guarantees that every digest makes the prompt shorter.
"""

_TOKENS = 32_000
"""How many tokens a View may have after its head, if the model's token limit is unknown. Few models
accept fewer tokens.
"""

_MEMORY = "digest"
"""The key of the last digest in ``PastLog.memory``."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DigestCondenser(SummarizingCondenser):
    """Summarizes without a model. The summary lists the requests, steps, files, errors, commands
    and names in the forgotten events.
    """

    type = "digest"

    max_size: int | None = setting(
        None,
        "a View with more events is condensed to a third of this number; by default, only the"
        f" token limit counts ({_TOKENS:,} tokens after the head if no limit is known)",
        ge=2,
    )
    max_length: int = setting(
        _LENGTH_MAX, "how many characters a digest has at most", ge=LENGTH_MIN
    )

    def summary(self, view: View, span: slice) -> Summary:
        return summary_of(view, span, self.max_length)

    def _has_limit(self, agent_llm: AgentModel | None) -> bool:
        return super().limits(counting(agent_llm))[1] is not None

    def urgency(
        self, view: View, due: Set[Reason], agent_llm: AgentModel | None = None
    ) -> Requirement:
        """Return how urgent a condensation is. A default limit requires only soft condensations, so
        a step never fails because of a default limit.
        """
        if Reason.REQUEST in due or self._has_limit(agent_llm):
            return super().urgency(view, due, agent_llm)
        return Requirement.SOFT

    def overrun(self, view: View, agent_llm: AgentModel | None) -> Overrun | None:
        """Return the token counts of a View that is too long. If the agent's model has no known
        limit, the limit is that of the model in the View, or a default.
        """
        if self.max_size is not None or self._has_limit(agent_llm):
            return super().overrun(view, counting(agent_llm))
        sums = ESTIMATE.token_sums(view)
        limit = limit_of(window_in(view), margin_ratio=self.token_margin_ratio)
        # The limit below is larger than _TOKENS, so most steps need not look for the head.
        if sums[-1] <= (_TOKENS if limit is None else limit):
            return None
        if limit is None:
            # With this limit, half of the tokens remain for the tail.
            limit = _TOKENS + 2 * sums[min(self._head(view), len(view))]
        # Before its first reply, the agent was shown no event.
        if sums[-1] > limit and any(map(begins_reply, view.events)):
            return Overrun(sums, limit, ESTIMATE)
        return None

    def size_limit(self, agent_llm: AgentModel | None) -> int | None:
        return self.max_size  # without a look at the limit of tokens

    def limits(self, agent_llm: AgentModel | None) -> tuple[int | None, int | None]:
        """Return how many events and how many tokens a View may have before it is condensed. If no
        token limit is known, the number of tokens does not include the head.
        """
        tokens = super().limits(counting(agent_llm))[1]
        return self.max_size, _TOKENS if tokens is None and self.max_size is None else tokens

    def _head(self, view: View) -> int:
        """Return how many events at the beginning stay. A message that a runtime wrote before the
        user's first message does not count as the first message. If the first event is a digest,
        the next digest replaces it.
        """
        head = super()._head(view)
        if any(map(stands_for_forgotten, view.events[:head])):
            return after_system_prompt(view)
        while 0 < head < len(view) and _is_context(view.events[head - 1]):
            head += 1
        return head

    def _tails(self, view: View, due: Set[Reason]) -> list[int]:
        # A digest is longer than a summary of a few lines, so it gets a third of the tail.
        return [tail - max(0, tail) // 3 for tail in super()._tails(view, due)]


def summary_of(view: View, span: slice, length_max: int = _LENGTH_MAX, above: str = "") -> Summary:
    """Return a digest of the events in ``span``, and of all events that were forgotten earlier:
    see ``digest_of``. The digest has at most ``length_max`` characters, and is shorter than the
    events in ``span``. If a summary stands above it, the digest leaves out what ``above`` says.
    Raises the errors of ``digest_of``.
    """
    sums = ESTIMATE.token_sums(view)
    replaced = _LETTERS_A_TOKEN * (sums[span.stop] - sums[span.start])
    digest = digest_of(view, view[span])
    if above:
        digest = digest.below(above)

    def shorter(text: str) -> str | None:
        most = max(LENGTH_LEAST, len(text) * 7 // 8)
        return text_of(digest, most) if len(text) > LENGTH_LEAST else None

    return Summary(text_of(digest, max(LENGTH_MIN, min(replaced, length_max))), shorter=shorter)


def default_condenser(
    *, max_size: int | None = None, keep_first: int = 1, max_tokens: int | None = None
) -> DigestCondenser:
    """Return the default condenser, a digest. A digest works offline, costs nothing and is
    deterministic. The default condenser condenses by size, by tokens and on request. See
    ``docs/internals/decisions/0050-defaults-of-condensers.md``.
    """
    return DigestCondenser(max_size=max_size, keep_first=keep_first, max_tokens=max_tokens)


def _is_context(event: Event) -> bool:
    if not isinstance(event, Message) or event.source == "agent":
        return False
    return event.source == "environment" or not of_user(words_of(event.content))


@dataclass(frozen=True, slots=True)
class _Folded:
    """The last digest of a conversation. ``digest`` covers all events with ids below ``stop``,
    except the events in ``shown``.
    """

    digest: Digest
    stop: int = 0
    shown: Set[int] = frozenset()
    newest: Event | None = None

    def can_be_continued(self, past: PastLog, stop: int, shown: Set[int]) -> bool:
        """Return whether the next digest may go on from this one: the log up to it is the same, and
        the View shows the same of its events.
        """
        if (
            self.stop > stop
            or self.newest is None
            or self.shown != {place for place in shown if place < self.stop}
        ):
            return False
        place = self.newest.id
        # After an append that was rolled back, the id may belong to another event.
        return [*past.events(place, place + 1)] == [self.newest]


def digest_of(view: View, forgotten: Iterable[Event]) -> Digest:
    """Digest all events of the log up to the last event in ``forgotten``, except the events that
    ``view`` still shows.

    Cost: if the last digest is in memory, the function reads only the events since the last
    condensation, and otherwise all events. Raises the errors of ``PastLog.events``.
    """
    going = {event.id for event in forgotten}
    past = view.state.past
    version = view.version
    assert past is not None  # every fold sets it
    stop = max(going) + 1
    shown = frozenset(event.id for event in view if 0 <= event.id < stop and event.id not in going)
    last = past.memory.get(_MEMORY)
    if not isinstance(last, _Folded) or not last.can_be_continued(past, stop, shown):
        last = _Folded(Digest())
    events = past.events(last.stop, version)
    if last.stop and any(isinstance(event, Retraction) for event in events):
        last = _Folded(Digest())
        events = past.events(0, version)
    intervals = intervals_kept(events, version)
    new = [
        event
        for event in events
        if event.id < stop and event.id not in shown and contains(intervals, event.id)
    ]
    digest = last.digest.plus(new)
    past.memory[_MEMORY] = _Folded(digest, stop, shown, new[-1] if new else last.newest)
    return digest.without_shown_requests(event for event in view if event.id not in going)
