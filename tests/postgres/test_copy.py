"""A copy of a store to PostgreSQL and back, with equal heads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from foldlog.eventstore import CondensationAction, Store, open_store
from foldlog.eventstore.events import Annotation
from foldlog.eventstore.maintenance.copy import compare_stores, copy_store
from foldlog.eventstore.maintenance.erase import erase
from tests.said import said, say
from tests.sound import assert_sound


def fill(store: Store) -> None:
    """Histories of every kind: short, long, with odd names, keys, what is not shown, condensed,
    erased.
    """
    say(store, "short", "hi", idempotency_key="turn-1")
    store.append(
        "nul \0 and \udcff", [said("x"), Annotation(name="n", data={"a": 1})], expected_version=0
    )
    store.ingest("long", [said(str(n)) for n in range(2_300)])
    store.append(
        "long",
        [said("more"), CondensationAction(forgotten_event_ids=[3, 4])],
        expected_version=2_300,
    )
    say(store, "gone", "secret")
    erase(store, "gone", reason="asked for")


def state(store: Store) -> list[tuple[object, ...]]:
    rows = store.conversations(limit=1_000)
    events = {row.id: list(store.events(row.id)) for row in rows if row.erased_at is None}
    # Bytes of what was erased are in one file, and do not come along.
    return [(row._replace(bytes_pending=False), events.get(row.id)) for row in rows]


def test_there_and_back_nothing_differs(tmp_path: Path, postgres_url: Callable[[], str]):
    file, back = tmp_path / "here.db", tmp_path / "back.db"
    with (
        open_store(file) as here,
        open_store(postgres_url()) as server,
        open_store(back) as again,
    ):
        fill(here)
        moved = list(copy_store(here, server))
        assert sorted((m.conversation, m.added, m.problem) for m in moved) == [
            ("gone", 0, None),
            ("long", 2_302, None),
            ("nul \0 and \udcff", 2, None),
            ("short", 1, None),
        ]
        assert len(list(copy_store(server, again))) == 4
        assert state(here) == state(server) == state(again)
        for store in (server, again):
            assert list(compare_stores(here, store)) == []
            assert_sound(store)
            assert say(store, "short", "hi", idempotency_key="turn-1")[0].id == 0
            assert store.version("short") == 1
