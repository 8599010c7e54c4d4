"""Followers wake when what they follow has changed, and read nothing else."""

from contextlib import asynccontextmanager

import anyio
import pytest

import foldlog
from foldlog._app.server.following import StoreChanges, keys_of
from tests.said import said

pytestmark = pytest.mark.anyio


@pytest.fixture
def histories(tmp_path):
    with foldlog.open(f"sqlite:///{tmp_path}/a.db") as histories:
        for name in "ab":
            histories[name].append(said("hi"))
        yield histories


@asynccontextmanager
async def woken(store):
    changes = StoreChanges(store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(changes.run)
        yield changes
        tasks.cancel_scope.cancel()


async def quiet(*followers):
    """Take what a follower is told at first, because it may have changed before it waited."""
    for follower in followers:
        assert await follower.wait(60)


async def test_an_append_wakes_only_the_followers_of_its_conversation(histories):
    async with woken(histories.store) as changes:
        with (
            changes.following(keys_of(histories.store, "a")) as of_a,
            changes.following(keys_of(histories.store, "b")) as of_b,
            changes.following(None) as of_all,
        ):
            await quiet(of_a, of_b, of_all)
            histories["c"].append(said("so that the task knows the position"))
            assert await of_all.wait(60)
            await of_a.wait(0)
            await of_b.wait(0)
            histories["b"].append(said("more"))
            assert await of_b.wait(60)
            assert await of_all.wait(60)
            assert not await of_a.wait(0)


async def test_a_redaction_of_a_shared_event_wakes_the_followers_of_a_fork(histories):
    histories["a"].fork(id="fork")
    async with woken(histories.store) as changes:
        with (
            changes.following(keys_of(histories.store, "fork")) as of_fork,
            changes.following(keys_of(histories.store, "b")) as of_b,
        ):
            await quiet(of_fork, of_b)
            histories["b"].append(said("so that the task knows the position"))
            assert await of_b.wait(60)
            await of_fork.wait(0)
            histories["a"].redact(0, reason="asked to")
            assert await of_fork.wait(60)


async def test_a_commit_without_events_wakes_nobody(histories):
    store = histories.store
    async with woken(store) as changes:
        with (
            changes.following(keys_of(store, "a")) as of_a,
            changes.following(keys_of(store, "b")) as of_b,
        ):
            await quiet(of_a, of_b)
            histories["b"].append(said("so that the task knows the position"))
            assert await of_b.wait(60)
            await of_a.wait(0)
            before = store.database.data_version()
            with histories["a"].lease(worker="w"):
                assert store.database.data_version() != before
            histories["b"].append(said("a commit after the others"))
            assert await of_b.wait(60)
            assert not await of_a.wait(0)


async def test_followers_wake_when_the_server_stops(histories):
    changes = StoreChanges(histories.store, is_ending=lambda: True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(changes.run)
        with changes.following(keys_of(histories.store, "a")) as follower:
            await quiet(follower)
            assert await follower.wait(60)
        tasks.cancel_scope.cancel()
