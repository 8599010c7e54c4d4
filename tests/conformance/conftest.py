"""The fixtures of tests that run on every recorder. A new recorder is complete when the tests of
this folder pass on it.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from foldlog import History, Lease
from foldlog._history.lease import LeaseBlock
from foldlog.eventstore import KeyRing, Store
from foldlog.eventstore.log.seal import WriteSettings
from foldlog.eventstore.opening import recorder_and_settings
from foldlog.eventstore.recorders.base import Recorder
from foldlog.eventstore.recorders.sqlite import SQLiteRecorder
from foldlog.eventstore.recorders.sqlite.memory import MemoryRecorder

RECORDERS = ("memory", "sqlite", "postgresql")
KEYS = KeyRing(["5c" * 32])
ENCRYPTS = WriteSettings(keys=KEYS)

OpenRecorder = Callable[[], Recorder]


@contextmanager
def unrenewed_lease(
    history: History, worker: str, wait_s: float = 60, ttl_s: float = 0.01
) -> Iterator[Lease]:
    """A lease that no thread renews, as if its worker stood still. So a test sends the same
    statements each time.
    """
    block = LeaseBlock(history, ttl_s, wait_s, worker)
    block._left.set()  # The thread that renews the lease ends at once.
    with block as lease:
        block._renewing.join()
        yield lease


def noted(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[tuple[Any, ...]]:
    """Return a list that gets the arguments of each later call of a function."""
    calls: list[tuple[Any, ...]] = []
    function = getattr(owner, name)

    def note(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        return function(*arguments, **options)

    monkeypatch.setattr(owner, name, note)
    return calls


@pytest.fixture(params=RECORDERS)
def open_recorder(request, tmp_path) -> Iterator[OpenRecorder]:
    """A function that opens a recorder on a new, empty store. All are closed after the test."""
    opened = []

    def open_one() -> Recorder:
        if request.param == "memory":
            opened.append(MemoryRecorder())
        elif request.param == "postgresql":
            url = request.getfixturevalue("postgres_url")()
            opened.append(recorder_and_settings(url)[0])
        else:
            opened.append(SQLiteRecorder(str(tmp_path / f"{len(opened)}.db")))
        return opened[-1]

    yield open_one
    for recorder in opened:
        recorder.close()


@pytest.fixture
def one_order(request) -> None:
    """For tests of the one order of all events and keys. Several stores on Citus have no such
    order, because they are on several servers.
    """
    stores = os.environ.get("FOLDLOG_POSTGRES_STORES", "1")
    on_postgresql = "postgresql" in request.node.callspec.params.values()
    if on_postgresql and "FOLDLOG_CITUS_URL" in os.environ and stores != "1":
        pytest.skip("stores on several workers of Citus have no common order")


@pytest.fixture(params=[WriteSettings(), ENCRYPTS], ids=["plain", "encrypted"])
def settings(request) -> WriteSettings:
    return request.param


@pytest.fixture
def recorder(open_recorder) -> Recorder:
    return open_recorder()


@pytest.fixture
def store(recorder) -> Store:
    """A store on each recorder."""
    return Store(recorder)
