"""What our condensers answer to a recorded case, in the words of the reference that recorded it."""

import json
import re
from dataclasses import dataclass
from functools import partial
from typing import Any

from foldlog.condensers.errors import NoCondensationAvailable
from foldlog.condensers.reports import is_standing, reports_of
from foldlog.condensers.strategies.forgetting import (
    AmortizedForgettingCondenser,
    ConversationWindowCondenser,
    LLMAttentionCondenser,
)
from foldlog.condensers.strategies.hiding import (
    BrowserOutputCondenser,
    NoOpCondenser,
    ObservationMaskingCondenser,
    RecentEventsCondenser,
    is_masked,
)
from foldlog.condensers.strategies.model_summaries import (
    TOOL_NAME,
    LLMSummarizingCondenser,
    StructuredSummaryCondenser,
)
from foldlog.condensers.strategies.pipeline import PipelineCondenser
from foldlog.eventstore.events import Action, CondensationAction, CondensationSummary, summary_of
from foldlog.projections import View, words_of
from tests.condensers.scripted import Scripted, called, failed

Json = dict[str, Any]

CONDENSERS = {
    "amortized": AmortizedForgettingCondenser,
    "browser_output_masking": BrowserOutputCondenser,
    "conversation_window": ConversationWindowCondenser,
    "noop": NoOpCondenser,
    "observation_masking": ObservationMaskingCondenser,
    "recent": RecentEventsCondenser,
}
WITH_A_MODEL = {
    "llm": partial(LLMSummarizingCondenser, token_margin_ratio=0.0),
    "llm_attention": LLMAttentionCondenser,
    "structured": StructuredSummaryCondenser,
}


def condenser_of(spec, script):
    parameters = {name: value for name, value in spec.items() if name != "type"}
    if spec["type"] == "pipeline":
        return PipelineCondenser(condenser_of(part, script) for part in spec["condensers"])
    if spec["type"] in WITH_A_MODEL:
        return WITH_A_MODEL[spec["type"]](script, **parameters)
    return CONDENSERS[spec["type"]](**parameters)


class CharacterAgent:
    """The agent's model of a V1 case: a token is so many characters of text."""

    model = "agent"
    max_output_tokens = None

    def __init__(self, chars_per_token=4, max_input_tokens=None):
        self.chars_per_token = chars_per_token
        self.max_input_tokens = max_input_tokens

    def token_sums(self, view):
        sums = [0]
        characters = 0
        for event in view:
            text = event.thought if isinstance(event, Action) else event.content
            characters += len(words_of(text))
            sums.append(characters // self.chars_per_token)
        return sums


@dataclass
class Answer:
    """An answer to one View in the reference's words: the outcome, the View after a condensation,
    and the keys of each report.
    """

    result: Json
    metadata_keys: list[list[str]]
    after: Json | None = None
    plan: CondensationAction | None = None


def answered(condenser, view, naming, describe, agent=None):
    """``naming`` returns what the reference calls an event; ``describe`` puts a View into the
    reference's words.
    """
    try:
        result, reports = condenser.step(view, agent)
    except NoCondensationAvailable as error:
        return Answer({"result": "error"}, keys_of(error.reports))
    if isinstance(result, View):
        return Answer({"result": "view", **describe(result)}, keys_of(reports))
    plan = result.action
    intervals, summaries = plan.forgotten
    forgotten_ids = set(summaries)
    for first, last in intervals:
        forgotten_ids |= set(range(first, last + 1))
    described = {
        "result": "condensation",
        "forgotten": [naming(event) for event in view if event.id in forgotten_ids],
        "summary": plan.summary,
        "summary_offset": plan.summary_offset,
    }
    return Answer(described, keys_of(reports_of(plan)), describe(view.then([plan])), plan)


def keys_of(reports):
    return [sorted(report) for report in reports if not is_standing(report)]


def script_of(case, source_ids):
    """Return the model of a case, with its replies in turn."""
    replies = case.get("llm_reply")
    llm = case.get("llm", {})
    return Scripted(
        *(
            reply_of(reply, source_ids)
            for reply in (replies if isinstance(replies, list) else [replies])
        ),
        function_calling=llm.get("function_calling", True),
        response_schema=llm.get("response_schema", True),
    )


def reply_of(recorded, source_ids):
    """Return the reply of the model that a case recorded. ``source_ids`` maps the ids of the
    reference to ours.
    """
    match recorded:
        case {"error": problem}:
            return failed("refused", problem)
        case {"ids": ids}:
            # The model was shown our ids, so it answers with them.
            own_ids = [source_ids.get(event_id, event_id + 10**6) for event_id in ids]
            return json.dumps({"ids": own_ids})
        case {"tool_args": arguments}:
            return called(arguments, recorded.get("tool_name", TOOL_NAME))
        case {"raw_tool_args": arguments}:
            return called(arguments)
        case {"no_tool_calls": True}:
            return "x"
    return recorded


def source_id(event):
    return event.origin.id if event.origin is not None else None


# --- V0 ---


def v0_view(view):
    """V0 knows no id for a summary, and none for a masked event."""
    nameless = {place for place, event in enumerate(view) if event.id < 0 or is_masked(event)}
    return {
        "ids": [
            None if place in nameless else source_id(event) for place, event in enumerate(view)
        ],
        "synthetic": [
            {"position": place, "text": view[place].content} for place in sorted(nameless)
        ],
        "unhandled_condensation_request": view.unhandled_condensation_request,
    }


def v0_calls(script, naming):
    """Return the events in the prompt of each call, and the previous summary."""
    calls = []
    for messages in script.calls:
        text = "\n".join(message["content"] for message in messages)
        previous = _PREVIOUS.search(text)
        calls.append(
            {
                "event_ids": [naming(int(event_id)) for event_id in _EVENT.findall(text)],
                "previous_summary": previous[1] if previous else None,
            }
        )
    return calls


_EVENT = re.compile(r"^<EVENT id=(-?\d+)>$", re.MULTILINE)
_PREVIOUS = re.compile(r"<PREVIOUS SUMMARY>\n(.*?)\n</PREVIOUS SUMMARY>", re.DOTALL)


# --- V1 ---


def v1_names(events):
    """Return a function that gives an event of a View the id that the reference gives it."""

    def naming(event):
        if event.id >= 0:
            return source_id(event)
        condensation = summary_of(event.id)
        if condensation < len(events):
            return f"{source_id(events[condensation])}-summary"
        return "next-summary"

    return naming


def v1_view(view, naming):
    """Return a View in the form in which the cases have recorded it."""
    ids = [naming(event) for event in view]
    return {
        "ids": ids,
        "summaries": [
            {"position": place, "id": ids[place], "text": event.content}
            for place, event in enumerate(view)
            if isinstance(event, CondensationSummary)
        ],
        "unhandled_condensation_request": view.unhandled_condensation_request,
    }
