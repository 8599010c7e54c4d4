"""What the records of a Codex rollout mean, and what its agent was shown."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

import foldlog
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationSummary,
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


def told(type, **fields):
    return record("event_msg", {"type": type, **fields})


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


def test_who_speaks():
    context = "<environment_context>\n  <cwd>/</cwd>\n</environment_context>"
    records = [
        BASE,
        *said("Ask first", role="developer"),
        *said("Be kind", role="system"),
        *said(context, "# AGENTS.md instructions for /\n\nBe brief", "<b> is what?"),
        *said("hello", role="assistant"),
        *said("x", role="critic"),
    ]
    events = read(*records)
    assert [type(event) for event in events] == [SystemMessage] * 3 + [Message] * 5
    assert [event.source for event in events[3:]] == ["environment", "environment", "user", "agent", "environment"]
    assert [event.content for event in events[:3]] == ["You are", "Ask first", "Be kind"]
    assert events[0].timestamp == datetime(2026, 2, 17, 9, 0, 0, 123_000, tzinfo=UTC)
    assert (events[0].origin.id, events[1].origin.id) == ("s1", None)


def test_images_and_files_are_parts():
    parts = [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "high"},
        {"type": "input_file", "file_id": "f"},
    ]
    (event,) = read(item("message", role="user", content=parts))
    assert event.content == (
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "high"}},
        parts[2],
    )


def test_a_time_without_a_zone_is_kept_as_text():
    (event,) = read(record("response_item", text("hi"), time="2026-02-17T09:00:00"))
    assert (event.timestamp, event.origin.time) == (None, "2026-02-17T09:00:00")


# -- instructions -----------------------------------------------------------------------------------------------------


def test_instructions_are_shown_once_wherever_they_are_said_again():
    context = {"cwd": "/", "developer_instructions": "Ask first", "user_instructions": "Be brief"}
    records = [
        record("session_meta", {"id": "s1", "instructions": "You are"}),
        record("session_meta", {"id": "s1", "instructions": "You are"}),
        *said("<user_instructions>Be brief</user_instructions>"),
        record("turn_context", context),
        record("turn_context", context),
        record("turn_context", {**context, "user_instructions": "Be long", "developer_instructions": "Dare"}),
        record("session_meta", {"id": "s1", "instructions": None}),
    ]
    events = read(*records)
    assert shown(events) == [
        *("You are", "<user_instructions>Be brief</user_instructions>", "Ask first"),
        ({"type": "text", "text": "Dare"}, {"type": "text", "text": "Be long"}),
    ]
    assert [type(events[place]) for place in (1, 4, 6)] == [Annotation] * 3


# -- what is said twice -----------------------------------------------------------------------------------------------


def test_an_event_that_repeats_an_item_holds_nothing_of_it():
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    parts = [{"type": "input_text", "text": "look "}, {"type": "input_text", "text": "here"}, image]
    events = read(
        item("message", role="user", content=parts),
        told("user_message", message="look here", images=[image["image_url"]], kind="plain"),
        *said("I see", role="assistant"),
        told("agent_message", message="I see"),
        told("agent_message", message="I see more"),
    )
    assert [event.data for event in events if isinstance(event, Annotation)] == [*({"kind": "plain"}, {}, {})]
    assert len(View.from_events(events)) == 2


# -- calls ------------------------------------------------------------------------------------------------------------


def test_calls_of_every_kind_and_their_answers():
    exec = {"type": "exec", "command": ["ls"], "timeout_ms": None}
    patch = "*** Begin Patch\n*** End Patch"
    events = read(
        call("a"),
        item("custom_tool_call", status="completed", name="apply_patch", input=patch, call_id="b"),
        item("local_shell_call", status="completed", call_id="c", action=exec),
        item("local_shell_call", status="completed", id="d", call_id=None, action=exec),
        item("custom_tool_call_output", call_id="b", output="Success"),
        output("a", "out"),
        output("c", [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": "data:1"}]),
        output("d", {"content": "no", "success": False}),
    )
    assert [(event.tool, event.call_id) for event in events[:4]] == [
        *(("shell", "a"), ("apply_patch", "b"), ("local_shell", "c"), ("local_shell", "d"))
    ]
    assert [event.arguments for event in events[:3]] == ['{"command":["ls"]}', {"input": patch}, exec]
    assert [(type(event), event.cause, event.tool) for event in events[4:]] == [
        *((Observation, 1, "apply_patch"), (Observation, 0, "shell")),
        *((Observation, 2, "local_shell"), (Observation, 3, "local_shell")),
    ]
    assert events[6].content[1] == {"type": "image_url", "image_url": {"url": "data:1"}}
    assert [(event.content, event.is_error) for event in events[4:6] + events[7:]] == [
        *(("Success", False), ("out", False), ("no", True))
    ]
    roles = [message["role"] for message in View.from_events(events).to_messages()]
    assert roles == ["user"] + ["assistant", "tool"] * 4


def test_an_answer_is_an_error_where_it_says_so():
    for told, failed in (
        ('{"output":"x","metadata":{"exit_code":0,"duration_seconds":0.1}}', False),
        ('{"output":"x","metadata":{"exit_code":127}}', True),
        ('{"metadata":{"exit_code":"1"}}', False),
        ('{"metadata"', False),
        ('{"metadata":"\ud800"}', False),
        ("Exit code: 0\nWall time: 1 seconds\nOutput:\nExit code: 1", False),
        ("Exit code: 1\nWall time: 1 seconds\nOutput:\nx", True),
        ("Chunk ID: 1\nWall time: 1 seconds\nProcess exited with code -1\nOutput:\n", True),
        ("Exit code: 1", False),
        ("failed in sandbox Seatbelt with execution error: denied, exit code: 1, stdout: , stderr: x", True),
        ("execution error: No such file or directory", True),
        ("an execution error", False),
        (None, False),
        ({"content": "Exit code: 1\nOutput:\n"}, True),
        ([{"type": "input_text", "text": "x"}], False),
    ):
        assert read(call("a"), output("a", told))[1].is_error is failed, told


def test_a_result_is_that_of_the_newest_open_call_with_its_id_as_in_a_view():
    events = read(call("x", "one"), call("x", "two"), output("x"), output("x"), output("x"), output(None))
    assert [(event.cause, event.tool) for event in events[2:]] == [(1, "two"), (0, "one"), (None, ""), (None, "")]
    assert [message["role"] for message in View.from_events(events).to_messages()][1:] == ["assistant", "tool"] * 2


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


def test_a_replacement_history_is_what_is_shown_from_then_on():
    history = [text("Ask again", role="developer"), text("a"), text("So far:\nab"), text("where", role="assistant")]
    events = read(
        BASE, *said("Ask first", role="developer"), *said("a"), call("c"), compacted("ab", *history), *said("d")
    )
    assert [type(event) for event in events[4:8]] == [SystemMessage, Message, Message, CondensationAction]
    assert (events[7].summary, events[7].summary_offset, events[7].forgotten_event_ids) == ("So far:\nab", 3, (1, 2, 3))
    assert shown(events) == ["You are", "Ask again", "a", "So far:\nab", "where", "d"]
    assert isinstance(View.from_events(events)[3], CondensationSummary)
    assert stored(events[7]).count("So far") == 1
    assert stored(events[7]).count("ab") == 1


def test_what_no_item_of_a_history_shows_does_not_count_for_the_place_of_its_summary():
    snapshot = {"type": "ghost_snapshot", "ghost_commit": {}}
    events = read(*said("a"), compacted("b", snapshot, text("a"), snapshot, text("So far: b"), text("c")))
    assert shown(events) == ["a", "So far: b", "c"]


def test_instructions_that_a_history_does_not_say_are_shown_when_they_are_said_again():
    context = record("turn_context", {"developer_instructions": "Ask first"})
    events = read(BASE, *said("Ask first", role="developer"), context, compacted("a", text("a")), context, BASE)
    assert shown(events) == ["You are", "a", "Ask first"]


def test_a_replacement_history_may_hold_calls_that_are_answered_later_and_no_summary():
    done = call("c")["payload"]
    encrypted = {"type": "compaction", "encrypted_content": "gAAA"}
    events = read(*said("a"), call("c"), compacted("", text("a"), encrypted, done), output("c"))
    assert [type(event) for event in events[2:6]] == [Message, Annotation, Action, CondensationAction]
    assert events[5].summary is None
    assert shown(events) == ["a", "shell", "done"]
    assert events[6].cause == 4
    assert [it["role"] for it in View.from_events(events).to_messages()] == ["user", "assistant", "tool"]


def test_turns_that_are_rolled_back_are_shown_no_more():
    turns = [*said("a"), *said("A", role="assistant"), *said("b"), call("c"), output("c"), *said("d")]
    assert shown(read(BASE, *turns, told("thread_rolled_back", num_turns=2), *said("e"))) == ["You are", "a", "A", "e"]
    assert shown(read(BASE, *turns, told("thread_rolled_back", num_turns=9))) == ["You are"]
    assert shown(read(*turns, compacted("ab", text("a"), text("ab")), told("thread_rolled_back", num_turns=1))) == []
    assert len(shown(read(BASE, *turns, told("thread_rolled_back", num_turns=0)))) == 7
    assert len(shown(read(BASE, *turns, told("thread_rolled_back", num_turns=-1)))) == 7
    assert shown(read(BASE, told("thread_rolled_back", num_turns=1, id=5))) == ["You are"]
    assert shown(read(*turns, *[told("thread_rolled_back", num_turns=1)] * 2)) == ["a", "A"]
    records = [*turns, BASE, told("thread_rolled_back", num_turns=1), *said("e"), compacted("x", text("x"))]
    assert shown(read(*records)) == ["You are", "x"]


# -- what is not known ------------------------------------------------------------------------------------------------


def test_what_is_not_known_is_an_annotation():
    (event,) = read(record("world_state", {"full": True, "type": "x"}))
    assert (event.name, event.data) == ("world_state", {"full": True, "type": "x"})


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
        text("I look", role="assistant"),
        {"type": "function_call", "name": "shell", "arguments": '{"command": ["ls"]}', "call_id": "call_3"},
        {"type": "function_call_output", "call_id": "call_3", "output": "x"},
        {
            "message": "s",
            "replacement_history": [
                text("s"),
                text("Ask first", role="developer"),
                text("I look", role="assistant"),
                {"type": "function_call", "name": "shell", "arguments": '{"command": ["ls"]}', "call_id": "call_3"},
                {"type": "function_call_output", "call_id": "call_3", "output": "x"},
            ],
        },
        text("bye", role="assistant"),
    ]


# -- condensations of ours --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "condensations",
    [
        [{"forgotten_event_ids": (2, 3), "summary": "a look around", "summary_offset": 2}],
        [{"forgotten_events_start_id": 1, "forgotten_events_end_id": 4, "summary": "all of it", "summary_offset": 1}],
        [{"forgotten_event_ids": (1,), "summary": None, "summary_offset": None}],
        [
            {"forgotten_event_ids": (2, 3), "summary": "a look around", "summary_offset": 2},
            {"forgotten_event_ids": (1, -8), "summary": "the whole beginning", "summary_offset": 1},
        ],
    ],
)
def test_a_condensation_of_ours_is_compacted_and_gives_the_same_view_again(condensations):
    events = list(decode([BASE, *said("hi"), call("a"), output("a"), *said("bye", role="assistant")], CODEX))
    events += [Message(id=5, source="user", content="and now?")]
    for fields in condensations:
        events.append(CondensationAction(id=len(events), **fields))
        events.append(Message(id=len(events), source="user", content=f"go on, {len(events)}"))
    records = list(encode(events, CODEX))
    assert [it["type"] for it in records].count("compacted") == len(condensations)
    again = list(decode(records, CODEX))
    assert list(encode(again, CODEX)) == records
    assert View.from_events(again).to_messages() == View.from_events(events).to_messages()


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
        assert list(encode(history.events(), CODEX, notes=notes.append)) == said("[redacted]", "b")
    assert notes[0].startswith("left out: 1 redaction receipt")


# -- turns that were aborted ------------------------------------------------------------------------------------------


def test_what_an_aborted_turn_left_open_is_answered_as_codex_answers_it():
    records = [*said("go"), call("a"), output("a"), call("b"), call("c"), told("turn_aborted", reason="interrupted")]
    events = read(*records, *said("<turn_aborted>\n</turn_aborted>", "again"))
    assert [type(event).__name__ for event in events[5:8]] == ["Observation", "Observation", "Annotation"]
    assert [(event.call_id, event.cause, event.content, event.is_error) for event in events[5:7]] == [
        ("b", 3, "aborted", True),
        ("c", 4, "aborted", True),
    ]
    messages = View.from_events(events).to_messages()
    assert [message["content"] for message in messages if message["role"] == "tool"] == ["done", "aborted", "aborted"]
    assert events[8].source == "environment"
    assert View.from_events(events).open_calls == ()
    assert [type(event).__name__ for event in read(*records[:3], records[5])][3:] == ["Annotation"]


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


def test_an_old_rollout_is_read_as_one_of_today():
    events = read(*old_rollout())
    assert shown(events) == [
        "<environment_context>\n</environment_context>",
        "mend the kite",
        "shell",
        "kite.py",
        "local_shell",
        "done",
        "It flies.",
    ]
    assert events[0].timestamp == datetime(2025, 8, 18, 1, 16, 13, 522000, UTC)
    assert [message["role"] for message in View.from_events(events).to_messages()] == [
        *("user", "assistant", "tool", "assistant", "tool", "assistant")
    ]
    notes = {**HEADER, "instructions": "Be kind."}
    assert shown(read(notes, *bare(*said("hi")))) == ["Be kind.", "hi"]


@pytest.mark.parametrize("first", [0, 1])
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
    for place, records in enumerate(
        (lines, lines[1:], [{"id": "s", "timestamp": "", "instructions": None}, *lines[1:]])
    ):
        path = tmp_path / f"{place}.jsonl"
        path.write_text("".join(f"{json.dumps(each)}\n" for each in records))
        (source,) = open_sources([path])
        assert len(list(source.events())) == len(records)
        told_of.append([finding.problem for finding in source.findings])
    assert told_of[0] == told_of[2] == []
    assert "session_meta" in told_of[1][0]
