"""Records of other programs: the items of an SDK, or the lines of a coding agent's transcript.

A record becomes events, and is stored beside them, so that it is read back unchanged.
"""

from __future__ import annotations

from typing import Any, Literal

from foldlog._web.service.admitted import AdmittedRequest
from foldlog._web.service.events import AppendedEvents
from foldlog._web.service.operations import APPENDS, OperationAnswer, OperationRequest, operation
from foldlog._web.service.tokens import Scope
from foldlog.adapters._shared import SentRecords, records_of


class RecordsBody(OperationRequest):
    """``format`` is a format of ``docs/FORMATS.md``, such as openai-responses or claude-code. With
    ``dedupe``, records whose id the conversation has already are left out.
    """

    format: str
    records: list[dict[str, Any]]
    dedupe: Literal["origin"] | None = None


class RecordsQuery(OperationRequest):
    """``sent`` asks for the records that are sent to a model: without what was taken back, and with
    a summary for what was condensed.
    """

    format: str
    sent: bool = False


class ConversationRecords(OperationAnswer):
    """The records in their order. ``newest`` are the ids of the events of the last sent record."""

    version: int
    records: list[Any]
    newest: list[int] = []


@operation(
    "POST", "/conversations/{conversation}/records", Scope.APPEND, status=201, headers=APPENDS
)
def append_records(request: AdmittedRequest, body: RecordsBody) -> AppendedEvents:
    """Append records of a format, all or none. A conversation has records of one format."""
    history = request.history
    recorded = history.append_records(
        body.records,
        format=body.format,
        expected_version=request.expected_version,
        idempotency_key=request.idempotency_key,
        dedupe=body.dedupe,
    )
    return AppendedEvents.after(history, recorded)


@operation("GET", "/conversations/{conversation}/records", Scope.READ)
def read_records(request: AdmittedRequest, query: RecordsQuery) -> ConversationRecords:
    """Return the records of a format: all of the log, or those that are sent to a model."""
    history = request.history
    if not query.sent:
        version = history.version()
        records = list(records_of(history, query.format, 0, version))
        return ConversationRecords(version=version, records=records)
    prompt = SentRecords(history, condense=False)
    groups = [group for group in prompt.records(prompt.view, query.format) if group[1]]
    return ConversationRecords(
        version=prompt.view.version,
        records=[record for _, records in groups for record in records],
        newest=[event.id for event in groups[-1][0]] if groups else [],
    )
