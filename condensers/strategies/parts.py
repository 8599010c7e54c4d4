"""Divide events into the parts that a model summarizes one after the other, because it cannot read
all of them at once. Sizes are estimated tokens.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from math import ceil

from foldlog.condensers.models.estimate import estimate_by_samples
from foldlog.condensers.prompts.rendering import event_block, event_text, truncate
from foldlog.eventstore import Event

_EVENT_LENGTH_MIN = 40
"""The texts of events are never cut to fewer characters."""


def size_of(events: Sequence[Event], length: int | None) -> int:
    """Return the size of all events together, with texts of at most ``length`` characters."""
    return sum(_sizes(events, length))


def next_part(
    events: Sequence[Event], length: int | None, part_max: int, parts_max: int
) -> tuple[int, int | None]:
    """Return how many of the first events make the next part, and to how many characters their
    texts must be cut.

    ``part_max`` is the wanted size of a part. The longest texts are cut until each event fits into
    a part, and all events fit into ``parts_max`` parts. If even the shortest texts do not fit, the
    parts are larger, and the model may refuse them.
    """
    sizes = _sizes(events, length)
    longest = max(len(truncate(event_text(event), length)) for event in events)
    while longest > _EVENT_LENGTH_MIN and not _fits(sizes, part_max, parts_max):
        longest = length = max(_EVENT_LENGTH_MIN, longest * 4 // 5)
        sizes = _sizes(events, length)
    return max(_first_part(sizes, part_max), ceil(len(events) / parts_max)), length


def _sizes(events: Sequence[Event], length: int | None) -> list[int]:
    return [estimate_by_samples(event_block(event, length)) for event in events]


def _first_part(sizes: Sequence[int], part_max: int) -> int:
    # A part has at least one event.
    return max(1, bisect_right([*accumulate(sizes)], part_max))


def _fits(sizes: Sequence[int], part_max: int, parts_max: int) -> bool:
    start = 0
    for _ in range(parts_max):
        start += _first_part(sizes[start:], part_max)
    return start >= len(sizes) and max(sizes) <= part_max
