"""The common part of all condensers that replace the forgotten events by a summary.

A condensation is due if the View has more tokens than the agent's model accepts, if the View has
more than ``max_size`` events, or after a request. The condenser forgets the events between the head
and the tail, so that at most the part ``keep_ratio`` of the exceeded limit stays. One summary takes
the place of the forgotten events, and also summarizes the older summaries among them. The condenser
never makes a condensation that forgets too few events, saves no tokens, or has no usable summary.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import ClassVar, Final

from foldlog._base.json_types import JsonMap
from foldlog.condensers.base import AgentModel, Condensation, Overrun, Reason, Report, setting
from foldlog.condensers.errors import ModelCallFailed, NoCondensationAvailable
from foldlog.condensers.models.caches import CacheRule, cache_rule
from foldlog.condensers.models.estimate import ESTIMATE, estimate, token_sums_of, tokens_of
from foldlog.condensers.models.limits import Window
from foldlog.condensers.models.tokens import TokenCounter
from foldlog.condensers.reports import with_reports
from foldlog.condensers.rolling import RollingCondenser, check_sizes, reasons_by_size
from foldlog.condensers.selection import (
    after_system_prompt,
    count_logged,
    describe_unseen,
    forget,
    middle,
    next_cut,
)
from foldlog.condensers.strategies.savings import saves
from foldlog.eventstore import CondensationSummary, summary_id
from foldlog.eventstore.errors import count
from foldlog.projections import View, begins_reply

SMALL: Final = 512
"""A summary of at most ``SMALL`` tokens may be larger than the events that it replaces, because a
few events may be very short.
"""


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary of events. ``shorter`` returns a shorter version of a text that is too long, or
    None if there is no shorter version. A text that a model wrote has no shorter version.
    """

    text: str
    metadata: JsonMap = field(default_factory=dict)
    reports: tuple[Report, ...] = ()
    shorter: Callable[[str], str | None] = lambda text: None


@dataclass(frozen=True, kw_only=True, eq=False)
class SummarizingCondenser(RollingCondenser):
    """Selects the events to forget, refuses to forget too few events, and makes the hard reset. A
    subclass defines ``summary``.

    If the agent's model is unknown or its tokens cannot be counted, the condenser estimates the
    tokens. The estimate is more often too high than too low.
    """

    size_by_default: ClassVar[int] = 100

    max_size: int | None = setting(
        None,
        "a View with more events is condensed to the part `keep_ratio` of this number; None means"
        " 100 (llm: 240), or no limit if a token limit is known",
        ge=2,
    )
    keep_first: int = setting(1, "how many events at the head stay, except in a hard reset", ge=0)
    max_tokens: int | None = setting(
        None,
        "a limit for the agent's prompt, in addition to the model's limit; see Limits of tokens",
        ge=1,
    )
    keep_ratio: float = setting(
        0.5,
        "the part of the exceeded limit that a condensation leaves, without the summary: less makes"
        " fewer condensations and shorter prompts, and shows fewer events in their own words",
        gt=0,
        le=0.5,
    )
    token_margin_ratio: float = setting(
        0.1, "the part of the input limit that stays free", ge=0, lt=1
    )
    when_cheaper: bool = setting(
        False, "whether to condense also when this saves more than it costs; see Limits of tokens"
    )
    minimum_progress: float = setting(
        0.1, "a condensation must forget at least this part of the View", gt=0, lt=1
    )

    def check_sizes(self) -> None:
        check_sizes(self._events_max, self.keep_first, beside=1, keep_ratio=self.keep_ratio)

    @abstractmethod
    def summary(self, view: View, span: slice) -> Summary:
        """Return a summary of the events in ``span``. A model may need minutes. Raises
        ``ModelCallFailed`` if a model cannot write the summary.
        """

    def summary_for_reset(self, view: View, span: slice) -> Summary:
        """Return a summary of the events in ``span`` for the hard reset. Raises
        ``NoCondensationAvailable`` if a model cannot write the summary.
        """
        return self.summary(view, span)

    def reasons(self, view: View, agent_llm: AgentModel | None = None) -> frozenset[Reason]:
        due = reasons_by_size(view, self.size_limit(agent_llm))
        if self.overrun(view, agent_llm):
            due |= {Reason.TOKENS}
        if not due and self.when_cheaper and self._saves(view, agent_llm):
            return frozenset({Reason.COST})
        return due

    def prompt_cost(self, sums: Sequence[int], span: slice, rule: CacheRule) -> float:
        """Return the cost of the call for a summary of the events in ``span``, in new tokens: see
        ``savings``. Without a model, a summary costs nothing.
        """
        return 0.0

    def _saves(self, view: View, agent_llm: AgentModel | None) -> bool:
        """Return whether a condensation now would save more than it costs: see
        ``savings.saves``.
        """
        sums, counter = counted(view, agent_llm)
        head = next_cut(view.cut_points, self._head(view))
        if head is None:
            return False
        span = middle(view, head, self._tail_by_cost(view, head, agent_llm))
        if span is None:
            return False
        replies = (
            event.meta.get("model") for event in reversed(view.events) if begins_reply(event)
        )
        rule = cache_rule(str(next(filter(None, replies), counter.model)))
        return saves(view, sums, span, self.prompt_cost(sums, span, rule), rule)

    def _tail_by_cost(self, view: View, head: int, agent_llm: AgentModel | None) -> int:
        sums, counter = counted(view, agent_llm)
        stay = sums[head] + (sums[-1] - sums[head]) * _TAIL_BY_COST
        return Overrun(sums, sums[-1], counter).tail(head, stay / max(1, sums[-1]))

    def get_condensation(self, view: View, agent_llm: AgentModel | None = None) -> Condensation:
        span = self._middle(view, agent_llm)
        try:
            summary = self.summary(view, span)
        except ModelCallFailed as error:
            raise NoCondensationAvailable(
                f"Summarization LLM call failed: {error.problem}", error.reports
            ) from error
        return self._condensation(view, span, summary, agent_llm, "condensed")

    def hard_context_reset(
        self, view: View, agent_llm: AgentModel | None = None
    ) -> Condensation | None:
        """Forget all events between the first system prompt and the first call without a result.
        Returns None if no event of the log can be forgotten.
        """
        span = middle(view, after_system_prompt(view), 0)
        if span is None or not count_logged(view[span]):
            return None
        summary = self.summary_for_reset(view, span)
        return self._condensation(view, span, summary, agent_llm, "reset")

    @property
    def _events_max(self) -> int:
        return self.size_by_default if self.max_size is None else self.max_size

    def size_limit(self, agent_llm: AgentModel | None) -> int | None:
        return self.limits(agent_llm)[0]

    def limits(self, agent_llm: AgentModel | None) -> tuple[int | None, int | None]:
        # The default limit of events applies only if no token limit is known.
        tokens = limit_of(agent_llm, self.max_tokens, self.token_margin_ratio)
        return self._events_max if tokens is None else self.max_size, tokens

    def overrun(self, view: View, agent_llm: AgentModel | None) -> Overrun | None:
        return overrun_of(view, agent_llm, self.limits(agent_llm)[1])

    def _middle(self, view: View, agent_llm: AgentModel | None) -> slice:
        """Return the events to forget. Each reason for the condensation sets a limit for the size
        of the tail, and the smallest limit counts.

        The head may have more than ``keep_first`` events, because it includes the system prompt and
        ends with a whole unit. Raises ``NoCondensationAvailable`` if too few events of the log
        could be forgotten.
        """
        over = self.overrun(view, agent_llm)
        due = self.reasons(view, agent_llm)
        tails = self._tails(view, due if over else due - {Reason.TOKENS})
        head = next_cut(view.cut_points, self._head(view))
        start = len(view) if head is None else head
        if over:
            tails.append(self._tail_by_tokens(view, start, over))
        if Reason.COST in due:
            tails.append(self._tail_by_cost(view, start, agent_llm))
        span = middle(view, start, min(tails)) or slice(start, start)
        forgotten = count_logged(view[span])
        if forgotten >= max(1, self.minimum_progress * len(view)):
            return span
        if forgotten:
            raise NoCondensationAvailable(
                f"{forgotten} of {count(len(view), 'event')} could be forgotten, which is less than"
                f" the minimum progress of {self.minimum_progress:g}; set a smaller"
                " minimum_progress"
            )
        problem = (
            f"the View has {count(len(view), 'event')}, and none can be forgotten after its first"
            f" {start}"
        )
        if over and not over.has_room(start, self.keep_ratio):
            problem += (
                f": the first {count(start, 'event takes', 'events take')} {over.sums[start]}"
                f" tokens, and the prompt may have {over.limit}"
            )
        advice = (
            describe_unseen(view)
            or "; set a smaller keep_first, raise the limit, or go on without a condensation"
        )
        raise NoCondensationAvailable(problem + advice)

    def _tail_by_tokens(self, view: View, head: int, over: Overrun) -> int:
        """Return how many of the newest events stay after the first ``head`` events, so that the
        prompt has at most the part ``keep_ratio`` of the limit.

        ``head`` may be more than ``keep_first``, because it ends with a whole unit. If the first
        ``head`` events alone have more than this part, no tail is short enough. Then only
        ``keep_first`` events count as the head, but the prompt keeps its room for a summary. If
        the first ``head`` events alone exceed the limit, a shorter tail would be of no use.
        """
        if over.has_room(head, self.keep_ratio):
            return over.tail(head, self.keep_ratio)
        tail = over.tail(self._head(view), self.keep_ratio)
        if over.has_room(head, 1):
            return min(tail, over.tail(head, 1 - _SUMMARY))
        return tail

    def _head(self, view: View) -> int:
        return max(self.keep_first, after_system_prompt(view))

    def _tails(self, view: View, due: Set[Reason]) -> list[int]:
        """Return how many of the newest events may stay, for each of the reasons ``due``."""
        head_and_summary = self.keep_first + 1
        tails = []
        if Reason.REQUEST in due:
            tails.append(int(len(view) * self.keep_ratio) - head_and_summary)
        if Reason.EVENTS in due or not due:
            tails.append(int(self._events_max * self.keep_ratio) - head_and_summary)
        return tails

    def _condensation(
        self, view: View, span: slice, summary: Summary, agent_llm: AgentModel | None, outcome: str
    ) -> Condensation:
        """Return the condensation of the events in ``span``. Raises ``NoCondensationAvailable`` if
        the prompt would not get shorter.
        """
        forgotten = view[span]
        over = self.overrun(view, agent_llm)
        counter = over.counter if over else agent_llm
        tokens_before = tokens_of(view, counter)
        text, tokens_after = self._with_room(view, span, summary, counter, over, tokens_before)
        if tokens_before is not None and tokens_after is not None and tokens_after >= tokens_before:
            raise NoCondensationAvailable(
                f"with the summary, the View would have {tokens_after} tokens, and it has"
                f" {tokens_before} now; set a smaller keep_first, or a higher limit",
                summary.reports,
            )
        due = self.reasons(view, agent_llm)
        events_after = len(view) - len(forgotten) + 1
        metadata = {**self._metadata(view, events_after, due, outcome), **summary.metadata}
        if over is not None:
            metadata["tokens_max"] = over.limit
        if tokens_after is not None:
            metadata |= {"tokens_before": tokens_before, "tokens_after": tokens_after}
        if counter is ESTIMATE:
            metadata["tokens_estimated"] = True
        action = forget(forgotten, metadata, summary=text, offset=span.start)
        return Condensation(with_reports(action, summary.reports))

    def _with_room(
        self,
        view: View,
        span: slice,
        summary: Summary,
        counter: AgentModel | None,
        over: Overrun | None,
        tokens_before: int | None,
    ) -> tuple[str, int | None]:
        """Return the text of the summary, shortened if necessary, and the tokens of the prompt with
        this text.

        If the prompt exceeded a limit, the prompt may always have the part ``keep_ratio`` and a
        quarter of the limit, and the text may always have the part ``_SUMMARY`` within the limit. A
        text that exceeds both is shortened. If no version of the text is within the limit, because
        the other events fill the limit, the text gets the part ``_SUMMARY`` beside these events.
        Without a limit, the text is shortened until the prompt is smaller than before the
        condensation. If no version is short enough, the shortest version is returned. Raises
        ``NoCondensationAvailable`` if a model wrote a text that is too long for the limit.
        """

        def tokens_with(*texts: str) -> int | None:
            summaries = [
                CondensationSummary(id=summary_id(view.version), content=text) for text in texts
            ]
            return tokens_of(
                view.with_events((*view[: span.start], *summaries, *view[span.stop :])), counter
            )

        # The prompt gets the wanted size or, if no version is so short, the accepted size.
        wanted = accepted = math.inf
        if over is not None:
            reserved = (tokens_with() or 0) + over.limit * _SUMMARY
            room = over.limit * (self.keep_ratio + _SUMMARY_AT_MOST)
            wanted = max(room, min(reserved, over.limit))
            accepted = max(wanted, reserved)
        elif tokens_before is not None:
            wanted = accepted = tokens_before - 1
        text = summary.text
        tokens = tokens_with(text)
        longest_accepted: tuple[str, int] | None = None
        while tokens is not None and tokens > wanted:
            if longest_accepted is None and tokens <= accepted:
                longest_accepted = (text, tokens)
            shorter = summary.shorter(text)
            if shorter is None:
                if longest_accepted is not None:
                    text, tokens = longest_accepted
                break
            text = shorter
            tokens = tokens_with(text)
        if over is not None and tokens is not None and tokens > max(over.limit, accepted):
            self._check_length(summary, tokens, over.limit)
        return text, tokens

    def _check_length(self, summary: Summary, tokens: int, limit: int) -> None:
        """Raise ``NoCondensationAvailable`` if a model wrote a summary that is too long for the
        limit.
        """
        # Without reports, no model wrote the text, so there is no reply to reject.
        if not summary.reports or estimate(summary.text) <= SMALL:
            return
        *earlier, last = summary.reports
        problem = (
            f"with the summary of {len(summary.text):,} characters, the prompt would have {tokens}"
            f" tokens, and it may have {limit}"
        )
        failed = ModelCallFailed(str(summary.metadata.get("model", "")), "bad_reply", problem, last)
        raise NoCondensationAvailable(
            f"Summarization LLM call failed: {problem}", (*earlier, failed.report)
        ) from failed


def limit_of(
    agent_llm: Window | None, max_tokens: int | None = None, margin_ratio: float = 0.1
) -> int | None:
    """Return ``max_tokens`` or the model's own limit, whichever is smaller.

    The model's own limit is its input, minus the tokens reserved for its answer, minus a margin.
    The margin is ``margin_ratio`` of the input. The margin stays free because servers add tokens
    that foldlog cannot count. At most half of the input is reserved for an answer:
    docs/internals/decisions/0040-room-for-the-answer.md says why. For an agent without a model,
    ``agent_llm`` is ``ESTIMATE``, which has no limit: see ``counting``.
    """
    if agent_llm is None:
        return None
    limits = [] if max_tokens is None else [max_tokens]
    window = agent_llm.max_input_tokens
    if window is not None:
        reserve = min(agent_llm.max_output_tokens or 0, window // 2)
        limits.append(max(0, window - reserve - int(window * margin_ratio)))
    return min(limits, default=None)


def overrun_of(view: View, agent_llm: AgentModel | None, limit: int | None) -> Overrun | None:
    """Return the token counts of a View whose prompt exceeds ``limit``, or None if it does not, or
    if there is no model or no limit.
    """
    if agent_llm is None or limit is None:
        return None
    if isinstance(agent_llm, TokenCounter):
        most = agent_llm.tokens_at_most(view)
        if most is not None and most <= limit:
            return None  # Most prompts are far below the limit, and need no tokenizer.
    sums, counter = counted(view, agent_llm)
    return Overrun(sums, limit, counter) if sums[-1] > limit else None


def counted(view: View, agent_llm: AgentModel | None) -> tuple[Sequence[int], AgentModel]:
    """Return the counts of ``AgentModel.token_sums``, and who counted. If ``agent_llm`` cannot
    count, the tokens are estimated.
    """
    sums = token_sums_of(view, agent_llm)
    if sums is None or agent_llm is None:
        return ESTIMATE.token_sums(view), ESTIMATE
    return sums, agent_llm


_SUMMARY_AT_MOST = 1 / 4
_SUMMARY = 1 / 8
"""A summary that needs more than the part ``_SUMMARY_AT_MOST`` of a token limit is shortened, if
possible. It may always use the part ``_SUMMARY``, even if head and tail leave too little room.
"""

_TAIL_BY_COST = 1 / 4
"""The part of the tokens after the head that stays if a condensation is made for its savings."""
