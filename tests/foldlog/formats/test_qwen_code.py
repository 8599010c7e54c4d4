"""What Qwen Code's lines mean, and which branch its model was sent."""

from __future__ import annotations

import json

import pytest

from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    Message,
    Observation,
    Retraction,
)
from foldlog.formats import decode, detect
from foldlog.projections import View
from tests.foldlog.archive.imports import new_store
from tests.foldlog.formats.reading import histories_at, reader_of
from tests.foldlog.records import records_of

QWEN = "qwen-code"
RECORDS = records_of(QWEN)

read = reader_of(QWEN)


def line(name, parent, type="user", *parts, **more):
    role = "model" if type == "assistant" else "user"
    told = {"message": {"role": role, "parts": list(parts)}} if parts else {}
    at = "2026-01-01T00:00:01.000Z"
    ids = {"uuid": name, "parentUuid": parent, "sessionId": "q-1", "timestamp": at}
    return {**ids, "type": type, "cwd": "/w", "version": "0.9.0", **told, **more}


def said(name, parent, text, type="user", **more):
    return line(name, parent, type, {"text": text}, **more)


def system(name, parent, subtype, **payload):
    return line(name, parent, "system", subtype=subtype, systemPayload=payload)


def call(call_id):
    return {"functionCall": {"id": call_id, "name": "ls", "args": {"path": call_id}}}


def result(call_id, **response):
    return {"functionResponse": {"id": call_id, "name": "ls", "response": response}}


def shown(events):
    """The contents of the View, with a tool's name for a call."""
    return [
        event.tool if isinstance(event, Action) else event.content
        for event in View.from_events(events)
    ]


def test_a_session_is_recognized_and_its_branch_its_title_and_its_usage_are_read(foldlog, tmp_path):
    (tmp_path / "q-1.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in RECORDS))
    assert detect(RECORDS) == QWEN
    assert foldlog("import", "q-1.jsonl").status == 0
    (row,) = foldlog("list", "--long", "--json").document["conversations"]
    assert (row["conversation"], row["title"]) == ("q-1", "Files of the harbour")
    (model,) = foldlog("stats", "q-1", "--json").document["models"]
    assert (model["model"], model["calls"]) == ("qwen3-coder-plus", 6)
    assert (model["prompt_tokens"], model["completion_tokens"]) == (6 * 123, 6 * 20)
    assert shown(read(*RECORDS))[-1] == "Nothing is left."


def test_a_call_has_its_thought_and_each_result_its_own():
    thought = {"text": "hm", "thought": True}
    reply = line("b", "a", "assistant", thought, {"text": "I look."}, call("c1"), call("c2"))
    failed = line(
        "d", "c", "tool_result", result("c2", output="?"), toolCallResult={"status": "error"}
    )
    answered = line("c", "b", "tool_result", result("c1", output="a.py"), {"text": "and more"})
    events = read(said("a", None, "list"), reply, answered, failed)
    assert [type(event) for event in events] == [Message, Action, Action, Observation, Observation]
    assert (events[1].thought, events[1].thinking[0]["thinking"]) == ("I look.", "hm")
    assert events[1].response_id == events[2].response_id == "b"
    assert [(event.cause, event.is_error) for event in events[3:]] == [(1, False), (2, True)]
    assert events[3].content == tuple(
        {"type": "text", "text": text} for text in ("a.py", "and more")
    )


def test_a_line_that_follows_an_earlier_one_takes_back_what_is_between_and_a_title_is_beside():
    log = [said("a", None, "one"), said("b", "a", "two", "assistant"), said("c", "b", "three")]
    titled = [
        *log,
        system("t", "c", "custom_title", customTitle="T"),
        said("d", "c", "four", "assistant"),
    ]
    events = read(*titled)
    assert not any(isinstance(event, Retraction) for event in events)
    assert shown(events) == ["one", "two", "three", "four"]
    assert shown(read(*titled, system("r", "a", "rewind"), said("e", "r", "five"))) == [
        "one",
        "five",
    ]
    assert shown(read(*titled, system("r", None, "rewind"), said("e", "r", "five"))) == ["five"]
    assert shown(read(*titled, said("e", "a line that was lost", "five")))[-2:] == ["four", "five"]
    assert shown(read(*titled, system("r", "lost", "rewind"), said("e", "r", "five"))) == ["five"]


def test_a_compression_forgets_all_and_its_contents_count_no_calls_again():
    kept = [
        {"role": "user", "parts": [{"text": "sum"}]},
        {"role": "model", "parts": [call("c1")]},
        {"role": "user", "parts": [result("c1", output="a.py")]},
    ]
    log = [said("a", None, "list"), line("b", "a", "assistant", call("c1"))]
    log.append(line("c", "b", "tool_result", result("c1", output="a.py")))
    compressed = system("s", "c", "chat_compression", compressedHistory=kept)
    events = read(*log, compressed, said("d", "s", "and?"))
    (condensation,) = (event for event in events if isinstance(event, CondensationAction))
    assert (condensation.summary, condensation.forgotten_event_ids) == ("sum", (0, 1, 2))
    assert shown(events) == ["sum", "ls", "a.py", "and?"]
    nothing = system("s", "c", "chat_compression", info={})
    assert shown(read(*log, nothing)) == shown(read(*log))


def test_a_command_that_was_not_sent_is_taken_back_with_its_answer():
    log = [said("a", None, "hi"), said("b", "a", "/about")]
    answer = {"phase": "result", "outputHistoryItems": [{"type": "assistant", "text": "0.9"}]}
    for raw, sent, view in (
        ("/about", False, ["hi", "so?"]),
        ("/other", False, None),
        ("/about", True, None),
    ):
        told = system("c", "b", "slash_command", **answer, rawCommand=raw, sentToModel=sent)
        assert shown(read(*log, told, said("d", "c", "so?"))) == (view or ["hi", "/about", "so?"])


@pytest.mark.parametrize("subtype", ["notification", "goal_runtime"])
def test_what_qwen_code_says_as_the_user_is_the_environments(subtype):
    events = read(said("a", None, "x", subtype=subtype, provenance="system"), said("b", "a", "y"))
    assert [event.source for event in events] == ["environment", "user"]


def test_a_sub_agent_has_its_own_file_and_its_lines_elsewhere_are_not_shown():
    side = {"isSidechain": True, "agentId": "explore-1"}
    own = [said("a", None, "count", **side), said("b", "a", "two", "assistant", **side)]
    assert shown(read(*own)) == ["count", "two"]
    assert shown(read(said("m", None, "hi"), *own, said("n", "m", "so?"))) == ["hi", "so?"]
    begun = system("p", None, "parent_session", parentSessionId="q-0")
    assert read(begun)[0].meta == {"parent": "q-0"}


def test_a_bootstrap_is_shown_and_no_request(tmp_path):
    history = [{"role": "user", "parts": [{"text": "count"}]}]
    begun = system("a", None, "agent_bootstrap", kind="fork", history=history)
    events = read(begun, said("b", "a", "two", "assistant"))
    assert shown(events) == ["count", "two"]
    assert events[0].meta == {"copied": True}


def test_the_lines_of_claude_code_are_not_taken_for_these():
    assert detect(records_of("claude-code")) == "claude-code"
    found = []
    list(decode([said("a", None, "hi"), {"type": "user"}], QWEN, findings=found.append))
    assert [each.place for each in found] == ["record 1"]


def test_a_session_that_grows_adds_its_lines(tmp_path):
    path = tmp_path / "q-1.jsonl"
    with new_store() as store:
        for count in (8, len(RECORDS)):
            path.write_text("".join(f"{json.dumps(each)}\n" for each in RECORDS[:count]))
            (history,) = histories_at(path, store=store)
            assert (history.name, history.records) == ("q-1", RECORDS[:count])
        assert history.added == len(RECORDS) - 8
        assert isinstance(history.events[5], Annotation)


def test_a_line_under_the_id_of_the_one_before_goes_on_with_it():
    first, again = said("b", "a", "I look.", "assistant"), said("b", "a", "It burns.", "assistant")
    events = read(said("a", None, "how is the lamp?"), first, again, said("c", "b", "thanks"))
    assert shown(events) == ["how is the lamp?", "I look.", "It burns.", "thanks"]
    assert not any(isinstance(event, Retraction) for event in events)
