"""What happens between the steps of an operation: another process acts, or this one is killed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from foldlog.eventstore.recorders.base import Recorder

__all__ = ["Between", "Killed", "before_next_call", "killing", "meeting"]


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


def before_next_call(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, act: Callable[[], object]
) -> None:
    """Have ``act`` done once, right before the next call of this function."""
    really = getattr(owner, name)

    def act_first(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(owner, name, really)
        act()
        return really(*arguments, **options)

    monkeypatch.setattr(owner, name, act_first)
