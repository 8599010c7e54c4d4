"""What a signal handler raises in a thread that writes reaches the caller of that thread, wherever
it comes.
"""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from foldlog.eventstore import (
    CondensationAction,
    EventStoreError,
    Message,
    Store,
    StoreUnavailable,
    open_store,
)
from foldlog.eventstore.maintenance.verify import verify
from foldlog.projections import Views
from tests.eventstore.interruptions import interrupted_at

HI = Message(source="user", content="hi")
PATIENCE_S = 60


def places(
    store: Store,
    write: Callable[[str], object],
    make: Callable[[], BaseException],
    first: int = 1,
    step: int = 1,
) -> int:
    """Interrupt ``write`` at each of its places, or at every so many; see that it is written if,
    and only if, the exception says so.
    """
    for number, place in enumerate(itertools.count(first, step)):
        conversation = f"c{place}"
        store.append(conversation, HI, expected_version=0)
        exception = make()
        with interrupted_at(place, exception) as interrupting:
            try:
                write(conversation)
            except type(exception) as error:
                raised = error
            else:
                raised = None
        assert raised is (exception if interrupting.raised else None), f"place {place}"
        said = any("was committed" in note for note in getattr(exception, "__notes__", ()))
        written = said or not interrupting.raised
        assert (
            len(list(store.events(conversation)))
            == store.version(conversation)
            == (3 if written else 1)
        )
        store.append("others", HI, expected_version=number)  # nothing is locked
        if not interrupting.raised:
            return place - 1
    raise AssertionError


RELAXED = "sqlite:///{}/s.db?durability=relaxed"


@pytest.mark.parametrize(
    "first, url, make",
    [
        pytest.param(1, "memory:", KeyboardInterrupt, id="memory"),
        pytest.param(1, RELAXED, KeyboardInterrupt, id="Ctrl-C"),
        pytest.param(2, RELAXED, TimeoutError, id="a timeout"),
        pytest.param(
            3,
            RELAXED,
            lambda: sqlite3.OperationalError("of another database"),
            id="of another database",
        ),
        pytest.param(
            4,
            RELAXED,
            lambda: StoreUnavailable("of another store", kind="busy"),
            id="of another store",
        ),
    ],
)
def test_an_append_that_is_interrupted_says_whether_it_is_written(
    tmp_path: Path, first: int, url: str, make: Callable[[], BaseException], whole: bool
):
    """In a file, each place meets one of the exceptions, and all of them with ``scripts/test
    --all``.
    """
    events = [HI, CondensationAction(forgotten_event_ids=[0])]

    def write(conversation: str) -> None:
        store.append(
            conversation,
            events,
            expected_version=1,
            idempotency_key="a",
            guard=lambda snapshot: None,
        )

    with open_store(url.format(tmp_path)) as store:
        Views(store)
        is_sampled = not whole and url == RELAXED
        assert places(store, write, make, *((first, 4) if is_sampled else ())) > 50
        assert [finding for verdict in verify(store) for finding in verdict.findings] == []
        assert len(list(store.follow())) == sum(
            row.version for row in store.conversations(limit=10_000)
        )


def test_a_thread_that_is_interrupted_while_others_write_harms_none_of_them(tmp_path: Path):
    """It is not the main thread, so it runs jobs of the others as well."""
    stop, failed, counts = threading.Event(), [], [0, 0]

    def write(n: int) -> None:
        while not stop.is_set():
            try:
                store.append(f"own{n}", HI, expected_version=counts[n])
                counts[n] += 1
            except EventStoreError as error:
                failed.append(error)

    def interrupted() -> None:
        try:
            found.append(
                places(
                    store,
                    lambda c: store.append(c, [HI, HI], expected_version=1),
                    KeyboardInterrupt,
                )
            )
        finally:
            stop.set()

    found: list[int] = []
    with open_store(f"sqlite:///{tmp_path}/s.db?durability=relaxed") as store:
        threads = [threading.Thread(target=write, args=(n,), daemon=True) for n in range(2)]
        threads.append(threading.Thread(target=interrupted, daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
        assert found
        assert failed == []
        assert [store.version(f"own{n}") for n in range(2)] == counts
