"""A format is one object: whatever reads or writes histories knows no more about it than that object says."""

from __future__ import annotations

import ast
import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foldlog._formats import registry
from foldlog._formats.detection import recognize
from foldlog._formats.files.readers import held_in
from foldlog._formats.format import Contained, FileReader
from foldlog._formats.losses import _Written
from foldlog.eventstore.events import Action, Message, Observation
from foldlog.formats import FORMATS, Encoder, decode, detect, encode, open_sources

PLACE = Path(registry.__file__).parent


def test_each_format_has_a_name_of_its_own_and_its_module_holds_it():
    assert len(registry.FORMATS) == len(registry._MODULES)
    assert [name.replace("-", "_") for name in registry.FORMATS] == [
        module.rpartition(".")[2] for module in registry._MODULES
    ]


def test_what_all_formats_share_names_none_of_them():
    shared = [*PLACE.glob("*.py"), *(PLACE / "files").glob("*.py")]
    shared = [path for path in shared if path.stem not in (*registry._MODULES, "registry", "lookalikes")]
    assert len(shared) >= 15
    named = {
        (path.name, node.value)
        for path in shared
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in tuple(registry.FORMATS)
    }
    # What can write every history, and what a history of our own is written as.
    assert named == {("conversion.py", "openai-chat"), ("conversion.py", "openhands-v1")}


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(["user", "system", "summary"]),
    lambda inside: st.lists(inside, max_size=2) | st.dictionaries(st.text(max_size=3), inside, max_size=2),
    max_leaves=4,
)
_FIELDS = (
    *("type", "kind", "role", "action", "observation", "payload", "message", "content", "subtype", "summary", "agent"),
    *("sessionId", "uuid", "leafUuid", "parentUuid", "id", "timestamp", "instructions", "record_type", "created"),
    *("working_dir", "message_count", "isSidechain", "agentId", "tool_calls", "args", "microcompactMetadata", "source"),
    *("aiTitle", "customTitle", "llm_message", "parts", "model_response", "tool_call_metadata", "tool_call_id"),
)
_RECORDS = st.dictionaries(st.sampled_from(_FIELDS), _VALUES, max_size=6) | _VALUES


@example([{"type": "summary", "leafUuid": [1], "summary": "x"}])
@example([{"type": "system", "sessionId": "s", "subtype": {}}])
@given(st.lists(_RECORDS, max_size=3))
def test_whatever_a_value_is_it_is_recognized_or_not_and_read_or_refused(records):
    with contextlib.suppress(ValueError):
        detect(records)
    for format in registry.FORMATS.values():
        recognize(format.name).format_of(records)
        format.conversation(records)
        events = list(decode(records, format.name, findings=lambda finding: None))
        assert [event.id for event in events] == list(range(len(events)))


_WITHOUT_CALLS = ("aider",)
"""Formats that tell of calls and results in words."""
_WITHOUT_ERRORS = (
    "openhands-v0",
    "openai-chat",
    "openai-responses",
    "swe-agent",
    "atif",
    "inspect-eval",
    "otlp-genai",
)
"""Formats whose results do not say that a call failed."""


@pytest.mark.parametrize("name", FORMATS)
def test_what_an_event_of_ours_loses_in_a_format_is_said(name):
    meta = {"model": "m", "usage": {"total_tokens": 1234}, "cost": 0.5}
    events = [
        Message(id=0, source="user", content="list"),
        Action(id=1, tool="run", arguments={"command": "ls"}, call_id="k1", meta=meta),
        Observation(id=2, tool="run", call_id="k1", cause=1, content="no such folder", is_error=True),
        Message(id=3, source="agent", content="It failed.", meta=meta),
    ]
    notes: list[str] = []
    again = decode(list(encode(events, name, notes=notes.append)), name)
    result = next(event for event in again if "no such folder" in str(getattr(event, "content", "")))
    assert isinstance(result, Observation) != (name in _WITHOUT_CALLS)
    (note,) = notes
    assert "2 counts of tokens and cost" in note
    lines = [Message(id=place, source="agent", content=f"{place}", meta={**meta, "reply": "r"}) for place in range(2)]
    list(encode(lines, name, notes=notes.append))
    assert "1 count of tokens and cost" in notes[-1], "each line of a reply has what was spent up to it"
    is_error = isinstance(result, Observation) and result.is_error
    assert is_error != ("1 form of a call" in note if name in _WITHOUT_CALLS else "1 error mark" in note)
    assert is_error == (name not in (*_WITHOUT_CALLS, *_WITHOUT_ERRORS))


def test_a_format_is_asked_for_the_ids_of_records_alone():
    record = {"type": "human", "data": {"type": "human", "content": "hi", "id": "m1"}}
    (event,) = decode([record], "langchain")
    encoder = Encoder(replace(registry.FORMATS["langchain"], source_id=lambda known: known["data"]["id"]))
    assert encoder.part(event) == [], "it was taken back, so there is no record"
    assert encoder.records(event) == [record]


def test_a_short_text_within_a_word_is_not_taken_for_written():
    assert ["ab." in _Written([{"content": text}]) for text in ("so ab.c", "so ab.", "cab.")] == [True, True, False]


class _Notes(FileReader):
    """One history for each heading of a Markdown file: a format whose files hold no JSON."""

    def holds(self, path, begin):
        return path.suffix == ".notes" and begin.startswith(b"# ")

    def histories(self, path):
        for part in path.read_text().split("# ")[1:]:
            name, *said = part.splitlines()
            yield Contained(name, held_in(path, 1, [{"role": "user", "content": line} for line in said]))


def test_a_format_may_read_its_files_itself(tmp_path, monkeypatch):
    format = replace(registry.FORMATS["openai-chat"], name="notes", files=_Notes())
    monkeypatch.setitem(registry.FORMATS, "notes", format)
    (tmp_path / "a.notes").write_text("# one\nhi\nho\n# two\nhe\n")
    sources = list(open_sources([tmp_path]))
    assert [(source.name, source.format, len(list(source.records()))) for source in sources] == [
        ("one", "notes", 2),
        ("two", "notes", 1),
    ]
