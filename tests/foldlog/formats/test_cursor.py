"""Conversations of Cursor: where Cursor stores them, and what its model was sent."""

import json
from contextlib import closing
from hashlib import sha256

import pytest
from sqlite_utils import Database

from foldlog import Annotation
from foldlog._imports.importing import Import
from foldlog.formats import NotAHistory
from tests.foldlog.formats.reading import histories_at, recorded
from tests.foldlog.imports.imports import new_store
from tests.foldlog.records import records_of, write_lines
from tests.stored_rows import execute

CURSOR = "cursor"
RECORDS = records_of(CURSOR)


def bubble(name, type, text="", **more):
    return {"bubbleId": name, "type": type, "text": text, **more}


def editor(path, **conversations):
    """Write a database of the editor: by the id of each conversation its bubbles, and its title."""
    rows = {"composerData:gone": None}
    for at, (name, (title, bubbles)) in enumerate(conversations.items()):
        listed = [{"bubbleId": bubble["bubbleId"], "type": bubble["type"]} for bubble in bubbles]
        about = {"composerId": name, "createdAt": 9 - at, "fullConversationHeadersOnly": listed}
        rows[f"composerData:{name}"] = about | ({"name": title} if title else {})
        for bubble in bubbles:
            rows[f"bubbleId:{name}:{bubble['bubbleId']}"] = bubble | {"_v": 3, "lints": []}
    with closing(Database(path)) as database:
        database["cursorDiskKV"].insert_all({"key": key, "value": rows[key]} for key in rows)
    return path


def command_line(folder, *messages, name="c-1", listed=None):
    """Write a store of the command line."""
    path = folder / "store.db"
    texts = [json.dumps(message).encode() for message in messages]
    blobs = {sha256(text).hexdigest(): text for text in texts}
    ids = b"".join(b"\x0a\x20" + bytes.fromhex(blob) for blob in listed or blobs)
    blobs["00" * 32] = b"\x48\x96\x01" + ids + b"\x4a\x02/w"
    about = {"agentId": name, "latestRootBlobId": "00" * 32, "name": "Gulls", "createdAt": 1}
    with closing(Database(path)) as database:
        database["blobs"].insert_all({"id": name, "data": blobs[name]} for name in blobs)
        database["meta"].insert({"key": "0", "value": json.dumps(about).encode().hex()})
    return path


def test_conversations_of_the_editor_with_titles(tmp_path, foldlog):
    path = editor(
        tmp_path / "state.vscdb",
        b=("Files of the harbour", RECORDS),
        a=("", [bubble("x", 1, "one")]),
        empty=("Nothing", []),
    )
    before = path.read_bytes()
    first, second = histories_at(tmp_path)
    assert (first.name, second.name, first.format) == ("a", "b", CURSOR)
    assert (second.records, second.findings) == (RECORDS, [])
    assert foldlog("import", path).status == 0
    listed = foldlog("list --long --json")
    assert listed.rows() == ["a", "b"]
    assert listed.rows("title") == ["one", "Files of the harbour"]
    assert path.read_bytes() == before


def test_conversations_with_impossible_times_are_read(tmp_path):
    chats = {name: ("", [bubble(name, 1, name)]) for name in ("a", "b")}
    path = editor(tmp_path / "state.vscdb", **chats)
    execute(path, f"UPDATE cursorDiskKV SET value = replace(value, ': 9,', ': {'9' * 400},')")
    assert [history.name for history in histories_at(tmp_path)] == ["b", "a"]


def test_a_bubble_that_shows_nothing_is_named_by_what_it_is(tmp_path):
    bubbles = [
        bubble("b-1", 1),
        bubble("b-2", 2, thinking={}),
        bubble("b-3", 2, thinking={"text": "Gulls?"}),
        bubble("b-4", 1, "one"),
    ]
    editor(tmp_path / "state.vscdb", b=("Gulls", bubbles))
    (history,) = histories_at(tmp_path)
    names = [event.name for event in history.events if isinstance(event, Annotation)]
    assert names == ["bubble", "bubble", "reasoning"]


def test_a_conversation_that_goes_on_adds_its_bubbles(tmp_path):
    path = tmp_path / "state.vscdb"
    with new_store() as store:
        for count in (4, len(RECORDS)):
            path.unlink(missing_ok=True)
            editor(path, b=(f"title {count}", RECORDS[:count]))
            (history,) = histories_at(path, store=store)
            assert (history.name, history.records) == ("b", RECORDS[:count])
        assert history.added == len(RECORDS) - 4


def test_missing_or_damaged_bubble_is_a_finding(tmp_path):
    path = editor(tmp_path / "state.vscdb", b=("", RECORDS))
    execute(
        path,
        "DELETE FROM cursorDiskKV WHERE key = 'bubbleId:b:b-2'",
        "UPDATE cursorDiskKV SET value = '{' WHERE key = 'bubbleId:b:b-5'",
    )
    (history,) = histories_at(path)
    assert len(history.records) == len(RECORDS) - 2
    assert [finding.partition(": ")[0] for finding in history.findings] == [
        f"{path}, bubble b-2",
        f"{path}, bubble b-5",
    ]


HALF = "\ud83d"
"""Half of a letter outside the first plane of Unicode: JSON can hold it, and SQLite cannot."""


def test_a_bubble_whose_name_is_half_a_letter_is_missing(tmp_path):
    path = editor(tmp_path / "state.vscdb", b=("", [bubble("b-1", 1, "Gulls?")]))
    listed = json.dumps([{"bubbleId": "b-1"}, {"bubbleId": HALF}])
    execute(
        path,
        "UPDATE cursorDiskKV SET value = json_set(value, '$.fullConversationHeadersOnly',"
        f" json('{listed}')) WHERE key = 'composerData:b'",
    )
    (history,) = histories_at(path)
    assert [record["text"] for record in history.records] == ["Gulls?"]
    assert "missing" in "".join(history.findings)


CHAT = [record["message"] for record in recorded(CURSOR, "messages of the command line")]


def test_root_lists_messages_of_the_command_line(tmp_path):
    (history,) = histories_at(command_line(tmp_path, *CHAT))
    assert (history.name, history.format) == ("c-1", CURSOR)
    assert [record["message"] for record in history.records] == CHAT
    assert history.events[-1].changed["attributes"] == {"value": {"title": "Gulls"}}


def test_a_missing_message_is_a_finding(tmp_path):
    lost = "ab" * 32
    first = sha256(json.dumps(CHAT[0]).encode()).hexdigest()
    (history,) = histories_at(command_line(tmp_path, CHAT[0], listed=[lost, first]))
    assert len(history.records) == 1
    assert lost in history.findings[0]


def test_a_root_whose_name_is_half_a_letter_is_missing(tmp_path):
    path = command_line(tmp_path, *CHAT)
    about = json.dumps({"agentId": "c-1", "latestRootBlobId": HALF}).encode()
    execute(path, f"UPDATE meta SET value = '{about.hex()}'")
    with new_store() as store:
        (outcome,) = Import(store, [path])
    assert "is missing" in str(outcome.error)


def test_an_empty_store_of_cursor_is_no_history(tmp_path):
    path = command_line(tmp_path)
    execute(path, "UPDATE meta SET value = '7b7d'")
    with pytest.raises(NotAHistory):
        histories_at(path)


def test_transcript_is_named_after_its_file(tmp_path):
    lines = recorded(CURSOR, "a transcript has calls without ids and its end is kept")
    (history,) = histories_at(write_lines(tmp_path / "t-1.jsonl", lines))
    assert (history.name, history.format) == ("t-1", CURSOR)


def test_another_database_is_refused(tmp_path):
    execute(tmp_path / "store.db", "CREATE TABLE blobs (id)")
    with pytest.raises(NotAHistory, match="is a SQLite database"):
        histories_at(tmp_path / "store.db")
