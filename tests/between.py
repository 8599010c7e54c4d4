"""Recorders that interrupt an operation between its transactions: another process acts, or this process
is killed.
"""

from collections.abc import Callable
from typing import Any

import pytest

from foldlog.eventstore.recorders.base import Recorder


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
    """The process was killed here."""


def kill_after(recorder: Recorder, transactions: int) -> Any:
    """Return a recorder whose process is killed after so many transactions."""

    def kill(number: int) -> None:
        if number >= transactions:
            raise Killed

    return Between(recorder, kill)


def call_before(recorder: Recorder, nth: int, work: Callable[[], object], *calls: str) -> Any:
    """Return a recorder that lets another process do something before its nth transaction, from 0."""

    def work_at(number: int) -> None:
        if number == nth:
            work()

    return Between(recorder, work_at, calls or ("transact",))


def before_next_call(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, act: Callable[[], object]
) -> None:
    """Call ``act`` once, right before the next call of this function."""
    original = getattr(owner, name)

    def act_first(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(owner, name, original)
        act()
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, act_first)
