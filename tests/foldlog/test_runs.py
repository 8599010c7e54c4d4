"""Two conversations without a common past beside each other: foldlog diff A B, and /api/compare."""

from __future__ import annotations

import json
import re

import pytest

import foldlog
from foldlog import Action, History, Message, Observation, SystemMessage
from foldlog._figures.prices import Prices
from foldlog._reports.runs import compared_runs
from foldlog.eventstore import KeyRing
from foldlog.eventstore.maintenance.erase import erase

USAGE = {"prompt_tokens": 1_000, "completion_tokens": 10}


def run(
    history: History,
    commands: list[str],
    results: dict[int, str] | None = None,
    *,
    as_text: bool = False,
) -> None:
    """A user's request, and an agent that makes these calls, two in its first reply."""
    history.append(
        [SystemMessage(content="You repair."), Message(source="user", content="Why does it fail?")]
    )
    for n, names in enumerate([commands[:2], *([each] for each in commands[2:])]):
        calls = []
        for command in names:
            given = {"command": command, "n": 1}
            arguments = json.dumps(dict(reversed(given.items())) if as_text else given)
            function = {"name": "run", "arguments": arguments}
            calls.append({"id": f"k{command}", "type": "function", "function": function})
        message = {"role": "assistant", "content": None, "tool_calls": calls}
        choice = {"finish_reason": "tool_calls", "message": message}
        history.append_reply(
            {"id": f"{history.id}-{n}", "model": "m", "choices": [choice], "usage": USAGE},
            cost=0.25,
        )
        for command in names:
            said = (results or {}).get(commands.index(command), f"out of {command}")
            history.append_tool_result(f"k{command}", said, is_error=said == "no")


@pytest.mark.parametrize("keys", [None, KeyRing(["11" * 32])], ids=["plain", "encrypted"])
def test_runs_are_aligned_by_what_was_asked_and_called(tmp_path, keys):
    with foldlog.open(f"sqlite:///{tmp_path}/a.db", keys=keys) as histories:
        run(histories["one"], ["a", "b", "c", "d"], {1: "yes"})
        run(histories["two"], ["a", "b", "x", "c", "e", "f"], {1: "no"}, as_text=True)
        found = compared_runs(histories.store, "one", "two", Prices())
        one, two = found.runs
        assert (one.requests, one.replies, one.calls, one.errors) == (1, 3, 4, 0)
        assert (two.requests, two.replies, two.calls, two.errors) == (1, 5, 6, 1)
        assert (one.spent.cost, one.spent.prompt_tokens, two.spent.completion_tokens) == (
            0.75,
            3_000,
            50,
        )
        assert (found.same_first, found.same) == (3, 4)  # the request, a and b; and c
        assert [each.gist for each in found.first_difference] == ["run: c", "run: x"]
        assert [(knew.version, knew.events) for knew in found.knew] == [(6, 6), (6, 6)]
        assert [[line.gist for line in knew.alone] for knew in found.knew] == [
            ["run: yes"],
            ["run: no"],
        ]
        steps = [(step.event, step.other_event, step.gist) for step in found.steps]
        assert steps == [
            (1, 1, "Why does it fail?"),
            (2, 2, "run: a"),
            (3, 3, "run: b"),
            (None, 6, "run: x"),
            (6, 8, "run: c"),
            (8, None, "run: d"),
            (None, 10, "run: e"),
            (None, 12, "run: f"),
        ]
        histories["two"].retract(6)
        histories["two"].append(Message(source="user", content="stop"))
        again = compared_runs(histories.store, "one", "two", Prices())
        # taken back, and made and paid all the same
        assert (again.runs[1].calls, again.runs[1].spent.calls) == (6, 5)
        assert [each and each.gist for each in again.first_difference] == ["run: c", "stop"]
        histories["one"].redact(1, reason="asked for")
        assert compared_runs(histories.store, "one", "two", Prices()).same_first == 0


def test_requests_in_other_words_are_beside_each_other_by_their_number(foldlog):
    with _opened() as histories:
        for name, polite in (("one", ""), ("two", "please ")):
            history = histories[name]
            for n, tools in enumerate((("run", "edit"), ("run",))):
                history.append(Message(source="user", content=f"{polite}do {n}"))
                history.append(
                    [
                        Action(tool=tool, arguments={"n": n})
                        for tool in (*tools, *["look"] * bool(polite))
                    ]
                )
                history.append(Message(source="agent", content=f"{name} did {n}"))
    ran = foldlog("diff one two --json").document
    assert [run["tools"] for run in ran["runs"]] == [
        {"run": 2, "edit": 1},
        {"run": 2, "look": 2, "edit": 1},
    ]
    assert [run["answer"]["gist"] for run in ran["runs"]] == ["one did 1", "two did 1"]
    steps = [
        (step["gist"].split(":")[0], step["event"] is None, step["other_event"] is None)
        for step in ran["steps"]
    ]
    mine, theirs, both = (False, True), (True, False), (False, False)
    assert steps == [
        *[
            ("do 0", *mine),
            ("please do 0", *theirs),
            ("run", *both),
            ("edit", *both),
            ("look", *theirs),
        ],
        *[("do 1", *mine), ("please do 1", *theirs), ("run", *both), ("look", *theirs)],
    ]
    out = foldlog("diff one two").out
    assert "their first requests differ; 3 requests and calls in both" in out
    assert re.search(r"^calls of look +0 +2$", out, re.MULTILINE)
    assert re.search(
        r"^the answers to the last requests\n- +6 +agent +one did 1\n\+ +8 +agent +two did 1$",
        out,
        re.M,
    )


LONG = "a long request " * 20


@pytest.mark.parametrize(
    "events, shown",
    [
        (
            [Message(source="user", content=f"{LONG}{n}{LONG}") for n in "12"],
            f"…{LONG[-40:]}{{}}{LONG[:119]}…",
        ),
        (
            [Message(source="user", content=f"\x9ba{n}b") for n in (" ", "\n")],
            '["Message", "\\u009ba{}b"]',
        ),
        (
            [Action(tool="run", arguments={"command": "ls", "n": n}) for n in (1, 2)],
            '…Action", ["run", {{"command": "ls", "n": {}}}, "agent"]]',
        ),
    ],
)
def test_the_first_difference_is_in_the_text_that_is_shown(tmp_path, events, shown):
    with foldlog.open(tmp_path / "a.db") as histories:
        for name, event in zip(("one", "two"), events, strict=True):
            histories[name].append(event)
        lines = compared_runs(histories.store, "one", "two", Prices()).first_difference
    differing = ("1", "2") if "…" in shown else (" ", "\\n")
    assert [line.gist for line in lines] == [shown.format(each) for each in differing]


def test_the_last_answer_of_openhands_is_the_call_that_ends_the_run(foldlog):
    said = json.dumps({"message": "It is mended."})
    ends = [
        Action(tool="finish", arguments=said, call_id="z"),
        Observation(tool="finish", call_id="z", content=""),
    ]
    with _opened() as histories:
        for name in ("one", "two"):
            histories[name].append([Message(source="user", content="mend"), *ends])
        histories["two"].append(
            [Message(source="agent", content="Or not."), Action(tool="finish", arguments="{}")]
        )
        histories["asked"].append(
            [Message(source="user", content="mend"), *ends, Message(source="user", content="?")]
        )
    runs = foldlog("diff one two --json").document["runs"]
    # the last request has none
    assert foldlog("diff one asked --json").document["runs"][1]["answer"] is None
    assert [(run["answer"]["event"], run["answer"]["gist"]) for run in runs] == [
        (1, "finish: It is mended."),
        (3, "Or not."),
    ]


def test_the_command_says_where_two_runs_part(foldlog, tmp_path):
    with _opened() as histories:
        run(histories["one"], ["a", "b", "c"], {1: "yes"})
        run(histories["two"], ["a", "b", "x"], {1: "no"})
        run(histories["three"], ["a", "b", "c"], {1: "yes"})
        run(histories["four"], ["a", "b"])
        histories["none"].append(Observation(content="alone"))
        run(histories["gone"], ["a"])
        erase(histories.store, "gone", reason="asked for")
    out = foldlog("diff one two").out
    for words in (
        "one and two share no past; their first 3 requests and calls say the same",
        "-      6  action       run: c\n+      6  action       run: x",
        "one was shown 6 events, ≈ ",
        "-      5  observation  run: yes",
        "+      5  error        run: no",
        "$0.5000",
    ):
        assert words in out
    run_of = ["a", "b", "c", "d", "e", "f"]
    with _opened() as histories:
        run(histories["five"], run_of)
        run(histories["six"], [*run_of[:2], "x", *run_of[3:5], "y"])
    parting = foldlog("diff five six").out.partition("from there on\n")[2].splitlines()
    assert [line.split()[-1] for line in parting] == ["c", "x", "both", "f", "y"]
    assert parting[2].split() == ["2", "requests", "and", "calls", "in", "both"]
    assert "no request and no call differs" in foldlog("diff one three").out
    assert "+ four ends" in foldlog("diff one four").out
    assert (
        "their first requests differ; 0 requests and calls in both" in foldlog("diff one none").out
    )
    document = foldlog("diff one two --json").document
    assert [run["conversation"] for run in document["runs"]] == ["one", "two"]
    assert foldlog("diff one gone").status == 2


def test_runs_with_the_same_requests_differ_in_what_they_were_shown(foldlog):
    beginning = "You repair programs. " * 20
    with _opened() as histories:
        for name, last in (("one", "Be short."), ("two", "Be long.")):
            histories[name].append(
                [
                    SystemMessage(content=beginning + last),
                    Message(source="user", content="mend"),
                    Message(source="agent", content="done"),
                ]
            )
    document = foldlog("diff one two --json").document
    assert document["first_difference"] is None
    ((one,), (two,)) = ([line["gist"] for line in knew["alone"]] for knew in document["knew"])
    assert "Be short." in one
    assert "Be long." in two
    out = foldlog("diff one two").out
    assert "no request and no call differs" in out
    assert "one was shown 3 events" in out


def _opened() -> foldlog.Histories:
    return foldlog.open("foldlog.db")


def test_redacted_requests_and_calls_are_not_said_to_say_the_same(foldlog):
    with _opened() as histories:
        for name in ("one", "two"):
            histories[name].append([Message(source="user", content=text) for text in ("a", "b")])
            histories[name].redact(0, reason="asked to", by="me")
    said = (
        "1 of their first 2 requests and calls say the same; nothing is known of those that are"
        " redacted: 1"
    )
    assert said in foldlog("diff one two").out
    document = foldlog("diff one two --json").document
    assert (document["same_first"], document["redacted_first"], document["same"]) == (2, 1, 1)
