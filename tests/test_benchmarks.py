"""What ``python -m benchmarks`` prints."""

from __future__ import annotations

import io

from rich.console import Console

from benchmarks.__main__ import table
from benchmarks.frame import Answer


def test_the_table_of_answers_is_readable_on_a_narrow_terminal():
    answer = Answer(
        question="fold in memory, made fit for a model",
        unit="events/s",
        baseline="raw",
        ours=2_641_073.4,
        raw=11_077_387.2,
        ratio=0.24,
        target=0.572727,
        better="at least",
        rounds=7,
    )
    printed = io.StringIO()
    Console(file=printed, width=80).print(table([answer]))
    _, head, first, *more = printed.getvalue().splitlines()
    assert head.split()[:2] == ["question", "unit"]
    assert first.startswith("fold in memory, made fit")
    assert first.split()[-7:] == ["events/s", "2,641,073", "11,077,387", "0.24", "≥", "0.573", "missed"]
    assert len(more) == 1
