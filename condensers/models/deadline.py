"""A call that is given up after some time, whatever it is doing.

An HTTP client's own timeout is for each read. A server that sends a blank now and then, to keep the connection open
while a request waits in its queue, is never late by that measure, and holds a call for half an hour.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["within"]

T = TypeVar("T")


def within(seconds: float, act: Callable[[], T]) -> T:
    """Return or raise what ``act`` does. Raises ``TimeoutError`` if it takes longer than ``seconds``; it then goes on
    in a thread of its own, which does not keep the program from ending, and its outcome is ignored.
    """
    outcome: Future[T] = Future()
    context = contextvars.copy_context()  # a tracer's, for one

    def run() -> None:
        try:
            outcome.set_result(context.run(act))
        except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
            outcome.set_exception(error)

    threading.Thread(target=run, name="a call with a deadline", daemon=True).start()
    try:
        return outcome.result(seconds)
    except TimeoutError:
        if outcome.done():
            raise
        raise TimeoutError(f"no whole reply within {seconds:g} s") from None
