"""What our condensers answer to a recorded case, in the words of the reference that recorded it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from foldlog.condensers.base import Condenser, Reply, Step, ToolCall
from foldlog.condensers.config.registry import condenser_from_config
from foldlog.condensers.errors import InvalidCondenser, ModelCallFailed, NoCondensationAvailable
from foldlog.condensers.reports import is_standing, reports_of
from foldlog.condensers.rolling import RollingCondenser
from foldlog.condensers.strategies.forgetting import (
    AmortizedForgettingCondenser,
    ConversationWindowCondenser,
    LLMAttentionCondenser,
)
from foldlog.condensers.strategies.model_summaries import TOOL_NAME, LLMSummarizingCondenser
from foldlog.condensers.strategies.pipeline import PipelineCondenser as CondenserPipeline
from foldlog.condensers.strategies.showing import (
    BrowserOutputCondenser,
    NoOpCondenser,
    ObservationMaskingCondenser,
    RecentEventsCondenser,
    is_masked,
)
from foldlog.eventstore.events import (
    Action,
    CondensationAction,
    CondensationSummary,
    Event,
    summary_of,
)
from foldlog.formats import decode
from foldlog.projections import View, words_of
from tests.conformance.v0_selection import V0LLMSummarizingCondenser, V0StructuredSummaryCondenser

Json = dict[str, Any]
Spec = Mapping[str, Any]

CANONICAL = {
    "amortized_forgetting": "amortized",
    "browser_output": "browser_output_masking",
    "recent_events": "recent",
}

V0_CLASS_DEFAULTS: Mapping[str, Json] = {
    "amortized": {"max_size": 100, "keep_first": 0},
    "browser_output_masking": {"attention_window": 1},
    "llm": {"max_size": 100, "keep_first": 1},
    "llm_attention": {"max_size": 100, "keep_first": 1},
    "observation_masking": {"attention_window": 5},
    "recent": {"keep_first": 1, "max_events": 10},
    "structured": {"max_size": 100, "keep_first": 1},
}
V1_CLASS_DEFAULTS: Mapping[str, Json] = {"llm": {"max_size": 240, "keep_first": 2}}


def type_of(spec: Spec) -> str:
    return CANONICAL.get(spec["type"], spec["type"])


def with_defaults(spec: Spec, defaults: Mapping[str, Json]) -> Json:
    """The parameters that the reference's class works with, and its parts' where it is a
    pipeline.
    """
    given = {key: value for key, value in spec.items() if key not in ("type", "via", "bogus")}
    full = {"type": type_of(spec), **defaults.get(type_of(spec), {}), **given}
    if "condensers" in full:
        full["condensers"] = [with_defaults(part, defaults) for part in full["condensers"]]
    return full


@dataclass
class Script:
    """The model of a case: its replies in turn, the last one again and again. ``calls`` are the
    prompts it got.
    """

    replies: list[Any]
    source_ids: Mapping[int, int]
    function_calling: bool = True
    response_schema: bool = True
    calls: list[Sequence[Mapping[str, Any]]] = field(default_factory=list)
    model: str = "scripted"

    @property
    def supports_function_calling(self) -> bool:
        return self.function_calling

    @property
    def supports_response_schema(self) -> bool:
        return self.response_schema

    def reply(self, call: int) -> Any:
        return self.replies[min(call, len(self.replies) - 1)]

    def asked(self) -> list[Any]:
        """The replies that were given so far."""
        return [self.reply(call) for call in range(len(self.calls))]

    def complete(self, messages: Sequence[Mapping[str, Any]], **how: Any) -> Reply:
        scripted = self.reply(len(self.calls))
        self.calls.append(messages)
        fields: Json = {
            "model": self.model,
            "response_id": "scripted-response",
            "finish_reason": "stop",
        }
        match scripted:
            case {"error": problem}:
                raise ModelCallFailed(self.model, "refused", problem, {"problem": problem})
            case {"ids": ids}:
                named = how.get("response_schema") is not None  # the model was shown our ids
                ours = (
                    [self.source_ids.get(source_id, source_id + 10**6) for source_id in ids]
                    if named
                    else ids
                )
                return Reply(text=json.dumps({"ids": ours}), **fields)
            case {"tool_args": arguments}:
                call = ToolCall(scripted.get("tool_name", TOOL_NAME), json.dumps(arguments))
                return Reply(text=None, tool_calls=(call,), **fields)
            case {"raw_tool_args": arguments}:
                return Reply(text=None, tool_calls=(ToolCall(TOOL_NAME, arguments),), **fields)
            case {"no_tool_calls": True}:
                return Reply(text="x", **fields)
            case None | str():
                return Reply(text=scripted, **fields)
        raise AssertionError(f"a reply that no model gives: {scripted}")


class CharacterAgent:
    """The agent's model of a V1 case: a token is so many characters of text."""

    model = "agent"
    max_output_tokens = None

    def __init__(self, chars_per_token: int = 4, max_input_tokens: int | None = None) -> None:
        self.chars_per_token, self.max_input_tokens = chars_per_token, max_input_tokens

    def token_sums(self, view: View) -> list[int]:
        sums, characters = [0], 0
        for event in view:
            characters += len(
                words_of(event.thought if isinstance(event, Action) else event.content)
            )  # type: ignore[union-attr]
            sums.append(characters // self.chars_per_token)
        return sums


@dataclass
class Answer:
    """An answer to one View, in the reference's words. ``named`` are our ids of what a condensation
    forgets.
    """

    result: Json
    after: Json | None = None
    named: frozenset[int] = frozenset()
    plan: CondensationAction | None = None
    shown: View | None = None
    metadata_keys: list[list[str]] = field(default_factory=list)


Naming = Callable[[Event], Any]
"""What the reference calls an event."""


def answered(
    condenser: Condenser,
    view: View,
    naming: Naming,
    describe: Callable[[View], Json],
    agent: Any = None,
    *,
    force: bool = False,
) -> Answer:
    """``describe`` puts a View into the reference's words. ``force`` asks for a condensation, due
    or not.
    """
    try:
        if force and isinstance(condenser, RollingCondenser):
            result, reports = Step(condenser.get_condensation(view, agent))
        else:
            result, reports = condenser.step(view, agent)
    except NoCondensationAvailable as error:
        return Answer(
            {"result": "error", "message": str(error)}, metadata_keys=_keys(error.reports)
        )
    if isinstance(result, View):
        return Answer(
            {"result": "view", **describe(result)}, shown=result, metadata_keys=_keys(reports)
        )
    plan = result.action
    intervals, summaries = plan.forgotten
    named = frozenset(
        {*summaries, *(i for first, last in intervals for i in range(first, last + 1))}
    )
    forgotten = [naming(event) for event in view if event.id in named]
    fields = {
        "forgotten": forgotten,
        "summary": plan.summary,
        "summary_offset": plan.summary_offset,
    }
    after = describe(view.then([plan]))
    return Answer(
        {"result": "condensation", **fields},
        after,
        named,
        plan,
        metadata_keys=_keys(reports_of(plan)),
    )


def _keys(reports: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    return [sorted(batch) for batch in reports if not is_standing(batch)]


# --- V0 ---


def v0_history(records: Sequence[Json]) -> list[Event]:
    return list(decode(records, format="openhands-v0", as_history=True))


def v0_condenser(spec: Spec, script: Script) -> Condenser:
    if spec.get("via") == "config":
        return condenser_from_config(
            _with_model({key: value for key, value in spec.items() if key != "via"})
        )
    full = with_defaults(spec, V0_CLASS_DEFAULTS)
    name = full.pop("type")
    match name:
        case "noop":
            return NoOpCondenser()
        case "conversation_window":
            return ConversationWindowCondenser()
        case "pipeline":
            return CondenserPipeline(v0_condenser(part, script) for part in full["condensers"])
        case "llm":
            return V0LLMSummarizingCondenser(script, **V0_RULES, **full)
        case "structured":
            return V0StructuredSummaryCondenser(script, **V0_RULES, **full)
        case "llm_attention":
            return LLMAttentionCondenser(script, **full)
        case "amortized":
            return AmortizedForgettingCondenser(**full)
        case "browser_output_masking":
            return BrowserOutputCondenser(**full)
        case "observation_masking":
            return ObservationMaskingCondenser(**full)
        case "recent":
            return RecentEventsCondenser(**full)
    raise InvalidCondenser(f"unknown condenser type {name!r}")


V0_RULES: Json = {"minimum_progress": 1e-9}
"""V0 has no minimum of progress, and its own arithmetic: see ``v0_selection``."""


def _with_model(spec: Spec) -> Json:
    if type_of(spec) in ("llm", "structured", "llm_attention"):
        return {
            **spec,
            "llm_config": {"model": "scripted", "function_calling": True, "response_schema": True},
        }
    return dict(spec)


def v0_script(case: Json, events: Sequence[Event]) -> Script:
    replies, llm = case.get("llm_reply"), case.get("llm", {})
    return Script(
        replies if isinstance(replies, list) else [replies],
        {source_id(event): event.id for event in events},
        llm.get("function_calling", True),
        llm.get("response_schema", True),
    )


def source_id(event: Event) -> Any:
    return event.origin.id if event.origin is not None else None


def v0_view(view: View, naming: Naming = source_id) -> Json:
    """V0 knows no id for a summary, and none for a masked event."""
    nameless = [event.id < 0 or is_masked(event) for event in view]
    return {
        "ids": [
            None if hidden else naming(event) for event, hidden in zip(view, nameless, strict=True)
        ],
        "synthetic": [
            {"position": place, "text": event.content}  # type: ignore[union-attr]
            for place, (event, hidden) in enumerate(zip(view, nameless, strict=True))
            if hidden
        ],
        "unhandled_condensation_request": view.unhandled_condensation_request,
    }


def v0_calls(script: Script, naming: Callable[[int], Any]) -> list[Json]:
    """For each call the events in the prompt, and the previous summary."""
    calls = []
    for messages in script.calls:
        text = "\n".join(message["content"] for message in messages)
        previous = _PREVIOUS.search(text)
        ids = [naming(int(event_id)) for event_id in _EVENT.findall(text)]
        summary = previous[1] if previous else None
        calls.append(
            {"event_ids": ids, "previous_summary": None if summary == NO_SUMMARY else summary}
        )
    return calls


_EVENT = re.compile(r"^<EVENT id=(-?\d+)>$", re.MULTILINE)
_PREVIOUS = re.compile(r"<PREVIOUS SUMMARY>\n(.*?)\n</PREVIOUS SUMMARY>", re.DOTALL)
NO_SUMMARY = "(none: this is the first)"


# --- V1 ---


def v1_condenser(spec: Spec, script: Script) -> Condenser:
    full = with_defaults(spec, V1_CLASS_DEFAULTS)
    match full.pop("type"):
        case "noop":
            return NoOpCondenser()
        case "pipeline":
            return CondenserPipeline(v1_condenser(part, script) for part in full["condensers"])
        case "llm":
            return LLMSummarizingCondenser(script, token_margin_ratio=0.0, **full)
    raise AssertionError(f"V1 has no condenser {spec['type']!r}")


def v1_names(events: Sequence[Event]) -> Naming:
    def naming(event: Event) -> Any:
        if event.id >= 0:
            return source_id(event)
        condensation = summary_of(event.id)
        return (
            f"{source_id(events[condensation])}-summary"
            if condensation < len(events)
            else "next-summary"
        )

    return naming


def v1_view(view: View, naming: Naming) -> Json:
    ids = [naming(event) for event in view]
    summaries = [
        place for place, event in enumerate(view) if isinstance(event, CondensationSummary)
    ]
    return {
        "ids": ids,
        "summaries": [
            {"position": at, "id": ids[at], "text": view[at].content} for at in summaries
        ],  # type: ignore[union-attr]
        "unhandled_condensation_request": view.unhandled_condensation_request,
    }
