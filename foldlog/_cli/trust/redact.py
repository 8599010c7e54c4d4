"""``foldlog redact``: erase the content of one event for good."""

from __future__ import annotations

from typing import Annotated

import typer

from foldlog._cli import terminal
from foldlog._cli.maintenance.vacuum import bytes_stay_pending
from foldlog._cli.options import DEFAULT_DB, EVENT_SETTINGS, AsJson, ConversationId, Db, EventId, NoVacuum
from foldlog._cli.outcome import Refused
from foldlog._cli.stores import bytes_pending_words, open_existing, whole
from foldlog._cli.trust import erase
from foldlog._documents import QuoteDocument, RedactedDocument
from foldlog._histories import Histories
from foldlog._words.gist import count, gist
from foldlog.eventstore import CannotRedact, InvalidArgument, Store, summary_of
from foldlog.eventstore.arguments import reason_text
from foldlog.eventstore.maintenance.redact import RedactionReceipt

SETTINGS = EVENT_SETTINGS


def run(
    conversation: ConversationId,
    event: EventId,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; the receipt keeps it.")],
    with_summaries: Annotated[
        bool, typer.Option("--with-summaries", help="Redact the summaries that may quote the event too.")
    ] = False,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="NAME", help="Who does it.", show_default="the user of the operating system"),
    ] = None,
    no_vacuum: NoVacuum = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask. For scripts.")] = False,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Erase the content of one event for good, from tables, derived data, free pages and logs.

    In a terminal the command shows the event and asks first. Id, kind, place, times and size stay, and published heads
    still verify. The model sees the word "redacted". The receipt is a new event: who, when, why, and a hash of the
    former content. At the end a SQLite file is vacuumed: that rewrites the whole file, and other writers wait. Earlier
    copies and backups still hold the content.

    Example: foldlog redact tidewatch 17 --reason "asked to"
    """
    reason_text(reason, "receipt")
    with open_existing(db) as store:
        whole(store, conversation)
        if not yes:
            _ask(store, conversation, event)
        try:
            receipt = Histories(store)[conversation].redact(event, reason=reason, by=by, with_summaries=with_summaries)
        except (CannotRedact, InvalidArgument) as error:
            raise Refused(str(error)) from error
        is_pending = bytes_stay_pending(
            store, receipt.bytes_pending, f"event {event} of {conversation!r} is redacted", no_vacuum=no_vacuum
        )
        receipt = receipt._replace(bytes_pending=is_pending)
        pending = bytes_pending_words(store, "it")
    if as_json:
        quotes = tuple(QuoteDocument.of(quote, event=quote.event_id) for quote in receipt.quotes)
        terminal.emit(RedactedDocument.of(receipt, at=receipt.at.isoformat(), quotes=quotes))
    else:
        _show(receipt)
    if receipt.bytes_pending:
        terminal.note(f"bytes pending: {pending}")
    erase.warn_of_unconfirmed(receipt.unconfirmed, "redaction")


def _show(receipt: RedactionReceipt) -> None:
    name = terminal.typed_id(receipt.conversation)
    for event_id, its_hash in zip(receipt.event_ids, receipt.hashes, strict=True):
        said = f"{name}: event {event_id} redacted at {receipt.at.isoformat()} by {receipt.by}, hash {its_hash}"
        terminal.console().print(terminal.printable(said, one_line=True), soft_wrap=True)
    kept = [quote for quote in receipt.quotes if not quote.redacted]
    for quote in kept:
        where = terminal.typed_id(quote.conversation)
        said = f"{where}: the summary of condensation {quote.event_id} stands for it and may quote it"
        terminal.console().print(f"{said}; --with-summaries redacts it", soft_wrap=True)
    if receipt.forks:
        names = ", ".join(terminal.typed_id(fork) for fork in receipt.forks)
        shows = "shows" if len(receipt.forks) == 1 else "show"
        said = f"{count(len(receipt.forks), 'fork')} {shows} it redacted too: {names}"
        terminal.console().print(said, soft_wrap=True)


def _ask(store: Store, conversation: str, event_id: int) -> None:
    """Ask a person. A redacted event is not asked about."""
    wanted = summary_of(event_id) if event_id < -1 else event_id
    events = list(store.events(conversation, wanted, wanted + 1)) if wanted >= 0 else []
    if events and events[0].redacted is None:
        name = terminal.typed_id(conversation)
        shown = f"{name}, event {event_id}: {gist(events[0], erase.WORDS_MAX)}"
        erase.confirm("redact", "redacted", shown, "Erase this content", f"event {event_id} of {conversation!r}")
