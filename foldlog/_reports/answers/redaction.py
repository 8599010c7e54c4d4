"""The answer of ``foldlog store redact``."""

from __future__ import annotations

from collections.abc import Mapping

from foldlog._reports.answers.document import Document, OfConversation, ProblemDocument


class QuoteDocument(OfConversation):
    """A condensation whose summary may quote a redacted event."""

    event: int
    redacted: bool


class MatchDocument(OfConversation):
    """The events of a conversation that ``foldlog store redact`` found. With ``--with-summaries``,
    the events include the condensations that are redacted too.
    """

    event_ids: tuple[int, ...]


class RedactionsDocument(Document):
    """The output of ``foldlog store redact``: the events that were found, and the receipts.
    ``beside`` are the conversations whose sources contain the text outside of their records.
    ``streams`` are the names of the deleted streams that contained it, by conversation.
    ``stay`` are the places that still contain the text, with the reasons.

    ``holders`` are the files and read models that may still contain the content. ``searched`` names
    the places that were searched, and ``not_searched`` names the other places.
    """

    found: tuple[MatchDocument, ...]
    beside: tuple[str, ...]
    streams: Mapping[str, tuple[str, ...]]
    receipts: tuple[RedactedDocument, ...]
    stay: tuple[ProblemDocument, ...]
    holders: tuple[str, ...]
    searched: str
    not_searched: str


class RedactedDocument(OfConversation):
    """The receipt of a redaction. ``documents_lost`` are the documents whose newest values were
    redacted, including ``attributes``.
    """

    event_ids: tuple[int, ...]
    hashes: tuple[str, ...]
    at: str
    by: str
    reason: str
    position: int | None
    documents_lost: tuple[str, ...]
    quotes: tuple[QuoteDocument, ...]
    forks: tuple[str, ...]
    unconfirmed: tuple[str, ...]
    bytes_pending: bool
