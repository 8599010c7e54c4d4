"""An event that was appended without a time gets the time at which it was recorded whenever it is
read. Nothing more is stored for this.
"""

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from foldlog.eventstore import (
    Action,
    CondensationRequest,
    Event,
    HistoryDiverged,
    IdempotencyConflict,
    Origin,
    Store,
    UnknownEvent,
    open_store,
)
from tests.reading import reading
from tests.said import said, say
from tests.sound import assert_sound

BEGIN = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
OTHER = datetime(2020, 2, 2, tzinfo=UTC)


@pytest.fixture
def timed(recorder):
    """A store whose clock goes on by a second at each transaction."""
    seconds = count()
    return Store(recorder, clock=lambda: BEGIN + timedelta(seconds=next(seconds)))


def bodies(store):
    return store.query(
        "c1", lambda read: [row.body for row in read.rows(0, read.version, read.version)]
    )


def test_every_read_gives_the_recorded_time(timed):
    events = [said("one"), Action(tool="ls")]
    recorded = timed.append("c1", events, expected_version=0)
    recorded += timed.append("c1", CondensationRequest(), expected_version=2)
    times = [BEGIN, BEGIN, BEGIN + timedelta(seconds=1)]
    assert [entry.event.timestamp for entry in recorded] == times
    assert [event.timestamp for event in timed.events("c1")] == times
    assert [logged.event.timestamp for logged in timed.log("c1")] == times
    assert list(timed.follow()) == list(recorded)
    with reading(timed, "c1") as snapshot:
        assert [event.timestamp for event in snapshot.shown_events([(0, 2)])] == times[:2]
        assert [event.timestamp for event in snapshot.structural_events()] == times[2:]
    assert [event.timestamp for event in events] == [None, None], (
        "the given events are the caller's"
    )


def test_nothing_more_is_stored(timed):
    say(timed, "c1", "one")
    timed.append("c1", said("two", timestamp=OTHER), expected_version=1)
    assert [b"timestamp" in body for body in bodies(timed)] == [False, True]
    assert_sound(timed, "c1")


def test_given_and_missing_times_stay(timed):
    timed.append("c1", said("given", timestamp=OTHER), expected_version=0)
    timed.append(
        "c1", UnknownEvent(stored_kind="new", stored_schema=1, body=b"{}"), expected_version=1
    )
    assert [event.timestamp for event in timed.events("c1")] == [OTHER, None]
    timed.ingest("c2", [said("imported", origin=Origin(format="openai-chat")), said("native")])
    assert [event.timestamp for event in timed.events("c2")] == [None, BEGIN + timedelta(seconds=2)]


def test_a_later_retry_is_recognized(timed):
    first = say(timed, "c1", "one", idempotency_key="turn-1")
    assert say(timed, "c1", "one", idempotency_key="turn-1") == first
    with pytest.raises(IdempotencyConflict):
        timed.append(
            "c1", said("one", timestamp=BEGIN), expected_version=0, idempotency_key="turn-1"
        )


def test_what_was_read_can_be_imported_elsewhere(timed):
    say(timed, "c1", "one", "two")
    with open_store("memory:") as other:
        other.ingest("c1", timed.events("c1", 0, 1))
        assert other.ingest("c1", timed.events("c1")).added == 1
        assert list(other.events("c1")) == list(timed.events("c1"))
        with pytest.raises(HistoryDiverged):
            other.ingest("c1", [said("one", timestamp=OTHER)])


def test_a_projection_sees_what_readers_see(timed):
    class Keeper:
        name = "keeper"
        seen: list[Event]

        def project(self, snapshot, events):
            self.seen = list(events)
            assert list(snapshot.events(snapshot.version - len(events))) == self.seen

    keeper = Keeper()
    timed.register(keeper)
    timed.append("c1", [said("one"), CondensationRequest()], expected_version=0)
    assert keeper.seen == list(timed.events("c1"))
    timed.ingest("c2", [said("one"), CondensationRequest()])
    assert keeper.seen == list(timed.events("c2"))
