"""Conversations by the beginnings of their ids, with sub-agents and companions; and damaged ones."""

from datetime import UTC, datetime

import pytest

import foldlog
from foldlog.eventstore import CorruptEvent, EventStoreError, Logged, open_store
from foldlog.projections.conversations.companions import (
    and_companions,
    companion_of,
    companions,
    forked_from,
    ids_beginning_with,
    ids_from,
    origins_of,
    sessions_beginning_with,
    with_companions,
)
from foldlog.projections.conversations.unreadable import iter_log, placeholder, sound, sound_view
from tests.said import all_said, ids, said
from tests.stored_rows import execute

AT = datetime(2026, 3, 1, tzinfo=UTC)
NAMES = (
    "abc",
    "abc/agent-1",
    "abc/agent-2",
    "abcd/agent-1",
    "abx",
    "b",
    "b/+state",
    "b/+state/+more",
    "b/c",
    "b/c/+state",
    "None/agent-1",
)


@pytest.fixture
def store():
    with foldlog.open("memory:") as histories:
        for name in NAMES:
            histories[name].append(said("x"))
        yield histories.store


@pytest.mark.parametrize(
    "beginning, found",
    [
        ("", ""),
        ("abc", "abc"),
        ("ab", "abc abcd/agent-1 abx"),
        ("abc/agent-2", "abc/agent-2"),
        ("abc/ag", "abc/agent-1 abc/agent-2"),
        ("ab/ag", "abc/agent-1 abc/agent-2 abcd/agent-1"),
        ("ab/agent-1", "abc/agent-1 abcd/agent-1"),
        ("ab/", ""),
        ("/agent-2", "abc/agent-2"),
        ("abx/a", ""),
        ("z", ""),
        ("None", "None/agent-1"),
    ],
)
def test_ids_by_their_beginning(store, beginning, found):
    assert " ".join(ids_beginning_with(store, beginning)) == found


def test_sessions_and_all_ids_of_a_beginning(store):
    assert [*sessions_beginning_with(store, "ab")] == ["abc", "abcd", "abx"]
    assert [*sessions_beginning_with(store, "")] == ["None", "abc", "abcd", "abx", "b"]
    assert [*ids_from(store, "")] == sorted(NAMES)
    assert [*ids_from(store, "abc/")] == ["abc/agent-1", "abc/agent-2"]


def test_companions_of_conversations(store):
    assert [companion_of(name) for name in NAMES[5:10]] == ["", "b", "b", "", "b/c"]
    assert companion_of("/+x") == companion_of("b/+x/y") == ""
    assert [row.id for row in companions(store, "b")] == ["b/+state", "b/+state/+more"]
    assert [row.id for row in companions(store, "b", "b/+state")] == ["b/+state/+more"]
    assert and_companions(store, ["b", "b/c"]) == [
        "b",
        "b/c",
        "b/+state",
        "b/+state/+more",
        "b/c/+state",
    ]
    rows = [store.conversation("b")]
    assert [row.id for row in with_companions(store, rows)] == ["b", "b/+state", "b/+state/+more"]
    foldlog.Histories(store).erase("b/+state/+more", reason="asked to")
    assert [row.id for row in with_companions(store, rows)] == ["b", "b/+state"]
    assert len(companions(store, "b")) == 2


def test_origins_of_a_fork(store):
    histories = foldlog.Histories(store)
    fork = histories["abc"].fork(id="fork")
    assert forked_from(store, fork.id) == ["abc"]
    assert forked_from(store, "abc") == forked_from(store, "unknown") == []


PROBLEMS = dict.fromkeys((3, 4, 5), "broken") | {6: "other", 8: "broken"}


def log_with_problems(conversation, start, stop):
    """Read a log of ten events. The events of ``PROBLEMS`` cannot be read."""
    for event_id in range(start, 10 if stop is None else stop):
        if event_id in PROBLEMS:
            raise CorruptEvent(conversation, event_id, PROBLEMS[event_id])
        yield Logged(AT, said(str(event_id), id=event_id))


def log_without_its_conversation(conversation, start, stop):
    raise CorruptEvent(conversation, -1, "its row is broken")


def test_log_with_events_that_cannot_be_read():
    read = [*iter_log(None, "c", 2, 7, log_with_problems)]
    assert [isinstance(item, CorruptEvent) for item in read] == [False, True, True, True, True]
    assert len([*iter_log(None, "c", log=log_with_problems)]) == 10
    assert len([*iter_log(None, "c", 4, 4, log_with_problems)]) == 0
    (problem,) = iter_log(None, "c", 0, 9, log_without_its_conversation)
    assert isinstance(problem, CorruptEvent)
    marker = placeholder(CorruptEvent("c", 7, "broken"))
    assert (marker.id, marker.stored_kind, marker.shown) == (7, "damaged", False)


def test_findings_of_events_that_cannot_be_read():
    findings = []
    events = [item.event for item in sound(None, "c", 0, 10, findings, log_with_problems)]
    assert ids(events) == [0, 1, 2, 7, 9]
    assert [finding.partition(": ")[0] for finding in findings] == [
        "conversation 'c', events 3 to 5",
        "conversation 'c', event 6",
        "conversation 'c', event 8",
    ]
    assert all("broken" in findings[number] for number in (0, 2))


def test_view_without_the_events_that_cannot_be_read(tmp_path):
    path = tmp_path / "h.db"
    with open_store(f"sqlite:///{path}") as store:
        store.append("c", all_said("a", "b", "c"), expected_version=0)
    execute(path, "UPDATE events SET body = 'damaged' WHERE id = 1")
    with open_store(f"sqlite:///{path}") as store:
        problems = {}
        past = sound_view(store, "c", 1, problems)
        assert (past.version, ids(past), problems) == (1, [0], {})
        view = sound_view(store, "c", None, problems)
        assert (view.version, ids(view), problems.keys()) == (3, [0, 2], {1})


def test_a_whole_id_below_a_shortened_session_is_alone(store):
    histories = foldlog.Histories(store)
    for name in ("xyz/a", "xyz/a-1"):
        histories[name].append(said("x"))
    assert [*ids_beginning_with(store, "xy/a")] == ["xyz/a"]


def test_origins_are_unknown_without_the_key_of_the_fork():
    class Locked:
        def origins(self):
            raise EventStoreError("the key is missing")

    assert origins_of(Locked()) == []
