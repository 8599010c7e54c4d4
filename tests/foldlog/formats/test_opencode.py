"""What OpenCode's messages mean, where they lie, and how a session grows."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
import sqlite3
from contextlib import closing

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
)
from foldlog.formats import NotAHistory, encode, open_sources
from foldlog.projections import View
from tests.foldlog.formats.reading import reader_of
from tests.foldlog.records import records_of

OPENCODE = "opencode"
RECORDS = records_of("opencode")
*MESSAGES, SESSION = RECORDS

read = reader_of(OPENCODE)


def answer(number, *parts, **info):
    about = {"id": f"msg_{number}", "sessionID": "ses_1", "role": "assistant", "parentID": f"msg_{number - 1}", **info}
    return {"info": about, "parts": list(parts)}


def asked(number, text="go on"):
    about = {"id": f"msg_{number}", "sessionID": "ses_1", "role": "user", "time": {"created": number}}
    return {"info": about, "parts": [{"type": "text", "text": text}]}


def call(name, output=None, **state):
    status = {"status": "running", "input": {}} if output is None else {"status": "completed", "output": output}
    return {"type": "tool", "callID": name, "tool": "bash", "state": {"input": {"command": name}, **status, **state}}


def exported(path, records):
    *messages, session = records
    path.write_text(json.dumps({**session, "messages": messages}, indent=2))
    return path


def stored(path, records):
    *messages, session = records
    for folder, info in [("session/prj_1", session["info"])] + [("message/ses_1", each["info"]) for each in messages]:
        (path / folder).mkdir(parents=True, exist_ok=True)
        (path / folder / f"{info['id']}.json").write_text(json.dumps(info))
    for message in messages:
        folder = path / "part" / message["info"]["id"]
        folder.mkdir(parents=True)
        for part in message["parts"]:
            (folder / f"{part['id']}.json").write_text(json.dumps(part))
    return path


def database(path, records):
    *messages, session = records
    with closing(sqlite3.connect(path)) as opened:
        opened.execute(
            "CREATE TABLE session (id, project_id, parent_id, slug, directory, title, version, revert, "
            "time_created, time_updated, time_archived)"
        )
        opened.execute("CREATE TABLE message (id, session_id, time_created, data)")
        opened.execute("CREATE TABLE part (id, message_id, session_id, data)")
        info = session["info"]
        named = (info["id"], info["projectID"], None, info["slug"], info["directory"], info["title"], info["version"])
        times = info["time"]
        opened.execute(
            f"INSERT INTO session VALUES ({', '.join('?' * 11)})",
            (*named, None, times["created"], times["updated"], None),
        )
        for place, message in enumerate(messages):
            about = {key: value for key, value in message["info"].items() if key not in ("id", "sessionID")}
            opened.execute(
                "INSERT INTO message VALUES (?, 'ses_1', ?, ?)", (message["info"]["id"], place, json.dumps(about))
            )
            for part in message["parts"]:
                held = {key: value for key, value in part.items() if key not in ("id", "sessionID", "messageID")}
                row = (part["id"], message["info"]["id"], json.dumps(held))
                opened.execute("INSERT INTO part VALUES (?, ?, 'ses_1', ?)", row)
        opened.commit()
    return path


IN_ORDER = [each for each in RECORDS if each["info"]["id"] in ("msg_1", "msg_2", "msg_3", "ses_1")]
"""A storage sorts its messages by their names."""


def test_every_part_is_what_the_model_was_shown():
    events = read(*MESSAGES[:7])
    said = events[0].content
    assert [part["type"] for part in said] == ["text", "text", "image_url", "file"]
    assert "not for the model" not in str(said)
    pointed = {**MESSAGES[0], "parts": [{"source": {"path": "a"}, **part} for part in MESSAGES[0]["parts"]]}
    assert read(pointed)[0].content == said
    first, second, third = (event for event in events[1:6] if isinstance(event, Action))
    assert (first.thought, first.thinking[0]["signature"], first.arguments) == ("I look.", "c2ln", {"command": "ls"})
    assert (second.thought, second.response_id, third.response_id) == ("", "msg_2", "msg_2/1")
    assert [block["type"] for block in third.thinking] == ["thinking", "redacted_thinking"]
    results = [event for event in events if isinstance(event, Observation)]
    assert [(event.content, event.is_error) for event in (results[0], *results[2:])] == [
        ("a.py b.py", False),
        ("no such file c.py", True),
        ("[Old tool result content cleared]", False),
        ("half of the output", False),
        ("[Tool execution was interrupted]", True),
        ("[Tool execution was interrupted]", True),
    ]
    assert [part["type"] for part in results[1].content] == ["text", "image_url"]
    failed, stopped, subtask, last = events[-4:]
    assert isinstance(failed, Annotation)
    assert [stopped.content, subtask.content, last.content] == [
        *("this one was stopped", "The following tool was executed by the user", "Two files lie there.")
    ]


@pytest.mark.parametrize("untold", [{"type": "patch", "hash": "h"}, {"type": "compaction"}, {"type": "subtask"}])
def test_what_is_untold_among_calls_ends_no_response_and_a_result_is_cleared_at_any_time(untold):
    step = {"type": "step-start"}
    cleared = call("b", "b.py", time={"compacted": 1.5})
    calls = list(read(answer(1, call("a", "a.py"), untold, cleared, step, call("c", "c.py"), untold)))
    assert not any(isinstance(each, Message) for each in calls)
    assert [each.response_id for each in calls if isinstance(each, Action)] == ["msg_1", "msg_1", "msg_1/1"]
    results = [each.content for each in calls if isinstance(each, Observation)]
    assert results == ["a.py", "[Old tool result content cleared]", "c.py"]


@pytest.mark.parametrize("places", [["odd", "text", "tool"], ["tool", "odd"], ["odd"]])
def test_a_part_of_the_model_of_an_unknown_kind_is_shown_as_it_is(places):
    odd, tool = {"type": "odd", "odd": "hidden words"}, {"type": "tool", "callID": "k", "tool": "f", "state": {}}
    parts = {"odd": odd, "text": {"type": "text", "text": "I look."}, "tool": tool}
    record = {"info": {"id": "m", "role": "assistant"}, "parts": [parts[each] for each in places]}
    events = [event for event in read(record) if not isinstance(event, Observation)]
    told = [event.thought if isinstance(event, Action) else event.content for event in events]
    before = (odd, {"type": "text", "text": "I look."})
    assert told == {3: [before], 2: ["", (odd,)], 1: [(odd,)]}[len(places)]


def test_a_summary_is_a_condensation_of_all_but_the_tail_that_its_question_names():
    events = read(*RECORDS)
    (condensation,) = (event for event in events if isinstance(event, CondensationAction))
    assert condensation.metadata == {"reason": "tokens"}
    assert [each["content"] for each in View.from_events(events).to_messages()] == [
        *("## Goal\nThe files of the harbour were listed.", "Two files lie there."),
        *("Continue if you have next steps", "Nothing is left."),
    ]


def test_a_summary_that_failed_or_answers_no_question_is_none():
    question = {"info": {"id": "msg_1", "sessionID": "ses_1", "role": "user"}, "parts": [{"type": "compaction"}]}
    said = {"type": "text", "text": "Summary"}
    assert isinstance(read(question, answer(2, said, summary=True, finish="stop"))[1], CondensationAction)
    for of_answer in ({"finish": "stop", "error": {"name": "UnknownError"}}, {"finish": None}, {"summary": False}):
        assert not isinstance(read(question, answer(2, said, **{"summary": True, **of_answer}))[1], CondensationAction)
    assert isinstance(read(asked(1), answer(2, said, summary=True, finish="stop"))[1], Message)


def test_usage_and_cost_of_a_response_are_counted_once(foldlog, tmp_path):
    exported(tmp_path / "a.json", RECORDS)
    assert foldlog("import", "a.json").status == 0
    (model,) = foldlog("stats", "ses_1", "--json").document["models"]
    assert (model["model"], model["calls"], model["prompt_tokens"], model["cost"]) == ("m-1", 8, 936, 0.07)


def test_a_fork_has_copies_under_new_ids_which_count_once(foldlog, tmp_path):
    forked = json.loads(json.dumps(RECORDS).replace("ses_1", "ses_2").replace("msg_", "msg_9"))
    more = copy.deepcopy(forked[-2])
    more["info"] |= {"id": "msg_999", "time": {"created": more["info"]["time"]["created"] + 1}}
    exported(tmp_path / "a.json", RECORDS)
    exported(tmp_path / "b.json", [*forked[:-1], more, forked[-1]])
    assert foldlog("import", "a.json", "b.json").status == 0
    spent = [foldlog("stats", *one, "--json").document["spent"] for one in (["ses_1"], ["ses_2"], [])]
    assert [(each["calls"], each["cost"]) for each in spent] == [(8, 0.07), (9, 0.08), (9, 0.08)]


@pytest.mark.parametrize("make", [exported, stored, database])
def test_a_session_is_the_same_wherever_it_lies(make, tmp_path, foldlog):
    path = make(tmp_path / ("opencode.db" if make is database else "storage" if make is stored else "e.json"), IN_ORDER)
    before = path.read_bytes() if path.is_file() else None
    (source,) = open_sources([tmp_path])
    assert (source.name, source.format, source.findings) == ("ses_1", OPENCODE, [])
    assert list(source.records()) == IN_ORDER
    assert foldlog("import", str(path)).status == 0
    assert before is None or (path.read_bytes() == before and not list(tmp_path.glob("opencode.db-*")))
    assert foldlog("list", "--long", "--json").document["conversations"][0]["title"] == "Files of the harbour"


def test_a_database_and_the_storage_that_it_came_from_are_one_history(tmp_path):
    database(tmp_path / "opencode.db", IN_ORDER)
    older = stored(tmp_path / "storage", [MESSAGES[0], SESSION])
    (older / "message" / "ses_2").mkdir()
    (older / "session" / "prj_1" / "ses_2.json").write_text(json.dumps({**SESSION["info"], "id": "ses_2"}))
    sources = list(open_sources([tmp_path]))
    assert [(source.name, len(list(source.records()))) for source in sources] == [("ses_1", 4), ("ses_2", 1)]


def test_what_is_in_the_log_of_a_database_is_a_finding(tmp_path):
    database(tmp_path / "opencode.db", IN_ORDER)
    (tmp_path / "opencode.db-wal").write_bytes(b"x")
    (source,) = open_sources([tmp_path / "opencode.db"])
    assert len(list(source.records())) == 4
    (finding,) = source.findings
    assert finding.place.endswith("-wal")
    assert "quit OpenCode" in finding.problem


def test_an_export_is_the_document_that_opencode_imports(foldlog, tmp_path):
    path = exported(tmp_path / "a.json", RECORDS)
    assert foldlog("import", "a.json").status == 0
    assert foldlog("export", "ses_1", "--output", "b.json").status == 0
    assert json.loads((tmp_path / "b.json").read_text()) == json.loads(path.read_text())
    assert json.loads(foldlog("export", "ses_1").out) == json.loads(path.read_text())


def test_an_export_whose_messages_name_no_session_has_the_name_of_its_session(tmp_path):
    messages = [{**each, "info": {**each["info"]}} for each in MESSAGES]
    for each in messages:
        del each["info"]["sessionID"]
    (source,) = open_sources([exported(tmp_path / "a.json", [*messages, SESSION])], format=OPENCODE)
    assert source.name == "ses_1"


# -- growth -----------------------------------------------------------------------------------------------------------


class Growing:
    """A session that is imported again and again into one store."""

    def __init__(self, path):
        self._path, self.store = path, open_store("memory:")

    def imported(self, *records):
        exported(self._path, records)
        (source,) = open_sources([self._path])
        added = import_source(self.store, source).added
        events = list(self.store.events("ses_1"))
        assert list(encode(events, OPENCODE)) == list(records)
        fresh = View.from_events(list(source.events())).to_messages()
        assert View.from_events(events).to_messages() == fresh
        for version in range(len(events)):
            View.from_events(events[:version]).to_messages()
        return added


def session(**info):
    return {"info": {**SESSION["info"], **info}}


def test_a_part_that_is_written_again_takes_the_place_of_the_earlier_one(tmp_path):
    growing = Growing(tmp_path / "a.json")
    first = asked(1)
    assert growing.imported(first, answer(2, call("ls")), session()) == 4
    assert growing.imported(first, answer(2, call("ls")), session()) == 0
    # a retraction, the call with its result, and the session
    assert growing.imported(first, answer(2, call("ls", "a.py")), session(title="New")) == 4
    assert growing.imported(first, answer(2, call("ls", "a.py")), session(title="New")) == 0
    # pure growth: a retraction of the session, the new message, the session
    assert growing.imported(first, answer(2, call("ls", "a.py")), asked(3), session(title="Newer")) == 3
    pruned = answer(2, call("ls", "a.py", time={"compacted": 1}))
    assert growing.imported(first, pruned, asked(3), session(title="Newer")) == 5
    assert growing.imported(first, session(title="Newer")) == 2


def test_a_compaction_in_a_session_that_was_rewritten_forgets_what_stands(tmp_path):
    growing = Growing(tmp_path / "a.json")
    growing.imported(asked(1), answer(2, call("ls")), session())
    question = {"info": {"id": "msg_3", "sessionID": "ses_1", "role": "user"}, "parts": [{"type": "compaction"}]}
    summary = answer(4, {"type": "text", "text": "Summary"}, summary=True, finish="stop")
    growing.imported(asked(1), answer(2, call("ls", "a.py")), question, summary, asked(5, "next"), session())
    messages = View.from_events(list(growing.store.events("ses_1"))).to_messages()
    assert [part["text"] for each in messages for part in each["content"]] == ["Summary", "next"]


def test_a_session_that_was_reverted_shows_what_is_before_it_and_goes_on(tmp_path):
    growing = Growing(tmp_path / "a.json")
    reverted = session(revert={"messageID": "msg_3"})
    growing.imported(asked(1, "one"), answer(2, call("ls", "a.py")), asked(3, "three"), reverted)
    messages = View.from_events(list(growing.store.events("ses_1"))).to_messages()
    assert [each["role"] for each in messages] == ["user", "assistant", "tool"]
    growing.imported(asked(1, "one"), answer(2, call("ls", "a.py")), asked(5, "five"), session())


def test_a_session_of_which_half_is_written_takes_nothing_back(tmp_path):
    growing = Growing(tmp_path / "a.json")
    growing.imported(asked(1), answer(2, call("ls", "a.py")), asked(3), answer(4, call("pwd")), session())
    text = (tmp_path / "a.json").read_text()
    (tmp_path / "a.json").write_text(text[: text.index("msg_3")])
    (source,) = open_sources([tmp_path / "a.json"])
    assert import_source(growing.store, source).added == 0
    assert source.findings


def test_a_sub_agent_names_the_session_that_started_it():
    assert read(asked(1), session(parentID="ses_0"))[0].meta == {"parent": "ses_0"}


def test_one_file_of_a_storage_and_another_database_are_refused_by_name(tmp_path):
    (tmp_path / "msg_1.json").write_text(json.dumps(MESSAGES[0]["info"]))
    with pytest.raises(NotAHistory, match="import its folder storage"):
        open_sources([tmp_path / "msg_1.json"])
    with closing(sqlite3.connect(tmp_path / "o.db")) as other:
        for table in ("session", "message", "part"):
            other.execute(f"CREATE TABLE {table} (id)")
    with pytest.raises(NotAHistory, match="is a SQLite database"):
        open_sources([tmp_path / "o.db"])


def test_damaged_rows_of_a_database_are_findings_and_the_rest_is_read(tmp_path):
    path = database(tmp_path / "opencode.db", IN_ORDER)
    with closing(sqlite3.connect(path)) as opened:
        opened.execute("UPDATE part SET data = '{' WHERE id = 'prt_2_02'")
        opened.execute("UPDATE message SET data = NULL WHERE id = 'msg_1'")
        opened.commit()
    (source,) = open_sources([path])
    assert [len(record.get("parts", ())) for record in source.records()] == [len(MESSAGES[1]["parts"]) - 1, 7, 0]
    assert [finding.place for finding in source.findings] == [f"{path}, message msg_1", f"{path}, part prt_2_02"]


def cut_in_storage(path):
    (path / "part" / "msg_2" / "prt_2_02.json").write_text('{"id": "prt')


def cut_in_database(path):
    with closing(sqlite3.connect(path)) as opened:
        opened.execute("UPDATE part SET data = substr(data, 1, 9) WHERE id = 'prt_2_02'")
        opened.commit()


@pytest.mark.parametrize("make, cut", [(stored, cut_in_storage), (database, cut_in_database)])
def test_a_damaged_part_leaves_its_stored_message_in_its_place(make, cut, tmp_path, foldlog):
    *messages, last, about = copy.deepcopy(IN_ORDER)
    for _ in range(2):  # it stays marked
        cut(make(tmp_path / "first", copy.deepcopy(IN_ORDER)))
        assert "prt_2_02" in foldlog("import", tmp_path / "first", "--db", "other.db").err
        assert "incomplete" in foldlog("attributes", "ses_1", "--db", "other.db").out
        with open_store("other.db") as store:
            rest = {**IN_ORDER[1], "parts": [each for each in IN_ORDER[1]["parts"] if each["id"] != "prt_2_02"]}
            assert list(encode(store.events("ses_1"), "opencode")) == [IN_ORDER[0], rest, *IN_ORDER[2:]]
        shutil.rmtree(tmp_path / "first") if make is stored else (tmp_path / "first").unlink()
    for name, records, is_cut, events in [
        ("whole", [*messages, about], False, None),
        ("damaged", [*messages, about], True, [*messages, about]),
        ("damaged, and grown", [*messages, last, about], True, IN_ORDER),
        ("whole again", IN_ORDER, False, IN_ORDER),
    ]:
        path = tmp_path / "opencode.db" if make is database else tmp_path / "storage"
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        make(path, copy.deepcopy(records))
        if is_cut:
            cut(path)
        done = foldlog("import", path)
        assert (done.status, "prt_2_02" in done.err) == (0, is_cut), name
        with open_store("foldlog.db") as store:
            assert list(encode(store.events("ses_1"), "opencode")) == (events or records), name
            taken = [event for event in store.events("ses_1") if isinstance(event, Retraction)]
        assert len(taken) == (name in ("damaged, and grown", "whole again")), name  # the session is at the end
        assert "incomplete" not in foldlog("attributes", "ses_1").out


def test_a_session_of_a_storage_that_is_gone_stays(tmp_path, foldlog):
    path = stored(tmp_path / "storage", IN_ORDER)
    (session,) = (path / "session").glob("*/*.json")
    for text in (session.read_bytes(), None, session.read_bytes()):
        session.write_bytes(text) if text else session.unlink()
        assert foldlog("import", path).status == (0 if text else 2)
        with open_store("foldlog.db") as store:
            assert list(encode(store.events("ses_1"), "opencode")) == IN_ORDER
            assert [row.id for row in store.conversations()] == ["ses_1"]


def test_a_database_that_cannot_be_read_is_named_and_the_files_beside_it_are_imported(tmp_path, foldlog):
    path = database(tmp_path / "opencode.db", IN_ORDER)
    path.write_bytes(path.read_bytes()[:4096])
    exported(tmp_path / "z.json", IN_ORDER)
    done = foldlog("import", ".")
    assert done.status == 1
    assert "opencode.db: cannot be read: database disk image is malformed" in done.err
    assert foldlog("list", "--json").document["conversations"][0]["conversation"] == "ses_1"


def test_a_damaged_database_hides_no_storage_beside_it(tmp_path):
    stored(tmp_path / "storage", IN_ORDER)
    (tmp_path / "opencode.db").write_bytes(b"SQLite format 3\0 and no more")
    (source,) = open_sources([tmp_path / "storage"])
    assert list(source.records()) == IN_ORDER


def test_another_process_can_read_a_session(tmp_path):
    exported(tmp_path / "a.json", IN_ORDER)
    stored(tmp_path / "storage", IN_ORDER)
    database(tmp_path / "o.db", IN_ORDER)
    assert len(list(open_sources([tmp_path]))) == 3
    for source in open_sources([tmp_path]):
        assert list(pickle.loads(pickle.dumps(source)).records()) == IN_ORDER


# -- OpenCode 2 -------------------------------------------------------------------------------------------------------


def upgraded(path, messages, about=SESSION, session="ses_1"):
    """Write what OpenCode 2 has of a session, in tables of its own."""
    with closing(sqlite3.connect(path)) as opened:
        opened.execute("CREATE TABLE IF NOT EXISTS session_v2 (id, project_id, title, fork_boundary, time_created)")
        opened.execute("CREATE TABLE IF NOT EXISTS session_message (id, session_id, type, seq, data)")
        opened.execute("DELETE FROM session_message WHERE session_id = ?", (session,))
        opened.execute("DELETE FROM session_v2 WHERE id = ?", (session,))
        row = (session, "prj_1", "Newer", '{"type": "before"}', about["info"]["time"]["created"])
        opened.execute("INSERT INTO session_v2 VALUES (?, ?, ?, ?, ?)", row)
        for seq, (name, kind, told) in enumerate(messages):
            row = (name, session, kind, seq, told if isinstance(told, str) else json.dumps(told))
            opened.execute("INSERT INTO session_message VALUES (?, ?, ?, ?, ?)", row)
        opened.commit()
    return path


def of_model(at, *content, **more):
    used = {"input": 10, "output": 2, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    told = {"agent": "build", "model": {"providerID": "p", "id": "m-2"}, "content": content, "tokens": used}
    return {"cost": 0.5, "time": {"created": at, "completed": at + 1}, **told, **more}


def tool(name, status, *content, **state):
    held = {"status": status, "input": {"path": name}, **({"content": content} if content else {}), **state}
    return {"type": "tool", "id": name, "name": "read", "state": held, "time": {"created": 1}}


TEXT, IMAGE = (
    {"type": "text", "text": "two files"},
    {"type": "file", "uri": "data:image/png;base64,aGk=", "mime": "image/png"},
)
FILES = [
    {"data": "aGVsbG8=", "mime": "text/plain", "name": "a.txt", "source": {"type": "inline"}},
    {"data": "aGk=", "mime": "image/png", "source": {"type": "inline"}},
]
OF_2 = [
    ("new_01", "user", {"text": "look", "files": FILES, "skills": [{"text": "be brief"}], "time": {"created": 11}}),
    ("new_02", "model-switched", {"model": {"id": "m-2"}, "time": {"created": 12}}),
    ("new_03", "assistant", of_model(
        13,
        {"type": "reasoning", "text": "hm", "state": {"signature": "c2ln"}}, {"type": "text", "text": "I look."},
        tool("a", "completed", TEXT, IMAGE), tool("b", "error", TEXT, error={"type": "x", "message": "too long"}),
        tool("c", "running"),
    )),
    ("new_04", "shell", {"command": "ls", "output": {"output": "a.txt"}, "time": {"created": 14}}),
    ("new_05", "system", {"text": "It is night.", "time": {"created": 15}}),
    ("new_06", "location-switched", {"location": {"directory": "/w"}, "time": {"created": 16}}),
    ("new_07", "assistant", of_model(17, {"type": "text", "text": "half"}, error={"type": "x", "message": "no"})),
    ("new_08", "idle", {"outcome": "failed", "time": {"created": 18}}),
]  # fmt: skip
SUMMED = (
    "new_09",
    "compaction",
    {"status": "completed", "reason": "auto", "summary": "Sum", "recent": "half", "cost": 1},
)


def test_a_session_goes_on_in_the_tables_of_opencode_2(tmp_path, foldlog):
    path = database(tmp_path / "opencode.db", IN_ORDER)
    assert foldlog("import", path).status == 0
    before = foldlog("stats", "--json").document["spent"]
    copies = [(each["info"]["id"], each["info"]["role"], {"text": "in other words"}) for each in IN_ORDER[:-1]]
    upgraded(path, [*copies, *OF_2])
    upgraded(path, [("fork_1", "assistant", OF_2[2][2]), ("fork_2", "user", "{")], session="ses_2")
    done = foldlog("import", path)
    assert (done.status, done.err.count("session_message fork_2")) == (0, 1)
    assert "\n0 events of 2 conversations added" in foldlog("import", path).out
    with open_store("foldlog.db") as store:
        events = list(store.events("ses_1"))
        assert sum(isinstance(event, Retraction) for event in events) == 1  # of the session, at the end
        assert list(encode(events, OPENCODE))[:3] == IN_ORDER[:3]
        said = View.from_events(events).to_messages()[-7:]
        assert [each["role"] for each in said] == ["user", "assistant", *["tool"] * 3, "user", "assistant"]
        assert [part.get("text") for part in said[0]["content"]] == ["be brief", "look", "a.txt\n\nhello", None]
        (first, *_) = (each for each in events if isinstance(each, Action) and each.call_id == "a")
        assert (first.thought, first.thinking[0]["signature"], first.arguments) == ("I look.", "c2ln", {"path": "a"})
        results = [each for each in events if isinstance(each, Observation)][-3:]
        assert [part["type"] for part in results[0].content] == ["text", "image_url"]
        assert [(each.content, each.is_error) for each in results[1:]] == [
            ("two files\ntoo long", True),
            ("[Tool execution was interrupted]", True),
        ]
    spent = foldlog("stats", "--json").document["spent"]
    assert (spent["calls"], spent["cost"]) == (before["calls"] + 2, before["cost"] + 1)  # that of the fork is a copy
    titles = {
        row["conversation"]: row["title"] for row in foldlog("list", "--long", "--json").document["conversations"]
    }
    assert titles == {"ses_1": "Newer", "ses_2": "Newer"}


def test_a_database_of_opencode_2_alone_is_read_and_its_summary_is_a_condensation(tmp_path):
    (source,) = open_sources([upgraded(tmp_path / "o.db", [*OF_2, SUMMED])])
    (condensation,) = (event for event in source.events() if isinstance(event, CondensationAction))
    assert condensation.metadata == {"reason": "tokens"}
    assert [each["content"] for each in View.from_events(list(source.events())).to_messages()] == ["Sum\nhalf"]
