"""Follow new events: as server-sent events, or as long polls.

A client continues after the last event that it has: it sends ``after``, or the header
``Last-Event-ID``, which browsers send by themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Set
from functools import partial
from typing import Annotated, Final, NamedTuple

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from foldlog._app.server import server_sent_events
from foldlog._app.server.parameters import Count, convert
from foldlog._app.server.problems import Refusal, refusal_of
from foldlog._app.server.server_sent_events import Followed, FramedPage
from foldlog._app.server.service.events import RecordedEvent
from foldlog._app.server.service.operations import operation
from foldlog._app.server.service.request import AdmittedRequest, Deferred
from foldlog._reports.answers.document import Document
from foldlog.eventstore import (
    ConversationErased,
    ConversationNotFound,
    CorruptEvent,
    InvalidArgument,
    Recorded,
)
from foldlog.eventstore.events import Erased
from foldlog.eventstore.log.finding import tombstones_before
from foldlog.eventstore.recorders.base import Reader

_PAGE: Final = 100
"""A page has at most this many events."""
_PAGE_BYTES: Final = 1_000_000
"""A page ends with the event that passes this number of bytes, for a client that reads slowly."""
_TOGETHER: Final = 16
"""How many events are read at once, because each may have many megabytes."""
_POLL_MAX_S: Final = 30.0
"""A poll is answered after this time, before a proxy gives it up."""
_LOOK_S: Final = 1.0
"""A poll looks after this time whether its client is still there."""
Limit = Annotated[int, msgspec.Meta(ge=1)]
EventNumber = Annotated[str, msgspec.Meta(pattern="^(0|[1-9][0-9]{0,14})$")]
StorePosition = Annotated[
    str, msgspec.Meta(pattern=r"^([0-9]{1,15}|[0-9a-f]{1,16}(\.[0-9a-f]{1,16})+)$")
]
"""A position is a number, and in several joined stores a number in each of them."""
_encode: Final = msgspec.json.Encoder().encode
Read = Callable[[str, int], Iterator["tuple[str, RecordedEvent | None]"]]
"""Reads at most so many events behind a place."""


class _Source(NamedTuple):
    """``check`` refuses a wrong place. ``look`` and ``keys`` are as in ``Followed``."""

    check: Callable[[str], object]
    look: Callable[[], Hashable]
    read: Read
    keys: Set[int] | None


class FollowedEvents(Document, frozen=True):
    """The next events, in their order. With ``after``, the next request continues behind them."""

    events: list[RecordedEvent]
    after: str


@operation("GET", "/conversations/{conversation}/follow")
def follow_conversation(
    request: AdmittedRequest, *, after: EventNumber = "0", wait_s: float = 0.0, limit: Limit = _PAGE
) -> FollowedEvents | Deferred | Response:
    """Return the events of a conversation behind ``after``, a number of events. With ``Accept:
    text/event-stream``, the answer is a stream that goes on with each append.

    ``after`` is the one of the answer before, at first 0. ``wait_s`` is the number of seconds that
    a poll waits for a new event, at most 30.
    """
    history = request.history
    # If another conversation gets the id, the stream must not mix the two conversations.
    store = history._store

    def place_of(after: str) -> int:
        return convert("after", convert("after", after, EventNumber), Count)

    def look() -> Hashable:
        request.check_visible(history)
        # a redaction of an event, also of one that is shared, makes another page of it
        return store.query(
            history.id,
            lambda reading: (
                reading.key,
                reading.version,
                reading.redactions,
                len(reading.lineage),
            ),
        )

    def read(after: str, count: int) -> Iterator[tuple[str, RecordedEvent | None]]:
        start = place_of(after)
        for logged in store.log(history.id, start, start + count):
            yield str(logged.event.id + 1), RecordedEvent.of_logged(history.id, logged)

    place_of(request.headers.get("last-event-id", after))
    look()
    keys = server_sent_events.keys_of(store, history.id)
    return _follow(request, after, wait_s, limit, _Source(place_of, look, read, keys))


@operation("GET", "/follow")
def follow_store(
    request: AdmittedRequest,
    *,
    after: StorePosition = "0",
    wait_s: float = 0.0,
    limit: Limit = _PAGE,
) -> FollowedEvents | Deferred | Response:
    """Return the events of all conversations that the token may see, behind the position
    ``after``. With ``Accept: text/event-stream``, the answer is a stream.
    """
    histories = request.histories
    # True and 1 are equal in Python, and are different values of an attribute.
    where = frozenset((name, type(value), value) for name, value in request.principal.where.items())

    def check(after: str) -> None:
        convert("Last-Event-ID", after, StorePosition)
        try:
            histories.store.follow(after, limit=0)
        except InvalidArgument:
            raise Refusal(
                409, f"{after!r} is no position of this store; begin at 0, or with its own 'after'"
            ) from None

    def look() -> Hashable:
        return where, histories.store.database.data_version()

    def read(after: str, count: int) -> Iterator[tuple[str, RecordedEvent | None]]:
        with request.hiding_others():
            while count > 0:
                try:
                    for recorded in histories.store.follow(after, count):
                        count -= 1
                        after = str(recorded.position)
                        is_visible = _is_visible(request, recorded)
                        yield after, RecordedEvent.of_recorded(recorded) if is_visible else None
                    return
                except CorruptEvent as damaged:
                    is_visible = request.is_visible(histories[damaged.conversation])
                    if is_visible or damaged.position is None:
                        raise
                    count -= 1
                    after = str(damaged.position)
                    yield after, None

    return _follow(request, after, wait_s, limit, _Source(check, look, read, None))


def _is_visible(request: AdmittedRequest, recorded: Recorded) -> bool:
    """Return whether the token may see an event. A token with a filter sees no event of an erased
    conversation, although it may see a conversation that has the same id now.
    """
    history = request.histories[recorded.conversation]
    if not request.is_visible(history):
        return False
    if not request.principal.where:
        return True
    database = history._store.database

    def is_of_present(reader: Reader) -> bool:
        state = database.find(reader, history.id, as_stored=True)
        erased = () if state is None else tombstones_before(reader, state)
        ends = (0 if row.erasure is None else row.erasure.position or 0 for row in erased)
        return all(reader.has_reached(str(recorded.position), end) for end in ends)

    try:
        return not isinstance(recorded.event, Erased) and database.recorder.query(is_of_present)
    except (ConversationErased, ConversationNotFound):  # erased since the token saw it
        return False


def _read_page(read: Read, longest: int, after: str) -> Iterator[tuple[str, RecordedEvent | None]]:
    """Yield at most ``longest`` events behind a place. A page ends with the event that passes
    ``_PAGE_BYTES``. The first event is read alone, because it may be larger than all others.
    """
    size = 0
    number = 0
    count = 1
    while number < longest:
        count = min(count, longest - number)
        part_begins = number
        for place, event in read(after, count):
            number += 1
            after = place
            yield place, event
            size += len(_encode(event))
            if size > _PAGE_BYTES:
                return
        if number - part_begins < count:
            return
        count = min(2 * count, _TOGETHER)


def _follow(
    request: AdmittedRequest, after: str, wait_s: float, limit: int, source: _Source
) -> Deferred | Response:
    """Return a stream of server-sent events if the client accepts one, and else a poll."""
    after = request.headers.get("last-event-id", after)
    longest = min(limit, _PAGE)
    read_page = partial(_read_page, source.read, longest)
    source.check(after)
    if "text/event-stream" in request.headers.get("accept", ""):

        def look() -> Hashable:
            return longest, source.look()

        def framed(after: str) -> FramedPage:
            return FramedPage.of("event", read_page(after))

        def problem(error: Exception) -> bytes:
            return msgspec.json.encode(refusal_of(error).document)

        followed = Followed(look, framed, source.keys)
        return server_sent_events.event_stream(
            server_sent_events.stream(request.changes, followed, after, problem)
        )

    def read_again(after: str) -> list[tuple[str, RecordedEvent | None]]:
        source.look()
        return list(read_page(after))

    page = read_again(after)

    async def poll() -> FollowedEvents:
        nonlocal after, page
        give_up_at = time.monotonic() + min(wait_s, _POLL_MAX_S)
        with request.changes.following(source.keys) as follower:
            while True:
                if page:
                    after = page[-1][0]
                events = [event for _, event in page if event is not None]
                left_s = give_up_at - time.monotonic()
                if events or left_s <= 0 or request.changes.is_ending():
                    return FollowedEvents(events=events, after=after)
                has_changed = bool(page) or await follower.wait(min(left_s, _LOOK_S))
                if await request.is_disconnected():
                    raise ClientDisconnect
                if has_changed:
                    page = await request.changes.threads.run(partial(read_again, after))

    return Deferred(poll)
