"""Sets of integers as intervals. The intervals are sorted, disjoint and inclusive, and do not
touch: {0, 1, 2, 7} is ``((0, 2), (7, 7))``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter

Intervals = tuple[tuple[int, int], ...]

_first = itemgetter(0)


def normalize(pairs: Iterable[tuple[int, int]]) -> Intervals:
    """Return the union of inclusive pairs, which may overlap and have any order. A pair whose
    second number is smaller is empty.

    Cost: sorting the pairs. The cost does not depend on the widths of the pairs.
    """
    union: list[tuple[int, int]] = []
    for first, last in sorted(pair for pair in pairs if pair[0] <= pair[1]):
        if union and first <= union[-1][1] + 1:
            union[-1] = (union[-1][0], max(last, union[-1][1]))
        else:
            union.append((first, last))
    return tuple(union)


def contains(intervals: Sequence[tuple[int, int]], value: int) -> bool:
    """Return whether ``value`` is in the set. Cost: a binary search among the intervals."""
    place = bisect_right(intervals, value, key=_first) - 1
    return place >= 0 and value <= intervals[place][1]
