"""Wait for what others do, and do something beside it."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T]) -> T:
    """Wait until a condition returns something true, and return that. It is asked for a minute, and
    longer where each answer takes long.
    """
    for _ in range(6_000):
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError("the condition did not become true within a minute or more")


async def until_in_loop(condition: Callable[[], T]) -> T:
    """Wait like ``until``, and let the other tasks of the event loop go on."""
    for _ in range(60_000):
        value = condition()
        if value:
            return value
        await asyncio.sleep(0.001)
    raise AssertionError("the condition did not become true within a minute or more")


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
