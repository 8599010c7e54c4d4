"""The short form of ``python -m tests.fuzz``: some hundred hostile inputs for each reader."""

import random

import pytest

from foldlog.condensers import condenser_from_config
from foldlog.condensers.errors import InvalidCondenser
from foldlog.formats import FORMATS, decode
from tests.fuzz.targets import TARGETS

INPUTS = 800
"""The number of inputs of all targets together."""


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch):
    for name in ("FOLDLOG_DB", "FOLDLOG_KEY", "FOLDLOG_KEY_FILE", "FOLDLOG_COMPRESSION"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", TARGETS)
def test_hostile_input_is_refused_or_taken(name):
    """A target raises an error if its reader does anything else."""
    target = TARGETS[name]
    for number in range(max(12, INPUTS * target.share // 100)):
        target.run(random.Random(f"short {number}"))


@pytest.mark.parametrize("format", FORMATS)
def test_the_kind_of_a_record_may_be_anything(format):
    keys = {
        "openhands-v0": "action",
        "openhands-v1": "kind",
        "claude-code": "type",
        "codex": "type",
    }
    kinds = [[], {}, 5, None, [{"a": []}], "x" * 1_000]
    for kind in kinds:
        findings = []
        record = {keys.get(format, "role"): kind, "id": kind}
        assert list(decode([record], format, findings=findings.append)) or findings, kind


def test_a_deeply_nested_condenser_type_is_refused():
    deep = []
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(InvalidCondenser, match=r"condenser\.type: must be one of these names"):
        condenser_from_config({"type": deep})
