"""Trajectories in ATIF."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from foldlog import open as open_histories
from foldlog._formats.imported_calls import calls_of_imported
from foldlog.eventstore import (
    NOT_RECORDED,
    Action,
    CondensationAction,
    Message,
    Observation,
    SystemMessage,
)
from foldlog.formats import NotAHistory, decode, detect, encode
from foldlog.projections import View
from tests.foldlog.formats.reading import histories_at, reader_of
from tests.foldlog.records import used

HEAD = {
    "schema_version": "ATIF-v1.6",
    "session_id": "s-1",
    "agent": {
        "name": "a",
        "version": "1",
        "model_name": "m0",
        "tool_definitions": [{"type": "function"}],
    },
}


def step(number, source, message="", **more):
    return {
        "step_id": number,
        "timestamp": f"2026-03-01T10:00:0{number}Z",
        "source": source,
        "message": message,
        **more,
    }


def calls(*call_ids):
    return [
        {"tool_call_id": it, "function_name": "measure", "arguments": {"of": it}} for it in call_ids
    ]


def results(*answers):
    return {"results": [{"source_call_id": it, "content": content} for it, content in answers]}


STEPS = [
    step(1, "system", "You measure."),
    step(2, "user", "how far?"),
    step(
        3,
        "agent",
        "I look.",
        reasoning_content="hm",
        tool_calls=calls("a", "b"),
        observation=results(("b", "2"), ("a", "1")),
        metrics={"prompt_tokens": 5, "completion_tokens": 2, "cached_tokens": 1, "cost_usd": 0.5},
    ),
    step(4, "agent", "9 km", model_name="m1", metrics={"prompt_tokens": 7, "completion_tokens": 1}),
]
TAIL = {"notes": "n", "final_metrics": {"total_steps": 4}}

read = reader_of("atif")


@pytest.fixture
def trajectory(tmp_path):
    path = tmp_path / "trajectory.json"
    path.write_text(json.dumps({**HEAD, "steps": STEPS, **TAIL}, indent=1))
    return path


def test_usage_is_that_of_each_step_and_the_model_the_agents_unless_the_step_names_one():
    hostile = [
        step(5, "agent", metrics=7),
        step(6, "agent", metrics={"prompt_tokens": "1", "cost_usd": []}),
    ]
    found = calls_of_imported(read(HEAD, *STEPS, *hostile, TAIL), "atif")
    assert [(call.model, *used(call)) for call in found] == [
        ("m0", 5, 1, 2, 0.5),
        ("m1", 7, None, 1, None),
        ("m0", 1, None, None, None),
    ]


def test_a_trajectory_is_imported_grows_and_is_written_as_it_was(trajectory, foldlog, tmp_path):
    (history,) = histories_at(tmp_path)
    assert (history.name, history.format, history.records) == ("s-1", "atif", [HEAD, *STEPS, TAIL])
    assert foldlog("import", trajectory).status == 0
    grown = {
        **HEAD,
        "steps": [*STEPS, step(5, "user", "and?")],
        **TAIL,
        "final_metrics": {"total_steps": 5},
    }
    for _ in range(2):
        trajectory.write_text(json.dumps(grown, indent=1))
        assert foldlog("import", trajectory).status == 0
        (listed,) = foldlog("list", "--json").document["conversations"]
        # the last record was one that its program writes anew
        assert listed["conversation"] == "s-1"
    assert foldlog("export", "s-1", "--output", tmp_path / "out.json").status == 0
    assert (tmp_path / "out.json").read_text() == json.dumps(grown, indent=1)


def test_it_is_recognized_by_its_steps_and_by_its_version_alone(tmp_path):
    assert detect(STEPS) == "atif"
    (tmp_path / "a.json").write_text(json.dumps({"schema_version": "1.0", "steps": [{"id": 1}]}))
    with pytest.raises(ValueError, match="holds no event"):
        histories_at(tmp_path / "a.json")
    with pytest.raises(ValueError, match="no format"):
        detect([{"step_id": 1, "source": "a book", "message": "m"}] * 2)


def test_a_document_without_the_array_of_its_history_is_refused_as_what_it_is(tmp_path):
    log, path = {"version": 2, "status": "success", "eval": {}}, tmp_path / "a.json"
    cases = [(HEAD, "steps"), (HEAD | {"steps": {}}, "steps"), (log | {"samples": None}, "samples")]
    for document, key in cases:
        path.write_text(json.dumps(document))
        with pytest.raises(NotAHistory, match=f"a.json: holds no array under '{key}'"):
            histories_at(path)


METRICS = {
    "total_prompt_tokens": 30,
    "total_completion_tokens": 4,
    "total_cost_usd": 0.5,
    "total_steps": 4,
}


def test_the_final_metrics_count_where_no_step_tells_tokens_and_say_what_the_steps_lack(
    foldlog, tmp_path
):
    silent = [{key: value for key, value in each.items() if key != "metrics"} for each in STEPS]
    copied = [{**each, "is_copied_context": True} for each in STEPS]
    added = step(5, "agent", "done", metrics={"prompt_tokens": 9, "completion_tokens": 1})
    cases = [
        (silent, 30, (2, 30, 4, 0.5)),
        (STEPS, 30, (2, 12, 3, 0.5)),  # the steps lack tokens, of either model
        (STEPS, 12, (2, 12, 3, 0.5)),
        # the sum of a trajectory has the tokens of its copies
        ([*copied, added], 30, (1, 9, 1, 0)),
        ([*copied, {**added, "metrics": None}], 30, (0, 0, 0, 0)),
    ]
    for number, (steps, prompt, expected) in enumerate(cases):
        final = {
            **METRICS,
            "total_prompt_tokens": prompt,
            "total_completion_tokens": min(prompt // 4, 4),
        }
        document = {**HEAD, "session_id": f"s-{number}", "steps": steps, "final_metrics": final}
        (tmp_path / f"{number}.json").write_text(json.dumps(document))
        assert foldlog("import", tmp_path / f"{number}.json").status == 0
        models = foldlog("stats", f"s-{number}", "--json").document["models"]
        names = ("calls", "prompt_tokens", "completion_tokens", "cost")
        assert tuple(sum(each[name] or 0 for each in models) for name in names) == expected


def test_steps_that_are_copies_are_shown_and_are_neither_calls_nor_requests(foldlog, tmp_path):
    copied = [{**each, "is_copied_context": True} for each in STEPS]
    document = {
        **HEAD,
        "steps": [*copied, step(5, "user", "and back?"), step(6, "agent", "9 km too")],
        **TAIL,
    }
    for name in ("s-1", "s-2"):
        (tmp_path / f"{name}.json").write_text(json.dumps({**document, "session_id": name}))
    assert foldlog("import", tmp_path).status == 0
    found = foldlog("stats", "--json").document
    assert (found["tools"], found["spent"]["calls"]) == ({}, 0)
    run, _ = foldlog("diff", "s-1", "s-2", "--json").document["runs"]
    assert (run["requests"], run["replies"], run["calls"]) == (1, 1, 0)
    assert len(View.from_events(read(*document["steps"]))) == 9


# -- compaction
# --------------------------------------------------------------------------------------------------


def boundary(number, *contents, source="system", kind="replace", **more):
    found = (
        {"observation": {"results": [{"content": each} for each in contents]}} if contents else {}
    )
    extra = {"context_management": {"type": "compaction", "boundary": kind}}
    return step(number, source, "Context compaction performed", extra=extra, **found, **more)


def texts_of(events):
    return [event.content for event in View.from_events(events)]


TURNS = [step(1, "system", "You measure."), step(2, "user", "how far?"), step(3, "agent", "9 km")]


@pytest.mark.parametrize(
    "steps, shown",
    [
        ([boundary(4, "It is 9 km."), step(5, "user", "and back?")], ["It is 9 km.", "and back?"]),
        ([boundary(4, "It is", [{"type": "text", "text": "9 km."}])], ["It is\n\n9 km."]),
        ([boundary(4), step(5, "user", "In short: 9 km.")], ["In short: 9 km."]),
        ([boundary(4, "It is 9 km."), boundary(5, "9.")], ["9."]),
        (
            [
                boundary(
                    4,
                    source="agent",
                    tool_calls=calls("c"),
                    observation=results(("c", "It is 9 km.")),
                )
            ],
            ["It is 9 km."],
        ),
        ([boundary(4, "the web says 10", kind="append")], ["how far?", "9 km", "the web says 10"]),
    ],
    ids=[
        "a summary",
        "two results",
        "told by a later step",
        "again",
        "of a call",
        "added to the context",
    ],
)
def test_a_boundary_replaces_what_came_before_by_its_observation(steps, shown):
    events = read(*TURNS, *steps)
    assert texts_of(events) == ["You measure.", *shown]
    replaced = [each for each in steps if each.get("extra") and shown[0] != "how far?"]
    assert sum(isinstance(event, CondensationAction) for event in events) == len(replaced)


def test_a_boundary_at_the_beginning_forgets_nothing():
    assert texts_of(read(boundary(1, "So far: 9 km."), step(2, "user", "on"))) == [
        "So far: 9 km.",
        "on",
    ]
    assert texts_of(read(boundary(1), step(2, "user", "on"))) == ["on"]


def test_a_step_that_does_not_tell_what_it_trimmed_is_a_finding():
    found = []
    events = list(
        decode(
            [*TURNS, boundary(4, "cut", kind="truncate")],
            "atif",
            findings=lambda it: found.append(str(it)),
        )
    )
    assert len(View.from_events(events)) == 4
    assert len(found) == 1
    assert "left out of the prompt" in found[0]


CONDENSED = [
    SystemMessage(id=0, content="You measure."),
    Message(id=1, source="user", content="how far?"),
    Message(id=2, source="agent", content="I look."),
    Action(id=3, tool="measure", arguments={"of": "a"}, call_id="a", response_id="r"),
    Observation(id=4, tool="measure", content="9", call_id="a", cause=3),
    CondensationAction(
        id=5, forgotten_event_ids=(1, 2), summary="Asked for a way.", summary_offset=1
    ),
    Message(id=6, source="agent", content="9 km"),
    CondensationAction(id=7, forgotten_event_ids=(6,)),
    CondensationAction(
        id=8, forgotten_event_ids=(), metadata={"outcome": "declined", "reason": "short"}
    ),
    Message(id=9, source="user", content="and back?"),
]


def test_a_condensation_is_written_as_a_boundary_with_copies_of_what_it_left():
    steps = list(encode(CONDENSED, "atif"))
    assert [each["step_id"] for each in steps] == [*range(1, len(steps) + 1)]
    marks = [
        (each["source"], each["message"], "extra" in each, each.get("is_copied_context"))
        for each in steps
    ]
    compacted = ("system", "Context compaction performed", True, None)
    assert marks == [
        ("system", "You measure.", False, None),
        ("user", "how far?", False, None),
        ("agent", "I look.", False, None),
        ("agent", "", False, None),
        compacted,
        ("agent", "", False, True),
        ("agent", "9 km", False, None),
        compacted,
        ("user", "Asked for a way.", False, True),
        ("agent", "", False, True),
        ("user", "and back?", False, None),
    ]
    again = read(*steps)
    assert View.from_events(again).to_messages() == View.from_events(CONDENSED).to_messages()


def test_a_public_validator_takes_what_is_written(foldlog, tmp_path):
    models = pytest.importorskip(
        "atif", reason="the public models of ATIF are not installed: pip install atif"
    )
    with open_histories("foldlog.db") as histories:
        histories["c"].append([replace(each, id=NOT_RECORDED) for each in CONDENSED])
    assert foldlog("export", "c", "--format", "atif", "--output", tmp_path / "out.json").status == 0
    document = json.loads((tmp_path / "out.json").read_text())
    trajectory = models.Trajectory.model_validate(document)
    assert (trajectory.schema_version, len(trajectory.steps)) == ("ATIF-v1.8", 11)
    assert trajectory.to_json_dict() == document


# -- sub-agents
# --------------------------------------------------------------------------------------------------


def test_trajectories_of_sub_agents_are_histories_of_their_own(foldlog, tmp_path):
    inner = {**HEAD, "trajectory_id": "deep", "steps": [step(1, "user", "deeper")]}
    child = {
        **HEAD,
        "trajectory_id": "look",
        "steps": [step(1, "user", "look there")],
        "subagent_trajectories": [inner],
    }
    odd = [7, {"trajectory_id": "x"}, {"steps": []}]
    document = {**HEAD, "steps": STEPS, **TAIL, "subagent_trajectories": [child, *odd]}
    (tmp_path / "t.json").write_text(json.dumps(document, indent=1))
    found = histories_at(tmp_path)
    assert [each.name for each in found] == ["s-1", "s-1/look", "s-1/look/deep"]
    assert foldlog("import", tmp_path / "t.json").status == 0
    for name, whole in (
        ("s-1", document),
        ("s-1/look", {**child, "extra": {"subagent_of": "s-1"}}),
        ("s-1/look/deep", {**inner, "extra": {"subagent_of": "s-1/look"}}),
    ):
        assert foldlog("export", name, "--output", tmp_path / "out.json", "--force").status == 0
        assert json.loads((tmp_path / "out.json").read_text()) == whole
    with open_histories("foldlog.db") as histories:
        parents = [next(histories[each.name].events(0, 1)).meta.get("parent") for each in found]
    assert parents == [None, "s-1", "s-1/look"]
