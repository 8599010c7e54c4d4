"""Measure the fold of a View in memory, including the repairs that make it valid for a model. The
baseline is a hand-written fold for this workload.

The hand-written fold checks that no condensation separates a call from its result. This fold
supports no batches, loops or dialects, and only the offsets that these histories need.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.frame import Question, Round, Scale
from benchmarks.workload import history
from foldlog.eventstore import (
    Action,
    CondensationAction,
    CondensationSummary,
    Event,
    Observation,
    summary_id,
)
from foldlog.projections import View, well_formed


def by_hand(events: Sequence[Event], *, asks: bool = False) -> list[Event]:
    items: list[Event] = []
    for event in events:
        if type(event) is CondensationAction:
            forgotten = set(event.forgotten_event_ids or ())
            if asks:
                check_together([item for item in items if item.id in forgotten])
            items = [item for item in items if item.id not in forgotten]
            summary = CondensationSummary(
                id=summary_id(event.id), content=event.summary or "", summary_of=event.id
            )
            items.insert(event.summary_offset or 0, summary)
        else:
            items.append(event)
    if asks:
        check_together(items)
    return items


def check_together(items: Sequence[Event]) -> None:
    """Raise ``AssertionError`` if a call has no result."""
    waiting = set[str | int | None]()
    for item in items:
        if type(item) is Action:
            waiting.add(item.call_id or item.id)
        elif type(item) is Observation:
            waiting.discard(item.call_id or item.cause)
    if waiting:
        raise AssertionError("a call has no result, but in these histories each call has one")


def measure(scale: Scale, _folder: Path) -> Iterator[Round]:
    events = list(history(scale.usual))
    for _ in range(scale.rounds):
        begun = time.perf_counter()
        expected = by_hand(events, asks=True)
        raw_seconds = time.perf_counter() - begun
        begun = time.perf_counter()
        view = well_formed(View.from_events(events))
        our_seconds = time.perf_counter() - begun
        if list(view) != expected:
            raise AssertionError("the two folds show different events")
        yield Round(len(events) / our_seconds, len(events) / raw_seconds)


QUESTIONS = [
    Question(
        "fold in memory, made fit for a model",
        "events/s",
        0.8,
        "at least",
        measure,
        "a fold by hand",
        "A fold",
    ),
]
