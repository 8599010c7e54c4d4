"""Numbers and moments that no database keeps are refused by name, and nothing is written."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

import pytest

from foldlog.eventstore import (
    ANY_VERSION,
    CondensationAction,
    EventStoreError,
    InvalidArgument,
    InvalidEvent,
    Store,
    UnknownEventType,
)
from foldlog.eventstore.log import row as rows_module, writing
from foldlog.eventstore.maintenance.copy import copy_store
from foldlog.projections import Views
from tests.said import ids, said, say, texts

HI = said("hi")
TOO_LARGE = (2**63, -(2**63) - 1, 10**30, -(10**30))


def on_snapshot(read):
    """Return a call that passes a number to ``read``, with a read transaction."""
    return lambda store, number: store.query("c", lambda snapshot: read(snapshot, number))


class NumberCall(NamedTuple):
    """A call with a number in one place. In some places, None or the text of a number is valid."""

    call: Callable
    accepts_none: bool = False
    accepts_text: bool = False


CALLS = {
    "events, start": NumberCall(lambda store, n: list(store.events("c", n))),
    "events, stop": NumberCall(lambda store, n: list(store.events("c", 0, n)), accepts_none=True),
    "log, start": NumberCall(lambda store, n: list(store.log("c", n))),
    "log, stop": NumberCall(lambda store, n: list(store.log("c", 0, n)), accepts_none=True),
    "conversations, limit": NumberCall(lambda store, n: store.conversations(limit=n)),
    "follow, position": NumberCall(lambda store, n: store.follow(n), accepts_text=True),
    "follow, limit": NumberCall(lambda store, n: store.follow(0, n), accepts_none=True),
    "event_bytes_max": NumberCall(lambda store, n: Store(store._recorder, event_bytes_max=n)),
    "copy, jobs": NumberCall(lambda store, n: list(copy_store(store, store, jobs=n))),
    "snapshot.head_at": NumberCall(on_snapshot(lambda snapshot, n: snapshot.head_at(n))),
    "snapshot.events, start": NumberCall(on_snapshot(lambda snapshot, n: list(snapshot.events(n)))),
    "snapshot.events, stop": NumberCall(
        on_snapshot(lambda snapshot, n: list(snapshot.events(0, n))), accepts_none=True
    ),
    "snapshot.structural_events": NumberCall(
        on_snapshot(lambda snapshot, n: list(snapshot.structural_events(n)))
    ),
    "snapshot.shown_events": NumberCall(
        on_snapshot(lambda snapshot, n: snapshot.shown_events([(0, n)]))
    ),
    "snapshot.record_at": NumberCall(
        on_snapshot(lambda snapshot, n: snapshot.record_at("p", n)), accepts_none=True
    ),
    "snapshot.records": NumberCall(on_snapshot(lambda snapshot, n: list(snapshot.records("p", n)))),
}


@pytest.fixture
def filled(store):
    say(store, "c", *["hi"] * 3)
    return store


@pytest.mark.parametrize("name", CALLS)
def test_arguments_must_be_64_bit_integers(filled, name):
    call, accepts_none, accepts_text = CALLS[name]
    # The largest number is no position, because a reader asks for the events after a position.
    numbers = (2**63 - 1, *TOO_LARGE) if name == "follow, position" else TOO_LARGE
    for number in numbers:
        problem = rf"is {number}; use a whole number from -?\d+ to \d+"
        with pytest.raises(InvalidArgument, match=problem):
            call(filled, number)
    wrong = {1.5, True, b"1"}
    if not accepts_none:
        wrong.add(None)
    if not accepts_text:
        wrong.add("1")
    for value in wrong:
        with pytest.raises(TypeError, match="must be a whole number, not"):
            call(filled, value)
    assert filled.version("c") == 3


def test_largest_position_has_nothing_behind(filled):
    assert [*filled.follow(2**63 - 2)] == []


@pytest.mark.parametrize("number", TOO_LARGE)
def test_a_number_of_more_than_64_bits_is_named_by_its_refusal(filled, number):
    views = Views(filled)
    append = partial(filled.append, "c", expected_version=ANY_VERSION)
    condensation = CondensationAction(forgotten_event_ids=[number])
    calls = [
        lambda: say(filled, "c", "x", expected_version=number),
        lambda: append(said("x", cause=number)),
        lambda: append(condensation),
        lambda: append(
            CondensationAction(forgotten_events_start_id=0, forgotten_events_end_id=number)
        ),
        lambda: filled.ingest("i", [said("x", id=number)]),
        lambda: views.at("c", number),
        lambda: views.why("c", number),
        lambda: views.difference("c", 0, number),
    ]
    for call in calls:
        with pytest.raises(EventStoreError, match=f" {number}\\b"):
            call()
    assert filled.version("c") == 3


@pytest.mark.parametrize("year", [1970, 9999])
def test_a_store_keeps_the_years_from_1970(recorder, year):
    store = Store(recorder, clock=lambda: datetime(year, 12, 31, tzinfo=UTC))
    (recorded,) = say(store, "c", "hi")
    assert recorded.recorded_at.year == year
    assert ids(store.events("c")) == [0]


@pytest.mark.parametrize("year", [1, 1969])
def test_a_clock_with_an_earlier_year_is_refused(recorder, year):
    store = Store(recorder, clock=lambda: datetime(year, 12, 31, tzinfo=UTC))
    for call in (lambda: say(store, "c", "hi"), lambda: store.ingest("c", [HI] * 2)):
        with pytest.raises(
            InvalidArgument, match="a store holds only the years 1970 to 9999; nothing was written"
        ):
            call()
    assert store.version("c") == 0


def test_the_clock_of_the_machine_is_checked(store, monkeypatch):
    monkeypatch.setattr(rows_module.time, "time_ns", lambda: -1_000_000)
    with pytest.raises(InvalidArgument, match="Set the clock of this machine"):
        say(store, "c", "hi")
    assert store.version("c") == 0


@pytest.mark.parametrize(
    "moment, problem",
    [
        (5, "must be a datetime"),
        (datetime(2026, 1, 2), "is 2026-01-02T00:00:00 and has no time zone"),
    ],
)
def test_a_clock_without_a_moment_is_refused(recorder, moment, problem):
    store = Store(recorder, clock=lambda: moment)
    with pytest.raises(TypeError, match=f"the clock returns {problem}"):
        say(store, "c", "hi")


@pytest.mark.parametrize(
    "begin",
    [
        lambda store: store.append("", HI, expected_version=0),
        lambda store: store.append("", HI, expected_version=ANY_VERSION),
        lambda store: store.ingest("", [HI]),
        lambda store: store.ingest("", [HI] * 5_000),
        lambda store: store.fork("c", 1, ""),
    ],
    ids=["append", "append to any version", "ingest", "ingest in parts", "fork"],
)
def test_no_conversation_begins_with_an_empty_id(store, begin):
    say(store, "c", "hi")
    with pytest.raises(InvalidArgument, match="the id of a new conversation is empty"):
        begin(store)
    assert [row.id for row in store.conversations()] == ["c"]


def test_an_old_conversation_with_an_empty_id_continues(store, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(writing, "begin_new", lambda transaction, _, new: transaction.begin(new))
        say(store, "", "hi")
    say(store, "", "hi")
    store.ingest("", [HI, HI, HI])
    assert texts(store, "") == ["hi"] * 3


@pytest.mark.parametrize("event", [{"kind": "message"}, None])
def test_a_history_of_other_objects_is_refused(store, event):
    with pytest.raises(UnknownEventType, match="is not an event; build one"):
        store.ingest("c", [event])


def test_a_summary_with_an_impossible_id_is_no_summary(store):
    say(store, "c", "a", "b")
    forgetting = CondensationAction(forgotten_event_ids=[-(10**30)])
    with pytest.raises(
        InvalidEvent, match=f"forgets summary {-(10**30)}, but event {10**30 - 2} is"
    ):
        store.append("c", forgetting, expected_version=ANY_VERSION)
