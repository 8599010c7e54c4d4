"""Measure how long a new process takes to open a View, now or at a past version, and whether this
time grows with the history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from benchmarks.frame import SCALES, Question, Round, Scale, in_new_process
from benchmarks.prepared import Prepared, prepared
from benchmarks.workload import history

_COLD = "benchmarks.cold"


def cold_open(
    scale: Scale, folder: Path, figure: str = "seconds", length: int | None = None
) -> Iterator[Round]:
    """Open the View of a history. The history has ``length`` events, but at most as many as the
    longest history of the scale. The default is the usual length of the scale.
    """
    length = scale.usual if length is None else min(length, scale.events[-1])
    stores = prepared(folder.parent, length)
    for _ in range(scale.rounds):
        yield cold_round(stores, figure)


def growth(scale: Scale, folder: Path) -> Iterator[Round]:
    """Open a View of the longest history and a View of the shortest history, both with foldlog. The
    Views have the same size.
    """
    short, long = (
        prepared(folder.parent, length) for length in (scale.events[0], scale.events[-1])
    )
    for _ in range(scale.rounds):
        yield round_of_ours(long, short)


def past(scale: Scale, folder: Path) -> Iterator[Round]:
    """Open a View in the middle of the history, and the current View."""
    stores = prepared(folder.parent, scale.usual)
    # This version is as far after a condensation as the end of the history is, so both Views have
    # the same size.
    version = _version_like_the_last(scale.usual)
    for _ in range(scale.rounds):
        yield round_of_ours(stores, stores, str(version))


def mostly_annotations(scale: Scale, folder: Path) -> Iterator[Round]:
    """Open the same View from a log with 90 % annotations, and from a log without annotations."""
    length = scale.usual // 10
    plain = prepared(folder.parent, length)
    annotated = prepared(
        folder.parent, length, "annotated", partial(history, length, annotations=9)
    )
    for _ in range(scale.rounds):
        yield round_of_ours(annotated, plain)


def _version_like_the_last(length: int) -> int:
    from benchmarks.workload import PERIOD

    return length - PERIOD * (length // (2 * PERIOD))


def round_of_ours(stores: Prepared, others: Prepared, *version: str) -> Round:
    """Open Views of two foldlog stores, each in a new process. ``version`` is the version of the
    first View. The Views must have the same number of events.
    """
    first = in_new_process(_COLD, "ours", str(stores.ours), *version)
    other = in_new_process(_COLD, "ours", str(others.ours))
    if first["events"] != other["events"]:
        raise AssertionError(f"Views of {first['events']} and {other['events']} events")
    return Round(1_000 * first["seconds"], 1_000 * other["seconds"])


def cold_round(
    stores: Prepared, figure: str = "seconds", environment: Mapping[str, str] | None = None
) -> Round:
    """Open a View with foldlog and with the baseline, each in a new process. ``environment`` is for
    foldlog's process.
    """
    ours = in_new_process(_COLD, "ours", str(stores.ours), environment=environment)
    raw = in_new_process(_COLD, "raw", str(stores.raw))
    if ours["answer"] != raw["answer"]:
        raise AssertionError("the two sides opened different Views")
    unit = 1_000 if figure == "seconds" else 1e-6
    return Round(unit * ours[figure], unit * raw[figure])


QUESTIONS = [
    *(
        Question(
            f"cold open of a View, {length:,} events",
            "ms",
            1.4,
            "at most",
            partial(cold_open, length=length),
            explained="A cold open",
        )
        for length in SCALES["full"].events
    ),
    Question(
        "cold open, shortest to longest history",
        "ms",
        1.3,
        "at most",
        growth,
        raw="ours, the shortest",
    ),
    Question("View at a past version", "ms", 2.0, "at most", past, raw="ours, the current View"),
    Question("memory to open a View", "MB", 3.0, "at most", partial(cold_open, figure="bytes")),
    Question(
        "cold open, 90 % annotations",
        "ms",
        2.0,
        "at most",
        mostly_annotations,
        raw="ours, without annotations",
    ),
]
