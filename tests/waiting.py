"""Wait for what others do, and do something beside it."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T]) -> T:
    """Wait a minute at most for a condition, and return what is true."""
    for _ in range(6_000):
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError("it does not come")


@contextlib.contextmanager
def in_thread(
    act: Callable[[], object], end: Callable[[], object] = lambda: None
) -> Iterator[threading.Thread]:
    """Act in a thread meanwhile, until ``end`` makes it return. Raise what it raises."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - raised again below
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        end()
        thread.join()
    if failures:
        raise failures[0]
