"""What Gemini CLI's lines mean, and how a session grows by replacement."""

from __future__ import annotations

import json

from foldlog._figures.of_sources import of_events
from foldlog.eventstore import CondensationAction
from tests.foldlog.formats.reading import reader_of, recorded

GEMINI = "gemini-cli"
HEADER = {
    "sessionId": "s-1",
    "projectHash": "h",
    "startTime": "2026-03-01T10:00:00.000Z",
    "kind": "main",
}
SNAPSHOT = "<state_snapshot><goal>mend</goal></state_snapshot>"

read = reader_of(GEMINI)


def said(name, text, type="user", **more):
    return {
        "id": name,
        "timestamp": "2026-03-01T10:00:01.000Z",
        "type": type,
        "content": text,
        **more,
    }


def called(name, *calls, **more):
    return said(name, "I look", "gemini", toolCalls=list(calls), **more)


def call(name, output=None, status="success"):
    told = (
        {}
        if output is None
        else {"result": [{"functionResponse": {"id": name, "response": {"output": output}}}]}
    )
    return {"id": name, "name": "ls", "args": {"path": "/w"}, "status": status, **told}


def test_the_calls_of_a_message_that_comes_again_count_once():
    open_call, done = called("g2", call("c1", status="executing")), called("g2", call("c1", "a.py"))
    failed = called("g2", call("c1", "no", "error"))
    for log in (
        [open_call, failed, said("u2", "and?"), done],
        [failed, {"$set": {"messages": [done]}}],
    ):
        sums = of_events(read(HEADER, *log), {})
        assert (sums.counts.tools["ls"].calls, sums.counts.errors) == (1, 0)
    first, other = said("u1", "list"), called("g3", call("c2", "a.py"))
    log = [HEADER, first, failed, {"$rewindTo": "g2"}, other]
    for written_again in [], [{"$set": {"messages": [said("u1", [text("list")]), other]}}]:
        undone = of_events(read(*log, *written_again), {})
        assert (undone.counts.tools["ls"].calls, undone.counts.errors) == (2, 1)


def text(said):
    return {"type": "text", "text": said}


def test_what_a_snapshot_of_the_state_repeats_counts_once():
    log = [HEADER, said("u1", "one"), called("g1", call("c1", "a.py")), said("u2", "two")]
    compact = [said("s1", [text(SNAPSHOT)]), said("g3", "Got it.", "gemini"), log[2], log[3]]
    sums = of_events(read(*log, {"$set": {"messages": compact}}), {})
    assert (sums.counts.tools["ls"].calls, sums.counts.events["user"]) == (1, 2)


def test_a_compaction_stays_the_reason_after_a_chat_is_resumed(foldlog, tmp_path):
    log = recorded(GEMINI, "a compaction stays the reason after a chat is resumed")
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in log))
    assert foldlog("import", "a.jsonl").status == 0
    fact = foldlog("why", "s-1", "a.py", "--json").document["fact"]
    assert "forgot it; its summary does not contain it" in fact["reason"]
    kinds = [type(event) for event in read(*log) if event.structural]
    assert kinds == [CondensationAction]
