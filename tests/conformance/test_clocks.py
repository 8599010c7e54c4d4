"""A clock that jumps costs nothing, on every recorder: ``expire`` erases no young conversation, and
no other worker takes a lease.
"""

from datetime import UTC, datetime, timedelta

import pytest

from foldlog import Histories, LeaseTaken, Store
from foldlog._base import steady_clock
from foldlog.eventstore.log import row
from foldlog.eventstore.maintenance.copy import copy_store
from tests.said import said

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)


class Clock:
    """A clock that stands still until a test sets it."""

    now = NOW

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def histories(recorder, clock):
    return Histories(Store(recorder, clock=clock), condenser="digest")


def expired(histories):
    outcome = histories.maintenance.expire(90 * DAY)
    return [row.id for row in outcome.conversations], [*outcome.not_erased]


def test_what_a_slow_clock_dated_before_earlier_events_stays(histories, clock):
    histories["old"].append(said("old"))
    clock.now += 300 * DAY
    histories["used again"].append(said("at first"))
    clock.now += 100 * DAY
    histories["new"].append(said("new"))
    clock.now -= 400 * DAY
    histories["begun"].append(said("dated 400 days ago"))
    histories["used again"].append(said("dated 100 days ago"))
    clock.now += 400 * DAY

    ids, stay = expired(histories)

    begun, used_again = sorted(stay)
    assert ids == ["old"]
    assert "'begun' stays: its last event is dated before 2027-01-05" in begun
    assert "'used again' stays" in used_again
    assert "a clock was wrong" in used_again
    clock.now += 91 * DAY
    histories["new"].append(said("newer"))
    assert sorted(expired(histories)[0]) == ["begun", "used again"]


def test_what_a_fast_clock_dated_keeps_nothing(histories, clock):
    clock.now += 1_000 * DAY
    histories["of the future"].append(said("x"))
    clock.now -= 1_000 * DAY
    histories["old"].append(said("x"))
    clock.now += 100 * DAY
    assert expired(histories) == (["old"], [])


def test_order_of_a_copy_proves_nothing(histories, clock, open_recorder):
    for name in ("b", "a"):
        histories[name].append(said("x"))
        clock.now += 80 * DAY
    copy = Histories(Store(open_recorder(), clock=clock))
    assert not any(moved.problem for moved in copy_store(histories.store, copy.store))
    copy["c"].append(said("new"))
    assert expired(copy) == (["b"], [])


@pytest.mark.parametrize("age", [100 * 365 * DAY, timedelta.max])
def test_nothing_is_older_than_1970(histories, age):
    histories["c"].append(said("x"))
    assert histories.maintenance.expire(age).conversations == ()


@pytest.fixture
def workers(recorder):
    return [Histories(Store(recorder), condenser="digest")["c"] for _ in range(2)]


def test_wall_clock_that_jumps_frees_no_lease(workers, monkeypatch):
    holder, other = workers
    wall = row.time.time_ns
    with holder.lease(ttl_s=600) as lease:
        for jump in (-timedelta(days=400), timedelta(days=1)):
            jump_ns = int(jump.total_seconds() * 1e9)
            monkeypatch.setattr(row.time, "time_ns", lambda jump_ns=jump_ns: wall() + jump_ns)
            with pytest.raises(LeaseTaken):
                other.lease(wait_s=0).__enter__()
        assert lease.held
        assert [*other._histories.to_resume()] == []


def test_lease_of_another_machine_ends_by_the_wall_clock(workers, recorder, monkeypatch):
    holder, other = workers
    wall = row.time.time_ns
    with holder.lease(ttl_s=600):
        monkeypatch.setattr(steady_clock, "name", lambda: "of another machine")
        with pytest.raises(LeaseTaken):
            other.lease(wait_s=0).__enter__()
        monkeypatch.setattr(row.time, "time_ns", lambda: wall() + int(601e9))
        if recorder.on_server:
            assert other.current_lease() is not None, "the server's clock counts"
        else:
            assert other.current_lease() is None
