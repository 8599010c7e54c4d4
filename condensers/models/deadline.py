"""Abandon a call after some time, whatever it is doing.

The timeout of an HTTP client is for each read. A server may send a blank now and then to keep the connection open while
a request waits in its queue. It never exceeds that timeout, and can hold a call for half an hour.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, act: Callable[[], T]) -> T:
    """Return or raise what ``act`` does. Raises ``TimeoutError`` if it takes longer than ``seconds``; it then continues
    in its own thread, which does not keep the program from ending, and its outcome is ignored.
    """
    outcome: Future[T] = Future()
    context = contextvars.copy_context()  # such as those of a tracer

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
