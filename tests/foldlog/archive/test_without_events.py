"""Commands that need no events of an import: they make none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foldlog.eventstore import open_store


def line(number: int) -> str:
    message = {"role": "user", "content": "so"}
    return json.dumps({"type": "user", "uuid": f"u{number}", "sessionId": "s1", "message": message})


@pytest.fixture
def session(tmp_path: Path, foldlog: Any) -> Path:
    path = tmp_path / "s1.jsonl"
    path.write_text("\n".join([line(0), "{torn", line(1), ""]))
    foldlog("import", path)
    return path


def pending(tmp_path: Path) -> int:
    with open_store(f"sqlite:///{tmp_path}/foldlog.db") as store:
        return store.conversation("s1", pending=True).pending


@pytest.mark.parametrize(
    "command",
    [
        ("export", "s1"),
        ("list", "--long"),
        ("stats",),
        ("search", "so"),
        ("store", "erase", "s1", "--reason", "asked for", "--dry-run"),
        ("store", "expire", "--older-than", "90d", "--dry-run"),
        ("store", "redact", "--older-than", "90d", "--reason", "age", "--dry-run"),
        ("store", "verify", "s1"),
    ],
    ids=" ".join,
)
def test_it_makes_no_events(
    command: tuple[str, ...], session: Path, tmp_path: Path, foldlog: Any
) -> None:
    ran = foldlog(*command)
    assert ran.status in (0, 1), ran.err
    assert pending(tmp_path) == 2


def test_an_erasure_tells_of_records_that_are_no_events(session: Path, foldlog: Any) -> None:
    ran = foldlog("store", "erase", "s1", "--reason", "asked for", "--dry-run")
    assert "s1: 0 events, 2 records without events, the last at " in ran.out


def test_a_note_says_that_a_conversation_is_incomplete_before_its_first_use_and_after(
    session: Path, foldlog: Any
) -> None:
    assert (
        "s1 is incomplete: 1 record of its source could not be read, after record 0"
        in foldlog("export", "s1").err
    )
    foldlog("view", "s1")
    assert (
        "s1 is incomplete: 1 record of its source could not be read, after event 0"
        in foldlog("export", "s1").err
    )
