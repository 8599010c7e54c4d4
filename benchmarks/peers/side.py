"""The interface of a peer in this benchmark (a *side*), and the process that runs a side. The
process runs in the environment of the peer, so this module needs only the standard library.

The process imports its peer, and uses it once on a small history, so that all code is loaded. Then
it reads requests, each a line of JSON. Each request runs in a forked child: the code is warm, but
the store and all objects are new. The child prints its answer as a line of JSON.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sqlite3
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

Item = dict[str, Any]
"""An item of the history: ``kind`` is system, user, call, result or condensation; ``n`` is its
place.
"""


class Store(Protocol):
    """An open store of one conversation."""

    def add(self, items: Sequence[Item]) -> None:
        """Record a call, a result or both. When ``add`` returns, the items are as durable as this
        peer makes them.
        """

    def condense(self, item: Item) -> None:
        """Record that items are forgotten, if the peer can record this."""

    def read(self) -> Any:
        """Return what the runtime reads before it calls the model."""

    def fill(self, items: Sequence[Item]) -> None:
        """Record many items in the peer's fastest way, with the same stored data as ``add``."""

    def said(self, answer: Any) -> Iterable[Sequence[str]]:
        """Convert an answer of ``read`` into the entries that the benchmark compares: see
        ``entry``.
        """

    def close(self) -> None: ...


class Side(Protocol):
    packages: Sequence[str]
    """The distributions whose versions are saved with the results."""
    shows: str
    """Which items ``read`` returns: ``view`` the View, ``log`` every item, ``newest`` the newest."""

    def prepare(self) -> None:
        """Do what a program does before it opens a store, such as making an event loop. This is not
        timed.
        """

    def open(self, path: str) -> Store: ...


def entry(item: Item) -> tuple[str, ...]:
    """Return the fields of an item that must be equal in the answers of all peers. Arguments are
    compared as parsed JSON.
    """
    if item["kind"] == "call":
        return ("call", item["call_id"], arguments_of(json.loads(item["arguments"])))
    if item["kind"] == "result":
        return ("result", item["call_id"], item["text"])
    return (item["kind"], item["text"])


def arguments_of(parsed: Any) -> str:
    return json.dumps(parsed, sort_keys=True)


def digest(entries: Iterable[Sequence[str]]) -> str:
    hasher = hashlib.sha256()
    for fields in entries:
        hasher.update(json.dumps(list(fields), ensure_ascii=True).encode())
    return hasher.hexdigest()


def read_items(path: str, start: int, stop: int) -> Iterator[Item]:
    with open(path, encoding="utf-8") as lines:
        yield from map(json.loads, islice(lines, start, stop))


# The requests of a child


def fill(side: Side, request: dict[str, Any]) -> dict[str, Any]:
    """Record the items of the history in batches, in the peer's fastest way and without syncs.

    The stored data is the same as with syncs. The caller syncs the whole file system afterwards.
    """
    connect = sqlite3.connect

    def connect_without_syncs(*arguments: Any, **named: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **named)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    def skip_sync(fd: Any) -> None:
        """Do nothing in place of ``os.fsync``."""

    sqlite3.connect = connect_without_syncs  # type: ignore[assignment]
    os.fsync = skip_sync
    side.prepare()
    store = side.open(request["path"])
    begun = time.perf_counter()
    source = read_items(request["items"], 0, request["events"])
    while some := list(islice(source, 1_000)):
        store.fill(some)
    store.close()
    return {"seconds": time.perf_counter() - begun}


def measure_opening(side: Side, request: dict[str, Any]) -> dict[str, Any]:
    """Measure the opening of the store and the reading of all items that the model is shown.

    Before the clock starts, the child uses the peer on a few items. The kernel copies a memory page
    when the child first writes to it after the fork, and these copies are not the peer's cost.
    """
    _use(side)
    side.prepare()
    gc.collect()
    before, afterwards = _watch_memory()
    begun = time.perf_counter()
    store = side.open(request["path"])
    answer = store.read()
    seconds = time.perf_counter() - begun
    peak = _status(afterwards)
    entries = list(store.said(answer))
    store.close()
    return {
        "seconds": seconds,
        "bytes": max(peak - before, 0),
        "entries": len(entries),
        "answer": digest(entries),
    }


def measure_turns(side: Side, request: dict[str, Any]) -> dict[str, Any]:
    """Continue the history: first single appends, then turns. In a turn, the side records a call
    with its result, and then calls ``read``.

    Condensations are recorded between the turns, and are not timed. Turns stop after ``seconds``.
    """
    _use(side)
    side.prepare()
    store = side.open(request["path"])
    if side.shows == "view":  # a runtime with a View has the View in memory at this point
        store.read()
    source = read_items(request["items"], request["start"], sys.maxsize)
    first = next(source)
    item_count = 0
    if first["kind"] == "result":  # an earlier ``record_between_marks`` ended at the call
        store.add([first])
        item_count = 1
    else:
        source = chain([first], source)

    def following(kind: str) -> Item:
        nonlocal item_count
        for item in source:
            item_count += 1
            if item["kind"] == "condensation":
                store.condense(item)
            elif item["kind"] == kind:
                return item
            else:
                raise AssertionError(f"expected a {kind}, but item {item['n']} is a {item['kind']}")
        raise AssertionError("the items are used up")

    appends: list[float] = []
    for _ in range(request["appends"] // 2 + 1):  # the first call with its result warms up
        for kind in ("call", "result"):
            item = following(kind)
            begun = time.perf_counter()
            store.add([item])
            appends.append(time.perf_counter() - begun)
    answer: Any = None
    turns: list[float] = []
    started = time.perf_counter()
    for _ in range(request["turns"]):
        pair = [following("call"), following("result")]
        begun = time.perf_counter()
        store.add(pair)
        answer = store.read()
        turns.append(time.perf_counter() - begun)
        if time.perf_counter() - started > request["seconds"]:
            break
    entries = list(store.said(answer))
    store.close()
    return {
        "appends": appends[2:],
        "turns": turns,
        "stop": request["start"] + item_count,
        "entries": len(entries),
        "answer": digest(entries),
    }


def record_between_marks(side: Side, request: dict[str, Any]) -> dict[str, Any]:
    """Record calls and results one by one, between two marks that strace shows. A mark is an fsync
    of a descriptor that does not exist.
    """
    side.prepare()
    store = side.open(request["path"])
    items = list(
        read_items(request["items"], request["start"], request["start"] + request["appends"] + 1)
    )
    for number, item in enumerate(items):
        if number == 1:
            _mark()
        if item["kind"] == "condensation":
            store.condense(item)
        else:
            store.add([item])
    _mark()
    store.close()
    return {"appends": len(items) - 1}


MARK = 1_000_000
"""No process has so many open files, so that a call with this descriptor is no sync of a peer."""


def _mark() -> None:
    try:
        os.fsync(MARK)
    except OSError:
        return
    raise AssertionError("the descriptor of the mark belongs to an open file")


def _watch_memory() -> tuple[int, str]:
    """Reset the peak of the resident memory. Return the resident memory now, and the line of
    ``/proc/self/status`` that will hold the peak. If the kernel does not let the process reset its
    peak, this line is the resident memory.
    """
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return _status("VmRSS"), "VmRSS"
    return _status("VmRSS"), "VmHWM"


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise AssertionError(f"/proc/self/status has no {name}")


REQUESTS: dict[str, Callable[[Side, dict[str, Any]], dict[str, Any]]] = {
    "fill": fill,
    "open": measure_opening,
    "work": measure_turns,
    "sync": record_between_marks,
}


def serve(side: Side) -> None:
    """Load all code, print the versions, and answer requests until the end of stdin."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what a peer prints is not an answer
    try:
        _use(side)
    except Exception:  # noqa: BLE001 - whatever a peer raises is the answer
        _say(
            answers, {"error": _last_line(traceback.format_exc()), "trace": traceback.format_exc()}
        )
        return
    _say(
        answers, {"versions": {name: version(name) for name in side.packages}, "shows": side.shows}
    )
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                request = json.loads(line)
                _say(answers, REQUESTS[request["do"]](side, request))
            except BaseException:  # noqa: BLE001 - whatever a peer raises is the answer
                _say(
                    answers,
                    {"error": _last_line(traceback.format_exc()), "trace": traceback.format_exc()},
                )
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            _say(answers, {"error": f"the process ended with status {status}"})


def _use(side: Side) -> None:
    """Use the peer on four items, to load code that is imported or compiled at first use."""
    call = {"kind": "call", "call_id": "call_2", "arguments": '{"command": "ls"}'}
    some = [{"kind": "system", "text": "be brief"}, {"kind": "user", "text": "hi"}, call]
    some.append({"kind": "result", "call_id": "call_2", "text": "a file"})
    items = [{"n": n, **item} for n, item in enumerate(some)]
    with tempfile.TemporaryDirectory() as folder:
        side.prepare()
        store = side.open(f"{folder}/history")
        store.fill(items[:2])
        store.add(items[2:])
        entries = list(store.said(store.read()))
        store.close()
    if digest(entries) != digest(entry(item) for item in items):
        raise AssertionError(f"returned {entries}")


def _last_line(trace: str) -> str:
    return trace.strip().splitlines()[-1]


def _say(answers: Any, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
