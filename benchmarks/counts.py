"""Count, without noise, what operations cost: SQL statements, bytecodes that CPython executes,
functions and files.

The more functions and files of foldlog a call runs, the more it costs when it is cold. For example,
an append is cold after a long call of a model.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from benchmarks.frame import in_new_process
from benchmarks.workload import history
from foldlog.condensers.models.tokens import TokenCounter
from foldlog.eventstore import ANY_VERSION, Action, Event, Message, Observation, Store
from foldlog.eventstore.opening import open_store
from foldlog.projections import Views

__all__ = [
    "BASELINE",
    "BASELINE_EVENTS",
    "Count",
    "bytecodes",
    "count_all",
    "print_compared",
    "record",
    "recorded",
]

_TOOL = 4
"""An id of ``sys.monitoring`` that CPython leaves free: debuggers and profilers have others."""
_BATCH = 500
_DEPTH = 10
"""The measured fork is a fork of a fork, and so on, up to this depth."""


BASELINE = Path(__file__).with_name("counts.json")
"""The file with the recorded counts of each CPython version, for histories of ``BASELINE_EVENTS``
events.
"""
BASELINE_EVENTS = 1_000
SLACK = 1.2
"""A count is reported as grown if it is more than ``SLACK`` times the recorded count."""


class Count(NamedTuple):
    """The counts of an operation. For a batch, an import and the loading of events, ``bytecodes``
    is the average for one event. ``functions`` and ``files`` are the numbers of different functions
    and files of foldlog that the operation ran.
    """

    bytecodes: int
    statements: int
    functions: int
    files: int


def bytecodes(work: Callable[[], object]) -> int:
    """Return the number of bytecodes that ``work`` executes in this thread."""
    executed = 0
    thread = threading.get_ident()
    if sys.version_info >= (3, 12):
        monitoring: Any = sys.monitoring

        def on_instruction(code: CodeType, offset: int) -> None:
            nonlocal executed
            executed += threading.get_ident() == thread

        monitoring.use_tool_id(_TOOL, "counts")
        try:
            monitoring.register_callback(_TOOL, monitoring.events.INSTRUCTION, on_instruction)
            monitoring.set_events(_TOOL, monitoring.events.INSTRUCTION)
            work()
        finally:
            monitoring.set_events(_TOOL, 0)
            monitoring.free_tool_id(_TOOL)
        return executed

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        nonlocal executed
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        executed += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return executed


def footprint(work: Callable[[], object]) -> tuple[int, int]:
    """Return the number of foldlog's functions that ``work`` runs in this thread, and the number of
    their files.
    """
    codes = set[CodeType]()

    def on_call(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").startswith("foldlog"):
            codes.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(on_call)
    try:
        work()
    finally:
        sys.setprofile(before)
    return len(codes), len({code.co_filename for code in codes})


def python_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


@contextmanager
def collecting(statements: list[str]) -> Iterator[None]:
    """Collect the statements of every connection that is opened within the block."""
    connect = sqlite3.connect

    def connected(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.set_trace_callback(statements.append)
        return connection

    sqlite3.connect = connected  # type: ignore[assignment]
    try:
        yield
    finally:
        sqlite3.connect = connect


def count_all(length: int) -> dict[str, Count]:
    """Count every operation on a history of ``length`` events, in a new store. Each operation runs
    once before it is counted, so the code is warm.
    """
    statements: list[str] = []

    def counted(work: Callable[[], object], per: int = 1) -> Count:
        work()
        del statements[:]
        work()
        statement_count = len(statements)
        return Count(round(bytecodes(work) / per), statement_count, *footprint(work))

    counts: dict[str, Count] = {}
    with tempfile.TemporaryDirectory() as folder, collecting(statements):
        url = f"sqlite:///{Path(folder)}/counts.db"
        with open_store(url) as store:
            views = Views(store)
            store.register(views)
            store.ingest("c", history(length))
            imported = list(history(length))
            nth = count()
            counts["import, an event"] = counted(
                lambda: store.ingest(f"imported {next(nth)}", imported), length
            )._replace(statements=0)  # in how many transactions depends on the clock
            views.current("c")
            message = Message(source="user", content="hello " * 20)
            for _ in range(3):
                store.append("c", message, expected_version=ANY_VERSION)
            counts["append"] = counted(
                lambda: store.append("c", message, expected_version=ANY_VERSION)
            )
            batch = [message] * _BATCH
            counts["batch of 500, an event"] = counted(
                lambda: store.append("b", batch, expected_version=ANY_VERSION), _BATCH
            )
            views.current("c")
            counts["View, the last append was to another"] = counted(lambda: views.current("c"))
            store.append("c", message, expected_version=ANY_VERSION)
            counts["warm View"] = counted(lambda: views.current("c"))
            counts["step"] = counted(lambda: _step(store, views))
            sums = TokenCounter(_letters)
            counts["step with sums of tokens"] = counted(lambda: _step(store, views, sums))
            counts["load all, an event"] = counted(
                lambda: sum(1 for _ in store.events("c")), length
            )
            for parent, fork in pairwise(
                ["c", *(f"fork {depth}" for depth in range(1, _DEPTH + 1))]
            ):
                store.fork(parent, store.version(parent), fork)
                store.append(fork, message, expected_version=ANY_VERSION)
        counts["cold open"] = counted(lambda: _open(url, "c"))
        counts["first open of a new process"] = Count(**in_new_process("benchmarks.counts", url))
        counts[f"cold open of a fork, depth {_DEPTH}"] = counted(
            lambda: _open(url, f"fork {_DEPTH}")
        )
    return counts


def _step(store: Store, views: Views, sums: TokenCounter | None = None) -> int:
    """Append two events as an agent does between two calls of its model, and make the View. With
    ``sums``, also count the tokens of the View. Return the number of events, or of tokens.
    """
    events: Sequence[Event] = _PAIR if sums is None else _call_with_result()
    recorded_events = store.append("c", events, expected_version=ANY_VERSION)
    view = views.current("c")
    assert view.version == recorded_events[-1].id + 1
    if sums is None:
        return len(view.events)
    return sums.token_sums(view)[-1]


_calls = count()


def _call_with_result() -> list[Event]:
    """Return a call and its result, which an agent appends in most steps."""
    call_id = f"call {next(_calls)}"
    call = Action(
        tool="run",
        arguments={"command": "ls -l " * 10},
        call_id=call_id,
        thought="what is here? " * 5,
    )
    return [call, Observation(tool="run", content="a file " * 40, call_id=call_id)]


def _letters(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> int:
    """Count tokens as a model's counter does. litellm is not used, because its cost changes with
    each release.
    """
    return 3 + sum(4 + len(str(message.get("content"))) for message in messages) + len(tools)


_PAIR = [
    Message(source="user", content="what next? " * 5),
    Message(source="agent", content="this " * 40),
]


def _open(url: str, conversation: str) -> int:
    with open_store(url) as store:
        return len(Views(store).current(conversation).events)


def count_first_open(url: str) -> Count:
    """Count an open that runs for the first time in this process, after the imports. It must compile
    no pattern, and import no further module.
    """
    statements: list[str] = []
    with collecting(statements):
        executed = bytecodes(lambda: _open(url, "c"))
        statement_count = len(statements)
        return Count(executed, statement_count, *footprint(lambda: _open(url, "c")))


def record() -> None:
    """Write the counts of this CPython to ``BASELINE``."""
    counts = recorded()
    counts[python_version()] = {
        what: count._asdict() for what, count in count_all(BASELINE_EVENTS).items()
    }
    BASELINE.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n")


def recorded() -> dict[str, Any]:
    counts: dict[str, Any] = json.loads(BASELINE.read_text())
    return counts


def print_compared() -> None:
    """Count every operation, and print each count, the recorded count, and the growth if it is more
    than a fifth. No count makes the run fail.
    """
    print(f"{f'counts at {BASELINE_EVENTS:,} events, CPython {python_version()}':60} now  recorded")
    operations = recorded().get(python_version(), {})
    for what, counted in count_all(BASELINE_EVENTS).items():
        for unit, now in counted._asdict().items():
            then = operations.get(what, {}).get(unit)
            grown = f"+{now / then - 1:.0%}" if then and now > SLACK * then else ""
            print(
                f"{f'{what}: {unit}':52} {now:11,} {'' if then is None else f'{then:9,}'} {grown}"
            )


if __name__ == "__main__":
    print(json.dumps(count_first_open(sys.argv[1])._asdict()))
