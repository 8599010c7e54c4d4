"""What the records of a Codex rollout mean, and what its agent was shown."""

from __future__ import annotations

import json

import pytest

import foldlog
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    Message,
    Observation,
    Retraction,
    SystemMessage,
    codec,
)
from foldlog.formats import decode, encode, open_sources
from foldlog.projections import View

CODEX = "codex"


def record(line, payload, time="2026-02-17T09:00:00.123Z"):
    return {"timestamp": time, "type": line, "payload": payload}


def item(type, **fields):
    return record("response_item", {"type": type, **fields})


def text(text, role="user"):
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def said(*texts, role="user"):
    return [record("response_item", text(it, role)) for it in texts]


def call(call_id, name="shell", arguments='{"command":["ls"]}'):
    return item("function_call", name=name, arguments=arguments, call_id=call_id)


def output(call_id, output="done"):
    return item("function_call_output", call_id=call_id, output=output)


def compacted(message, *history):
    payload = {"message": message, **({"replacement_history": list(history)} if history else {})}
    return record("compacted", payload)


BASE = record("session_meta", {"id": "s1", "cwd": "/", "base_instructions": {"text": "You are"}})


def read(*records):
    events = list(decode(records, CODEX))
    stored = [codec.encode(event) for event in events]
    kept = (codec.decode(one.kind, one.schema, one.body, place) for place, one in enumerate(stored))
    assert list(encode(kept, CODEX)) == list(records)
    return events


def shown(events):
    """The contents of the View, with a tool's name for a call."""
    return [event.tool if isinstance(event, Action) else event.content for event in View.from_events(events)]


def stored(event):
    return codec.encode(event).body.decode()


# -- who speaks -------------------------------------------------------------------------------------------------------


def test_words_in_a_role_that_is_not_known_are_nobodys(histories):
    findings, odd = [], text("no", "critic")
    records = [
        BASE,
        *said("a"),
        *said("no", role="critic"),
        compacted("so far", text("b"), odd, text("so far")),
        *said("c"),
    ]
    events = list(decode(records, CODEX, findings=findings.append))
    assert shown(events) == ["You are", "b", "so far", "c"]
    assert list(encode(events, CODEX)) == [*records[:2], *records[3:]]
    assert [str(each).partition(";")[0] for each in findings] == [
        "record 2: the role 'critic' is not known",
        "record 3: is a compaction of which item 1 is not shown: the role 'critic' is not known",
    ]
    histories["c1"].append_records(records[:2], format=CODEX)
    with pytest.raises(foldlog.InvalidEvent, match="record 0: the role 'critic' is not known"):
        histories["c1"].append_records(said("no", role="critic"), format=CODEX)
    histories["c1"].append_records(records[3:], format=CODEX)
    assert shown(histories["c1"].events()) == shown(events)


# -- compaction -------------------------------------------------------------------------------------------------------


def test_a_compaction_forgets_what_was_shown_but_the_instructions():
    events = read(
        BASE, *said("Ask first", role="developer"), *said("a", "b"), call("c"), output("c"), compacted("ab"), *said("d")
    )
    assert isinstance(events[6], CondensationAction)
    assert events[6].forgotten_event_ids == (2, 3, 4, 5)
    assert shown(events) == ["You are", "Ask first", "ab", "d"]
    again = read(*[*encode(events, CODEX), compacted("abd"), *said("e")])
    assert shown(again) == ["You are", "Ask first", "abd", "e"]
    assert shown(read(*said("a"), compacted(""), *said("b"))) == ["b"]


# -- what is not known ------------------------------------------------------------------------------------------------


def test_what_was_added_since_is_written_as_codex_would():
    events = list(decode([BASE, *said("hi")], CODEX))
    added = [
        SystemMessage(id=2, content="Ask first"),
        Action(id=3, tool="shell", arguments={"command": ["ls"]}, thought="I look"),
        Observation(id=4, content="x", cause=3),
        Annotation(id=5, name="spent", data={"cost": 1}),
        CondensationAction(id=6, forgotten_event_ids=(1,), summary="s", summary_offset=0),
        Message(id=7, source="agent", content="bye"),
    ]
    payloads = [it["payload"] for it in encode([*events, *added], CODEX)][2:]
    assert payloads == [
        text("Ask first", role="developer"),
        {**text("I look", role="assistant"), "phase": "commentary"},
        {"type": "function_call", "name": "shell", "arguments": '{"command": ["ls"]}', "call_id": "call_3"},
        {"type": "function_call_output", "call_id": "call_3", "output": "x"},
        {
            "message": "s",
            "replacement_history": [
                text("s"),
                text("Ask first", role="developer"),
                {**text("I look", role="assistant"), "phase": "commentary"},
                {"type": "function_call", "name": "shell", "arguments": '{"command": ["ls"]}', "call_id": "call_3"},
                {"type": "function_call_output", "call_id": "call_3", "output": "x"},
            ],
        },
        text("bye", role="assistant"),
    ]


# -- condensations of ours --------------------------------------------------------------------------------------------


def test_condensations_of_ours_are_compacted_and_give_the_same_view_again():
    events = list(decode([BASE, *said("hi"), call("a"), output("a"), *said("bye", role="assistant")], CODEX))
    for forgotten, summary, offset in (((2, 3), "a look around", 2), ((1, -7), "the whole beginning", 1)):
        told = {"summary": summary, "summary_offset": offset}
        events.append(CondensationAction(id=len(events), forgotten_event_ids=forgotten, **told))
        events.append(Message(id=len(events), source="user", content=f"go on, {len(events)}"))
        records = list(encode(events, CODEX))
        again = list(decode(records, CODEX))
        assert list(encode(again, CODEX)) == records
        assert View.from_events(again).to_messages() == View.from_events(events).to_messages()
    assert [it["type"] for it in records].count("compacted") == 2


def test_a_retraction_of_ours_is_compacted_to_the_view_that_it_restores():
    events = list(decode([BASE, *said("hi"), call("a"), output("a"), *said("bye", role="assistant")], CODEX))
    events.append(CondensationAction(id=5, forgotten_event_ids=(2, 3), summary="a look around", summary_offset=2))
    events.append(Message(id=6, source="user", content="and now?"))
    for version in (5, 7, 2):
        events.append(Retraction(id=len(events), version=version))
        events.append(Message(id=len(events), source="user", content=f"back to {version}"))
        again = list(decode(list(encode(events, CODEX)), CODEX))
        assert View.from_events(again).to_messages() == View.from_events(events).to_messages()
    notes = []
    assert len(list(encode(events, "openai-chat", notes=notes.append))) == 9
    assert [note.partition(";")[0] for note in notes] == ["left out: 1 condensation, 3 retractions"]


def test_a_condensation_that_was_declined_has_no_line():
    events = list(decode([BASE, *said("hi")], CODEX))
    declined = CondensationAction(id=2, forgotten_event_ids=(), metadata={"outcome": "declined", "reason": "short"})
    notes = []
    assert len(list(encode([*events, declined], CODEX, notes=notes.append))) == 2
    assert len(list(encode([*events, declined], "openai-chat", notes=notes.append))) == 2
    assert notes == []


def test_the_receipt_of_a_redaction_has_no_line():
    with foldlog.open("memory:") as histories:
        history = histories["c1"]
        history.append_records(said("SECRET", "b"), format=CODEX)
        history.redact(0, reason="asked to", by="me")
        notes = []
        session, *lines = encode(history.events(), CODEX, notes=notes.append)
        assert (session["type"], lines) == ("session_meta", said("[redacted]", "b"))
    assert notes[0].startswith("left out: 1 redaction receipt")


def test_a_condensation_after_a_compaction_is_written_with_what_its_history_kept():
    history = [text("kept"), text("sum")]
    records = [record("session_meta", {"id": "s", "cwd": "/"}), *said("one")]
    records += [record("compacted", {"message": "sum", "replacement_history": history}), *said("after")]
    with foldlog.open("memory:") as histories:
        histories["c"].append_records(records, format=CODEX)
        histories["c"].append(CondensationAction(forgotten_event_ids=(4,)))
        assert [*histories["c"].export()][-1]["payload"]["replacement_history"] == history


# -- rollouts of the first releases -----------------------------------------------------------------------------------

HEADER = {"id": "old-1", "timestamp": "2025-08-18T01:16:13.522Z", "instructions": None, "git": {"branch": "main"}}
STATE = {"record_type": "state"}


def bare(*records):
    """The lines of an old rollout that say what these lines of today say."""
    return [it["payload"] for it in records]


def old_rollout():
    summary = [{"type": "summary_text", "text": "Look"}]
    thought = {"type": "reasoning", "id": "rs_1", "summary": summary, "content": None}
    ls = {"type": "exec", "command": ["ls"]}
    shell = {"type": "local_shell_call", "id": None, "call_id": "l", "status": "completed", "action": ls}
    context = bare(*said("<environment_context>\n</environment_context>"))
    asked = bare(*said("mend the kite"), call("a"), output("a", "kite.py"))
    rest = bare(output("l"), *said("It flies.", role="assistant"))
    return [HEADER, STATE, *context, *asked, STATE, thought, shell, *rest]


@pytest.mark.parametrize("first", [0, 1, 2])
def test_an_old_rollout_is_recognized_and_named(first, tmp_path):
    path = tmp_path / "rollout.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in old_rollout()[first:]))
    (source,) = open_sources([path])
    assert (source.format, source.name) == (CODEX, "old-1" if first == 0 else f"{tmp_path.name}/rollout")
    assert len([event for event in source.events() if isinstance(event, Action)]) == 2


def test_where_the_first_lines_are_lost_the_format_can_be_named(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in old_rollout() if line not in (HEADER, STATE)))
    (source,) = open_sources([path])
    assert source.format == "openai-responses"
    (source,) = open_sources([path], CODEX)
    assert len([event for event in source.events() if isinstance(event, Action)]) == 2


def test_a_sub_agents_rollout_is_linked_to_the_session_that_started_it(tmp_path):
    source = {"subagent": {"thread_spawn": {"parent_thread_id": "s0", "depth": 1}}}
    spawned = record("session_meta", {"id": "s1", "source": source})
    assert [event.meta for event in read(spawned, *said("hi"))] == [{"parent": "s0"}, {}]
    assert [event.meta for event in read(BASE, *said("hi"))] == [{"instructions": "base"}, {}]
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(spawned))
    (opened,) = open_sources([path], prefix="run/")
    assert next(opened.events()).meta == {"parent": "run/s0"}


def test_a_rollout_without_its_session_line_is_told_of(tmp_path):
    lines = [record("session_meta", {"id": "s"}), *said("fix it", "and test it")]
    told_of = []
    exported = [*encode([Message(id=0, source="user", content="fix it")], CODEX)]
    for place, records in enumerate(
        (lines, lines[1:], [{"id": "s", "timestamp": "", "instructions": None}, *lines[1:]], exported)
    ):
        path = tmp_path / f"{place}.jsonl"
        path.write_text("".join(f"{json.dumps(each)}\n" for each in records))
        (source,) = open_sources([path])
        assert len(list(source.events())) == len(records)
        told_of.append([finding.problem for finding in source.findings])
    assert told_of[0] == told_of[2] == told_of[3] == []
    assert "session_meta" in told_of[1][0]


def test_a_result_that_repeats_one_of_the_texts_of_a_redacted_call_is_told_of(tmp_path):
    run = {"function_name": "run", "tool_call_id": "a", "model_response": {"id": "r"}}
    call = {"action": "run", "args": {"command": "login --as Kurt 1111", "thought": "I log in first"}}
    result = {"observation": "run", "content": "done", "extras": {"command": "login --as Kurt 1111"}}
    asked = {"action": "message", "source": "user", "args": {"content": "log in"}}
    lines = [asked, {**call, "source": "agent"}, {**result, "source": "agent", "cause": 1}]
    records = [{"id": number, "tool_call_metadata": run, **line} for number, line in enumerate(lines)]
    path, told_of = tmp_path / "v0.jsonl", []
    with foldlog.open("memory:") as histories:
        for there in (2, 3):
            path.write_text("".join(f"{json.dumps(each)}\n" for each in records[:there]))
            (history,) = histories.import_(path, format="openhands-v0", findings=told_of.append)
            history.redact(1, reason="asked to")
        (again,) = [event.id for event in history.events() if "Kurt" in repr(event)]
    assert any(f"say what was redacted: {again}; redact them too" in each for each in told_of), told_of


@pytest.mark.parametrize("with_image", [False, True])
def test_a_message_that_a_compaction_says_again_after_its_redaction_is_told_of(tmp_path, with_image):
    (secret,), path, told_of = said("my card is Kurt 1111"), tmp_path / "a.jsonl", []
    secret["payload"]["content"] += [
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    ] * with_image
    lines = [BASE, secret, *said("go on"), compacted("So far", text("my card is Kurt 1111"))]
    with foldlog.open("memory:") as histories:
        for there in (3, 4):
            path.write_text("".join(f"{json.dumps(each)}\n" for each in lines[:there]))
            (history,) = histories.import_(path, findings=told_of.append)
            history.redact(1, reason="asked to")
        again = [event.id for event in history.events() if "Kurt" in repr(event)]
    assert again
    assert any(f"say what was redacted: {', '.join(map(str, again))}; redact them too" in each for each in told_of)
