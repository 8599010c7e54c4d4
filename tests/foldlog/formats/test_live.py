"""Records appended one by one: what later records mean does not depend on where the decoder began."""

from __future__ import annotations

import json
import random
import sqlite3
from dataclasses import replace
from functools import partial
from importlib.metadata import EntryPoint

import pytest

import foldlog
import foldlog.aio
from foldlog._formats import registry as formats_registry
from foldlog._importing import import_source
from foldlog.eventstore import (
    Action,
    CondensationAction,
    EventStoreError,
    InvalidArgument,
    InvalidEvent,
    Message,
    Origin,
    Retraction,
    SystemMessage,
    VersionConflict,
)
from foldlog.formats import (
    Format,
    NotAnEvent,
    RecordDecoder,
    RecordEncoder,
    UnusableFormat,
    decode,
    encode,
    open_sources,
    register,
)
from foldlog.projections import View
from tests.at_once import at_once
from tests.beside import FOLDERS, SAMPLES, needs_samples
from tests.foldlog.records import condensed, said, v1
from tests.how_many import some

LIVE = ("openhands-v0", "openhands-v1", "openai-chat", "swe-agent", "claude-code", "codex")


def forget_decoders(histories):
    """What another process does not have."""
    del histories._recording


def gist(view):
    return [(type(event), getattr(event, "content", None), getattr(event, "thinking", None)) for event in view]


def line(number, parent, kind="user", content="hi", **fields):
    message = {"role": kind, "content": content, **({"id": f"msg{number}"} if kind == "assistant" else {})}
    envelope = {"sessionId": "s", "cwd": "/w", "version": "2.1", "isSidechain": False, "userType": "external"}
    ids = {"uuid": f"u{number}", "parentUuid": None if parent is None else f"u{parent}"}
    return {**envelope, **ids, "type": kind, "message": message, **fields}


def test_ids_of_sources_are_looked_up_together(tmp_path, monkeypatch):
    asked, counts, connect = [], [], sqlite3.connect

    def traced(*arguments, **options):
        connection = connect(*arguments, **options)
        connection.set_trace_callback(asked.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    with foldlog.open(f"sqlite:///{tmp_path}/h.db") as histories:
        for numbers in (range(2), range(2, 4), range(4, 44)):
            asked.clear()
            lines = [line(number, number - 1 if number else None) for number in numbers]
            assert len(histories["c"].append_records([*lines, lines[0]], format="claude-code", dedupe="origin")) == len(
                lines
            )
            counts.append(sum(text.startswith("SELECT") and "idempotency_keys" in text for text in asked))
    assert counts[1] == counts[2] == 2, "before the records are read, and in the transaction"


def of_codex(kind, **payload):
    return {"timestamp": "2026-02-01T00:00:00Z", "type": kind, "payload": payload}


def item(source_id):
    return {"type": "message", "role": "user", "id": source_id, "content": [{"type": "input_text", "text": source_id}]}


def of_v0(number, observes=False, **fields):
    told = {"observation": "run", "cause": number - 1} if observes else {"action": "run", "args": {}}
    return {"id": number, "source": "agent", **told, "content": "", "extras": {}, **fields}


@pytest.mark.parametrize(
    "format, records",
    [
        (
            "codex",
            [
                of_codex("session_meta", id="s1", instructions="be brief"),
                of_codex("response_item", **item("m1")),
                of_codex("compacted", id="k1", message="m2", replacement_history=[item("m1"), item("m2")]),
                of_codex("response_item", type="function_call", id="f1", call_id="c1", name="ls", arguments="{}"),
                of_codex("event_msg", type="turn_aborted", id="t1"),
            ],
        ),
        ("openhands-v0", [of_v0(1), [of_v0(2), of_v0(3, True)], [of_v0(4), of_v0(3, True)], of_v0(5)]),
        ("openhands-v1", [said(n, str(n)) for n in range(3)]),
        ("claude-code", [line(0, None), line(1, 0), line(2, 0), line(3, 2)]),
    ],
)
def test_a_batch_that_was_sent_in_part_adds_what_is_new(histories, format, records):
    for count in range(len(records) + 1):
        histories["c"].append_records(records[:count], format=format, dedupe="origin")
        histories["c"].append_records(records[:count], format=format, dedupe="origin")
        assert list(encode(histories["c"].events(), format)) == records[:count]


@pytest.mark.parametrize("place", [0, 2])
def test_a_reference_to_an_item_is_not_that_item(histories, place):
    records = [item("m1"), item("m2")]
    records.insert(place, {"type": "item_reference", "id": "m1"})
    for sent in records, [item("m1")]:
        histories["c"].append_records(sent, format="openai-responses", dedupe="origin")
    assert list(encode(histories["c"].events(), "openai-responses")) == records
    at = records.index(item("m1"))
    assert [found.event_id for found in histories.find("m1", format="openai-responses")] == [at]
    assert histories["c"].fork(at_source="m1").version() == at + 1


def use(number, parent, call_id, **fields):
    block = {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": "ls"}}
    return line(number, parent, "assistant", [block], **fields)


def result(number, parent, call_id, text="done"):
    return line(number, parent, "user", [{"type": "tool_result", "tool_use_id": call_id, "content": text}])


@needs_samples
@pytest.mark.parametrize("format", LIVE)
def test_real_histories_mean_the_same_record_by_record(format):
    choice = random.Random(format)
    for sample in some(open_sources([SAMPLES / FOLDERS[format]]), 2):
        whole = list(sample.events())
        records = list(encode(whole, format))
        with foldlog.open("memory:") as histories:
            history, done = histories["c1"], 0
            while done < len(records):
                count = choice.choice((1, 1, 1, 3, 20))
                history.append_records(records[done : done + count], format=format)
                done += count
                if choice.random() < 0.1:
                    forget_decoders(histories)
            events = list(history.events())
            assert [json.dumps(record) for record in encode(events, format)] == [json.dumps(one) for one in records]
            assert gist(history.view()) == gist(View.from_events(whole)), sample.path
            assert sum(event.cause is not None for event in events) == sum(event.cause is not None for event in whole)


@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_response_thought_goes_with_its_call(histories, restarts):
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    thinking = line(1, 0, "assistant", [thought])
    call = use(2, 1, "a")
    call["message"]["id"] = thinking["message"]["id"]
    history = histories["c1"]
    history.append_records([line(0, None), thinking], format="claude-code")
    if restarts:
        forget_decoders(histories)
    history.append_records([call], format="claude-code")
    (action,) = (event for event in history.events() if isinstance(event, Action))
    assert action.thinking == (thought,)
    assert list(encode(history.events(), "claude-code")) == [line(0, None), thinking, call]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_session_that_goes_back_to_an_earlier_line_takes_the_branch_back(histories, restarts):
    lines = [line(0, None, content="a"), line(1, 0, "assistant", "b"), line(2, 1, content="c"), line(3, 2, content="d")]
    lines += [line(4, 1, content="e"), line(5, 4, content="f"), line(6, 3, content="g")]
    lines = [{"type": "summary", "summary": "Letters", "leafUuid": "u5"}, *lines]  # the title that line has
    history = histories["c1"]
    for one in lines:
        history.append_records([one], format="claude-code")
        if restarts:
            forget_decoders(histories)
    assert [event.content for event in history.at(8)] == ["a", "b", "e", "f"]
    assert [event.content for event in history.events() if "title" in event.meta] == ["f"]
    assert sum(isinstance(event, Retraction) for event in history.events()) == 2
    assert [event.content for event in history.view()] == ["a", "b", "c", "d", "g"]
    assert list(encode(history.events(), "claude-code")) == lines


def test_another_process_goes_on_after_a_reply_whose_id_is_no_string(histories):
    lines = [line(0, None), line(1, 0, "assistant", "b"), line(2, 1, content="c")]
    lines[1]["message"]["id"] = ["msg1"]
    history = histories["c1"]
    for one in lines:
        history.append_records([one], format="claude-code")
        forget_decoders(histories)
    assert list(encode(history.events(), "claude-code")) == lines


@pytest.mark.parametrize("restarts", [False, True])
def test_a_compaction_forgets_what_stands_wherever_the_decoder_began(histories, restarts):
    history = histories["c1"]
    history.append_records([line(n, n - 1 if n else None, content=f"m{n}") for n in range(4)], format="claude-code")
    history.append(Message(source="user", content="ours"))
    boundary = {**line(4, None), "type": "system", "subtype": "compact_boundary", "logicalParentUuid": "u3"}
    del boundary["message"]
    kept = {"trigger": "auto", "preservedMessages": {"anchorUuid": "u4", "uuids": ["u2"]}}
    records = [boundary | {"compactMetadata": kept}, line(5, 4, content="all before", isCompactSummary=True)]
    records += [line(6, 5, content="next"), {**boundary, "uuid": "u7", "logicalParentUuid": "u6"}]
    records[-1]["compactMetadata"] = kept
    records += [line(8, 5, content="on"), line(9, 8, content="all", isCompactSummary=True)]
    for one in records:
        if restarts:
            forget_decoders(histories)
        history.append_records([one], format="claude-code")
    assert [event.content for event in history.at(7)] == ["m2", "all before"]
    assert [event.content for event in history.view()] == ["all"]
    told = [event.metadata for event in history.events() if isinstance(event, CondensationAction)]
    assert told == [{"trigger": "auto", "reason": "tokens"}, {}], "a boundary on a branch that was left tells nothing"


@pytest.mark.parametrize("restarts", [False, True])
def test_a_condensation_names_events_of_any_age(histories, restarts):
    history = histories["c1"]
    records = [said(0, "a"), said(1, "b"), condensed(2, [0], "s1", 0), said(3, "c"), said(4, "d")]
    for record in records:
        history.append_records([record], format="openhands-v1")
    if restarts:
        forget_decoders(histories)
    last = condensed(5, [1, 3], "s2", 0)
    last["forgotten_event_ids"].append(f"{records[2]['id']}-summary")
    history.append_records([last], format="openhands-v1")
    assert [event.content for event in history.view()] == ["s2", "d"]
    assert list(encode(history.events(), "openhands-v1")) == [*records, last]


def test_a_prompt_update_forgets_the_prompt_of_another_process(histories):
    history = histories["c1"]
    prompt = v1("SystemPromptEvent", 0, source="agent", system_prompt={"type": "text", "text": "old"}, tools=[])
    update = v1("SystemPromptUpdateEvent", 2, source="agent", system_prompt={"type": "text", "text": "new"}, tools=[])
    history.append_records([prompt, said(1, "a")], format="openhands-v1")
    forget_decoders(histories)
    history.append_records([update], format="openhands-v1")
    assert [event.content for event in history.view()] == ["a", "new"]


def attachment(number, parent, kind, rendered=None, **fields):
    about = line(number, parent, "attachment", attachment={"type": kind, **fields})
    del about["message"]
    return (
        about
        if rendered is None
        else {**about, "rendered": [{"content": one} for one in rendered], "renderedRole": "system"}
    )


def test_the_view_has_the_words_and_the_prompt_that_claude_code_sent(histories):
    tool = {"name": "Bash", "description": "run", "schema": {"type": "object"}}
    snapshot = {"systemPrompt": ["You help."], "tools": [tool]}
    lines = [
        line(0, None),
        attachment(1, 0, "environment", ["<env>linux</env>"]),
        attachment(2, 1, "skill_listing", ["a", "b"]),
        attachment(3, 2, "session_context"),
        attachment(4, 3, "prompt_snapshot", **snapshot),
        attachment(5, 4, "prompt_snapshot", **snapshot),
        line(6, 5, "assistant", "hello"),
    ]
    history = histories["c1"]
    for one in lines:
        history.append_records([one], format="claude-code")
    assert [event.content for event in history.view()] == [
        "hi",
        "<env>linux</env>",
        ({"type": "text", "text": "a"}, {"type": "text", "text": "b"}),
        "You help.",
        "hello",
    ]
    (prompt,) = (event for event in history.view() if isinstance(event, SystemMessage))
    function = {"name": "Bash", "description": "run", "parameters": {"type": "object"}}
    assert prompt.tools == ({"type": "function", "function": function},)
    assert list(encode(history.events(), "claude-code")) == lines


def test_an_append_to_a_long_history_reads_nothing(histories, monkeypatch):
    history = histories["c1"]
    history.append_records(({"role": "user", "content": f"m{n}"} for n in range(3_000)), format="openai-chat")
    forget_decoders(histories)
    read = []

    def events(self, start=0, stop=None, *, reverse=False):
        for event in self._store.events("c1", start, stop, reverse=reverse):
            read.append(event.id)
            yield event

    monkeypatch.setattr(type(history), "events", events)
    monkeypatch.setattr(type(history), "at", lambda self, version: pytest.fail("the View was read"))
    history.append_records([{"role": "user", "content": "new"}], format="openai-chat")
    history.append_records([{"role": "user", "content": "newer"}], format="openai-chat")
    assert read == []


def test_records_of_a_conversation_whose_id_is_used_again_are_read_by_themselves(histories):
    call = {"type": "tool_use", "id": "t1", "name": "ls", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "a.py"}
    histories["c1"].append_records([line(0, None, "assistant", [call])], format="claude-code")
    histories.erase("c1", reason="test")
    history = histories.create("c1", replace_erased=True)
    assert history.version() == 1, "as long as the erased one was"
    history.append_records([line(1, 0, content=[result])], format="claude-code")
    answered = next(history.events(1))
    assert (answered.call_id, answered.cause) == ("t1", None), "the call was erased"
    assert list(encode(history.events(), "claude-code")) == [line(1, 0, content=[result])]


def test_writers_of_one_history_lose_nothing(histories):
    history = histories["c1"]

    def write(writer):
        for number in range(30):
            history.append_records([{"role": "user", "content": f"{writer}-{number}"}], format="openai-chat")

    at_once(write, range(4))
    said = [record["content"] for record in encode(history.events(), "openai-chat")]
    assert sorted(said) == sorted(f"{writer}-{number}" for writer in range(4) for number in range(30))
    for writer in range(4):
        assert [text for text in said if text.startswith(f"{writer}-")] == [f"{writer}-{n}" for n in range(30)]


def test_all_records_are_appended_or_none_and_errors_say_which(histories):
    history = histories["c1"]
    good = {"role": "user", "content": "a"}
    with pytest.raises(
        InvalidEvent, match=r"record 1: expected .* text under 'role', found another object.*nothing was appended"
    ):
        history.append_records([good, {"content": "b"}], format="openai-chat")
    with pytest.raises(InvalidEvent, match="record 0: expected a message with a text under 'role', found null"):
        history.append_records([{"type": "chat", "data": {"content": "b"}}], format="langchain")
    assert history.version() == 0
    wrong = {"role": "ai", "content": "b"}
    for append in (
        *(partial(history.append_records, format=format) for format in ("openai-chat", "openai-responses")),
        *(history.append, lambda records: foldlog.from_openai({"output": records}), foldlog.from_openai),
    ):
        with pytest.raises(EventStoreError, match=r"the role 'ai' is not known; use assistant, user, system"):
            append([good, wrong])
    assert history.version() == 0
    history.append_records([good], format="openai-chat", expected_version=0)
    with pytest.raises(VersionConflict):
        history.append_records([good], format="openai-chat", expected_version=0)
    history.append_records([good], format="openai-chat", expected_version=1)
    assert history.append_records([], format="openai-chat") == ()
    assert history.version() == 2


@pytest.mark.parametrize("restarts", [False, True])
def test_of_v0_the_records_of_a_delegate_are_hidden_from_its_beginning_on(histories, restarts):
    """A whole stream shows them where no result tells that they are a delegate's: then the parent reads them."""
    delegate = {"id": 1, "source": "agent", "action": "delegate", "args": {"agent": "x"}}
    inner = {"id": 2, "source": "agent", "action": "message", "args": {"content": "inner"}}
    done = {"id": 3, "source": "agent", "observation": "delegate", "content": "done", "extras": {}, "cause": 1}
    said = {"id": 0, "source": "user", "action": "message", "args": {"content": "hi"}}
    after = {"id": 4, "source": "agent", "action": "message", "args": {"content": "bye"}}
    records = [said, delegate, inner, done, after]
    assert [event.shown for event in decode(records[:3], "openhands-v0")] == [True, True, True]
    assert [event.shown for event in decode(records, "openhands-v0")] == [True, True, False, True, True]
    for record in records:
        histories["c1"].append_records([record], format="openhands-v0")
        if restarts:
            forget_decoders(histories)
    events = list(histories["c1"].events())
    assert [event.shown for event in events] == [True, True, False, True, True]
    assert events[3].cause == 1
    assert list(encode(events, "openhands-v0")) == records


def test_a_growing_file_is_found_again_where_its_records_came_one_by_one(histories, tmp_path):
    lines = [line(n, n - 1 if n else None, content=f"m{n}") for n in range(5)]
    for one in lines:
        histories["s"].append_records([one], format="claude-code")
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    (source,) = open_sources([path])
    assert import_source(histories.store, source)[:3] == ("s", 0, 5)


@pytest.mark.anyio
async def test_the_async_face_appends_records(anyio_backend):
    async with foldlog.aio.open("memory:") as histories:
        await histories["c1"].append_records([{"role": "user", "content": "a"}], format="openai-chat")
        assert [event.content for event in await histories["c1"].view()] == ["a"]


# -- formats of one's own ---------------------------------------------------------------------------------------------


class ParrotDecoder(RecordDecoder):
    def __init__(self, records, options):
        super().__init__(options)

    def events(self, record):
        if type(record) is not dict or "parrot" not in record:
            raise NotAnEvent("a parrot says something, this one does not")
        self.next_id += 1
        origin = Origin(format="parrot", id=record.get("id"))
        return [Message(id=self.next_id - 1, source="user", content=record["parrot"], origin=origin)]


class ParrotEncoder(RecordEncoder):
    def records(self, event):
        return [{"parrot": event.content}]


def parrot(name="parrot"):
    return Format(
        name=name,
        matches=lambda record: type(record) is dict and "parrot" in record,
        accepts=lambda record: type(record) is dict,
        decoder=ParrotDecoder,
        encoder=ParrotEncoder,
        live=True,
    )


@pytest.fixture
def own_registry(monkeypatch):
    monkeypatch.setattr(formats_registry, "FORMATS", dict(formats_registry.FORMATS))
    monkeypatch.setattr(formats_registry, "_refused", [])


def test_a_registered_format_is_read_written_found_and_live(own_registry, histories, tmp_path):
    format = register(parrot())
    assert register(format) is format
    with pytest.raises(ValueError, match="another format has the name 'parrot'"):
        register(parrot())
    with pytest.raises(TypeError, match="the registered format is a str; make it a Format"):
        register("parrot")
    assert "parrot" in foldlog.formats.FORMATS
    records = [{"parrot": "a"}, {"parrot": "b"}]
    assert list(encode(decode(records, "parrot"), "parrot")) == records
    path = tmp_path / "p.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert foldlog.formats.detect(path) == "parrot"
    histories["c1"].append_records(records[:1], format="parrot")
    forget_decoders(histories)
    histories["c1"].append_records(records[1:], format="parrot")
    assert list(encode(histories["c1"].events(), "parrot")) == records


@pytest.mark.parametrize("name", ["", "auto", "-parrot", "two words", "two\nlines"])
def test_a_name_that_the_command_could_not_take_is_refused(own_registry, name):
    with pytest.raises(InvalidArgument, match=r"the registered format has the name .* is not 'auto'"):
        register(parrot(name))
    assert name not in foldlog.formats.FORMATS


BROUGHT = parrot("brought")


def test_an_installed_package_brings_a_format(own_registry, monkeypatch):
    brings = EntryPoint("brought", f"{__name__}:BROUGHT", formats_registry.GROUP)
    monkeypatch.setattr(formats_registry, "_refused", None)
    monkeypatch.setattr(formats_registry, "entry_points", lambda group: [brings])
    monkeypatch.setattr(EntryPoint, "load", lambda self: BROUGHT)
    assert foldlog.formats.FORMATS[-1] == "brought"
    assert next(decode([{"parrot": "a"}], "brought")).content == "a"


def test_packages_are_loaded_once_and_a_broken_one_is_named_each_time(own_registry, monkeypatch):
    asked: list[str] = []
    errors: list[UnusableFormat] = []

    def load(entry_point: EntryPoint) -> Format:
        asked.append(entry_point.name)
        if entry_point.name == "broken":
            raise SyntaxError("broken")
        return BROUGHT

    names = ["broken", "brought"]
    found = [EntryPoint(name, f"{__name__}:BROUGHT", formats_registry.GROUP) for name in names]
    monkeypatch.setattr(formats_registry, "_refused", None)
    monkeypatch.setattr(formats_registry, "entry_points", lambda group: found)
    monkeypatch.setattr(EntryPoint, "load", load)
    for _ in range(2):
        assert next(decode([{"parrot": "a"}], "brought")).content == "a"
        for refused in (lambda: decode([], "none of ours"), foldlog.formats.formats):
            with pytest.raises(UnusableFormat, match=r"entry point 'broken' of foldlog\.formats") as raised:
                refused()
            errors.append(raised.value)
    assert asked == names
    assert len(set(map(id, errors))) == 4  # one that is raised again has the notes and the context of the time before


def test_a_live_decoder_that_numbers_from_0_is_told_so(own_registry, histories):
    class Forgetful(ParrotDecoder):
        def __init__(self, records, options):
            self.next_id = 0

    register(replace(parrot(), decoder=Forgetful))
    histories["c1"].append(Message(source="user", content="before"))
    with pytest.raises(UnusableFormat, match="gave event 0 to a history at version 1"):
        histories["c1"].append_records([{"parrot": "a"}], format="parrot")
