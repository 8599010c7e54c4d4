"""Append to a conversation, read its events and records, and take events back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final, Literal

import msgspec

from foldlog._app.server.parameters import Count, Named, Text
from foldlog._app.server.problems import Refusal
from foldlog._app.server.service.operations import operation
from foldlog._app.server.service.request import LEASE, AdmittedRequest
from foldlog._app.server.service.stream_states import may_write, not_its_writer, read_state
from foldlog._app.server.service.tokens import Scope
from foldlog._base.json_types import JsonObject
from foldlog._history import effects
from foldlog._history.history import History
from foldlog._history.lease import LeaseTaken, check_free
from foldlog._history.streamed_reply import find_unfinished
from foldlog._reports.answers.document import Document
from foldlog._reports.words.event_json import event_document
from foldlog.adapters._shared import SentRecords, records_of
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    Logged,
    Message,
    Observation,
    ReadTransaction,
    Recorded,
    SystemMessage,
    summary_of,
)
from foldlog.eventstore.errors import StreamNotFound
from foldlog.eventstore.log.streams import REPLY
from foldlog.eventstore.store import prepare_append
from foldlog.projections import Dialect, ModelRequest
from foldlog.projections.call_states import is_approval
from foldlog.types import ExpectedVersion

EVENTS_MAX: Final = 1_000
"""The maximum number of events in an answer."""
_EVENTS_BYTES: Final = 8_000_000
"""An answer ends with the event that passes this number of bytes."""
_RECORDS_BYTES_MAX: Final = 32 * 1024 * 1024
"""More records are refused, because the server holds them in memory."""

AppendableEvent = (
    SystemMessage
    | Message
    | Action
    | Observation
    | Annotation
    | CondensationRequest
    | CondensationAction
)


def _check_approvals(request: AdmittedRequest, events: Sequence[AppendableEvent]) -> None:
    """Refuse annotations with which a program that appends decides about its own calls."""
    if any(is_approval(event) for event in events):
        request.principal.require(Scope.ADMINISTER)


class RecordedEvent(Document, frozen=True):
    """``position`` is the place of the event in the whole store, as a text, because it may exceed
    2^53; an answer about one conversation may leave it out. ``event`` is the event as the store
    keeps it, with its ``id`` and its ``kind``.
    """

    conversation: str
    id: int
    recorded_at: str
    event: JsonObject
    position: str | None = None

    @classmethod
    def of_recorded(cls, recorded: Recorded) -> RecordedEvent:
        logged = cls.of_logged(recorded.conversation, recorded)
        return msgspec.structs.replace(logged, position=str(recorded.position))

    @classmethod
    def of_logged(cls, conversation: str, logged: Logged | Recorded) -> RecordedEvent:
        return cls(
            conversation=conversation,
            id=logged.event.id,
            recorded_at=logged.recorded_at.isoformat(),
            event=event_document(logged.event),
        )


class RequestIdentity(Document, frozen=True):
    """What identifies the request of a View: ``messages`` is the hash of its messages, which are
    written by foldlog's rules ``rendering``.
    """

    conversation: str
    version: int
    dialect: Dialect
    rendering: int
    messages: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]

    def to_model(self, tools: Sequence[JsonObject], parameters: JsonObject) -> ModelRequest:
        return ModelRequest(
            [],
            self.dialect,
            self.version,
            self.messages,
            tools=tools,
            parameters=parameters,
            conversation=self.conversation,
            rendering=self.rendering,
        )


class AppendedEvents(Document, frozen=True):
    """``version`` is the version after the append."""

    version: int
    recorded: list[RecordedEvent]

    @classmethod
    def after(cls, history: History, recorded: Sequence[Recorded]) -> AppendedEvents:
        version = recorded[-1].id + 1 if recorded else history.version()
        return cls(version=version, recorded=list(map(RecordedEvent.of_recorded, recorded)))


class EventPage(Document, frozen=True):
    """At most 1,000 events, and fewer if they are large. ``next`` is the start of the next page, or
    null at the end.
    """

    version: int
    events: list[JsonObject]
    next: int | None


@operation("POST", "/conversations/{conversation}/events")
def append_events(
    request: AdmittedRequest,
    *,
    events: Sequence[AppendableEvent] = (),
    messages: Sequence[JsonObject] = (),
    documents: Named[Any] | None = None,
    expected_version: ExpectedVersion,
    idempotency_key: str | None,
) -> AppendedEvents:
    """Append events or chat messages, all or none. When the answer comes, the events are on disk.
    The first append begins the conversation.

    Send either ``events`` or chat ``messages``. ``documents`` are new values of documents, written
    together with the events; null removes a document.
    """
    if events and messages:
        raise Refusal(422, "send either 'events' or 'messages', not both")
    _check_approvals(request, events)
    history = request.history
    recorded = history.append(
        events or messages,
        expected_version=expected_version,
        idempotency_key=idempotency_key,
        documents=request.checked_documents(documents or {}) or None,
    )
    return AppendedEvents.after(history, recorded)


@operation("POST", "/conversations/{conversation}/replies", Scope.APPEND, status=201)
def append_reply(
    request: AdmittedRequest,
    *,
    reply: JsonObject | None = None,
    stream: str | None = None,
    cut: bool = False,
    view_version: Count | None = None,
    model_request: RequestIdentity | None = None,
    tools: Sequence[JsonObject] = (),
    parameters: JsonObject | None = None,
    cost: float | None = None,
    meta: JsonObject | None = None,
    expected_version: ExpectedVersion,
    idempotency_key: str | None,
) -> AppendedEvents:
    """Append what a model answered: an action for each tool call, or the agent's message.

    ``reply`` is what the model's server answered: a chat completion or one of its messages, a
    response of OpenAI, or a message of Anthropic. ``stream`` is the name of the open stream to
    which the reply was written, which is closed in the same transaction; a request without the
    lease sends the ``Producer-Id`` that began the stream. Without ``reply``, the reply is made of
    its deltas; with ``cut``, which takes no ``reply``, its end is missing, and calls whose
    arguments are incomplete are left out. ``view_version`` is the version of the View that was sent
    to the model. ``model_request`` comes from the answer that had the messages, and ``tools`` and
    ``parameters`` are what was sent beside them; the reply records all three.
    """
    if cut and (stream is None or reply is not None):
        raise Refusal(422, "'cut' ends a 'stream' with what was written to it; leave out 'reply'")
    history = request.history
    request_made = None
    if model_request is not None:
        request_made = model_request.to_model(tools, parameters or {})
    options: JsonObject = {
        "cost": cost,
        "meta": meta,
        "request": request_made,
        "view_version": view_version,
        "expected_version": expected_version,
        "idempotency_key": idempotency_key,
    }
    if stream is not None:
        writer = request.headers.get("producer-id")
        recorded = _end_stream(history, stream, writer, reply, options, cut=cut)
    elif reply is None:
        raise Refusal(422, "send a 'reply', or the 'stream' that it was written to")
    else:
        recorded = history.append_reply(reply, **options)
    return AppendedEvents.after(history, recorded)


def _end_stream(
    history: History,
    name: str,
    writer: str | None,
    reply: JsonObject | None,
    options: JsonObject,
    *,
    cut: bool,
) -> Sequence[Recorded]:
    """Append the reply that was written to a stream, and close the stream. While a worker has the
    lease, only its requests do so. Without a lease, only the producer ``writer`` ends the reply
    that it began: for another one, the function raises a ``Refusal`` (409).
    """
    if history._lease_block is None:
        database = history._store.database
        database.recorder.query(partial(check_free, database, history.id))
    key = options["idempotency_key"]
    unfinished = find_unfinished(history, name, with_deltas=reply is None)
    state = None if unfinished is None else read_state(unfinished._stream.state)
    if state is None or (name == REPLY and not may_write(history, state, writer)):
        # A request that is repeated with its key finds its stream closed, or the next reply open.
        if key is not None and (repeated := history.recorded(key)):
            return repeated
        if state is not None:
            raise not_its_writer(state)
    if unfinished is None:
        raise StreamNotFound(history.id, f"{name!r} that is open")
    if cut:
        return unfinished._append_cut(options)
    return unfinished.append(reply, **options)


@operation("POST", "/conversations/{conversation}/tool-results")
def append_tool_result(
    request: AdmittedRequest,
    *,
    call: Text,
    content: Any,
    is_error: bool = False,
    extras: JsonObject | None = None,
    idempotency_key: str | None,
) -> AppendedEvents:
    """Append the result of an open tool call. ``call`` is the id that the model gave the call."""
    try:
        history = request.history
    except LeaseTaken:
        # The tool has run, so its outcome is recorded, even if another worker closed the call.
        effects.end_elsewhere(
            request.history_without_lease, call, content, is_error, idempotency_key
        )
        raise
    recorded = history.append_tool_result(
        call, content, is_error, extras=extras, idempotency_key=idempotency_key
    )
    return AppendedEvents.after(history, [recorded])


@operation("GET", "/conversations/{conversation}/events")
def read_events(
    request: AdmittedRequest, *, start: Count = 0, stop: Count | None = None
) -> EventPage:
    """Return the events with the ids from ``start`` to before ``stop``, forgotten events too."""
    history = request.history
    version = history.version()
    stop = version if stop is None else min(stop, version)
    events: list[JsonObject] = []
    size = 0
    for event in islice(history.events(start, stop), EVENTS_MAX):
        events.append(event_document(event))
        size += len(msgspec.json.encode(events[-1]))
        if size > _EVENTS_BYTES:
            break
    after = start + len(events)
    return EventPage(version=version, events=events, next=after if after < stop else None)


class OneAppend(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    conversation: Text
    events: Annotated[list[AppendableEvent], msgspec.Meta(min_length=1)]
    expected_version: Count


class AppendedTogether(Document, frozen=True):
    """The appends in the order of the request."""

    appended: list[AppendedEvents]


@operation("POST", "/appends")
def append_together(
    request: AdmittedRequest,
    *,
    appends: Annotated[list[OneAppend], msgspec.Meta(min_length=2)],
    idempotency_key: str | None,
) -> AppendedTogether:
    """Append to at least two different conversations: all events are appended, or none."""
    if LEASE in request.headers:
        raise Refusal(400, "an append to several conversations writes under no lease")
    for append in appends:
        _check_approvals(request, append.events)
    histories = [request.histories[append.conversation] for append in appends]
    for history in histories:
        request.check_visible(history)
    # If another conversation gets an id, a bound store does not append to it.
    store, *other_stores = (history._store for history in histories)
    first, *others = appends
    together = [
        prepare_append(
            other_store, other.conversation, other.events, other.expected_version, idempotency_key
        )
        for other_store, other in zip(other_stores, others, strict=True)
    ]
    recorded = [
        store.append(
            first.conversation,
            first.events,
            expected_version=first.expected_version,
            idempotency_key=idempotency_key,
            together=together,
        ),
        *(prepared.recorded() for prepared in together),
    ]
    return AppendedTogether(
        appended=[
            AppendedEvents.after(history, appended)
            for history, appended in zip(histories, recorded, strict=True)
        ]
    )


class RedactedEvents(Document, frozen=True):
    """``summaries`` are the condensations whose summaries may quote the events."""

    redacted: tuple[int, ...]
    summaries: list[int]
    bytes_pending: bool
    unconfirmed: tuple[str, ...]


@operation("POST", "/conversations/{conversation}/retractions")
def retract(
    request: AdmittedRequest,
    *,
    version: Count,
    reason: str = "",
    expected_version: ExpectedVersion,
    idempotency_key: str | None,
) -> RecordedEvent:
    """Take back all events after ``version``. They stay in the log."""
    recorded = request.history.retract(
        version, reason, expected_version=expected_version, idempotency_key=idempotency_key
    )
    return RecordedEvent.of_recorded(recorded)


@operation("POST", "/conversations/{conversation}/redactions", Scope.ADMINISTER)
def redact(
    request: AdmittedRequest,
    *,
    events: Annotated[list[int], msgspec.Meta(min_length=1)],
    reason: Text,
    by: str | None = None,
    with_summaries: bool = False,
) -> RedactedEvents:
    """Erase the content of events for good. Ids, times and heads stay."""
    _refuse_events_of_others(request, events)
    receipt = request.history.redact(
        events, reason=reason, by=by or request.principal.name, with_summaries=with_summaries
    )
    request.exports.clear()
    return RedactedEvents.of(
        receipt,
        redacted=receipt.event_ids,
        summaries=[quote.event_id for quote in receipt.quotes],
    )


def _refuse_events_of_others(request: AdmittedRequest, events: Sequence[int]) -> None:
    """Raise a ``Refusal`` if a fork shares one of the events with a conversation that the token may
    not see. The store's own error names that conversation.
    """
    if not request.principal.where:
        return

    def read_owners(reading: ReadTransaction) -> dict[int, str]:
        # The id of a summary stands for its condensation.
        stored_ids = [summary_of(event) if event < -1 else event for event in events]
        return {event: reading.owner_of(event) for event in stored_ids}

    history = request.history
    for event, owner in history._store.query(history.id, read_owners).items():
        if owner != history.id and not request.is_visible(request.histories[owner]):
            raise Refusal(
                422,
                f"event {event} of conversation {history.id!r} belongs to a conversation that this"
                " token may not see; ask an administrator",
            )


class ConversationRecords(Document, frozen=True):
    """Records of another program, such as the items of an SDK, in their order. A record becomes
    events, and is stored beside them, so that it is read back unchanged. ``newest`` are the ids of
    the events of the last sent record.
    """

    version: int
    records: list[Any]
    newest: list[int] = []


@operation("POST", "/conversations/{conversation}/records")
def append_records(
    request: AdmittedRequest,
    *,
    format: Text,
    records: list[JsonObject],
    dedupe: Literal["origin"] | None = None,
    expected_version: ExpectedVersion,
    idempotency_key: str | None,
) -> AppendedEvents:
    """Append records of a format, all or none. A conversation has records of one format.

    ``format`` is a format of ``docs/FORMATS.md``, such as openai-responses or claude-code. With
    ``dedupe``, records whose id the conversation has already are left out.
    """
    history = request.history
    recorded = history.append_records(
        records,
        format=format,
        expected_version=expected_version,
        idempotency_key=idempotency_key,
        dedupe=dedupe,
    )
    return AppendedEvents.after(history, recorded)


def _records_to_answer(records: Iterable[Any]) -> list[Any]:
    """Return records as a list. Raises a ``Refusal`` if they are too large for an answer."""
    answered = []
    size = 0
    for record in records:
        answered.append(record)
        size += len(msgspec.json.encode(record))
        if size > _RECORDS_BYTES_MAX:
            raise Refusal(
                422,
                f"the records have more than {_RECORDS_BYTES_MAX:,} bytes; read them by pages of"
                " …/export",
            )
    return answered


@operation("GET", "/conversations/{conversation}/records")
def read_records(
    request: AdmittedRequest, *, format: Text, sent: bool = False
) -> ConversationRecords:
    """Return the records of a format.

    ``sent`` asks for the records that are sent to a model: without what was taken back, and with
    a summary for what was condensed. More than 32 MiB of records are refused; …/export has pages.
    """
    history = request.history
    if not sent:
        version = history.version()
        records = _records_to_answer(records_of(history, format, 0, version))
        return ConversationRecords(version=version, records=records)
    prompt = SentRecords(history, condense=False)
    groups = [group for group in prompt.records(prompt.view, format) if group[1]]
    return ConversationRecords(
        version=prompt.view.version,
        records=_records_to_answer(record for _, records in groups for record in records),
        newest=[event.id for event in groups[-1][0]] if groups else [],
    )
