"""Follow new events: as server-sent events, or as long polls.

A client continues after the last event that it has: it sends ``after``, or the header
``Last-Event-ID``, which browsers send by themselves. The server reads the next page of events only
after the client has taken the page before, so a slow client costs no memory.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from itertools import islice
from typing import Final

import msgspec
from anyio import to_thread

from foldlog._web.service import problems
from foldlog._web.service.admitted import AdmittedRequest, Later, Stream
from foldlog._web.service.events import RecordedEvent
from foldlog._web.service.operations import OperationAnswer, OperationRequest, operation
from foldlog._web.service.problems import Refusal
from foldlog._web.service.tokens import Scope
from foldlog._words.event_json import event_document
from foldlog.eventstore import ConversationErased, ConversationNotFound, Recorded

_PAGE: Final = 100
_WAIT_S: Final = 0.25
"""A follower reads again after this time even if the store has not changed, because on PostgreSQL
an event becomes visible only when all earlier transactions have ended.
"""
_BEAT_S: Final = 15.0
_POLL_MAX_S: Final = 30.0
_encode: Final = msgspec.json.Encoder().encode


class FollowQuery(OperationRequest):
    """``after`` of the answer before, at first 0. ``wait_s`` is the number of seconds that a poll
    waits for a new event, at most 30.
    """

    after: str = "0"
    wait_s: float = 0.0
    limit: int = _PAGE


class FollowedEvents(OperationAnswer):
    """The next events, in their order. With ``after``, the next request continues behind them."""

    events: list[RecordedEvent]
    after: str


Read = Callable[[str], list[tuple[str, RecordedEvent | None]]]
"""Reads a page of events behind a place. Each event has the place behind it. An event that the
token may not see is None.
"""


@operation("GET", "/conversations/{conversation}/follow", Scope.READ)
def follow_conversation(
    request: AdmittedRequest, query: FollowQuery
) -> FollowedEvents | Later | Stream:
    """Return the events of a conversation behind ``after``, a number of events. With ``Accept:
    text/event-stream``, the answer is a stream that goes on with each append.
    """
    history = request.history
    if history.version() == 0:
        raise ConversationNotFound(history.id)
    store = request.histories.store
    limit = max(1, min(query.limit, _PAGE))

    def read(after: str) -> list[tuple[str, RecordedEvent | None]]:
        request.check_visible(history)
        start = _number(after)
        history.version()  # an erased conversation ends the stream
        return [
            (
                str(logged.event.id + 1),
                RecordedEvent(
                    conversation=history.id,
                    id=logged.event.id,
                    recorded_at=logged.recorded_at.isoformat(),
                    event=event_document(logged.event),
                ),
            )
            for logged in islice(store.log(history.id, start), limit)
        ]

    return _follow(request, query, read)


@operation("GET", "/follow", Scope.READ)
def follow_store(request: AdmittedRequest, query: FollowQuery) -> FollowedEvents | Later | Stream:
    """Return the events of all conversations that the token may see, behind the position
    ``after``. With ``Accept: text/event-stream``, the answer is a stream.
    """
    store = request.histories.store
    limit = max(1, min(query.limit, _PAGE))

    def read(after: str) -> list[tuple[str, RecordedEvent | None]]:
        return [
            (
                str(recorded.position),
                RecordedEvent.of(recorded) if _is_visible(request, recorded) else None,
            )
            for recorded in store.follow(after, limit)
        ]

    return _follow(request, query, read)


def _follow(request: AdmittedRequest, query: FollowQuery, read: Read) -> Later | Stream:
    after = request.headers.get("last-event-id", query.after)
    first = read(after)  # a wrong place is refused, and begins no stream
    if "text/event-stream" in request.headers.get("accept", ""):
        return Stream(lambda: _stream(request, read, after, first))
    return Later(lambda: _poll(request, read, after, first, min(query.wait_s, _POLL_MAX_S)))


async def _poll(
    request: AdmittedRequest,
    read: Read,
    after: str,
    page: list[tuple[str, RecordedEvent | None]],
    wait_s: float,
) -> FollowedEvents:
    give_up_at = time.monotonic() + wait_s
    while True:
        if page:
            after = page[-1][0]
        events = [event for _, event in page if event is not None]
        left_s = give_up_at - time.monotonic()
        if events or left_s <= 0 or request.is_ending():
            return FollowedEvents(events=events, after=after)
        if not page:
            await request.changes.wait(min(left_s, _WAIT_S))
        page = await to_thread.run_sync(read, after)


async def _stream(
    request: AdmittedRequest, read: Read, after: str, page: list[tuple[str, RecordedEvent | None]]
) -> AsyncIterator[str]:
    spoke_at = time.monotonic()
    yield "retry: 1000\n\n"
    while not request.is_ending():
        for after, event in page:
            if event is None:
                continue
            spoke_at = time.monotonic()
            yield f"id: {after}\nevent: event\ndata: {_encode(event).decode()}\n\n"
        if not page:
            await request.changes.wait(_WAIT_S)
        if time.monotonic() - spoke_at > _BEAT_S:
            spoke_at = time.monotonic()
            yield f"id: {after}\nevent: beat\ndata: {{}}\n\n"
        try:
            page = await to_thread.run_sync(read, after)
        except Exception as error:  # noqa: BLE001 - the stream ends with the reason
            problem = problems.document(problems.refusal_of(error, has_lease=False))
            yield f"event: problem\ndata: {_encode(problem).decode()}\n\n"
            return


def _is_visible(request: AdmittedRequest, recorded: Recorded) -> bool:
    if not request.principal.where:
        return True
    try:
        attributes = request.histories[recorded.conversation].attributes()
    except (ConversationErased, ConversationNotFound):
        return False
    return request.principal.sees(attributes)


def _number(after: str) -> int:
    if not (after.isascii() and after.isdigit() and len(after) <= 15):
        raise Refusal(400, f"after is {after!r}; send 'after' of the answer before")
    return int(after)
