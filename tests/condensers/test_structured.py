"""The structured summary: eighteen fields by a forced tool call, and what a malformed one costs:
nothing.
"""

from __future__ import annotations

import pytest

from foldlog.condensers.errors import InvalidCondenser, NoCondensationAvailable
from foldlog.condensers.strategies.model_summaries import (
    FIELDS,
    TOOL_NAME,
    StructuredSummaryCondenser,
    state_summary_tool,
)
from tests.condensers.made import REQUEST, after, condensed, messages, plan, viewed
from tests.condensers.scripted import FULL_STATE, Scripted, called, failed, said
from tests.said import ids

REQUIRED = {"user_context": "u", "completed_tasks": "c", "pending_tasks": "p"}

RENDERED = """# State Summary

## Core Information

**User Context**: u

**Completed Tasks**: c

**Pending Tasks**: p

**Current State**:

## Code Changes

**Files Modified**:

**Function Changes**:

**Data Structures**:

**Dependencies**:

## Testing Status

**Tests Written**:

**Tests Passing**:

**Failing Tests**:

**Error Messages**:

## Version Control

**Branch Created**:

**Branch Name**:

**Commits Made**:

**PR Created**:

**PR Status**:

## Additional Context

**Other Relevant Context**:"""


def structured(*answers, **parameters):
    return StructuredSummaryCondenser(Scripted(*answers), **{"max_size": 10, **parameters})


def test_there_are_eighteen_fields_and_three_are_required():
    parameters = state_summary_tool()["function"]["parameters"]
    assert len(FIELDS) == 18
    assert list(parameters["properties"]) == [*FIELDS]
    assert parameters["required"] == ["user_context", "completed_tasks", "pending_tasks"]


def test_the_model_is_made_to_call_the_tool():
    condenser = structured(called(FULL_STATE))
    condenser.condense(viewed(messages(11)))
    (how,) = condenser.llm.asked_how
    assert how["tool_choice"] == TOOL_NAME == how["tools"][0]["function"]["name"]


def test_the_summary_shows_every_field_in_its_part():
    view = viewed(messages(11))
    result = structured(called({**REQUIRED, "unknown": 3})).condense(view)
    assert [line.rstrip() for line in plan(result).summary.splitlines()] == RENDERED.splitlines()
    assert ids(after(view, result)) == [0, -13, 8, 9, 10]


USELESS = {
    "no call": said("I would rather talk"),
    "another tool": called(REQUIRED, tool="finish"),
    "no JSON": called("{"),
    "no object": called("[1]"),
    "no text": called({**REQUIRED, "files_modified": ["a.py"]}),
    "no pending tasks": called({"user_context": "u", "completed_tasks": "c"}),
    "nothing": called({}),
    "nothing in it": called(dict.fromkeys(FULL_STATE, " ")),
    "no end": called(dict.fromkeys(FULL_STATE, "x" * 100_000)),
    "a bottomless pit": called('{"user_context":' + "[" * 100_000),
    "no reply": failed(),
}


@pytest.mark.parametrize("name", USELESS)
def test_a_malformed_state_never_replaces_what_was_known(name):
    """T1: V0 puts an empty summary in the place of the old one."""
    view = viewed(messages(4), condensed(1, 2, summary="OLD", offset=1), messages(10))
    result, reports = structured(USELESS[name]).step(view)
    assert result is view
    assert len(reports) == 1


def test_what_was_wrong_is_told():
    with pytest.raises(
        NoCondensationAvailable, match=r"create_state_summary cannot be used: .*files_modified"
    ):
        structured(
            called({"user_context": "u", "completed_tasks": "c", "files_modified": 1})
        ).get_condensation(viewed(messages(11)))


def test_a_hard_requirement_asks_again():
    view = viewed(messages(11), REQUEST)
    result = structured(called({}), called(FULL_STATE)).condense(view)
    assert plan(result).metadata["outcome"] == "reset"


def test_a_model_that_calls_no_tools_is_refused_after_the_numbers_were_checked():
    mute = Scripted(function_calling=False)
    with pytest.raises(InvalidCondenser, match="has function_calling"):
        StructuredSummaryCondenser(mute)
    with pytest.raises(InvalidCondenser, match=r"keep_first \(2\)"):
        StructuredSummaryCondenser(mute, max_size=4, keep_first=2)
