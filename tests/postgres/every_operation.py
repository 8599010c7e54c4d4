"""Run every public operation on a store, to try a server: ``python -m
tests.postgres.every_operation URL``. Prints each operation with its time, and exits with 1 if one
failed. The store must be empty.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import foldlog
from foldlog import Histories, SystemMessage
from foldlog.eventstore import StoreRefused
from tests.said import said

TEXT = "grüße, 你好 ✓"
REASON = "asked for"


class Outcome(NamedTuple):
    """One operation: its name, its error or None, and its seconds."""

    operation: str
    error: Exception | None
    seconds: float


def reply(call: str, tool: str) -> dict[str, object]:
    """Return a model's reply that calls a tool."""
    function = {"name": tool, "arguments": "{}"}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call, "type": "function", "function": function}],
    }


def write_source(folder: Path) -> None:
    turns = [("user", TEXT), ("assistant", "yes")] * 20
    records = [json.dumps({"role": role, "content": content}) for role, content in turns]
    (folder / "talk.jsonl").write_text("\n".join(records) + "\n")


def operations(histories: Histories, folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield each operation with its name, in an order in which each finds what it needs."""
    history = histories["c1 ä"]
    maintenance = histories.maintenance

    def append_result() -> None:
        history.append_reply(reply("a", "list"))
        (call,) = history.open_calls()
        history.append_tool_result(call, TEXT)

    def run_effect() -> None:
        history.append_reply(reply("b", "pay"))
        (call,) = history.open_calls()
        with history.lease():
            history.run(call, lambda: "paid")
        assert not history.open_calls()

    def use_import() -> None:
        imported = [name for name in histories if "talk" in name]
        assert imported
        assert all(len(histories[name].view()) for name in imported)

    def copy_to_file() -> None:
        with foldlog.open(str(folder / "copy.db")) as file:
            assert not [
                moved.problem for moved in file.maintenance.copy_from(histories) if moved.problem
            ]
            assert not list(file.maintenance.differences_from(histories))

    def verify() -> None:
        assert not [verdict.findings for verdict in maintenance.verify() if verdict.findings]

    def stream() -> None:
        assert list(history.stream_reply(["one ", TEXT]))
        assert history.unfinished_reply() is None

    def index() -> None:
        try:
            assert maintenance.index()
        except StoreRefused:
            assert histories.store.database.recorder.on_citus

    def archive() -> None:
        maintenance.archive(timedelta(0), f"file://{folder}/objects")
        assert len(histories["f"].view())

    def erase(name: str) -> None:
        assert not histories.erase(name, reason=REASON, detach_forks=True).bytes_pending

    yield "append", lambda: history.append([SystemMessage(content="s"), said(TEXT)])
    yield "append with a key", lambda: history.append(said("k"), idempotency_key="k ä")
    yield "the key again", lambda: history.append(said("k"), idempotency_key="k ä")
    yield "a call and its result", append_result
    yield "a batch", lambda: history.append([said(f"m{n}") for n in range(100)])
    yield "View and prompt", lambda: (len(history.view()), len(history.prepare()))
    yield "at, why", lambda: (len(history.at(3)), history.why(1))
    yield "attributes", lambda: histories.create("c2", {"app": "x", "user": TEXT})
    yield "append beside", lambda: histories["c2"].append(said("two"))
    yield "list by attribute", lambda: found(histories.list({"user": TEXT}))
    yield "lease and effect", run_effect
    yield "fork", lambda: history.fork(at=5, id="f").append(said("in the fork"))
    yield "search", lambda: found(histories.search("grüße"))
    yield "search index", index
    yield "search with the index", lambda: found(histories.search("grüße"))
    yield "stream a reply", stream
    yield "list with figures", lambda: found(histories.list(limit=9))
    yield "figures", history.stats
    yield "follow", lambda: found(histories.store.follow(0, limit=500))
    yield "redact", lambda: history.redact(1, reason=REASON)
    yield "import", lambda: histories.import_(str(folder))
    yield "first use of an import", use_import
    yield "import again", lambda: histories.import_(str(folder))
    yield "verify", verify
    yield "copy to a file", copy_to_file
    yield "archive and restore", archive
    yield "expire", lambda: maintenance.expire(timedelta(days=1), reason="old", dry_run=True)
    yield "rebuild Views", lambda: histories.views.rebuild("f")
    yield "erase with a fork", lambda: erase("c1 ä")
    yield "erase", lambda: erase("c2")
    yield "vacuum", lambda: maintenance.vacuum()


def found(rows: object) -> None:
    assert list(rows)  # type: ignore[call-overload]


def run(url: str) -> Iterator[Outcome]:
    """Yield the outcome of each operation."""
    condenser = {"type": "recent", "max_events": 6}
    with (
        tempfile.TemporaryDirectory() as folder,
        foldlog.open(url, condenser=condenser) as histories,
    ):
        write_source(Path(folder))
        for name, operation in operations(histories, Path(folder)):
            started = time.monotonic()
            error = None
            try:
                operation()
            except Exception as raised:  # each failure is a line of the table
                error = raised
            yield Outcome(name, error, time.monotonic() - started)


if __name__ == "__main__":
    failed = 0
    for outcome in run(sys.argv[1]):
        failed += outcome.error is not None
        print(
            f"{outcome.operation:24} {outcome.seconds:6.2f} s {outcome.error or 'ok'}", flush=True
        )
    print(f"{failed} operations fail")
    sys.exit(failed > 0)
