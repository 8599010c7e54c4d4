"""Answers about imports, exports and reports."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from foldlog._reports.answers.document import Document, OfConversation, OfVersion


class ReportDocument(OfVersion):
    """The output of ``foldlog report``: the file that was written."""

    file: str
    bytes: int


class DamagedDocument(OfConversation):
    """An event that cannot be read."""

    event: int
    problem: str


class AddedDocument(Document):
    """The output of ``foldlog export --to``: the number of rows that were added to each table.
    ``rebuilt`` is true if the file was emptied first, because the store had been restored.
    """

    events: int
    condensations: int
    conversations: int
    damaged: tuple[DamagedDocument, ...] = ()
    rebuilt: bool = False


class ExportedDocument(OfConversation):
    """The output of ``foldlog export --output``. ``notes`` describe events that the format cannot
    represent. ``sub_agents`` are the files of sub-agents.
    """

    format: str
    file: str
    records: int
    notes: tuple[str, ...] | UnsetType = UNSET
    sub_agents: tuple[ExportedDocument, ...] | UnsetType = UNSET


class ImportedDocument(Document):
    """The outcome of importing a source. ``records`` is the number of records in the source, and
    ``added`` is the number of records that were new. If the import made a fork, ``forked_at`` is
    the first record of the source that differs from the stored records. ``older`` is true if the
    store has more records than the source, so that nothing is added. ``waits`` is true if the last
    line of the source is incomplete. If ``refused`` is true, a finding contains the reason.
    """

    path: str
    conversation: str
    format: str
    added: int
    records: int
    forked_at: int | None
    older: bool
    waits: bool
    refused: bool
    findings: tuple[str, ...]
    findings_count: int
    note: str


class ImportDocument(Document):
    """The output of ``foldlog import``. ``findings`` are problems outside of any history, such as a
    file that cannot be read.
    """

    db: str
    imported: tuple[ImportedDocument, ...]
    findings: tuple[str, ...]


class RecordsDocument(OfConversation):
    """The output of ``foldlog export``: the records in the format of their source."""

    format: str
    records: tuple[Any, ...]
    findings: tuple[str, ...] = ()
    notes: tuple[str, ...] | UnsetType = UNSET
