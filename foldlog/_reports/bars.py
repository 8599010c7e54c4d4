"""Plots made of characters."""

from __future__ import annotations

from collections.abc import Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_STEPS = " ▁▂▃▄▅▆▇█"


def bar(value: float, largest: float, columns: int) -> str:
    """Return a bar whose length is the value's part of the largest value. A value above 0 is always visible."""
    if value <= 0 or largest <= 0:
        return ""
    eighths = max(1, round(8 * columns * value / largest))
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def curve(values: Sequence[float], columns: int, rows: int = 6) -> list[str]:
    """Return lines that draw values from left to right, each column the largest of those that fall on it."""
    if not values or columns < 1:
        return []
    columns = min(columns, len(values))
    peaks = [max(values[n * len(values) // columns : (n + 1) * len(values) // columns]) for n in range(columns)]
    largest = max(peaks)
    heights = [0 if largest <= 0 else max(round(8 * rows * peak / largest), 1 if peak > 0 else 0) for peak in peaks]
    steps = [[_STEPS[max(0, min(8, height - 8 * row))] for height in heights] for row in reversed(range(rows))]
    return ["".join(row).rstrip() for row in steps]
