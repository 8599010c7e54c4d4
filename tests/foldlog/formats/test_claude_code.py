"""What Claude Code's lines mean, the strange ones too."""

from __future__ import annotations

import json

import pytest

from foldlog._importing import import_source
from foldlog.eventstore import (
    Action,
    CondensationAction,
    Message,
    Observation,
    Retraction,
    SystemMessage,
    open_store,
    summary_id,
)
from foldlog.formats import decode, encode, open_sources
from foldlog.projections import View
from tests.foldlog.formats.reading import reader_of

FORMAT = "claude-code"


def line(name, parent, kind="user", **more):
    return {"uuid": name, "parentUuid": parent, "type": kind, "isSidechain": False, "sessionId": "s", **more}


def asked(name, parent, content="why?", **more):
    return line(name, parent, message={"role": "user", "content": content}, **more)


def replied(name, parent, *blocks, response="m1", **more):
    message = {"id": response, "type": "message", "role": "assistant", "model": "sonnet", "content": list(blocks)}
    return line(name, parent, "assistant", requestId=f"r{response}", message=message, **more)


def text(said):
    return {"type": "text", "text": said}


def use(call_id, tool="Bash", **asked_for):
    return {"type": "tool_use", "id": call_id, "name": tool, "input": asked_for}


def result(name, parent, call_id, content="a b", structured=None, **more):
    block = {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}
    structured = {} if structured is None else {"toolUseResult": structured}
    return asked(name, parent, [block], **structured)


def summary(name, parent, said="So far.", **more):
    return asked(name, parent, said, isVisibleInTranscriptOnly=True, isCompactSummary=True, **more)


read = reader_of(FORMAT)


def shown(events):
    return [event.origin.id for event in events if event.shown]


def seen(events):
    """The lines of the View's events."""
    return [event.origin.id for event in View.from_events(events)]


def viewed(events):
    return [event.content if isinstance(event, Message) else event.id for event in View.from_events(events)]


# -- compaction -------------------------------------------------------------------------------------------------------


def test_a_summary_that_was_redacted_is_exported_after_its_own_boundary(foldlog, tmp_path):
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "b", "compactMetadata": {"trigger": "manual"}}
    lines = [asked("a", None, "hi"), {**boundary, "logicalParentUuid": "a"}, summary("c", "b"), asked("d", "c", "on")]
    (tmp_path / "s.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (one,) = foldlog("import", "s.jsonl", "--json").document["imported"]
    foldlog("redact", one["conversation"], 2, "--reason", "asked", "--yes")
    written = [json.loads(line) for line in foldlog("export", one["conversation"]).out.splitlines()]
    assert [each for each in written if each["uuid"] != "c"] == [each for each in lines if each["uuid"] != "c"]
    assert (written[2]["parentUuid"], written[2]["isCompactSummary"]) == ("b", True)


def test_a_microcompaction_is_a_finding_since_no_event_clears_a_result():
    microcompact = {"subtype": "microcompact_boundary", "content": "Context microcompacted"}
    metadata = {"trigger": "auto", "preTokens": 9000, "tokensSaved": 500, "compactedToolIds": ["c1", "c2"]}
    cleared = line("d", "c", "system", **microcompact, microcompactMetadata=metadata)
    log = [asked("a", None), replied("b", "a", use("c1")), result("c", "b", "c1"), cleared, asked("e", "d", "on")]
    findings = []
    events = list(decode(log, FORMAT, findings=findings.append))
    assert list(encode(events, FORMAT)) == log
    assert list(map(str, findings)) == [
        "record 3: a microcompaction cleared 2 results for the model (c1, c2), and the View shows them: "
        "no event can clear a result"
    ]
    nothing = line("d", "c", "system", **microcompact, microcompactMetadata={**metadata, "compactedToolIds": []})
    findings.clear()
    assert len(list(decode([*log[:3], nothing], FORMAT, findings=findings.append))) == 4
    assert findings == []


# -- sessions, sub-agents and titles ----------------------------------------------------------------------------------


def test_a_session_that_another_one_in_the_file_hides_is_a_finding(tmp_path):
    one = [asked("a", None, sessionId="s1"), replied("b", "a", text("yes"), sessionId="s1")]
    two = [asked("c", None, sessionId="s2"), replied("d", "c", text("no"), response="m2", sessionId="s2")]
    path = tmp_path / "a.jsonl"
    source = written(path, *one, *two)
    assert seen(source.events()) == ["c", "d"]
    assert [str(finding) for finding in source.findings] == [
        f"{path}:3: begins the session 's2': from here on the View shows it, and the lines of 's1' are kept and not "
        f"shown; import each from a file of its own"
    ]
    resumed = [asked("c", "b", sessionId="s2"), replied("d", "c", text("no"), response="m2", sessionId="s2")]
    for lines in ([*one, *resumed], [*one, asked("x", "a", "left", sessionId="s1"), *resumed], one):
        source = written(path, *lines)
        assert sum(not isinstance(event, Retraction) for event in source.events()) == len(lines)
        assert source.findings == []


def test_a_sub_agents_log_is_linked_to_its_session(tmp_path):
    side = [asked("a", None, isSidechain=True, agentId="7f", sessionId="s1"), replied("b", "a", text("found"))]
    side[1]["isSidechain"] = True
    source = written(tmp_path / "agent-7f.jsonl", *side)
    assert source.name == "s1/agent-7f"
    assert [event.meta for event in source.events()] == [{"parent": "s1"}, {}]
    (prefixed,) = open_sources([tmp_path], prefix="run/")
    assert (prefixed.name, next(prefixed.events()).meta) == ("run/s1/agent-7f", {"parent": "run/s1"})
    assert [event.meta for event in read(asked("a", None), *side)] == [{}, {}, {}]


# -- growing, and going on --------------------------------------------------------------------------------------------


def test_events_that_were_added_since_are_written_as_lines_that_follow():
    events = list(decode([asked("a", None), replied("b", "a", text("hi"))], FORMAT))
    events += [
        Message(id=2, source="user", content="list"),
        Action(id=3, tool="Bash", arguments='{"command": "ls"}', call_id="c1", response_id="r", thought="I list."),
        Observation(id=4, content="a", tool="Bash", call_id="c1", cause=3),
        CondensationAction(id=5, forgotten_event_ids=(0, 1), summary="Hello.", summary_offset=0),
        CondensationAction(id=6, forgotten_event_ids=(2,)),
        Message(id=7, source="agent", content="done"),
    ]
    records = list(encode(events, FORMAT))
    assert [record["type"] for record in records[2:]] == ["user", "assistant", "user", "system", "user", "assistant"]
    assert records[2]["sessionId"] == "s"
    assert records[3]["message"]["content"] == [text("I list."), use("c1", command="ls")]
    again = list(decode(records, FORMAT))
    assert list(encode(again, FORMAT)) == records
    assert viewed(again) == [summary_id(6), "list", 3, 4, "done"]
    told = View.from_events(again).to_messages()
    assert told[1]["content"] == "I list."
    assert told[2] == {"role": "tool", "tool_call_id": "c1", "content": "a"}


def test_a_system_prompt_and_a_summary_after_it_keep_their_places():
    run = {"type": "function", "function": {"name": "run", "description": "Run it.", "parameters": {"type": "object"}}}
    events = [
        SystemMessage(id=0, content="You are", tools=(run,)),
        *(Message(id=n, source="user", content=f"said {n}") for n in range(1, 5)),
        CondensationAction(id=5, forgotten_event_ids=(1,), summary="Hello.", summary_offset=1),
    ]
    notes = []
    again = list(decode(encode(events, FORMAT, notes=notes.append), FORMAT))
    assert (again[0].content, again[0].tools) == ("You are", (run,))
    assert viewed(again) == [0, summary_id(6), "said 2", "said 3", "said 4"]
    assert notes == []


# -- files ------------------------------------------------------------------------------------------------------------


def written(path, *records):
    path.write_bytes(b"".join(it if isinstance(it, bytes) else json.dumps(it).encode() + b"\n" for it in records))
    (source,) = open_sources([path])
    return source


@pytest.mark.parametrize("main", [[], [asked("a", None)]])
def test_events_that_were_added_follow_a_sub_agents_line_only_in_its_own_log(main):
    side = [asked("x", None, isSidechain=True, agentId="7f"), replied("y", "x", text("found"), isSidechain=True)]
    events = read(*main, *side)
    *_, last = encode([*events, Message(id=len(events), source="user", content="on")], FORMAT)
    assert (last["parentUuid"], last["isSidechain"]) == (("a", False) if main else ("y", True))
    assert shown(read(*main, *side, last))[-1] == last["uuid"]


def test_a_log_is_named_by_its_session_and_one_of_a_sub_agent_by_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    note = {"type": "summary", "summary": "x", "leafUuid": "z"}
    assert written(tmp_path / "a.jsonl", note, asked("a", None, sessionId="s1")).name == "s1"
    assert written(tmp_path / "agent-7.jsonl", asked("a", None, sessionId="s1", isSidechain=True)).name == "agent-7"
    assert written(tmp_path / "b.jsonl", note, {**asked("u", None), "sessionId": 5}).name == "b"


# -- a session that grows and switches its branch ---------------------------------------------------------------------


def test_a_session_that_grows_a_side_branch_adds_its_tail_and_the_view_follows(tmp_path):
    log = [asked("a", None, "one"), replied("b", "a", text("1"))]
    left = [asked("c", "b", "/ide", isMeta=True), replied("d", "c", text("2"), response="m2")]
    right = [asked("e", "b", "/ide", isMeta=True), replied("f", "e", text("3"), response="m3")]
    back = [asked("g", "d", "and on"), replied("h", "g", text("4"), response="m4")]
    lines = [*log, *left, *right, *back]
    path = tmp_path / "s.jsonl"
    expected = {2: "ab", 3: "abc", 4: "abcd", 5: "abe", 6: "abef", 7: "abcdg", 8: "abcdgh"}
    with open_store("memory:") as store:
        for count in range(2, len(lines) + 1):
            path.write_text("".join(json.dumps(record) + "\n" for record in lines[:count]))
            (source,) = open_sources([path])
            added = import_source(store, source, "s").added
            assert added == (2 if count in (2, 5, 7) else 1)
            assert import_source(store, source, "s").added == 0
            events = list(store.events("s"))
            assert "".join(seen(events)) == expected[count]
            assert list(encode(events, FORMAT)) == lines[:count]
        assert [type(event).__name__ for event in events if isinstance(event, Retraction)] == ["Retraction"] * 2
        assert not View.from_events(events).unhandled_condensation_request
