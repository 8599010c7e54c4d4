"""Several appends at once: each has the outcome that it would have alone."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from foldlog.eventstore import (
    ANY_VERSION,
    CondensationRequest,
    ConversationErased,
    Documents,
    IdempotencyConflict,
    InvalidEvent,
    VersionConflict,
)
from foldlog.eventstore.log.appending import DocumentsUnchanged, append_all
from foldlog.eventstore.store import bind, prepare_append
from tests.privacy import erased
from tests.said import ids, said, say, texts

together = pytest.mark.parametrize("open_recorder", ["memory", "sqlite"], indirect=True)
"""On a server each writer has a connection of its own."""


def appended(store, *appends):
    return append_all(store.database, [prepare_append(store, *append) for append in appends])


def recorded_ids(outcomes):
    return [[event.id for event in outcome.unwrap()] for outcome in outcomes]


@together
def test_ids_and_positions_are_in_order(store):
    outcomes = appended(
        store,
        ("a", said("1"), 0),
        ("b", [said("1"), said("2")], ANY_VERSION),
        ("a", said("2"), 1),
        ("a", said("3"), ANY_VERSION),
    )
    assert recorded_ids(outcomes) == [[0], [0, 1], [1], [2]]
    assert (texts(store, "a"), texts(store, "b")) == (["1", "2", "3"], ["1", "2"])
    assert [event for outcome in outcomes for event in outcome.unwrap()] == list(store.follow())
    assert append_all(store.database, []) == []


@together
def test_an_append_that_fails_fails_alone(store):
    say(store, "a", "0", idempotency_key="turn")
    erased(store, say(store, "gone", "0")[0].conversation)
    outcomes = appended(
        store,
        ("a", said("1"), 1),
        ("a", said("stale"), 1),
        ("a", said("other"), ANY_VERSION, "turn"),
        ("gone", said("late"), ANY_VERSION),
        ("a", [], ANY_VERSION),
        ("b", said("1"), 0),
        ("a", said("2"), 2),
    )
    failed = [VersionConflict, IdempotencyConflict, ConversationErased, InvalidEvent]
    assert [type(outcome.error) for outcome in outcomes[1:5]] == failed
    assert [outcomes[number].error for number in (0, 5, 6)] == [None] * 3
    assert (outcomes[1].error.expected, outcomes[1].error.actual) == (1, 2)
    assert (texts(store, "a"), texts(store, "b")) == (["0", "1", "2"], ["1"])


@together
@pytest.mark.parametrize(
    "options, may_be",
    [
        ({}, True),
        ({"idempotency_key": "k"}, True),
        ({"guard": DocumentsUnchanged(["a"], None, {})}, True),
        ({"guard": lambda reading: None}, False),
        ({"also": lambda writing: None}, False),
        ({"together": ["another append"]}, False),
    ],
)
def test_only_a_thread_of_the_caller_runs_the_callers_code(store, options, may_be):
    appending = prepare_append(store, "a", said("1"), 0, **options)
    assert bool(appending.any_thread) is may_be


@together
def test_a_failure_after_writing_harms_no_other_append(store):
    def refuse(*_):
        raise InvalidEvent("no")

    works = [prepare_append(store, name, said("1"), 0) for name in ("a", "b", "c")]
    works[1].batch.append(prepare_append(store, "b", CondensationRequest(), 0).batch[0])
    works[1].project = refuse
    works[1].is_plain = False
    outcomes = append_all(store.database, works)
    assert [type(outcome.error) for outcome in outcomes] == [type(None), InvalidEvent, type(None)]
    assert [row.id for row in store.conversations()] == ["a", "c"]


@together
def test_a_repeated_key_gives_the_recorded_events(store):
    outcomes = appended(
        store, ("a", said("1"), 0, "turn"), ("a", said("1"), 0, "turn"), ("a", said("2"), 1)
    )
    assert recorded_ids(outcomes) == [[0], [0], [1]]
    assert texts(store, "a") == ["1", "2"]


@together
def test_a_history_knows_its_generation(store):
    binding, store = bind(store, "a")
    [outcome] = append_all(store.database, [prepare_append(store, "a", said("1"), 0)])
    assert outcome.error is None
    assert binding.key is not None


def test_a_repeated_key_appends_nothing_anywhere(store):
    change = Documents(store).prepare("b", {"from": "a"}, 0)
    for _ in range(2):
        [recorded] = store.append(
            "a", said("1"), expected_version=0, idempotency_key="turn", together=[change]
        )
        assert (recorded.id, store.version("a"), store.version("b")) == (0, 1, 1)


def test_a_key_that_was_used_without_the_other_append_is_named(store):
    store.append("a", said("1"), expected_version=0, idempotency_key="turn of a")
    other = prepare_append(store, "b", said("1"), 0, "turn of b")
    with pytest.raises(IdempotencyConflict, match=r"'a' already has .* key 'turn of a'"):
        store.append(
            "a", said("1"), expected_version=0, idempotency_key="turn of a", together=[other]
        )
    assert store.version("b") == 0


def test_changes_of_the_same_conversation_keep_ids_dense(store):
    say(store, "a", "0")
    at_1, at_2 = (Documents(store).prepare("a", {"count": 1}, expected) for expected in (1, 2))
    with pytest.raises(VersionConflict):  # the message takes the place of the change
        store.append("a", said("1"), expected_version=1, together=[at_1])
    assert texts(store, "a") == ["0"]
    store.append("a", said("1"), expected_version=1, together=[at_2])
    assert ids(store.events("a")) == [0, 1, 2]
    assert texts(store, "a") == ["0", "1", None], "the change of documents has no content"


def test_appends_in_opposite_orders_do_not_deadlock(store):
    for name in ("a", "b"):
        say(store, name, "0")
    met = []
    meeting = threading.Barrier(2)

    def meet(reading):
        assert reading.tail(1)
        met.append(reading.conversation)
        with suppress(threading.BrokenBarrierError):
            meeting.wait(0.5)

    def append(first, other):
        change = prepare_append(store, other, said("2"), ANY_VERSION)
        store.append(first, said("1"), expected_version=ANY_VERSION, guard=meet, together=[change])

    with ThreadPoolExecutor() as threads:
        for outcome in [threads.submit(append, *names) for names in ("ab", "ba")]:
            outcome.result()
    assert sorted(met) == ["a", "b"]
    assert meeting.broken  # each waited for the other to be done
    assert [store.version(name) for name in ("a", "b")] == [3, 3]
