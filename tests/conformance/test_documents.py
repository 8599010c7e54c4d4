"""Documents beside a conversation, on every recorder: newest values, any version, in one
transaction with events.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest
from pydantic import SecretStr

from foldlog.eventstore import (
    ANY_VERSION,
    ATTRIBUTES,
    DELETED,
    CannotRedact,
    ConversationErased,
    ConversationNotFound,
    DocumentChanges,
    Documents,
    DocumentsChanged,
    IdempotencyConflict,
    InvalidEvent,
    KeyRing,
    Store,
    VersionConflict,
    open_store,
)
from foldlog.eventstore.documents.values import CHAIN_MAX
from foldlog.eventstore.inside import Generation
from foldlog.eventstore.log.seal import WriteSettings
from foldlog.eventstore.maintenance.copy import copy_store
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.redact import redact
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.recorders.base import Recorder
from foldlog.projections import Views
from tests.at_once import at_once
from tests.said import said


@pytest.fixture
def documents(store: Store) -> Documents:
    return Documents(store)


def test_values_come_with_events_and_any_version_is_there(store: Store, documents: Documents):
    recorded = documents.append(
        "c1", [said("a"), said("b")], {"state": {"turn": 1, "log": ["a"]}, "title": "first"}
    )
    assert [type(one.event).__name__ for one in recorded] == [
        "Message",
        "Message",
        "DocumentChanges",
    ]
    documents.append("c1", said("c"), {"state": {"turn": 2, "log": ["a", "c"]}})
    documents.append("c1", (), {"title": DELETED, "more": None})
    assert documents.all("c1") == {"state": {"turn": 2, "log": ["a", "c"]}, "more": None}
    assert documents.get("c1", "title", "gone") == "gone"
    assert documents.get("c1", "more", "there") is None
    assert documents.all("c1", version=5) == {
        "state": {"turn": 2, "log": ["a", "c"]},
        "title": "first",
    }
    assert documents.all("c1", version=4) == {"state": {"turn": 1, "log": ["a"]}, "title": "first"}
    assert documents.all("c1", version=2) == {}
    assert [event.content for event in Views(store).current("c1")] == ["a", "b", "c"]  # type: ignore[union-attr]
    assert not any(verdict.findings for verdict in verify(store))


def test_what_stays_the_same_adds_nothing(store: Store, documents: Documents):
    documents.append("c1", (), {"n": 1, "gone": DELETED})
    assert documents.append("c1", (), {"n": 1}) == ()
    assert store.version("c1") == 1
    assert len(documents.append("c1", said("a"), {"n": 1})) == 1
    assert len(documents.append("c1", (), {"n": 1.0})) == 1
    assert len(documents.append("c1", (), {"n": True})) == 1
    assert documents.get("c1", "n") is True
    with pytest.raises(VersionConflict):
        documents.append("c1", (), {"n": True}, expected_version=1)


def test_a_small_change_of_a_large_value_is_a_small_event(store: Store, documents: Documents):
    state: dict[str, Any] = {"usage": [{"tokens": n} for n in range(500)], "name": "agent"}
    documents.append("c1", (), {"state": state})
    for turn in range(CHAIN_MAX + 3):
        state["usage"].append({"tokens": turn})
        (recorded,) = documents.append("c1", (), {"state": state})
        assert isinstance(recorded.event, DocumentChanges)
        whole = "value" in recorded.event.changed["state"]
        assert whole == (turn == CHAIN_MAX)
        assert documents.get("c1", "state") == Documents(store).get("c1", "state") == state
    assert Documents(store).get("c1", "state", version=11)["usage"][-1] == {"tokens": 9}


def test_a_value_belongs_to_its_owner(documents: Documents):
    state = {"list": [1]}
    documents.append("c1", (), {"state": state})
    state["list"].append(2)
    read = documents.get("c1", "state")
    assert read == {"list": [1]}
    read["list"].append(3)
    documents.append("c1", (), {"other": 1})
    assert documents.get("c1", "state") == {"list": [1]}


@pytest.mark.parametrize(
    "value", [{1: "a"}, (1, 2), {"a": {1, 2}}, float("nan"), {"a": bytearray(b"bytes")}, object()]
)
def test_what_json_cannot_hold_is_refused(store: Store, documents: Documents, value: object):
    with pytest.raises(InvalidEvent, match="document 'state' has a value that JSON cannot hold"):
        documents.append("c1", said("a"), {"state": value})
    assert store.version("c1") == 0


def test_lone_surrogates_and_long_numbers_are_kept(store: Store, documents: Documents):
    value = {"a": "\ud800", "n": 10**30, "nul": "\0"}
    documents.append("c1", (), {"state": value})
    documents.append("c1", (), {"state": {**value, "b": 1}})
    assert Documents(store).get("c1", "state") == {**value, "b": 1}


def test_two_halves_of_a_surrogate_pair_become_one_character(store: Store, documents: Documents):
    halves = "\ud83d" + "\ude00"
    for name in ("state", ATTRIBUTES):
        documents.append("c1", (), {name: {"a": halves}})
        assert documents.append("c1", (), {name: {"a": halves}}) == ()
        assert documents.get("c1", name) == {"a": "😀"}
    documents.append("c1", (), {halves: {"a": 1}})
    assert documents.get("c1", "😀") == {"a": 1}
    with pytest.raises(InvalidEvent, match="such as a tuple"):
        documents.append("c1", (), {"state": [halves, (1,)]})


def test_equal_lone_surrogates_and_long_numbers_add_nothing(store: Store, documents: Documents):
    for name, value in [
        ("state", {"a": "\ud800", "n": 10**30}),
        (ATTRIBUTES, {"app": "\ud800", "n": 10**30}),
    ]:
        documents.append("c1", (), {name: value})
        assert documents.append("c1", (), {name: value}) == ()
        assert Documents(store).get("c1", name) == value


def test_writers_that_change_documents_at_once_lose_nothing(store: Store):
    def count(name: str) -> None:
        mine = Documents(store)
        for n in range(8):
            mine.append("c1", said(name), {name: n, "shared": [name, n]})

    at_once(count, "abc")
    found = Documents(store).all("c1")
    assert (found["a"], found["b"], found["c"]) == (7, 7, 7)
    assert found["shared"][1] == 7
    assert store.version("c1") >= 24


def test_a_change_may_build_on_an_earlier_change_of_the_same_append(
    store: Store, documents: Documents
):
    first = DocumentChanges(changed={"a": {"value": 1}, "b": {"value": 2}})
    second = DocumentChanges(changed={"c": {"value": 3}}, others={"a": 0, "b": 0})
    third = DocumentChanges(changed={"a": {"deleted": True}}, others={"b": 0, "c": 1})
    store.append("c1", [first, second, third], expected_version=0)
    assert documents.all("c1") == {"b": 2, "c": 3}
    outdated = DocumentChanges(changed={"a": {"value": 4}}, others={"b": 0, "c": 1})
    with pytest.raises(DocumentsChanged):
        store.append(
            "c1",
            [DocumentChanges(changed={"b": {"value": 5}}, others={"c": 1}), outdated],
            expected_version=3,
        )


def test_changes_that_do_not_build_on_the_newest_value_are_refused(
    store: Store, documents: Documents
):
    documents.append("c1", (), {"a": 1, "b": 2})
    for changed, others in [
        ({"a": {"base": 0, "difference": {"=": 2}}}, {}),
        ({"a": {"base": 3, "difference": {"=": 2}}}, {"b": 0}),
        ({"c": {"value": 1}}, {"a": 0, "b": 0, "d": 0}),
        ({"c": {"value": 1}}, {"a": 0}),
    ]:
        with pytest.raises(DocumentsChanged):
            store.append(
                "c1", DocumentChanges(changed=changed, others=others), expected_version=ANY_VERSION
            )
    with pytest.raises(DocumentsChanged):
        store.append(
            "new", DocumentChanges(changed={"a": {"value": 1}}, others={"b": 0}), expected_version=0
        )
    with pytest.raises(InvalidEvent, match="is neither a value nor a difference"):
        DocumentChanges(changed={"a": {"base": -1, "difference": {}}})
    assert documents.all("c1") == {"a": 1, "b": 2}


def test_a_value_that_is_redacted_meanwhile_is_not_built_upon(
    store: Store, documents: Documents, monkeypatch: pytest.MonkeyPatch
):
    documents.append("c1", (), {"log": list(range(40))})
    append = store.append

    def after_a_redaction(*given: Any, **options: Any) -> Any:
        monkeypatch.setattr(store, "append", append)
        redact(store, "c1", 0, reason="asked to", by="me")
        return append(*given, **options)

    monkeypatch.setattr(store, "append", after_a_redaction)
    documents.append("c1", (), {"log": list(range(41))})
    assert Documents(store).get("c1", "log") == list(range(41))


@pytest.mark.parametrize(
    "before, between, given, stored",
    [
        ({"n": 1}, {"n": 2}, {"n": 1}, ["n"]),
        ({"n": 1}, {"n": 2}, {"n": 3, "title": "t"}, ["n", "title"]),
        ({"n": 1}, {"n": 2}, {"n": 2}, []),
        ({"n": 1}, {"title": "t"}, {"n": 2, "title": "t"}, ["n"]),
        ({}, {"n": 1}, {"n": 1}, []),
    ],
)
@pytest.mark.parametrize("used_again", [False, True])
def test_a_value_is_compared_with_what_another_writer_gave_meanwhile(
    store: Store,
    documents: Documents,
    monkeypatch: pytest.MonkeyPatch,
    before: dict[str, Any],
    between: dict[str, Any],
    given: dict[str, Any],
    stored: list[str],
    used_again: bool,
):
    if before:
        documents.append("c1", (), before)
    append = store.append

    def meanwhile(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(store, "append", append)
        if before and used_again:
            erase(store, "c1", reason="asked for")
            Documents(store).append("c1", (), before, generation=Generation(replaces_erased=True))
        Documents(store).append("c1", (), between)
        return append(*args, **options)

    monkeypatch.setattr(store, "append", meanwhile)
    _, *changes = [each.event for each in documents.append("c1", said("a"), given)]
    assert [sorted(each.changed) for each in changes if isinstance(each, DocumentChanges)] == [
        stored
    ] * bool(stored)
    assert documents.all("c1") == before | between | given


def test_a_retried_append_adds_nothing(store: Store, documents: Documents):
    first = documents.append("c1", said("a"), {"n": 1}, idempotency_key="turn")
    documents.append("c1", said("b"), {"n": 2})
    assert Documents(store).append("c1", said("a"), {"n": 1}, idempotency_key="turn") == first
    assert documents.get("c1", "n") == 2
    same = documents.append("c1", said("c"), {"n": 2}, idempotency_key="same value")
    documents.append("c1", (), {"n": 4})
    assert documents.append("c1", said("c"), {"n": 2}, idempotency_key="same value") == same
    with pytest.raises(IdempotencyConflict):
        documents.append("c1", said("a"), {"n": 3}, idempotency_key="turn")
    with pytest.raises(IdempotencyConflict):
        documents.append("c1", said("other"), {"n": 1}, idempotency_key="turn")


LOG = list(range(40))


@pytest.mark.parametrize(
    "turns, redacted, others",
    [
        ([{"n": "SECRET"}], [1], [{"m": "SECRET"}, {}, {"n": DELETED}]),
        ([{"n": "SECRET", "m": 1}], [1], [{"n": "SECRET"}]),
        ([{"log": LOG}, {"log": [*LOG, 1]}], [3], [{"m": [*LOG, 1]}, {"log": DELETED}]),
        ([{"log": LOG}, {"log": [*LOG, 1]}], [3, 1], [{"m": [*LOG, 1]}, {"log": DELETED}]),
        ([{"n": 1, "m": 1}, {"n": 2, "m": 1}], [1], [{"n": 3, "m": 1}, {"n": 2, "m": 1, "o": 1}]),
        ([{"n": 1}, {"n": DELETED, "m": "SECRET"}], [3, 1], [{"n": 1, "m": "SECRET"}]),
        (
            [{ATTRIBUTES: {"a": "SECRET"}}, {ATTRIBUTES: {"a": "public"}}],
            [3, 1],
            [{ATTRIBUTES: DELETED}],
        ),
    ],
    ids=[
        "new",
        "two",
        "difference",
        "difference to what is redacted",
        "the same",
        "deleted",
        "attributes",
    ],
)
@pytest.mark.parametrize(
    "keys", [None, KeyRing([SecretStr("ab" * 32)])], ids=["plain", "encrypted"]
)
def test_a_retried_append_is_recognized_once_its_documents_are_redacted(
    recorder: Recorder,
    keys: KeyRing | None,
    turns: list[dict[str, Any]],
    redacted: list[int],
    others: list[dict[str, Any]],
):
    store = Store(recorder, WriteSettings("zlib", keys))
    for n, turn in enumerate(turns):
        first = Documents(store).append("c1", said("a"), turn, idempotency_key=f"{n}")
    fork = store.fork("c1", store.version("c1"), "fork").id
    for event_id in redacted:
        redact(store, "c1", event_id, reason="asked to", by="me")
    version = store.version("c1")
    again = Documents(store).append("c1", said("a"), turns[-1], idempotency_key=f"{n}")
    assert [(each.position, each.event.id) for each in again] == [
        (each.position, each.event.id) for each in first
    ]
    for other in others:
        with pytest.raises(IdempotencyConflict):
            Documents(store).append("c1", said("a"), other, idempotency_key=f"{n}")
    assert (store.version("c1"), store.version(fork)) == (version, 2 * len(turns))


def test_random_changes_are_read_as_they_were_written(store: Store):
    chance = random.Random(7)
    mine = Documents(store)
    kept: dict[str, Any] = {}
    versions: dict[int, dict[str, Any]] = {}
    for turn in range(60):
        name = chance.choice("ab")
        value = (
            _any(chance, 3)
            if chance.random() < 0.5 or name not in kept
            else _changed(chance, kept[name])
        )
        if chance.random() < 0.1:
            kept.pop(name, None)
            mine.append("c1", said("x"), {name: DELETED})
        else:
            kept[name] = value
            mine.append("c1", said("x"), {name: value})
        versions[store.version("c1")] = dict(kept)
        if turn % 9 == 0:
            mine = Documents(store)
    for version, expected in versions.items():
        assert repr(mine.all("c1", version=version)) == repr(dict(sorted(expected.items())))


def _any(chance: random.Random, depth: int) -> Any:
    if depth and chance.random() < 0.6:
        if chance.random() < 0.5:
            return [_any(chance, depth - 1) for _ in range(chance.randint(0, 4))]
        return {chance.choice("abcd"): _any(chance, depth - 1) for _ in range(3)}
    return chance.choice([None, True, False, 0, 1, 1.0, "", "x" * 20, -5, 2.5])


def _changed(chance: random.Random, value: Any) -> Any:
    if isinstance(value, list):
        kept = [_changed(chance, one) if chance.random() < 0.2 else one for one in value]
        return (
            kept[: chance.randint(0, len(kept))]
            if chance.random() < 0.2
            else [*kept, _any(chance, 1)]
        )
    if isinstance(value, dict):
        return {
            key: _changed(chance, one) if chance.random() < 0.4 else one
            for key, one in value.items()
        }
    return _any(chance, 1)


def test_documents_go_where_events_go(store: Store, documents: Documents):
    documents.append("c1", said("a"), {"state": {"turn": 1}})
    documents.append("c1", said("b"), {"state": {"turn": 2}})
    with pytest.raises(ConversationNotFound):
        documents.get("none", "state")
    with open_store("memory:") as other:
        assert [moved.problem for moved in copy_store(store, other)] == [None]
        assert Documents(other).get("c1", "state") == {"turn": 2}
        Documents(other).append("c1", (), {"state": {"turn": 3}})
        assert Documents(other).get("c1", "state", version=4) == {"turn": 2}
    erase(store, "c1", reason="asked for")
    with pytest.raises(ConversationErased):
        documents.get("c1", "state")
    with pytest.raises(ConversationErased):
        documents.append("c1", (), {"state": 1})


def test_the_next_change_of_a_document_reads_no_value(store: Store, documents: Documents):
    documents.append("c1", said("a"), {"state": {"turn": 0, "log": ["x" * 400]}, "title": "t"})
    reads = list[str]()
    query = store.database.recorder.query

    def noting(work: Any) -> Any:
        reads.append("query")
        return query(work)

    store.database.recorder.query = noting  # type: ignore[method-assign]
    try:
        for turn in range(1, CHAIN_MAX + 9):
            value = {"turn": turn % 2, "log": ["x" * 400]}
            documents.append("c1", said("a"), {"state": value}, expected_version=2 * turn)
        recorded = documents.append("c1", (), {"state": DELETED})
        assert not reads
    finally:
        store.database.recorder.query = query  # type: ignore[method-assign]
    assert isinstance(recorded[-1].event, DocumentChanges)
    assert documents.all("c1") == {"title": "t"}
    expected = [{"turn": turn % 2, "log": ["x" * 400]} for turn in range(CHAIN_MAX + 9)]
    versions = [2 * turn + 2 for turn in range(CHAIN_MAX + 9)]
    assert [documents.get("c1", "state", version=version) for version in versions] == expected


@pytest.mark.parametrize("seed", range(3))
def test_documents_that_several_stores_change_in_turn_have_what_was_set_last(
    recorder: Recorder, seed: int
):
    stores = [Store(recorder), Store(recorder)]
    drawn = random.Random(seed)
    expected: dict[str, Any] = {}
    for number in range(60):
        store = drawn.choice(stores)
        name = drawn.choice("ab")
        match drawn.randrange(12):
            case 0 if name in expected:
                Documents(store).append("c1", (), {name: DELETED})
                del expected[name]
            case 1 if expected:
                version = store.version("c1")
                event_id = drawn.randrange(version)
                with suppress(CannotRedact):  # other values are differences to it
                    redact(store, "c1", event_id, reason="asked to", by="me")
                expected = Documents(Store(recorder)).all("c1")
            case 2 if number:
                erase(store, "c1", reason="asked to")
                again = Generation(replaces_erased=True)
                Documents(store).append("c1", (), {"a": number}, generation=again)
                expected = {"a": number}
            case _:
                value = {
                    "odd": number % 2,
                    "text": "y" * 30 * drawn.randrange(9),
                    "held": [name] * 9,
                }
                Documents(store).append("c1", said("a"), {name: value})
                expected[name] = value
        if expected:
            assert Documents(Store(recorder)).all("c1") == expected
