"""One deadline for the model calls of a step, and calls that are abandoned when their time is over.

The timeout of an HTTP client is for each read. A server may send a blank now and then to keep the connection open while
a request waits in its queue. It never exceeds that timeout, and can hold a call for half an hour.
"""

from __future__ import annotations

import contextvars
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

STEP_S = 60.0
"""The default of the seconds that the models of one step may take."""


class _Time:
    """The time of one block. It runs from the first question on, so that what comes before a call does not count."""

    def __init__(self, seconds: float, outer: _Time | None) -> None:
        self._seconds, self._outer = seconds, outer
        self._end: float | None = None

    def left(self) -> float:
        now = time.monotonic()
        self._end = now + self._seconds if self._end is None else self._end
        return min(self._end - now, math.inf if self._outer is None else self._outer.left())


_time = contextvars.ContextVar[_Time | None]("time of the step", default=None)


@contextmanager
def within_s(seconds: float) -> Iterator[None]:
    """Give the calls in this block these seconds together, and no more than an outer block leaves them."""
    token = _time.set(_Time(seconds, _time.get()))
    try:
        yield
    finally:
        _time.reset(token)


def seconds_left() -> float:
    """Return the seconds that are left to the innermost block; infinite outside of all."""
    current = _time.get()
    return math.inf if current is None else current.left()


def abandoned_after(seconds: float, act: Callable[[], T]) -> T:
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
        raise TimeoutError(f"no whole reply within {seconds:.3g} s") from None
