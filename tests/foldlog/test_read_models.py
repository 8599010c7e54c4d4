"""Events that a detached fork takes over reach every read model under the id of the fork, each once."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from eventsourcing.persistence import Tracking
from eventsourcing.projection import Projection, ProjectionRunner

import foldlog
import foldlog.aio
from foldlog._follower import Follower
from foldlog._reports.audit_database import AuditTables, update
from foldlog._search import SearchIndex
from foldlog.eventstore import Entry, Message, Store, open_store
from foldlog.eventstore.integrations.eventsourcing import Conversations, TrackingView
from foldlog.eventstore.maintenance.erase import erase

PATIENCE_S = 60.0
SHARED, OWN = 5, 2
AT_FIRST = [*(("c", each) for each in range(SHARED + 3)), *(("f", SHARED + each) for each in range(OWN))]
WHOLE = [("f", each) for each in range(SHARED + OWN)]


@pytest.fixture(params=["sqlite", "postgresql", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url")())
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/history.db"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """A store with a conversation and its fork."""
    with open_store(url) as store:
        say(store, "c", 0, SHARED + 3)
        store.fork("c", SHARED, "f")
        say(store, "f", SHARED, OWN)
        yield store


OPENED_TWICE = pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
"""For a follower that opens the store once more."""


def say(store: Store, conversation: str, version: int, events: int) -> None:
    texts = [f"word {conversation} {version + n}" for n in range(events)]
    store.append(conversation, [Message(source="user", content=text) for text in texts], expected_version=version)


def detach(store: Store) -> None:
    erase(store, "c", reason="asked for", detach_forks=True)


def found(index: SearchIndex, conversation: str | None = None) -> list[tuple[str, int]]:
    return sorted((hit.conversation, hit.id) for hit in index.search("word", conversation=conversation, limit=100))


def audited(path: Path) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(path, timeout=PATIENCE_S)) as connection:
        return connection.execute("SELECT conversation, id FROM events ORDER BY conversation, id").fetchall()


@pytest.mark.parametrize("indexed_before", [True, False])
def test_a_search_finds_them(store: Store, indexed_before: bool):
    if indexed_before:
        with SearchIndex(store) as index:
            assert found(index) == AT_FIRST
            detach(store)
            assert found(index) == WHOLE
    else:
        detach(store)
    with SearchIndex(store) as index:
        assert found(index) == found(index, "f") == WHOLE
        index.rebuild()
        assert found(index) == WHOLE


def test_a_follower_of_the_search_index_adds_them(store: Store):
    with Follower(store, SearchIndex(store)) as follower:
        follower.catch_up(PATIENCE_S)
        detach(store)
        follower.catch_up(PATIENCE_S)
        assert found(follower.view.derived) == WHOLE


@pytest.mark.parametrize("made_before", [True, False])
def test_the_audit_database_has_them(store: Store, tmp_path: Path, made_before: bool):
    path = tmp_path / "audit.db"
    if made_before:
        assert update(store, path).events == len(AT_FIRST)
    detach(store)
    assert update(store, path).events == (SHARED if made_before else len(WHOLE))
    assert audited(path) == WHOLE
    assert update(store, path).events == 0
    assert audited(path) == WHOLE


def test_an_audit_database_that_has_a_fork_gets_them_for_this_conversation_too(store: Store, tmp_path: Path):
    path = tmp_path / "audit.db"
    update(store, path)
    assert update(store, path, ["f"]).events == 0
    detach(store)
    assert update(store, path, ["f"]).events == SHARED
    assert [each for each in audited(path) if each[0] == "f"] == WHOLE
    assert update(store, path, ["f"]).events == 0
    update(store, path)
    assert audited(path) == WHOLE


@OPENED_TWICE
def test_a_follower_of_the_audit_database_adds_them(url: str, store: Store, tmp_path: Path):
    path = tmp_path / "audit.db"
    with Follower(store, AuditTables(store, path)) as follower:
        follower.catch_up(PATIENCE_S)
        assert audited(path) == AT_FIRST
        detach(store)
        follower.catch_up(PATIENCE_S)
    assert audited(path) == WHOLE


class Read(TrackingView):
    """Keeps the ids of the events that it was given."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.given: list[tuple[str, int]] = []


class ReadEverything(Projection[Read]):
    name = "read"

    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        self.view.recorder.transact(lambda transaction: self.view.track(transaction, tracking))
        if not isinstance(domain_event.event, Entry):
            self.view.given.append((domain_event.originator_id, domain_event.originator_version))


@OPENED_TWICE
def test_a_projection_of_the_library_is_given_them(url: str, store: Store):
    env = {"PERSISTENCE_MODULE": "foldlog.eventstore.integrations.eventsourcing", "FOLDLOG_URL": url}
    following = ProjectionRunner(
        application_class=Conversations, projection_class=ReadEverything, view_class=Read, env=env
    )
    with following as runner:
        runner.wait(runner.app.recorder.max_notification_id(), timeout=PATIENCE_S)
        assert runner.view.given == AT_FIRST
        detach(store)
        runner.wait(runner.app.recorder.max_notification_id(), timeout=PATIENCE_S)
        assert runner.view.given[len(AT_FIRST) :] == WHOLE[:SHARED]
    runner.view.recorder.close()


def test_an_async_follower_reads_them(url: str):
    async def read() -> list[tuple[str, int]]:
        async with foldlog.aio.open(url) as histories:
            store = histories.sync.store
            say(store, "c", 0, SHARED + 3)
            store.fork("c", SHARED, "f")
            before = [one.position async for one in histories.follow(forever=False)]
            detach(store)
            after = [one async for one in histories.follow(before[-1], forever=False)]
            return [(one.conversation, one.event.id) for one in after if not isinstance(one.event, Entry)]

    assert asyncio.run(read()) == WHOLE[:SHARED]


def test_figures_have_them(store: Store):
    with foldlog.Histories(store) as histories:
        before = histories["f"].stats()
        detach(store)
        assert histories["f"].stats() == before
