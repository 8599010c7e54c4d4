"""What Claude Code's lines mean, the strange ones too."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from foldlog._importing import import_source
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    Message,
    Observation,
    Retraction,
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


def thinking(thought="hm"):
    return {"type": "thinking", "thinking": thought, "signature": "c2ln"}


def use(call_id, tool="Bash", **asked_for):
    return {"type": "tool_use", "id": call_id, "name": tool, "input": asked_for}


def result(name, parent, call_id, content="a b", structured=None, **more):
    block = {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}
    structured = {} if structured is None else {"toolUseResult": structured}
    return asked(name, parent, [block], **structured)


def boundary(name, logical_parent, parent=None, **metadata):
    compacted = {"subtype": "compact_boundary", "logicalParentUuid": logical_parent, "compactMetadata": metadata}
    return line(name, parent, "system", content="Conversation compacted", **compacted)


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


# -- what is said -----------------------------------------------------------------------------------------------------


def test_what_a_user_says_is_a_message_and_what_the_harness_says_is_the_environments():
    question, note = read(asked("a", None), asked("b", "a", [text("Be brief.")], isMeta=True))
    assert (question.content, question.source, question.shown) == ("why?", "user", True)
    assert (note.content, note.source, note.shown) == ((text("Be brief."),), "environment", True)
    assert [message["role"] for message in View.from_events([question, note]).to_messages()] == ["user"]


def test_the_lines_of_a_response_are_its_thinking_its_text_and_its_calls():
    events = read(
        asked("a", None),
        replied("b", "a", thinking()),
        replied("c", "b", text("I look.")),
        replied("d", "c", use("c1", command="ls")),
        replied("e", "d", use("c2", command="pwd")),
        result("f", "d", "c1"),
        result("g", "e", "c2"),
        replied("h", "g", use("c3"), response="m2"),
    )
    _, thought, said, first, second, answer, _, later = events
    assert isinstance(thought, Annotation)
    assert thought.data == [thinking()]
    assert not thought.shown
    assert (said.content, said.source) == ("I look.", "agent")
    assert isinstance(first, Action)
    assert (first.tool, first.arguments, first.call_id) == ("Bash", {"command": "ls"}, "c1")
    assert (first.response_id, first.thinking) == ("m1", (thinking(),))
    assert (second.response_id, second.thinking) == ("m1", ())
    assert (later.response_id, later.thinking) == ("m2", ())
    assert isinstance(answer, Observation)
    assert (answer.content, answer.tool, answer.call_id, answer.cause) == ("a b", "Bash", "c1", first.id)
    _, words, calls, *answers = View.from_events(events).to_messages()
    assert words == {"role": "assistant", "content": "I look."}
    assert [call["id"] for call in calls["tool_calls"]] == ["c1", "c2"]
    assert calls["thinking_blocks"] == [thinking()]
    assert [message["tool_call_id"] for message in answers] == ["c1", "c2"]


def test_a_text_before_a_call_in_the_same_line_is_its_thought():
    blocks = [thinking(), text("First this."), use("c1"), text("Then that."), use("c2"), text("Done.")]
    first, second, done = read(replied("a", None, *blocks))
    assert (first.thought, first.thinking, second.thought) == ("First this.", (thinking(),), "Then that.")
    assert (done.content, done.source) == ("Done.", "agent")


def test_thinking_beside_a_text_is_kept_and_a_blank_text_is_no_message_for_a_model():
    said, blank = read(replied("a", None, thinking(), text("Hi.")), replied("b", "a", text("\n\n"), response="m2"))
    assert (said.content, said.shown) == ("Hi.", True)
    assert (blank.content, blank.shown) == ("\n\n", False)


def test_an_error_of_the_service_that_stands_for_a_reply_is_not_shown():
    assert shown(read(asked("a", None), replied("b", "a", text("API Error"), isApiErrorMessage=True))) == ["a"]


def test_results_of_one_line_are_an_observation_each_and_what_is_said_beside_them_a_message():
    results = [{"type": "tool_result", "tool_use_id": call, "content": [text(call)]} for call in ("c1", "c2")]
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    document = {"type": "document", "source": {"type": "text", "data": "x"}}
    blocks = [*results, document, text("Look:"), image]
    *_, one, two, said = read(replied("a", None, use("c1", "x"), use("c2", "x")), asked("b", "a", blocks))
    assert (one.content, one.cause, two.cause) == ((text("c1"),), 0, 1)
    assert said.content == (
        document,
        text("Look:"),
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
    )


def test_an_error_says_that_it_is_one_and_an_id_that_is_used_again_is_of_the_newest_reply():
    first = [replied("a", None, use("c1")), result("b", "a", "c1", "no", is_error=True)]
    again = [replied("c", "b", use("c1"), response="m2"), result("d", "c", "c1", "yes")]
    _, failed, second, went = read(*first, *again)
    assert (failed.is_error, failed.cause) == (True, 0)
    assert (went.is_error, went.cause) == (False, second.id)
    *_, one, two = read(first[0], again[0], first[1], again[1])
    assert (one.cause, two.cause) == (1, 0)
    left = [replied("e", "d", use("c1"), use("c2"), response="m3"), asked("f", "e"), replied("g", "f", use("c1"))]
    assert read(*left, result("h", "g", "c1", "done"))[-1].cause == 3, "the first call was left without a result"


def test_times_are_utc():
    event, other = read(asked("a", None, timestamp="2026-03-01T09:00:00.250Z"), asked("b", "a", timestamp="soon"))
    assert event.timestamp == datetime(2026, 3, 1, 9, 0, 0, 250_000, tzinfo=UTC)
    assert other.timestamp is None


def test_bookkeeping_and_what_nobody_knows_are_annotations():
    records = [
        {"type": "summary", "summary": "Planets", "leafUuid": "z"},
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
        {"type": "queue-operation", "operation": "enqueue", "sessionId": "s", "timestamp": "2026-03-01T09:00:00Z"},
        line("a", None, "progress", data={"type": "hook_progress"}),
        line("b", "a", "system", subtype="turn_duration", durationMs=5),
        line("c", "b", "zzz", x=[1]),
        asked("d", "c", []),
        {"type": "user", "message": 5},
    ]
    events = read(*records)
    assert all(isinstance(event, Annotation) and not event.shown for event in events)
    assert [event.name for event in events] == [record["type"] for record in records]
    assert (events[1].data, events[5].data) == ({"messageId": "m", "snapshot": {}}, {"x": [1]})


# -- branches ---------------------------------------------------------------------------------------------------------


def test_of_a_log_that_branches_the_branch_with_the_last_line_is_shown():
    root = [asked("a", None), replied("b", "a", text("yes"))]
    left = [asked("c", "b", "then?"), replied("d", "c", text("so"), response="m2")]
    assert seen(read(*root, *left, asked("e", "b", "but?"))) == ["a", "b", "e"]
    assert seen(read(*root, asked("e", None, "anew"), line("f", "b", "progress"))) == ["e"]


def test_bookkeeping_between_two_lines_does_not_part_them():
    between = [line("b", "a", "progress"), line("c", "b", "attachment"), line("x", "a", "progress")]
    assert seen(read(asked("a", None), *between, asked("d", "c"))) == ["a", "d"]
    assert seen(read(asked("a", None), asked("b", "a"), line("x", "a", "progress"), asked("d", "x"))) == ["a", "d"]


def test_parallel_calls_and_their_results_stand_beside_the_branch_and_belong_to_it():
    calls = [replied("b", "a", use("c1")), replied("c", "b", use("c2")), replied("d", "b", use("c3"))]
    results = [result("e", "b", "c1"), result("f", "d", "c3"), result("g", "c", "c2")]
    events = read(asked("a", None), *calls, *results, replied("h", "g", text("done"), response="m2"))
    assert seen(events) == ["a", *"bcdefgh"]
    assert len(View.from_events(events).to_messages()) == 6
    left = replied("x", "a", use("c9"), response="m9")
    assert seen(read(asked("a", None), left, result("y", "x", "c9"), *calls, *results)) == ["a", *"bcdefg"]


def test_a_line_that_was_lost_hides_nothing_before_it():
    assert shown(read(asked("a", None), replied("c", "lost", text("so")), asked("d", "c"))) == ["a", "c", "d"]


def test_a_log_that_names_no_parents_does_not_branch():
    assert seen(read(asked("a", None), asked("b", None), asked("c", None))) == ["a", "b", "c"]
    absent = [{key: value for key, value in asked(name, None).items() if key != "parentUuid"} for name in "aba"]
    assert seen(read(*absent)) == ["a", "b", "a"]
    nameless = {"type": "user", "message": {"role": "user", "content": "x"}}
    assert seen(read(asked("a", None), nameless, asked("c", "a"), asked("d", "a"))) == ["a", None, "d"]


def test_of_lines_with_one_id_and_the_same_calls_the_first_is_shown():
    twice = [replied("b", "a", use("c1")), replied("b", "a", use("c1"))]
    events = read(asked("a", None), *twice, result("c", "b", "c1"))
    assert [event.id for event in events if event.shown] == [0, 1, 3]


def test_a_call_that_is_there_twice_is_shown_once_and_answered():
    """Two calls with one answer would take the whole response away from what the model is sent."""
    absent = [asked("a", None), replied("b", "a", use("c1")), replied("b", "a", use("c1")), result("c", "b", "c1")]
    for record in absent:
        del record["parentUuid"]
    lost = [asked("a", None), replied("b", "a", use("c1")), replied("b", "lost", use("c1")), result("c", "b", "c1")]
    for log in (absent, lost):
        events = read(*log)
        assert len(seen(events)) == 3
        assert [message["role"] for message in View.from_events(events).to_messages()] == ["user", "assistant", "tool"]
    other = [asked("a", None), replied("b", "a", use("c1")), replied("b", "lost", use("c2")), result("c", "b", "c2")]
    assert seen(read(*other)) == ["a", "b", "b", "c"]


def test_side_chains_are_kept_and_not_shown_unless_there_is_nothing_else():
    side = [asked("x", None, "find it", isSidechain=True), replied("y", "x", text("found"), isSidechain=True)]
    events = read(asked("a", None), *side, asked("b", "a"))
    assert shown(events) == ["a", "b"]
    assert [event.source for event in events] == ["user", "environment", "agent", "user"]  # the agent wrote the prompt
    assert shown(read(*side)) == ["x", "y"]
    assert [event.source for event in read(*side)] == ["user", "agent"]  # to itself, a sub-agent has a user


# -- compaction -------------------------------------------------------------------------------------------------------


def test_a_compaction_is_one_condensation_of_all_that_was_shown():
    before = [asked("a", None), replied("b", "a", use("c1")), result("c", "b", "c1")]
    compaction = [boundary("d", "c", trigger="auto", preTokens=9, postTokens=3), summary("e", "d")]
    events = read(*before, *compaction, asked("f", "e", "go on"))
    (condensation,) = (event for event in events if isinstance(event, CondensationAction))
    assert (condensation.forgotten_event_ids, condensation.summary_offset) == ((0, 1, 2), 0)
    assert condensation.metadata == {
        **{"trigger": "auto", "preTokens": 9, "postTokens": 3},
        **{"reason": "tokens", "tokens_before": 9, "tokens_after": 3},
    }
    assert viewed(events) == [summary_id(4), "go on"]
    (message,) = View.from_events(events).to_messages()
    assert [part["text"] for part in message["content"]] == ["So far.", "go on"]


def test_a_second_compaction_forgets_the_summary_of_the_first():
    first = [asked("a", None), boundary("b", "a", trigger="manual"), summary("c", "b", "One.")]
    second = [asked("d", "c"), boundary("e", "d"), line("p", "e", "progress"), summary("f", "p", "Two.")]
    events = read(*first, *second)
    assert events[-1].forgotten_event_ids == (summary_id(2), 3)
    assert (events[2].metadata["reason"], events[-1].metadata) == ("request", {})
    assert viewed(events) == [summary_id(6)]


@pytest.mark.parametrize(
    "kept",
    [
        {"preservedMessages": {"anchorUuid": "e", "uuids": ["c"], "allUuids": ["b", "c"]}},
        {"preservedSegment": {"headUuid": "b", "anchorUuid": "e", "tailUuid": "c"}},
    ],
)
def test_what_a_compaction_preserves_stays_behind_the_summary(kept):
    before = [asked("a", None, "one"), asked("b", "a", "two"), replied("c", "b", text("three"))]
    events = read(*before, boundary("d", "c", **kept), summary("e", "d"), asked("f", "c", "four"))
    assert viewed(events) == [summary_id(4), "two", "three", "four"]
    assert viewed(events[:4]) == ["one", "two", "three"]
    assert events[4].metadata == {}


def test_a_beginning_that_a_compaction_preserves_stays_before_the_summary():
    before = [asked("a", None, "one"), asked("b", "a", "two"), asked("c", "b", "three")]
    kept = {"preservedSegment": {"headUuid": "a", "anchorUuid": "d", "tailUuid": "b"}}
    events = read(*before, boundary("d", "c", **kept), summary("e", "b"), asked("f", "e", "four"))
    assert viewed(events) == ["one", "two", summary_id(4), "four"]


def test_a_summary_without_a_boundary_forgets_all_the_same_and_one_without_text_is_a_message():
    assert viewed(read(asked("a", None), summary("b", None), asked("c", "b", "on"))) == [summary_id(1), "on"]
    assert viewed(read(asked("a", None, "one"), summary("b", "a", [text("So"), text("far.")]))) == [summary_id(1)]
    assert viewed(read(asked("a", None, "one"), summary("b", "a", []))) == ["one"]


def test_a_compaction_on_another_branch_or_a_side_chain_forgets_nothing():
    left = [boundary("b", "a"), summary("c", "b")]
    assert viewed(read(asked("a", None, "one"), *left, asked("d", "a", "two"))) == ["one", "two"]
    side = [{**boundary("b", "a"), "isSidechain": True}, {**summary("c", "b"), "isSidechain": True}]
    assert viewed(read(asked("a", None, "one"), *side, asked("d", "a", "two"))) == ["one", "two"]
    side[0]["compactMetadata"] = {"trigger": "auto"}
    assert read(asked("a", None, "one"), side[0], summary("e", "a"))[-1].metadata == {}


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


def titled(*records):
    return [event.meta.get("title") for event in read(*records)]


def test_titles_are_the_users_then_a_models_then_a_summary_of_this_session():
    other = {"type": "summary", "summary": "Another session", "leafUuid": "elsewhere"}
    own = {"type": "summary", "summary": "Mending kites", "leafUuid": "a"}
    model = {"type": "ai-title", "aiTitle": "The kite", "sessionId": "s"}
    user = {"type": "custom-title", "customTitle": "Red kite", "sessionId": "s"}
    assert titled(other, own, asked("a", None)) == [None, None, "Mending kites"]
    assert titled(other, asked("a", None), own) == [None, None, "Mending kites"]
    assert titled(own, model, asked("a", None), own) == [None, "The kite", None, None]
    assert titled(asked("a", None), model, own, user, model) == [None, "The kite", None, "Red kite", None]
    assert titled({**user, "customTitle": " "}, {**model, "aiTitle": 5}, {"type": "summary"}) == [None] * 3


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


def test_a_switch_answers_no_request_and_a_compaction_after_it_forgets_what_stands_there():
    log = [
        asked("a", None, "one"),
        asked("b", "a", "two"),
        asked("c", "a", "three"),
        boundary("d", "c"),
        summary("e", "d"),
    ]
    events = read(*log, asked("f", "e", "four"))
    condensation = next(event for event in events if isinstance(event, CondensationAction))
    assert condensation.forgotten_event_ids == (0, 3)
    assert viewed(events) == [summary_id(condensation.id), "four"]
