"""Streams of server-sent events, and the task that wakes them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec
from anyio import Event, move_on_after, sleep
from starlette.responses import StreamingResponse

from foldlog._app.server.threads import Threads
from foldlog.eventstore import EventStoreError, Store

_POLL_S: Final = 0.01
_WAIT_S: Final = 0.25
"""A follower reads again after this time even if the store has not changed, because on PostgreSQL
an event becomes visible only when all earlier transactions have ended.
"""
_BEAT_S: Final = 15.0

T = TypeVar("T")
_encode: Final = msgspec.json.Encoder().encode
Page = Sequence[tuple[str, T | None]]
"""Events behind a place. Each event has the place behind it. An event that the reader may not see
is None.
"""


class StoreChanges:
    """Wakes the followers when the store has changed. One task asks the store for all of them.

    ``is_ending`` returns true when streams must end, because the server stops. ``threads`` run all
    reads of the server.
    """

    def __init__(self, store: Store, is_ending: Callable[[], bool] = lambda: False) -> None:
        self._store = store
        self.is_ending = is_ending
        self.threads = Threads()
        self._changed = Event()
        self._followers = 0
        self._followed = Event()
        """Set while somebody waits for a change."""

    async def run(self) -> None:
        before: int | None = None
        while True:
            await self._followed.wait()
            await sleep(_POLL_S)
            try:
                now = await self.threads.run(self._store.database.data_version)
            except EventStoreError:
                continue  # the followers read again by themselves, and report the problem
            if now != before:
                before = now
                self._changed.set()
                self._changed = Event()

    async def wait(self, seconds: float = _WAIT_S) -> None:
        """Return when the store has changed, or after some seconds, at most 0.25."""
        self._followers += 1
        self._followed.set()
        try:
            with move_on_after(min(seconds, _WAIT_S)):
                await self._changed.wait()
        finally:
            self._followers -= 1
            if not self._followers:
                self._followed = Event()


async def stream(
    changes: StoreChanges,
    name: str,
    read: Callable[[str], Page[T]],
    after: str,
    page: Page[T],
    problem: Callable[[Exception], bytes],
) -> AsyncIterator[bytes]:
    """Yield a page and the pages behind it as server-sent events with a name. The next page is read
    only after the client has taken the page before, so a slow client costs no memory. If a page
    cannot be read, the stream ends with the ``problem``.
    """
    spoke_at = time.monotonic()
    yield b"retry: 1000\n\n"
    while not changes.is_ending():
        events = [
            b"id: %b\nevent: %b\ndata: %b\n\n" % (place.encode(), name.encode(), _encode(event))
            for place, event in page
            if event is not None
        ]
        if page:
            after = page[-1][0]
        else:
            await changes.wait()
        if not events and time.monotonic() - spoke_at > _BEAT_S:
            events = [b"id: %b\nevent: beat\ndata: {}\n\n" % after.encode()]
        if events:
            spoke_at = time.monotonic()
            yield b"".join(events)
        try:
            page = await changes.threads.run(partial(read, after))
        except Exception as error:  # noqa: BLE001 - the stream ends with the reason
            yield b"event: problem\ndata: %b\n\n" % problem(error)
            return


def event_stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    headers = {"x-accel-buffering": "no", "cache-control": "no-store"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)
