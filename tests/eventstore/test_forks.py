"""Forks in a SQLite file that was damaged or changed behind foldlog's back."""

import pytest

from foldlog.eventstore import (
    CorruptEvent,
    open_store,
)
from foldlog.eventstore.log.keys import KeyRing
from foldlog.eventstore.maintenance.verify import verify
from tests.said import say
from tests.stored_rows import execute

KEYS = KeyRing(["6b" * 32])


@pytest.fixture(params=[None, KEYS], ids=["plain", "encrypted"])
def path(request, tmp_path):
    """A file with a conversation, a fork that has one event, and another conversation."""
    path = tmp_path / "forks.db"
    with open_store(f"sqlite:///{path}", keys=request.param) as store:
        say(store, "c", *[f"c{n}" for n in range(4)])
        store.fork("c", 2, "f")
        say(store, "f", "own")
        say(store, "d", *[f"d{n}" for n in range(4)])
    return path


def changed(path, statement):
    execute(path, statement)
    return open_store(f"sqlite:///{path}", keys=KEYS)


@pytest.mark.parametrize(
    "statement, is_missing",
    [
        (
            (
                "DELETE FROM events WHERE conversation = (SELECT key FROM conversations WHERE id ="
                " 'f')"
            ),
            False,
        ),
        (
            (
                "UPDATE conversations SET parent = (SELECT key FROM conversations WHERE id = 'd')"
                " WHERE id = 'f'"
            ),
            False,
        ),
        ("DELETE FROM conversations WHERE id = 'c'", True),
    ],
    ids=["its own events lost", "another past", "a missing ancestor"],
)
def test_changed_past_is_found(path, statement, is_missing):
    with changed(path, statement) as store:
        if is_missing:
            with pytest.raises(CorruptEvent):
                list(store.events("f"))
        assert any(verdict.findings for verdict in verify(store))


def test_circle_of_ancestors_is_damage(path):
    circle = (
        "UPDATE conversations SET parent_version = 2, parent = (SELECT key FROM conversations WHERE"
        " id = 'f')"
    )
    with (
        changed(path, f"{circle} WHERE id = 'c'") as store,
        pytest.raises(CorruptEvent, match="missing"),
    ):
        list(store.events("f"))


@pytest.mark.parametrize("event_id", [1, 2], ids=["of the past", "of its own"])
def test_damaged_event_is_named_and_not_shown(path, event_id):
    with changed(
        path, f"UPDATE events SET meta = meta_with(meta, 'recorded_at', 1) WHERE id = {event_id}"
    ) as store:
        for read in (
            lambda reading: reading.shown_events([(0, 2)]),
            lambda reading: list(reading.events()),
        ):
            with pytest.raises(CorruptEvent, match=f"event {event_id}"):
                store.query("f", read)
        (verdict,) = verify(store, "f")
        assert (event_id, event_id) in [
            (finding.first, finding.last) for finding in verdict.findings
        ]


@pytest.mark.parametrize("name", "cf")
def test_no_head_of_a_damaged_event(path, name):
    with (
        changed(
            path, "UPDATE events SET meta = meta_with(meta, 'head', zeroblob(32)) WHERE id = 1"
        ) as store,
        pytest.raises(CorruptEvent, match="event 1"),
    ):
        store.query(name, lambda reading: reading.head_at(2))


@pytest.mark.parametrize("missing", range(4))
def test_a_view_names_each_missing_event_in_its_intervals(tmp_path, missing):
    """Events outside of the intervals may be missing: no View depends on them."""
    path = tmp_path / "store.db"
    with open_store(f"sqlite:///{path}") as store:
        say(store, "c", *map(str, range(5)))
    execute(path, f"DELETE FROM events WHERE id = {missing}")
    single = [(first, last) for last in range(5) for first in range(last + 1)]
    pairs = [(one, other) for one in single for other in single if one[1] + 1 < other[0]]
    with open_store(f"sqlite:///{path}") as store:
        for intervals in (*((interval,) for interval in single), *pairs):
            wanted = [event for first, last in intervals for event in range(first, last + 1)]

            def read(reading, intervals=intervals):
                return [event.id for event in reading.flagged_events(intervals)]

            if missing in wanted:
                with pytest.raises(CorruptEvent) as raised:
                    store.query("c", read)
                assert raised.value.event_id == missing, intervals
            else:
                assert store.query("c", read) == wanted, intervals
