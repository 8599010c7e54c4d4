"""An export: a source as it came, and what five formats have no place for."""

import json

import pytest
from msgspec.structs import replace

import foldlog as foldlog_package
from foldlog.eventstore import Action, Annotation, Message, Observation, SystemMessage
from foldlog.formats import FORMATS, UnknownFormat, decode, encode
from foldlog.projections import View
from tests.foldlog.formats.writing import WRITTEN
from tests.foldlog.records import CORPUS
from tests.said import replied, said

ASKED = said("ask")


def in_order(events):
    """Events with the ids that count up from 0."""
    return [replace(event, id=number) for number, event in enumerate(events)]


HISTORY = [
    ASKED,
    Action(tool="run", call_id="c", arguments={"a": 1}, response_id="r"),
    Action(tool="run", call_id="d", arguments='{"a": 2}', response_id="r", thought="and"),
    Observation(tool="run", call_id="c", cause=2, content="one"),
    Observation(tool="run", call_id="d", cause=3, content="two"),
    replied("done"),
    Message(source="environment", content="told"),
]


def prompt_lines(events):
    """What a model is told, by who says it."""
    lines = []
    for message in View.from_events(events).to_messages():
        role = message["role"].replace("system", "user")
        lines.append((role, json.dumps(message.get("content") or "")))
        lines += [
            ("call", json.dumps(json.loads(each["function"]["arguments"])))
            for each in message.get("tool_calls", ())
        ]
    return [line for line in lines if line[1] != '""']


@pytest.mark.parametrize("format", WRITTEN)
def test_written_history_is_told_the_same_again(history, format):
    prompt = (
        Annotation(name="begin")
        if format == "anthropic-messages"
        else SystemMessage(content="be brief")
    )
    steps = [prompt, *HISTORY]
    events = in_order(steps)
    records = json.loads(json.dumps(list(encode(events, format))))
    assert sorted(prompt_lines(list(decode(records, format)))) == sorted(prompt_lines(events))
    history.append(steps)
    view = json.loads(json.dumps(list(history.export(format, view=True))))
    assert sorted(prompt_lines(list(decode(view, format)))) == sorted(prompt_lines(events))


@pytest.mark.parametrize("format", sorted({*FORMATS} - {*WRITTEN}))
def test_a_history_is_not_written_in_another_format(format, foldlog):
    with foldlog_package.open("foldlog.db") as histories:
        histories["a"].append(ASKED)
        for view in (False, True):
            with pytest.raises(UnknownFormat, match=r"choose one of .*openai-chat"):
                list(histories["a"].export(format, view=view))
    ran = foldlog("export a --format", format)
    assert (ran.status, f"writes no history as '{format}'" in ran.err) == (2, True)
    with pytest.raises(UnknownFormat):
        encode([ASKED], format)


@pytest.mark.parametrize("format", FORMATS)
def test_import_is_exported_unchanged_before_later_events(format, foldlog, tmp_path):
    path = CORPUS / f"{format}.jsonl"
    source = path.read_bytes()
    assert foldlog("import", path, "--format", format).status == 0
    name, *_ = foldlog("list --json").rows()
    ran = foldlog("export", name, "-o", "one")
    assert (ran.status, ran.err, (tmp_path / "one").read_bytes()) == (0, "", source)
    with foldlog_package.open("foldlog.db") as histories:
        histories[name].append(said("and one more"))
    ran = foldlog("export", name, "-o", "two")
    exported = (tmp_path / "two").read_bytes()
    if format in WRITTEN:
        assert (ran.err, b"and one more" in exported) == ("", True)
    else:
        assert (exported, "1 message of the user, appended since the import" in ran.err) == (
            source,
            True,
        )
