"""What a model is shown: Views, the messages of a View, and why an event is in it or not."""

from __future__ import annotations

from typing import Any

from foldlog._web.service.admitted import AdmittedRequest
from foldlog._web.service.events import RecordedEvent
from foldlog._web.service.operations import LEASED, OperationAnswer, OperationRequest, operation
from foldlog._web.service.problems import Refusal
from foldlog._web.service.tokens import Scope
from foldlog._words.event_json import event_document
from foldlog.eventstore import SystemMessage
from foldlog.projections import View
from foldlog.projections.messages import Dialect


class ViewQuery(OperationRequest):
    """``at`` is a version, by default the newest. ``dialect`` asks for the messages of the View
    too: openai, openai-reasoning, litellm, anthropic, anthropic-cached or responses. ``sent`` asks
    for the View as a model is sent it, without what a condenser hides.
    """

    at: int | None = None
    dialect: Dialect | None = None
    sent: bool = False


class ShownView(OperationAnswer):
    """``events`` are shown to a model, in this order. Summaries have ids below -1. ``system`` is
    the system prompt, which messages for Anthropic do not contain.
    """

    version: int
    events: list[dict[str, Any]]
    unhandled_condensation_request: bool
    messages: list[dict[str, Any]] | None = None
    system: str | None = None
    tools: list[dict[str, Any]] = []


class PrepareBody(OperationRequest):
    dialect: Dialect = "openai"


class ReasonBody(OperationRequest):
    reason: str = ""


class Fate(OperationAnswer):
    """``fate`` is shown, forgotten, taken back or never shown. ``by`` is the condensation or the
    retraction, ``summary`` the summary that stands for the event now.
    """

    event: dict[str, Any]
    version: int
    fate: str
    reason: str
    position: int | None
    sent: bool
    by: dict[str, Any] | None
    forgotten_at: int | None
    summary: dict[str, Any] | None


class AtQuery(OperationRequest):
    at: int | None = None


class BetweenQuery(OperationRequest):
    before: int
    after: int


class ViewDifference(OperationAnswer):
    before: int
    after: int
    entered: list[dict[str, Any]]
    left: list[dict[str, Any]]


class DroppedQuery(OperationRequest):
    condensation: int | None = None


class LostTerm(OperationAnswer):
    term: str
    event: int
    needed_in: int | None


class DroppedEvents(OperationAnswer):
    """``condensation`` is null if nothing was condensed."""

    condensation: int | None
    events: list[int] = []
    tokens: int = 0
    summary: str | None = None
    terms: list[LostTerm] = []


@operation("GET", "/conversations/{conversation}/view", Scope.READ)
def read_view(request: AdmittedRequest, query: ViewQuery) -> ShownView:
    """Return the View, now or at a version."""
    history = request.history
    if query.sent:
        view = history.sent(query.at)
    else:
        view = history.view() if query.at is None else history.at(query.at)
    return _document(view, query.dialect)


@operation("POST", "/conversations/{conversation}/prepare", Scope.APPEND, headers=LEASED)
def prepare(request: AdmittedRequest, body: PrepareBody) -> ShownView:
    """Return the View to send to the model, with its messages. If the View has become too large,
    the condenser of the server first forgets events.
    """
    return _document(request.history.prepare(), body.dialect)


@operation(
    "POST",
    "/conversations/{conversation}/condensation-requests",
    Scope.APPEND,
    status=201,
    headers=LEASED,
)
def request_condensation(request: AdmittedRequest, body: ReasonBody) -> RecordedEvent:
    """Ask for a condensation at the next ``prepare``."""
    return RecordedEvent.of(request.history.request_condensation(body.reason))


@operation("POST", "/conversations/{conversation}/condensations", Scope.APPEND, headers=LEASED)
def condense(request: AdmittedRequest, body: ReasonBody) -> ShownView:
    """Condense now, and return the View."""
    history = request.history
    history.condense(body.reason)
    return _document(history.view(), None)


@operation("GET", "/conversations/{conversation}/why/{event}", Scope.READ)
def why(request: AdmittedRequest, query: AtQuery) -> Fate:
    """Say why the View shows an event or not."""
    answer = request.history.why(_event_id(request), query.at)
    return Fate(
        event=event_document(answer.event),
        version=answer.version,
        fate=answer.fate,
        reason=answer.reason,
        position=answer.position,
        sent=answer.sent,
        by=None if answer.by is None else event_document(answer.by),
        forgotten_at=answer.forgotten_at,
        summary=None if answer.stands_in is None else event_document(answer.stands_in),
    )


@operation("GET", "/conversations/{conversation}/difference", Scope.READ)
def difference(request: AdmittedRequest, query: BetweenQuery) -> ViewDifference:
    """Return the events that entered or left the View between two versions."""
    found = request.history.difference(query.before, query.after)
    return ViewDifference(
        before=found.before,
        after=found.after,
        entered=[event_document(event) for event in found.entered],
        left=[event_document(event) for event in found.left],
    )


@operation("GET", "/conversations/{conversation}/dropped", Scope.READ)
def dropped(request: AdmittedRequest, query: DroppedQuery) -> DroppedEvents:
    """Return what a condensation took out of the View, by default the newest condensation."""
    found = request.history.dropped(query.condensation)
    if found is None:
        return DroppedEvents(condensation=None)
    return DroppedEvents(
        condensation=found.condensation.id,
        events=list(found.ids),
        tokens=found.tokens,
        summary=None if found.summary is None else str(found.summary.content),
        terms=[
            LostTerm(term=term.term, event=term.event, needed_in=term.needed_in)
            for term in found.terms
        ],
    )


def _document(view: View, dialect: Dialect | None) -> ShownView:
    return ShownView(
        version=view.version,
        events=[event_document(event) for event in view],
        unhandled_condensation_request=view.unhandled_condensation_request,
        messages=None if dialect is None else view.to_messages(dialect),
        system=view.system_prompt,
        tools=_tools(view),
    )


def _tools(view: View) -> list[dict[str, Any]]:
    prompts = [event for event in view if isinstance(event, SystemMessage)]
    return list(prompts[-1].tools) if prompts else []


def _event_id(request: AdmittedRequest) -> int:
    text = request.parameters["event"]
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 15):
        raise Refusal(400, f"{text!r} is not the id of an event; ids are whole numbers")
    return int(text)
