"""Forks on every recorder: they read their parent's events up to the border, and go on by
themselves.
"""

from __future__ import annotations

import contextlib
from functools import partial

import pytest
from pydantic import SecretStr

from foldlog.eventstore import (
    ANY_VERSION,
    CondensationAction,
    ConversationErased,
    ConversationHasForks,
    ConversationNotFound,
    Detached,
    Entry,
    Erased,
    Forked,
    InvalidArgument,
    Message,
    Store,
    VersionConflict,
)
from foldlog.eventstore.documents.changes import Documents
from foldlog.eventstore.log import importing
from foldlog.eventstore.log.keys import KeyRing
from foldlog.eventstore.log.row import link_of
from foldlog.eventstore.log.seal import WriteSettings
from foldlog.eventstore.maintenance import erase as detachment
from foldlog.eventstore.maintenance.copy import compare_stores, copy_store
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.maintenance.verify import Published, verify
from foldlog.projections import Views
from tests.at_once import at_once
from tests.conformance.conftest import RECORDERS, OpenRecorder
from tests.reading import reading
from tests.said import said
from tests.simulation.run import worlds

UNFINISHED = "its erasure is not complete; run 'foldlog store vacuum' to complete it"
KEYS = KeyRing([SecretStr("5c" * 32)])


@pytest.fixture
def store(open_recorder: OpenRecorder) -> Store:
    """A store with one conversation of ten events."""
    return begun(open_recorder, None)


@pytest.fixture(params=[None, KEYS], ids=["plain", "encrypted"])
def any_store(request: pytest.FixtureRequest, open_recorder: OpenRecorder) -> Store:
    """The same, plain and encrypted."""
    return begun(open_recorder, request.param)


def begun(open_recorder: OpenRecorder, keys: KeyRing | None) -> Store:
    store = Store(open_recorder(), WriteSettings(keys=keys))
    store.append("c", [said(f"{n}") for n in range(10)], expected_version=0)
    return store


def texts(store: Store, conversation: str) -> list[str]:
    return [event.content for event in store.events(conversation) if isinstance(event, Message)]


def test_a_fork_shares_the_past_and_goes_on_by_itself(store: Store):
    row = store.fork("c", 6, "f")
    assert (row.id, row.version, row.parent, row.parent_version) == ("f", 6, "c", 6)
    store.append("c", said("parent's"), expected_version=10)
    (recorded,) = store.append("f", said("fork's"), expected_version=6)
    assert recorded.id == 6
    assert texts(store, "f") == [*"012345", "fork's"]
    assert texts(store, "c") == [*"0123456789", "parent's"]
    assert [(each.conversation, each.id) for each in store.follow()][-2:] == [("c", 10), ("f", 6)]


def test_a_fork_has_keys_and_versions_of_its_own(store: Store):
    store.append("c", said("once"), expected_version=10, idempotency_key="k")
    store.fork("c", 11, "f")
    (recorded,) = store.append("f", said("other"), expected_version=11, idempotency_key="k")
    assert recorded.id == 11
    with pytest.raises(VersionConflict, match="is at version 12"):
        store.append("f", said("stale"), expected_version=11)


def test_the_first_event_of_a_fork_follows_the_head_that_it_left(store: Store):
    store.fork("c", 6, "f")
    with reading(store, "c") as read:
        last, salt = read.rows(5, 6, 1)[0], read.salt
    assert store.conversation("f").head == last.head.hex()
    store.append("f", said("own"), expected_version=6)
    with reading(store, "f") as read:
        assert read.salt == salt
        (row,) = read.rows(6, 7, 1)
    assert row.head == link_of(last.head, salt, row)


def test_a_published_head_of_a_fork_is_verified_across_the_border(store: Store):
    store.fork("c", 6, "f")
    store.append("f", said("own"), expected_version=6)
    heads = [
        Published(row.version, bytes.fromhex(row.head))
        for row in store.conversations()
        if row.id == "f"
    ]
    (verdict,) = verify(store, "f", published={"f": heads})
    assert verdict.findings == ()
    (verdict,) = verify(store, "f", published={"f": [Published(3, b"\0" * 32)]})
    assert "at version 3 its head differs from the published head" in str(verdict.findings[0])


def test_a_fork_of_a_fork_belongs_to_the_one_that_holds_its_last_event(store: Store):
    store.fork("c", 6, "f")
    store.append("f", [said("f6"), said("f7")], expected_version=6)
    assert store.fork("f", 7, "g").parent == "f"
    assert store.fork("f", 6, "h").parent == "c"
    assert store.fork("g", 3, "i").parent == "c"
    assert texts(store, "g") == [*"012345", "f6"]
    assert texts(store, "i") == [*"012"]


def test_a_view_of_a_fork_is_that_of_its_events(any_store: Store):
    store = any_store
    views = Views(store)
    store.register(views)
    store.append(
        "c",
        CondensationAction(forgotten_event_ids=(1, 2), summary="s", summary_offset=1),
        expected_version=10,
    )
    store.fork("c", 11, "f")
    store.append(
        "f", [said("own"), CondensationAction(forgotten_event_ids=(4, 11))], expected_version=11
    )
    assert [event.id for event in views.current("f")] == [0, -12, 3, 5, 6, 7, 8, 9]
    assert [event.id for event in Views(store).at("f", 11)] == [
        event.id for event in Views(store).current("c")
    ]
    assert [event.id for event in Views(store).at("f", 7)] == list(range(7))


def test_a_conversation_with_forks_is_not_erased_alone(store: Store):
    store.fork("c", 6, "f")
    store.append("f", said("own"), expected_version=6)
    store.fork("f", 7, "g")
    with pytest.raises(ConversationHasForks, match=r"has a fork that needs .*'f'") as refused:
        erase(store, "c", reason="asked for")
    assert refused.value.forks == ("f",)
    assert texts(store, "g") == [*"012345", "own"]
    erase(store, "c", reason="asked for", with_forks=True)
    for each in "cfg":
        with pytest.raises(ConversationErased):
            store.events(each)
    assert [verdict.findings for verdict in verify(store)] == [()] * 4


def test_an_interrupted_erasure_with_forks_is_finished_when_it_is_run_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    store.fork("c", 6, "f")
    store.append("f", [said("own"), said("own too")], expected_version=6)

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(importing, "CHUNK", 1)
        patched.setattr(importing.time, "sleep", interrupted)
        with contextlib.suppress(KeyboardInterrupt):
            erase(store, "c", reason="asked for", with_forks=True)
    assert [finding.problem for verdict in verify(store) for finding in verdict.findings] == [
        UNFINISHED
    ]
    erase(store, "c", reason="asked for", with_forks=True)
    assert [verdict.findings for verdict in verify(store)] == [()] * 3


def test_a_detached_fork_keeps_its_events_and_heads_when_its_parent_is_erased(any_store: Store):
    store = any_store
    views = Views(store)
    store.register(views)
    store.append(
        "c",
        CondensationAction(forgotten_event_ids=(1, 2), summary="s", summary_offset=1),
        expected_version=10,
    )
    store.fork("c", 11, "f")
    store.append("f", said("own"), expected_version=11)
    store.fork("f", 12, "g")
    store.fork("c", 4, "h")
    before = {name: (list(store.events(name)), store.conversation(name).head) for name in "fgh"}
    shown = [event.id for event in views.current("g")]
    receipt = erase(store, "c", reason="asked for", detach_forks=True)
    assert (
        receipt.erased_reason
        == "asked for; forks kept a part then: 'f' events 0 to 10, 'h' events 0 to 3"
    )
    assert {
        name: (list(store.events(name)), store.conversation(name).head) for name in "fgh"
    } == before
    assert [event.id for event in Views(store).current("g")] == shown
    assert store.conversation("f").parent is None
    assert store.conversation("g").parent == "f"
    for name in "fgh":
        store.append(name, said("on"), expected_version=len(before[name][0]))
    heads = {
        name: [Published(len(events), bytes.fromhex(head))]
        for name, (events, head) in before.items()
    }
    assert [verdict.findings for verdict in verify(store, published=heads)] == [()] * 5
    followed = [
        (each.conversation, each.id) for each in store.follow() if not isinstance(each.event, Entry)
    ]
    taken_over = [*(("f", each) for each in range(11)), *(("h", each) for each in range(4))]
    assert followed == [("f", 11), *taken_over, ("f", 12), ("g", 12), ("h", 4)]


def test_a_follower_reads_the_events_that_a_detached_fork_takes_over_once(
    any_store: Store, monkeypatch: pytest.MonkeyPatch
):
    store = any_store
    monkeypatch.setattr(detachment, "_CHUNK", 3)
    store.fork("c", 6, "f")
    *_, newest = store.follow()
    stop = newest.position
    erase(store, "c", reason="asked for", detach_forks=True)
    *taken_over, detached, erased = store.follow(stop)
    assert detached.event == Detached(parent="c", version=6, id=6, timestamp=detached.recorded_at)
    assert [(each.conversation, each.event) for each in taken_over] == [
        ("f", each) for each in store.events("f")
    ]
    assert [each.recorded_at for each in taken_over] == [
        each.recorded_at for each in store.log("f")
    ]
    assert isinstance(erased.event, Erased)
    store.append("f", said("own"), expected_version=6)
    assert [(each.conversation, each.id) for each in store.follow(erased.position)] == [("f", 6)]
    position = stop
    # one at a time, as a follower that is stopped after every event
    for each in store.follow(stop):
        (one,) = store.follow(position, limit=1)
        assert one == each
        position = one.position
    assert [verdict.findings for verdict in verify(store)] == [()] * 3
    erase(store, "f", reason="asked for")
    assert [type(each.event) for each in store.follow()] == [Forked, Detached, Erased, Erased]
    assert [verdict.findings for verdict in verify(store)] == [()] * 3


def test_a_detachment_that_was_stopped_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(detachment, "_CHUNK", 3)
    store.fork("c", 10, "f")
    step = partial(detachment._copy_on, database=store.database, fork="f")
    assert store.database.recorder.transact(step) is True
    assert texts(store, "f") == list("0123456789")
    store.append("f", said("own"), expected_version=10)
    assert [verdict.findings for verdict in verify(store)] == [()] * 3
    erase(store, "c", reason="asked for", detach_forks=True)
    assert texts(store, "f") == [*"0123456789", "own"]
    assert [verdict.findings for verdict in verify(store)] == [()] * 3


def test_a_fork_keeps_its_documents_while_it_is_detached(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    documents = Documents(store)
    documents.append("c", (), {"early": 1})
    documents.append("c", (), {"late": 2})
    monkeypatch.setattr(detachment, "_CHUNK", 11)
    store.fork("c", 12, "f")
    step = partial(detachment._copy_on, database=store.database, fork="f")
    assert store.database.recorder.transact(step) is True  # the copies have the early one alone
    documents.append("f", (), {"own": 3})
    erase(store, "c", reason="asked for", detach_forks=True)
    assert documents.all("f") == {"early": 1, "late": 2, "own": 3}


def test_a_fork_is_copied_with_its_past_and_its_head(any_store: Store, open_recorder: OpenRecorder):
    store = any_store
    keys = None if store.database.settings.keys else KEYS
    store.fork("c", 6, "f")
    store.append("f", said("own"), expected_version=6)
    store.fork("f", 7, "g")
    target = Store(open_recorder(), WriteSettings(keys=keys))
    assert [moved.problem for moved in copy_store(store, target)] == [None] * 3
    assert list(compare_stores(store, target)) == []
    store.append("g", said("later"), expected_version=7)
    assert sorted(moved.added for moved in copy_store(store, target)) == [0, 0, 1]
    assert texts(target, "g") == [*"012345", "own", "later"]
    target.fork("g", 3, "h")
    again = Store(open_recorder(), WriteSettings())
    assert [moved.problem for moved in copy_store(target, again)] == [None] * 4
    for each in (target, again):
        each.append("g", said("own"), expected_version=8)
        assert [verdict.findings for verdict in verify(each)] == [()] * 5


def origins(store: Store, conversation: str) -> list[tuple[str, int]]:
    with reading(store, conversation) as read:
        return [*map(tuple, read.origins())]


def test_a_fork_knows_whose_events_it_has(any_store: Store, open_recorder: OpenRecorder):
    store = any_store
    store.fork("c", 6, "f")
    store.append("f", said("own"), expected_version=6)
    store.fork("f", 7, "g")
    both = [("c", 6), ("f", 7)]
    assert (origins(store, "c"), origins(store, "f"), origins(store, "g")) == ([], both[:1], both)
    target = Store(open_recorder(), WriteSettings(keys=KEYS))
    copy_store(store, target, "g").__next__()
    target.fork("g", 2, "h")
    assert (origins(target, "g"), origins(target, "h")) == (both, [*both, ("g", 2)])
    erase(store, "c", reason="asked for", detach_forks=True)
    assert (origins(store, "f"), origins(store, "g")) == (both[:1], both)
    store.append("g", said("later"), expected_version=7)
    erase(store, "f", reason="asked for", detach_forks=True)
    assert origins(store, "g") == both


def test_forks_and_copies_of_forks_are_rekeyed(store: Store, open_recorder: OpenRecorder):
    store.fork("c", 6, "f")
    store.append("f", said("own"), expected_version=6)
    store.fork("f", 7, "g")
    copy = Store(open_recorder())
    assert [moved.problem for moved in copy_store(store, copy)] == [None] * 3
    for plain in (store, copy):
        heads = {row.id: row.head for row in plain.conversations()}
        keyed = Store(plain.database.recorder, WriteSettings(keys=KEYS))
        for changed in (rekey(keyed), rekey(keyed, decrypt=True), rekey(keyed)):
            assert [(each.problem, each.damaged) for each in changed] == [(None, ())] * 3
            assert {row.id: row.head for row in keyed.conversations()} == heads
            assert texts(keyed, "g") == [*"012345", "own"]
            assert [verdict.findings for verdict in verify(keyed)] == [()] * 4


def test_what_cannot_be_forked_is_refused(store: Store):
    for at in (0, 11, -1):
        with pytest.raises(InvalidArgument, match=r"has 10 events .* use 1 to 10"):
            store.fork("c", at, "f")
    with pytest.raises(ConversationNotFound):
        store.fork("nowhere", 1, "f")
    store.fork("c", 1, "f")
    with pytest.raises(VersionConflict):
        store.fork("c", 1, "f")
    erase(store, "f", reason="asked for", complete=False)
    with pytest.raises(ConversationErased):
        store.fork("c", 1, "f")
    with pytest.raises(ConversationErased):
        store.fork("f", 1, "g")


def test_forks_and_appends_at_once_disturb_nobody(store: Store):
    store.fork("c", 10, "f0")

    def go_on(number: int) -> None:
        name = f"f{number}"
        store.fork("c", 10, name)
        for n in range(5):
            store.append(name, said(f"{name} {n}"), expected_version=10 + n)
            store.append("c", said(name), expected_version=ANY_VERSION)

    at_once(go_on, range(1, 5))
    for number in range(1, 5):
        assert texts(store, f"f{number}") == [*"0123456789", *(f"f{number} {n}" for n in range(5))]
    assert store.version("c") == 30
    assert all(verdict.findings == () for verdict in verify(store))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("recorder", RECORDERS)
def test_random_operations_answer_as_a_tree_of_lists_does(
    recorder: str, request: pytest.FixtureRequest
):
    """``tests/simulation`` has the tree, and takes more steps."""
    database = request.getfixturevalue("postgres_url") if recorder == "postgresql" else None
    _, failures = worlds(2, 60, float("inf"), recorder, database, on_all=False)
    assert [(failed.seed, failed.label, failed.detail) for failed in failures] == []


def test_the_forks_that_share_an_event_are_named(store: Store):
    store.fork("c", 6, "f")
    store.append("f", said("own"), expected_version=6)
    store.fork("f", 7, "g")
    store.fork("c", 2, "h")
    store.fork("c", 8, "gone")
    erase(store, "gone", reason="asked for")
    assert [store.forks_sharing("c", event_id) for event_id in (1, 2, 6)] == [
        ["f", "g", "h"],
        ["f", "g"],
        [],
    ]
    assert store.forks_sharing("c", -4) == ["f", "g"], "the summary of condensation 2"
    assert store.forks_sharing("f", 6) == ["g"]
    with pytest.raises(ConversationErased):
        store.forks_sharing("gone", 0)
