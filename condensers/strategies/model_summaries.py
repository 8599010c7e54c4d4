"""Summaries that a model writes, either as free text or in the fields of ``state_fields.py``."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal, NamedTuple

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog.condensers.base import (
    AgentModel,
    CompletionOptions,
    Condensation,
    Condenser,
    Report,
    setting,
)
from foldlog.condensers.errors import (
    OUT_OF_REACH,
    InvalidCondenser,
    ModelCallFailed,
    NoCondensationAvailable,
)
from foldlog.condensers.models.agents_model import AskingCondenser
from foldlog.condensers.models.caches import CacheRule
from foldlog.condensers.models.estimate import ESTIMATE, estimate
from foldlog.condensers.models.limits import Window
from foldlog.condensers.models.replies import ask, made_by, report_on, useless
from foldlog.condensers.prompts import load_prompt
from foldlog.condensers.prompts.rendering import (
    event_blocks,
    event_text,
    previous_summary,
    truncate,
)
from foldlog.condensers.reply import Reply, ToolCall
from foldlog.condensers.reports import DOUBTFUL, NOT_JUDGED, Usage, without_failure
from foldlog.condensers.rolling import ModelUse, model_use
from foldlog.condensers.strategies.digest import LENGTH_MIN, summary_of
from foldlog.condensers.strategies.digest.facts import one_line
from foldlog.condensers.strategies.digest.fold import BETWEEN, without_digest
from foldlog.condensers.strategies.next_prompt import Request, next_prompt
from foldlog.condensers.strategies.parts import next_part, size_of
from foldlog.condensers.strategies.savings import REPLY, SUMMARY
from foldlog.condensers.strategies.state_fields import (
    FIELDS,
    REQUIRED,
    TOOL_NAME,
    WHOLE_SENTENCES,
    close_json,
    state_summary_tool,
    text_of_state,
)
from foldlog.condensers.strategies.summarizing import SummarizingCondenser, Summary, limit_of
from foldlog.condensers.strategies.summary_check import Judgement, fit_to_replace, judge_summary
from foldlog.eventstore import CondensationSummary, Event
from foldlog.projections import View


class _Written(NamedTuple):
    """A summary that a model wrote, with the reports on its calls."""

    text: str
    reply: Reply
    reports: tuple[Report, ...]
    is_cut: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelSummaryCondenser(AskingCondenser, SummarizingCondenser):
    """Lets a model write the summaries. If the model cannot read all events at once, it gets them
    in parts, each with the summary of the parts before it.
    """

    prompt_file: ClassVar[str]
    """The name of the file with the prompt that quotes the forgotten events."""

    next_prompt_file: ClassVar[str]
    """The name of the file with the message that is added to the agent's next prompt."""

    max_event_length: int | None = setting(
        10_000, "how many characters of an event the summarizer sees; a negative number means all"
    )
    prompt: Literal["events", "continue"] = setting(
        "events",
        "what the model is asked: a prompt with the forgotten events, or (`continue`) the agent's"
        " next prompt, most of which the server has cached",
    )
    digest_length: int = setting(
        0,
        "how many characters a digest of the forgotten events has at most below the model's text"
        " (0: no digest; 500 or more): the text says what was decided and why, and the digest keeps"
        " the names",
        ge=0,
    )
    max_parts: int = setting(
        8,
        "into how many parts the events are divided at most if the model cannot read all at once",
        ge=1,
    )
    hard_context_reset_max_retries: int = setting(
        5, "how many times the hard reset is tried if fallback is false", ge=1
    )
    hard_context_reset_context_scaling: float = setting(
        0.8,
        "each retry of the hard reset multiplies the length limit of an event by this factor",
        gt=0,
        lt=1,
    )

    def check_sizes(self) -> None:
        super().check_sizes()
        if self.prompt not in ("events", "continue"):
            raise InvalidCondenser(f"prompt ({self.prompt!r}) must be 'events' or 'continue'")
        if 0 < self.digest_length < LENGTH_MIN:
            raise InvalidCondenser(
                f"digest_length ({self.digest_length}) must be 0, for no digest, or at least"
                f" {LENGTH_MIN} characters"
            )

    def for_agent(self, agent_llm: AgentModel | None) -> Condenser:
        asked = None if self.llm is None else self.llm.model
        agents = asked if agent_llm is None or agent_llm is ESTIMATE else agent_llm.model
        if self.prompt == "continue" and asked not in (None, agents):
            raise InvalidCondenser(
                f"prompt = 'continue' reads the cache of the agent's model {agents!r}, but the"
                f" condenser {self.type!r} asks {asked!r}; name no model, or set prompt = 'events'"
            )
        return super().for_agent(agent_llm)

    def _request(self, events: Sequence[Event], length: int | None) -> Request:
        prompt = load_prompt(self.prompt_file)
        # The next digest is made from the log again, so the model need not read the last one.
        earlier = (
            without_digest(event.content)
            for event in events
            if isinstance(event, CondensationSummary)
        )
        messages = prompt.messages(
            tool=TOOL_NAME,
            previous_summary=previous_summary(earlier, length),
            events=event_blocks(events, length),
        )
        return Request(prompt, messages, self._options())

    def _options(self) -> CompletionOptions:
        """Return further arguments of ``Summarizer.complete`` for a prompt with events."""
        return {}

    def _ask(self, request: Request, *further: JsonMap) -> Reply:
        """Return the model's reply to the request and to ``further`` messages. Raises the errors of
        ``ask``. Also raises ``ModelCallFailed`` if the model calls a tool of the agent.
        """
        try:
            reply = ask(self.llm, [*request.messages, *further], request.options)
        except ModelCallFailed as error:
            if request.continues and error.partial is not None and error.partial.tool_calls:
                error.partial = None
            raise
        if request.continues and reply.tool_calls:
            called_names = ", ".join(call.name for call in reply.tool_calls)
            raise useless(
                reply, f"the model should have written a summary, but called {called_names}"
            )
        return reply

    @abstractmethod
    def _text(self, reply: Reply) -> str:
        """Return the summary in a reply. Raises ``ModelCallFailed`` if the reply has none."""

    @abstractmethod
    def _complete(self, request: Request, partial: Reply, cut: ModelCallFailed) -> _Written:
        """Return the summary in the reply ``partial``, which was cut off. Raises
        ``ModelCallFailed`` if the reply cannot be used.
        """

    @property
    def _is_spared(self) -> bool:
        return self.fallback and model_use.get() is ModelUse.SPARE

    def summary(self, view: View, span: slice) -> Summary:
        """Return the model's summary of the events in ``span``. A digest follows a text that is
        doubtful, or takes its place if the model is spared. Raises ``ModelCallFailed``.
        """
        if self._is_spared:
            instead = {"condenser": "digest", "instead_of": self.type}
            return replace(summary_of(view, span), metadata=instead)
        if self.prompt == "continue":
            summary = self._continue(view, span)
        else:
            summary = self._summarize(view[span], self.max_event_length)
        if summary.metadata.keys() & {NOT_JUDGED, DOUBTFUL}:
            length = max(self.digest_length, _LENGTH_IN_DOUBT)
            return _above(summary, summary_of(view, span, length))
        if not self.digest_length:
            return summary
        return _above(summary, summary_of(view, span, self.digest_length, above=summary.text))

    def _continue(self, view: View, span: slice) -> Summary:
        """Return the model's reply to the agent's next prompt. If this prompt is too long for the
        model, return a summary of the events alone.
        """
        prompt = load_prompt(self.next_prompt_file)
        fields = "\n".join(f"{name}: {meaning}" for name, meaning in FIELDS.items())
        request = next_prompt(
            view, span, self.llm, prompt, required=", ".join(REQUIRED), fields=fields
        )
        try:
            return self._write(request, view[span], view[: span.start])
        except ModelCallFailed as error:
            if error.failure != "context_window":
                raise
            summary = self._summarize(view[span], self.max_event_length)
            return replace(summary, reports=(*error.reports, *summary.reports))

    def prompt_cost(self, sums: Sequence[int], span: slice, rule: CacheRule) -> float:
        forgotten: int = sums[span.stop] - sums[span.start]
        prompt = rule.read * sums[-1] if self.prompt == "continue" else forgotten
        return prompt + REPLY * SUMMARY * forgotten

    def condense_without_model(
        self, view: View, agent_llm: AgentModel | None = None
    ) -> Condensation:
        """Return the condensation that the model should have summarized, with a digest."""
        try:
            return self.get_condensation(view, agent_llm)
        except NoCondensationAvailable as unavailable:
            return self._reset(view, agent_llm, unavailable)

    def summary_for_reset(self, view: View, span: slice) -> Summary:
        """Return a summary of the events in ``span``. If the model fails, it is asked again with
        shorter texts of the events.
        """
        if self._is_spared:
            return self.summary(view, span)
        failures = list[ModelCallFailed]()
        reports = list[Report]()
        for limit in self._reset_limits(view[span]):
            try:
                summary = self._summarize(view[span], limit)
            except ModelCallFailed as error:
                failures.append(error)
                reports += error.reports
                if error.failure in OUT_OF_REACH:
                    break
            else:
                return replace(summary, reports=(*reports, *summary.reports))
        raise NoCondensationAvailable(
            f"the hard context reset failed in {len(failures)} of at most"
            f" {self.hard_context_reset_max_retries} tries, with {len(reports)} calls of the model."
            f" The last failure: {failures[-1].problem}",
            tuple(reports),
        ) from failures[-1]

    def _reset_limits(self, events: Sequence[Event]) -> Iterator[int | None]:
        yield self.max_event_length
        limit = max(len(truncate(event_text(event), self.max_event_length)) for event in events)
        for _ in range(self.hard_context_reset_max_retries - 1):
            limit = max(1, int(limit * self.hard_context_reset_context_scaling))
            yield limit

    def _reset(
        self, view: View, agent_llm: AgentModel | None, unavailable: NoCondensationAvailable
    ) -> Condensation:
        cause = unavailable.__cause__
        if isinstance(cause, ModelCallFailed) and cause.failure in OUT_OF_REACH:
            raise unavailable
        return super()._reset(view, agent_llm, unavailable)

    def _summarize(self, events: Sequence[Event], length: int | None) -> Summary:
        try:
            return self._write(self._request(events, length), events)
        except ModelCallFailed as error:
            room = self._room(events, length)
            if error.failure != "context_window" or room is None:
                raise
            return self._summarize_parts(events, length, room, error)

    def _room(self, events: Sequence[Event], length: int | None) -> int | None:
        """Return how many estimated tokens a part may have, with its previous summary, if all
        ``events`` together were too long. Returns None if the model's window is unknown, and a
        single event was too long.
        """
        # A little more than half, so that the second half fits too, with the summary of the first.
        smaller = size_of(events, length) * 5 // 8
        model: object = self.llm
        window = limit_of(model) if isinstance(model, Window) else None
        if window is not None:
            return min(smaller, window - estimate(load_prompt(self.prompt_file).text))
        return smaller if len(events) > 1 else None

    def _summarize_parts(
        self, events: Sequence[Event], length: int | None, room: int, overflow: ModelCallFailed
    ) -> Summary:
        """Return a summary that the model writes of one part after another, each with the summary
        of the parts before it. ``room`` is how many estimated tokens a part may have. Raises
        ``ModelCallFailed``, with ``overflow`` if no part is small enough.
        """
        reports = overflow.reports
        previous: list[Event]
        previous = [event for event in events if isinstance(event, CondensationSummary)]
        rest = [event for event in events if not isinstance(event, CondensationSummary)]
        refused = size_of(rest, length)
        parts = list[Summary]()
        while rest:
            part_max = max(room - size_of(previous, length), room // 2)
            stop, part_length = next_part(rest, length, part_max, self.max_parts - len(parts))
            size = size_of(rest[:stop], part_length)
            if size >= refused:
                overflow.reports = reports
                raise overflow
            try:
                part = (*previous, *rest[:stop])
                summary = self._write(self._request(part, part_length), part)
            except ModelCallFailed as error:
                reports += error.reports
                if error.failure != "context_window":
                    error.reports = reports
                    raise
                room //= 2
                refused = size
                overflow = error
                continue
            reports += summary.reports
            previous = [CondensationSummary(content=summary.text)]
            rest = rest[stop:]
            parts.append(summary)
        if not parts:
            raise overflow
        metadata = {**_with_costs(parts[-1].metadata, reports), "parts": len(parts)}
        return replace(parts[-1], metadata=metadata, reports=reports)

    def _write(
        self, request: Request, events: Sequence[Event], before: Sequence[Event] = ()
    ) -> Summary:
        try:
            reply = self._ask(request)
            written = _Written(self._text(reply), reply, (report_on(reply),))
        except ModelCallFailed as error:
            if error.partial is None:
                raise
            written = self._complete(request, error.partial, error)
        metadata = _with_costs(made_by(written.reply, request.prompt), written.reports)
        if written.is_cut:
            metadata["cut"] = True
        try:
            text = fit_to_replace(written.reply, written.text, events)
            judge = partial(judge_summary, text, events, request.prompt, before)
            if doubt := self._doubt(written.reply, text, judge):
                metadata[doubt] = True
        except ModelCallFailed as error:
            error.reports = (*written.reports[:-1], *error.reports)
            raise
        return Summary(text, metadata, written.reports)

    def _doubt(self, reply: Reply, text: str, judge: Callable[[], Judgement]) -> str:
        """Return ``Judgement.doubt``. Raises ``ModelCallFailed`` if the text is no summary."""
        # A condenser that is used alone takes what it gets.
        if model_use.get() is ModelUse.RETRY:
            return ""
        judgement = judge()
        if judgement.problem:
            raise useless(reply, f"{one_line(text, 80)!r} is no summary: {judgement.problem}")
        return judgement.doubt if self.fallback else ""


_LENGTH_IN_DOUBT = 6_000
"""How many characters a digest below a doubtful text has at most, if ``digest_length`` is not more.
"""


def _with_costs(metadata: JsonMap, reports: Sequence[Report]) -> JsonObject:
    # The metadata of a summary of one call has the cost of this call already.
    if len(reports) < 2:
        return {**metadata}
    spent = Usage.of(reports)
    return {**metadata, "cost": spent.cost, "latency_s": spent.latency_s}


def _above(summary: Summary, digest: Summary) -> Summary:
    """Return a model's summary with a digest below it. If this is too long, the digest is made
    shorter, and left out at last.
    """

    def shorter(text: str) -> str | None:
        below = text.removeprefix(start)
        if below == text:
            return None
        shorter_digest = digest.shorter(below)
        return summary.text if shorter_digest is None else start + shorter_digest

    start = f"{summary.text}{BETWEEN}"
    return replace(summary, text=start + digest.text, shorter=shorter)


@dataclass(frozen=True, kw_only=True, eq=False)
class LLMSummarizingCondenser(ModelSummaryCondenser):
    """Lets a model summarize the forgotten events together with the previous summary."""

    type = "llm"
    prompt_file = "summary"
    next_prompt_file = "next_summary"
    size_by_default = 240

    keep_first: int = setting(2, "how many events at the head stay, except in a hard reset", ge=0)

    def _text(self, reply: Reply) -> str:
        return reply.text or ""

    def _complete(self, request: Request, partial: Reply, cut: ModelCallFailed) -> _Written:
        # The model continues once. If its reply is cut off again, the whole sentences count, but in
        # a step of a handler, a digest takes the place of a text without an end.
        text = partial.text or ""
        answer = {"role": "assistant", "content": text}
        wish = {"role": "user", "content": load_prompt("finish").text.strip()}
        first = without_failure(cut.report)
        try:
            reply = self._ask(request, answer, wish)
        except ModelCallFailed as error:
            further = error.report
            if error.partial is not None:
                text = _joined(text, self._text(error.partial))
                further = without_failure(further)
            sentences = WHOLE_SENTENCES.match(text)
            if sentences is None or (error.partial is not None and self._has_digest):
                error.reports = (first, *error.reports)
                raise
            return _Written(sentences[0].strip(), partial, (first, further), is_cut=True)
        return _Written(_joined(text, self._text(reply)), reply, (first, report_on(reply)))


def _joined(text: str, rest: str) -> str:
    """Return a text that was cut off, with the rest that the model wrote. If the text ends in the
    middle of a word, and the rest begins a new sentence, the model did not go on from there. Then
    the whole sentences of the text stay.
    """
    if not (text[-1:].isalnum() and _BEGINS_ANEW.match(rest)):
        return text + rest
    sentences = WHOLE_SENTENCES.match(text)
    return rest if sentences is None else f"{sentences[0].rstrip()}\n\n{rest}"


_BEGINS_ANEW = re.compile(r"[A-Z\u00c0-\u00de](?=[a-z\u00df-\u00ff ])")


@dataclass(frozen=True, kw_only=True, eq=False)
class StructuredSummaryCondenser(ModelSummaryCondenser):
    """Lets a model summarize the forgotten events in eighteen fields, which are the arguments of a
    tool call.

    The condenser refuses a model that cannot call tools. If the call is missing, malformed or
    without a required field, the step fails and no event is forgotten.
    """

    type = "structured_summary"
    prompt_file = "structured"
    next_prompt_file = "next_structured"
    needs = "function_calling"

    def _options(self) -> CompletionOptions:
        return {"tools": (state_summary_tool(),), "tool_choice": TOOL_NAME}

    def _text(self, reply: Reply) -> str:
        return text_of_state(self._with_call(reply))

    def _with_call(self, reply: Reply) -> Reply:
        """Return the reply with its text as a call, if the model was asked for a JSON text."""
        if self.prompt != "continue" or reply.tool_calls or reply.text is None:
            return reply
        # Some models put the object into a code fence.
        text = reply.text[reply.text.find("{") :].strip().removesuffix("```")
        return replace(reply, tool_calls=(ToolCall(TOOL_NAME, text),))

    def _complete(self, request: Request, partial: Reply, cut: ModelCallFailed) -> _Written:
        # A model cannot continue the arguments of a call, so the fields that it wrote count.
        calls = tuple(
            ToolCall(call.name, close_json(call.arguments))
            for call in self._with_call(partial).tool_calls
        )
        text = self._text(replace(partial, tool_calls=calls))
        return _Written(text, partial, (without_failure(cut.report),), is_cut=True)
