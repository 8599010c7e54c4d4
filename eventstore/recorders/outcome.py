"""The outcome of a call that another thread made: its value, or its error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Outcome(Struct, Generic[T], frozen=True):
    """The outcome of a call: its value, or the error that it raised."""

    value: T | None = None
    error: BaseException | None = None

    @staticmethod
    def of(work: Callable[[], T]) -> Outcome[T]:
        """Return the outcome of a call, which this thread makes now."""
        try:
            return Outcome(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where the call came from
            return Outcome(error=error)

    def unwrap(self) -> T:
        """Return the value, or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]
