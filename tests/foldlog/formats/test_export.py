"""An export: a source as it came, and what five formats have no place for."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

import foldlog as foldlog_package
from foldlog.eventstore import Action, Message, Observation, SystemMessage
from foldlog.formats import FORMATS, UnknownFormat, decode, encode
from foldlog.formats.event_fields import role_of
from foldlog.projections import View
from tests.foldlog.formats.writing import WRITTEN
from tests.foldlog.records import CORPUS
from tests.said import replied, said

ASKED = said("ask")


def in_order(events):
    """Return events with the ids that count up from 0."""
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
    """Return what a model is told, by who says it."""
    lines = []
    for message in View.from_events(events).to_messages():
        lines.append((message["role"], json.dumps(message.get("content") or "")))
        lines += [
            ("call", json.dumps(json.loads(each["function"]["arguments"])))
            for each in message.get("tool_calls", ())
        ]
    return [line for line in lines if line[1] != '""']


@pytest.mark.parametrize("format", WRITTEN)
def test_written_history_is_told_the_same_again(history, format):
    steps = [SystemMessage(content="be brief"), *HISTORY]
    events = in_order(steps)
    records = json.loads(json.dumps(list(encode(events, format))))
    assert sorted(prompt_lines(list(decode(records, format)))) == sorted(prompt_lines(events))
    history.append(steps)
    view = json.loads(json.dumps(list(history.export(format, view=True))))
    assert sorted(prompt_lines(list(decode(view, format)))) == sorted(prompt_lines(events))


@pytest.mark.parametrize("options", ["", "--view"])
@pytest.mark.parametrize(
    "prompts, system, system_of_view",
    [
        ((), None, None),
        (("be brief",), "be brief", "be brief"),
        (
            ("be brief", ({"type": "text", "text": "x"},)),
            [{"type": "text", "text": "be brief"}, {"type": "text", "text": "x"}],
            "be brief\n\nx",
        ),
    ],
)
def test_messages_of_anthropic_are_the_body_of_a_request(
    foldlog, prompts, system, system_of_view, options
):
    with foldlog_package.open("foldlog.db") as histories:
        histories["a"].append([*(SystemMessage(content=prompt) for prompt in prompts), *HISTORY])
    exported = f"export a --format anthropic-messages --output out.json {options}"
    assert "role of" not in foldlog(exported).err
    body = json.loads(Path("out.json").read_text())
    assert list(body) == (["system", "messages"] if prompts else ["messages"])
    assert {message["role"] for message in body["messages"]} == {"user", "assistant"}
    assert body.get("system") == (system_of_view if options else system)
    assert foldlog("import out.json --format anthropic-messages --conversation b").status == 0
    with foldlog_package.open("foldlog.db") as histories:
        one, other = (histories[name].view() for name in "ab")
        assert one.system_prompt == other.system_prompt
        assert one.to_messages("anthropic") == other.to_messages("anthropic")
    assert foldlog("export b --output again.json").status == 0
    assert Path("again.json").read_bytes() == Path("out.json").read_bytes()


def test_a_task_of_cline_is_exported_as_the_list_that_cline_stores(foldlog):
    task = [
        {"role": "user", "content": [{"type": "text", "text": "go"}], "ts": 1_700_000_000_000},
        {"role": "assistant", "content": [{"type": "text", "text": "ok"}]},
    ]
    Path("task.json").write_text(json.dumps(task))
    foldlog("import task.json --conversation a --format anthropic-messages")
    foldlog("fork a b --at 2")
    assert foldlog("export b --output b.json").status == 0
    assert json.loads(Path("b.json").read_text()) == task


@pytest.mark.parametrize("format, later", [("anthropic-messages", "user"), ("atif", "system")])
def test_a_later_system_prompt_keeps_its_role_or_is_noted(format, later):
    events = in_order([SystemMessage(content="be brief"), *HISTORY, SystemMessage(content="stop")])
    notes = []
    records = json.loads(json.dumps(list(encode(events, format, notes=notes.append))))
    again = list(decode(records, format))
    (event,) = [event for event in again if getattr(event, "content", "") == "stop"]
    assert (role_of(event), event.shown) == (later, True)
    assert any("1 role of a later system prompt" in note for note in notes) == (later == "user")


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
