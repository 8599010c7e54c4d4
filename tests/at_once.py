"""Run several threads at the same time."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def at_once(work: Callable[[T], object], cases: Iterable[T]) -> None:
    """Run ``work`` with each case in a separate thread, and wait for all threads. Raise the first
    error.
    """
    items = list(cases)
    with ThreadPoolExecutor(len(items)) as threads:
        list(threads.map(work, items))
