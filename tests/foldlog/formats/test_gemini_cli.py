"""What Gemini CLI's lines mean, and how a session grows by replacement."""

from __future__ import annotations

import json

from foldlog._reports.ahead import made_ahead
from foldlog.eventstore import Action, Annotation, CondensationAction, Observation, Retraction
from foldlog.formats import open_sources
from foldlog.projections import View
from tests.foldlog.formats.reading import reader_of
from tests.foldlog.records import records_of

GEMINI = "gemini-cli"
RECORDS = records_of("gemini-cli")
HEADER = {"sessionId": "s-1", "projectHash": "h", "startTime": "2026-03-01T10:00:00.000Z", "kind": "main"}
SNAPSHOT = "<state_snapshot><goal>mend</goal></state_snapshot>"

read = reader_of(GEMINI)


def said(name, text, type="user", **more):
    return {"id": name, "timestamp": "2026-03-01T10:00:01.000Z", "type": type, "content": text, **more}


def called(name, *calls, **more):
    return said(name, "I look", "gemini", toolCalls=list(calls), **more)


def call(name, output=None, status="success"):
    told = {} if output is None else {"result": [{"functionResponse": {"id": name, "response": {"output": output}}}]}
    return {"id": name, "name": "ls", "args": {"path": "/w"}, "status": status, **told}


def shown(events):
    return [each["content"] for each in View.from_events(events).to_messages()]


def document(path, messages, **more):
    path.write_text(json.dumps({**HEADER, "lastUpdated": "2026-03-01T10:01:00.000Z", "messages": messages, **more}))
    return path


def test_every_record_is_what_the_model_was_shown():
    events = read(*RECORDS[:7])
    context, asked = events[1:3]
    assert (context.source, asked.source) == ("environment", "user")
    assert [part["type"] for part in asked.content] == ["text", "image_url"]
    view = list(View.from_events(events))
    actions = [event for event in view if isinstance(event, Action)]
    assert (actions[0].thought, actions[0].arguments) == ("I list the harbour.", {"path": "/harbour"})
    assert actions[0].thinking == ({"type": "thinking", "thinking": "**Looking** I look at the files first"},)
    assert {action.response_id for action in actions} == {"g2"}
    results = [event for event in view if isinstance(event, Observation)]
    assert [(event.content, event.is_error, event.cause) for event in (*results[:3], results[4])] == [
        ("a.py\nb.py", False, actions[0].id),
        ("no such file: c.py", True, actions[1].id),
        ("the user cancelled it", True, actions[2].id),
        ("only a text", False, actions[4].id),
    ]
    assert results[3].content[0]["text"] == '{"output": "Binary content", "size": 4}'
    assert results[3].content[1]["type"] == "image_url"
    rest = read(*RECORDS[:14])[len(events) :]
    assert [type(event) for event in rest[:3]] == [Annotation] * 3
    assert (rest[3].content, rest[3].shown) == ("/stats", False)
    assert [type(event) for event in rest[4:7]] == [Action, Observation, Observation]
    assert [event.shown for event in rest[5:7]] == [True, False]


def test_a_message_that_comes_again_takes_the_place_of_the_earlier_one():
    open_call, done = called("g2", call("c1", status="executing")), called("g2", call("c1", "a.py"))
    events = read(HEADER, said("u1", "list"), open_call, said("i1", "x", "info"), open_call, said("u2", "and?"), done)
    assert [type(event).__name__ for event in events] == [
        *("Annotation", "Message", "Action", "Annotation", "Annotation", "Message"),
        *("Retraction", "Action", "Observation", "Message"),
    ]
    assert shown(events) == ["list", "I look", "a.py", "and?"]
    assert (events[6].version, events[8].cause) == (2, 7)
    failed = called("g2", call("c1", "no", "error"))
    for log in [open_call, failed, said("u2", "and?"), done], [failed, {"$set": {"messages": [done]}}]:
        sums = made_ahead(read(HEADER, *log))
        assert (sums.counts.tools["ls"].calls, sums.counts.errors) == (1, 0)
    undone = made_ahead(read(HEADER, failed, {"$rewindTo": "g2"}, called("g3", call("c2", "a.py"))))
    assert (undone.counts.tools["ls"].calls, undone.counts.errors) == (2, 1)


def test_a_call_that_failed_says_so_by_its_status():
    events = read(HEADER, said("u1", "list"), called("g1", call("c1", "a.py"), call("c2", "half", "cancelled")))
    assert [event.is_error for event in events if isinstance(event, Observation)] == [False, True]


def test_a_rewind_takes_back_what_is_from_there_on_and_all_if_it_is_unknown():
    log = [HEADER, said("u1", "one"), said("g1", "two", "gemini"), said("u2", "three")]
    assert shown(read(*log, {"$rewindTo": "g1"}, said("u3", "four"))) == [[text("one"), text("four")]]
    assert shown(read(*log, {"$rewindTo": "nobody"}, said("u3", "four"))) == ["four"]


def text(said):
    return {"type": "text", "text": said}


def test_messages_that_are_set_replace_those_that_differ():
    log = [HEADER, said("u1", "one"), called("g1", call("c1", "a long result")), said("g2", "two", "gemini")]
    masked = [log[1], called("g1", call("c1", "[masked]")), log[3]]
    events = read(*log, {"$set": {"messages": masked}}, said("u3", "three"))
    assert shown(events) == ["one", "I look", "[masked]", "two", "three"]
    assert sum(isinstance(event, Retraction) for event in events) == 1
    assert shown(read(*log, {"$set": {"messages": log[1:]}})) == ["one", "I look", "a long result", "two"]
    assert shown(read(*log, {"$set": {"messages": [log[1]]}, "id": []})) == ["one"]


def test_a_snapshot_of_the_state_is_a_condensation_and_what_is_kept_follows_it():
    log = [HEADER, said("u1", "one"), called("g1", call("c1", "a.py")), said("u2", "two")]
    compact = [said("s1", [text(SNAPSHOT)]), said("g3", "Got it.", "gemini"), log[3]]
    events = read(*log, {"$set": {"messages": compact}}, said("g4", "three", "gemini"))
    (condensation,) = (event for event in events if isinstance(event, CondensationAction))
    assert (condensation.summary, condensation.summary_offset) == (SNAPSHOT, 0)
    assert condensation.forgotten_event_ids == (1, 2, 3)
    assert shown(events) == [SNAPSHOT, "Got it.", "two", "three"]
    compact[2:] = [log[2], log[3]]
    sums = made_ahead(read(*log, {"$set": {"messages": compact}}))
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
    assert foldlog("list", "--long", "--json").document["conversations"][0]["title"] == "Files of the harbour"
    assert foldlog("export", "s-1", "--output", "b.jsonl").status == 0
    assert [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()] == RECORDS


def test_a_document_is_read_as_the_lines_that_gemini_cli_makes_of_it(tmp_path):
    messages = [said("u1", "one"), said("g1", "two", "gemini")]
    (source,) = open_sources([document(tmp_path / "session.json", messages, summary="T")])
    assert (source.name, source.format) == ("s-1", GEMINI)
    changing = {"$set": {"lastUpdated": "2026-03-01T10:01:00.000Z", "summary": "T"}}
    assert list(source.records()) == [HEADER, *messages, changing]
    assert list(source.events())[-1].meta == {"title": "T"}


def test_the_list_of_prompts_beside_the_sessions_is_left_out_of_a_folder(foldlog, tmp_path):
    (tmp_path / "tmp" / "chats").mkdir(parents=True)
    document(tmp_path / "tmp" / "chats" / "session.json", [said("u1", "one")])
    prompts = [{"sessionId": "s-1", "messageId": 0, "type": "user", "message": "one", "timestamp": "2026-03-01"}]
    (tmp_path / "tmp" / "logs.json").write_text(json.dumps(prompts))
    ran = foldlog("import", "tmp")
    assert ran.status == 0
    assert "logs.json" in ran.err


def test_lines_are_read_under_the_name_of_a_document(tmp_path):
    (tmp_path / "x.json").write_text("".join(f"{json.dumps(each)}\n" for each in (HEADER, said("u1", "one"))))
    (source,) = open_sources([tmp_path / "x.json"])
    assert (source.format, shown(source.events())) == (GEMINI, ["one"])
