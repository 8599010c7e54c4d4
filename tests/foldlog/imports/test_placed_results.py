"""Claude Code 2.1.88 wrote some results before their calls. A View shows such a result after its
call, figures count it once, and a redaction deletes it wherever it is. A call whose result was never
written gets the result that its program sends.
"""

import json
from itertools import pairwise

import pytest

from foldlog import Histories
from foldlog.eventstore import Observation
from foldlog.formats.resuming import WINDOW_MAX
from tests.foldlog.imports.imports import (
    bytes_of,
    events_of,
    figures_of,
    imported,
    new_store,
    redact_event,
)

SECRET = "the key hangs behind the rain barrel"
_TIME = "2026-05-02T07:00:0{}.000Z"


def line(number, uuid, parent, role, block, response=None):
    message = {"role": role, "content": [block]}
    if response is not None:
        message |= {"id": response, "model": "m"}
    return {
        "type": role,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": "garden",
        "timestamp": _TIME.format(number),
        "message": message,
    }


def text(words):
    return {"type": "text", "text": words}


ASKED = line(1, "u1", None, "user", text("Where is the key?"))
SAID = line(2, "a1", "u1", "assistant", text("I look."), "m1")
CALL = line(
    3, "c1", "a1", "assistant", {"type": "tool_use", "id": "t1", "name": "look", "input": {}}, "m1"
)
RESULT = line(
    4, "r1", "c1", "user", {"type": "tool_result", "tool_use_id": "t1", "content": SECRET}
)
ANSWER = line(5, "a2", "r1", "assistant", text("I found it."), "m2")
SOURCE = [ASKED, SAID, RESULT, CALL, ANSWER]
IN_ORDER = [ASKED, SAID, CALL, RESULT, ANSWER]


def write(path, lines):
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    return path


def prompt(history):
    return history.view().to_messages(dialect="anthropic")


def test_prompt_is_the_prompt_of_the_lines_in_order(store, tmp_path):
    with new_store() as other:
        imported(other, write(tmp_path / "in_order.jsonl", IN_ORDER))
        expected = prompt(Histories(other)["garden"])
    imported(store, write(tmp_path / "garden.jsonl", SOURCE))
    messages = prompt(Histories(store)["garden"])
    assert messages == expected
    assert SECRET in json.dumps(messages, default=str)


@pytest.mark.parametrize("failed", [False, True])
def test_figures_count_a_result_once(store, tmp_path, failed):
    block = {**RESULT["message"]["content"][0], "is_error": failed}
    result = {**RESULT, "message": {"role": "user", "content": [block]}}
    lines = [result if each is RESULT else each for each in SOURCE]
    imported(store, write(tmp_path / "garden.jsonl", lines))
    figures = figures_of(store, "garden")
    assert figures["state"] == "answer"
    assert figures["errors"] == failed
    events_of(store, "garden")
    assert figures_of(store, "garden") == figures


def use(call_id):
    return {"type": "tool_use", "id": call_id, "name": "look", "input": {}}


def far(parent):
    """More lines than a decoder reads again before it continues."""
    parents = [parent, *(f"p{number}" for number in range(2 * WINDOW_MAX))]
    return [
        line(4, uuid, above, "user", text("Are you there?"))
        for above, uuid in pairwise([*parents, "end"])
    ]


GROWING = {
    "the call follows its result": SOURCE,
    "the call comes far after its result": [
        ASKED,
        RESULT,
        *far("r1"),
        line(5, "c1", "end", "assistant", use("t1"), "m2"),
    ],
    "one of two calls has no result": [
        ASKED,
        line(2, "c1", "u1", "assistant", use("t1"), "m1"),
        line(3, "c2", "c1", "assistant", use("t2"), "m1"),
        RESULT,
        *far("r1"),
        {**ANSWER, "parentUuid": "end"},
    ],
}


@pytest.mark.parametrize("lines", GROWING.values(), ids=GROWING)
def test_source_that_grows_has_the_same_events(store, tmp_path, lines):
    path = tmp_path / "garden.jsonl"
    for length in [*range(1, len(lines), 5), len(lines) - 1, len(lines)]:
        imported(store, write(path, lines[:length]))
        events_of(store, "garden")
    with new_store() as other:
        imported(other, path)
        assert events_of(store, "garden") == events_of(other, "garden")
    assert any("placed_from" in event.meta for event in events_of(store, "garden"))


def entry(number, **message):
    return {
        "type": "message",
        "id": f"e{number}",
        "parentId": f"e{number - 1}" if number else None,
        "timestamp": "2026-05-02T07:00:00.000Z",
        "message": {"timestamp": 1, **message},
    }


def event(number, kind, **data):
    return {
        "type": kind,
        "id": f"e{number}",
        "parentId": f"e{number - 1}" if number else None,
        "timestamp": "2026-05-02T07:00:00.000Z",
        "data": data,
    }


PI = [
    {"type": "session", "id": "mill", "timestamp": "2026-05-02T07:00:00.000Z", "cwd": "/"},
    entry(0, role="user", content="Grind."),
    entry(
        1,
        role="assistant",
        content=[{"type": "toolCall", "id": "t1", "name": "grind", "arguments": {}}],
        provider="p",
    ),
    *(entry(number, role="bashExecution", command="ls") for number in range(2, 40)),
    entry(40, role="user", content="Does it turn?"),
]
COPILOT = [
    event(0, "session.start", sessionId="mill", version=1),
    event(1, "user.message", content="Grind."),
    event(2, "assistant.message", messageId="m1", toolRequests=[{"toolCallId": "t1"}]),
    *(event(number, "session.info", message=f"{number}") for number in range(3, 40)),
    event(40, "assistant.message", messageId="m2", content="It turns."),
]


@pytest.mark.parametrize("lines", [PI, COPILOT], ids=["pi", "copilot-cli"])
def test_call_far_above_gets_its_result_before_the_next_message(store, tmp_path, lines):
    path = tmp_path / "mill.jsonl"
    for length in (len(lines) - 1, len(lines)):
        imported(store, write(path, lines[:length]))
        events_of(store, "mill")
    with new_store() as other:
        imported(other, path)
        assert events_of(store, "mill") == events_of(other, "mill")
    *_, supplied, last = events_of(store, "mill")
    assert (supplied.call_id, supplied.is_error) == ("t1", True)
    assert "turn" in last.content


@pytest.mark.parametrize("number", [0, 1], ids=["in the source's place", "after the call"])
def test_redaction_deletes_both_events_and_the_record(store, tmp_path, number):
    imported(store, write(tmp_path / "garden.jsonl", SOURCE))
    results = [event for event in events_of(store, "garden") if isinstance(event, Observation)]
    assert [event.content for event in results] == [SECRET, SECRET]
    redact_event(store, "garden", results[number].id)
    assert SECRET not in repr(events_of(store, "garden"))
    assert SECRET.encode() not in bytes_of(store, "garden")


def test_export_has_the_lines_as_they_came(store, tmp_path):
    path = write(tmp_path / "garden.jsonl", SOURCE)
    imported(store, path)
    events_of(store, "garden")
    assert bytes_of(store, "garden") == path.read_bytes()
