"""``foldlog why``: explain why an event is shown or not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated

import typer
from msgspec.structs import replace as replace_fields

from foldlog._archive.compacting import compacting
from foldlog._archive.refreshing import refreshed
from foldlog._cli import terminal
from foldlog._cli.events import event_spans
from foldlog._cli.hints import command, completed
from foldlog._cli.options import DEFAULT_DB, EVENT_SETTINGS, AsJson, ConversationId, Db
from foldlog._cli.outcome import Refused
from foldlog._cli.stores import open_existing, resolved
from foldlog._documents import (
    DroppedTermDocument,
    FactDocument,
    RequestDocument,
    SummaryDocument,
    SummaryLineDocument,
    WhyDocument,
)
from foldlog._history.facts import Fact, fact
from foldlog._reports.as_sent import why_sent
from foldlog._reports.dropped import dropped_by, term_document
from foldlog._reports.needed import event_terms
from foldlog._reports.own_ids import in_own_ids
from foldlog._words.dropped import needed_words
from foldlog._words.gist import count, gist
from foldlog._words.reasons import because, requests_before
from foldlog._words.texts import text_of
from foldlog.eventstore import CondensationAction, CondensationRequest, CondensationSummary, Store
from foldlog.projections import Views, Why

_SUMMARY_LINES = 12
_EVENT_LENGTH = 200
_BEFORE = 30
"""Characters that are shown before the words that were found."""
_ID = re.compile(r"-?[0-9]+")
_LINE = re.compile(r"^- (.*) \[(\d+)\]$", re.MULTILINE)
"""A line of a digest, and the id of its event."""

SETTINGS = EVENT_SETTINGS


def run(
    conversation: ConversationId,
    event: Annotated[
        str,
        typer.Argument(
            metavar="EVENT", help="Its id; the id of a summary is below -1; or some words of it.", show_default=False
        ),
    ],
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="V", min=0, help="Explain the View of this version.", show_default="the newest"),
    ] = None,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Explain why an event is shown to the model or not: what forgot it, when, and which summary replaces it.

    Of words it says whether the agent knows them: by which event or summary that a model is sent, or what forgot them.
    The id of a summary is minus (2 + the id of its condensation): -262 is the summary of condensation 260.

    Example: foldlog why tidewatch 17
    """
    with open_existing(db) as store:
        conversation, missing = _refreshed(store, resolved(store, conversation))
        views = Views(store)
        found = None if _ID.fullmatch(event) else _fact(store, views, conversation, event, at)
        event_id = int(event) if found is None else _telling(found)
        answer = why_sent(store, views, conversation, event_id, at)
        answer = replace(answer, event=in_own_ids(store, conversation)(answer.event))
        by = answer.by
        requests = requests_before(store, conversation, by.id) if isinstance(by, CondensationAction) else ()
        dropped = _dropped(store, views, conversation, answer)
    document = replace_fields(_document(conversation, answer, requests, dropped, found), compacting=missing)
    terminal.answer(document, lambda: _show(document, answer, requests))


def _refreshed(store: Store, conversation: str) -> tuple[str, str | None]:
    """Import again the file of a conversation, if it is there and has grown. Return the conversation, and when a
    compaction began that its program has not written yet.
    """
    conversation, problem = refreshed(store, conversation)
    if problem:
        terminal.note(f"its file could not be read again: {problem}")
    missing = compacting(store, conversation)
    return conversation, None if missing is None else missing.at


def _fact(store: Store, views: Views, conversation: str, words: str, at: int | None) -> Fact:
    if words.startswith("-"):
        raise Refused(f"{words!r} is neither an option nor an event; give the id of an event, or words of it")
    found = fact(store, views, conversation, words, at)
    if not found.events and not found.others:
        raise Refused(f"no event of {conversation!r} has the words {words!r}; 'foldlog log ID' shows all events")
    return found


def _telling(found: Fact) -> int:
    """Return the event that tells most of a fact: the first by which it is known, else the last that had it."""
    return (found.known_by or found.events[::-1] or found.others[::-1])[0]


def _dropped(store: Store, views: Views, conversation: str, answer: Why) -> tuple[DroppedTermDocument, ...]:
    """Return the terms of a forgotten event that no event had that the View showed when it was forgotten."""
    if answer.fate != "forgotten" or not isinstance(answer.by, CondensationAction):
        return ()
    of_event, found = event_terms(answer.event), dropped_by(store, views, conversation, answer.by.id)
    return tuple(term_document(each) for each in found.terms if each.term in of_event) if found else ()


def _document(
    conversation: str,
    answer: Why,
    requests: Sequence[CondensationRequest],
    dropped: tuple[DroppedTermDocument, ...],
    found: Fact | None,
) -> WhyDocument:
    by = None if found is None else found.by
    return WhyDocument.of(
        answer,
        conversation=conversation,
        event=answer.event.id,
        by=None if answer.by is None else answer.by.id,
        requests=tuple(RequestDocument(event=request.id, reason=request.reason) for request in requests),
        summary=_summary(answer.summary),
        stands_in=_summary(answer.stands_in),
        lines=tuple(_lines(answer)),
        dropped=dropped,
        fact=None if found is None else FactDocument.of(found, by=None if by is None else by.id),
    )


def _lines(answer: Why) -> Iterator[SummaryLineDocument]:
    """Yield the lines of a digest with their events: all lines of an explained summary; for any other event, the lines
    about it in the summary that stands in for it.
    """
    event = answer.event
    text = event.content if isinstance(event, CondensationSummary) else getattr(answer.stands_in, "content", "")
    for line, event_id in _LINE.findall(text):
        if event.id < 0 or int(event_id) == event.id:
            yield SummaryLineDocument(int(event_id), line)


def _summary(summary: CondensationSummary | None) -> SummaryDocument | None:
    return None if summary is None else SummaryDocument(event=summary.id, text=summary.content)


def _reason(answer: Why, requests: Sequence[CondensationRequest]) -> str:
    """Return the answer in words; a condensation's reason in the words of every command."""
    if not isinstance(answer.by, CondensationAction):
        return answer.reason
    why = because(answer.by, requests)
    return f"{answer.reason}, {why}" if why else answer.reason


def _show(document: WhyDocument, answer: Why, requests: Sequence[CondensationRequest]) -> None:
    conversation, found = document.conversation, document.fact
    words = "" if found is None else " ".join(found.words.casefold().split())
    before = "" if document.compacting is None else "before this compaction: "
    if before:
        when = f"a compaction began at {document.compacting}"
        terminal.say(f"{when}, and its program has not written it yet: what it dropped is missing here", wraps=True)
    if found is not None:
        terminal.say((f"{before}{terminal.printable(found.reason)}", "bold"), wraps=True)
    colour = {"shown": "bold green", "never shown": "dim"}.get(answer.fate, "bold yellow")
    reason = completed(_reason(answer, requests))
    terminal.say(before, (answer.fate, colour), f" at version {answer.version:,}: {reason}", wraps=True)
    lines = terminal.PrintedLines()
    shown = gist(answer.event, min(lines.width, _EVENT_LENGTH))
    lines.write(*event_spans(answer.event), (shown, ""))
    if words not in shown.casefold():  # the gist does not reach to the words, or they are in the model's thinking
        text = " ".join(text_of(answer.event).split())
        start = max(0, text.casefold().find(words) - _BEFORE)
        around = text[start : start + _EVENT_LENGTH]
        lines.write((f"        {'…' if start else ''}{around}{'…' if text[start + _EVENT_LENGTH :] else ''}", "dim"))
    still = "" if answer.stands_in != answer.summary else ", which replaces it still"
    _show_summary(f"it was summarized as{{}}{still}:", answer.summary, conversation)
    if answer.stands_in != answer.summary:
        _show_summary("what replaces it now{}:", answer.stands_in, conversation)
    for line in _lines(answer) if answer.stands_in else ():
        terminal.say("what it says of the event: ", (terminal.printable(line.line), "dim"), wraps=True)
    if document.dropped:
        gone = f"{count(len(document.dropped), 'term')} of it stood nowhere in the View then"
        needed = needed_words(document.dropped)
        terminal.say((f"{gone}; the agent needed {needed}" if needed else gone, "dim"), wraps=True)


def _show_summary(words: str, summary: CondensationSummary | None, conversation: str) -> None:
    if summary is not None:
        terminal.say((words.format(f" (summary {summary.id})"), "dim"), wraps=True)
        lines = terminal.printable(summary.content).splitlines()
        left = len(lines) - _SUMMARY_LINES
        terminal.print_summary("\n".join(lines if left <= 1 else lines[:_SUMMARY_LINES]), 8)
        if left > 1:
            name = terminal.typed_id(conversation)
            terminal.say((f"        ({left} more lines: {command('show', name, summary.id)})", "dim"))
