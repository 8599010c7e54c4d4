"""Summaries written by a model: as free text, or in eighteen fields, which it fills in by calling a tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from msgspec import NODEFAULT, defstruct
from msgspec.structs import asdict

from foldlog.condensers.base import Reply, setting
from foldlog.condensers.models.agents_model import AskingCondenser
from foldlog.condensers.models.replies import ask, fit_to_replace, made_by, read_json, report_on, useless
from foldlog.condensers.prompts import load_prompt
from foldlog.condensers.prompts.rendering import event_blocks, previous_summary
from foldlog.condensers.strategies.summarizing import SummarizingCondenser, Summary
from foldlog.eventstore import Event


@dataclass(frozen=True, kw_only=True, eq=False)
class LLMSummarizingCondenser(AskingCondenser, SummarizingCondenser):
    """A model summarizes the forgotten events, building on its previous summary."""

    type = "llm"
    size_by_default = 240

    keep_first: int = setting(2, "how many events at the head stay, except in a hard reset", ge=0)

    def summarize(self, events: Sequence[Event], max_event_length: int | None) -> Summary:
        return _summary(partial(ask, self.llm), "summary", events, max_event_length, lambda reply: reply.text or "")


def _summary(
    asked: Callable[..., Reply], name: str, events: Sequence[Event], limit: int | None, text_of: Callable[[Reply], str]
) -> Summary:
    """Return the summary that a model writes if ``asked`` by a prompt. ``text_of`` takes it from the reply."""
    prompt = load_prompt(name)
    material = {"previous_summary": previous_summary(events, limit), "events": event_blocks(events, limit)}
    reply = asked(prompt.messages(tool=TOOL_NAME, **material))
    return Summary(fit_to_replace(reply, text_of(reply), events), made_by(reply, prompt), (report_on(reply),))


# --- eighteen fields ---

TOOL_NAME = "create_state_summary"


class Field(NamedTuple):
    """One field: its place in the rendered summary, and its description for the model."""

    name: str
    label: str
    part: str
    meaning: str
    required: bool = False


_CORE = "Core Information"
_CODE = "Code Changes"
_TESTS = "Testing Status"
_VCS = "Version Control"
_MORE = "Additional Context"

FIELDS = (
    Field("user_context", "User Context", _CORE, "what the user wants: requirements, goals, clarifications", True),
    Field("completed_tasks", "Completed Tasks", _CORE, "what is done, each with its result in brief", True),
    Field("pending_tasks", "Pending Tasks", _CORE, "what is still to be done", True),
    Field("current_state", "Current State", _CORE, "variables, figures and whatever else is held in mind now"),
    Field("files_modified", "Files Modified", _CODE, "files that were created or changed"),
    Field("function_changes", "Function Changes", _CODE, "functions that were created or changed"),
    Field("data_structures", "Data Structures", _CODE, "data structures that matter, used or changed"),
    Field("tests_written", "Tests Written", _TESTS, "whether tests were written: true, false or unknown"),
    Field("tests_passing", "Tests Passing", _TESTS, "whether all tests pass: true, false or unknown"),
    Field("failing_tests", "Failing Tests", _TESTS, "the tests that fail"),
    Field("error_messages", "Error Messages", _TESTS, "the errors that matter, word for word"),
    Field("branch_created", "Branch Created", _VCS, "whether a branch was made for this work: true, false or unknown"),
    Field("branch_name", "Branch Name", _VCS, "the branch that the work is on"),
    Field("commits_made", "Commits Made", _VCS, "whether anything was committed: true, false or unknown"),
    Field("pr_created", "PR Created", _VCS, "whether a pull request was opened: true, false or unknown"),
    Field("pr_status", "PR Status", _VCS, "of the pull request: draft, open, merged, closed or unknown"),
    Field("dependencies", "Dependencies", _CODE, "imports and packages that were added or changed"),
    Field("other_relevant_context", "Other Relevant Context", _MORE, "anything that matters and fits nowhere else"),
)
"""The eighteen fields, all text, in the order in which a model is asked for them."""

_State = defstruct("_State", [(each.name, str, NODEFAULT if each.required else "") for each in FIELDS], kw_only=True)
"""Arguments of this shape."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StructuredSummaryCondenser(AskingCondenser, SummarizingCondenser):
    """A model summarizes the forgotten events in eighteen fields, by a tool call that it must make.

    A model that cannot call tools is refused. A call that is missing, malformed or without a required field is a
    failure: then no events are forgotten.
    """

    type = "structured_summary"
    needs = "function_calling"

    def summarize(self, events: Sequence[Event], max_event_length: int | None) -> Summary:
        asked = partial(ask, self.llm, tools=(state_summary_tool(),), tool_choice=TOOL_NAME)
        return _summary(asked, "structured", events, max_event_length, lambda reply: _rendered(_state(reply)))


def state_summary_tool() -> dict[str, Any]:
    """Return the tool that the model must call, in OpenAI's shape."""
    return {
        "type": "function",
        "function": {
            "name": TOOL_NAME,
            "description": "Records the state of the work, for an agent that will know nothing else of it.",
            "parameters": {
                "type": "object",
                "properties": {field.name: {"type": "string", "description": field.meaning} for field in FIELDS},
                "required": [field.name for field in FIELDS if field.required],
            },
        },
    }


def _state(reply: Reply) -> dict[str, str]:
    """Return the known fields that the model filled in. Raises ``ModelCallFailed`` if the reply is not a state."""
    call = next((call for call in reply.tool_calls if call.name == TOOL_NAME), None)
    if call is None:
        called = ", ".join(call.name for call in reply.tool_calls) or "nothing"
        raise useless(reply, f"the model was to call {TOOL_NAME} and called {called}")
    state: dict[str, str] = asdict(read_json(reply, call.arguments, _State, f"the arguments of {TOOL_NAME}"))
    if not any(map(str.strip, state.values())):
        raise useless(reply, "the state summary is not usable: nothing is filled in")
    return state


def _rendered(state: Mapping[str, str]) -> str:
    lines = ["# State Summary"]
    for part in dict.fromkeys(field.part for field in FIELDS):
        lines.append(f"## {part}")
        lines += [f"**{field.label}**: {state[field.name]}" for field in FIELDS if field.part == part]
    return "\n\n".join(lines)
