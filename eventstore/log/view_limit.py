"""A limit for the bytes of events that a View may read, for servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

VIEW_BYTES_MAX: Final[ContextVar[int | None]] = ContextVar("view_bytes_max", default=None)


@contextmanager
def views_up_to(bytes_max: int | None) -> Iterator[None]:
    """In this context, a read of a View raises ``TooManyBytes`` when its events have more bytes.
    The events behind are not read.
    """
    token = VIEW_BYTES_MAX.set(bytes_max)
    try:
        yield
    finally:
        VIEW_BYTES_MAX.reset(token)
