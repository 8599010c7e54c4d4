"""Records of other programs: the items of an SDK, or the lines of a coding agent's transcript.

A record becomes events, and is stored beside them, so that it is read back unchanged.
"""

from __future__ import annotations

from typing import Any, Literal

from foldlog._answers.document import Document
from foldlog._web.service.events import AppendedEvents
from foldlog._web.service.operations import operation
from foldlog._web.service.request import AdmittedRequest
from foldlog._web.service.tokens import Scope
from foldlog.adapters._shared import SentRecords, records_of
from foldlog.types import ExpectedVersion


class ConversationRecords(Document, frozen=True):
    """The records in their order. ``newest`` are the ids of the events of the last sent record."""

    version: int
    records: list[Any]
    newest: list[int] = []


@operation("POST", "/conversations/{conversation}/records", Scope.APPEND, status=201)
def append_records(
    request: AdmittedRequest,
    *,
    format: str,
    records: list[dict[str, Any]],
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


@operation("GET", "/conversations/{conversation}/records", Scope.READ)
def read_records(
    request: AdmittedRequest, *, format: str, sent: bool = False
) -> ConversationRecords:
    """Return the records of a format.

    ``sent`` asks for the records that are sent to a model: without what was taken back, and with
    a summary for what was condensed.
    """
    history = request.history
    if not sent:
        version = history.version()
        records = list(records_of(history, format, 0, version))
        return ConversationRecords(version=version, records=records)
    prompt = SentRecords(history, condense=False)
    groups = [group for group in prompt.records(prompt.view, format) if group[1]]
    return ConversationRecords(
        version=prompt.view.version,
        records=[record for _, records in groups for record in records],
        newest=[event.id for event in groups[-1][0]] if groups else [],
    )
