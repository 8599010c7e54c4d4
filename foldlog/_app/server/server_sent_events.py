"""Streams of server-sent events, and the task that wakes them."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator, Set
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from anyio import Event, move_on_after, sleep
from starlette.responses import StreamingResponse

from foldlog._app.server.threads import LONG_READS_MAX, Threads
from foldlog.eventstore import EventStoreError, Store
from foldlog.eventstore.log.finding import find_existing
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import Stream

_POLL_S: Final = 0.01
"""The store is asked this often whether somebody has committed."""
_WAIT_S: Final = 0.25
"""The store is asked again after this time even if nobody has committed, because on PostgreSQL an
event becomes visible only when all earlier transactions have ended.
"""
_BEAT_S: Final = 15.0
"""A stream says after this time that it is alive, before a proxy closes the connection."""
_HELD_BYTES: Final = 32 * 1024 * 1024
"""How many bytes of pages are in memory for all streams together, besides one page."""
_READERS: Final = 2
"""How many pages are read at once, because a page may have an event of 16 MiB."""
PIECE_BYTES: Final = 64 * 1024
"""A longer answer is sent in pieces, each when the client has read the piece before."""
_encode: Final = msgspec.json.Encoder().encode


class FramedPage(NamedTuple):
    """Events behind a place as server-sent events, and the place behind them, or None for an empty
    page. Events that the reader may not see are left out of ``content``.
    """

    content: bytes
    digest: int
    after: str | None

    @classmethod
    def of(cls, name: str, events: Iterable[tuple[str, Any]]) -> FramedPage:
        """Frame events with the places behind them. An event that the reader may not see is
        None.
        """
        frames: list[bytes] = []
        after = None
        for place, event in events:
            after = place
            if event is not None:
                frames += (
                    b"id: %b\nevent: %b\ndata: " % (place.encode(), name.encode()),
                    _encode(event),
                    b"\n\n",
                )
        content = b"".join(frames)
        return cls(content, zlib.crc32(content), after)


class Followed(NamedTuple):
    """What a stream follows.

    ``look``  checks that the reader may still see it, and returns a value that differs whenever a
              page may have changed; pages with equal values are shared
    ``read``  reads the page behind a place
    ``keys``  wake the stream: see ``StoreChanges.following``
    """

    look: Callable[[], Hashable]
    read: Callable[[str], FramedPage]
    keys: Set[int] | None


class SharedPages:
    """Pages for all streams: readers at the same place get the same page, which is read once. Few
    pages are in memory, however many streams wait for clients that read slowly: a page that is not
    there any more is read again.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._pages = OrderedDict[Hashable, FramedPage]()
        self._bytes = 0
        self._readings: dict[Hashable, asyncio.Task[FramedPage]] = {}
        self._room = asyncio.Semaphore(_READERS)

    async def page(self, followed: Followed, after: str) -> tuple[Hashable, FramedPage]:
        """Return the page behind a place, and its key. Raises the errors of ``look`` and
        ``read``.
        """
        key = (await self._threads.run(followed.look), after)
        page = self.held(key)
        if page is not None:
            return key, page
        reading = self._readings.get(key)
        if reading is None:
            reading = asyncio.create_task(self._read(key, partial(followed.read, after)))
            self._readings[key] = reading
            reading.add_done_callback(partial(self._forget_reading, key))
        return key, await asyncio.shield(reading)

    def held(self, key: Hashable) -> FramedPage | None:
        """Return the page of a key if it is still in memory."""
        page = self._pages.get(key)
        if page is not None:
            self._pages.move_to_end(key)
        return page

    async def _read(self, key: Hashable, read: Callable[[], FramedPage]) -> FramedPage:
        """Read a page, keep it, and drop the pages that were used least recently."""
        async with self._room:
            page = await self._threads.run(read)
        if page.content:
            self._pages[key] = page
            self._bytes += len(page.content)
        while self._bytes > _HELD_BYTES and len(self._pages) > 1:
            _, dropped = self._pages.popitem(last=False)
            self._bytes -= len(dropped.content)
        return page

    def _forget_reading(self, key: Hashable, reading: asyncio.Task[FramedPage]) -> None:
        del self._readings[key]
        if not reading.cancelled():
            reading.exception()  # all its readers may be gone


class Follower:
    """Waits for changes of some conversations, or of the whole store."""

    def __init__(self, keys: Set[int] | None) -> None:
        self.keys = keys
        self._changed = Event()
        self._changed.set()  # something may have changed between its first read and now

    def wake(self) -> None:
        """End the wait of the follower, or the next one."""
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


class StreamEnd(NamedTuple):
    """Where a stream ends now, and whether it is closed. While ``redactions`` is the same, no text
    before the end has changed: only events can be redacted.
    """

    end: int
    is_closed: bool
    redactions: int = 0


class StreamFollower(Follower):
    """Waits for new chunks of one stream. ``end`` is its end, or None if it was deleted."""

    def __init__(self, key: int, number: int, end: StreamEnd) -> None:
        super().__init__({key})
        self.key = key
        self.number = number
        self.end: StreamEnd | None = end

    def note(self, end: StreamEnd | None) -> None:
        """Tell the follower the present end."""
        if end != self.end:
            self.end = end
            self.wake()


class StoreChanges:
    """Wakes the followers of the conversations that have changed. One task asks the store for all
    of them, so an idle follower reads nothing. A chunk of a stream wakes only its own followers.

    ``is_ending`` returns true when streams must end, because the server stops. ``threads`` run all
    reads of the server.
    """

    def __init__(self, store: Store, is_ending: Callable[[], bool] = lambda: False) -> None:
        self._store = store
        self.is_ending = is_ending
        self.threads = Threads()
        self.long_reads = Threads(LONG_READS_MAX)
        self.pages = SharedPages(self.threads)
        self._followers = set[Follower]()
        self._stream_followers = set[StreamFollower]()
        self._followed = Event()
        """Set while somebody waits for a change."""

    async def run(self) -> None:
        """Wake followers, as long as the server runs."""
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
                await self._note_streams()
            except EventStoreError:
                version = None
                self._wake(None)  # each follower reads, and reports the problem
                await sleep(_WAIT_S)
                continue
            # A store that was restored has fewer positions.
            is_known = position is not None and position <= last
            self._wake(changed if is_known else None)
            version = now
            position = last

    def _changed_since(self, position: int | None) -> tuple[int, Set[int]]:
        """Return the last position, and the keys of the conversations that have changed."""
        if position is None:
            return self._store.database.last_position, frozenset()
        last, touched = self._store.database.recorder.query(
            lambda reader: reader.touched(position, 0)
        )
        return last, {key for key, _ in touched}

    async def _note_streams(self) -> None:
        """Tell the followers of streams the present ends."""
        followed = {(follower.key, follower.number) for follower in self._stream_followers}
        if not followed:
            return
        ends = await self.threads.run(partial(self._read_ends, followed))
        for follower in self._stream_followers:
            if (follower.key, follower.number) in followed:
                follower.note(ends[follower.key, follower.number])

    def _read_ends(self, followed: Set[tuple[int, int]]) -> dict[tuple[int, int], StreamEnd | None]:
        def read(reader: Reader) -> dict[tuple[int, int], StreamEnd | None]:
            return {place: _end_of(reader.stream(*place)) for place in followed}

        return self._store.database.recorder.query(read)

    def _wake(self, changed: Set[int] | None) -> None:
        """Wake the followers of the conversations with these keys, or all followers."""
        if changed is None:
            for stream_follower in self._stream_followers:
                stream_follower.wake()
        for follower in self._followers:
            if changed is None or _has_changed(follower.keys, changed):
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
            self._rest()

    @contextmanager
    def following_stream(self, key: int, number: int, end: StreamEnd) -> Iterator[StreamFollower]:
        """Wake a follower when a stream of the conversation with this key has another end."""
        follower = StreamFollower(key, number, end)
        self._stream_followers.add(follower)
        self._followed.set()
        try:
            yield follower
        finally:
            self._stream_followers.remove(follower)
            self._rest()

    def _rest(self) -> None:
        """Ask the store no more if nobody waits for a change."""
        if not self._followers and not self._stream_followers:
            self._followed = Event()


def _has_changed(keys: Set[int] | None, changed: Set[int]) -> bool:
    """Return whether a change concerns a follower of these keys, or of the whole store."""
    return bool(changed) if keys is None else not keys.isdisjoint(changed)


def _end_of(stream: Stream | None) -> StreamEnd | None:
    return None if stream is None else StreamEnd(stream.end, stream.closed_at is not None)


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
    followed: Followed,
    after: str,
    problem: Callable[[Exception], bytes],
) -> AsyncIterator[bytes]:
    """Yield the pages behind a place in small pieces. The next piece is taken only after the client
    has read the piece before, and the stream holds no page meanwhile. After an empty page, the
    stream waits for a change. If a page cannot be read, the stream ends with the ``problem``.
    """
    spoke_at = time.monotonic()
    yield b"retry: 1000\n\n"
    with changes.following(followed.keys) as follower:
        while not changes.is_ending():
            try:
                key, page = await changes.pages.page(followed, after)
                begin = after
                behind = page.after
                digest = page.digest
                size = len(page.content)
                piece = page.content[:PIECE_BYTES]
                del page  # while the client reads, the stream holds a piece only
                if piece:
                    yield piece
                for start in range(PIECE_BYTES, size, PIECE_BYTES):
                    held = changes.pages.held(key)
                    if held is None:
                        key, held = await changes.pages.page(followed, begin)
                    if held.digest != digest:
                        return  # an event was redacted meanwhile; the client asks for it again
                    piece = held.content[start : start + PIECE_BYTES]
                    del held
                    yield piece
            except Exception as error:  # noqa: BLE001 - the stream ends with the reason
                yield b"event: problem\ndata: %b\n\n" % problem(error)
                return
            if size:
                spoke_at = time.monotonic()
            if behind is not None:
                after = behind
                is_quiet = time.monotonic() - spoke_at > _BEAT_S
            else:
                is_quiet = not await follower.wait(_BEAT_S)
            while is_quiet and not changes.is_ending():
                spoke_at = time.monotonic()
                yield b"id: %b\nevent: beat\ndata: {}\n\n" % after.encode()
                is_quiet = behind is None and not await follower.wait(_BEAT_S)


def event_stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    """Return server-sent events as an answer, which no proxy collects or keeps."""
    headers = {"x-accel-buffering": "no", "cache-control": "no-store"}
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)
