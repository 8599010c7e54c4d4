"""The guard of an append: asked in the transaction, of the conversation as it then is."""

from __future__ import annotations

import pytest

from foldlog.eventstore import ANY_VERSION, ReadTransaction, Store
from tests.said import said


class NotNow(Exception):
    """Any error of a guard's own."""


def test_a_guard_sees_what_was_appended_until_now(store: Store) -> None:
    seen: list[tuple[int, list[object]]] = []

    def guard(snapshot: ReadTransaction) -> None:
        seen.append((snapshot.version, [event.content for event in snapshot.events(1)]))  # type: ignore[union-attr]

    store.append("c1", [said("a"), said("b")], expected_version=0, guard=guard)
    store.append("c1", said("c"), expected_version=ANY_VERSION, guard=guard)
    assert seen == [(2, ["b"])], "a conversation that does not exist has nothing to be guarded"


def test_what_a_guard_raises_is_raised_and_nothing_is_appended(store: Store) -> None:
    store.append("c1", said("a"), expected_version=0)

    def guard(_: ReadTransaction) -> None:
        raise NotNow

    with pytest.raises(NotNow):
        store.append("c1", said("b"), expected_version=ANY_VERSION, guard=guard)
    assert store.version("c1") == 1
    store.append("c1", said("c"), expected_version=1)
