"""Append to a conversation, and read its events."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any

import msgspec

from foldlog._history import effects
from foldlog._history.history import History
from foldlog._history.lease import LeaseTaken
from foldlog._web.service.admitted import LEASE, AdmittedRequest
from foldlog._web.service.operations import (
    APPENDS,
    KEYED,
    OperationAnswer,
    OperationRequest,
    operation,
)
from foldlog._web.service.problems import Refusal
from foldlog._web.service.tokens import Scope
from foldlog._words.event_json import event_document
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    Message,
    Observation,
    Recorded,
    SystemMessage,
)
from foldlog.eventstore.store import prepare_append

EVENTS_MAX = 1_000
"""The maximum number of events in an answer."""

AppendableEvent = (
    SystemMessage
    | Message
    | Action
    | Observation
    | Annotation
    | CondensationRequest
    | CondensationAction
)


class RecordedEvent(OperationAnswer):
    """``position`` is the place of the event in the whole store, as a text, because it may exceed
    2^53; an answer about one conversation may leave it out. ``event`` is the event as the store
    keeps it, with its ``id`` and its ``kind``.
    """

    conversation: str
    id: int
    recorded_at: str
    event: dict[str, Any]
    position: str | None = None

    @classmethod
    def of(cls, recorded: Recorded) -> RecordedEvent:
        return cls(
            conversation=recorded.conversation,
            id=recorded.id,
            position=str(recorded.position),
            recorded_at=recorded.recorded_at.isoformat(),
            event=event_document(recorded.event),
        )


class AppendedEvents(OperationAnswer):
    """``version`` is the version after the append."""

    version: int
    recorded: list[RecordedEvent]

    @classmethod
    def after(cls, history: History, recorded: Sequence[Recorded]) -> AppendedEvents:
        version = recorded[-1].id + 1 if recorded else history.version()
        return cls(version=version, recorded=list(map(RecordedEvent.of, recorded)))


class AppendBody(OperationRequest):
    """Either ``events`` or chat ``messages``. ``documents`` are new values of documents, written
    together with the events; null removes a document.
    """

    events: list[AppendableEvent] = []
    messages: list[dict[str, Any]] = []
    documents: dict[str, Any] = {}


class ReplyBody(OperationRequest):
    """``reply`` is what the model's server answered: a chat completion or one of its messages, a
    response of OpenAI, or a message of Anthropic. ``view_version`` is the version of the View that
    was sent to the model.
    """

    reply: dict[str, Any]
    view_version: int | None = None
    cost: float | None = None
    meta: dict[str, Any] = {}


class ToolResultBody(OperationRequest):
    """``call`` is the id of the call that the model gave it."""

    call: str
    content: Any
    is_error: bool = False
    extras: dict[str, Any] | None = None


class EventRange(OperationRequest):
    start: int = 0
    stop: int | None = None


class EventPage(OperationAnswer):
    """At most 1,000 events. ``next`` is the start of the next page, or null at the end."""

    version: int
    events: list[dict[str, Any]]
    next: int | None


@operation(
    "POST", "/conversations/{conversation}/events", Scope.APPEND, status=201, headers=APPENDS
)
def append_events(request: AdmittedRequest, body: AppendBody) -> AppendedEvents:
    """Append events or chat messages, all or none. When the answer comes, the events are on disk.
    The first append begins the conversation.
    """
    if body.events and body.messages:
        raise Refusal(400, "send either 'events' or 'messages', not both")
    history = request.history
    recorded = history.append(
        body.events or body.messages,
        expected_version=request.expected_version,
        idempotency_key=request.idempotency_key,
        documents=request.checked_documents(body.documents) or None,
    )
    return AppendedEvents.after(history, recorded)


@operation(
    "POST", "/conversations/{conversation}/replies", Scope.APPEND, status=201, headers=APPENDS
)
def append_reply(request: AdmittedRequest, body: ReplyBody) -> AppendedEvents:
    """Append what a model answered: an action for each tool call, or the agent's message."""
    history = request.history
    recorded = history.append_reply(
        body.reply,
        cost=body.cost,
        meta=body.meta,
        view_version=body.view_version,
        expected_version=request.expected_version,
        idempotency_key=request.idempotency_key,
    )
    return AppendedEvents.after(history, recorded)


@operation(
    "POST", "/conversations/{conversation}/tool-results", Scope.APPEND, status=201, headers=KEYED
)
def append_tool_result(request: AdmittedRequest, body: ToolResultBody) -> AppendedEvents:
    """Append the result of an open tool call."""
    try:
        history = request.history
    except LeaseTaken:
        # The tool has run, so its outcome is recorded, even if another worker closed the call.
        effects.end_elsewhere(
            request.history_without_lease,
            body.call,
            body.content,
            body.is_error,
            request.idempotency_key,
        )
        raise
    recorded = history.append_tool_result(
        body.call,
        body.content,
        body.is_error,
        extras=body.extras,
        idempotency_key=request.idempotency_key,
    )
    return AppendedEvents.after(history, [recorded])


@operation("GET", "/conversations/{conversation}/events", Scope.READ)
def read_events(request: AdmittedRequest, query: EventRange) -> EventPage:
    """Return the events with the ids from ``start`` to before ``stop``, forgotten events too."""
    history = request.history
    version = history.version()
    stop = version if query.stop is None else min(query.stop, version)
    events = [
        event_document(event) for event in islice(history.events(query.start, stop), EVENTS_MAX)
    ]
    after = query.start + len(events)
    return EventPage(version=version, events=events, next=after if after < stop else None)


class AppendTogetherBody(OperationRequest):
    """At least two appends, each to another conversation."""

    appends: Annotated[list[OneAppend], msgspec.Meta(min_length=2)]


class OneAppend(OperationRequest):
    conversation: str
    events: Annotated[list[AppendableEvent], msgspec.Meta(min_length=1)]
    expected_version: int


class AppendedTogether(OperationAnswer):
    """The appends in the order of the request."""

    appended: list[AppendedEvents]


@operation("POST", "/appends", Scope.APPEND, status=201, headers=("idempotency-key",))
def append_together(request: AdmittedRequest, body: AppendTogetherBody) -> AppendedTogether:
    """Append to several conversations: all events are appended, or none."""
    store = request.histories.store
    if LEASE in request.headers:
        raise Refusal(400, "an append to several conversations writes under no lease")
    histories = [request.histories[each.conversation] for each in body.appends]
    for history in histories:
        request.check_visible(history)
    first, *others = body.appends
    together = [
        prepare_append(store, each.conversation, each.events, each.expected_version)
        for each in others
    ]
    recorded = [
        store.append(
            first.conversation,
            first.events,
            expected_version=first.expected_version,
            idempotency_key=request.idempotency_key,
            together=together,
        ),
        *(each.recorded() for each in together),
    ]
    return AppendedTogether(
        appended=[
            AppendedEvents.after(history, each)
            for history, each in zip(histories, recorded, strict=True)
        ]
    )
