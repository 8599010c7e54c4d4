"""What the command answers to the mistakes of a first day: it names what was meant."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import pytest

from foldlog import EventStoreError, open as foldlog_open

MISTAKES = {
    "lisst": (
        "No such command 'lisst'; did you mean 'foldlog list'? 'foldlog --help' shows all commands"
    ),
    "verify": (
        "No such command 'verify'; did you mean 'foldlog store verify'? 'foldlog --help' shows all"
        " commands"
    ),
    "store verfy": "did you mean 'foldlog store verify'?",
    "zebra": "No such command 'zebra'; 'foldlog --help' shows all commands",
    "store zebra": "No such command 'zebra'; 'foldlog store --help' shows all commands",
    "view c --tial 5": "--tail",
    "store copy --dm": "'foldlog store copy --help' shows all options",
    "--db my.db list": "options follow the command: 'foldlog list --db STORE'",
    "list my.db": (
        "'my.db' is not an attribute; give NAME=VALUE, such as user=u1; --db STORE names a store"
    ),
    "log -dash": "No such option: -d; 'foldlog log --help' shows all options",
    "serve --host 300.1.1.1 --port 0": "choose another with --host",
    "serve --host 192.0.2.1 --port 0": "choose another with --host",
    "fork d e --at 1": "this store has no conversation 'd'; 'foldlog list' shows its conversations",
    "store copy typo.db other.db": (
        "the store typo.db does not exist; name the store to copy as FROM"
    ),
    "list --db folder": (
        "folder is a folder, and a store is a file; name a store in it: --db folder/my.db\n"
    ),
    "import x.jsonl --db ./folder": (
        "./folder is a folder, and a store is a file; name a store in it: --db folder/"
    ),
    "store restore my.db --db sqlite:///histories": (
        "is a folder, and a store is a file; no file in it is a store"
    ),
    "fork c c": "conversation 'c' already exists, at version 6; use another id",
}


def test_a_mistake_is_answered_with_what_was_meant(foldlog, five_messages, tmp_path):
    foldlog("import --conversation c", five_messages)
    for folder in ("folder", "histories"):
        (tmp_path / folder).mkdir()
        shutil.copy(tmp_path / five_messages, tmp_path / folder)
    shutil.copy(tmp_path / "foldlog.db", tmp_path / "folder" / "my.db")
    for typed, meant in MISTAKES.items():
        ran = foldlog(*typed.split())
        assert (ran.status, ran.out) == (2, ""), typed
        assert meant in ran.err
        assert ran.err.count("\n") == 1, ran.err


def test_a_file_that_can_be_imported_is_recognized_where_a_store_is_named(
    foldlog, five_messages, tmp_path
):
    foldlog("import --conversation c", five_messages)
    for command in (("list",), ("import", five_messages)):
        ran = foldlog(*command, "--db", five_messages)
        assert ran.status == 2
        told = (
            f"{five_messages} is a history (openhands-v1), not a store; 'foldlog import"
            f" {five_messages}' adds it"
        )
        assert told in ran.err
    assert foldlog("import", five_messages).status == 0
    (tmp_path / "other.txt").write_text("something else")
    assert "choose another file" in foldlog("list --db other.txt").err


def test_a_database_is_recognized_where_a_history_is_imported(foldlog, five_messages, tmp_path):
    foldlog("import --db my.db", five_messages)
    ran = foldlog("import my.db --db new.db")
    assert ran.status == 2
    assert (
        "my.db: is a store; 'foldlog store copy my.db new.db' copies its conversations" in ran.err
    )
    assert "1 conversation " in foldlog("store copy my.db new.db").out
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as connection:
        connection.execute("CREATE TABLE messages (text)")
    assert (
        "theirs.db: is a SQLite database with the tables messages; docs/how-to/migrating.md says"
        in foldlog("import theirs.db").err
    )


def test_an_error_does_not_print_the_whole_text_that_was_given_as_a_name(foldlog, five_messages):
    foldlog("import", five_messages)
    text = '{"role": "user"}' * 5_000
    for arguments in (["import", text], ["import", ".", "--format", text], ["view", text]):
        ran = foldlog(*arguments)
        assert ran.status == 2
        assert text[:50] in ran.err
        assert len(ran.err) < 1_200
    with foldlog_open("memory:") as histories:
        for wrong in ({"path": text}, {"path": ".", "format": text}):
            with pytest.raises(EventStoreError) as told:
                histories.import_(**wrong)
            assert len(str(told.value)) < 1_200


def test_a_folder_without_a_history_says_what_it_has(foldlog, five_messages, tmp_path):
    foldlog("import", five_messages)
    (tmp_path / "others").mkdir()
    refused = foldlog("import others").err
    assert "others: holds no history that can be imported" in refused
