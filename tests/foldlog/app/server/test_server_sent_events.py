"""A follower wakes only when the conversations that it follows have changed."""

from contextlib import asynccontextmanager

import anyio
import pytest

import foldlog
from foldlog._app.server import server_sent_events
from foldlog._app.server.server_sent_events import (
    Followed,
    FramedPage,
    StoreChanges,
    keys_of,
    stream,
)
from tests.said import said

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


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
    """Take the first signal of each follower, because the store may have changed before the wait."""
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


PIECE = server_sent_events.PIECE_BYTES


class Source:
    """A source with a large page behind each of three places. ``reads`` lists the places that were
    read.
    """

    def __init__(self):
        self.reads = []
        self.texts = {str(number): str(number) * 3 * PIECE for number in range(3)}
        self.followed = Followed(lambda: sum(map(len, self.texts.values())), self.read, None)

    def read(self, after):
        self.reads.append(after)
        text = self.texts.get(after)
        return FramedPage.of("event", [] if text is None else [(str(int(after) + 1), text)])


def problem(error):
    return repr(error).encode()


async def received(stream, count):
    """Return the bytes of some events of a stream, and of the piece that ends the last event."""
    pieces = []
    while b"".join(pieces).count(b"\n\n") <= count:  # the first one is "retry"
        pieces.append(await anext(stream))
    return b"".join(pieces)


async def test_streams_at_one_place_read_a_page_once(histories):
    source = Source()
    async with woken(histories.store) as changes:
        streams = [stream(changes, source.followed, "0", problem) for _ in range(5)]
        first = [await received(opened, 3) for opened in streams]
        assert len(set(first)) == 1
        assert [first[0].count(text.encode()) for text in source.texts.values()] == [1, 1, 1]
        assert source.reads == ["0", "1", "2"]
        for each in streams:
            await each.aclose()


async def test_a_page_that_is_not_in_memory_any_more_is_read_again(histories, monkeypatch):
    monkeypatch.setattr(server_sent_events, "_HELD_BYTES", PIECE)
    source = Source()
    async with woken(histories.store) as changes:
        slow, fast = (stream(changes, source.followed, "0", problem) for _ in range(2))
        begun = [await anext(slow) for _ in range(2)]
        await received(fast, 3)
        assert len(changes.pages._pages) == 1
        whole = b"".join([*begun, await received(slow, 2)])
        assert whole.count(source.texts["0"].encode()) == 1
        assert source.reads == ["0", "1", "2", "0", "1", "2"]
        for each in (slow, fast):
            await each.aclose()


async def test_a_stream_ends_if_the_rest_of_its_page_was_redacted(histories, monkeypatch):
    monkeypatch.setattr(server_sent_events, "_HELD_BYTES", PIECE)
    source = Source()
    async with woken(histories.store) as changes:
        slow, fast = (stream(changes, source.followed, "0", problem) for _ in range(2))
        begun = [await anext(slow) for _ in range(2)]
        await received(fast, 3)
        source.texts["0"] = "redacted"
        assert [piece async for piece in slow] == []
        assert begun[1].count(b"id: ") == 1
        await fast.aclose()
