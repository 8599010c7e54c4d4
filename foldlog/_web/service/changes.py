"""Take events back, and erase their content."""

from __future__ import annotations

from foldlog._web.service.admitted import AdmittedRequest
from foldlog._web.service.events import RecordedEvent
from foldlog._web.service.operations import LEASED, OperationAnswer, OperationRequest, operation
from foldlog._web.service.tokens import Scope


class RetractionBody(OperationRequest):
    """All events after ``version`` are taken back."""

    version: int
    reason: str = ""


class RedactionBody(OperationRequest):
    events: list[int]
    reason: str
    by: str | None = None
    with_summaries: bool = False


class RedactedEvents(OperationAnswer):
    """``summaries`` are the condensations whose summaries may quote the events."""

    redacted: list[int]
    summaries: list[int]
    bytes_pending: bool
    unconfirmed: list[str]


@operation(
    "POST",
    "/conversations/{conversation}/retractions",
    Scope.APPEND,
    status=201,
    headers=("if-match", *LEASED),
)
def retract(request: AdmittedRequest, body: RetractionBody) -> RecordedEvent:
    """Take back all events after a version. They stay in the log."""
    recorded = request.history.retract(
        body.version, body.reason, expected_version=request.expected_version
    )
    return RecordedEvent.of(recorded)


@operation("POST", "/conversations/{conversation}/redactions", Scope.ADMINISTER, status=201)
def redact(request: AdmittedRequest, body: RedactionBody) -> RedactedEvents:
    """Erase the content of events for good. Ids, times and heads stay."""
    receipt = request.history.redact(
        body.events,
        reason=body.reason,
        by=body.by or request.principal.name,
        with_summaries=body.with_summaries,
    )
    return RedactedEvents(
        redacted=list(receipt.event_ids),
        summaries=[quote.event_id for quote in receipt.quotes],
        bytes_pending=receipt.bytes_pending,
        unconfirmed=list(receipt.unconfirmed),
    )
