"""The answer of ``foldlog store verify``."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from foldlog._reports.answers.document import Document


class RevisionDocument(Document):
    """A stored revision that differs from the log."""

    version: int
    problem: str


class ViewsDocument(Document):
    """The stored revisions of a conversation's Views, compared with its log."""

    revisions: int
    missing: int
    findings: tuple[RevisionDocument, ...]


class LossDocument(Document):
    """Events that are lost or wrong, from the event ``first`` to ``last``."""

    first: int
    last: int
    problem: str


class VerdictDocument(Document):
    """A conversation that was verified. ``status`` is "sound", "damaged", "unchecked" (the key is
    missing) or "erased". ``views`` is set with ``--views``. ``redacted`` has the events that were
    redacted since the checkpoint of ``--against``, and ``redacted_records`` the records of its
    source that were redacted since then and have no events.
    """

    conversation: str | None
    version: int
    head: str | None
    status: str
    findings: tuple[LossDocument, ...]
    generation: int | UnsetType = UNSET
    erased_at: str | UnsetType = UNSET
    erased_reason: str | UnsetType | None = UNSET
    redacted: tuple[int, ...] | UnsetType = UNSET
    redacted_records: tuple[int, ...] | UnsetType = UNSET
    views: ViewsDocument | UnsetType = UNSET


class CheckedDocument(Document):
    """How much was verified."""

    conversations: int
    events: int
    erased: int


class LaterDocument(Document):
    """The numbers of what came after the checkpoint of ``--against``."""

    events: int
    records: int
    conversations: int
    erased: int


class VerifiedDocument(Document):
    """The output of ``foldlog store verify``. ``database`` are the findings about the database and
    not about a conversation. ``stamped_at`` is the time at which an authority signed the
    checkpoint, if ``--ca`` has its certificates. ``later`` is set with ``--against``.
    """

    db: str
    conversations: tuple[VerdictDocument, ...]
    checked: CheckedDocument
    unchecked: int
    database: tuple[str, ...]
    sound: bool
    stamped_at: str | None = None
    later: LaterDocument | UnsetType = UNSET
