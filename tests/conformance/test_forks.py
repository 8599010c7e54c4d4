"""Forks on every recorder: a fork shares the events of its parent up to a version, and has later
events of its own.
"""

from functools import partial

import pytest

from foldlog.eventstore import (
    CondensationAction,
    ConversationErased,
    ConversationHasForks,
    ConversationNotFound,
    Documents,
    Entry,
    InvalidArgument,
    Store,
    VersionConflict,
)
from foldlog.eventstore.log import ledger
from foldlog.eventstore.maintenance import erase as detachment
from foldlog.eventstore.maintenance.copy import copy_store
from foldlog.eventstore.proof.checkpoint import make_checkpoint
from foldlog.eventstore.proof.comparison import verify_against
from foldlog.eventstore.recorders import base
from foldlog.projections import Views
from tests.at_once import at_once
from tests.conformance.conftest import ENCRYPTS
from tests.privacy import erased
from tests.reading import reading
from tests.said import ids, say, texts
from tests.sound import assert_sound


@pytest.fixture
def store(settings, open_recorder):
    """A store with one conversation of ten events."""
    store = Store(open_recorder(), settings)
    say(store, "c", *"0123456789")
    return store


@pytest.fixture
def family(store):
    """The same with a fork at event 6, ``f``, and a fork of that one, ``g``."""
    store.fork("c", 6, "f")
    say(store, "f", "own")
    store.fork("f", 7, "g")
    return store


def followed(store, position=0):
    """Return the events that a follower reads after a position, without entries of the ledger."""
    return [
        (entry.conversation, entry.id)
        for entry in store.follow(position)
        if not isinstance(entry.event, Entry)
    ]


def test_the_parent_of_a_forks_fork(store):
    store.fork("c", 6, "f")
    say(store, "f", "f6", "f7")
    assert store.fork("f", 7, "g").parent == "f"
    assert store.fork("f", 6, "h").parent == "c"
    assert store.fork("g", 3, "i").parent == "c"
    assert texts(store, "g") == [*"012345", "f6"]
    assert texts(store, "i") == [*"012"]


def test_each_fork_and_each_key_is_on_one_page(store, monkeypatch):
    monkeypatch.setattr(base, "_ROWS", 2)
    names = [f"fork {number}" for number in range(5)]
    for name in reversed(names):
        store.fork("c", 3, name)
    for number in range(5):
        say(store, "c", "x", idempotency_key=f"k{number}")

    def read(reader):
        key = reader.conversation("c").key
        forks = [fork.id for fork in reader.living_forks(key)]
        return forks, [first_id for _, (first_id, *_) in reader.all_recalled(key)]

    forks, first_ids = store.database.recorder.query(read)
    assert forks == names
    assert sorted(first_ids) == [10, 11, 12, 13, 14]


def test_a_parent_is_not_erased_alone(family):
    store = family
    with pytest.raises(ConversationHasForks, match=r"has a fork that needs .*'f'") as refused:
        erased(store, "c")
    assert refused.value.forks == ("f",)
    assert texts(store, "g") == [*"012345", "own"]
    erased(store, "c", with_forks=True)
    for name in "cfg":
        with pytest.raises(ConversationErased):
            store.events(name)
    assert_sound(store)


def test_forks_are_hidden_together_with_an_expected_conversation(family, monkeypatch):
    store = family
    refused = []
    delete = detachment._delete_rows

    def append_and_delete(database, conversation):
        with pytest.raises(ConversationErased):
            say(store, "c", "too late")
        refused.append(conversation)
        delete(database, conversation)

    monkeypatch.setattr(detachment, "_delete_rows", append_and_delete)
    row = store.conversation("c")
    say(store, "c", "later")
    with pytest.raises(VersionConflict):
        erased(store, "c", with_forks=True, expected=row)
    assert not refused
    assert texts(store, "g") == [*"012345", "own"]
    row = store.conversation("c")
    assert erased(store, "c", with_forks=True, expected=row).erased_at is not None
    assert refused == ["g", "f", "c"]
    for name in "cfg":
        with pytest.raises(ConversationErased):
            store.events(name)
    assert_sound(store)


def test_detached_forks_keep_events_and_heads(store):
    views = Views(store)
    store.register(views)
    condensation = CondensationAction(forgotten_event_ids=(1, 2), summary="s", summary_offset=1)
    store.append("c", condensation, expected_version=10)
    store.fork("c", 11, "f")
    say(store, "f", "own")
    store.fork("f", 12, "g")
    store.fork("c", 4, "h")

    def state():
        return [(list(store.events(name)), store.conversation(name).head) for name in "fgh"]

    before = state()
    shown = ids(views.current("g"))
    note = make_checkpoint(store)
    receipt = erased(store, "c", detach_forks=True)
    reason = "asked for; copies kept by forks: 'f' events 0 to 10, 'h' events 0 to 3"
    assert receipt.erased_reason == reason
    assert state() == before
    assert ids(Views(store).current("g")) == shown
    assert store.conversation("f").parent is None
    assert store.conversation("g").parent == "f"
    for name in "fgh":
        say(store, name, "on")
    assert [verdict.findings for verdict in verify_against(store, note)] == [()] * 5
    taken_over = [*(("f", number) for number in range(11)), *(("h", number) for number in range(4))]
    assert followed(store) == [("f", 11), *taken_over, ("f", 12), ("g", 12), ("h", 4)]


def test_a_detached_fork_keeps_its_documents(store, monkeypatch):
    documents = Documents(store)
    documents.append("c", (), {"early": 1})
    documents.append("c", (), {"late": 2})
    monkeypatch.setattr(detachment, "_CHUNK", 11)
    store.fork("c", 12, "f")
    step = partial(detachment._copy_on, database=store.database, fork="f")
    # After this first step, the copied events have only the early document.
    assert store.database.recorder.transact(step) is True
    documents.append("f", (), {"own": 3})
    erased(store, "c", detach_forks=True)
    assert documents.all("f") == {"early": 1, "late": 2, "own": 3}


def origins(store, conversation):
    with reading(store, conversation) as read:
        return [*map(tuple, read.origins())]


def test_forks_know_whose_events_they_have(family, open_recorder, monkeypatch):
    monkeypatch.setattr(ledger, "_PAGE", 1)
    both = [("c", 6), ("f", 7)]
    assert [origins(family, name) for name in "cfg"] == [[], both[:1], both]
    target = Store(open_recorder(), ENCRYPTS)
    assert next(copy_store(family, target, "g")).problem is None
    target.fork("g", 2, "h")
    assert [origins(target, name) for name in "gh"] == [both, [*both, ("g", 2)]]
    assert texts(target, "g") == texts(family, "g")
    assert_sound(target)
    erased(family, "c", detach_forks=True)
    assert [origins(family, name) for name in "fg"] == [both[:1], both]
    erased(family, "f", detach_forks=True)
    assert origins(family, "g") == both


def test_what_cannot_be_forked_is_refused(store):
    for at in (0, 11, -1):
        with pytest.raises(InvalidArgument, match=r"forked at .*use a version from 1 to 10"):
            store.fork("c", at, "f")
    with pytest.raises(ConversationNotFound):
        store.fork("nowhere", 1, "f")
    store.fork("c", 1, "f")
    with pytest.raises(VersionConflict):
        store.fork("c", 1, "f")
    erased(store, "f", complete=False)
    with pytest.raises(ConversationErased):
        store.fork("c", 1, "f")
    with pytest.raises(ConversationErased):
        store.fork("f", 1, "g")


def test_forks_and_appends_at_once_disturb_nobody(store):
    store.fork("c", 10, "f0")

    def go_on(number):
        name = f"f{number}"
        store.fork("c", 10, name)
        for n in range(5):
            say(store, name, f"{name} {n}")
            say(store, "c", name)

    at_once(go_on, range(1, 5))
    for number in range(1, 5):
        assert texts(store, f"f{number}") == [*"0123456789", *(f"f{number} {n}" for n in range(5))]
    assert store.version("c") == 30
    assert_sound(store)


def test_forks_sharing_an_event_are_named(family):
    store = family
    store.fork("c", 2, "h")
    store.fork("c", 8, "gone")
    erased(store, "gone")
    sharing = {1: ["f", "g", "h"], 2: ["f", "g"], 6: [], -4: ["f", "g"]}  # -4: the summary of 2
    for event_id, forks in sharing.items():
        assert store.forks_sharing("c", event_id) == forks
    assert store.forks_sharing("f", 6) == ["g"]
    with pytest.raises(ConversationErased):
        store.forks_sharing("gone", 0)
