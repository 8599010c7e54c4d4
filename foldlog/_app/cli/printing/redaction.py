"""Print a redaction for people, and make its document."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence

from foldlog._app.cli import erasing, terminal
from foldlog._app.cli.redacting import RedactionResult, what_words
from foldlog._privacy.redacting import (
    NOT_SEARCHED,
    SEARCHED,
    Chosen,
    Problem,
    Redacting,
    documents_lost,
    stream_names,
)
from foldlog._reports.answers.document import ProblemDocument
from foldlog._reports.answers.redaction import (
    MatchDocument,
    QuoteDocument,
    RedactedDocument,
    RedactionsDocument,
)
from foldlog._reports.words.gist import count, gist
from foldlog._reports.words.times import time_words
from foldlog.eventstore import ATTRIBUTES, CondensationAction, Event, Store
from foldlog.eventstore.maintenance.redact import RedactionReceipt

_LISTED_MAX = 20
"""The maximum number of events that the confirmation question lists."""
_IN_SOURCE = (
    "its source contains the text in its title or between records; the title and everything "
    "between records are erased"
)
_IN_SESSION = (
    "the records that were handed over to it contain the text; these records, its title and "
    "everything between records are erased"
)


def _result_words(redacting: Redacting, chosen: Chosen, redacted: RedactionResult) -> str:
    """Return what was searched, whether the text was found, and what was not searched."""
    searched = count(len(redacting.rows) - len(redacting.problems), "conversation")
    if redacted.sentence and redacted.stay:
        finding = "the text is still in the places named above"
    elif redacted.sentence:
        finding = "the searched places no longer contain the text"
    elif not chosen.is_empty:
        finding = "the text is in the places named above"
    else:
        finding = "the searched places do not contain the text"
    outcome = f"{redacted.sentence}. " if redacted.sentence else ""
    unsearched = ""
    if redacting.problems:
        conversations = count(len(redacting.problems), "conversation")
        unsearched = f" {conversations} could not be searched: see above."
    return (
        f"{outcome}Searched: {SEARCHED} of {searched}; {finding}.{unsearched}"
        f" Not searched: {NOT_SEARCHED}"
    )


def show_chosen(chosen: Chosen) -> None:
    """Print what a search chose to redact."""
    for name, events in chosen.unredacted.items():
        ids = ", ".join(_named_event(name, event, chosen.quotes) for event in events)
        terminal.say(f"{terminal.typed_id(name)}: {count(len(events), 'event')}: {ids}")
    for line in (*_beside_lines(chosen), *_stream_lines(chosen)):
        terminal.say_wrapped(line)
    total = sum(map(len, chosen.unredacted.values()))
    concerned = {*chosen.unredacted, *chosen.streams, *chosen.beside}
    terminal.say_wrapped(
        f"{what_words(total, chosen)} of {count(len(concerned), 'conversation')} to redact"
    )


def _stream_lines(chosen: Chosen) -> list[str]:
    """Return a line for each stream that is deleted."""
    return [
        f"{terminal.typed_id(name)}: stream {stream_name!r} contains the text, and is deleted"
        for name, names in stream_names(chosen).items()
        for stream_name in names
    ]


def _beside_lines(chosen: Chosen) -> list[str]:
    """Return a line for each conversation whose source has the text outside its records."""
    reasons = {
        name: _IN_SESSION if name in chosen.sessions else _IN_SOURCE for name in chosen.beside
    }
    return [f"{terminal.typed_id(name)}: {reason}" for name, reason in reasons.items()]


def _named_event(name: str, event: Event, quotes: Container[tuple[str, int]]) -> str:
    """Return the id of an event as text. A condensation is named by its summary."""
    if not _has_summary(event):
        return str(event.id)
    may_quote = ", which may quote it" if (name, event.id) in quotes else ""
    return f"summary S{event.id}{may_quote}"


def _has_summary(event: Event) -> bool:
    return isinstance(event, CondensationAction) and bool(event.summary)


def ask_to_redact(chosen: Chosen, *, listed: bool) -> None:
    """Ask the user to confirm. Do not ask about events that are already redacted."""
    candidates = [(name, event) for name, events in chosen.unredacted.items() for event in events]
    if chosen.is_empty:
        return
    of = f"each of {what_words(len(candidates), chosen)}"
    if len(candidates) == 1 and not (chosen.beside or chosen.streams):
        ((name, event),) = candidates
        of = f"event {event.id} of {name!r}"
    shown = [*_beside_lines(chosen), *_stream_lines(chosen)]
    for name, event in candidates[:_LISTED_MAX]:
        is_quote = (name, event.id) in chosen.quotes
        if is_quote:
            event_words = _named_event(name, event, chosen.quotes)
        else:
            event_words = f"event {event.id}"
        shown.append(f"{terminal.typed_id(name)}, {event_words}: {gist(event, erasing.WORDS_MAX)}")
    if len(candidates) > _LISTED_MAX:
        shown.append(f"… and {len(candidates) - _LISTED_MAX:,} more")
    terminal.confirm(
        "redact",
        "redacted",
        [] if listed else shown,
        "Erase this content for good? This cannot be undone.",
        of,
    )


def redactions_document(
    redacting: Redacting, chosen: Chosen, redacted: RedactionResult, unconfirmed: Sequence[str]
) -> RedactionsDocument:
    """Return the document of a redaction or of a search."""
    is_pending = bool(redacted.pending)
    return RedactionsDocument(
        found=tuple(
            MatchDocument(conversation=name, event_ids=tuple(event.id for event in events))
            for name, events in chosen.unredacted.items()
        ),
        beside=tuple(chosen.beside),
        streams=stream_names(chosen),
        receipts=tuple(_document(receipt, is_pending=is_pending) for receipt in redacted.receipts),
        stay=tuple(map(ProblemDocument.of, (*redacted.stay, *_places_not_searched(redacting)))),
        holders=tuple(unconfirmed),
        searched=SEARCHED,
        not_searched=NOT_SEARCHED,
    )


def _document(receipt: RedactionReceipt, *, is_pending: bool) -> RedactedDocument:
    quotes = tuple(QuoteDocument.of(quote, event=quote.event_id) for quote in receipt.quotes)
    return RedactedDocument.of(
        receipt, at=receipt.at.isoformat(), quotes=quotes, bytes_pending=is_pending
    )


def show_receipts(
    store: Store,
    receipts: Sequence[RedactionReceipt],
    receipt_by_event: Mapping[tuple[str, int], RedactionReceipt],
) -> None:
    """Print who redacted the events, when, and which documents lost their values. If an event was
    redacted twice, print its first receipt. Then print the summaries that may quote an event, and
    the forks.
    """
    for (conversation, event_id), receipt in receipt_by_event.items():
        (event,) = store.events(conversation, event_id, event_id + 1)
        first = event.redacted or receipt
        hashed = "" if event.redacted is None else f", hash {event.redacted.hash}"
        named = f"summary S{event_id}" if _has_summary(event) else f"event {event_id}"
        sentence = f"{named} redacted at {time_words(first.at)} by {first.by}{hashed}"
        lost: Collection[str] = ()
        if receipt.documents_lost:
            lost = documents_lost(store, conversation, [event_id])
        if lost:
            documents = ("all attributes" if name == ATTRIBUTES else repr(name) for name in lost)
            sentence += f"; the event set {', '.join(documents)}; set the values again"
        terminal.say(f"{terminal.typed_id(conversation)}: {sentence}")
    is_single = sum(len(receipt.event_ids) for receipt in receipts) == 1
    replaced = "it" if is_single else "redacted events"
    pronoun = "it" if is_single else "them"
    quotes = (quote for receipt in receipts for quote in receipt.quotes if not quote.redacted)
    for conversation, event_id in dict.fromkeys(
        (quote.conversation, quote.event_id) for quote in quotes
    ):
        if (conversation, event_id) not in receipt_by_event:
            where = terminal.typed_id(conversation)
            sentence = f"{where}: summary S{event_id} replaces {replaced} and may quote {pronoun}"
            terminal.say(f"{sentence}; --with-summaries redacts it")
    forks = list(dict.fromkeys(fork for receipt in receipts for fork in receipt.forks))
    if forks:
        names = ", ".join(map(terminal.typed_id, forks))
        shows = "shows" if len(forks) == 1 else "show"
        terminal.say(f"{count(len(forks), 'fork')} {shows} {pronoun} redacted too: {names}")


def tell_result(
    redacting: Redacting, chosen: Chosen, redacted: RedactionResult, unconfirmed: Sequence[str]
) -> None:
    """Print the places that may still contain the content. After a search, also print what was
    searched.
    """
    stay = (*redacted.stay, *_places_not_searched(redacting))
    terminal.warn(*(problem.problem for problem in stay))
    if redacted.pending:
        terminal.note(redacted.pending)
    erasing.warn_of_unconfirmed(unconfirmed, "redaction")
    if redacting.holds is not None:
        terminal.note(_result_words(redacting, chosen, redacted))


def _places_not_searched(redacting: Redacting) -> list[Problem]:
    """Return the conversations that could not be read."""
    return [
        Problem(name, terminal.about(name, problem)) for name, problem in redacting.problems.items()
    ]
