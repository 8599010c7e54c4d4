"""An exception that a signal handler raises in a thread that writes reaches the caller of this
thread, at whatever place it comes.
"""

import itertools
import sqlite3

import pytest

from foldlog.eventstore import (
    CondensationAction,
    StoreUnavailable,
    open_store,
)
from foldlog.projections import Views
from tests.eventstore.interruptions import interrupted_at
from tests.said import said, say
from tests.sound import assert_sound

HI = said("hi")


def interrupt_at_each_place(store, write, make, first=1, step=1):
    """Interrupt ``write`` at each of its places, or at every ``step``th one. Check that its events
    are stored if, and only if, the exception says so. ``make`` makes the exception. Return the
    number of places, or at most a step more.
    """
    for place in itertools.count(first, step):
        conversation = f"c{place}"
        say(store, conversation, "hi")
        exception = make()
        with interrupted_at(place, exception) as interrupting:
            try:
                write(conversation)
            except type(exception) as error:
                raised = error
            else:
                raised = None
        assert raised is (exception if interrupting.raised else None), f"place {place}"
        notes = getattr(exception, "__notes__", ())
        is_after_commit = any("came after the commit" in note for note in notes)
        is_written = is_after_commit or not interrupting.raised
        version = 3 if is_written else 1
        assert store.version(conversation) == version
        assert len(list(store.events(conversation))) == version
        say(store, "others", "hi")  # This would wait if anything were still locked.
        if not interrupting.raised:
            return place - 1


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
def test_interrupted_append_says_whether_it_is_written(tmp_path, first, url, make, whole):
    """In a file, each place meets one of the exceptions, and all of them with ``scripts/test
    --all``.
    """
    events = [HI, CondensationAction(forgotten_event_ids=[0])]

    def write(conversation):
        store.append(
            conversation,
            events,
            expected_version=1,
            idempotency_key="a",
            guard=lambda snapshot: None,
        )

    with open_store(url.format(tmp_path)) as store:
        store.register(Views(store))
        if whole or url != RELAXED:
            places = interrupt_at_each_place(store, write, make)
        else:
            places = interrupt_at_each_place(store, write, make, first, step=4)
        assert places > 50
        assert_sound(store)
        assert len(list(store.follow())) == sum(
            row.version for row in store.conversations(limit=10_000)
        )
