"""The times that an event may have: each of them can be stored, read, compared and written."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, strategies as st

from foldlog.eventstore import ANY_VERSION, InvalidEvent, open_store
from foldlog.eventstore.log.row import from_microseconds
from foldlog.eventstore.times import event_microseconds, event_time, parse_event_time
from tests.how_many import examples
from tests.said import said

FAR = {
    "0001-01-01T00:00:00+14:00": datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    "9999-12-31T23:59:59.999999-14:00": datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
}
ODD_OFFSETS = [
    timedelta(minutes=19, seconds=32),
    timedelta(hours=23, minutes=59, seconds=59),
    timedelta(seconds=-31),
    timedelta(microseconds=1),
]
NOON = datetime(2026, 1, 1, 12)


@pytest.mark.parametrize("text", FAR)
def test_time_outside_the_years_of_utc(text):
    far = said("x", timestamp=FAR[text])
    with open_store("memory:") as store:
        with pytest.raises(
            InvalidEvent, match="outside the years 1 to 9999 in UTC; give another time, or no time"
        ):
            store.append("c", [said("before"), far], expected_version=ANY_VERSION)
        assert store.version("c") == 0
    assert parse_event_time(text) is None


@pytest.mark.parametrize("offset", ODD_OFFSETS, ids=str)
def test_offset_with_seconds_becomes_utc(offset):
    time = NOON.replace(tzinfo=timezone(offset))
    with open_store("memory:") as store:
        store.append("c", [said("x", timestamp=time)], expected_version=ANY_VERSION)
        [(_, event)] = store.log("c")
    assert event.timestamp == time
    assert event.timestamp.utcoffset() == timedelta(0)


def test_offset_of_minutes_stays():
    time = NOON.replace(tzinfo=timezone(timedelta(hours=5, minutes=30)))
    assert event_time(time) is time


@examples(100)
@given(st.datetimes(timezones=st.timezones() | st.just(UTC)))
def test_any_accepted_time_round_trips(time):
    try:
        accepted = event_time(time)
    except ValueError:
        with pytest.raises(OverflowError):
            time.astimezone(UTC)
        return
    # An hour that clocks skip or repeat equals no time of another zone: compare the moments.
    assert accepted.astimezone(UTC) == time.astimezone(UTC)
    assert from_microseconds(event_microseconds(accepted)) == time.astimezone(UTC)
    assert parse_event_time(accepted.isoformat()).astimezone(UTC) == accepted.astimezone(UTC)
