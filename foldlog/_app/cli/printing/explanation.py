"""Print why an event is shown or not, and make the JSON document of this answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from foldlog._app.cli import terminal
from foldlog._app.cli.hints import command, complete_commands
from foldlog._app.cli.printing.events import event_spans
from foldlog._reports.answers.views import (
    DroppedTermDocument,
    HandOverDocument,
    RequestDocument,
    SummaryDocument,
    SummaryLineDocument,
    WhyDocument,
)
from foldlog._reports.facts import Fact
from foldlog._reports.figures.documents import trees_of
from foldlog._reports.hand_overs import fact_document, hand_overs
from foldlog._reports.words.dropped import needed_words
from foldlog._reports.words.gist import count, gist, id_words
from foldlog._reports.words.texts import text_of
from foldlog.eventstore import (
    Annotation,
    CondensationRequest,
    CondensationSummary,
    Store,
)
from foldlog.projections import Views, Why

_SUMMARY_LINES = 12
"""A longer summary is cut after this number of lines."""
_EVENT_LENGTH = 200
"""The maximum number of characters of an event."""
_BEFORE = 30
"""The number of characters shown before the searched words."""
_LINE = re.compile(r"^- (.*) \[(\d{1,18})\]$", re.MULTILINE)
"""Matches a line of a digest and the id at its end. A longer number is no id."""


def summary_lines(answer: Why) -> Iterator[SummaryLineDocument]:
    """Yield all lines of a digest, or the lines about a forgotten event. Each item has a line and
    the id of its event.
    """
    event = answer.event
    if isinstance(event, CondensationSummary):
        text = event.content
    else:
        text = getattr(answer.stands_in, "content", "")
    for line, event_id in _LINE.findall(text):
        if event.id < 0 or int(event_id) == event.id:
            yield SummaryLineDocument(int(event_id), line)


def show_why(
    document: WhyDocument,
    answer: Why,
    approvals: Sequence[Annotation],
) -> None:
    """Print what became of an event, or of some words, and what stands in its place."""
    conversation = document.conversation
    fact = document.fact
    words = "" if fact is None else " ".join(fact.words.casefold().split())
    before = ""
    if document.compacting is not None:
        before = "before this compaction: "
        when = f"a compaction began at {document.compacting}"
        terminal.say_wrapped(
            f"{when}, but the agent's program has not written its result to the transcript yet;"
            " this answer describes the state before the compaction"
        )
    if fact is not None:
        terminal.say_wrapped((f"{before}{terminal.printable(fact.reason)}", "bold"))
    colour = {"shown": "bold green", "never shown": "dim"}.get(answer.fate, "bold yellow")
    reason = complete_commands(answer.reason)
    terminal.say_wrapped(before, (answer.fate, colour), f" at version {answer.version:,}: {reason}")
    lines = terminal.PrintedLines()
    shown = gist(answer.event, min(lines.width, _EVENT_LENGTH))
    lines.write(*event_spans(answer.event), (shown, ""))
    # The gist may end before the words, or the words may be in the model's thinking.
    if words not in shown.casefold():
        around = _text_around(words, " ".join(text_of(answer.event).split()))
        lines.write((f"        {around}", "dim"))
    for approval in approvals:
        shown = gist(approval, min(lines.width, _EVENT_LENGTH))
        lines.write(*event_spans(approval), (shown, ""))
    if answer.stands_in == answer.summary:
        _show_summary("summary {} replaces it:", answer.summary, conversation)
    else:
        _show_summary("summary {} replaced it:", answer.summary, conversation)
        _show_summary("now summary {} replaces it:", answer.stands_in, conversation)
    has_own_lines = answer.stands_in is not None and answer.event.id >= 0
    if has_own_lines:
        for line in summary_lines(answer):
            terminal.say_wrapped(
                "its line about the event: ", (terminal.printable(line.line), "dim")
            )
    if document.dropped:
        loss = f"{count(len(document.dropped), 'term')} of the event left the View with it"
        needed = needed_words(document.dropped)
        terminal.say_wrapped((f"{loss}; the agent needed {needed}" if needed else loss, "dim"))


def _text_around(words: str, text: str) -> str:
    """Return the part of a text that has some words in it."""
    start = max(0, text.casefold().find(words) - _BEFORE)
    stop = start + _EVENT_LENGTH
    begins = "…" if start else ""
    ends = "…" if stop < len(text) else ""
    return f"{begins}{text[start:stop]}{ends}"


def answer_about_task(store: Store, views: Views, conversation: str, about: str | int) -> None:
    """Print which agents of a task have some words, or what a call gave its sub-agents."""
    document = hand_overs(store, views, trees_of(store), conversation, about)
    terminal.answer(document, lambda: _show_hand_overs(document.agents))


def _show_hand_overs(answers: Sequence[HandOverDocument]) -> None:
    """Print the agents that have the words, or that were not given them."""
    depths = dict[str | None, int]()
    silent = 0
    for answer in answers:
        depth = depths.get(answer.parent, -1) + 1
        depths[answer.conversation] = depth
        if not answer.is_concerned:
            silent += 1
        else:
            name = terminal.typed_id(answer.conversation)
            reason = terminal.printable(answer.reason)
            terminal.say_wrapped("  " * depth, (name, "bold"), f": {reason}")
    if silent:
        terminal.note(f"no event of {count(silent, 'other agent')} has the words")


def _show_summary(words: str, summary: CondensationSummary | None, conversation: str) -> None:
    """Print a summary below some words about it. A long summary is cut."""
    if summary is None:
        return
    shown_id = id_words(summary.id)
    terminal.say_wrapped((words.format(shown_id), "dim"))
    lines = terminal.printable(summary.content).splitlines()
    rest_count = len(lines) - _SUMMARY_LINES
    if rest_count <= 1:  # the line about the rest would be as long
        terminal.print_summary("\n".join(lines), 8)
        return
    terminal.print_summary("\n".join(lines[:_SUMMARY_LINES]), 8)
    show = command("show", terminal.typed_id(conversation), shown_id)
    terminal.say((f"        ({rest_count} more lines: {show})", "dim"))


def why_document(
    conversation: str,
    answer: Why,
    requests: Sequence[CondensationRequest],
    dropped: tuple[DroppedTermDocument, ...],
    fact: Fact | None,
) -> WhyDocument:
    """Return the document of an explanation."""
    return WhyDocument.of(
        answer,
        conversation=conversation,
        event=answer.event.id,
        by=None if answer.by is None else answer.by.id,
        requests=tuple(
            RequestDocument(event=request.id, reason=request.reason) for request in requests
        ),
        summary=_summary(answer.summary),
        stands_in=_summary(answer.stands_in),
        lines=tuple(summary_lines(answer)),
        dropped=dropped,
        fact=None if fact is None else fact_document(fact),
    )


def _summary(summary: CondensationSummary | None) -> SummaryDocument | None:
    if summary is None:
        return None
    return SummaryDocument(event=summary.id, text=summary.content)
