"""What other people's code does inside a write: guards, projections, clocks, signal handlers,
finalizers.
"""

from __future__ import annotations

import contextvars
import gc
import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from foldlog.eventstore import (
    ANY_VERSION,
    CondensationRequest,
    EventStoreError,
    Message,
    Store,
    StoreUnusable,
)
from foldlog.eventstore.inside import WriteTransaction
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.recorders.base import Recorder
from tests.reading import reading

HI = Message(source="user", content="hi")
REFUSED = "this thread is already inside a write to this store and cannot begin a second one"
PATIENCE_S = 60


class Inner:
    """Writes to a store while its caller does, and keeps the error that it gets."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.error: EventStoreError | None = None
        self.name = "inner"

    def write(self, *_: object) -> None:
        try:
            self.store.append("inner", HI, expected_version=ANY_VERSION)
        except EventStoreError as error:
            self.error = error

    def project(self, snapshot: WriteTransaction, events: object) -> None:
        self.write()

    def clock(self) -> datetime:
        self.write()
        return datetime.now(UTC)


def check_refused(inner: Inner) -> None:
    """The inner write was refused, and is not there; the store goes on."""
    assert isinstance(inner.error, StoreUnusable)
    assert REFUSED in str(inner.error)
    assert "nothing of the second was written" in str(inner.error)
    assert inner.store.version("inner") == 0
    inner.error = None
    inner.write()
    assert inner.error is None
    assert inner.store.version("inner") == 1


def test_a_guard_that_appends_is_refused_at_once_and_its_append_goes_on(store: Store):
    inner = Inner(store)
    store.append("c", HI, expected_version=0)
    store.append("c", HI, expected_version=1, guard=inner.write)
    assert store.version("c") == 2
    check_refused(inner)


def test_an_inline_projection_that_appends_is_refused(store: Store):
    inner = Inner(store)
    store.register(inner)
    store.append("c", CondensationRequest(), expected_version=0)
    assert store.version("c") == 1
    check_refused(inner)


def test_a_clock_that_appends_is_refused(recorder: Recorder):
    inner = Inner(Store(recorder))
    Store(recorder, clock=inner.clock).append("c", HI, expected_version=0)
    assert inner.store.version("c") == 1
    check_refused(inner)


def test_a_finalizer_that_appends_is_refused(store: Store):
    inner = Inner(store)

    class Garbage:
        def __del__(self) -> None:
            inner.write()

    def leave_garbage(_: object) -> None:
        garbage = Garbage()
        garbage.itself = garbage  # type: ignore[attr-defined]
        del garbage
        gc.collect()

    store.append("c", HI, expected_version=0)
    store.append("c", HI, expected_version=1, guard=leave_garbage)
    check_refused(inner)


def test_a_signal_handler_that_appends_is_refused_also_where_it_opened_the_store_again(
    store: Store,
):
    """It interrupts its own thread inside of an append."""
    inner = Inner(store)
    before = signal.signal(signal.SIGUSR1, inner.write)
    try:
        store.append("c", HI, expected_version=0)
        store.append(
            "c", HI, expected_version=1, guard=lambda _: os.kill(os.getpid(), signal.SIGUSR1)
        )
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert store.version("c") == 2
    check_refused(inner)


def test_other_writes_inside_a_write_are_refused_too(store: Store):
    refused: list[str] = []

    def writes(_: object) -> None:
        calls: list[Callable[[], object]] = [
            lambda: store.ingest("inner", [HI]),
            lambda: erase(store, "c", reason="no"),
            lambda: store.project("c", lambda snapshot: None),
            store.close,
        ]
        for call in calls:
            with pytest.raises(StoreUnusable, match=REFUSED) as raised:
                call()
            refused.append(str(raised.value))

    store.append("c", HI, expected_version=0)
    store.append("c", HI, expected_version=1, guard=writes)
    assert len(refused) == 4
    assert store.version("c") == 2


def test_a_guard_may_read(store: Store):
    store.append("other", HI, expected_version=0)
    store.append("c", HI, expected_version=0)
    found: list[int] = []
    store.append(
        "c", HI, expected_version=1, guard=lambda _: found.append(len(list(store.events("other"))))
    )
    assert found == [1]


# -- errors and contexts
# ----------------------------------------------------------------------------------------------


def of_another_database(_: object) -> None:
    with closing(sqlite3.connect(":memory:")) as other:
        other.execute("SELECT * FROM rules")


def of_the_system(_: object) -> None:
    Path("/nowhere/rules").read_bytes()


def of_its_time(_: object) -> None:
    raise TimeoutError("the time is over")


@contextmanager
def others_that_write(store: Store) -> Iterator[list[BaseException]]:
    """Threads that append as long as the block lasts, and the errors that they get."""
    stop, errors = threading.Event(), []

    def write(conversation: str) -> None:
        while not stop.is_set():
            try:
                store.append(conversation, HI, expected_version=ANY_VERSION)
            except EventStoreError as error:
                errors.append(error)

    threads = [threading.Thread(target=write, args=(f"other{n}",), daemon=True) for n in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield errors
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize(
    "fails, kind",
    [
        (of_another_database, sqlite3.OperationalError),
        (of_the_system, FileNotFoundError),
        (of_its_time, TimeoutError),
    ],
)
def test_an_error_of_a_guard_is_the_guards_and_its_callers_alone(
    store: Store, fails: Callable[[object], None], kind: type[Exception]
):
    store.append("c", HI, expected_version=0)
    with others_that_write(store) as errors:
        for _ in range(5):
            with pytest.raises(kind):
                store.append("c", HI, expected_version=1, guard=fails)
    assert errors == []
    assert store.append("c", HI, expected_version=1)[0].id == 1


@pytest.mark.parametrize(
    "fails, kind",
    [
        (of_another_database, sqlite3.OperationalError),
        (of_the_system, FileNotFoundError),
        (of_its_time, TimeoutError),
    ],
)
def test_an_error_inside_a_snapshot_is_the_callers(
    store: Store, fails: Callable[[object], None], kind: type[Exception]
):
    store.append("c", HI, expected_version=0)
    with pytest.raises(kind), reading(store, "c"):
        fails(None)
    with pytest.raises(kind):
        store.project("c", fails)
    assert store.version("c") == 1


def test_a_guard_runs_in_the_thread_and_the_context_of_its_caller(store: Store):
    local, variable, wrong = threading.local(), contextvars.ContextVar("tenant", default=-1), []

    def check(n: int) -> Callable[[object], None]:
        def guard(_: object) -> None:
            if (getattr(local, "tenant", -1), variable.get()) != (n, n):
                wrong.append(n)

        return guard

    def write(n: int) -> None:
        local.tenant = n
        variable.set(n)
        for _ in range(10):
            store.append(f"c{n}", HI, expected_version=ANY_VERSION, guard=check(n))

    for n in range(6):
        store.append(f"c{n}", HI, expected_version=0)
    threads = [threading.Thread(target=write, args=(n,), daemon=True) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert wrong == []
    assert [store.version(f"c{n}") for n in range(6)] == [11] * 6
