"""What Gemini CLI's lines mean, and how a session grows by replacement."""

from __future__ import annotations

import json

from foldlog._figures.of_sources import of_events
from foldlog.eventstore import CondensationAction
from foldlog.projections import View
from tests.foldlog.formats.reading import histories_at, reader_of
from tests.foldlog.records import records_of

GEMINI = "gemini-cli"
RECORDS = records_of("gemini-cli")
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


def counted(events):
    return of_events(events, {})


def shown(events):
    return [each["content"] for each in View.from_events(events).to_messages()]


def document(path, messages, **more):
    path.write_text(
        json.dumps(
            {**HEADER, "lastUpdated": "2026-03-01T10:01:00.000Z", "messages": messages, **more}
        )
    )
    return path


def test_a_message_that_comes_again_takes_the_place_of_the_earlier_one():
    open_call, done = called("g2", call("c1", status="executing")), called("g2", call("c1", "a.py"))
    events = read(
        HEADER,
        said("u1", "list"),
        open_call,
        said("i1", "x", "info"),
        open_call,
        said("u2", "and?"),
        done,
    )
    assert [type(event).__name__ for event in events] == [
        *("Annotation", "Message", "Action", "Annotation", "Annotation", "Message"),
        *("Retraction", "Action", "Observation", "Message"),
    ]
    assert shown(events) == ["list", "I look", "a.py", "and?"]
    assert (events[6].version, events[8].cause) == (2, 7)
    failed = called("g2", call("c1", "no", "error"))
    for log in (
        [open_call, failed, said("u2", "and?"), done],
        [failed, {"$set": {"messages": [done]}}],
    ):
        sums = counted(read(HEADER, *log))
        assert (sums.counts.tools["ls"].calls, sums.counts.errors) == (1, 0)
    first, other = said("u1", "list"), called("g3", call("c2", "a.py"))
    log = [HEADER, first, failed, {"$rewindTo": "g2"}, other]
    for written_again in [], [{"$set": {"messages": [said("u1", [text("list")]), other]}}]:
        undone = counted(read(*log, *written_again))
        assert (undone.counts.tools["ls"].calls, undone.counts.errors) == (2, 1)


def test_each_of_parallel_calls_has_its_own_of_all_results():
    results = [
        part
        for name in ("c1", "c2")
        for part in (*call(name, f"{name}.py")["result"], text(f"by {name}"))
    ]
    calls = [{**call(name), "result": results} for name in ("c1", "c2")]
    told = [[text(f"{name}.py"), text(f"by {name}")] for name in ("c1", "c2")]
    assert shown(read(HEADER, said("u1", "list"), called("g1", *calls))) == [
        "list",
        "I look",
        *told,
    ]


def text(said):
    return {"type": "text", "text": said}


def test_a_snapshot_of_the_state_is_a_condensation_and_what_is_kept_follows_it():
    log = [HEADER, said("u1", "one"), called("g1", call("c1", "a.py")), said("u2", "two")]
    compact = [said("s1", [text(SNAPSHOT)]), said("g3", "Got it.", "gemini"), log[3]]
    events = read(*log, {"$set": {"messages": compact}}, said("g4", "three", "gemini"))
    (condensation,) = (event for event in events if isinstance(event, CondensationAction))
    assert (condensation.summary, condensation.summary_offset) == (SNAPSHOT, 0)
    assert condensation.forgotten_event_ids == (1, 2, 3)
    assert shown(events) == [SNAPSHOT, "Got it.", "two", "three"]
    compact[2:] = [log[2], log[3]]
    sums = counted(read(*log, {"$set": {"messages": compact}}))
    assert (sums.counts.tools["ls"].calls, sums.counts.events["user"]) == (1, 2)
    again = [said("s2", [text(f"{SNAPSHOT} again")]), said("g5", "Yes.", "gemini")]
    assert shown(read(*log, {"$set": {"messages": compact}}, {"$set": {"messages": again}})) == [
        f"{SNAPSHOT} again",
        "Yes.",
    ]
    assert shown(read(*log, {"$set": {"messages": compact}}, {"$rewindTo": "g3"})) == [SNAPSHOT]
    assert shown(read(*log, {"$set": {"messages": compact}}, {"$rewindTo": "s1"})) == []


def test_usage_is_counted_once_for_each_message_and_the_summary_is_the_title(foldlog, tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in RECORDS))
    assert foldlog("import", "a.jsonl").status == 0
    (model,) = foldlog("stats", "s-1", "--json").document["models"]
    assert (model["model"], model["calls"], model["prompt_tokens"]) == ("gemini-pro", 5, 5 * 123)
    assert (
        foldlog("list", "--long", "--json").document["conversations"][0]["title"]
        == "Files of the harbour"
    )
    assert foldlog("export", "s-1", "--output", "b.jsonl").status == 0
    assert [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()] == RECORDS


def test_a_document_is_read_as_the_lines_that_gemini_cli_makes_of_it(tmp_path):
    messages = [said("u1", "one"), said("g1", "two", "gemini")]
    (history,) = histories_at(document(tmp_path / "session.json", messages, summary="T"))
    assert (history.name, history.format) == ("s-1", GEMINI)
    changing = {"$set": {"lastUpdated": "2026-03-01T10:01:00.000Z", "summary": "T"}}
    assert history.records == [HEADER, *messages, changing]
    assert history.events[-1].meta == {"title": "T"}


def test_the_list_of_prompts_beside_the_sessions_is_left_out_of_a_folder(foldlog, tmp_path):
    (tmp_path / "tmp" / "chats").mkdir(parents=True)
    document(tmp_path / "tmp" / "chats" / "session.json", [said("u1", "one")])
    prompts = [
        {
            "sessionId": "s-1",
            "messageId": 0,
            "type": "user",
            "message": "one",
            "timestamp": "2026-03-01",
        }
    ]
    (tmp_path / "tmp" / "logs.json").write_text(json.dumps(prompts))
    ran = foldlog("import", "tmp")
    assert ran.status == 0
    assert "logs.json" in ran.err


def test_lines_are_read_under_the_name_of_a_document(tmp_path):
    for log in [HEADER], [HEADER, said("u1", "one")]:
        (tmp_path / "x.json").write_text("".join(f"{json.dumps(each)}\n" for each in log))
        (history,) = histories_at(tmp_path / "x.json")
        assert (history.format, shown(history.events)) == (GEMINI, ["one"][: len(log) - 1])


def context(day="Monday"):
    return said("ctx", [text(f"<session_context>\nIt is {day}.\n</session_context>")])


def resumed(*messages, day="Monday"):
    """Return the records that begin a resumed chat: the context alone, then all in the form of
    prompts.
    """
    again = [
        {**each, "timestamp": "2026-03-02T08:00:00.000Z"} for each in (context(day), *messages)
    ]
    session = {**HEADER, "startTime": "2026-03-02T08:00:00.000Z"}
    return [
        session,
        {"$set": {"messages": again[:1]}},
        {"$set": {"sessionId": "s-1"}},
        {"$set": {"messages": again}},
    ]


RESPONSE = [{"functionResponse": {"id": "c1", "response": {"output": "a.py"}}}]
CALL = [text("I look"), {"functionCall": {"id": "c1", "name": "ls", "args": {"path": "/w"}}}]
AS_WRITTEN = [
    said("u1", "list"),
    called("g1", call("c1", "a.py")),
    said("r1", RESPONSE),
    said("g2", "one", "gemini"),
]
AS_PROMPT = [
    *(said("u1", [text("list")]), said("g1", CALL, "gemini"), said("g1", RESPONSE)),
    *(said("r1", RESPONSE), said("g2", [text("one")], "gemini")),
]
BEGUN = [HEADER, {"$set": {"messages": [context()]}}, *AS_WRITTEN]


def texts(events):
    """Return the texts that a View shows, in order: messages of one role may be one."""
    contents = [[text(each)] if isinstance(each, str) else each for each in shown(events)]
    return [part["text"] for content in contents for part in content]


def kinds(events):
    return [type(event).__name__ for event in events if event.shown or event.structural]


def test_a_resumed_chat_takes_nothing_back():
    events = read(*BEGUN, *resumed(*AS_PROMPT), said("u2", "and?"))
    assert kinds(events) == ["Message", "Message", "Action", "Observation", "Message", "Message"]
    assert texts(events) == [
        context()["content"][0]["text"],
        "list",
        "I look",
        "a.py",
        "one",
        "and?",
    ]


def test_a_compaction_stays_the_reason_after_a_chat_is_resumed(foldlog, tmp_path):
    compact = [context(), said("s1", [text(SNAPSHOT)]), said("g3", "Got it.", "gemini")]
    log = [*BEGUN, {"$set": {"messages": compact}}, *resumed(*compact[1:]), said("u2", "and?")]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in log))
    assert foldlog("import", "a.jsonl").status == 0
    fact = foldlog("why", "s-1", "a.py", "--json").document["fact"]
    assert "forgot it; its summary does not contain it" in fact["reason"]
    assert [each for each in kinds(read(*log)) if each in ("CondensationAction", "Retraction")] == [
        "CondensationAction"
    ]


def test_a_context_of_another_day_takes_the_place_of_the_one_before():
    later = context("Tuesday")["content"][0]["text"]
    log = [*BEGUN, *resumed(*AS_PROMPT, day="Tuesday"), said("u2", "and?")]
    assert "Retraction" not in kinds(read(*log))
    assert texts(read(*log)) == [later, "list", "I look", "a.py", "one", "and?"]
    assert texts(read(*log, {"$rewindTo": "g2"})) == [later, "list", "I look", "a.py"]
    compact = [context("Tuesday"), said("s1", [text(SNAPSHOT)])]
    assert texts(read(*log, {"$set": {"messages": compact}})) == [later, SNAPSHOT]


def test_a_resumed_chat_that_sets_no_more_than_its_context_has_lost_the_rest():
    alone, again = resumed(*AS_PROMPT)[:2], resumed(*AS_PROMPT[:1])
    assert texts(read(*BEGUN, *alone, said("u2", "and?"))) == [
        context()["content"][0]["text"],
        "and?",
    ]
    assert texts(read(*BEGUN, *again, said("u2", "and?"))) == [
        context()["content"][0]["text"],
        "list",
        "and?",
    ]


def test_a_resumed_chat_shows_a_result_that_was_changed():
    masked = [{"functionResponse": {"id": "c1", "response": {"output": "(cut)"}}}]
    prompts = [*AS_PROMPT[:2], said("r1", masked), AS_PROMPT[-1]]
    assert texts(read(*BEGUN, *resumed(*prompts), said("u2", "and?")))[2:] == [
        "I look",
        "(cut)",
        "one",
        "and?",
    ]
