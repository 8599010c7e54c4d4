"""What the events of Copilot CLI mean."""

from __future__ import annotations

import contextlib
import json
import sqlite3

import pytest

from foldlog.eventstore import Annotation, CondensationAction, SystemMessage
from foldlog.formats import NotAHistory, open_sources
from foldlog.projections import View
from tests.foldlog.formats.reading import reader_of
from tests.foldlog.records import records_of

COPILOT = "copilot-cli"
RECORDS = records_of("copilot-cli")
START = RECORDS[0]


def record(number, type, **data):
    at = f"2026-01-01T00:00:{number:02}.000Z"
    return {"type": type, "data": data, "id": f"e{number}", "timestamp": at, "parentId": f"e{number - 1}"}


def asked(number, text, **data):
    return record(number, "user.message", content=text, **data)


def called(number, *ids, **data):
    calls = [{"toolCallId": name, "name": "bash", "arguments": {"command": "ls"}} for name in ids]
    return record(number, "assistant.message", messageId=f"m{number}", content="I look", toolRequests=calls, **data)


def done(number, name, text="a.py", **data):
    return record(number, "tool.execution_complete", toolCallId=name, success=True, result={"content": text}, **data)


read = reader_of(COPILOT)


def shown(events):
    return [each["content"] for each in View.from_events(events).to_messages()]


def test_every_event_is_what_the_model_was_shown():
    upto = next(place for place, each in enumerate(RECORDS) if each["type"] == "session.truncation")
    view = list(View.from_events(read(*RECORDS[:upto])))
    assert [type(event).__name__ for event in view] == [
        *("SystemMessage", "Message", "Action", "Action", "Action", "Observation", "Observation", "Observation"),
        *("Action", "Observation", "Message", "Message", "Message"),
    ]
    request = view[1]
    assert request.content[0]["text"] == "<current_datetime>now</current_datetime>\n\nlist the files"
    assert request.content[1]["image_url"]["url"].startswith("data:image/png;base64,")
    first, second, third = view[2:5]
    assert (first.thought, second.thought, {action.response_id for action in view[2:5]}) == ("I look.", "", {"a1"})
    assert first.thinking == ({"type": "thinking", "thinking": "I look at the harbour first"},)
    assert (first.arguments, third.arguments) == ({"command": "ls"}, "*** Begin Patch")
    assert [event.cause for event in view[5:8]] == [first.id, second.id, third.id]
    assert (view[5].content, view[6].content[1]["type"]) == ("a.py b.py", "image_url")
    assert (view[7].content, view[7].is_error, view[9].content) == ("the patch does not apply", True, "two files")
    assert [event.source for event in view[10:]] == ["environment", "environment", "agent"]


def test_a_compaction_keeps_what_came_after_its_begin_and_a_failed_one_forgets_nothing():
    log = [START, record(1, "system.message", role="system", content="You are"), asked(2, "one"), called(3, "t")]
    log += [done(4, "t"), record(5, "session.compaction_start"), asked(6, "two")]
    events = read(
        *log, record(7, "session.compaction_complete", success=True, summaryContent="S", preCompactionTokens=9)
    )
    assert shown(events) == ["You are", [{"type": "text", "text": "S"}, {"type": "text", "text": "two"}]]
    assert events[-1].metadata == {"reason": "tokens", "tokens_before": 9}
    for failed in ({"success": False, "error": "busy"}, {"success": True}, {"success": False, "summaryContent": "S"}):
        events = read(*log, record(7, "session.compaction_complete", **failed))
        assert isinstance(events[-1], Annotation)
    manual = record(7, "session.compaction_complete", success=True, summaryContent="S", customInstructions="short")
    events = read(*log[:5], manual)
    assert (shown(events), events[-1].metadata) == (["You are", "S"], {"reason": "request"})


def test_a_truncation_forgets_the_oldest_messages():
    log = [START, asked(1, "one"), called(2, "t"), done(3, "t"), asked(4, "two")]
    assert shown(read(*log, record(5, "session.truncation", messagesRemovedDuringTruncation=3))) == ["two"]
    assert len(shown(read(*log, record(5, "session.truncation", messagesRemovedDuringTruncation=0)))) == 4


def test_a_context_that_is_cleared_keeps_the_prompt():
    log = [START, record(1, "system.message", role="system", content="You are"), asked(2, "one")]
    assert shown(read(*log, record(3, "session.context_cleared", messagesCleared=1))) == ["You are"]
    again = record(3, "session.context_cleared", messagesCleared=1, initialMessage="begin")
    assert shown(read(*log, again)) == ["You are", "begin"]


def test_a_prompt_takes_the_place_of_the_last_and_a_repeated_one_is_not_shown():
    one, again, other, developer = (
        record(number, "system.message", role=role, content=content)
        for number, role, content in ((1, "system", "A"), (2, "system", "A"), (3, "system", "B"), (4, "developer", "C"))
    )
    events = read(START, one, again, other, developer)
    assert [type(event) for event in events[3:]] == [CondensationAction, SystemMessage, SystemMessage]
    assert shown(events) == ["B", "C"]


def test_what_a_sub_agent_did_and_what_the_user_ran_is_kept_and_not_shown():
    side = {"parentToolCallId": "t"}
    sub = [{**asked(4, "count"), "agentId": "t"}, called(5, "u", **side), done(6, "u", **side)]
    events = read(START, asked(1, "go"), called(2, "t"), *sub, done(7, "t", "two"), done(8, "x", isUserRequested=True))
    assert shown(events) == ["go", "I look", "two"]


def test_usage_is_that_of_the_end_of_a_session_and_of_the_replies_after_it(foldlog, tmp_path):
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in RECORDS[:-75]))
    assert foldlog("import", "events.jsonl").status == 0
    (model,) = foldlog("stats", "c-1", "--json").document["models"]
    assert (model["model"], model["calls"], model["prompt_tokens"], model["completion_tokens"]) == ("gpt-x", 5, 900, 67)
    assert foldlog("list", "--long", "--json").document["conversations"][0]["title"] == "Files of the harbour"


def test_the_index_of_sessions_and_other_logs_are_refused(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "session-store.db")) as database:
        for table in ("sessions", "turns"):
            database.execute(f"CREATE TABLE {table} (id)")
    with pytest.raises(NotAHistory, match="import its folder session-state"):
        open_sources([tmp_path / "session-store.db"])
    log = [{"type": "user.message", "data": {"content": "hi"}, "id": str(number)} for number in range(3)]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in log))
    with pytest.raises(NotAHistory, match="holds no event"):
        open_sources([tmp_path / "a.jsonl"])
