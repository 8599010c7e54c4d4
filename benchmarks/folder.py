"""Measure the import of a folder of sessions, such as ``~/.claude/projects``, and a search in it.

The full run makes 400 sessions of Claude Code, 98 MB in all. A hand-written program and foldlog
import the folder in turn, each in a new process; the clock is the CPU time after the imports.
foldlog also deflates the source, recognizes the format, and counts tokens, usage, tools and errors.
"""

from __future__ import annotations

import hashlib
import json
import random
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.frame import (
    Question,
    Round,
    Scale,
    Timed,
    by_turns,
    child_cpu_s,
    in_new_process,
    run,
)
from benchmarks.prepared import checkpoint

_PROJECTS = 40
_TURNS = 63
"""The average number of tool calls in a session."""
_BEGUN = datetime(2026, 3, 1, 8, tzinfo=UTC)
_TOOLS = ("Bash", "Read", "Grep", "Edit", "TodoWrite")
_TEXT = """
the build fails in module parser because of a missing token while the test for nested blocks reads config value from
cache index table and returns error path line function class import return self None for each row in store check version
update commit branch merge deploy server request response client
"""
_WORDS = _TEXT.split()


def sessions(count: int) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """Yield the project, the name and the records of each session. Each call yields the same
    sessions.
    """
    for number in range(count):
        chance = random.Random(number)
        name = f"{number:08x}-0000-4000-8000-{chance.getrandbits(48):012x}"
        project = f"-home-me-project-{number % _PROJECTS}"
        turns = max(1, int(_TURNS * (0.2 + 1.6 * chance.random())))
        yield project, name, list(_records(chance, name, project, turns, number))


def _records(
    chance: random.Random, session: str, project: str, turns: int, number: int
) -> Iterator[dict[str, Any]]:
    at = _BEGUN + timedelta(minutes=17 * number)
    parent = None

    def record(kind: str, message: dict[str, Any], **more: Any) -> dict[str, Any]:
        nonlocal at, parent
        at += timedelta(seconds=chance.randint(1, 40))
        line = {
            "parentUuid": parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": f"/src/{project}",
            "sessionId": session,
            "version": "2.0.14",
            "gitBranch": "main",
            "type": kind,
            "message": message,
            "uuid": f"{chance.getrandbits(128):032x}",
            "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            **more,
        }
        parent = line["uuid"]
        return line

    def words(least: int, most: int) -> str:
        return " ".join(chance.choices(_WORDS, k=chance.randint(least, most)))

    yield record("user", {"role": "user", "content": f"session {number}: {words(8, 60)}"})
    for turn in range(turns):
        call = f"toolu_{chance.getrandbits(96):024x}"
        tool = chance.choice(_TOOLS)
        usage = {
            "input_tokens": 4,
            "cache_creation_input_tokens": chance.randint(100, 3_000),
            "cache_read_input_tokens": 900 * turn,
            "output_tokens": chance.randint(20, 700),
            "service_tier": "standard",
        }
        answer = {
            "id": f"msg_{chance.getrandbits(96):024x}",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-5-20250929",
            "stop_reason": "tool_use",
            "stop_sequence": None,
            "usage": usage,
        }
        request = {"requestId": f"req_{chance.getrandbits(96):024x}"}
        yield record(
            "assistant", {**answer, "content": [{"type": "text", "text": words(10, 80)}]}, **request
        )
        used = {"type": "tool_use", "id": call, "name": tool, "input": {"command": words(4, 40)}}
        yield record("assistant", {**answer, "content": [used]}, **request)
        output = "\n".join(words(6, 14) for _ in range(chance.randint(1, 25)))
        result = {
            "type": "tool_result",
            "tool_use_id": call,
            "content": output,
            "is_error": chance.random() < 0.05,
        }
        structured_result = {"stdout": output, "stderr": "", "interrupted": False, "isImage": False}
        yield record("user", {"role": "user", "content": [result]}, toolUseResult=structured_result)
        if turn % 20 == 19:
            yield record("user", {"role": "user", "content": words(5, 40)})
    yield record(
        "assistant",
        {**answer, "stop_reason": "end_turn", "content": [{"type": "text", "text": words(20, 90)}]},
    )


def make(folder: Path, count: int) -> int:
    """Write the sessions below a folder. Return their bytes."""
    written = 0
    for project, name, records in sessions(count):
        (folder / project).mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in records)
        written += (folder / project / f"{name}.jsonl").write_text(text)
    return written


def by_hand(folder: str, db: str) -> int:
    """Parse, hash and insert each line, with one transaction for each file. Return the number of
    records.
    """
    count = 0
    with closing(sqlite3.connect(db)) as database:
        database.executescript(_BY_HAND)
        for session, path in enumerate(sorted(Path(folder).rglob("*.jsonl"))):
            head = b""
            rows = []
            with path.open("rb") as lines:
                for number, line in enumerate(lines):
                    record = json.loads(line)
                    head = hashlib.sha256(head + line).digest()
                    rows.append((session, number, record.get("type", ""), line))
            with database:
                database.execute(
                    "INSERT INTO sessions VALUES (?, ?, ?)", (session, str(session), head)
                )
                database.executemany("INSERT INTO records VALUES (?, ?, ?, ?)", rows)
            count += len(rows)
    return count


_BY_HAND = """
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    CREATE TABLE sessions (key INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, head BLOB);
    CREATE TABLE records (session INTEGER, id INTEGER, kind TEXT, body BLOB, PRIMARY KEY (session, id)) WITHOUT ROWID;
"""


def ours(folder: str, db: str) -> int:
    """Import the folder, and return the number of records."""
    from foldlog._imports import makes_events
    from foldlog._imports.importing import Import, Imported
    from foldlog.eventstore import open_store

    with open_store(f"sqlite:///{db}") as store:
        outcomes = list(Import(makes_events(store), [Path(folder)]))
    if not all(isinstance(outcome, Imported) for outcome in outcomes):
        raise AssertionError("a session was not imported")
    with closing(sqlite3.connect(db)) as database:
        (count,) = database.execute("SELECT sum(records) FROM sources").fetchone()
    return int(count)


def _preload() -> None:
    """Load what an import of Claude Code's sessions loads."""
    import foldlog._imports.importing
    import foldlog.condensers.strategies.digest  # noqa: F401
    from foldlog.formats.registry import formats

    formats()


# -- in the process of the benchmark


def importing(scale: Scale, folder: Path) -> Iterator[Round]:
    sessions = _sessions(scale, folder.parent)

    def side(name: str) -> Timed:
        db = folder / f"{name}.db"
        for path in folder.glob(f"{name}.db*"):
            path.unlink()
        measured = in_new_process("benchmarks.folder", name, str(sessions), str(db))
        return Timed(measured["cpu"], measured["answer"])

    yield from by_turns(
        scale,
        partial(side, "ours"),
        partial(side, "by_hand"),
        same=lambda ours, raw: ours.answer == raw.answer,
    )


def size(scale: Scale, folder: Path) -> Iterator[Round]:
    sessions = _sessions(scale, folder.parent)
    source = sum(path.stat().st_size for path in sessions.rglob("*.jsonl"))
    yield Round(checkpoint(_import_sources(scale, folder.parent)), source)


def searching(scale: Scale, folder: Path) -> Iterator[Round]:
    """Search for a word that no session contains, so that each block is read."""
    path = _import_sources(scale, folder.parent)
    search = ("search", "notinanylog", "--db", f"sqlite:///{path}")
    yield from by_turns(
        scale,
        lambda: run("foldlog", *search, fails=True),  # no hit
        lambda: run("benchmarks.by_hand", "find", str(path), "notinanylog"),
        clock=child_cpu_s,
        same=lambda ours, raw: raw == "0\n",
    )


def _sessions(scale: Scale, folder: Path) -> Path:
    sessions = folder / "sessions"
    if not sessions.exists():
        make(sessions, scale.sessions)
    return sessions


def _import_sources(scale: Scale, folder: Path) -> Path:
    path = folder / "sessions.db"
    if not path.exists():
        ours(str(_sessions(scale, folder)), str(path))
    return path


QUESTIONS = [
    Question("import 400 sessions, 98 MB", "ms CPU", 1.4, importing, "parse, hash, insert by hand"),
    Question("size of a store beside its source", "MB", 0.41, size, "the imported files"),
    Question("search 98 MB, no hit", "ms CPU", 2.0, searching, "inflate and find by hand"),
]

if __name__ == "__main__":
    side, folder, db = sys.argv[1:]
    _preload()
    begun = time.process_time()
    answer = {"ours": ours, "by_hand": by_hand}[side](folder, db)
    sys.stdout.write(json.dumps({"cpu": time.process_time() - begun, "answer": answer}))
