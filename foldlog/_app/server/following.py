"""Streams of server-sent events, and the task that wakes them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeVar

import msgspec
from anyio import Event, move_on_after, sleep
from starlette.responses import StreamingResponse

from foldlog._app.server.threads import Threads
from foldlog.eventstore import EventStoreError, Store
from foldlog.eventstore.log.finding import find_existing

_POLL_S: Final = 0.01
_WAIT_S: Final = 0.25
"""The store is asked again after this time even if nobody has committed, because on PostgreSQL an
event becomes visible only when all earlier transactions have ended.
"""
_BEAT_S: Final = 15.0

T = TypeVar("T")
_encode: Final = msgspec.json.Encoder().encode
Page = Sequence[tuple[str, T | None]]
"""Events behind a place. Each event has the place behind it. An event that the reader may not see
is None.
"""


class Follower:
    """Waits for changes of some conversations, or of the whole store."""

    def __init__(self, keys: Set[int] | None) -> None:
        self.keys = keys
        self._changed = Event()
        self._changed.set()  # what changed after its first read, and before it began to wait

    def wake(self) -> None:
        self._changed.set()

    async def wait(self, seconds: float) -> bool:
        """Return true when something has changed since the last call, or false after some
        seconds.
        """
        with move_on_after(seconds):
            await self._changed.wait()
        if not self._changed.is_set():
            return False
        self._changed = Event()
        return True


class StoreChanges:
    """Wakes the followers of the conversations that have changed. One task asks the store for all
    of them, so an idle follower reads nothing.

    ``is_ending`` returns true when streams must end, because the server stops. ``threads`` run all
    reads of the server.
    """

    def __init__(self, store: Store, is_ending: Callable[[], bool] = lambda: False) -> None:
        self._store = store
        self.is_ending = is_ending
        self.threads = Threads()
        self._followers = set[Follower]()
        self._followed = Event()
        """Set while somebody waits for a change."""

    async def run(self) -> None:
        position: int | None = None
        version: int | None = None
        asked_at = 0.0
        while True:
            await self._followed.wait()
            await sleep(_POLL_S)
            if self.is_ending():
                self._wake(None)
            try:
                now = await self.threads.run(self._store.database.data_version)
                if now == version and time.monotonic() - asked_at < _WAIT_S:
                    continue
                asked_at = time.monotonic()
                last, changed = await self.threads.run(partial(self._changed_since, position))
            except EventStoreError:
                version = None
                self._wake(None)  # each follower reads, and reports the problem
                await sleep(_WAIT_S)
                continue
            # A store that was restored has fewer positions.
            is_known = position is not None and position <= last
            self._wake(changed if is_known else None)
            version, position = now, last

    def _changed_since(self, position: int | None) -> tuple[int, Set[int]]:
        """Return the last position, and the keys of the conversations that have changed."""
        if position is None:
            return self._store.database.last_position, frozenset()
        last, touched = self._store.database.recorder.query(
            lambda reader: reader.touched(position, 0)
        )
        return last, {key for key, _ in touched}

    def _wake(self, changed: Set[int] | None) -> None:
        for follower in self._followers:
            if changed is None or (changed if follower.keys is None else follower.keys & changed):
                follower.wake()

    @contextmanager
    def following(self, keys: Set[int] | None) -> Iterator[Follower]:
        """Wake a follower at the changes of the conversations with these keys (see ``keys_of``),
        or at all changes.
        """
        follower = Follower(keys)
        self._followers.add(follower)
        self._followed.set()
        try:
            yield follower
        finally:
            self._followers.remove(follower)
            if not self._followers:
                self._followed = Event()


def keys_of(store: Store, conversation: str) -> Set[int]:
    """Return the keys of a conversation and of those whose events it shares: a redaction of a
    shared event changes it too. Raises ``ConversationNotFound`` and ``ConversationErased``.
    """
    state = store.database.recorder.query(
        lambda reader: find_existing(store.database, reader, conversation, as_stored=True)
    )
    return {state.key, *(ancestor.key for ancestor in state.lineage)}


async def stream(
    changes: StoreChanges,
    name: str,
    read: Callable[[str], Page[T]],
    after: str,
    page: Page[T],
    problem: Callable[[Exception], bytes],
    keys: Set[int] | None,
) -> AsyncIterator[bytes]:
    """Yield a page and the pages behind it as server-sent events with a name. The next page is read
    only after the client has taken the page before, so a slow client costs no memory. After an
    empty page, the stream waits for a change of the conversations with these ``keys``. If a page
    cannot be read, the stream ends with the ``problem``.
    """
    spoke_at = time.monotonic()
    yield b"retry: 1000\n\n"
    with changes.following(keys) as follower:
        while not changes.is_ending():
            events = [
                b"id: %b\nevent: %b\ndata: %b\n\n" % (place.encode(), name.encode(), _encode(event))
                for place, event in page
                if event is not None
            ]
            has_changed = True
            if page:
                after = page[-1][0]
            else:
                has_changed = await follower.wait(_BEAT_S)
            if not events and time.monotonic() - spoke_at > _BEAT_S:
                events = [b"id: %b\nevent: beat\ndata: {}\n\n" % after.encode()]
            if events:
                spoke_at = time.monotonic()
                yield b"".join(events)
            if not has_changed:
                continue
            try:
                page = await changes.threads.run(partial(read, after))
            except Exception as error:  # noqa: BLE001 - the stream ends with the reason
                yield b"event: problem\ndata: %b\n\n" % problem(error)
                return


def event_stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    headers = {"x-accel-buffering": "no", "cache-control": "no-store"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)
