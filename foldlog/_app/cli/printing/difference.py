"""Print what changed between two Views of a conversation, and make its document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foldlog._app.cli import terminal
from foldlog._app.cli.printing.events import event_line
from foldlog._reports.answers.views import (
    DifferenceDocument,
    DroppedDocument,
    SummarizedDocument,
    SummaryDocument,
)
from foldlog._reports.words.dropped import dropped_words
from foldlog._reports.words.gist import count_shown
from foldlog._reports.words.reasons import because
from foldlog.eventstore import CondensationRequest, Event
from foldlog.projections import Difference


def show_difference(
    conversation: str,
    difference: Difference,
    requests: Mapping[int, Sequence[CondensationRequest]],
    dropped: Sequence[DroppedDocument],
) -> None:
    """Print the events that left and entered the View, and the summaries that replaced events."""
    name = terminal.typed_id(conversation)
    entered = count_shown(_ids(difference.entered))
    leaving_count = count_shown(_ids(difference.left))
    versions = f"from version {difference.before:,} to {difference.after:,}"
    terminal.say_wrapped(
        (f"{name} {versions}: {entered} entered the View, {leaving_count} left it", "bold")
    )
    for drop in dropped:
        terminal.say_wrapped(dropped_words(drop))
    lines = terminal.PrintedLines()
    for sign, events, colour in (("-", difference.left, "red"), ("+", difference.entered, "green")):
        for event in events:
            lines.write((f"{sign}{event_line(event, lines.width)}", colour))
    ids_dropped = {drop.condensation: drop.events for drop in dropped}
    ids_left = {event.id for event in difference.left}
    for replacement in difference.summarized:
        ids = ids_dropped.get(replacement.condensation.id, _ids(replacement.events))
        event_count = count_shown(ids)
        in_view = len(ids_left.intersection(ids))
        if in_view < len(ids):
            event_count += f", {in_view:,} of them in the View of version {difference.before:,}"
        summary = f"the summary of condensation {replacement.condensation.id}"
        why = because(replacement.condensation, requests.get(replacement.condensation.id, ()))
        if why:
            summary += f", {why},"
        terminal.say_wrapped((f"{summary} replaced {event_count}:", "dim"))
        terminal.print_summary(replacement.summary.content, 8)


def difference_document(
    conversation: str, difference: Difference, dropped: Sequence[DroppedDocument]
) -> DifferenceDocument:
    """Return the document of a difference between two Views."""
    return DifferenceDocument.of(
        difference,
        conversation=conversation,
        dropped=tuple(dropped),
        entered=_ids(difference.entered),
        left=_ids(difference.left),
        summarized=tuple(
            SummarizedDocument(
                condensation=replacement.condensation.id,
                summary=SummaryDocument(
                    event=replacement.summary.id, text=replacement.summary.content
                ),
                events=_ids(replacement.events),
            )
            for replacement in difference.summarized
        ),
    )


def _ids(events: Sequence[Event]) -> tuple[int, ...]:
    return tuple(event.id for event in events)
