"""``foldlog store redact``: erase the content of events for good."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Annotated

import typer

from foldlog._cli import erasing, terminal
from foldlog._cli.options import DEFAULT_DB, EVENT_SETTINGS, AsJson, Db, NoVacuum, Yes, completed
from foldlog._cli.outcome import Refused
from foldlog._cli.selection import DryRun, Where, given_moment, pairs
from foldlog._cli.stores import open_existing, whole
from foldlog._cli.vacuuming import bytes_pending_words, bytes_stay_pending
from foldlog._companions import with_companions
from foldlog._documents import (
    MatchDocument,
    ProblemDocument,
    QuoteDocument,
    RedactedDocument,
    RedactionsDocument,
)
from foldlog._maintenance import conversations_with
from foldlog._matching import Holds, holding
from foldlog._redacting import (
    NOT_SEARCHED,
    SEARCHED,
    Chosen,
    Problem,
    Redacting,
    asked_for,
    documents_lost,
    unconfirmed_by,
)
from foldlog._words.gist import count, gist
from foldlog.eventstore import ATTRIBUTES, CannotRedact, CondensationAction, ConversationRow, Event, Store
from foldlog.eventstore.inside import check_reason
from foldlog.eventstore.maintenance.redact import RedactionReceipt

SETTINGS = EVENT_SETTINGS
_LISTED_MAX = 20
_IN_SOURCE = "its source holds the text beside the records, in its title or around them: both go as a whole"


def run(
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; the receipt keeps it.")],
    conversation: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="The conversation.", show_default=False, autocompletion=completed),
    ] = None,
    events: Annotated[
        list[int] | None,
        typer.Argument(
            metavar="EVENT", help="Events, by their ids; the id of a summary is below -1.", show_default=False
        ),
    ] = None,
    matching: Annotated[
        str | None,
        typer.Option(
            "--matching",
            metavar="TEXT",
            help="The events that hold this text, in capital or small letters, with or without accents. Without ID: in "
            "all conversations.",
        ),
    ] = None,
    secrets: Annotated[
        bool, typer.Option("--secrets", help="The events that hold keys and tokens: see foldlog secrets.")
    ] = False,
    where: Where = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="TIME",
            help="Only events that were recorded before: 90d (or s, m: minutes, h, w), 2026-03-01. What was imported "
            "is as old as the last import that added to it. System prompts and documents stay, unless they match.",
        ),
    ] = None,
    with_summaries: Annotated[
        bool,
        typer.Option("--with-summaries", help="Redact summaries that may quote an event too, and why they were made."),
    ] = False,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="NAME", help="Who does it.", show_default="the user of the operating system"),
    ] = None,
    dry_run: DryRun = False,
    no_vacuum: NoVacuum = False,
    yes: Yes = False,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Erase the content of events for good, from tables, derived data, free pages and logs.

    In a terminal the command shows the events and asks first. The whole content of an event goes. Id, kind, place,
    times, size, and the model, tokens and cost of a reply stay, and published heads still verify. The model sees the
    word "redacted". The receipt is a new event: who, when, why, and a hash of the former content. At the end the store
    is vacuumed: a SQLite file is rewritten as a whole, and other writers wait. Earlier copies still hold the content.

    --matching finds a text in events, summaries, documents, attributes and records of imports, and in what a file holds
    around its records, which goes as a whole. It does not search other files, nor text in base64 or compressed: it
    names the files that it knows. Exit status 1 if nothing is found, or the store still holds the text.

    Example: foldlog store redact tidewatch 17 --reason "asked to"
    """
    check_reason(reason, "receipt")
    before = given_moment("--older-than", older_than)
    if secrets and matching is not None:
        raise Refused("--secrets and --matching: give one of the two")
    holds = _secret() if secrets else None if matching is None else holding(matching)
    if holds is not None and (holds(reason) or holds(by or "")):
        raise Refused("the reason, or the name after --by, holds the text to redact, and the receipt keeps it")
    searches = holds is not None or before is not None or bool(where)
    if bool(events) == searches or (events and conversation is None):
        raise Refused("name events by their ids, or find them by --matching, --older-than or --where: one of the two")
    with open_existing(db) as store:
        rows = _conversations(store, conversation, where) if searches else []
        redacting = Redacting(store, rows, holds, before, everywhere=conversation is None and not where)
        with terminal.working("searching"):
            name = "" if searches else whole(store, conversation or "")
            named = None if searches else {name: asked_for(redacting.store_of(name), name, events or ())}
            chosen = redacting.choose(named, with_summaries=with_summaries)
        if (searches or dry_run) and not as_json:
            _show_found(chosen)
        if not (yes or dry_run):
            _ask(chosen, listed=searches)
        receipts: list[RedactionReceipt] = []
        stay: list[Problem] = []
        if not dry_run:
            receipts, stay = _redacted(
                redacting, chosen, reason, by, {} if searches else {name: events or []}, with_summaries=with_summaries
            )
            stay += redacting.look_again() if holds is not None else []
        taken = _taken(receipts, with_summaries=with_summaries)
        done = f"{_what(len(taken), len(chosen.beside))} redacted"
        is_pending = bool(receipts or chosen.beside) and bytes_stay_pending(store, done, no_vacuum=no_vacuum)
        unconfirmed = unconfirmed_by(chosen, receipts, () if dry_run else redacting.files())
        pending = bytes_pending_words(store, "it")
        if not as_json:
            _show(store, receipts, taken)
    if not (chosen.goes or receipts or chosen.beside):
        terminal.matched_nothing()
    is_left = bool(stay)
    stay += [Problem(name, terminal.about(name, problem)) for name, problem in redacting.problems.items()]
    if as_json:
        terminal.emit(_documents(chosen, receipts, stay, unconfirmed, is_pending=is_pending))
    for problem in stay:
        terminal.warn(problem.problem)
    if is_pending:
        terminal.note(f"bytes pending: {pending}")
    erasing.warn_of_unconfirmed(unconfirmed, "redaction")
    if holds is not None:
        terminal.note(_result(redacting, chosen, "" if dry_run else f"{done}. ", is_left=is_left))


def _secret() -> Holds:
    """Return what finds secrets. Raises ``InvalidOption`` where the extra for it is not installed."""
    from foldlog._secrets import holds_secret

    holds_secret("")
    return holds_secret


def _redacted(
    redacting: Redacting,
    chosen: Chosen,
    reason: str,
    by: str | None,
    asked: Mapping[str, Sequence[int]],
    *,
    with_summaries: bool,
) -> tuple[list[RedactionReceipt], list[Problem]]:
    total = sum(map(len, chosen.named.values()))
    try:
        with terminal.working("redacting", "events", total) as update:
            return redacting.redact(
                chosen,
                reason=reason,
                by=by,
                with_summaries=with_summaries,
                asked=asked,
                on_events=lambda number: update(advance=number),
            )
    except CannotRedact as error:
        raise Refused(str(error)) from error


def _what(events: int, sources: int) -> str:
    """Return how many events there are, and how many texts beside the records of sources."""
    beside = f" and what {count(sources, 'source')} held beside the records" if sources else ""
    return f"{count(events, 'event')}{beside}"


def _result(redacting: Redacting, chosen: Chosen, done: str, *, is_left: bool) -> str:
    """Return what was searched, what of it holds the text, and what was not searched."""
    several = count(len(redacting.rows) - len(redacting.problems), "conversation")
    found = "the places named above hold the text" if chosen.goes or chosen.beside else "none of these holds the text"
    if done:
        found = "the places named above still hold the text" if is_left else "none of these holds the text now"
    left = f" {count(len(redacting.problems), 'conversation')} could not be searched: see above." * bool(
        redacting.problems
    )
    return f"{done}Searched: {SEARCHED} of {several}; {found}.{left} Not searched: {NOT_SEARCHED}"


def _conversations(store: Store, conversation: str | None, where: Sequence[str] | None) -> list[ConversationRow]:
    if conversation is None:
        return conversations_with(store, pairs(list(where or ())), and_shared=True)
    if where:
        raise Refused("ID and --where: give one of the two")
    return with_companions(store, [store.conversation(whole(store, conversation))])


def _taken(receipts: Sequence[RedactionReceipt], *, with_summaries: bool) -> dict[tuple[str, int], RedactionReceipt]:
    """Return the events that were redacted, with the first receipt of each: summaries of forks too."""
    taken: dict[tuple[str, int], RedactionReceipt] = {}
    for receipt in receipts:
        own = [(receipt.conversation, event_id) for event_id in receipt.event_ids]
        theirs = [(quote.conversation, quote.event_id) for quote in receipt.quotes if with_summaries]
        for key in (*own, *theirs):
            taken.setdefault(key, receipt)
    return taken


def _show_found(chosen: Chosen) -> None:
    """List the events, without the text that they hold."""
    for name, events in chosen.goes.items():
        ids = ", ".join(_named_event(name, event, chosen.quotes) for event in events)
        terminal.say(f"{terminal.typed_id(name)}: {count(len(events), 'event')}: {ids}")
    for name in chosen.beside:
        terminal.say(f"{terminal.typed_id(name)}: {_IN_SOURCE}", wraps=True)
    total = sum(map(len, chosen.goes.values()))
    terminal.say(f"{count(total, 'event')} of {count(len(chosen.goes), 'conversation')} to redact", wraps=True)


def _named_event(name: str, event: Event, quotes: Container[tuple[str, int]]) -> str:
    if not isinstance(event, CondensationAction) or not event.summary:
        return str(event.id)
    may_quote = ", which may quote it" if (name, event.id) in quotes else ""
    return f"summary of condensation {event.id}{may_quote}"


def _ask(chosen: Chosen, *, listed: bool) -> None:
    """Ask a person. A redacted event is not asked about."""
    beside = chosen.beside
    each = [(name, event) for name, events in chosen.goes.items() for event in events]
    if not (each or beside):
        return
    of = f"each of {_what(len(each), len(beside))}"
    if len(each) == 1 and not beside:
        ((name, event),) = each
        of = f"event {event.id} of {name!r}"
    shown = [f"{terminal.typed_id(name)}: {_IN_SOURCE}" for name in beside]
    for name, event in each[:_LISTED_MAX]:
        is_quote = (name, event.id) in chosen.quotes
        said = _named_event(name, event, chosen.quotes) if is_quote else f"event {event.id}"
        shown.append(f"{terminal.typed_id(name)}, {said}: {gist(event, erasing.WORDS_MAX)}")
    if len(each) > _LISTED_MAX:
        shown.append(f"… and {len(each) - _LISTED_MAX:,} more")
    terminal.confirm(
        "redact", "redacted", [] if listed else shown, "Erase this content for good? Nothing brings it back.", of
    )


def _documents(
    chosen: Chosen,
    receipts: Sequence[RedactionReceipt],
    stay: Iterable[Problem],
    unconfirmed: Sequence[str],
    *,
    is_pending: bool,
) -> RedactionsDocument:
    return RedactionsDocument(
        found=tuple(
            MatchDocument(conversation=name, event_ids=tuple(event.id for event in events))
            for name, events in chosen.goes.items()
        ),
        beside=tuple(chosen.beside),
        receipts=tuple(_document(receipt, is_pending=is_pending) for receipt in receipts),
        stay=tuple(ProblemDocument(conversation=one.conversation, problem=one.problem) for one in stay),
        holders=tuple(unconfirmed),
        searched=SEARCHED,
        not_searched=NOT_SEARCHED,
    )


def _document(receipt: RedactionReceipt, *, is_pending: bool) -> RedactedDocument:
    quotes = tuple(QuoteDocument.of(quote, event=quote.event_id) for quote in receipt.quotes)
    return RedactedDocument.of(receipt, at=receipt.at.isoformat(), quotes=quotes, bytes_pending=is_pending)


def _show(
    store: Store,
    receipts: Sequence[RedactionReceipt],
    taken: dict[tuple[str, int], RedactionReceipt],
) -> None:
    """Show who redacted each event, when, and which documents lost their values: one that was redacted before keeps its
    receipt. Then name each summary that may quote an event, and each fork, once.
    """
    for (conversation, event_id), receipt in taken.items():
        (event,) = store.events(conversation, event_id, event_id + 1)
        its = event.redacted or receipt
        hashed = "" if event.redacted is None else f", hash {event.redacted.hash}"
        said = f"event {event_id} redacted at {its.at.isoformat()} by {its.by}{hashed}"
        if receipt.documents_lost and (lost := documents_lost(store, conversation, [event_id])):
            held = ("all attributes" if name == ATTRIBUTES else repr(name) for name in lost)
            said += f"; it held the values of {', '.join(held)}: set them again"
        terminal.say(f"{terminal.typed_id(conversation)}: {said}")
    it, them = ("it", "it") if sum(len(each.event_ids) for each in receipts) == 1 else ("redacted events", "them")
    quotes = (quote for receipt in receipts for quote in receipt.quotes if not quote.redacted)
    for conversation, event_id in dict.fromkeys((quote.conversation, quote.event_id) for quote in quotes):
        if (conversation, event_id) not in taken:
            where = terminal.typed_id(conversation)
            said = f"{where}: the summary of condensation {event_id} replaces {it} and may quote {them}"
            terminal.say(f"{said}; --with-summaries redacts it")
    forks = list(dict.fromkeys(fork for receipt in receipts for fork in receipt.forks))
    if forks:
        names = ", ".join(map(terminal.typed_id, forks))
        shows = "shows" if len(forks) == 1 else "show"
        terminal.say(f"{count(len(forks), 'fork')} {shows} {them} redacted too: {names}")
