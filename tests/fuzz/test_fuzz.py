"""The short form: some hundred hostile inputs for each reader; ``python -m tests.fuzz`` has the long one."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldlog.condensers import condenser_from_config
from foldlog.condensers.errors import InvalidCondenser
from foldlog.eventstore import codec
from foldlog.eventstore.codec_json import Undecodable
from foldlog.formats import FORMATS, decode
from tests.fuzz.targets import TARGETS
from tests.how_many import examples

INPUTS = 800
"""For all targets together, by their shares."""

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch):
    for name in ("FOLDLOG_DB", "FOLDLOG_KEY", "FOLDLOG_KEY_FILE", "FOLDLOG_COMPRESSION"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", TARGETS)
def test_hostile_input_is_refused_named_or_taken(name: str):
    target = TARGETS[name]
    count = max(12, INPUTS * target.share // 100)
    assert {target.run(random.Random(f"short {number}")) for number in range(count)} != set()


@given(st.lists(_json, max_size=4), st.sampled_from(FORMATS))
@examples(150)
def test_records_of_any_json_are_events_or_findings(records: list[Any], format: str):
    found: list[Any] = []
    events = list(decode(records, format, findings=found.append))
    assert events or found or not records


@given(
    st.sampled_from([*codec.KINDS, "later"]),
    st.integers(-1, 3),
    st.binary(max_size=60) | _json.map(repr).map(str.encode),
)
@examples(200)
def test_any_bytes_are_an_event_or_undecodable(kind: str, schema: int, body: bytes):
    try:
        event = codec.decode(kind, schema, body, 0)
    except Undecodable as error:
        told = str(error)
    else:
        told = type(event).__name__
    assert told


@given(
    st.dictionaries(st.sampled_from(["type", "kind", "max_size", "condensers", "llm_config", "x"]), _json, max_size=4)
)
@examples(100)
def test_any_table_is_a_condenser_or_invalid(table: dict[str, Any]):
    try:
        condenser_from_config(table)
    except InvalidCondenser as error:
        told = str(error)
        assert told.startswith("condenser")


@pytest.mark.parametrize("kind", [[], {}, 5, None, [{"a": []}], "x" * 1_000])
@pytest.mark.parametrize("format", FORMATS)
def test_what_tells_records_apart_may_be_of_any_type(kind: Any, format: str):
    keys = {"openhands-v0": "action", "openhands-v1": "kind", "claude-code": "type", "codex": "type"}
    key = keys.get(format, "role")
    found: list[Any] = []
    assert list(decode([{key: kind, "id": kind}], format, findings=found.append)) or found


def test_a_type_of_a_condenser_that_is_nested_deep_is_refused():
    deep: Any = []
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(InvalidCondenser, match=r"condenser\.type: .*text"):
        condenser_from_config({"type": deep})
