"""Measure the commands on stores of 100,000 conversations, and on conversations of 1,000,000
events.

Each command runs in a new process. The figure is the user and system CPU time. For foldlog and for
the baseline, this includes the start of Python, the imports, and the opening of the store.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.frame import Question, Round, Scale
from benchmarks.prepared import Prepared, prepared
from foldlog.eventstore import Message, open_store

_BY_HAND = "benchmarks.by_hand"
_LIST_MIB = 100
_START_MS = 200


class Ran(NamedTuple):
    """The CPU time and the output of a finished process."""

    cpu_s: float
    out: Path

    @property
    def lines(self) -> int:
        with self.out.open("rb") as file:
            return sum(1 for _ in file)


def run(folder: Path, module: str, *arguments: str) -> Ran:
    """Run ``python -m MODULE ARGUMENTS``, with the output in a file, because a pipe costs time."""
    out = folder / "out.txt"
    with out.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdout=file,
            env={**os.environ, "COLUMNS": "120"},
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise RuntimeError(
            f"python -m {module} {' '.join(arguments)} failed with {process.returncode}"
        )
    return Ran(usage.ru_utime + usage.ru_stime, out)


def peak_mib(folder: Path, *arguments: str) -> float:
    """Return the peak memory of ``foldlog ARGUMENTS`` in MiB. The process itself reads the peak,
    because the kernel's figure for a child includes the memory of the parent at the fork.
    """
    peak_file = folder / "peak.txt"
    run(folder, _BY_HAND, "peak", str(peak_file), *arguments)
    return int(peak_file.read_text()) / 1024


# -- many conversations
# -----------------------------------------------------------------------------------------------


def conversations(folder: Path, count: int) -> Path:
    """Return the path of a store with ``count`` conversations of two events. The store is made if
    it does not exist yet.
    """
    path = folder / f"conversations-{count}.db"
    if not path.exists():
        messages = [
            Message(source="user", content="hello"),
            Message(source="agent", content="good day"),
        ]
        with open_store(f"sqlite:///{path}", durability="relaxed") as store:
            for number in range(count):
                store.append(f"conversation-{number:08d}", messages, expected_version=0)
    return path


def listing(scale: Scale, folder: Path) -> Iterator[Round]:
    path = conversations(folder.parent, scale.usual)
    for _ in range(scale.rounds):
        every = ("--limit", str(scale.usual))
        ours = run(folder, "foldlog", "list", "--short", *every, "--db", f"sqlite:///{path}")
        listed = _first_columns(ours)
        by_hand = run(folder, _BY_HAND, "list", str(path))
        if listed != _first_columns(by_hand):
            raise AssertionError("the two sides list different conversations")
        yield Round(1_000 * ours.cpu_s, 1_000 * by_hand.cpu_s)


def _first_columns(ran: Ran) -> list[list[str]]:
    return [
        line.split()[:4]
        for line in ran.out.read_text().splitlines()
        if line.startswith("conversation-")
    ]


def starting(scale: Scale, folder: Path) -> Iterator[Round]:
    path = conversations(folder.parent, 10)
    for _ in range(scale.rounds):
        yield Round(
            1_000 * run(folder, "foldlog", "list", "--db", f"sqlite:///{path}").cpu_s, _START_MS
        )


def listing_memory(scale: Scale, folder: Path) -> Iterator[Round]:
    path = conversations(folder.parent, scale.usual)
    yield Round(peak_mib(folder, "list", "--short", "--db", f"sqlite:///{path}"), _LIST_MIB)


# -- one long conversation
# --------------------------------------------------------------------------------------------


def growing(arguments: Sequence[str], scale: Scale, folder: Path) -> Iterator[Round]:
    """Run a command on the longest history, and on a history of a hundredth of the length (10,000
    events in a full run).
    """
    long, short = (
        scale.events[-1],
        scale.events[-1] // 100 if scale.name == "full" else scale.events[0],
    )
    stores = {length: prepared(folder.parent, length) for length in (long, short)}
    for _ in range(scale.rounds):
        spent = {length: _run(folder, stores[length], arguments).cpu_s for length in (long, short)}
        yield Round(1_000 * spent[long], 1_000 * spent[short])


def _run(folder: Path, stores: Prepared, arguments: Sequence[str]) -> Ran:
    return run(folder, "foldlog", *_command(folder, stores, arguments))


def _command(folder: Path, stores: Prepared, arguments: Sequence[str]) -> list[str]:
    """Return the command line. ``WINDOW`` becomes the path of a configuration, and ``AUDIT`` the
    path of a new audit database.
    """
    (folder / "window.toml").write_text('[condenser]\ntype = "conversation_window"\n')
    (folder / "audit.db").unlink(missing_ok=True)
    files = {"WINDOW": folder / "window.toml", "AUDIT": folder / "audit.db"}
    command, *rest = (
        str(files.get(argument, argument)).format(last=stores.length - 1, end=stores.length)
        for argument in arguments
    )
    return [command, "c1", *rest, "--db", f"sqlite:///{stores.ours}"]


def reading(arguments: Sequence[str], scale: Scale, folder: Path) -> Iterator[Round]:
    """Run a command that reads every event. The baseline is a loop over the events in Python."""
    stores = prepared(folder.parent, scale.usual)
    for _ in range(scale.rounds):
        ours = _run(folder, stores, arguments)
        if "--to" not in arguments and ours.lines != stores.length:
            raise AssertionError(
                f"{arguments[0]} wrote {ours.lines} lines of {stores.length} events"
            )
        by_hand = run(folder, _BY_HAND, "events", str(stores.ours))
        yield Round(stores.length / ours.cpu_s, stores.length / by_hand.cpu_s)


def memory(arguments: Sequence[str], scale: Scale, folder: Path) -> Iterator[Round]:
    """Measure the peak memory of a command on the longest history, and on a history of a tenth of
    the length.
    """
    long, short = (prepared(folder.parent, length) for length in (scale.events[-1], scale.usual))
    yield Round(
        peak_mib(folder, *_command(folder, long, arguments)),
        peak_mib(folder, *_command(folder, short, arguments)),
    )


_GROWING = (
    ("view", ["view"], 1.5),
    ("why, a shown event", ["why", "{last}"], 1.5),
    ("why, an event forgotten at once", ["why", "5"], 3.0),
    ("diff, of all versions", ["diff", "100", "{end}"], 1.5),
    # The default condenser is left out: a first digest reads all forgotten events.
    ("condense --dry-run, a window", ["condense", "--dry-run", "--config", "WINDOW"], 1.5),
)
_READING = (
    ("log", ["log"], 0.3),
    ("export", ["export"], 0.3),
    ("audit database", ["export", "--to", "AUDIT"], 0.3),
)

QUESTIONS = [
    Question(
        "list of 100,000 conversations",
        "ms CPU",
        3.0,
        "at most",
        listing,
        "sqlite3 and print",
        "Lists of many conversations",
    ),
    Question(
        "list of a small store",
        "ms CPU",
        1.0,
        "at most",
        starting,
        f"{_START_MS} ms",
        "Lists of many conversations",
    ),
    Question("memory of that list", "MiB", 1.0, "at most", listing_memory, raw="100 MiB"),
    *(
        Question(
            f"{name}, 1,000,000 events",
            "ms CPU",
            most,
            "at most",
            partial(growing, arguments),
            raw="10,000 events",
        )
        for name, arguments, most in _GROWING
    ),
    *(
        Question(
            f"{name}, whole",
            "events/s",
            least,
            "at least",
            partial(reading, arguments),
            "reading in Python",
            "Commands that read everything",
        )
        for name, arguments, least in _READING
    ),
    *(
        Question(
            f"memory of {name}, 1,000,000 events",
            "MiB",
            1.3,
            "at most",
            partial(memory, arguments),
            raw="100,000",
        )
        for name, arguments, _ in _READING
    ),
]
