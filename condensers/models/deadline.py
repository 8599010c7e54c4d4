"""A deadline for all model calls of a step. If a call does not end before the deadline, it is
abandoned.

The timeout of an HTTP client is not enough, because it limits each read and not the whole call.
While a request waits in its queue, a server may send blanks to keep the connection open. A server
that sends blanks never exceeds the timeout, and can delay a call for half an hour.
"""

from __future__ import annotations

import contextvars
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

T = TypeVar("T")

STEP_S = 60.0
"""The default limit, in seconds, for all model calls of a step together."""

_seconds_left = contextvars.ContextVar[Callable[[], float]](
    "time of the step", default=lambda: math.inf
)


@contextmanager
def within_s(seconds: float) -> Iterator[None]:
    """Allow ``seconds`` for all calls in this block together, or less if an outer block has less
    time left. The time begins with the first call of ``seconds_left``, so work before a model call
    does not count.
    """
    outer = _seconds_left.get()
    end = cache(lambda: time.monotonic() + seconds)
    token = _seconds_left.set(lambda: min(end() - time.monotonic(), outer()))
    try:
        yield
    finally:
        _seconds_left.reset(token)


def seconds_left() -> float:
    """Return the remaining seconds, or infinity if there is no limit."""
    return _seconds_left.get()()


def abandoned_after(seconds: float, act: Callable[[], T]) -> T:
    """Run ``act`` in a thread, and return its result. Raises ``TimeoutError`` if ``act`` takes
    longer than ``seconds``. After a timeout, ``act`` continues in its thread, and its outcome is
    ignored. The program can end while the thread of ``act`` still runs.
    """
    outcome: Future[T] = Future()
    # The context contains the variables of a tracer, for example.
    context = contextvars.copy_context()

    def run() -> None:
        try:
            outcome.set_result(context.run(act))
        except BaseException as error:  # noqa: BLE001  ``outcome.result`` raises it
            outcome.set_exception(error)

    threading.Thread(target=run, name="a call with a deadline", daemon=True).start()
    wait([outcome], seconds)
    if outcome.done():
        return outcome.result()
    raise TimeoutError(f"no complete reply within {seconds:.3g} s")
