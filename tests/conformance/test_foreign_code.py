"""Code of users that runs inside a write, such as guards, projections, clocks, signal handlers and
finalizers, may read and fail, but not write to the same store.
"""

import gc
import os
import signal
import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import pytest

from foldlog.eventstore import (
    ANY_VERSION,
    CondensationRequest,
    EventStoreError,
    Store,
    StoreRefused,
)
from tests.privacy import erased
from tests.reading import reading
from tests.said import ids, said, say, texts

HI = said("hi")
REFUSED = "this thread is already inside a write to this store and cannot begin a second one"


class Inner:
    """Writes to a store while its caller does, and keeps the error that it gets."""

    name = "inner"

    def __init__(self, store):
        self.store = store
        self.error = None

    def write(self, *_):
        try:
            say(self.store, "inner", "hi")
        except EventStoreError as error:
            self.error = error

    project = write

    def clock(self):
        self.write()
        return datetime.now(UTC)


def from_a_guard(inner):
    inner.store.append("c", HI, expected_version=1, guard=inner.write)


def from_an_inline_projection(inner):
    inner.store.register(inner)
    inner.store.append("c", CondensationRequest(), expected_version=1)


def from_a_clock(inner):
    say(Store(inner.store.database.recorder, clock=inner.clock), "c", "hi")


def from_a_finalizer(inner):
    class Garbage:
        def __del__(self):
            inner.write()

    def leave_garbage(_):
        garbage = Garbage()
        garbage.itself = garbage
        del garbage
        gc.collect()

    inner.store.append("c", HI, expected_version=1, guard=leave_garbage)


def from_a_signal_handler(inner):
    """Write in a signal handler, which interrupts its own thread inside of an append."""

    def interrupt(_):
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, inner.write)
    try:
        inner.store.append("c", HI, expected_version=1, guard=interrupt)
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    "append",
    [
        from_a_guard,
        from_an_inline_projection,
        from_a_clock,
        from_a_finalizer,
        from_a_signal_handler,
    ],
)
def test_an_append_inside_an_append_is_refused(store, append):
    inner = Inner(store)
    say(store, "c", "hi")
    append(inner)
    assert store.version("c") == 2
    assert isinstance(inner.error, StoreRefused)
    assert REFUSED in str(inner.error)
    assert "the second write wrote nothing" in str(inner.error)
    assert store.version("inner") == 0
    inner.write()
    assert store.version("inner") == 1


def test_other_writes_inside_a_write_are_refused(store):
    refused = []

    def writes(_):
        calls = [
            lambda: store.ingest("inner", [HI]),
            lambda: erased(store, "c"),
            lambda: store.project("c", lambda snapshot: None),
            store.close,
        ]
        for call in calls:
            with pytest.raises(StoreRefused, match=REFUSED) as raised:
                call()
            refused.append(str(raised.value))

    say(store, "c", "hi")
    store.append("c", HI, expected_version=1, guard=writes)
    assert len(refused) == 4
    assert store.version("c") == 2


def test_a_guard_reads_its_conversation_and_others(store):
    snapshots = []

    def guard(snapshot):
        snapshots.append((snapshot.version, ids(snapshot.events(1)), texts(store, "other")))

    say(store, "other", "x")
    store.append("c", [HI, HI], expected_version=0, guard=guard)
    store.append("c", HI, expected_version=ANY_VERSION, guard=guard)
    assert snapshots == [(2, [1], ["x"])], "a new conversation has nothing to guard"


# -- errors and contexts
# ----------------------------------------------------------------------------------------------


def of_another_database(_):
    with closing(sqlite3.connect(":memory:")) as other:
        other.execute("SELECT * FROM rules")


def of_its_time(_):
    raise TimeoutError("the time is over")


@pytest.mark.parametrize(
    "fails, kind", [(of_another_database, sqlite3.OperationalError), (of_its_time, TimeoutError)]
)
def test_errors_of_foreign_code_write_nothing(store, fails, kind):
    say(store, "c", "hi")
    with pytest.raises(kind):
        store.append("c", HI, expected_version=1, guard=fails)
    with pytest.raises(kind), reading(store, "c"):
        fails(None)
    with pytest.raises(kind):
        store.project("c", fails)
    assert say(store, "c", "hi")[0].id == 1
