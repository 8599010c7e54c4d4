"""Trajectories in ATIF."""

import json

import pytest
from msgspec.structs import replace

from foldlog import open as open_histories
from foldlog.eventstore import NOT_RECORDED
from tests.golden.cases import GOLDEN, cases_in
from tests.said import said

HEAD = {"schema_version": "ATIF-v1.7", "session_id": "s", "agent": {"name": "a", "version": "1"}}
CONDENSATIONS = GOLDEN / "writes" / "condensations.txt"


def test_a_public_validator_takes_what_is_written(foldlog, tmp_path):
    models = pytest.importorskip(
        "atif", reason="the public models of ATIF are not installed: pip install atif"
    )
    (case,) = [case for case in cases_in("writes")[CONDENSATIONS] if "atif" in case.outputs]
    with open_histories("foldlog.db") as histories:
        histories["c"].append([replace(event, id=NOT_RECORDED) for event in case.events()])
    assert foldlog("export c --format atif --output out.json").status == 0
    document = json.loads((tmp_path / "out.json").read_text())
    trajectory = models.Trajectory.model_validate(document)
    assert (trajectory.schema_version, len(trajectory.steps)) == ("ATIF-v1.8", 11)
    assert trajectory.to_json_dict() == document


def test_step_numbers_continue_those_of_an_import(histories, tmp_path):
    steps = [{"step_id": n, "source": "user", "message": f"step {n}"} for n in (1, 2, 7)]
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**HEAD, "steps": steps}))
    (history,) = histories.import_(path)
    history.append(said("and one more"))
    *_, newest = history.export()
    assert (newest["message"], newest["step_id"]) == ("and one more", 8)


def test_a_step_with_wrong_fields_is_named(foldlog, tmp_path):
    steps = [
        {"step_id": 1, "source": "user", "message": "how far?"},
        {"step_id": 2, "source": "robot", "message": "9 km"},
        {"step_id": 3, "source": "agent", "message": {"text": "9 km"}},
    ]
    (tmp_path / "run.json").write_text(json.dumps({**HEAD, "steps": steps}))
    ran = foldlog("import run.json")
    assert (ran.status, "4 records" in ran.out) == (0, True)
    printed = ran.err.replace("\n", " ")
    assert "step 2 has the source 'robot', and the View does not show it" in printed
    assert "step 3 has a message that is an object, and is read without it" in printed
    assert "step 1" not in printed
