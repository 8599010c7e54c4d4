"""The store's promises, on every recorder."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

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
    Event,
    HistoryDiverged,
    IdempotencyConflict,
    InvalidEvent,
    InvalidOption,
    Message,
    Observation,
    Origin,
    Store,
    StoreUnusable,
    UnknownEventType,
    VersionConflict,
    open_store,
)
from foldlog.eventstore.inside import Record, WriteTransaction
from foldlog.eventstore.log import row as hash_chain
from foldlog.eventstore.log.finding import Moment, query_all
from foldlog.eventstore.log.importing import staged_keys
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.recorders.base import Recorder
from foldlog.eventstore.recorders.types import as_rows
from tests.at_once import at_once
from tests.reading import reading
from tests.said import said


def ids(store: Store, conversation: str) -> list[int]:
    return [event.id for event in store.events(conversation)]


# -- append
# --------------------------------------------------------------------------------------------------


def test_append_gives_ids_from_zero_and_returns_what_it_recorded(store: Store):
    recorded = store.append("c1", [said("hi"), Action(tool="ls", cause=0)], expected_version=0)
    assert [r.id for r in recorded] == [0, 1]
    assert [r.event for r in recorded] == list(store.events("c1"))
    assert recorded == tuple(store.follow())
    assert store.version("c1") == 2


def test_append_takes_one_event_too(store: Store):
    (recorded,) = store.append("c1", said("hi"), expected_version=0)
    assert recorded.event == said("hi", id=0, timestamp=recorded.recorded_at)


def test_append_leaves_the_given_event_alone(store: Store):
    event = said("hi")
    store.append("c1", event, expected_version=0)
    assert event.id == -1


def test_an_unknown_conversation_is_at_version_zero_and_has_no_events(store: Store):
    assert store.version("c1") == 0
    with pytest.raises(ConversationNotFound, match="no conversation 'c1'"):
        store.events("c1")


def test_another_version_than_expected_is_a_conflict_with_numbers(store: Store):
    store.append("c1", [said("a"), said("b")], expected_version=0)
    for expected in (1, 3):
        with pytest.raises(
            VersionConflict,
            match=f"'c1' is at version 2, but the append expected version {expected}",
        ) as conflict:
            store.append("c1", said("c"), expected_version=expected)
        assert (conflict.value.conversation, conflict.value.expected, conflict.value.actual) == (
            "c1",
            expected,
            2,
        )
    with pytest.raises(VersionConflict):
        store.append("new", said("c"), expected_version=1)
    assert ids(store, "c1") == [0, 1]
    assert store.version("new") == 0


def test_a_conversation_that_begins_with_a_taken_id_is_told_to_use_another(store: Store):
    store.append("taken", [said("a"), said("b")], expected_version=0)
    store.append("c1", said("c"), expected_version=0)
    taken = (
        "'taken' already exists, at version 2; use another id for a new conversation, or read"
        " this one and append to it"
    )
    with pytest.raises(VersionConflict, match=taken) as conflict:
        store.append("taken", said("c"), expected_version=0)
    assert (conflict.value.conversation, conflict.value.expected, conflict.value.actual) == (
        "taken",
        0,
        2,
    )
    with pytest.raises(VersionConflict, match=taken):
        store.fork("c1", 1, "taken")


def test_any_version_appends_at_the_end(store: Store):
    for _ in range(3):
        store.append("c1", said("x"), expected_version=ANY_VERSION)
    assert ids(store, "c1") == [0, 1, 2]


def test_each_expected_version_has_one_winner(store: Store):
    conflicts: list[VersionConflict] = []

    def race() -> None:
        for version in range(20):
            try:
                store.append("c1", said("x"), expected_version=version)
            except VersionConflict as conflict:
                conflicts.append(conflict)

    at_once(lambda _: race(), range(8))
    assert ids(store, "c1") == list(range(20))
    assert len(conflicts) == 7 * 20


@pytest.mark.parametrize(
    "events, message",
    [
        ([], "nothing to append"),
        ([said("a", id=5)], "already has id 5, but its id would be 2"),
        ([said("a", id=-3)], "already has id -3"),
        ([said("a", cause=2)], "names cause 2; a cause is an earlier event, 0 to 1"),
        ([said("a", cause=-1)], "names cause -1"),
        (
            [CondensationAction(forgotten_event_ids=[0, 2])],
            "forgets event 2; the conversation has events 0 to 1",
        ),
        (
            [CondensationAction(forgotten_events_start_id=1, forgotten_events_end_id=7)],
            "forgets event 7",
        ),
        ([CondensationAction(forgotten_event_ids=[-1])], "forgets id -1, which no event has"),
        (
            [CondensationAction(forgotten_event_ids=[-2])],
            "event 0 is not a condensation with a summary",
        ),
        (
            [CondensationAction(forgotten_event_ids=[-9])],
            "event 7 is not a condensation with a summary",
        ),
        (
            [CondensationAction(forgotten_event_ids=[0], summary="s", summary_offset=-1)],
            "summary_offset -1",
        ),
        (
            [CondensationAction(forgotten_event_ids=[0], summary=" ", summary_offset=0)],
            "an empty summary",
        ),
        ([CondensationSummary(content="s", summary_of=1)], "which only a View makes"),
        ([Message(source="user", content=3)], "cannot be stored"),  # type: ignore[arg-type]
        ([said("a", timestamp=datetime(2026, 1, 1))], "has no time zone"),
    ],
)
def test_a_broken_rule_is_refused_before_anything_is_written(
    store: Store, events: list[Event], message: str
):
    store.append("c1", [said("a"), said("b")], expected_version=0)
    with pytest.raises(InvalidEvent, match=message):
        store.append("c1", [*events, said("fine")] if events else [], expected_version=2)
    assert ids(store, "c1") == [0, 1]


def test_imported_events_keep_what_their_source_said(store: Store):
    """Of imported condensations and summaries only the form is checked, as an import does."""
    origin = Origin(format="openhands-v0", id=7)
    imported: list[Event] = [
        said("a", origin=origin),
        CondensationAction(forgotten_event_ids=[7, 99], origin=origin),
        CondensationSummary(content="s", origin=origin),
        CondensationAction(forgotten_event_ids=[], origin=origin),
    ]
    recorded = store.append("c1", imported, expected_version=0)
    assert [one.event for one in recorded] == list(store.events("c1"))
    assert [event.origin for event in store.events("c1")] == [origin] * 4
    with pytest.raises(InvalidEvent, match="names cause 9"):
        store.append("c1", said("b", origin=origin, cause=9), expected_version=4)
    with pytest.raises(InvalidEvent, match="either"):
        CondensationAction(origin=origin)


def test_what_is_no_event_is_refused(store: Store):
    with pytest.raises(UnknownEventType, match="an object of type str is not an event; build one"):
        store.append("c1", ["hello"], expected_version=0)  # type: ignore[list-item]


def test_an_event_over_the_limit_is_refused_with_both_sizes(recorder: Recorder):
    store = Store(recorder, event_bytes_max=100)
    with pytest.raises(InvalidEvent, match=r"takes 1\d\d bytes; the most for one event is 100"):
        store.append("c1", said("x" * 90), expected_version=0)


def test_a_batch_may_refer_to_itself(store: Store):
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
    assert ids(store, "c1") == [0, 1, 2, 3]


def test_a_summary_of_an_earlier_append_can_be_forgotten(store: Store):
    store.append("c1", said("a"), expected_version=0)
    store.append(
        "c1",
        CondensationAction(forgotten_event_ids=[0], summary="s", summary_offset=0),
        expected_version=1,
    )
    store.append("c1", CondensationAction(forgotten_event_ids=[-3]), expected_version=2)
    assert ids(store, "c1") == [0, 1, 2]


# -- idempotency
# --------------------------------------------------------------------------------------------------


def test_the_same_key_and_events_append_once_also_with_a_stale_version(store: Store):
    first = store.append(
        "c1", [said("a"), said("b", cause=0)], expected_version=0, idempotency_key="turn-1"
    )
    store.append("c1", said("c"), expected_version=2)
    again = store.append(
        "c1", [said("a"), said("b", cause=0)], expected_version=0, idempotency_key="turn-1"
    )
    assert again == first
    assert ids(store, "c1") == [0, 1, 2]


def test_the_same_key_for_other_events_is_a_conflict(store: Store):
    store.append("c1", said("a"), expected_version=0, idempotency_key="turn-1")
    for other in ([said("b")], [said("a"), said("a")], [Annotation(name="a")]):
        with pytest.raises(
            IdempotencyConflict, match="already has other events under idempotency key 'turn-1'"
        ):
            store.append("c1", other, expected_version=ANY_VERSION, idempotency_key="turn-1")
    assert ids(store, "c1") == [0]


def test_the_same_key_for_events_that_name_later_ones_is_a_conflict(store: Store):
    store.append("c1", said("a"), expected_version=0, idempotency_key="turn-1")
    store.append("c1", said("b"), expected_version=1)
    with pytest.raises(IdempotencyConflict):
        store.append("c1", said("c", cause=1), expected_version=2, idempotency_key="turn-1")


# -- reading
# --------------------------------------------------------------------------------------------------


def test_events_are_read_by_half_open_range(store: Store):
    store.append("c1", [said(str(n)) for n in range(2_500)], expected_version=0)
    assert [e.id for e in store.events("c1", 998, 1_003)] == list(range(998, 1_003))
    assert [e.id for e in store.events("c1", 2_498)] == [2_498, 2_499]
    assert [e.id for e in store.events("c1", -5, 2)] == [0, 1]
    assert list(store.events("c1", 7, 3)) == []
    assert len(list(store.events("c1", 0, 99_999))) == 2_500


def test_conversations_are_listed_with_version_times_and_head(recorder: Recorder):
    moments = iter(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in range(9))
    store = Store(recorder, clock=lambda: next(moments))
    store.append("c1", said("a"), expected_version=0)
    store.append("c1", said("b"), expected_version=1)
    (listed,) = store.conversations()
    assert (listed.id, listed.version, listed.erased_at) == ("c1", 2, None)
    assert listed.updated_at - listed.created_at == timedelta(hours=1)
    assert len(bytes.fromhex(listed.head)) == hash_chain.HEAD_BYTES


def test_conversations_are_paged(store: Store):
    for n in range(7):
        store.append(f"c{n}", said("a"), expected_version=0)
    page = store.conversations(limit=3)
    rest = store.conversations(after=page[-1].id)
    assert [c.id for c in page + rest] == [f"c{n}" for n in range(7)]


def test_several_conversations_are_read_in_one_transaction(store: Store):
    names = ["t", "t/", "t/a", *(f"t/b{n:03}" for n in range(40)), "t0", "u/b"]
    for name in names:
        store.append(name, [said(name)], expected_version=0)

    def read(moment: Moment) -> tuple[list[str], list[str]]:
        reading = moment.conversation("t")
        assert moment.conversation("t") is reading
        with pytest.raises(ConversationNotFound):
            moment.conversation("t/x")
        found = [each.id for each in moment.beginning_with("t/")]
        assert found == names[2:-2]
        assert [each.id for each in moment.beginning_with("t/b03")] == names[33:43]
        assert list(moment.beginning_with("t/x")) == list(moment.beginning_with("u/b")) == []
        said_there = [
            event.content for name in found for event in moment.conversation(name).events()
        ]  # type: ignore[attr-defined]
        return found, said_there

    found, said_there = query_all(store.database, read)
    assert found == said_there


def test_follow_goes_on_where_it_ended(store: Store):
    store.append("c1", [said("a"), said("b")], expected_version=0)
    first = list(store.follow())
    store.append("c2", said("c"), expected_version=0)
    store.append("c1", said("d"), expected_version=2)
    rest = list(store.follow(first[-1].position))
    assert [(r.conversation, r.id) for r in first + rest] == [
        ("c1", 0),
        ("c1", 1),
        ("c2", 0),
        ("c1", 2),
    ]
    assert list(store.follow(limit=3)) == (first + rest)[:3]
    assert list(store.follow(limit=0)) == []


def test_the_clock_never_runs_backwards_in_a_conversation(recorder: Recorder):
    moments = iter(
        [
            datetime(2026, 1, 2, tzinfo=UTC),
            datetime(2026, 1, 1, tzinfo=UTC),
            datetime(2026, 1, 3, tzinfo=UTC),
        ]
    )
    store = Store(recorder, clock=lambda: next(moments))
    for version in range(3):
        store.append("c1", said("a"), expected_version=version)
    assert [r.recorded_at.day for r in store.follow()] == [2, 2, 3]


def test_heads_chain_every_event_to_those_before_it(recorder: Recorder):
    store = Store(recorder)
    store.append("c1", [said("a"), said("b")], expected_version=0)
    with recorder.read() as reader:
        found = reader.conversation("c1")
        assert found is not None
        rows = as_rows(reader.rows(found.key, 0, 2, 2))
    head = hash_chain.seed("c1", found.salt)
    for row in rows:
        head = hash_chain.link_of(head, found.salt, row)
        assert row.head == head
    assert store.conversations()[0].head == head.hex()


# -- ingest
# --------------------------------------------------------------------------------------------------

HISTORY = [said(str(n), origin=Origin(format="openai-chat", id=n % 3)) for n in range(2_300)]


@pytest.mark.parametrize("size", [1, 999, 1_000, 1_001, 2_300])
def test_an_imported_history_is_there_whole(store: Store, size: int):
    assert store.ingest("c1", iter(HISTORY[:size])) == (size, size)
    assert ids(store, "c1") == list(range(size))
    assert [r.id for r in store.follow()] == list(range(size))


def test_importing_twice_adds_nothing(store: Store):
    store.ingest("c1", HISTORY)
    assert store.ingest("c1", HISTORY) == (0, 2_300)
    assert store.ingest("c1", HISTORY[:10]) == (0, 2_300)


@pytest.mark.parametrize("grown_by", [1, 1_500])
def test_a_grown_source_adds_its_tail(store: Store, grown_by: int):
    store.ingest("c1", HISTORY[:-grown_by])
    assert store.ingest("c1", HISTORY) == (grown_by, 2_300)
    assert ids(store, "c1") == list(range(2_300))


def test_a_source_that_differs_is_refused_and_adds_nothing(store: Store):
    store.ingest("c1", HISTORY[:5])
    with pytest.raises(
        HistoryDiverged, match="has 5 events, and the other history differs from event 3"
    ) as diverged:
        store.ingest("c1", [*HISTORY[:3], said("other"), *HISTORY[4:]])
    assert (diverged.value.event_id, diverged.value.version) == (3, 5)
    assert store.version("c1") == 5


def test_a_conversation_that_went_on_here_does_not_take_a_grown_source(store: Store):
    store.ingest("c1", HISTORY[:5])
    store.append("c1", said("here"), expected_version=5)
    with pytest.raises(HistoryDiverged):
        store.ingest("c1", HISTORY[:6])
    assert store.ingest("c1", HISTORY[:5]) == (0, 6)


@pytest.mark.parametrize("good", [0, 3, 1_700])
def test_a_source_that_breaks_off_leaves_nothing(store: Store, recorder: Recorder, good: int):
    def breaks() -> object:
        yield from HISTORY[:good]
        raise OSError("the disk was pulled out")

    with pytest.raises(OSError, match="pulled out"):
        store.ingest("c1", breaks())  # type: ignore[arg-type]
    assert store.version("c1") == 0
    assert store.conversations() == ()
    with recorder.read() as reader:
        assert staged_keys(reader, "c1") == []


def test_a_history_may_hold_what_an_append_may_not(store: Store):
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


def test_a_history_with_ids_out_of_order_is_refused(store: Store):
    with pytest.raises(InvalidEvent, match="event 1 of the history has id 2"):
        store.ingest("c1", [said("a", id=0), said("b", id=2)])
    assert store.version("c1") == 0


def test_an_empty_history_makes_no_conversation(store: Store):
    assert store.ingest("c1", []) == (0, 0)
    assert store.conversations() == ()


@pytest.mark.parametrize("wrong", [5, None, b"c1"])
def test_what_names_a_conversation_or_an_append_is_a_text(store: Store, wrong: object):
    asked: list[Callable[[], object]] = [
        lambda: store.append(wrong, said("a"), expected_version=0),  # type: ignore[arg-type]
        lambda: store.ingest(wrong, [said("a")]),  # type: ignore[arg-type]
        lambda: store.version(wrong),  # type: ignore[arg-type]
        lambda: store.conversation(wrong),  # type: ignore[arg-type]
    ]
    for ask in asked:
        with pytest.raises(TypeError, match="the id of a conversation must be a text, not"):
            ask()
    if wrong is not None:
        with pytest.raises(TypeError, match="an idempotency key must be a text, not"):
            store.append("c1", said("a"), expected_version=0, idempotency_key=wrong)  # type: ignore[arg-type]
    assert store.conversations() == ()


@pytest.mark.parametrize("wrong", [None, "0", 0.5])
def test_an_expected_version_that_is_none_is_no_conflict_to_try_again(store: Store, wrong: object):
    with pytest.raises(TypeError, match="give a number of events, or ANY_VERSION"):
        store.append("c1", said("a"), expected_version=wrong)  # type: ignore[arg-type]


# -- projections
# --------------------------------------------------------------------------------------------------


class CountsCondensations:
    """An inline projection that keeps how many structural events there were."""

    name = "counts"

    def __init__(self) -> None:
        self.fail = False

    def project(self, snapshot: WriteTransaction, events: object) -> None:
        count = sum(1 for _ in snapshot.structural_events())
        snapshot.put_records("counts", [Record(snapshot.version, 1, b"%d" % count)])
        if self.fail:
            raise RuntimeError("the projection failed")


def test_an_inline_projection_is_written_with_the_structural_events(store: Store):
    store.register(CountsCondensations())
    store.append("c1", said("a"), expected_version=0)
    store.append("c1", [CondensationRequest(), said("b")], expected_version=1)
    store.append("c1", said("c"), expected_version=3)
    with reading(store, "c1") as snapshot:
        assert list(snapshot.records("counts")) == [Record(3, 1, b"1")]
        assert snapshot.version == 4


def test_nothing_is_appended_where_an_inline_projection_fails(store: Store):
    projection = CountsCondensations()
    store.register(projection)
    store.append("c1", CondensationRequest(), expected_version=0)
    projection.fail = True
    with pytest.raises(RuntimeError, match="the projection failed"):
        store.append("c1", CondensationRequest(), expected_version=1)
    assert store.version("c1") == 1
    with reading(store, "c1") as snapshot:
        assert [record.version for record in snapshot.records("counts")] == [1]


def test_of_two_inline_projections_of_one_name_the_last_is_called(store: Store):
    before, after = CountsCondensations(), CountsCondensations()
    before.fail = True
    store.register(before)
    store.register(after)
    store.append("c1", CondensationRequest(), expected_version=0)
    with reading(store, "c1") as snapshot:
        assert len(list(snapshot.records("counts"))) == 1


def test_an_inline_projection_sees_a_staged_import(store: Store):
    store.register(CountsCondensations())
    store.ingest("c1", [*HISTORY[:1_200], CondensationRequest(), *HISTORY[1_201:]])
    with reading(store, "c1") as snapshot:
        assert list(snapshot.records("counts")) == [Record(2_000, 1, b"1")]


def test_a_snapshot_reads_one_moment(store: Store):
    store.append("c1", [said(str(n), shown=n != 2) for n in range(5)], expected_version=0)
    with reading(store, "c1") as snapshot:
        assert [e.id for e in snapshot.shown_events([(0, 2), (4, 9)])] == [0, 1, 4]
        assert [e.id for e in snapshot.events(1, 3)] == [1, 2]
        assert snapshot.head is not None


def test_a_closed_store_says_so(store: Store):
    store.close()
    with pytest.raises(StoreUnusable, match="closed"):
        store.append("c1", said("a"), expected_version=0)


@pytest.mark.parametrize("lost", [0, 3, 9, 1_500])
def test_a_history_with_a_gap_is_never_passed_off_as_whole(tmp_path: Path, lost: int):
    with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        store.append(
            "c1",
            (
                [said(str(n)) for n in range(1_501)]
                if lost == 1_500
                else [said(str(n)) for n in range(11)]
            ),
            expected_version=0,
        )
        store.fork("c1", lost + 1, "fork")
        store.append("c1", said("end"), expected_version=ANY_VERSION)
    with sqlite3.connect(tmp_path / "s.db") as db:
        assert (
            db.execute("DELETE FROM events WHERE id = ? AND conversation > 0", (lost,)).rowcount
            == 1
        )
    db.close()
    with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        for read in (store.events, store.log):
            for name in ("c1", "fork"):
                with pytest.raises(
                    CorruptEvent, match=f"conversation '{name}', event {lost}: it is missing"
                ):
                    list(read(name))  # type: ignore[operator]
        with pytest.raises(CorruptEvent, match=f"conversation 'fork', event {lost}: it is missing"):
            store.append("fork", said("behind what is lost"), expected_version=ANY_VERSION)


def test_a_clock_that_names_no_zone_is_refused(recorder: Recorder):
    store = Store(recorder, clock=lambda: datetime(2026, 1, 2))
    with pytest.raises(
        TypeError, match="what the clock returns is 2026-01-02T00:00:00 and has no time zone"
    ):
        store.append("c1", said("a"), expected_version=0)


def test_the_log_has_the_stores_clock(recorder: Recorder):
    store = Store(recorder, clock=lambda: datetime(2026, 1, 2, tzinfo=UTC))
    store.append("c1", [said("a"), said("b")], expected_version=0)
    assert [(logged.recorded_at.day, logged.event.id) for logged in store.log("c1", 1)] == [(2, 1)]


def test_a_limit_below_zero_is_none_at_all(store: Store):
    for conversation in ("c1", "c2", "c3"):
        store.append(conversation, said("a"), expected_version=0)
    assert store.conversations(limit=-1) == ()
    assert list(store.follow(limit=-1)) == []


@pytest.mark.parametrize("durability", ["Full", "relax", ""])
def test_a_durability_that_does_not_exist_is_refused_not_relaxed(tmp_path: Path, durability: str):
    with pytest.raises(InvalidOption, match="full or relaxed"):
        open_store(f"sqlite:///{tmp_path}/x.db", durability=durability)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url, problem",
    [
        ("sqlite:///:memory:", "for a store in memory, which ends with the process, use 'memory:'"),
        ("sqlite:///x.db?mode=ro&mode=rw", "sets mode twice; leave one of the two out"),
        ("postgresql://h/d?schema=a&schema=b", "sets schema twice; leave one of the two out"),
    ],
)
def test_a_url_with_two_meanings_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, problem: str
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidOption, match=problem):
        open_store(url)
    assert list(tmp_path.iterdir()) == []


def test_a_changed_row_is_named_and_not_read(recorder: Recorder):
    store = Store(recorder)
    for name in ("c1", "other"):
        store.append(name, [said(f"message {n}") for n in range(5)], expected_version=0)
    with recorder.read() as reader:
        found = reader.conversation("c1")
        assert found is not None
        (row,) = as_rows(reader.rows(found.key, 2, 3, 1))
    recorder.transact(
        lambda transaction: transaction.replace_rows(found.key, [row._replace(body=b"{}")])
    )
    (finding,) = (str(finding) for verdict in verify(store) for finding in verdict.findings)
    assert finding.startswith("event 2: its checksum does not match")
    with pytest.raises(CorruptEvent, match="conversation 'c1', event 2:"):
        list(store.events("c1"))
    assert len(list(store.events("other"))) == 5
