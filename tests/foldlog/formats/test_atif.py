"""Trajectories in ATIF."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from foldlog import open as open_histories
from foldlog.eventstore import (
    NOT_RECORDED,
)
from foldlog.projections import View
from tests.foldlog.formats.reading import histories_at, reader_of
from tests.golden.cases import GOLDEN, cases_in

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


CONDENSATIONS = GOLDEN / "writes" / "condensations.txt"


def test_a_public_validator_takes_what_is_written(foldlog, tmp_path):
    models = pytest.importorskip(
        "atif", reason="the public models of ATIF are not installed: pip install atif"
    )
    (case,) = [each for each in cases_in("writes")[CONDENSATIONS] if "atif" in each.outputs]
    with open_histories("foldlog.db") as histories:
        histories["c"].append([replace(each, id=NOT_RECORDED) for each in case.events()])
    assert foldlog("export", "c", "--format", "atif", "--output", tmp_path / "out.json").status == 0
    document = json.loads((tmp_path / "out.json").read_text())
    trajectory = models.Trajectory.model_validate(document)
    assert (trajectory.schema_version, len(trajectory.steps)) == ("ATIF-v1.8", 11)
    assert trajectory.to_json_dict() == document


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
