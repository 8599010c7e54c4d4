"""``python -m benchmarks.folder``: measure the import of a folder of sessions, and the commands
that list and search them.

The benchmark makes a folder like ``~/.claude/projects``, by default with 2,000 sessions of 495 MB
in all. A hand-written program and foldlog import the folder in turn, each in a new process. Then
the benchmark runs the commands. The figures are user and system CPU time, because elapsed times
depend on the load of the machine. ``--also FOLDER`` also compares the import of other logs, such as
real sessions. Short logs are imported several times, each time under other names.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from subprocess import DEVNULL, PIPE, Popen, run
from typing import Annotated, Any

import typer

SESSIONS = 2_000
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
    at, parent = _BEGUN + timedelta(minutes=17 * number), None

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


_SEARCHED_SESSIONS = 400
"""The number of sessions in the store that is searched (some 100 MB)."""
_LEAST_BYTES = 20_000_000
"""A log of fewer than ``_LEAST_BYTES`` bytes is imported several times."""
_LONG_BYTES = 12_000_000


def grow(folder: Path) -> None:
    """Append a record to one of the sessions."""
    path = sorted(folder.rglob("*.jsonl"))[0]
    last = json.loads(path.read_text().splitlines()[-1])
    new_record = {
        **last,
        "uuid": f"{time.time_ns():032x}",
        "parentUuid": last["uuid"],
        "type": "user",
    }
    with path.open("a") as file:
        file.write(
            json.dumps({**new_record, "message": {"role": "user", "content": "and one more thing"}})
            + "\n"
        )


def make_long(path: Path) -> None:
    """Write one long session."""
    chance = random.Random(0)
    records = _records(chance, "long", "long", 100_000, 0)
    with path.open("w") as file:
        while file.tell() < _LONG_BYTES:
            file.write(json.dumps(next(records), separators=(",", ":")) + "\n")


# -- one measurement, in a process of its own
# --------------------------------------------------------------------------


def by_hand(folder: str, db: str, times: str) -> None:
    """Parse, hash and insert each line, with one transaction for each file. Print the seconds of
    CPU.
    """
    begun = time.process_time()
    with closing(sqlite3.connect(db)) as database:
        database.executescript(_BY_HAND)
        paths = sorted(Path(folder).rglob("*.jsonl")) * int(times)
        for session, path in enumerate(paths):
            head, rows = b"", []
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
    _print(time.process_time() - begun)


_BY_HAND = """
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    CREATE TABLE sessions (key INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, head BLOB);
    CREATE TABLE records (session INTEGER, id INTEGER, kind TEXT, body BLOB, PRIMARY KEY (session, id)) WITHOUT ROWID;
"""


def imported(folder: str, db: str, times: str) -> None:
    """Import the folder. Print the seconds of CPU, not counting the import of foldlog's modules,
    and the peak memory in MB.
    """
    import foldlog.condensers.strategies.digest  # noqa: F401
    from foldlog._archive import makes_events
    from foldlog._archive.importing import Import, Imported
    from foldlog._formats.registry import formats
    from foldlog.eventstore import open_store

    formats()  # loads them
    begun = time.process_time()
    with open_store(f"sqlite:///{db}") as store:
        for number in range(int(times)):
            prefix = f"{number}/" if number else ""
            for outcome in Import(makes_events(store), [Path(folder)], prefix=prefix):
                if not isinstance(outcome, Imported):
                    raise SystemExit(f"{outcome.path}: {outcome.error}")
    _print(time.process_time() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def used(db: str) -> None:
    """Use each conversation. Print the median seconds of CPU, and the number of conversations."""
    import foldlog

    seconds = []
    with foldlog.open(f"sqlite:///{db}") as histories:
        names = [row.id for row in histories.store.iter_conversations()]
        for name in names:
            begun = time.process_time()
            histories.store.version(name)
            seconds.append(time.process_time() - begun)
    _print(median(seconds), len(seconds))


def first_used(db: str) -> None:
    """Use the only conversation. Print the seconds of CPU, not counting the import of foldlog's
    modules.
    """
    import foldlog
    import foldlog._archive.projecting
    import foldlog._formats.claude_code

    with foldlog.open(f"sqlite:///{db}") as histories:
        (name,) = (row.id for row in histories.store.iter_conversations())
        begun = time.process_time()
        histories.store.version(name)
        _print(time.process_time() - begun)


def _print(*numbers: float) -> None:
    print(*numbers)


def alone(what: str, *arguments: object) -> list[float]:
    """Run this module with the option ``--WHAT`` in a new process. Return the numbers that the
    process printed.
    """
    command = [sys.executable, "-m", "benchmarks.folder", f"--{what}", *map(str, arguments)]
    return [
        float(number) for number in run(command, check=True, stdout=PIPE, text=True).stdout.split()
    ]


def timed(*arguments: str, fails: bool = False) -> float:
    """Run a foldlog command, and return its CPU seconds, including the start of Python."""
    before = _of_children()
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    process = Popen(
        [sys.executable, "-m", "foldlog", *arguments],
        stdout=DEVNULL,
        stderr=DEVNULL,
        env=environment,
    )
    if process.wait() != fails:
        raise SystemExit(f"foldlog {' '.join(arguments)} ended with status {process.returncode}")
    return _of_children() - before


def _of_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


# -- all of them
# --------------------------------------------------------------------------------------------------


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.jsonl"))


def compare(folder: Path, stores: Path, rounds: int) -> Path:
    """Import a folder with the hand-written program and with foldlog in turn, and print the ratio.
    Return the path of foldlog's store.
    """
    size = _bytes(folder)
    times = -(-_LEAST_BYTES // size) if size < _LEAST_BYTES else 1
    hand, ours, memory = list[float](), list[float](), 0.0
    db = stores / f"{folder.name}.db"
    for _ in range(rounds):
        for path in stores.glob(f"{folder.name}.*db*"):
            path.unlink()
        hand += alone("by-hand", folder, stores / f"{folder.name}.hand.db", times)
        seconds, memory = alone("imported", folder, db, times)
        ours.append(seconds)
    ratio = median(ours) / median(hand)
    _say(
        f"import {folder.name}, {size * times / 1e6:.0f} MB, by hand {median(hand):.2f} s",
        f"{median(ours):.2f} s",
        ratio,
    )
    _say(
        "  memory; size of the store divided by size of the source",
        f"{memory:.0f} MB",
        db.stat().st_size / size / times,
    )
    return db


def _say(what: str, figure: str, ratio: float | None = None) -> None:
    print(f"{what:66} {figure:>10} {'' if ratio is None else f'{ratio:6.2f} x'}", flush=True)


def main(
    count: Annotated[int, typer.Option("--sessions", min=1, help="How many sessions.")] = SESSIONS,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep", help="The folder for the sessions. Sessions that it has are used again."
        ),
    ] = None,
    also: Annotated[
        list[Path] | None, typer.Option("--also", help="Also compare the import of these logs.")
    ] = None,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, help="How often each import is measured.")
    ] = 3,
) -> None:
    """Make the folder, run the imports and the commands, and print their CPU times."""
    place = keep or Path(tempfile.mkdtemp(prefix="foldlog-folder-"))
    folder = place / "projects"
    stores = Path(tempfile.mkdtemp(prefix="foldlog-folder-stores-"))
    try:
        size = _bytes(folder) if folder.exists() else make(folder, count)
        print(
            f"{count:,} sessions, {size / 1e6:.1f} MB, load {os.getloadavg()[0]:.1f}; seconds"
            " of CPU"
        )
        for other in also or ():
            compare(other, stores, rounds)
        measure(folder, stores, rounds)
    finally:
        shutil.rmtree(stores)
        if keep is None:
            shutil.rmtree(place)


def measure(folder: Path, stores: Path, rounds: int) -> None:
    db = str(compare(folder, stores, rounds))
    _say("import again, nothing new", f"{timed('import', str(folder), '--db', db):.2f} s")
    grow(folder)
    _say("import again, one file grown", f"{timed('import', str(folder), '--db', db):.2f} s")
    for command in (["list", "--long"], ["list", "--long"], ["stats"], ["stats"]):
        _say(" ".join(command), f"{timed(*command, '--db', db):.2f} s")
    searched = stores / "searched"
    searched.mkdir()
    for path in sorted(folder.rglob("*.jsonl"))[:_SEARCHED_SESSIONS]:
        (searched / path.name).symlink_to(path.resolve())
    searched_db = str(stores / "searched.db")
    timed("import", str(searched), "--db", searched_db)
    megabytes = sum(path.stat().st_size for path in searched.iterdir()) / 1e6
    for word, fails in (("notinanylog", True), ("parser", False)):
        _say(
            f"search {word}, {megabytes:.0f} MB",
            f"{timed('search', word, '--db', searched_db, fails=fails):.2f} s",
        )
    seconds, number = alone("used", searched_db)
    kilobytes = megabytes * 1e3 / number
    _say(
        f"first use of a conversation of {kilobytes:.0f} kB, median of {number:.0f}",
        f"{seconds * 1e3:.0f} ms",
    )
    _say("  the size of the store then", "", os.path.getsize(searched_db) / megabytes / 1e6)
    make_long(stores / "long.jsonl")
    timed("import", str(stores / "long.jsonl"), "--db", str(stores / "long.db"))
    (seconds,) = alone("first-used", stores / "long.db")
    _say(f"first use of a conversation of {_LONG_BYTES / 1e6:.0f} MB", f"{seconds:.2f} s")


_ALONE = {"--by-hand": by_hand, "--imported": imported, "--used": used, "--first-used": first_used}

if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in _ALONE:
        _ALONE[sys.argv[1]](*sys.argv[2:])
    else:
        typer.run(main)
