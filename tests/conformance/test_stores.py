"""The store's promises, on every recorder."""

import re
from datetime import UTC, datetime

import pytest

from foldlog.eventstore import (
    ANY_VERSION,
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    ConversationNotFound,
    CorruptEvent,
    HistoryDiverged,
    IdempotencyConflict,
    InvalidArgument,
    InvalidEvent,
    InvalidOption,
    Observation,
    Origin,
    Store,
    StoreRefused,
    UnknownEventType,
    VersionConflict,
    open_store,
)
from foldlog.eventstore.codec import KINDS
from foldlog.eventstore.log.finding import find_again, query_all
from foldlog.eventstore.log.importing import staged_keys
from foldlog.eventstore.recorders.types import Record
from tests.at_once import at_once
from tests.golden.rows import rows
from tests.reading import reading
from tests.said import ids, said, say
from tests.stored_rows import execute

TAKEN = "'c1' already exists, at version 2;"


def find_former(store, former):
    """Find a conversation again whose state another transaction has read."""
    return store.database.recorder.query(lambda reader: find_again(store.database, reader, former))


def test_a_conversation_that_is_gone_in_the_next_transaction(store, open_recorder):
    say(store, "c1", "a")
    former = store.query("c1", lambda reading: reading.state)
    assert find_former(store, former).state == former

    other = Store(open_recorder())
    with pytest.raises(ConversationNotFound, match="no conversation 'c1'"):
        find_former(other, former)
    say(other, "c2", "takes another key")
    say(other, "c1", "another conversation")
    with pytest.raises(ConversationNotFound, match="no conversation 'c1'"):
        find_former(other, former)


# -- append
# --------------------------------------------------------------------------------------------------


def test_an_unknown_conversation_has_version_zero(store):
    assert store.version("c1") == 0
    with pytest.raises(ConversationNotFound, match="no conversation 'c1'"):
        store.events("c1")


@pytest.mark.parametrize(
    "expected, problem",
    [
        (0, f"{TAKEN} use another id for a new conversation, or read this one and append to it"),
        (1, "'c1' is at version 2, but the append expected version 1"),
        (3, "'c1' is at version 2, but the append expected version 3"),
    ],
)
def test_a_conflict_names_both_versions(store, expected, problem):
    say(store, "c1", "a", "b")
    with pytest.raises(VersionConflict, match=problem) as raised:
        store.append("c1", said("c"), expected_version=expected)
    conflict = raised.value
    assert (conflict.conversation, conflict.expected, conflict.actual) == ("c1", expected, 2)
    assert store.version("c1") == 2


def test_conflicts_of_new_conversations_and_forks(store):
    with pytest.raises(VersionConflict):
        store.append("new", said("c"), expected_version=1)
    assert store.version("new") == 0
    say(store, "c1", "a", "b")
    with pytest.raises(VersionConflict, match=TAKEN):
        store.fork("c1", 1, "c1")


def test_each_expected_version_has_one_winner(store):
    conflicts = []

    def race():
        for version in range(20):
            try:
                store.append("c1", said("x"), expected_version=version)
            except VersionConflict as conflict:
                conflicts.append(conflict)

    at_once(lambda _: race(), range(8))
    assert ids(store.events("c1")) == list(range(20))
    assert len(conflicts) == 7 * 20


@pytest.mark.parametrize(
    "fields, problem", rows("refusals.json", "events that break a rule of an append")
)
def test_broken_rules_of_an_append_are_refused(store, fields, problem):
    say(store, "c1", "a", "b")
    broken = KINDS[fields["kind"]](**{name: fields[name] for name in fields if name != "kind"})
    with pytest.raises(InvalidEvent, match=problem):
        store.append("c1", [broken, said("fine")], expected_version=2)
    assert store.version("c1") == 2


def test_no_events_and_no_time_zone_are_refused(store):
    with pytest.raises(InvalidEvent, match="nothing to append"):
        say(store, "c1")
    with pytest.raises(InvalidEvent, match="has no time zone"):
        store.append("c1", said("a", timestamp=datetime(2026, 1, 1)), expected_version=0)


def test_imported_events_keep_what_their_source_said(store):
    """Only the form of imported condensations and summaries is checked, as in an import."""
    origin = Origin(format="openhands-v0", id=7)
    imported = [
        said("a", origin=origin),
        CondensationAction(forgotten_event_ids=[7, 99], origin=origin),
        CondensationSummary(content="s", origin=origin),
        CondensationAction(forgotten_event_ids=[], origin=origin),
    ]
    recorded = store.append("c1", imported, expected_version=0)
    assert [entry.event for entry in recorded] == list(store.events("c1"))
    assert [event.origin for event in store.events("c1")] == [origin] * 4
    with pytest.raises(InvalidEvent, match="names cause 9"):
        store.append("c1", said("b", origin=origin, cause=9), expected_version=4)
    with pytest.raises(InvalidEvent, match="either"):
        CondensationAction(origin=origin)


def test_what_is_no_event_is_refused(store):
    with pytest.raises(UnknownEventType, match="an object of type str is not an event; build one"):
        store.append("c1", ["hello"], expected_version=0)


def test_an_event_over_the_limit_is_refused(recorder):
    store = Store(recorder, event_bytes_max=100)
    long = said("x" * 90)
    problem = r"takes (1\d\d) bytes; the maximum for one event is 100"
    with pytest.raises(InvalidEvent, match=problem) as raised:
        store.append("c1", long, expected_version=0)
    size = int(re.search(problem, str(raised.value))[1])
    Store(recorder, event_bytes_max=size).append("c1", long, expected_version=0)


def test_a_batch_may_refer_to_itself(store):
    store.append(
        "c1",
        [
            Action(tool="ls", call_id="k"),
            Observation(tool="ls", call_id="k", content="a b", cause=0),
            CondensationAction(forgotten_event_ids=[0, 1], summary="listed", summary_offset=0),
            CondensationAction(forgotten_event_ids=[-4]),
        ],
        expected_version=0,
    )
    assert ids(store.events("c1")) == [0, 1, 2, 3]


# -- idempotency
# --------------------------------------------------------------------------------------------------


def test_the_same_key_appends_once(store):
    first = store.append(
        "c1", [said("a"), said("b", cause=0)], expected_version=0, idempotency_key="turn-1"
    )
    say(store, "c1", "c")
    again = store.append(
        "c1", [said("a"), said("b", cause=0)], expected_version=0, idempotency_key="turn-1"
    )
    assert again == first
    assert ids(store.events("c1")) == [0, 1, 2]


def test_one_key_for_other_events_conflicts(store):
    say(store, "c1", "a", idempotency_key="turn-1")
    for other in ([said("b")], [said("a"), said("a")], [Annotation(name="a")]):
        with pytest.raises(
            IdempotencyConflict, match="already has other events under idempotency key 'turn-1'"
        ):
            store.append("c1", other, expected_version=ANY_VERSION, idempotency_key="turn-1")
    assert ids(store.events("c1")) == [0]


# -- reading
# --------------------------------------------------------------------------------------------------


def test_several_conversations_are_read_in_one_transaction(store):
    names = ["t", "t/", "t/a", *(f"t/b{n:03}" for n in range(40)), "t0", "u/b"]
    for name in names:
        say(store, name, name)

    def check(moment):
        assert moment.conversation("t") is moment.conversation("t")
        with pytest.raises(ConversationNotFound):
            moment.conversation("t/x")
        assert [found.id for found in moment.beginning_with("t/")] == names[2:-2]
        assert [found.id for found in moment.beginning_with("t/b03")] == names[33:43]
        assert [*moment.beginning_with("t/x"), *moment.beginning_with("u/b")] == []
        for name in names:
            assert [event.content for event in moment.conversation(name).events()] == [name]

    query_all(store.database, check)


def test_recorded_times_never_go_back(recorder):
    moments = iter(datetime(2026, 1, day, tzinfo=UTC) for day in (2, 1, 3))
    store = Store(recorder, clock=lambda: next(moments))
    for _ in range(3):
        say(store, "c1", "a")
    assert [entry.recorded_at.day for entry in store.follow()] == [2, 2, 3]


# -- ingest
# --------------------------------------------------------------------------------------------------

HISTORY = [said(str(n), origin=Origin(format="openai-chat", id=n % 3)) for n in range(2_300)]


@pytest.mark.parametrize("size", [1, 999, 1_000, 1_001, 2_300])
def test_importing_a_history_twice_adds_nothing(store, size):
    assert store.ingest("c1", iter(HISTORY[:size])) == (size, size)
    assert ids(store.events("c1")) == [entry.id for entry in store.follow()] == [*range(size)]
    assert store.ingest("c1", HISTORY[:size]) == store.ingest("c1", []) == (0, size)


@pytest.mark.parametrize("grown_by", [1, 1_500])
def test_a_grown_source_adds_its_tail(store, grown_by):
    store.ingest("c1", HISTORY[:-grown_by])
    assert store.ingest("c1", HISTORY) == (grown_by, 2_300)
    assert ids(store.events("c1")) == list(range(2_300))


def test_a_source_that_differs_is_refused(store):
    store.ingest("c1", HISTORY[:5])
    with pytest.raises(
        HistoryDiverged, match="has 5 events, and the other history differs from event 3"
    ) as diverged:
        store.ingest("c1", [*HISTORY[:3], said("other"), *HISTORY[4:]])
    assert (diverged.value.event_id, diverged.value.version) == (3, 5)
    assert store.version("c1") == 5


def test_a_conversation_continued_here_takes_no_source(store):
    store.ingest("c1", HISTORY[:5])
    say(store, "c1", "here")
    with pytest.raises(HistoryDiverged):
        store.ingest("c1", HISTORY[:6])
    assert store.ingest("c1", HISTORY[:5]) == (0, 6)


@pytest.mark.parametrize("good", [0, 3, 1_700])
def test_a_source_that_breaks_off_leaves_nothing(store, recorder, good):
    def breaks():
        yield from HISTORY[:good]
        raise OSError("the disk was pulled out")

    with pytest.raises(OSError, match="pulled out"):
        store.ingest("c1", breaks())
    assert store.version("c1") == 0
    assert store.conversations() == ()
    with recorder.read() as reader:
        assert staged_keys(reader, "c1") == []


def test_imports_accept_what_appends_refuse(store):
    origin = Origin(format="openhands-v0")
    history = [
        CondensationAction(
            forgotten_event_ids=[700, -4], summary="", summary_offset=-3, origin=origin
        ),
        CondensationAction(forgotten_event_ids=[], origin=origin),
        CondensationSummary(content="stored"),
        said("a", cause=9),
    ]
    assert store.ingest("c1", history) == (4, 4)


def test_imported_ids_out_of_order_are_refused(store):
    with pytest.raises(InvalidEvent, match="event 1 of the history has id 2"):
        store.ingest("c1", [said("a", id=0), said("b", id=2)])
    assert store.version("c1") == 0


@pytest.mark.parametrize("wrong", [None, "0", 0.5])
def test_expected_versions_must_be_numbers(store, wrong):
    with pytest.raises(TypeError, match="give a number of events, or ANY_VERSION"):
        store.append("c1", said("a"), expected_version=wrong)


@pytest.mark.parametrize("wrong", [True, 1.0])
def test_a_value_that_equals_the_version_is_no_version(store, wrong):
    say(store, "c1", "a")
    with pytest.raises(TypeError, match="give a number of events, or ANY_VERSION"):
        store.append("c1", said("b"), expected_version=wrong)


def test_a_position_of_thousands_of_digits_is_refused(store):
    with pytest.raises(InvalidArgument, match="position"):
        store.follow("9" * 5_000)


# -- projections
# --------------------------------------------------------------------------------------------------


class Fails:
    """An inline projection that fails after it has written."""

    name = "fails"

    def project(self, snapshot, events):
        snapshot.put_records("fails", [Record(snapshot.version, 1, b"")])
        raise RuntimeError("the projection failed")


def test_a_failing_projection_appends_nothing(store):
    store.append("c1", CondensationRequest(), expected_version=0)
    store.register(Fails())
    with pytest.raises(RuntimeError, match="the projection failed"):
        store.append("c1", CondensationRequest(), expected_version=1)
    assert store.version("c1") == 1
    with reading(store, "c1") as snapshot:
        assert list(snapshot.records("fails")) == []


# -- lists
# --------------------------------------------------------------------------------------------------


def test_lists_have_as_many_conversations_as_asked_for():
    names = [f"c{n:03}" for n in range(150)]
    with open_store("memory:") as store:
        for name in names:
            say(store, name, "a")
        assert [row.id for row in store.iter_conversations()] == names
        assert [len(store.conversations(limit=limit)) for limit in (-1, 0, 1)] == [0, 0, 1]


# -- stores that cannot be used
# --------------------------------------------------------------------------------------------------


def test_a_closed_store_says_so(store):
    store.close()
    with pytest.raises(StoreRefused, match="closed"):
        store.append("c1", said("a"), expected_version=0)


def test_a_key_whose_event_is_gone_is_not_unknown(tmp_path):
    path = tmp_path / "s.db"
    with open_store(path) as store:
        say(store, "c1", "a", idempotency_key="key")
        say(store, "c1", "b")
    execute(path, "DELETE FROM events WHERE conversation = 1 AND id = 0")
    with open_store(path) as store, pytest.raises(CorruptEvent, match="event 0: the position"):
        store.recorded("c1", "key")


@pytest.mark.parametrize("lost, count", [(0, 11), (3, 11), (9, 11), (1_500, 1_501)])
def test_a_history_with_a_gap_is_damaged(tmp_path, lost, count):
    path = tmp_path / "s.db"
    with open_store(path) as store:
        say(store, "c1", *["x"] * count)
        store.fork("c1", lost + 1, "fork")
        say(store, "c1", "end")
    execute(path, f"DELETE FROM events WHERE conversation = 1 AND id = {lost}")
    with open_store(path) as store:
        for name in ("c1", "fork"):
            problem = f"'{name}', event {lost}: (it|the event) is missing"
            for read in (store.events, store.log):
                with pytest.raises(CorruptEvent, match=problem):
                    list(read(name))
        with pytest.raises(CorruptEvent, match=problem):
            say(store, "fork", "behind what is lost")


@pytest.mark.parametrize("url, problem", rows("refusals.json", "URLs of stores"))
def test_ambiguous_urls_are_refused(tmp_path, monkeypatch, url, problem):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidOption, match=problem):
        open_store(url)
    assert list(tmp_path.iterdir()) == []
