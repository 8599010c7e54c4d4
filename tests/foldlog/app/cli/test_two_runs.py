"""Two runs without a common past, side by side: the sentence about their first steps, and the table
of their tools.
"""

import pytest

from foldlog import Action, CondensationAction, SystemMessage
from tests.said import all_said, said


@pytest.mark.parametrize(
    "requests, redacted, words, heading",
    [
        (0, 0, "neither has a request or a reply", None),
        (1, 0, "their first request or reply is equal", "no request and no reply differs"),
        (2, 0, "their first 2 requests and replies are equal", "no request and no reply differs"),
        (1, 1, "their first request or reply is redacted, and was not compared", None),
        (2, 2, "their first 2 requests and replies are redacted, and were not compared", None),
        (
            2,
            1,
            "1 of their first 2 requests and replies is equal; 1 is redacted, and was not compared",
            "no request and no reply that was compared differs",
        ),
        (
            5,
            2,
            "3 of their first 5 requests and replies are equal; 2 are redacted, and were not"
            " compared",
            "no request and no reply that was compared differs",
        ),
    ],
)
def test_the_sentence_about_equal_runs_is_true(stored, foldlog, requests, redacted, words, heading):
    for name in ("a", "b"):
        stored[name].append([SystemMessage(content="Be kind."), *all_said(*"uvwxyz"[:requests])])
        for event_id in range(1, redacted + 1):
            stored[name].redact(event_id, reason="asked to", by="ann")
    lines = foldlog("diff a b").out.splitlines()
    assert lines[0] == f"a and b share no past; {words}"
    assert next((line for line in lines if line.startswith("no request")), None) == heading


def test_two_runs_without_requests_have_different_calls(stored, foldlog):
    for name in ("a", "b"):
        stored[name].append(Action(tool="run", arguments={"in": name}, call_id="k"))
    (sentence, *_) = foldlog("diff a b").out.splitlines()
    words = "their first request or call differs; 0 requests and calls in both"
    assert sentence == f"a and b share no past; {words}"


def test_tools_with_most_calls_come_first_and_the_others_are_counted(stored, foldlog):
    calls = {"a": [*"abcdefghijk", "a"], "b": ["z", "z", "z"]}
    for name, tools in calls.items():
        stored[name].append(said("go"))
        stored[name].append(
            [
                Action(tool=tool, arguments={}, call_id=f"k{number}")
                for number, tool in enumerate(tools)
            ]
        )
    lines = foldlog("diff a b").out.splitlines()
    rows = [line.split() for line in lines if line.startswith("calls of ")]
    assert [row[2:] for row in rows] == [
        ["z", "0", "3"],
        ["a", "2", "0"],
        *([tool, "1", "0"] for tool in "bcdefghi"),
        ["2", "other", "tools", "2", "0"],
    ]


def test_summaries_that_a_model_was_shown_are_no_events(stored, foldlog):
    forgotten = CondensationAction(
        forgotten_event_ids=(0,), summary="They greeted.", summary_offset=0
    )
    stored["a"].append([*all_said("hello", "go"), forgotten, said("now")])
    stored["b"].append(all_said("hello", "go", "then"))
    printed = foldlog("diff a b").out
    assert "a was shown 1 event and 1 summary, ≈ " in printed
