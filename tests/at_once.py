"""Run several threads at the same time."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

T = TypeVar("T")


def at_once(work: Callable[[T], object], cases: Iterable[T]) -> None:
    """Run ``work`` with each case in a separate thread, once all threads run, and wait for them.
    Raise the first error.
    """
    items = list(cases)
    all_have_begun = Barrier(len(items))

    def begin(case: T) -> None:
        all_have_begun.wait()
        work(case)

    with ThreadPoolExecutor(len(items)) as threads:
        list(threads.map(begin, items))
