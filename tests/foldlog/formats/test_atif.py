"""Trajectories in ATIF."""

import json

import pytest
from msgspec.structs import replace

from foldlog import open as open_histories
from foldlog.eventstore import (
    NOT_RECORDED,
)
from tests.golden.cases import GOLDEN, cases_in

CONDENSATIONS = GOLDEN / "writes" / "condensations.txt"


def test_a_public_validator_takes_what_is_written(foldlog, tmp_path):
    models = pytest.importorskip(
        "atif", reason="the public models of ATIF are not installed: pip install atif"
    )
    (case,) = [each for each in cases_in("writes")[CONDENSATIONS] if "atif" in each.outputs]
    with open_histories("foldlog.db") as histories:
        histories["c"].append([replace(each, id=NOT_RECORDED) for each in case.events()])
    assert foldlog("export c --format atif --output out.json").status == 0
    document = json.loads((tmp_path / "out.json").read_text())
    trajectory = models.Trajectory.model_validate(document)
    assert (trajectory.schema_version, len(trajectory.steps)) == ("ATIF-v1.8", 11)
    assert trajectory.to_json_dict() == document
