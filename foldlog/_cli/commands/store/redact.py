"""``foldlog store redact``: erase the content of events for good."""

from __future__ import annotations

from typing import Annotated

import typer

from foldlog._cli import terminal
from foldlog._cli.options import (
    DEFAULT_DB,
    EVENT_SETTINGS,
    OLDER_THAN,
    REASON,
    AsJson,
    Db,
    NoVacuum,
    Yes,
    complete_id,
)
from foldlog._cli.printing.redaction import (
    ask_to_redact,
    redactions_document,
    show_chosen,
    show_receipts,
    tell_result,
)
from foldlog._cli.redacting import (
    RedactionResult,
    Search,
    check_asked,
    choose_events,
    holds_of,
    redact_chosen,
    redacting_of,
)
from foldlog._cli.selection import DryRun, Where, moment_of_option
from foldlog._cli.stores import open_existing
from foldlog._redacting import unconfirmed_by

SETTINGS = EVENT_SETTINGS


def run(
    reason: Annotated[str, REASON],
    conversation: Annotated[
        str | None,
        typer.Argument(
            metavar="ID", help="The conversation.", show_default=False, autocompletion=complete_id
        ),
    ] = None,
    events: Annotated[
        list[int] | None,
        typer.Argument(
            metavar="EVENT",
            help="The ids of events. Summaries have ids below -1: S260 has the id -262.",
            show_default=False,
        ),
    ] = None,
    matching: Annotated[
        str | None,
        typer.Option(
            "--matching",
            metavar="TEXT",
            help=(
                "The events that contain this text; case and accents do not matter. Without ID, "
                "all conversations are searched."
            ),
        ),
    ] = None,
    secrets: Annotated[
        bool,
        typer.Option(
            "--secrets", help="The events that contain keys and tokens: see 'foldlog secrets'."
        ),
    ] = False,
    where: Where = None,
    older_than: Annotated[str | None, OLDER_THAN] = None,
    with_summaries: Annotated[
        bool,
        typer.Option(
            "--with-summaries",
            help="Also redact summaries that may quote the events, and the stored reasons "
            "for their condensations.",
        ),
    ] = False,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="NAME",
            help="The person who redacts the events.",
            show_default="the user of the operating system",
        ),
    ] = None,
    dry_run: DryRun = False,
    no_vacuum: NoVacuum = False,
    yes: Yes = False,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Erase the whole content of events for good, from tables, derived data, free pages and logs.

    In a terminal the command shows the events and asks first. The id, kind, place, times and size
    of each event stay. A reply of a model keeps its model, tokens and cost. Published heads still
    match. The model sees the word "redacted". The command appends a receipt: the person, the time,
    the reason and a hash of the erased content. At the end the store is vacuumed: a SQLite file is
    rewritten as a whole, and other writers wait. Earlier copies still contain the content.

    --older-than alone redacts no system prompts and no documents. --matching finds a text in
    events, summaries, documents, attributes and records of imports. If an imported file contains
    the text outside its records, everything outside the records is erased. Encoded text, compressed
    text and other files are not searched. The command names files that may contain the text. The
    exit status is 1 if nothing is found, or if the store still contains the text.

    Example: foldlog store redact tidewatch 17 --reason "asked to"
    """
    has_text = holds_of(matching, secrets=secrets)
    search = Search(has_text, moment_of_option("--older-than", older_than), where or ())
    check_asked(search, conversation, events or (), reason, by)
    with open_existing(db) as store:
        redacting = redacting_of(store, conversation, search)
        chosen, asked = choose_events(
            redacting, conversation, events or (), with_summaries=with_summaries
        )
        if (not asked or dry_run) and not as_json:
            show_chosen(chosen)
        if not (yes or dry_run):
            ask_to_redact(chosen, listed=not asked)
        redacted = RedactionResult()
        if not dry_run:
            redacted = redact_chosen(
                redacting,
                chosen,
                reason,
                by,
                asked,
                with_summaries=with_summaries,
                no_vacuum=no_vacuum,
            )
        files = () if dry_run else redacting.files()
        unconfirmed = unconfirmed_by(chosen, redacted.receipts, files)
        if not as_json:
            show_receipts(store, redacted.receipts, redacted.receipt_by_event)
    if not (chosen.unredacted or redacted.receipts or chosen.beside):
        terminal.matched_nothing()
    if as_json:
        terminal.emit(redactions_document(redacting, chosen, redacted, unconfirmed))
    tell_result(redacting, chosen, redacted, unconfirmed)
