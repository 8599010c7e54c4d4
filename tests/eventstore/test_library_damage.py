"""The recorders for the eventsourcing library name a damaged event, and return nothing in its
place.
"""

import pytest
from eventsourcing.persistence import StoredEvent

from foldlog.eventstore import CorruptEvent, InvalidEvent, KeyRing, KeyUnavailable, open_store
from foldlog.eventstore.integrations.eventsourcing import Factory
from tests.said import say
from tests.stored_rows import execute


def test_damaged_event_is_named(path):
    with open_store(path) as store:
        say(store, "c", *[f"x{n}" for n in range(3)])
    execute(path, "UPDATE events SET body = replace(CAST(body AS TEXT), 'x1', 'y1') WHERE id = 1")
    factory = Factory({"FOLDLOG_URL": f"sqlite:///{path}"})
    try:
        recorder = factory.application_recorder()
        assert [found.id for found in recorder.select_notifications(1, 10)] == [1]
        with pytest.raises(CorruptEvent, match="event 1") as raised:
            recorder.select_notifications(2, 10)
        assert raised.value.position == 2
        with pytest.raises(CorruptEvent, match="event 1"):
            recorder.select_events("c")
    finally:
        factory.close()


def test_missing_key_is_named(path):
    with open_store(path, keys=KeyRing(["5c" * 32])) as store:
        say(store, "c", "x")
    factory = Factory({"FOLDLOG_URL": f"sqlite:///{path}"})
    try:
        with pytest.raises(KeyUnavailable):
            factory.application_recorder().select_events("c")
    finally:
        factory.close()


@pytest.mark.parametrize(
    "version, state, problem",
    [
        (-1, b"{}", "has the version -1; give a version from 0 to 4294967295"),
        (2**32, b"{}", "has the version 4294967296; give"),
        (0, b"no JSON", "event 0 of conversation 'c' cannot be stored: the body is not JSON"),
    ],
)
def test_stored_event_that_no_row_can_hold_is_refused(version, state, problem):
    factory = Factory({"FOLDLOG_URL": "memory:"})
    try:
        with pytest.raises(InvalidEvent, match=problem):
            factory.application_recorder().insert_events(
                [StoredEvent("c", version, "message/1", state)]
            )
    finally:
        factory.close()
