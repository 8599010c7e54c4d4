"""The history that every peer records, and the answers that every peer must return.

The history is the workload of the other benchmarks: a coding agent's events, with a condensation
about every 60 events.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from benchmarks.peers.side import Item, digest, entry, read_items
from benchmarks.workload import HEAD, PERIOD, history
from foldlog.eventstore import (
    Action,
    CondensationAction,
    Event,
    Message,
    Observation,
    SystemMessage,
)

MORE = 10 * PERIOD
"""The number of items that appends and turns may add to the history. Because ``MORE`` is a multiple
of ``PERIOD``, the history has the same items with and without this addition.
"""


def items(length: int) -> Iterator[Item]:
    """Yield a history of ``length`` items, then ``MORE`` further items."""
    last: CondensationAction | None = None
    for event in history(length + MORE):
        yield _item(event, last)
        if isinstance(event, CondensationAction):
            last = event


def _item(event: Event, last: CondensationAction | None) -> Item:
    match event:
        case SystemMessage():
            return {"n": event.id, "kind": "system", "text": event.content}
        case Message():
            return {"n": event.id, "kind": "user", "text": event.content}
        case Action():
            command = {"command": f"{event.arguments['command']} # {event.thought}"}
            return {
                "n": event.id,
                "kind": "call",
                "call_id": event.call_id,
                "arguments": json.dumps(command),
            }
        case Observation():
            return {
                "n": event.id,
                "kind": "result",
                "call_id": event.call_id,
                "text": event.content,
            }
        case CondensationAction():
            return {
                "n": event.id,
                "kind": "condensation",
                "forgotten": [
                    event_id for event_id in event.forgotten_event_ids or () if event_id >= 0
                ],
                "replaces": None if last is None else last.id,
                "text": event.summary,
            }
    raise AssertionError(f"the workload has no {type(event).__name__}")


def write(path: Path, length: int) -> None:
    """Write one item on each line."""
    with path.open("w", encoding="utf-8") as lines:
        for item in items(length):
            lines.write(json.dumps(item) + "\n")


@cache
def expected(path: Path, stop: int, shows: str, count: int) -> tuple[int, str]:
    """Return how many entries a peer must return after ``stop`` items, and their digest. A peer that
    shows the newest items must return the newest ``count``.
    """
    start = max(stop - 2 * count - PERIOD, 0) if shows == "newest" else 0
    recorded = read_items(str(path), start, stop)
    if shows == "view":
        shown = view(recorded)
    else:
        log = [item for item in recorded if item["kind"] != "condensation"]
        shown = log[-count:] if shows == "newest" else log
    return len(shown), digest(map(entry, shown))


def view(some: Iterable[Item]) -> Sequence[Item]:
    """Return the items that the model is shown if ``some`` are the items recorded so far. This
    function defines the correct answer.
    """
    shown: list[Item] = []
    for item in some:
        if item["kind"] != "condensation":
            shown.append(item)
            continue
        forgotten_ids = set(item["forgotten"])
        shown = [
            item for item in shown if item["n"] not in forgotten_ids and item["kind"] != "summary"
        ]
        shown.insert(HEAD, {"n": -1, "kind": "summary", "text": item["text"]})
    return shown
