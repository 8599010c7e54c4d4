"""``foldlog store redact``: erase the content of events for good."""

from __future__ import annotations

from typing import Annotated

import typer

from foldlog._cli import erasing, terminal
from foldlog._cli.options import (
    DEFAULT_DB,
    EVENT_SETTINGS,
    OLDER_THAN,
    REASON,
    AsJson,
    Db,
    NoVacuum,
    Yes,
    completed,
)
from foldlog._cli.outcome import Refused
from foldlog._cli.printing.redaction import (
    ask_to_redact,
    redactions_document,
    result_words,
    show_found,
    show_receipts,
    what_words,
)
from foldlog._cli.redacting import conversations_of, holds_of, redact_chosen, taken_by
from foldlog._cli.selection import DryRun, Where, given_moment
from foldlog._cli.stores import open_existing, whole
from foldlog._cli.vacuuming import bytes_pending_words, bytes_stay_pending
from foldlog._redacting import (
    Problem,
    Redacting,
    asked_for,
    unconfirmed_by,
)
from foldlog.eventstore.inside import check_reason
from foldlog.eventstore.maintenance.redact import RedactionReceipt

SETTINGS = EVENT_SETTINGS


def run(
    reason: Annotated[str, REASON],
    conversation: Annotated[
        str | None,
        typer.Argument(
            metavar="ID", help="The conversation.", show_default=False, autocompletion=completed
        ),
    ] = None,
    events: Annotated[
        list[int] | None,
        typer.Argument(
            metavar="EVENT",
            help="Events, by their ids; the id of a summary is below -1.",
            show_default=False,
        ),
    ] = None,
    matching: Annotated[
        str | None,
        typer.Option(
            "--matching",
            metavar="TEXT",
            help=(
                "The events that hold this text, in capital or small letters, with or without"
                " accents. Without ID: in "
                "all conversations."
            ),
        ),
    ] = None,
    secrets: Annotated[
        bool,
        typer.Option(
            "--secrets", help="The events that hold keys and tokens: see foldlog secrets."
        ),
    ] = False,
    where: Where = None,
    older_than: Annotated[str | None, OLDER_THAN] = None,
    with_summaries: Annotated[
        bool,
        typer.Option(
            "--with-summaries",
            help="Redact summaries that may quote an event too, and why they were made.",
        ),
    ] = False,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="NAME",
            help="Who does it.",
            show_default="the user of the operating system",
        ),
    ] = None,
    dry_run: DryRun = False,
    no_vacuum: NoVacuum = False,
    yes: Yes = False,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Erase the content of events for good, from tables, derived data, free pages and logs.

    In a terminal the command shows the events and asks first. The whole content of an event goes.
    Id, kind, place, times, size, and the model, tokens and cost of a reply stay, and published
    heads still verify. The model sees the word "redacted". The receipt is a new event: who, when,
    why, and a hash of the former content. At the end the store is vacuumed: a SQLite file is
    rewritten as a whole, and other writers wait. Earlier copies still hold the content.

    --older-than leaves system prompts and documents, unless they match. --matching finds a text in
    events, summaries, documents, attributes and records of imports, and in what a file holds around
    its records, which goes as a whole. It does not search other files, nor text in base64 or
    compressed: it names the files that it knows. Exit status 1 if nothing is found, or the store
    still holds the text.

    Example: foldlog store redact tidewatch 17 --reason "asked to"
    """
    check_reason(reason, "receipt")
    before = given_moment("--older-than", older_than)
    holds = holds_of(matching, secrets=secrets)
    if holds is not None and (holds(reason) or holds(by or "")):
        raise Refused(
            "the reason, or the name after --by, holds the text to redact, and the receipt keeps it"
        )
    searches = holds is not None or before is not None or bool(where)
    if bool(events) == searches or (events and conversation is None):
        raise Refused(
            "name events by their ids, or find them by --matching, --older-than or --where: one of"
            " the two"
        )
    with open_existing(db) as store:
        rows = conversations_of(store, conversation, where) if searches else []
        redacting = Redacting(
            store, rows, holds, before, everywhere=conversation is None and not where
        )
        with terminal.working("searching"):
            name = "" if searches else whole(store, conversation or "")
            if searches:
                named = None
            else:
                named = {name: asked_for(redacting.store_of(name), name, events or ())}
            chosen = redacting.choose(named, with_summaries=with_summaries)
        if (searches or dry_run) and not as_json:
            show_found(chosen)
        if not (yes or dry_run):
            ask_to_redact(chosen, listed=searches)
        receipts: list[RedactionReceipt] = []
        stay: list[Problem] = []
        if not dry_run:
            receipts, stay = redact_chosen(
                redacting,
                chosen,
                reason,
                by,
                {} if searches else {name: events or []},
                with_summaries=with_summaries,
            )
            stay += redacting.look_again() if holds is not None else []
        taken = taken_by(receipts, with_summaries=with_summaries)
        done = f"{what_words(len(taken), len(chosen.beside))} redacted"
        is_pending = bool(receipts or chosen.beside) and bytes_stay_pending(
            store, done, no_vacuum=no_vacuum
        )
        unconfirmed = unconfirmed_by(chosen, receipts, () if dry_run else redacting.files())
        pending = bytes_pending_words(store, "it")
        if not as_json:
            show_receipts(store, receipts, taken)
    if not (chosen.goes or receipts or chosen.beside):
        terminal.matched_nothing()
    is_left = bool(stay)
    stay += [
        Problem(name, terminal.about(name, problem)) for name, problem in redacting.problems.items()
    ]
    if as_json:
        terminal.emit(
            redactions_document(chosen, receipts, stay, unconfirmed, is_pending=is_pending)
        )
    for problem in stay:
        terminal.warn(problem.problem)
    if is_pending:
        terminal.note(f"bytes pending: {pending}")
    erasing.warn_of_unconfirmed(unconfirmed, "redaction")
    if holds is not None:
        terminal.note(
            result_words(redacting, chosen, "" if dry_run else f"{done}. ", is_left=is_left)
        )
