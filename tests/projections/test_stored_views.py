"""Views of a store: the same object while nothing happens, any version, and answers to why."""

import sqlite3
from contextlib import closing

import pytest
from msgspec import structs
from msgspec.structs import replace

from foldlog import Histories
from foldlog.eventstore import (
    ANY_VERSION,
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    KeyRing,
    KeyUnavailable,
    Observation,
    Origin,
    ReadTransaction,
    Retraction,
    StoreRefused,
    UnknownEvent,
    UnknownEventType,
    open_store,
    summary_id,
)
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.recorders.types import Record
from foldlog.eventstore.store import bind
from foldlog.projections import (
    NoSuchEvent,
    NoSuchVersion,
    View,
    Views,
    audit,
    views as views_module,
)
from foldlog.projections.stored.loading import StoredPast, fold_log
from foldlog.projections.stored.revision import EMPTY_FOLD
from foldlog.projections.stored.revision_codec import (
    CODE,
    PROJECTION,
    decode_revision,
    encode_revision,
)
from tests.at_once import at_once
from tests.condensers.made import condensed as forget
from tests.golden.rows import rows
from tests.reading import reading
from tests.said import all_said, ids, said
from tests.stored_rows import execute


@pytest.fixture
def store():
    with open_store("memory:") as opened:
        yield opened


@pytest.fixture
def views(store):
    return registered(store)


def registered(store):
    views = Views(store)
    store.register(views)
    return views


def append(store, *events):
    store.append("c", events, expected_version=ANY_VERSION)


def revisions(store):
    with reading(store, "c") as snapshot:
        return list(snapshot.records(PROJECTION))


def versions(store):
    """Return the versions that have a stored revision."""
    return [record.version for record in revisions(store)]


def put(store, *records, replace_all=False):
    store.project(
        "c", lambda writing: writing.put_records(PROJECTION, records, replace_all=replace_all)
    )


def findings(store):
    return [(finding.version, finding.problem) for finding in audit(store, "c").findings]


def test_an_unchanged_view_is_the_same_object(store, views):
    append(store, *all_said("a", "b"))
    view = views.current("c")
    assert views.current("c") is view
    assert views.at("c", version=2) is view
    append(store, *all_said("c"))
    assert ids(views.current("c")) == [0, 1, 2]
    assert ids(view) == [0, 1], "a View that was given out does not change"


def test_a_past_view_begins_at_a_revision_in_memory(store, monkeypatch):
    views = Views(store)
    other = Views(store)
    for first in range(0, 40 * 101, 101):
        append(store, *all_said(*["x"] * 100), forget(*range(first, first + 95)))
    read_from = ReadTransaction.flagged_events
    counts = []

    def counted(reading, spans):
        events = read_from(reading, spans)
        counts.append(len(events))
        return events

    views.current("c")
    monkeypatch.setattr(ReadTransaction, "flagged_events", counted)
    past = views.at("c", 39 * 101)
    assert sum(counts) < 500, "the events of that View, not all events of the log"
    assert ids(past) == ids(other.at("c", 39 * 101))
    assert sum(counts) > 3_000, "without a View in memory, all events are read"


def test_a_past_view_uses_no_erased_revision(store):
    views = Views(store)
    append(store, *all_said("a", "b", "c"), forget(0), *all_said("c"))
    views.current("c")
    erase(store, "c", reason="asked to")
    events = [*all_said("d", "e", "f"), forget(1), *all_said("g", "h")]
    _, bound = bind(store, "c", replaces_erased=True)
    bound.append("c", events, expected_version=0)
    assert ids(views.at("c", 5)) == ids(Views(store).at("c", 5)) == [0, 2, 4]


@pytest.mark.parametrize("mode", ["", "?mode=ro"])
def test_a_read_writes_and_awaits_nothing(tmp_path, mode):
    path = tmp_path / "history.db"
    with open_store(f"sqlite:///{path}") as store:
        append(store, *all_said("a", "b"), forget(0), *all_said("c"))
    before = path.read_bytes()
    with closing(sqlite3.connect(path)) as other, open_store(f"sqlite:///{path}{mode}") as store:
        other.execute("BEGIN IMMEDIATE")
        views = Views(store)
        assert ids(views.current("c")) == ids(views.at("c", 4)) == [1, 3]
        if mode:
            with pytest.raises(StoreRefused):
                views.rebuild("c")
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", [-1, 3])
def test_a_version_that_never_was_is_refused(store, views, version):
    append(store, *all_said("a", "b"))
    with pytest.raises(NoSuchVersion, match=f"has no version {version}; it is at version 2"):
        views.at("c", version)


@pytest.mark.parametrize("version", [1.5, True, "1"])
def test_a_version_that_is_no_whole_number_is_refused(store, views, version):
    append(store, *all_said("a", "b"))
    with pytest.raises(TypeError, match="version must be a whole number"):
        views.at("c", version)


def test_a_retraction_may_follow_missing_revisions(store):
    append(store, *all_said("a", "b", "c"), forget(0), *all_said("d"))
    registered(store)
    append(store, Retraction(version=4))
    assert versions(store) == [4, 6]
    assert ids(Views(store).current("c")) == [1, 2]
    assert findings(store) == []


def test_a_read_never_encrypts_a_conversation(tmp_path):
    url = f"sqlite:///{tmp_path / 'history.db'}"
    with open_store(url) as store:
        append(store, *all_said("a", "b"), forget(0), *all_said("c"))
    keys = KeyRing(["ab" * 32])
    with open_store(url, keys=keys) as store:
        assert ids(Views(store).current("c")) == [1, 3]
    with open_store(url) as store:
        registered(store)
        append(store, forget(1))
        assert (versions(store), findings(store)) == ([3, 5], [])
    with open_store(url, keys=keys) as store:
        append(store, *all_said("d"))
        assert (versions(store), findings(store)) == ([3, 5], [])
    with open_store(url) as store, pytest.raises(KeyUnavailable):
        Views(store).current("c")


def test_an_unknown_structural_event_stops_the_view(store, views):
    pin = UnknownEvent(
        stored_kind="pin", stored_schema=1, body=b'{"kind":"pin"}', is_structural=True
    )
    append(store, *all_said("a", "b"))
    append(store, pin)
    append(store, forget(0))
    with pytest.raises(UnknownEventType, match="event 2 is of kind 'pin'"):
        views.current("c")
    assert ids(views.at("c", 2)) == [0, 1]


def test_others_read_and_write_during_a_rebuild(store, views, monkeypatch):
    for start in range(0, 300, 10):
        append(store, *all_said(*"abcdefghi"), forget(*range(start, start + 8)))
    before = versions(store)
    fold_whole = views_module.fold_whole

    def fold_and_append(reading):
        folded = fold_whole(reading)
        append(store, *all_said("late"), forget(290))
        assert views.current("c").version == 302
        return folded

    put(store, revisions(store)[0]._replace(version=3))
    monkeypatch.setattr(views_module, "fold_whole", fold_and_append)
    assert views.rebuild("c") == 31
    assert versions(store) == [*before, 302]
    assert Views(store).current("c") == View.from_events(store.events("c"))
    assert findings(store) == []


def test_revisions_of_another_fold_are_replaced(store, views):
    append(store, *all_said("a", "b"), forget(0), *all_said("c"), forget(1))
    put(
        store, *(revision._replace(code=2, body=b'{"kept":[0,1]}') for revision in revisions(store))
    )
    views = registered(store)
    assert ids(views.current("c")) == [3]
    append(store, CondensationRequest())
    assert {record.code for record in revisions(store)} == {CODE}
    assert ids(views.at("c", 3)) == [1]


def test_opening_a_view_reads_no_forgotten_event(tmp_path):
    path = tmp_path / "history.db"
    with open_store(f"sqlite:///{path}") as store:
        registered(store)
        append(store, *all_said(*"abcdefghij"))
        append(store, forget(*range(1, 8), summary="b to h", offset=1))
        append(store, *all_said("k"))
    execute(path, "UPDATE events SET body = 'damaged' WHERE id BETWEEN 1 AND 7")
    with open_store(f"sqlite:///{path}") as store:
        assert ids(Views(store).current("c")) == [0, summary_id(10), 8, 9, 11]


# --- why ---


@pytest.fixture
def work(store, views):
    """The Views of a conversation with two condensations."""
    run = Action(tool="run", call_id="x"), Observation(content="done", call_id="x")
    append(store, *all_said("a"), *run, Annotation(name="state"), *all_said("b"))
    append(store, forget(1, 2, summary="it ran", offset=1))
    append(store, *all_said("c"), forget(summary_id(5), 4, summary="it ran, then b", offset=1))
    append(store, Action(tool="run", call_id="y"), *all_said("d"))
    return views


@pytest.mark.parametrize("event_id, fate, reason", rows("settings.json", "why an event is shown"))
def test_why_an_event_is_shown_or_not(work, event_id, fate, reason):
    why = work.why("c", event_id)
    assert [why.fate, why.sent, why.by and why.by.id, why.summary and why.summary.content] == fate
    assert why.reason.endswith(reason)
    assert (
        (why.stands_in is not None) == (why.forgotten_at is not None) == (why.fate == "forgotten")
    )
    assert why.stands_in is None or why.stands_in.content == "it ran, then b"


@pytest.mark.parametrize("event_id", [10, -1, summary_id(0), summary_id(99)])
def test_why_an_event_that_is_not_there(work, event_id):
    with pytest.raises(NoSuchEvent, match=f"has no event {event_id}: its events are 0 to 9;"):
        work.why("c", event_id)


def test_a_difference_names_what_entered_and_left(work):
    difference = work.difference("c", 5, 10)
    assert (difference.before, difference.after) == (5, 10)
    assert ids(difference.entered) == [summary_id(7), 6, 8, 9]
    assert ids(difference.left) == [1, 2, 4]
    summarized = [
        (entry.condensation.id, entry.summary.content, ids(entry.events))
        for entry in difference.summarized
    ]
    assert summarized == [(5, "it ran", [1, 2]), (7, "it ran, then b", [4])]


@pytest.mark.parametrize("format", ["openhands-v0", "openhands-v1"])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_imported_condensation_may_name_any_number(store, views, format, sign):
    numbers = {
        0: said("a"),
        10**30: said("b"),
        1: forget(10**25, 10**30, summary="S", offset=sign * 10**40),
        2: CondensationAction(forgotten_events_start_id=2, forgotten_events_end_id=10**35),
        3: said("c"),
    }
    history = [
        replace(event, origin=Origin(format=format, id=number)) for number, event in numbers.items()
    ]
    store.ingest("c", history)
    for version in range(len(history) + 1):
        assert Views(store).at("c", version) == View.from_events(history[:version])
    assert views.rebuild("c") == 2
    assert findings(store) == []
    if format == "openhands-v0":
        reason = "imported condensation 3 forgot its source id before the event was appended"
        assert views.why("c", 4).reason == reason


# --- audit ---


def test_an_audit_finds_a_revision_until_its_rebuild(store, work):
    first, _ = revisions(store)
    spoilt = first._replace(body=first.body.replace(b"[0,1", b"[0,2"))
    assert spoilt != first
    put(store, spoilt)
    assert findings(store) == [(6, "it differs from the fold of the log")]
    work.rebuild("c")
    assert findings(store) == []


@pytest.mark.usefixtures("work")
def test_an_audit_counts_missing_revisions(
    store,
):
    append(store, forget(0))
    _, second, third = revisions(store)
    spoilt = second._replace(code=CODE + 1)
    put(store, spoilt, third, third._replace(version=9), replace_all=True)
    assert audit(store, "c").missing == 1
    assert findings(store) == [
        (8, f"it was made by version {CODE + 1} of the fold; this is version {CODE}"),
        (9, "the log has no structural event with this version"),
    ]


def test_a_revision_with_changed_bytes_is_unused(tmp_path):
    path = tmp_path / "history.db"
    with open_store(f"sqlite:///{path}") as store:
        registered(store)
        append(store, *all_said("a", "b", "c"), forget(0), forget(1))
    execute(path, "UPDATE records SET body = CAST('{\"kept\":[0]}' AS BLOB) WHERE version = 5")
    with open_store(f"sqlite:///{path}") as store:
        assert findings(store) == [(5, "its bytes were changed after it was stored")]
        assert ids(registered(store).current("c")) == [2]
        append(store, CondensationRequest())
        assert findings(store) == [], "the next structural event stored it again"


@pytest.mark.parametrize(
    "body",
    [
        b'{"kept":[3,-2]}',
        b'{"kept":[0],"summaries":[0,99]}',
        b'{"kept":[0],"summaries":[0,99,0,99,0]}',
        b'{"kept":[0],"summaries":[0,1,0,1,0]}',
        b'{"kept":[0],"summaries":[0,1,0,3,1]}',
        b'{"kept":[0],"register":[1,0,0]}',
        b'{"kept":[0],"register":[1]}',
        b'{"kept":[0,1,1,1,1,1,1,1]}',
        b"[]",
    ],
)
def test_an_invalid_revision_is_replaced(store, body):
    append(store, *all_said("a", "b", "c"), forget(0), *all_said("d"))
    put(store, Record(4, CODE, body))
    assert [version for version, _ in findings(store)] == [4]
    assert ids(Views(store).current("c")) == [1, 2, 4]
    assert ids(Views(store).at("c", 4)) == [1, 2]


@pytest.mark.parametrize("field", ["summaries", "register"])
def test_a_revision_that_names_a_missing_condensation_is_replaced(store, views, field):
    append(store, *all_said("a", "b", "c"), forget(0, summary="a", offset=0), *all_said("d"))
    assert ids(views.current("c")) == [summary_id(3), 1, 2, 4]
    (record,) = revisions(store)
    sound = decode_revision(record)
    assert sound.summaries == (3,)
    others = {"summaries": {"summaries": (2,)}, "register": {"register": (1, 0)}}
    put(store, encode_revision(record.version, structs.replace(sound, **others[field])))
    assert [version for version, _ in findings(store)] == [record.version]
    view = Views(store).current("c")
    assert ids(view) == [summary_id(3), 1, 2, 4]
    assert view == View.from_events(store.events("c"))


def test_many_threads_share_one_views(tmp_path):
    with open_store(f"sqlite:///{tmp_path}/history.db") as store:
        views = registered(store)
        append(store, *all_said("a"))
        failures = []

        def work(thread):
            for n in range(20):
                (recorded,) = store.append(
                    "c", all_said(f"{thread}.{n}"), expected_version=ANY_VERSION
                )
                if n % 5 == 4:
                    append(store, forget(recorded.event.id))
                view = views.current("c")
                if view != View.from_events(list(store.events("c", 0, view.version))):
                    failures.append(view)

        at_once(work, range(4))
        assert failures == []
        assert findings(store) == []


def test_a_log_is_folded_in_growing_chunks(store):
    """Each chunk copies the View, so chunks of one size would cost the square of the history."""
    store.ingest("c", iter(all_said("word") * 5_000))
    with reading(store, "c") as snapshot:
        past = StoredPast(snapshot)
        chunks = [
            folded.version for folded, _ in fold_log(snapshot, EMPTY_FOLD, snapshot.version, past)
        ]
    assert chunks == [1_000, 2_000, 3_000, 4_500, 5_000], "a chunk is half as large as all before"


# --- Views that go on in memory, behind what the store has ---


def test_view_that_goes_on_in_memory_has_the_past_of_its_store(store, views):
    """Retractions in memory return to what is in the store, and to what is not."""
    append(store, *all_said("a", "b"))
    append(store, CondensationAction(forgotten_event_ids=[0], summary="so far", summary_offset=0))
    append(store, *all_said("c"))
    view = views.current("c")
    later = [
        *all_said("d", "e"),
        Retraction(version=2),
        *all_said("f"),
        Retraction(version=5),
        Retraction(version=7),
        Retraction(version=1),
        Retraction(version=4),
    ]
    for number in range(1, len(later) + 1):
        grown = view
        for event in later[:number]:
            grown = grown.then([event])
        at_once = view.then(later[:number])
        append(store, later[number - 1])
        expected = views.current("c")
        for each in (grown, at_once):
            assert ids(each) == ids(expected)
            assert each.version == expected.version
            assert ids(each.condensations) == ids(expected.condensations)
            past = each.state.past
            assert (past.conversation, past.key) == ("c", view.state.past.key)
            assert ids(past.events(0, 9)) == list(range(min(9, each.version)))
            assert ids(past.events(3, 5)) == [3, 4]


def test_condensations_of_a_stored_view_are_equal_to_a_list(store, views):
    append(store, *all_said("a", "b", "c"))
    append(store, CondensationAction(forgotten_event_ids=[0]))
    condensations = views.current("c").condensations
    (first,) = condensations
    append(store, CondensationAction(forgotten_event_ids=[1]))
    both = views.current("c").condensations
    assert condensations == [first]
    assert (condensations == [both[1]], condensations == [*both], condensations == 7) == (
        False,
        False,
        False,
    )
    assert both[0] == first
    assert both[:1] == (first,)


def test_document_of_a_view_that_goes_on_in_memory(store, views):
    Histories(store).create("c", {"user": "ann"})
    view = views.current("c").then(all_said("a"))
    assert view.state.past.document("attributes") == {"user": "ann"}
    assert view.state.past.document("other") is None


def test_the_view_that_was_changed_last_stays_in_memory(store, views, monkeypatch):
    monkeypatch.setattr(views_module, "_REMEMBERED", 2)
    for name in ("a", "b"):
        store.append(name, said("zero"), expected_version=0)
        views.current(name)
    other = Views(store)
    store.append("a", CondensationRequest(), expected_version=1)
    changed = views.current("a")
    before = views.current("b")
    store.append("a", said("one"), expected_version=2)
    changed = views.current("a")
    store.append("c", said("zero"), expected_version=0)
    views.current("c")
    assert views.current("a") is changed
    assert views.current("b") is not before
    assert views.current("b") == other.current("b") == before


def test_large_views_are_forgotten_except_the_newest(store, monkeypatch):
    views = Views(store)
    for name in ("small", "large", "larger", "last"):
        store.append(name, said("x" * (10 if name == "small" else 4_000)), expected_version=0)
    remembered = []
    monkeypatch.setattr(views_module, "_REMEMBERED_BYTES", 9_500)
    for name in ("small", "large", "larger", "last"):
        views.current(name)
        remembered.append([*views._latest])
    assert remembered == [
        ["small"],
        ["small", "large"],
        ["small", "large", "larger"],
        ["larger", "last"],
    ]
    monkeypatch.setattr(views_module, "_REMEMBERED_BYTES", 5)
    view = views.current("small")
    assert [*views._latest] == ["small"]
    assert views.current("small") is view
