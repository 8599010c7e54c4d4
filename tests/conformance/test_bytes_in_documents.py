"""Bytes in documents on every recorder: as in events, and kept once with those of the events."""

from __future__ import annotations

from typing import Any

import pytest

from foldlog.eventstore import DELETED, DocumentChanges, Documents, IdempotencyConflict, InvalidEvent, Store
from foldlog.eventstore.log.seal import WriteSettings
from foldlog.eventstore.maintenance.erase import detach, erase
from foldlog.eventstore.maintenance.redact import redact
from foldlog.projections import Views
from tests.conformance.conftest import OpenRecorder
from tests.conformance.test_bytes import (
    IMAGE,
    SETTINGS,
    SMALL,
    fresh,
    kept,
    problems,
    said,
)

STATE = {"image": IMAGE, "blobs": [{"type": "msgpack", "at": SMALL}], "$bytes": [{"at": ["x"]}], "n": 1}


@pytest.fixture(params=SETTINGS)
def settings(request: pytest.FixtureRequest) -> WriteSettings:
    return SETTINGS[request.param]


@pytest.fixture
def store(settings: WriteSettings, open_recorder: OpenRecorder) -> Store:
    store = Store(open_recorder(), settings)
    store.register(Views(store))
    return store


def put(store: Store, **values: Any) -> None:
    Documents(store).append("c", (), values)


def read(store: Store, name: str = "state", conversation: str = "c", version: int | None = None) -> Any:
    return Documents(fresh(store)).get(conversation, name, version=version)


@pytest.mark.parametrize("value", [STATE, IMAGE, [[SMALL]], {"lone": "\udcff", "at": b""}, {"n": 10**30, "at": SMALL}])
def test_bytes_come_back_as_bytes_at_any_version(store: Store, value: Any):
    put(store, state=value)
    put(store, state={"changed": value}, other=1)
    assert read(store) == {"changed": value}
    assert read(store, version=1) == value
    assert type(read(store, "state", version=1)) is type(value)
    assert problems(store) == []


def test_a_value_with_bytes_belongs_to_its_owner(store: Store):
    given = {"list": [SMALL]}
    put(store, state=given)
    given["list"].append(b"more")
    assert read(store) == {"list": [SMALL]}


@pytest.mark.parametrize("settings", ["plain", "encrypted zlib"], indirect=True)
def test_the_same_bytes_are_kept_once_beside_events_and_documents(store: Store):
    documents = Documents(store)
    documents.append("c", said(IMAGE), {"state": {"image": IMAGE}})
    for n in range(70):
        documents.append("c", (), {"state": {"image": IMAGE, "turn": n, "copy": [IMAGE]}})
    assert kept(store.database.recorder) == 1
    assert read(store) == {"image": IMAGE, "turn": 69, "copy": [IMAGE]}
    last = list(store.events("c"))[-1]
    assert isinstance(last, DocumentChanges)
    put(store, state=DELETED)
    assert read(store, version=5)["image"] == IMAGE


def test_what_stays_the_same_adds_nothing_and_what_differs_is_new(store: Store):
    put(store, state=STATE)
    put(store, state=STATE)
    assert store.version("c") == 1
    put(store, state={**STATE, "image": IMAGE[:-1] + b"x"})
    put(store, text="AP8=")
    put(store, text=SMALL)
    assert store.version("c") == 4, "bytes are not the text that writes them in base64"
    assert read(store, "text") == SMALL


def test_a_retry_is_recognized_by_its_bytes(store: Store):
    documents = Documents(store)
    first = documents.append("c", said(SMALL), {"state": STATE}, idempotency_key="k")
    assert Documents(fresh(store)).append("c", said(SMALL), {"state": STATE}, idempotency_key="k") == first
    with pytest.raises(IdempotencyConflict):
        documents.append("c", said(SMALL), {"state": {**STATE, "image": SMALL}}, idempotency_key="k")


def test_attributes_hold_none(store: Store):
    with pytest.raises(InvalidEvent, match="attributes are a map of names to texts"):
        put(store, attributes={"title": SMALL})
    assert kept(store.database.recorder) == 0


def test_a_redaction_takes_bytes_that_no_other_event_has(store: Store):
    put(store, state={"image": IMAGE, "at": SMALL})
    put(store, state=DELETED)
    put(store, state={"at": SMALL})
    assert kept(store.database.recorder) == 2
    redact(store, "c", 0, reason="asked to", by="me")
    assert kept(store.database.recorder) == 1
    assert read(store) == {"at": SMALL}
    assert "image" not in str(read(store, version=1))
    assert problems(store) == []


def test_a_fork_reads_its_parents_documents_and_has_its_own(store: Store):
    put(store, state=STATE)
    store.fork("c", 1, "f")
    Documents(store).append("f", (), {"state": {**STATE, "more": b"fork"}})
    put(store, state={**STATE, "more": b"parent"})
    assert read(store, conversation="f") == {**STATE, "more": b"fork"}
    detach(store.database, "f")
    erase(store, "c", reason="asked to")
    assert read(store, conversation="f") == {**STATE, "more": b"fork"}
    assert problems(store) == []
