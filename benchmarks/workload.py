"""A coding agent's history, made up: the sizes and the rhythm of real ones, and no real text.

A system prompt of 8 KB, calls of 0.4 to 1 KB, results log-normal with median 1 KB and 95th
percentile 12 KB, and a condensation about every 60 events that keeps 4 at the head and 20 at the
end. The View at the end has the same size whatever the length, so that what grows with the history
shows.
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
"""Thirty calls with their results, and a condensation."""
HEAD = 4
TAIL = 20
SINCE = 30
"""Events behind the last condensation."""

_TEXT = "".join(
    inspect.getsource(module) for module in (ast, inspect, json.decoder, random, statistics)
)
"""What texts are cut from: source code, as a coding agent reads it."""


def history(length: int, *, seed: int = 7, annotations: int = 0) -> Iterator[Event]:
    """``length`` events with ids 0, 1, 2, …, the last condensation always equally far from the end.

    ``annotations`` more follow each of them, so that the log is mostly bookkeeping and its View the
    same.
    """
    at = random.Random(seed)
    step = annotations + 1
    forgotten: list[int] = []
    for index in range(length):
        if index in condensations(length):
            forgotten = _forgotten(index, length)
            yield CondensationAction(
                id=index * step,
                forgotten_event_ids=[
                    i * step if i >= 0 else summary_id(summary_place(i) * step) for i in forgotten
                ],
                summary=_cut(at, 1_200),
                summary_offset=HEAD,
                metadata={"reason": "events"},
            )
        else:
            yield _event(at, index, step, length)
        for extra in range(1, step):
            yield Annotation(
                id=index * step + extra, name="state", data={"key": "stats", "value": at.random()}
            )


def condensations(length: int) -> range:
    """The places of the condensations in a history: every ``PERIOD`` events, ``SINCE`` before the
    end.
    """
    first = (length - SINCE - 1) % PERIOD + PERIOD
    return range(first if first % 2 == 0 else first + PERIOD, length - SINCE, PERIOD)


def _forgotten(index: int, length: int) -> list[int]:
    """What the condensation at ``place`` forgets: all but the head and the newest, and the summary
    before it.
    """
    if index == condensations(length)[0]:
        return list(range(HEAD, index - TAIL))
    before = index - PERIOD
    return [summary_id(before), *(i for i in range(before - TAIL, index - TAIL) if i != before)]


def summary_place(synthetic: int) -> int:
    return -synthetic - 2


def _event(at: random.Random, index: int, step: int, length: int) -> Event:
    if index == 0:
        return SystemMessage(id=0, content=_cut(at, 8_000))
    if index == 1:
        return Message(id=step, content=_cut(at, 600), source="user")
    # Before the first condensation calls have even places; each condensation shifts them by one.
    first = condensations(length).start
    since = (index - first - 1) % PERIOD if index > first else index
    if since % 2 == 0:
        return Action(
            id=index * step,
            tool="terminal",
            arguments={"command": _cut(at, at.uniform(300, 900))},
            call_id=f"call_{index}",
            response_id=f"resp_{index}",
            thought=_cut(at, 90),
        )
    return Observation(
        id=index * step,
        tool="terminal",
        content=_cut(at, min(60_000, at.lognormvariate(6.9, 1.5))),
        call_id=f"call_{index - 1}",
        cause=(index - 1) * step,
    )


def _cut(at: random.Random, size: float) -> str:
    start = int(at.random() * (len(_TEXT) - size))
    return _TEXT[start : start + int(size)]
