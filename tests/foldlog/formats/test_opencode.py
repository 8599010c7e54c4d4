"""What OpenCode's messages mean, where they lie, and how a session grows."""

import json
import shutil
import sqlite3
from contextlib import closing

import pytest
from sqlite_utils import Database

import foldlog as library
from foldlog.formats import NotAHistory
from tests.foldlog.formats.reading import histories_at, records_in
from tests.foldlog.imports.imports import new_store
from tests.foldlog.records import records_of
from tests.golden.rows import rows
from tests.stored_rows import execute

OPENCODE = "opencode"
RECORDS = records_of("opencode")
*MESSAGES, SESSION = RECORDS


def exported(path, records):
    *messages, session = records
    path.write_text(json.dumps({**session, "messages": messages}, indent=2))
    return path


def stored(path, records):
    *messages, session = records
    for folder, info in [("session/prj_1", session["info"])] + [
        ("message/ses_1", message["info"]) for message in messages
    ]:
        (path / folder).mkdir(parents=True, exist_ok=True)
        (path / folder / f"{info['id']}.json").write_text(json.dumps(info))
    for message in messages:
        folder = path / "part" / message["info"]["id"]
        folder.mkdir(parents=True)
        for part in message["parts"]:
            (folder / f"{part['id']}.json").write_text(json.dumps(part))
    return path


def without(fields, *names):
    return {name: value for name, value in fields.items() if name not in names}


def database(path, records):
    *messages, session = records
    info = session["info"]
    about = {name: info[name] for name in ("id", "slug", "directory", "title", "version")}
    about |= {"project_id": info["projectID"], "parent_id": None, "revert": None}
    about |= {"time_created": info["time"]["created"], "time_updated": info["time"]["updated"]}
    with closing(Database(path)) as tables:
        tables["session"].insert({**about, "time_archived": None})
        for place, message in enumerate(messages):
            name = message["info"]["id"]
            data = without(message["info"], "id", "sessionID")
            row = {"id": name, "session_id": "ses_1", "time_created": place, "data": data}
            tables["message"].insert(row)
            for number, part in enumerate(message["parts"]):
                data = without(part, "id", "sessionID", "messageID")
                row = {"id": part.get("id", f"prt_{number}"), "message_id": name, "data": data}
                tables["part"].insert({**row, "session_id": "ses_1"})
    return path


IN_ORDER = [
    record for record in RECORDS if record["info"]["id"] in ("msg_1", "msg_2", "msg_3", "ses_1")
]
"""A storage sorts its messages by their names."""
ABOUT = {
    "info": {
        "id": SESSION["info"]["id"],
        "projectID": SESSION["info"]["projectID"],
        "time": {"created": SESSION["info"]["time"]["created"]},
    }
}
"""What OpenCode does not change of a session."""


def as_read(records, *, whole=False):
    """Return the records of an import: the session first, and without what changed in the turn of a
    user, but in an export.
    """
    messages = [record for record in records if "parts" in record]
    if whole:
        return [ABOUT, *messages]
    return [
        ABOUT,
        *(
            message
            if message["info"].get("summary") is True
            else {**message, "info": without(message["info"], "summary")}
            for message in messages
        ),
    ]


@pytest.mark.parametrize("make", [exported, stored, database])
def test_a_session_is_the_same_wherever_it_lies(make, tmp_path, foldlog):
    names = {exported: "e.json", stored: "storage", database: "opencode.db"}
    path = make(tmp_path / names[make], IN_ORDER)
    before = path.read_bytes() if path.is_file() else None
    (history,) = histories_at(tmp_path)
    assert (history.name, history.format, history.findings) == ("ses_1", OPENCODE, [])
    assert history.records == as_read(IN_ORDER, whole=make is exported)
    assert foldlog("import", str(path)).status == 0
    assert before is None or (
        path.read_bytes() == before and not list(tmp_path.glob("opencode.db-*"))
    )
    assert foldlog("list --long --json").rows("title") == ["Files of the harbour"]


def test_database_and_its_storage_are_one_history(tmp_path):
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


def test_database_is_read_with_its_wal(tmp_path):
    """OpenCode leaves a whole session in the log when it ends."""
    path = database(tmp_path / "opencode.db", IN_ORDER)
    ended = tmp_path / "ended"
    ended.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        with connection:
            connection.execute("DELETE FROM message WHERE id = 'msg_3'")
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", ended / f"opencode.db{suffix}")
    (history,) = histories_at(ended / "opencode.db")
    assert (len(history.records), history.findings) == (3, [])


def test_changed_title_lets_a_session_go_on(tmp_path):
    path = tmp_path / "opencode.db"
    *messages, last, session = IN_ORDER
    with new_store() as store:
        database(path, [*messages, session])
        (before,) = histories_at(path, store=store)
        path.unlink()
        about = messages[0]["info"]
        summed = {**messages[0], "info": {**about, "summary": {"title": "x", "diffs": []}}}
        changed = {"info": {**session["info"], "title": "Gulls"}}
        database(path, [summed, *messages[1:], last, changed])
        (grown,) = histories_at(path, store=store)
        assert (before.added, grown.added, grown.name) == (len(IN_ORDER) - 1, 1, "ses_1")
        assert grown.events[: len(before.events)] == before.events


def test_another_database_says_what_it_is(tmp_path):
    tables = "session", "message", "part"
    execute(tmp_path / "o.db", *(f"CREATE TABLE {table} (id)" for table in tables))
    with pytest.raises(
        NotAHistory, match="is a SQLite database with the tables session, message, part;"
    ):
        histories_at(tmp_path / "o.db")


@pytest.mark.parametrize("table", ["session", "session_v2"])
def test_sessions_without_contents_are_of_another_program(tmp_path, table):
    execute(tmp_path / "o.db", f"CREATE TABLE {table} (id, time_created)")
    with pytest.raises(NotAHistory, match=f"is a SQLite database with the tables {table};"):
        histories_at(tmp_path / "o.db")


def test_damaged_rows_are_findings(tmp_path):
    path = database(tmp_path / "opencode.db", IN_ORDER)
    execute(
        path,
        "UPDATE part SET data = '{' WHERE id = 'prt_2_02'",
        "UPDATE message SET data = NULL WHERE id = 'msg_1'",
    )
    (history,) = histories_at(path)
    counts = [len(record.get("parts", ())) for record in history.records]
    assert counts == [0, len(MESSAGES[1]["parts"]) - 1, 7]
    places = [finding.partition(": ")[0] for finding in history.findings]
    assert places == [f"{path}, message msg_1", f"{path}, part prt_2_02"]


@pytest.mark.parametrize(
    "change, is_read",
    [
        ("UPDATE session SET title = CAST(x'6cff' AS TEXT)", True),
        ("UPDATE session SET title = x'6cff'", True),
        ("UPDATE part SET data = CAST(x'7b22ff227d' AS TEXT)", True),
        ("UPDATE message SET data = CAST(data AS BLOB)", True),
        ("UPDATE session SET id = CAST(id AS BLOB)", True),
        ("UPDATE session SET id = CAST(x'ff' AS TEXT)", False),
    ],
)
def test_bytes_that_are_no_text_end_no_import(change, is_read, tmp_path, foldlog):
    path = database(tmp_path / "opencode.db", IN_ORDER)
    exported(tmp_path / "z.json", [{**SESSION, "info": {**SESSION["info"], "id": "other"}}])
    execute(path, change)
    result = foldlog("import .")
    assert "Traceback" not in result.err
    names = foldlog("list --json").rows()
    assert names == (["other", "ses_1"] if is_read else ["other"])
    assert is_read or "contains no record that can be read" in result.err


def test_a_column_name_that_is_no_text_ends_no_import(tmp_path, foldlog):
    path = database(tmp_path / "opencode.db", IN_ORDER)
    exported(tmp_path / "z.json", [{**SESSION, "info": {**SESSION["info"], "id": "other"}}])
    path.write_bytes(path.read_bytes().replace(b"slug", b"slu\xff", 1))
    result = foldlog("import .")
    assert "opencode.db: cannot be read" in result.err
    assert foldlog("list --json").rows() == ["other"]


def test_deleted_session_of_a_storage_stays(tmp_path, foldlog):
    path = stored(tmp_path / "storage", IN_ORDER)
    (session,) = (path / "session").glob("*/*.json")
    for text in (session.read_bytes(), None, session.read_bytes()):
        if text:
            session.write_bytes(text)
        else:
            session.unlink()
        assert foldlog("import", path).status == (0 if text else 2)
        assert foldlog("list --json").rows() == ["ses_1"]


def test_unreadable_database_is_named(tmp_path, foldlog):
    path = database(tmp_path / "opencode.db", IN_ORDER)
    path.write_bytes(path.read_bytes()[:4096])
    exported(tmp_path / "z.json", IN_ORDER)
    result = foldlog("import .")
    assert result.status == 1
    assert "opencode.db: cannot be read: database disk image is malformed" in result.err
    assert foldlog("list --json").rows() == ["ses_1"]


def test_a_damaged_database_hides_no_storage_beside_it(tmp_path):
    stored(tmp_path / "storage", IN_ORDER)
    (tmp_path / "opencode.db").write_bytes(b"SQLite format 3\0 and no more")
    (history,) = histories_at(tmp_path / "storage")
    assert history.records == as_read(IN_ORDER)


@pytest.mark.parametrize("first, second", [("summary", "summary_diffs"), ("share", "share_url")])
def test_a_column_below_a_column_with_a_text_is_read(first, second, tmp_path):
    path = database(tmp_path / "opencode.db", IN_ORDER)
    execute(
        path,
        *(f"ALTER TABLE session ADD COLUMN {column}" for column in (first, second)),
        f"UPDATE session SET {first} = 'gulls', {second} = '[1]'",
    )
    (history,) = histories_at(path)
    assert history.records == as_read(IN_ORDER)


@pytest.mark.parametrize("name", ["../elsewhere", "..", "x" * 300, "\ud83d", "a\0b"])
def test_a_message_has_parts_only_in_its_own_folder(name, tmp_path):
    path = stored(tmp_path / "storage", IN_ORDER)
    (path / "elsewhere").mkdir()
    for folder in (path, path / "elsewhere"):
        (folder / "prt_9.json").write_text(json.dumps({"type": "text", "text": "of others"}))
    message = path / "message" / "ses_1" / "msg_1.json"
    message.write_text(json.dumps({**json.loads(message.read_text()), "id": name}))
    (history,) = histories_at(path)
    assert len(history.records) == len(IN_ORDER)
    assert [record["parts"] for record in history.records if record["info"]["id"] == name] == [[]]


# -- OpenCode 2
# --------------------------------------------------------------------------------------------------


def upgraded(path, messages, session="ses_1"):
    """Write a session as OpenCode 2 stores it, in its tables."""
    about = {"id": session, "project_id": "prj_1", "title": "Newer"}
    about |= {"fork_boundary": {"type": "before"}}
    about |= {"time_created": SESSION["info"]["time"]["created"]}
    rows = [
        {"id": name, "session_id": session, "type": kind, "seq": seq, "data": data}
        for seq, (name, kind, data) in enumerate(messages)
    ]
    with closing(Database(path)) as tables:
        tables["session_v2"].insert(about)
        tables["session_message"].insert_all(rows)
    return path


OF_2 = rows("opencode_2.json", "messages")
AS_RECORDS = rows("opencode_2.json", "records")
"""The rows of a session, each with its id, its kind and its data; and the records of these rows."""


def test_session_goes_on_in_opencode_2(tmp_path, foldlog):
    path = database(tmp_path / "opencode.db", IN_ORDER)
    assert foldlog("import", path).status == 0
    before = foldlog("stats --json").document["spent"]
    copies = [
        (each["info"]["id"], each["info"]["role"], {"text": "in other words"})
        for each in IN_ORDER[:-1]
    ]
    own = OF_2[:-1]  # the last one is a summary
    upgraded(path, [*copies, *own])
    upgraded(path, [("fork_1", "assistant", OF_2[2][2]), ("fork_2", "user", "{")], session="ses_2")
    result = foldlog("import", path)
    assert (result.status, result.err.count("session_message fork_2")) == (0, 1)
    assert "\n0 records of 2 conversations added" in foldlog("import", path).out
    with library.open("foldlog.db") as opened:
        records = records_in(opened.store, "ses_1")
    assert records == [*as_read(IN_ORDER), *AS_RECORDS[1:-1]]
    spent = foldlog("stats --json").document["spent"]
    # the reply of the fork is a copy
    assert (spent["calls"], spent["cost"]) == (before["calls"] + 2, before["cost"] + 1)
    listed = foldlog("list --long --json")
    assert (listed.rows(), listed.rows("title")) == (["ses_1", "ses_2"], ["Newer"] * 2)


def test_a_database_of_opencode_2_alone_is_read(tmp_path):
    (history,) = histories_at(upgraded(tmp_path / "o.db", OF_2))
    assert (history.records, history.findings) == (AS_RECORDS, [])
