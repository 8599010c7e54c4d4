"""What a model is shown: Views, the messages of a View, and why an event is in it or not."""

from __future__ import annotations

from typing import Self

from foldlog._app.server.parameters import Count
from foldlog._app.server.problems import Refusal
from foldlog._app.server.service.events import RecordedEvent, RequestIdentity
from foldlog._app.server.service.operations import operation
from foldlog._app.server.service.request import VIEW_BYTES_MAX, AdmittedRequest
from foldlog._app.server.service.tokens import Scope
from foldlog._base.json_types import JsonObject
from foldlog._reports.answers.document import Document
from foldlog._reports.answers.views import DroppedDocument
from foldlog._reports.dropped import dropped_document
from foldlog._reports.words.event_json import event_document
from foldlog.eventstore import Event, SystemMessage
from foldlog.eventstore.errors import TooManyBytes
from foldlog.eventstore.log.reading import views_up_to
from foldlog.projections import View
from foldlog.projections.explain import Fate
from foldlog.projections.messages.turns import Dialect


class ShownView(Document, frozen=True):
    """``events`` are shown to a model, in this order. Summaries have ids below -1. ``system`` is
    the system prompt, which messages for Anthropic do not contain. A reply to the messages names
    ``model_request``. ``reply_due`` says whether the model is to reply now.
    """

    version: int
    events: list[JsonObject]
    unhandled_condensation_request: bool
    reply_due: bool
    messages: list[JsonObject] | None = None
    model_request: RequestIdentity | None = None
    system: str | None = None
    tools: list[JsonObject] = []

    @classmethod
    def of_view(cls, view: View, dialect: Dialect | None) -> Self:
        prompts = [event for event in view if isinstance(event, SystemMessage)]
        request = None if dialect is None else view.request(dialect)
        identity = None
        if request is not None:
            identity = RequestIdentity.of(request, messages=request.messages_digest)
        return cls.of(
            view,
            events=[event_document(event) for event in view],
            messages=None if request is None else request.messages,
            model_request=identity,
            system=view.system_prompt,
            tools=list(prompts[-1].tools) if prompts else [],
        )


class PreparedView(ShownView, frozen=True):
    """A View with its messages, and with the identity of a request that sends them."""

    messages: list[JsonObject]
    model_request: RequestIdentity


class EventFate(Document, frozen=True):
    """``by`` is the condensation or the retraction, ``summary`` the summary that stands for the
    event now.
    """

    event: JsonObject
    version: int
    fate: Fate
    reason: str
    position: int | None
    sent: bool
    by: JsonObject | None
    forgotten_at: int | None
    summary: JsonObject | None


class ViewDifference(Document, frozen=True):
    before: int
    after: int
    entered: list[JsonObject]
    left: list[JsonObject]


@operation("GET", "/conversations/{conversation}/view")
def read_view(
    request: AdmittedRequest,
    *,
    at: Count | None = None,
    dialect: Dialect | None = None,
    sent: bool = False,
) -> ShownView:
    """Return the View, now or at a version.

    ``at`` is a version, by default the newest. ``dialect`` asks for the messages of the View
    too: openai, openai-reasoning, litellm, anthropic, anthropic-cached or responses. ``sent`` asks
    for the View as a model is sent it, without what a condenser hides.
    """
    history = request.history
    if sent:
        view = history.sent(at)
    else:
        view = history.view() if at is None else history.at(at)
    return ShownView.of_view(view, dialect)


@operation("POST", "/conversations/{conversation}/prepare", Scope.APPEND)
def prepare(request: AdmittedRequest, *, dialect: Dialect = "openai") -> PreparedView:
    """Return the View to send to the model, with its messages. If the View has become too large,
    the condenser of the server first forgets events.
    """
    return PreparedView.of_view(request.history.prepare(), dialect)


@operation("POST", "/conversations/{conversation}/condensation-requests")
def request_condensation(
    request: AdmittedRequest, *, reason: str = "", idempotency_key: str | None
) -> RecordedEvent:
    """Ask for a condensation at the next ``prepare``."""
    recorded = request.history.request_condensation(reason, idempotency_key=idempotency_key)
    return RecordedEvent.of_recorded(recorded)


@operation("POST", "/conversations/{conversation}/condensations", status=200)
def condense(
    request: AdmittedRequest, *, reason: str = "", idempotency_key: str | None
) -> ShownView:
    """Condense now, and return the View. If it still has more than 32 MiB of events, the answer
    refuses to return it, and the condensation is in the log.
    """
    history = request.history
    history.view()  # raises the error by which a large View waits, before anything is written
    with views_up_to(None):
        history.condense(reason, idempotency_key=idempotency_key)
    try:
        with views_up_to(VIEW_BYTES_MAX):
            view = history.view()
    except TooManyBytes:
        raise Refusal(
            422,
            f"conversation {history.id!r} was condensed, and its View still has more than"
            f" {VIEW_BYTES_MAX:,} bytes of events; condense it again, take events back, or read the"
            " events by pages",
        ) from None
    return ShownView.of_view(view, None)


@operation("GET", "/conversations/{conversation}/why/{event}")
def why(request: AdmittedRequest, event: int, *, at: Count | None = None) -> EventFate:
    """Say why the View shows an event or not."""
    answer = request.history.why(event, at)
    return EventFate.of(
        answer,
        event=event_document(answer.event),
        by=_optional_document(answer.by),
        summary=_optional_document(answer.stands_in),
    )


@operation("GET", "/conversations/{conversation}/difference")
def difference(request: AdmittedRequest, *, before: Count, after: Count) -> ViewDifference:
    """Return the events that entered or left the View between two versions."""
    changes = request.history.difference(before, after)
    return ViewDifference(
        before=before,
        after=after,
        entered=list(map(event_document, changes.entered)),
        left=list(map(event_document, changes.left)),
    )


@operation("GET", "/conversations/{conversation}/dropped")
def dropped(request: AdmittedRequest, *, condensation: Count | None = None) -> DroppedDocument:
    """Return what a condensation took out of the View, by default the newest condensation."""
    drop = request.history.dropped(condensation)
    if drop is None:
        raise Refusal(409, f"conversation {request.history.id!r} was never condensed")
    return dropped_document(drop)


def _optional_document(event: Event | None) -> JsonObject | None:
    return None if event is None else event_document(event)
