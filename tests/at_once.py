"""Work of several threads at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def at_once(work: Callable[[T], object], cases: Iterable[T]) -> None:
    """Run ``work`` with each case, each in a thread of its own, to the end of all. Raise what the
    first one raises.
    """
    items = list(cases)
    with ThreadPoolExecutor(len(items)) as threads:
        list(threads.map(work, items))
