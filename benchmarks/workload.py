"""Make the history of an invented coding agent. The sizes and the order of the events are those of
real histories, but no text is real.

The history has a system prompt of 8 KB, and calls of 0.4 to 1 KB. The sizes of results are
log-normal, with a median of 1 KB and a 95th percentile of 12 KB. About every 60 events, a
condensation keeps 4 events at the head and 20 at the end. The last Views of all histories with a
condensation have the same size, so a benchmark shows which costs grow with the length of the
history.
"""

from __future__ import annotations

import ast
import inspect
import json.decoder
import random
import statistics
from collections.abc import Iterator

from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    Event,
    Message,
    Observation,
    SystemMessage,
    summary_id,
)

PERIOD = 61
"""The number of events from one condensation to the next: thirty calls with their results, and the
condensation.
"""
HEAD = 4
TAIL = 20
SINCE = 30
"""The number of events after the last condensation."""

_TEXT = "".join(
    inspect.getsource(module) for module in (ast, inspect, json.decoder, random, statistics)
)
"""Source code, like the code that a coding agent reads. Every text of the history is a part of this
source code.
"""


def history(length: int, *, seed: int = 7, annotations: int = 0) -> Iterator[Event]:
    """Yield ``length`` events with ids 0, 1, 2, …. The last condensation is always at the same
    distance from the end.

    After each event, the history has ``annotations`` annotations. These make the log longer, but do
    not change the View.
    """
    rng = random.Random(seed)
    step = annotations + 1
    forgotten: list[int] = []
    for index in range(length):
        if index in condensations(length):
            forgotten = _forgotten(index, length)
            yield CondensationAction(
                id=index * step,
                forgotten_event_ids=[
                    i * step if i >= 0 else summary_id(_index_of_summary(i) * step)
                    for i in forgotten
                ],
                summary=_cut(rng, 1_200),
                summary_offset=HEAD,
                metadata={"reason": "events"},
            )
        else:
            yield _event(rng, index, step, length)
        for extra in range(1, step):
            yield Annotation(
                id=index * step + extra, name="state", data={"key": "stats", "value": rng.random()}
            )


def condensations(length: int) -> range:
    """Return the indices of the condensations. From the first one on, there is one in each
    ``PERIOD`` events, and ``SINCE`` events follow the last. A short history has none.
    """
    first = (length - SINCE - 1) % PERIOD + PERIOD
    return range(first if first % 2 == 0 else first + PERIOD, length - SINCE, PERIOD)


def _forgotten(index: int, length: int) -> list[int]:
    """Return the ids that the condensation at ``index`` forgets: the previous summary, and all
    events except the head and the newest.
    """
    if index == condensations(length)[0]:
        return list(range(HEAD, index - TAIL))
    before = index - PERIOD
    return [summary_id(before), *(i for i in range(before - TAIL, index - TAIL) if i != before)]


def _index_of_summary(event_id: int) -> int:
    """Return the index of the condensation whose summary has this id: see ``summary_id``."""
    return -event_id - 2


def _event(rng: random.Random, index: int, step: int, length: int) -> Event:
    if index == 0:
        return SystemMessage(id=0, content=_cut(rng, 8_000))
    if index == 1:
        return Message(id=step, content=_cut(rng, 600), source="user")
    # Before the first condensation calls have even places; each condensation shifts them by one.
    first = condensations(length).start
    since = (index - first - 1) % PERIOD if index > first else index
    if since % 2 == 0:
        return Action(
            id=index * step,
            tool="terminal",
            arguments={"command": _cut(rng, rng.uniform(300, 900))},
            call_id=f"call_{index}",
            response_id=f"resp_{index}",
            thought=_cut(rng, 90),
        )
    return Observation(
        id=index * step,
        tool="terminal",
        content=_cut(rng, min(60_000, rng.lognormvariate(6.9, 1.5))),
        call_id=f"call_{index - 1}",
        cause=(index - 1) * step,
    )


def _cut(rng: random.Random, size: float) -> str:
    start = int(rng.random() * (len(_TEXT) - size))
    return _TEXT[start : start + int(size)]
