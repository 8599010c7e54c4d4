"""A copy that is killed between any two transactions, on every recorder."""

from __future__ import annotations

from contextlib import suppress
from itertools import count

import pytest

from foldlog.eventstore import ANY_VERSION, Store
from foldlog.eventstore.log import importing
from foldlog.eventstore.maintenance.copy import copy_store
from tests.between import Killed, killing
from tests.conformance.conftest import OpenRecorder
from tests.said import said


def test_a_copy_that_is_killed_anywhere_has_the_keys_of_its_events(
    open_recorder: OpenRecorder, monkeypatch: pytest.MonkeyPatch
):
    """An append that is sent again to the copy must not add its events twice."""
    monkeypatch.setattr(importing, "CHUNK", 2)
    store, there = Store(open_recorder()), Store(open_recorder())
    store.append("c", said("begin"), expected_version=0)
    list(copy_store(store, there))
    batches = {"one": ["a"], "two": ["b", "c", "d"], "three": ["e"]}
    for key, texts in batches.items():
        store.append("c", list(map(said, texts)), expected_version=ANY_VERSION, idempotency_key=key)
    for transactions in count(1):
        killed = True
        with suppress(Killed):
            stopped = Store(killing(there.database.recorder, transactions))
            killed = bool([moved.problem for moved in copy_store(store, stopped) if moved.problem])
        version, end = there.version("c"), 1
        for key, texts in batches.items():
            end += len(texts)
            if end <= version:  # it is there whole, so this is a retry
                events = list(map(said, texts))
                again = {"expected_version": ANY_VERSION, "idempotency_key": key}
                assert there.append("c", events, **again)[-1].id == end - 1
        assert there.version("c") == version
        if not killed:
            break
    assert version == store.version("c")
