"""``python -m benchmarks.folder``: what people wait for who import a folder of sessions, list them and search them.

It makes a folder in the shape of ``~/.claude/projects``, 2,000 sessions of 507 MB unless told otherwise, and runs the
commands. CPU time counts, of user and system, of the command and the processes that it starts: on a loaded machine the
clock tells how long both waited. Before them it imports the folder by hand, with one more piece of the work each time.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.resources import files
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Annotated, Any

import msgspec
import typer

try:
    from isal import isal_zlib as deflating
except ImportError:
    deflating = zlib

SESSIONS = 2_000
_PROJECTS = 40
_TURNS = 63
"""Calls of tools in a session, on average: with 2,000 sessions 507 MB."""
_BEGUN = datetime(2026, 3, 1, 8, tzinfo=UTC)
_TOOLS = ("Bash", "Read", "Grep", "Edit", "TodoWrite")
_TEXT = """
the build fails in module parser because of a missing token while the test for nested blocks reads config value from
cache index table and returns error path line function class import return self None for each row in store check version
update commit branch merge deploy server request response client
"""
_WORDS = _TEXT.split()


def sessions(count: int) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """Yield the project, the name and the records of each session; the same ones each time."""
    for number in range(count):
        chance = random.Random(number)
        name = f"{number:08x}-0000-4000-8000-{chance.getrandbits(48):012x}"
        project = f"-home-me-project-{number % _PROJECTS}"
        turns = max(1, int(_TURNS * (0.2 + 1.6 * chance.random())))
        yield project, name, list(_records(chance, name, project, turns, number))


def _records(chance: random.Random, session: str, project: str, turns: int, number: int) -> Iterator[dict[str, Any]]:
    at, parent = _BEGUN + timedelta(minutes=17 * number), None

    def record(kind: str, message: dict[str, Any], **more: Any) -> dict[str, Any]:
        nonlocal at, parent
        at += timedelta(seconds=chance.randint(1, 40))
        made = {
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
        parent = made["uuid"]
        return made

    def words(least: int, most: int) -> str:
        return " ".join(chance.choices(_WORDS, k=chance.randint(least, most)))

    yield record("user", {"role": "user", "content": f"session {number}: {words(8, 60)}"})
    for turn in range(turns):
        call, tool = f"toolu_{chance.getrandbits(96):024x}", chance.choice(_TOOLS)
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
        yield record("assistant", {**answer, "content": [{"type": "text", "text": words(10, 80)}]}, **request)
        used = {"type": "tool_use", "id": call, "name": tool, "input": {"command": words(4, 40)}}
        yield record("assistant", {**answer, "content": [used]}, **request)
        told = "\n".join(words(6, 14) for _ in range(chance.randint(1, 25)))
        result = {"type": "tool_result", "tool_use_id": call, "content": told, "is_error": chance.random() < 0.05}
        kept = {"stdout": told, "stderr": "", "interrupted": False, "isImage": False}
        yield record("user", {"role": "user", "content": [result]}, toolUseResult=kept)
        if turn % 20 == 19:
            yield record("user", {"role": "user", "content": words(5, 40)})
    yield record(
        "assistant", {**answer, "stop_reason": "end_turn", "content": [{"type": "text", "text": words(20, 90)}]}
    )


def make(folder: Path, count: int) -> int:
    """Write the sessions below a folder. Return their bytes."""
    written = 0
    for project, name, records in sessions(count):
        (folder / project).mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in records)
        written += (folder / project / f"{name}.jsonl").write_text(text)
    return written


def grow(folder: Path) -> None:
    """Let one of the sessions go on."""
    path = sorted(folder.rglob("*.jsonl"))[0]
    last = json.loads(path.read_text().splitlines()[-1])
    said = {**last, "uuid": f"{time.time_ns():032x}", "parentUuid": last["uuid"], "type": "user"}
    with path.open("a") as file:
        file.write(json.dumps({**said, "message": {"role": "user", "content": "and one more thing"}}) + "\n")


def timed(arguments: Sequence[str]) -> tuple[float, float]:
    """Run a command of ours. Return the seconds of CPU, and by the clock."""
    begun = time.perf_counter()
    before = _of_children()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = Popen([sys.executable, "-m", "foldlog", *arguments], stdout=DEVNULL, stderr=DEVNULL, env=environment)
    if process.wait() != 0:
        raise SystemExit(f"foldlog {' '.join(arguments)} ended with status {process.returncode}")
    return _of_children() - before, time.perf_counter() - begun


def _of_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


_PIECES = ("parse", "hash", "deflate", "insert", "index words")
_BY_HAND = """
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    CREATE TABLE sessions (key INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
    CREATE TABLE records (
        session INTEGER, id INTEGER, kind TEXT, source TEXT, head BLOB, body BLOB, PRIMARY KEY (session, id)
    ) WITHOUT ROWID;
    CREATE INDEX by_source ON records (session, source);
    CREATE VIRTUAL TABLE words USING fts5 (text, content = '', tokenize = 'porter unicode61 remove_diacritics 2');
    INSERT INTO words (words, rank) VALUES ('automerge', 16);
"""


def by_hand(number: int, folder: Path, db: str) -> tuple[float, float]:
    """Import the folder as the shortest program would that keeps its records: a durable transaction for each session,
    and no events, Views, sums and checks. Do this number of the pieces. Return the seconds as ``timed``.
    """
    begun, before = time.perf_counter(), time.process_time()
    parse = msgspec.json.Decoder().decode
    sample = (files("foldlog._formats") / "samples" / "claude-code.1.json").read_bytes()
    with tempfile.TemporaryDirectory(dir=Path(db).parent) as place, closing(sqlite3.connect(f"{place}/db")) as database:
        database.executescript(_BY_HAND)
        for session, path in enumerate(sorted(folder.rglob("*.jsonl"))):
            head, rows, texts = b"", [], []
            with path.open("rb") as lines:
                for event_id, line in enumerate(lines):
                    record, body = parse(line), line
                    if number > 1:
                        head = hashlib.sha256(head + line).digest()
                    if number > 2:
                        packing = deflating.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS, 9, zdict=sample)
                        body = packing.compress(line) + packing.flush()
                    if number > 4:
                        texts.append((session << 32 | event_id, _texts(record["message"]["content"])))
                    rows.append((session, event_id, record["type"], record["uuid"], head, body))
            if number > 3:
                with database:
                    database.execute("INSERT INTO sessions VALUES (?, ?)", (session, path.stem))
                    database.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?)", rows)
                    database.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", texts)
    return time.process_time() - before, time.perf_counter() - begun


def _texts(value: Any) -> str:
    """Return the texts in the content of a message of the folder."""
    if isinstance(value, str):
        return value
    found = (each.get(name) for each in value for name in ("text", "name", "input", "content"))
    return "\n".join(each if isinstance(each, str) else "\n".join(each.values()) for each in found if each)


def home(db: str) -> tuple[float, float]:
    """Serve the page, and ask for its list until all of it is counted. Return the seconds as ``timed``."""
    from foldlog._web.conversations import ServedConversations
    from foldlog.eventstore import open_store

    begun, before = time.perf_counter(), time.process_time()
    with open_store(f"sqlite:///{db}") as store:
        served = ServedConversations(store)
        while (page := served.list()).counted < page.total:
            time.sleep(0.02)
        served.close()
    return time.process_time() - before, time.perf_counter() - begun


def main(
    count: Annotated[int, typer.Option("--sessions", min=1, help="How many sessions.")] = SESSIONS,
    keep: Annotated[Path | None, typer.Option("--keep", help="Make them here, or use those here.")] = None,
    only: Annotated[str, typer.Option("--only", help="Only the steps whose name has this in it.")] = "",
) -> None:
    """Make the folder, run the commands, and print what each takes."""
    place = keep or Path(tempfile.mkdtemp(prefix="foldlog-folder-"))
    folder, db = place / "projects", str(place / "history.db")
    try:
        size = sum(each.stat().st_size for each in folder.rglob("*.jsonl")) if folder.exists() else make(folder, count)
        print(f"{count:,} sessions, {size / 1e6:.1f} MB, load {os.getloadavg()[0]:.1f}")
        in_store = ["--db", db]
        pieces = [f"by hand: {', '.join(_PIECES[:number])}" for number in range(1, len(_PIECES) + 1)]
        steps: list[tuple[str, Any]] = [
            *((name, partial(by_hand, number, folder)) for number, name in enumerate(pieces, 1)),
            ("import, first time", ["import", str(folder), *in_store]),
            ("import again, nothing new", ["import", str(folder), *in_store]),
            ("import again, one file grown", ["import", str(folder), *in_store]),
            ("list", ["list", *in_store]),
            ("list --long", ["list", "--long", *in_store]),
            ("list --long again", ["list", "--long", *in_store]),
            ("list --sort activity --limit 20", ["list", "--sort", "activity", "--limit", "20", *in_store]),
            ("home of the page", home),
            ("stats", ["stats", *in_store]),
            ("stats again", ["stats", *in_store]),
            ("first search", ["search", "parser", *in_store]),
            ("second search", ["search", "merge", *in_store]),
        ]
        for name, what in steps:
            if only in name:
                if "grown" in name:
                    grow(folder)
                cpu, clock = what(db) if callable(what) else timed(what)
                print(f"{name:50} {cpu:8.2f} s CPU {clock:8.2f} s", flush=True)
    finally:
        if keep is None:
            shutil.rmtree(place)


if __name__ == "__main__":
    typer.run(main)
