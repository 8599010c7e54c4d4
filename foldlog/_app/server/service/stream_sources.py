"""What the stream protocol reads: a stream of a conversation, or its events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from foldlog._app.server.problems import Refusal
from foldlog._app.server.server_sent_events import (
    Follower,
    StoreChanges,
    StreamEnd,
    StreamFollower,
    keys_of,
)
from foldlog._app.server.service.events import RecordedEvent
from foldlog._app.server.service.request import AdmittedRequest
from foldlog._app.server.service.stream_states import SECOND, StreamState, read_state
from foldlog._history.streamed_reply import read_offset, transact, write_offset
from foldlog.eventstore import ConversationNotFound, InvalidArgument, ReadTransaction
from foldlog.eventstore.errors import StreamNotFound
from foldlog.eventstore.log import streams
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.recorders.types import Stream

T = TypeVar("T")

BEGINNING: Final = "-1"
"""The offset of the beginning of a stream."""
NOW: Final = "now"
"""The offset of the end of a stream."""
_PAGE_BYTES: Final = 1_000_000
"""A page ends when its bodies pass this number of bytes."""
_PAGE_MAX: Final = 256
"""A page of events has at most this many bodies. A page of a stream is read in steps of 1, 4, 16
and 64 chunks, because each chunk may be large.
"""
_REFRESHED: Final = 10
"""A read writes the time of its stream only if a tenth of its time to live has passed."""
_encode: Final = msgspec.json.Encoder().encode


class Place(NamedTuple):
    """Where a reader reads on: a stream (or the key of a conversation), and a unit."""

    number: int
    unit: int

    def __str__(self) -> str:
        return write_offset(self.number, self.unit)


class Opened(NamedTuple):
    """A stream when a reader opens it: where it reads on, and the end."""

    place: Place
    end: StreamEnd
    type: str
    state: StreamState
    key: int


class Page(NamedTuple):
    """The bodies behind a place, and the unit behind them."""

    bodies: Sequence[bytes]
    ends: int

    def content(self, *, is_json: bool) -> bytes:
        """Return the bodies as the body of an answer. A body of JSON is an array."""
        if not is_json:
            return b"".join(self.bodies)
        return b"[%b]" % b",".join(body[1:-1] for body in self.bodies)


class Source(Protocol):
    """What a reader reads. Its methods run in threads, but for ``follow``."""

    def open(self, offset: str, *, refreshes: bool = True) -> Opened:
        """Return the source as a reader finds it that reads on at an offset. ``refreshes`` says
        that this is a read, which begins the time to live again.
        """

    def page(self, place: Place) -> Page:
        """Return the next bodies behind a place."""

    def end(self, follower: Follower) -> StreamEnd | None:
        """Return the present end, or None if the source was deleted."""

    def follow(self, changes: StoreChanges, opened: Opened) -> AbstractContextManager[Follower]:
        """Return what waits for changes of the source, in the event loop."""


class StreamSource:
    """A stream of a conversation, by its name: the newest stream with this name."""

    def __init__(self, admitted: AdmittedRequest, name: str) -> None:
        self._admitted = admitted
        self.name = name
        self.is_reply = name == streams.REPLY
        self.history = admitted.history
        self.database = admitted.histories.store.database

    def open(self, offset: str, *, refreshes: bool = True) -> Opened:
        stream = self.history._store.query(self.history.id, partial(self._find_at, offset=offset))
        state = read_state(stream.state)
        if refreshes and state.ttl is not None and state.dies is not None:
            now = self.database.now()
            if state.dies - now < state.ttl * SECOND * (1 - 1 / _REFRESHED):
                transact(self.history, partial(_refresh, number=stream.number))
        place = _as_place(offset, stream.number, stream.end)
        end = StreamEnd(stream.end, stream.closed_at is not None)
        return Opened(place, end, stream.type, state, self._key())

    def find(self, reading: ReadTransaction) -> Stream:
        """Return the stream. Raises ``StreamNotFound``."""
        stream = self.find_or_none(reading)
        if stream is None:
            raise StreamNotFound(reading.conversation, repr(self.name))
        return stream

    def _find_at(self, reading: ReadTransaction, offset: str) -> Stream:
        """Return the stream of an offset. A reply stays for a while after its end, so that its
        readers reach the end while the next reply has its name already.
        """
        newest = self.find(reading)
        try:
            number, _ = read_offset(offset)
        except InvalidArgument:
            return newest
        stream = reading.stream(number)
        return newest if stream is None or stream.name != self.name else stream

    def find_or_none(self, reading: ReadTransaction) -> Stream | None:
        """Return the stream, or None if it does not exist or its time to live has passed."""
        stream = streams.newest(reading, self.name)
        if stream is None or streams.is_dead(stream, self.database.now()):
            return None
        return stream

    def write(self, work: Callable[[WriteTransaction], T], *, durable: bool = True) -> T:
        """Write in a transaction. While a worker has the lease, nobody else writes its reply:
        raises ``LeaseTaken``.
        """
        return transact(self.history, work, durable=durable, is_of_worker=self.is_reply)

    def page(self, place: Place) -> Page:
        self._admitted.check_visible(self.history)

        def read(reading: ReadTransaction) -> Page:
            stream = streams.find(reading, place.number)
            bodies: list[bytes] = []
            ends = place.unit
            size = 0
            count = 1
            while size < _PAGE_BYTES and count < _PAGE_MAX:
                chunks = reading.chunks(stream, ends, count)
                for chunk in chunks:
                    skipped = max(0, ends - chunk.begins)
                    body = _behind(chunk.body, skipped, stream.type)
                    bodies.append(body)
                    size += len(body)
                    ends = chunk.ends
                if len(chunks) < count:
                    break
                count *= 4
            return Page(bodies, ends)

        return self.history._store.query(self.history.id, read)

    def end(self, follower: Follower) -> StreamEnd | None:
        self._admitted.check_visible(self.history)
        assert isinstance(follower, StreamFollower)
        return follower.end

    def follow(self, changes: StoreChanges, opened: Opened) -> AbstractContextManager[Follower]:
        return changes.following_stream(opened.key, opened.place.number, opened.end)

    def _key(self) -> int:
        key = self.history._conversation_key()
        if key is None:
            raise ConversationNotFound(self.history.id)
        return key

    @property
    def path(self) -> str:
        """Return the path of the stream on this server."""
        return f"/v1/stream/{quote(self.history.id, safe='')}/{quote(self.name, safe='')}"


class EventsSource:
    """The events of a conversation as a stream of JSON, which is never closed."""

    def __init__(self, admitted: AdmittedRequest) -> None:
        self._admitted = admitted
        self._history = admitted.history
        # If another conversation gets the id, the stream must not mix the two conversations.
        self._store = self._history._store

    def open(self, offset: str, *, refreshes: bool = True) -> Opened:
        end = self._end()
        key = self._history._conversation_key()
        if key is None or not end.end:
            raise ConversationNotFound(self._history.id)
        return Opened(_as_place(offset, key, end.end), end, streams.JSON, StreamState(), key)

    def page(self, place: Place) -> Page:
        self._admitted.check_visible(self._history)
        bodies: list[bytes] = []
        size = 0
        ends = place.unit
        for logged in self._store.log(self._history.id, ends, ends + _PAGE_MAX):
            event = RecordedEvent.of_logged(self._history.id, logged)
            body = b"[%b]" % _encode(event)
            bodies.append(body)
            size += len(body)
            ends = logged.event.id + 1
            if size > _PAGE_BYTES:
                break
        return Page(bodies, ends)

    def end(self, follower: Follower) -> StreamEnd | None:
        self._admitted.check_visible(self._history)
        return self._end()

    def _end(self) -> StreamEnd:
        def read(reading: ReadTransaction) -> StreamEnd:
            return StreamEnd(reading.version, False, reading.redactions)

        return self._store.query(self._history.id, read)

    def follow(self, changes: StoreChanges, opened: Opened) -> AbstractContextManager[Follower]:
        return changes.following(keys_of(self._store, self._history.id))


def _as_place(offset: str, number: int, end: int) -> Place:
    """Return the place of an offset in the stream with this number and end. Raises a
    ``Refusal``.
    """
    if offset == BEGINNING:
        return Place(number, 0)
    if offset == NOW:
        return Place(number, end)
    try:
        place = Place(*read_offset(offset))
    except InvalidArgument:
        raise Refusal(
            400, f"{offset!r} is not an offset of this stream; -1 is its beginning, now its end"
        ) from None
    if place.number != number:
        raise Refusal(
            410, "the offset belongs to an earlier stream with this name; begin at offset -1"
        )
    if place.unit > end:
        raise Refusal(400, f"the offset is behind unit {place.unit}, but the stream ends at {end}")
    return place


def _refresh(writing: WriteTransaction, number: int) -> None:
    """Begin the time to live of a stream again."""
    stream = writing.stream(number)
    if stream is not None:
        state = read_state(stream.state).touched(writing.database.now())
        writing.put_stream(stream._replace(state=_encode(state)))


def media(kind: str) -> str:
    """Return a content type without its parameters."""
    return kind.partition(";")[0].strip().lower()


def is_json(kind: str) -> bool:
    return media(kind) == streams.JSON


def _behind(body: bytes, skipped: int, kind: str) -> bytes:
    """Return the part of a chunk behind its first ``skipped`` units."""
    if not skipped:
        return body
    if not is_json(kind):
        return body[skipped:]
    values = msgspec.json.decode(body, type=list[msgspec.Raw])
    return b"[%b]" % b",".join(bytes(value) for value in values[skipped:])
