"""The eighteen fields of a structured summary. The model fills them in by calling a tool."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import NODEFAULT, defstruct
from msgspec.structs import asdict

from foldlog._base.json_types import JsonObject
from foldlog.condensers.models.replies import read_json, useless
from foldlog.condensers.reply import Reply

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
    "Additional Context": {"other_relevant_context": "anything that matters and fits nowhere else"},
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

WHOLE_SENTENCES = re.compile(r".*(?:[.!?;。！？][\"')\]]*(?=\s|\Z)|(?=\n))", re.DOTALL)
"""Matches a text up to the end of its last whole sentence or line."""


def close_json(arguments: str) -> str:
    """Return the JSON object ``arguments``, which was cut off, up to its last whole field. If the
    text of the last field has a whole sentence, this text stays, up to its last whole sentence.
    """
    fields, comma, last = arguments.rpartition('",')
    sentences = WHOLE_SENTENCES.match(last.replace("\\n", "\n"))
    if sentences is not None and '":' in sentences[0]:
        last_field = sentences[0].rstrip().replace("\n", "\\n")
        return f'{fields}{comma}{last_field}"}}'
    return f'{fields}"}}'


def state_summary_tool() -> JsonObject:
    """Return the definition of the tool by which a model records the fields of a summary."""
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


def text_of_state(reply: Reply) -> str:
    """Return the fields in a reply as a text. Raises ``ModelCallFailed`` if the reply has no call
    with the required fields, or if all fields are empty.
    """
    call = next((call for call in reply.tool_calls if call.name == TOOL_NAME), None)
    if call is None:
        called_names = ", ".join(call.name for call in reply.tool_calls) or "nothing"
        raise useless(reply, f"the model should have called {TOOL_NAME}, but called {called_names}")
    state: dict[str, str] = asdict(
        read_json(reply, call.arguments, _State, f"the arguments of {TOOL_NAME}")
    )
    if not any(map(str.strip, state.values())):
        raise useless(reply, "the state summary is empty")
    lines = ["# State Summary"]
    for part, names in PARTS.items():
        lines.append(f"## {part}")
        lines += [f"**{_label(name)}**: {state[name]}" for name in names]
    return "\n\n".join(lines)


def _label(name: str) -> str:
    return name.replace("_", " ").title().replace("Pr ", "PR ")
