"""What OpenCode's messages mean, where they lie, and how a session grows."""

from __future__ import annotations

import copy
import json
import sqlite3
from contextlib import closing

import pytest

import foldlog as library
from foldlog._archive.importing import Import
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    Message,
    Observation,
)
from foldlog.formats import NotAHistory
from foldlog.projections import View
from tests.foldlog.archive.imports import bytes_of, new_store
from tests.foldlog.formats.reading import histories_at, reader_of, records_in
from tests.foldlog.records import records_of

OPENCODE = "opencode"
RECORDS = records_of("opencode")
*MESSAGES, SESSION = RECORDS

read = reader_of(OPENCODE)


def answer(number, *parts, **info):
    about = {
        "id": f"msg_{number}",
        "sessionID": "ses_1",
        "role": "assistant",
        "parentID": f"msg_{number - 1}",
        **info,
    }
    return {"info": about, "parts": list(parts)}


def asked(number, text="go on"):
    about = {
        "id": f"msg_{number}",
        "sessionID": "ses_1",
        "role": "user",
        "time": {"created": number},
    }
    return {"info": about, "parts": [{"type": "text", "text": text}]}


def call(name, output=None, **state):
    status = (
        {"status": "running", "input": {}}
        if output is None
        else {"status": "completed", "output": output}
    )
    return {
        "type": "tool",
        "callID": name,
        "tool": "bash",
        "state": {"input": {"command": name}, **status, **state},
    }


def exported(path, records):
    *messages, session = records
    path.write_text(json.dumps({**session, "messages": messages}, indent=2))
    return path


def stored(path, records):
    *messages, session = records
    for folder, info in [("session/prj_1", session["info"])] + [
        ("message/ses_1", each["info"]) for each in messages
    ]:
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
            "CREATE TABLE session (id, project_id, parent_id, slug, directory, title, version,"
            " revert, time_created, time_updated, time_archived)"
        )
        opened.execute("CREATE TABLE message (id, session_id, time_created, data)")
        opened.execute("CREATE TABLE part (id, message_id, session_id, data)")
        info = session["info"]
        named = (
            info["id"],
            info["projectID"],
            None,
            info["slug"],
            info["directory"],
            info["title"],
            info["version"],
        )
        times = info["time"]
        opened.execute(
            f"INSERT INTO session VALUES ({', '.join('?' * 11)})",
            (*named, None, times["created"], times["updated"], None),
        )
        for place, message in enumerate(messages):
            about = {
                key: value
                for key, value in message["info"].items()
                if key not in ("id", "sessionID")
            }
            opened.execute(
                "INSERT INTO message VALUES (?, 'ses_1', ?, ?)",
                (message["info"]["id"], place, json.dumps(about)),
            )
            for number, part in enumerate(message["parts"]):
                held = {
                    key: value
                    for key, value in part.items()
                    if key not in ("id", "sessionID", "messageID")
                }
                row = (part.get("id", f"prt_{number}"), message["info"]["id"], json.dumps(held))
                opened.execute("INSERT INTO part VALUES (?, ?, 'ses_1', ?)", row)
        opened.commit()
    return path


IN_ORDER = [each for each in RECORDS if each["info"]["id"] in ("msg_1", "msg_2", "msg_3", "ses_1")]
"""A storage sorts its messages by their names."""
_KEPT = ("id", "projectID")
ABOUT = {
    "info": {
        **{key: SESSION["info"][key] for key in _KEPT},
        "time": {"created": SESSION["info"]["time"]["created"]},
    }
}
"""What OpenCode does not change of a session."""


def as_read(records, *, whole=False):
    """The records of an import: the session first, and without what changed in the turn of a user,
    but in an export.
    """
    messages = [
        {
            **each,
            "info": {
                key: value
                for key, value in each["info"].items()
                if whole or key != "summary" or value is True
            },
        }
        for each in records
        if "parts" in each
    ]
    return [ABOUT, *messages]


def test_every_part_is_what_the_model_was_shown():
    events = read(*MESSAGES[:7])
    said = events[0].content
    assert [part["type"] for part in said] == ["text", "text", "image_url", "file"]
    assert "not for the model" not in str(said)
    pointed = {
        **MESSAGES[0],
        "parts": [{"source": {"path": "a"}, **part} for part in MESSAGES[0]["parts"]],
    }
    assert read(pointed)[0].content == said
    first, second, third = (event for event in events[1:6] if isinstance(event, Action))
    assert (first.thought, first.thinking[0]["signature"], first.arguments) == (
        "I look.",
        "c2ln",
        {"command": "ls"},
    )
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
        *(
            "this one was stopped",
            "The following tool was executed by the user",
            "Two files lie there.",
        )
    ]


@pytest.mark.parametrize(
    "untold", [{"type": "patch", "hash": "h"}, {"type": "compaction"}, {"type": "subtask"}]
)
def test_what_is_untold_among_calls_ends_no_response_and_a_result_is_cleared_at_any_time(untold):
    step = {"type": "step-start"}
    cleared = call("b", "b.py", time={"compacted": 1.5})
    calls = list(
        read(answer(1, call("a", "a.py"), untold, cleared, step, call("c", "c.py"), untold))
    )
    assert not any(isinstance(each, Message) for each in calls)
    assert [each.response_id for each in calls if isinstance(each, Action)] == [
        "msg_1",
        "msg_1",
        "msg_1/1",
    ]
    results = [each.content for each in calls if isinstance(each, Observation)]
    assert results == ["a.py", "[Old tool result content cleared]", "c.py"]


@pytest.mark.parametrize("places", [["odd", "text", "tool"], ["tool", "odd"], ["odd"]])
def test_a_part_of_the_model_of_an_unknown_kind_is_shown_as_it_is(places):
    odd, tool = (
        {"type": "odd", "odd": "hidden words"},
        {"type": "tool", "callID": "k", "tool": "f", "state": {}},
    )
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
    question = {
        "info": {"id": "msg_1", "sessionID": "ses_1", "role": "user"},
        "parts": [{"type": "compaction"}],
    }
    said = {"type": "text", "text": "Summary"}
    assert isinstance(
        read(question, answer(2, said, summary=True, finish="stop"))[1], CondensationAction
    )
    for of_answer in (
        {"finish": "stop", "error": {"name": "UnknownError"}},
        {"finish": None},
        {"summary": False},
    ):
        assert not isinstance(
            read(question, answer(2, said, **{"summary": True, **of_answer}))[1], CondensationAction
        )
    assert isinstance(read(asked(1), answer(2, said, summary=True, finish="stop"))[1], Message)


def test_usage_and_cost_of_a_response_are_counted_once(foldlog, tmp_path):
    exported(tmp_path / "a.json", RECORDS)
    assert foldlog("import", "a.json").status == 0
    (model,) = foldlog("stats", "ses_1", "--json").document["models"]
    assert (model["model"], model["calls"], model["prompt_tokens"], model["cost"]) == (
        "m-1",
        8,
        936,
        0.07,
    )


def test_a_fork_has_copies_under_new_ids_which_count_once(foldlog, tmp_path):
    forked = json.loads(json.dumps(RECORDS).replace("ses_1", "ses_2").replace("msg_", "msg_9"))
    more = copy.deepcopy(forked[-2])
    more["info"] |= {"id": "msg_999", "time": {"created": more["info"]["time"]["created"] + 1}}
    exported(tmp_path / "a.json", RECORDS)
    exported(tmp_path / "b.json", [*forked[:-1], more, forked[-1]])
    assert foldlog("import", "a.json", "b.json").status == 0
    spent = [
        foldlog("stats", *one, "--json").document["spent"] for one in (["ses_1"], ["ses_2"], [])
    ]
    assert [(each["calls"], each["cost"]) for each in spent] == [(8, 0.07), (9, 0.08), (9, 0.08)]


@pytest.mark.parametrize("make", [exported, stored, database])
def test_a_session_is_the_same_wherever_it_lies(make, tmp_path, foldlog):
    path = make(
        tmp_path
        / ("opencode.db" if make is database else "storage" if make is stored else "e.json"),
        IN_ORDER,
    )
    before = path.read_bytes() if path.is_file() else None
    (history,) = histories_at(tmp_path)
    assert (history.name, history.format, history.findings) == ("ses_1", OPENCODE, [])
    assert history.records == as_read(IN_ORDER, whole=make is exported)
    assert foldlog("import", str(path)).status == 0
    assert before is None or (
        path.read_bytes() == before and not list(tmp_path.glob("opencode.db-*"))
    )
    assert (
        foldlog("list", "--long", "--json").document["conversations"][0]["title"]
        == "Files of the harbour"
    )


def test_a_database_and_the_storage_that_it_came_from_are_one_history(tmp_path):
    database(tmp_path / "opencode.db", IN_ORDER)
    older = stored(tmp_path / "storage", [MESSAGES[0], SESSION])
    (older / "message" / "ses_2").mkdir()
    (older / "session" / "prj_1" / "ses_2.json").write_text(
        json.dumps({**SESSION["info"], "id": "ses_2"})
    )
    histories = histories_at(tmp_path)
    assert [(history.name, len(history.records)) for history in histories] == [
        ("ses_1", 4),
        ("ses_2", 1),
    ]


def test_what_is_in_the_log_of_a_database_is_a_finding(tmp_path):
    database(tmp_path / "opencode.db", IN_ORDER)
    (tmp_path / "opencode.db-wal").write_bytes(b"x")
    (history,) = histories_at(tmp_path / "opencode.db")
    assert len(history.records) == 4
    (finding,) = history.findings
    assert "opencode.db-wal: " in finding
    assert "quit OpenCode" in finding


def test_an_export_is_given_back_byte_for_byte(tmp_path):
    path = exported(tmp_path / "a.json", RECORDS)
    with new_store() as store:
        (history,) = histories_at(path, store=store)
        assert bytes_of(store, history.name) == path.read_bytes()


def test_an_export_whose_messages_name_no_session_has_the_name_of_its_session(tmp_path):
    messages = [{**each, "info": {**each["info"]}} for each in MESSAGES]
    for each in messages:
        del each["info"]["sessionID"]
    (history,) = histories_at(exported(tmp_path / "a.json", [*messages, SESSION]), OPENCODE)
    assert history.name == "ses_1"


# -- growth
# --------------------------------------------------------------------------------------------------


def session(**info):
    return {"info": {**SESSION["info"], **info}}


def said_in(history):
    return [each["content"] for each in View.from_events(history.events).to_messages()]


def test_a_session_that_goes_on_adds_its_messages_though_its_title_and_sums_changed(
    tmp_path, foldlog
):
    path = tmp_path / "opencode.db"
    first, answered = asked(1, "one"), answer(2, call("ls", "a.py"))
    with new_store() as store:
        database(path, [first, answered, session(title="New session - 2026-03-01T10:00:00.000Z")])
        (before,) = histories_at(path, store=store)
        path.unlink()
        summed = {**first, "info": {**first["info"], "summary": {"title": "x", "diffs": []}}}
        changed = session(title="Gulls", time={"created": 1767225600000, "updated": 1})
        database(path, [summed, answered, asked(3, "three"), changed])
        (grown,) = histories_at(path, store=store)
        assert (before.added, grown.added, grown.name) == (3, 1, "ses_1")
        assert grown.events[: len(before.events)] == before.events


def test_the_title_that_a_session_has_now_is_listed_before_and_after_its_first_use(
    tmp_path, foldlog
):
    path = tmp_path / "opencode.db"

    def title():
        return foldlog("list", "--long", "--json").document["conversations"][0]["title"]

    for number, (named, told) in enumerate(
        (("New session - 2026-03-01T10:00", "one"), ("Gulls", "Gulls"))
    ):
        path.unlink(missing_ok=True)
        database(path, [asked(1, "one"), session(title=named)])
        assert foldlog("import", path).status == 0
        assert title() == told, number
    assert foldlog("log", "ses_1").status == 0
    assert title() == "Gulls"


def test_a_message_that_was_being_written_is_completed_and_a_used_one_is_a_fork(tmp_path):
    path = tmp_path / "opencode.db"
    begun, done = answer(2, call("ls")), answer(2, call("ls", "a.py"))
    with new_store() as unused, new_store() as used:
        for store, name in ((unused, "ses_1"), (used, "ses_1@2")):
            path.unlink(missing_ok=True)
            database(path, [asked(1), begun, session()])
            if store is used:
                histories_at(path, store=store)
            else:
                assert [one.added for one in Import(store, [path])] == [3]
            path.unlink()
            database(path, [asked(1), done, session()])
            (history,) = histories_at(path, store=store)
            state = history.records[2]["parts"][0]["state"]
            assert (history.name, state) == (name, done["parts"][0]["state"])


def test_a_session_that_was_reverted_shows_what_is_before_it_and_goes_on_in_a_fork(tmp_path):
    path = tmp_path / "a.json"
    messages = [asked(1, "one"), answer(2, call("ls", "a.py")), asked(3, "three")]
    with new_store() as store:
        (reverted,) = histories_at(
            exported(path, [*messages, session(revert={"messageID": "msg_3"})]), store=store
        )
        roles = [each["role"] for each in View.from_events(reverted.events).to_messages()]
        assert roles == ["user", "assistant", "tool"]
        (gone_on,) = histories_at(
            exported(path, [*messages[:2], asked(5, "five"), session()]), store=store
        )
        assert (gone_on.name, said_in(gone_on)[-1]) == ("ses_1@3", "five")


def test_an_export_of_which_half_is_written_is_refused(tmp_path):
    path = exported(tmp_path / "a.json", RECORDS)
    path.write_text(path.read_text()[:-40])
    with pytest.raises(NotAHistory, match="the file ends in the middle of a value"):
        histories_at(path)


def test_a_sub_agent_names_the_session_that_started_it():
    assert read(session(parentID="ses_0", title=""), asked(1))[0].meta == {"parent": "ses_0"}


def test_one_file_of_a_storage_and_another_database_say_what_they_are(tmp_path):
    (tmp_path / "msg_1.json").write_text(json.dumps(MESSAGES[0]["info"]))
    with pytest.raises(NotAHistory, match="but an object with 'id', "):
        histories_at(tmp_path / "msg_1.json")
    with closing(sqlite3.connect(tmp_path / "o.db")) as other:
        for table in ("session", "message", "part"):
            other.execute(f"CREATE TABLE {table} (id)")
    with pytest.raises(
        NotAHistory, match="is a SQLite database with the tables session, message, part;"
    ):
        histories_at(tmp_path / "o.db")


def test_damaged_rows_of_a_database_are_findings_and_the_rest_is_read(tmp_path):
    path = database(tmp_path / "opencode.db", IN_ORDER)
    with closing(sqlite3.connect(path)) as opened:
        opened.execute("UPDATE part SET data = '{' WHERE id = 'prt_2_02'")
        opened.execute("UPDATE message SET data = NULL WHERE id = 'msg_1'")
        opened.commit()
    (history,) = histories_at(path)
    counts = [len(record.get("parts", ())) for record in history.records]
    assert counts == [0, len(MESSAGES[1]["parts"]) - 1, 7]
    places = [finding.partition(": ")[0] for finding in history.findings]
    assert places == [f"{path}, message msg_1", f"{path}, part prt_2_02"]


def test_a_session_of_a_storage_that_is_gone_stays(tmp_path, foldlog):
    path = stored(tmp_path / "storage", IN_ORDER)
    (session,) = (path / "session").glob("*/*.json")
    for text in (session.read_bytes(), None, session.read_bytes()):
        session.write_bytes(text) if text else session.unlink()
        assert foldlog("import", path).status == (0 if text else 2)
        (row,) = foldlog("list", "--json").document["conversations"]
        assert row["conversation"] == "ses_1"


def test_a_database_that_cannot_be_read_is_named_and_the_files_beside_it_are_imported(
    tmp_path, foldlog
):
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
    (history,) = histories_at(tmp_path / "storage")
    assert history.records == as_read(IN_ORDER)


# -- OpenCode 2
# --------------------------------------------------------------------------------------------------


def upgraded(path, messages, about=SESSION, session="ses_1"):
    """Write what OpenCode 2 has of a session, in tables of its own."""
    with closing(sqlite3.connect(path)) as opened:
        opened.execute(
            "CREATE TABLE IF NOT EXISTS session_v2 (id, project_id, title, fork_boundary,"
            " time_created)"
        )
        opened.execute(
            "CREATE TABLE IF NOT EXISTS session_message (id, session_id, type, seq, data)"
        )
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
    told = {
        "agent": "build",
        "model": {"providerID": "p", "id": "m-2"},
        "content": content,
        "tokens": used,
    }
    return {"cost": 0.5, "time": {"created": at, "completed": at + 1}, **told, **more}


def tool(name, status, *content, **state):
    held = {
        "status": status,
        "input": {"path": name},
        **({"content": content} if content else {}),
        **state,
    }
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
    (
        "new_01",
        "user",
        {"text": "look", "files": FILES, "skills": [{"text": "be brief"}], "time": {"created": 11}},
    ),
    ("new_02", "model-switched", {"model": {"id": "m-2"}, "time": {"created": 12}}),
    (
        "new_03",
        "assistant",
        of_model(
            13,
            {"type": "reasoning", "text": "hm", "state": {"signature": "c2ln"}},
            {"type": "text", "text": "I look."},
            tool("a", "completed", TEXT, IMAGE),
            tool("b", "error", TEXT, error={"type": "x", "message": "too long"}),
            tool("c", "running"),
        ),
    ),
    ("new_04", "shell", {"command": "ls", "output": {"output": "a.txt"}, "time": {"created": 14}}),
    ("new_05", "system", {"text": "It is night.", "time": {"created": 15}}),
    ("new_06", "location-switched", {"location": {"directory": "/w"}, "time": {"created": 16}}),
    (
        "new_07",
        "assistant",
        of_model(17, {"type": "text", "text": "half"}, error={"type": "x", "message": "no"}),
    ),
    ("new_08", "idle", {"outcome": "failed", "time": {"created": 18}}),
]
SUMMED = (
    "new_09",
    "compaction",
    {"status": "completed", "reason": "auto", "summary": "Sum", "recent": "half", "cost": 1},
)


def test_a_session_goes_on_in_the_tables_of_opencode_2(tmp_path, foldlog):
    path = database(tmp_path / "opencode.db", IN_ORDER)
    assert foldlog("import", path).status == 0
    before = foldlog("stats", "--json").document["spent"]
    copies = [
        (each["info"]["id"], each["info"]["role"], {"text": "in other words"})
        for each in IN_ORDER[:-1]
    ]
    upgraded(path, [*copies, *OF_2])
    upgraded(path, [("fork_1", "assistant", OF_2[2][2]), ("fork_2", "user", "{")], session="ses_2")
    done = foldlog("import", path)
    assert (done.status, done.err.count("session_message fork_2")) == (0, 1)
    assert "\n0 records of 2 conversations added" in foldlog("import", path).out
    with library.open("foldlog.db") as opened:
        records = records_in(opened.store, "ses_1")
        assert records[:4] == as_read(IN_ORDER)
        assert len(records) == 4 + len(OF_2)
        events = list(opened["ses_1"].events())
        said = View.from_events(events).to_messages()[-7:]
        assert [each["role"] for each in said] == [
            "user",
            "assistant",
            *["tool"] * 3,
            "user",
            "assistant",
        ]
        assert [part.get("text") for part in said[0]["content"]] == [
            "be brief",
            "look",
            "a.txt\n\nhello",
            None,
        ]
        first, *_ = (each for each in events if isinstance(each, Action) and each.call_id == "a")
        assert (first.thought, first.thinking[0]["signature"], first.arguments) == (
            "I look.",
            "c2ln",
            {"path": "a"},
        )
        results = [each for each in events if isinstance(each, Observation)][-3:]
        assert [part["type"] for part in results[0].content] == ["text", "image_url"]
        assert [(each.content, each.is_error) for each in results[1:]] == [
            ("two files\ntoo long", True),
            ("[Tool execution was interrupted]", True),
        ]
    spent = foldlog("stats", "--json").document["spent"]
    # that of the fork is a copy
    assert (spent["calls"], spent["cost"]) == (before["calls"] + 2, before["cost"] + 1)
    titles = {
        row["conversation"]: row["title"]
        for row in foldlog("list", "--long", "--json").document["conversations"]
    }
    assert titles == {"ses_1": "Newer", "ses_2": "Newer"}


def test_a_database_of_opencode_2_alone_is_read_and_its_summary_is_a_condensation(tmp_path):
    (history,) = histories_at(upgraded(tmp_path / "o.db", [*OF_2, SUMMED]))
    (condensation,) = (event for event in history.events if isinstance(event, CondensationAction))
    assert condensation.metadata == {"reason": "tokens"}
    assert [each["content"] for each in View.from_events(history.events).to_messages()] == [
        "Sum\nhalf"
    ]
