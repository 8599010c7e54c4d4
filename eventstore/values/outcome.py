"""The outcome of a call that another thread made: its value, or its error."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Outcome(Struct, Generic[T], frozen=True):
    """The outcome of a call: its value, or the error that it raised."""

    value: T | None = None
    error: BaseException | None = None

    def unwrap(self) -> T:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]
