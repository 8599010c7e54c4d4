"""One deadline for the model calls of a step, and calls that are abandoned when their time is over.

The timeout of an HTTP client is for each read. A server may send a blank now and then to keep the
connection open while a request waits in its queue. It never exceeds that timeout, and can hold a
call for half an hour.
"""

from __future__ import annotations

import contextvars
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

T = TypeVar("T")

STEP_S = 60.0
"""The default of the seconds that the models of one step may take."""

_left = contextvars.ContextVar[Callable[[], float]]("time of the step", default=lambda: math.inf)


@contextmanager
def within_s(seconds: float) -> Iterator[None]:
    """Give the calls in this block these seconds together, and no more than an outer block leaves
    them. The time runs from the first question for it on, so that what comes before a call does not
    count.
    """
    outer = _left.get()
    end = cache(lambda: time.monotonic() + seconds)
    token = _left.set(lambda: min(end() - time.monotonic(), outer()))
    try:
        yield
    finally:
        _left.reset(token)


def seconds_left() -> float:
    """Return the seconds that are left to the innermost block; infinite outside of all."""
    return _left.get()()


def abandoned_after(seconds: float, act: Callable[[], T]) -> T:
    """Return or raise what ``act`` does. Raises ``TimeoutError`` if it takes longer than
    ``seconds``; it then continues in its own thread, which does not keep the program from ending,
    and its outcome is ignored.
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
