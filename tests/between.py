"""A recorder on which something else happens between the transactions of an operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from foldlog.eventstore.recorders.base import Recorder

__all__ = ["Between", "Killed", "killing", "meeting"]


class Between:
    """A recorder that calls ``before`` with the number of each transaction, from 0, before it
    runs.
    """

    def __init__(
        self,
        recorder: Recorder,
        before: Callable[[int], object],
        calls: tuple[str, ...] = ("transact",),
    ):
        self._recorder, self._before, self._calls = recorder, before, calls
        self._number = -1

    def __getattr__(self, name: str) -> Any:
        if name in self._calls:
            self._number += 1
            self._before(self._number)
        return getattr(self._recorder, name)


class Killed(BaseException):
    """As if the process had been killed."""


def killing(recorder: Recorder, transactions: int) -> Any:
    """A recorder whose process is killed after so many transactions."""

    def kill(number: int) -> None:
        if number >= transactions:
            raise Killed

    return Between(recorder, kill)


def meeting(recorder: Recorder, nth: int, work: Callable[[], object], *calls: str) -> Any:
    """A recorder before whose nth transaction, from 0, another process does something."""
    return Between(
        recorder, lambda number: work() if number == nth else None, calls or ("transact",)
    )
