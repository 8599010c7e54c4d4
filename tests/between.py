"""Recorders that interrupt an operation between its transactions: another process acts, or this process
is killed.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import pytest

import foldlog
from foldlog import EventStoreError, Histories, Store
from foldlog.eventstore.errors import EventsNotMade, StoreUnavailable
from foldlog.eventstore.recorders.base import Recorder


class Between:
    """A recorder that calls ``before`` with the number of each transaction, from 0, before it
    runs. Histories that are opened on it restore archived conversations, and make the events of
    imports, in such transactions too.
    """

    on_missing: Callable[[EventsNotMade], Recorder | None] | None = None

    def __init__(
        self,
        recorder: Recorder,
        before: Callable[[int], object],
        calls: tuple[str, ...] = ("transact",),
    ):
        self._recorder = recorder
        self._before = before
        self._calls = calls
        self._number = -1

    def __getattr__(self, name: str) -> Any:
        if name in self._calls:
            self._number += 1
            self._before(self._number)
        if name in ("transact", "query") and self.on_missing is not None:
            return partial(self._run, name, self.on_missing)
        return getattr(self._recorder, name)

    def _run(
        self,
        name: str,
        on_missing: Callable[[EventsNotMade], Recorder | None],
        *arguments: Any,
        **options: Any,
    ) -> Any:
        """Run a method of the recorder without its own ``on_missing``."""
        function = getattr(type(self._recorder), name)
        function = getattr(function, "__wrapped__", function)
        while True:
            try:
                return function(self._recorder, *arguments, **options)
            except EventsNotMade as missing:
                other = on_missing(missing)
                if other is not None:
                    return getattr(other, name)(*arguments, **options)


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


def at_each_moment(
    fill: Callable[[Histories], object],
    act: Callable[[Histories], object],
    attempt: Callable[[Histories], object],
) -> Iterator[tuple[Histories, Any]]:
    """Yield a new store for each read and write of an attempt, in which another process acted right
    before it. With the store comes what the attempt returned, or the error that it raised.
    """
    for moment in count():
        with foldlog.open("memory:") as histories:
            fill(histories)
            database = histories.store.database
            acted = list[object]()
            work = partial(_act, act, histories, acted)
            recorder = call_before(database.recorder, moment, work, "query", "transact")
            try:
                outcome = attempt(Histories(Store(recorder, database.settings)))
            except EventStoreError as error:
                outcome = error
            if not acted:
                assert moment > 1
                return
            yield histories, outcome


def _act(act: Callable[[Histories], object], histories: Histories, acted: list[object]) -> None:
    acted.append(act(histories))


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


def fail_next_call(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Let the next call of this function raise ``StoreUnavailable``."""

    def fail() -> None:
        raise StoreUnavailable("the store is busy", kind="busy")

    before_next_call(monkeypatch, owner, name, fail)
