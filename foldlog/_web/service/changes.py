"""Take events back, and erase their content."""

from __future__ import annotations

from foldlog._answers.document import Document
from foldlog._web.parameters import Count
from foldlog._web.service.events import RecordedEvent
from foldlog._web.service.operations import operation
from foldlog._web.service.request import AdmittedRequest
from foldlog._web.service.tokens import Scope
from foldlog.types import ExpectedVersion


class RedactedEvents(Document, frozen=True):
    """``summaries`` are the condensations whose summaries may quote the events."""

    redacted: tuple[int, ...]
    summaries: list[int]
    bytes_pending: bool
    unconfirmed: tuple[str, ...]


@operation("POST", "/conversations/{conversation}/retractions", Scope.APPEND, status=201)
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


@operation("POST", "/conversations/{conversation}/redactions", Scope.ADMINISTER, status=201)
def redact(
    request: AdmittedRequest,
    *,
    events: list[int],
    reason: str,
    by: str | None = None,
    with_summaries: bool = False,
) -> RedactedEvents:
    """Erase the content of events for good. Ids, times and heads stay."""
    receipt = request.history.redact(
        events, reason=reason, by=by or request.principal.name, with_summaries=with_summaries
    )
    return RedactedEvents.of(
        receipt,
        redacted=receipt.event_ids,
        summaries=[quote.event_id for quote in receipt.quotes],
    )
