"""Summaries that a model writes, either as free text or in eighteen fields. The model fills in the
fields by calling a tool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec import NODEFAULT, defstruct
from msgspec.structs import asdict

from foldlog.condensers.base import Reply, setting
from foldlog.condensers.models.agents_model import AskingCondenser
from foldlog.condensers.models.replies import (
    ask,
    fit_to_replace,
    made_by,
    read_json,
    report_on,
    useless,
)
from foldlog.condensers.prompts import load_prompt
from foldlog.condensers.prompts.rendering import event_blocks, previous_summary
from foldlog.condensers.strategies.summarizing import SummarizingCondenser, Summary
from foldlog.eventstore import Event


@dataclass(frozen=True, kw_only=True, eq=False)
class LLMSummarizingCondenser(AskingCondenser, SummarizingCondenser):
    """Lets a model summarize the forgotten events together with the previous summary."""

    type = "llm"
    size_by_default = 240

    keep_first: int = setting(2, "how many events at the head stay, except in a hard reset", ge=0)

    def summarize(self, events: Sequence[Event], max_event_length: int | None) -> Summary:
        return _summary(
            partial(ask, self.llm),
            "summary",
            events,
            max_event_length,
            lambda reply: reply.text or "",
        )


def _summary(
    ask_model: Callable[..., Reply],
    name: str,
    events: Sequence[Event],
    limit: int | None,
    text_of: Callable[[Reply], str],
) -> Summary:
    prompt = load_prompt(name)
    material = {
        "previous_summary": previous_summary(events, limit),
        "events": event_blocks(events, limit),
    }
    reply = ask_model(prompt.messages(tool=TOOL_NAME, **material))
    return Summary(
        fit_to_replace(reply, text_of(reply), events), made_by(reply, prompt), (report_on(reply),)
    )


# --- eighteen fields ---

TOOL_NAME = "create_state_summary"


PARTS: Mapping[str, Mapping[str, str]] = {
    "Core Information": {
        "user_context": "what the user wants: requirements, goals, clarifications",
        "completed_tasks": "what is done, each with its result in brief",
        "pending_tasks": "what is still to be done",
        "current_state": "variables, figures and anything else to remember now",
    },
    "Code Changes": {
        "files_modified": "files that were created or changed",
        "function_changes": "functions that were created or changed",
        "data_structures": "data structures that matter, used or changed",
        "dependencies": "imports and packages that were added or changed",
    },
    "Testing Status": {
        "tests_written": "whether tests were written: true, false or unknown",
        "tests_passing": "whether all tests pass: true, false or unknown",
        "failing_tests": "the tests that fail",
        "error_messages": "the errors that matter, word for word",
    },
    "Version Control": {
        "branch_created": "whether a branch was made for this work: true, false or unknown",
        "branch_name": "the branch that the work is on",
        "commits_made": "whether anything was committed: true, false or unknown",
        "pr_created": "whether a pull request was opened: true, false or unknown",
        "pr_status": "the state of the pull request: draft, open, merged, closed or unknown",
    },
    "Additional Context": {
        "other_relevant_context": "anything that matters and fits nowhere else",
    },
}
"""The parts of a structured summary, with the fields of each part and their descriptions for the
model.
"""

FIELDS: Mapping[str, str] = {
    name: meaning for part in PARTS.values() for name, meaning in part.items()
}

REQUIRED = ("user_context", "completed_tasks", "pending_tasks")

_State = defstruct(
    "_State", [(name, str, NODEFAULT if name in REQUIRED else "") for name in FIELDS], kw_only=True
)
"""The required fields have no default."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StructuredSummaryCondenser(AskingCondenser, SummarizingCondenser):
    """Lets a model summarize the forgotten events in eighteen fields, which are the arguments of a
    tool call.

    The condenser refuses a model that cannot call tools. If the call is missing, malformed or
    without a required field, the step fails and no event is forgotten.
    """

    type = "structured_summary"
    needs = "function_calling"

    def summarize(self, events: Sequence[Event], max_event_length: int | None) -> Summary:
        ask_model = partial(ask, self.llm, tools=(state_summary_tool(),), tool_choice=TOOL_NAME)
        return _summary(
            ask_model,
            "structured",
            events,
            max_event_length,
            lambda reply: _render(_state(reply)),
        )


def state_summary_tool() -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": TOOL_NAME,
            "description": (
                "Records the state of the work for an agent that will know only this record."
            ),
            "parameters": {
                "type": "object",
                "properties": {
                    name: {"type": "string", "description": meaning}
                    for name, meaning in FIELDS.items()
                },
                "required": [*REQUIRED],
            },
        },
    }


def _state(reply: Reply) -> dict[str, str]:
    call = next((call for call in reply.tool_calls if call.name == TOOL_NAME), None)
    if call is None:
        called_names = ", ".join(call.name for call in reply.tool_calls) or "nothing"
        raise useless(reply, f"the model should have called {TOOL_NAME}, but called {called_names}")
    state: dict[str, str] = asdict(
        read_json(reply, call.arguments, _State, f"the arguments of {TOOL_NAME}")
    )
    if not any(map(str.strip, state.values())):
        raise useless(reply, "the state summary is empty")
    return state


def _render(state: Mapping[str, str]) -> str:
    lines = ["# State Summary"]
    for part, names in PARTS.items():
        lines.append(f"## {part}")
        lines += [f"**{_label(name)}**: {state[name]}" for name in names]
    return "\n\n".join(lines)


def _label(name: str) -> str:
    return name.replace("_", " ").title().replace("Pr ", "PR ")
