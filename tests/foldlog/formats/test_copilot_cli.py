"""What the events of Copilot CLI mean."""

from __future__ import annotations

import contextlib
import json
import sqlite3

import pytest

from foldlog.formats import NotAHistory
from tests.foldlog.formats.reading import histories_at
from tests.foldlog.records import records_of

RECORDS = records_of("copilot-cli")


def test_usage_is_that_of_the_end_of_a_session_and_of_the_replies_after_it(foldlog, tmp_path):
    (tmp_path / "events.jsonl").write_text(
        "".join(f"{json.dumps(each)}\n" for each in RECORDS[:-75])
    )
    assert foldlog("import", "events.jsonl").status == 0
    (model,) = foldlog("stats", "c-1", "--json").document["models"]
    assert (model["model"], model["calls"], model["prompt_tokens"], model["completion_tokens"]) == (
        "gpt-x",
        5,
        900,
        67,
    )
    assert (
        foldlog("list", "--long", "--json").document["conversations"][0]["title"]
        == "Files of the harbour"
    )


def test_the_index_of_sessions_and_other_logs_are_refused(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "session-store.db")) as database:
        for table in ("sessions", "turns"):
            database.execute(f"CREATE TABLE {table} (id)")
    with pytest.raises(NotAHistory, match="is a SQLite database with the tables sessions, turns;"):
        histories_at(tmp_path / "session-store.db")
    log = [
        {"type": "user.message", "data": {"content": "hi"}, "id": str(number)}
        for number in range(3)
    ]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in log))
    with pytest.raises(NotAHistory, match="holds no event"):
        histories_at(tmp_path / "a.jsonl")
