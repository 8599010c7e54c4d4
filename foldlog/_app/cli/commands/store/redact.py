"""``foldlog store redact``: erase the content of events for good."""

from __future__ import annotations

from foldlog._app.cli import terminal
from foldlog._app.cli.options import (
    EVENT_SETTINGS,
    WholeNumber,
    argument,
    complete_id,
    flag,
    no_vacuum_option,
    older_than_option,
    option,
    reason_option,
    store_options,
    yes_option,
)
from foldlog._app.cli.printing.redaction import (
    ask_to_redact,
    redactions_document,
    show_chosen,
    show_receipts,
    tell_result,
)
from foldlog._app.cli.redacting import (
    RedactionResult,
    Search,
    check_request,
    holds_of,
    redact_chosen,
    redacting_of,
)
from foldlog._app.cli.selection import dry_run_option, moment_of_option, where_option
from foldlog._app.cli.stores import open_existing, require_id
from foldlog._privacy.redacting import unconfirmed_by
from foldlog._reports.figures.documents import trees_of
from foldlog._reports.words.gist import count

SETTINGS = EVENT_SETTINGS


@reason_option(required=True)
@argument("conversation", "ID", "The conversation.", required=False, shell_complete=complete_id)
@argument(
    "events",
    "EVENT",
    "The ids of events. Summaries have ids below -1: S260 has the id -262.",
    type=WholeNumber(),
    nargs=-1,
)
@option(
    "--matching",
    "TEXT",
    "The events that contain this text; case and accents do not matter. Without ID, "
    "all conversations are searched.",
)
@flag("--secrets", "The events that contain keys and tokens: see 'foldlog secrets'.")
@where_option
@older_than_option()
@flag(
    "--with-summaries",
    "Also redact summaries that may quote the events, and the stored reasons "
    "for their condensations.",
)
@option(
    "--by",
    "NAME",
    "The person who redacts the events.",
    show_default="the user of the operating system",
)
@dry_run_option
@no_vacuum_option
@yes_option
@store_options
def run(
    reason: str,
    conversation: str | None,
    events: tuple[int, ...],
    matching: str | None,
    secrets: bool,
    where: tuple[str, ...],
    older_than: str | None,
    with_summaries: bool,
    by: str | None,
    dry_run: bool,
    no_vacuum: bool,
    yes: bool,
    db: str,
) -> None:
    """Erase the whole content of events for good, from tables, derived data, free pages and logs.

    In a terminal the command shows the events and asks first. The id, kind, place, times and size
    of each event stay. A reply of a model keeps its model, tokens and cost. Checkpoints still
    match. The model sees the word "redacted". The command appends a receipt: the person, the time,
    the reason and a hash of the erased content. At the end the store is vacuumed: a SQLite file is
    rewritten as a whole, and other writers wait. Earlier copies still contain the content.

    --older-than alone redacts no system prompts and no documents. --matching finds a text in
    events, summaries, documents, attributes, streams and records of imports. A stream, such as a
    reply that a model is writing, is deleted. If an imported file contains the text outside its
    records, everything outside the records is erased. Encoded text, compressed text and other files
    are not searched. The command names files that may contain the text. The
    exit status is 1 if nothing is found, or if the store still contains the text.

    Example: foldlog store redact tidewatch 17 --reason "asked to"
    """
    has_text = holds_of(matching, secrets=secrets)
    search = Search(has_text, moment_of_option("--older-than", older_than), where)
    check_request(search, conversation, events, reason, by)
    with open_existing(db) as store:
        redacting = redacting_of(store, conversation, search)
        named = {require_id(store, conversation): events} if conversation and events else {}
        with terminal.working("searching"):
            chosen = redacting.choose(named or None, with_summaries=with_summaries)
        if (not named or dry_run) and not terminal.prints_json():
            show_chosen(chosen)
        if not (yes or dry_run):
            ask_to_redact(chosen, listed=not named)
        redacted = RedactionResult()
        if not dry_run:
            redacted = redact_chosen(
                redacting,
                chosen,
                reason,
                by,
                named,
                with_summaries=with_summaries,
                no_vacuum=no_vacuum,
            )
        files = () if dry_run else redacting.files()
        unconfirmed = unconfirmed_by(chosen, redacted.receipts, files)
        sub_agents = [
            agent for name in named for agent, _ in trees_of(store, is_complete=False).below(name)
        ]
        if not terminal.prints_json():
            show_receipts(store, redacted.receipts, redacted.receipt_by_event)
    if chosen.is_empty and not redacted.receipts:
        terminal.matched_nothing()
    if terminal.prints_json():
        terminal.emit(redactions_document(redacting, chosen, redacted, unconfirmed))
    tell_result(redacting, chosen, redacted, unconfirmed)
    if sub_agents:
        terminal.note(
            f"{count(len(sub_agents), 'sub-agent')} may contain the content too, such as"
            f" {sub_agents[0]}; 'foldlog store redact --matching TEXT --reason WHY' searches"
            " all conversations"
        )
