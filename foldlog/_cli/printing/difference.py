"""Print what changed between two Views of a conversation, and make its document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foldlog._cli import terminal
from foldlog._cli.events import event_line
from foldlog._documents import (
    DifferenceDocument,
    DroppedDocument,
    SummarizedDocument,
    SummaryDocument,
)
from foldlog._words.dropped import dropped_words
from foldlog._words.gist import count_shown
from foldlog._words.reasons import because
from foldlog.eventstore import CondensationRequest, Event
from foldlog.projections import Difference


def show_difference(
    conversation: str,
    difference: Difference,
    requests: Mapping[int, Sequence[CondensationRequest]],
    dropped: Sequence[DroppedDocument],
) -> None:
    name = terminal.typed_id(conversation)
    entered = count_shown(_ids(difference.entered))
    left = count_shown(_ids(difference.left))
    versions = f"from version {difference.before:,} to {difference.after:,}"
    terminal.say(
        (f"{name} {versions}: {entered} entered the View, {left} left it", "bold"), wraps=True
    )
    for found in dropped:
        terminal.say(dropped_words(found), wraps=True)
    lines = terminal.PrintedLines()
    for sign, events, colour in (("-", difference.left, "red"), ("+", difference.entered, "green")):
        for event in events:
            lines.write((f"{sign}{event_line(event, lines.width)}", colour))
    ids_dropped = {found.condensation: found.events for found in dropped}
    ids_left = {event.id for event in difference.left}
    for one in difference.summarized:
        ids = ids_dropped.get(one.condensation.id, _ids(one.events))
        gone = count_shown(ids)
        in_view = len(ids_left.intersection(ids))
        if in_view < len(ids):
            gone += f", {in_view:,} of them in the View of version {difference.before:,}"
        why = because(one.condensation, requests.get(one.condensation.id, ()))
        said = (
            f"the summary of condensation {one.condensation.id}{f', {why},' if why else ''}"
            f" replaced {gone}:"
        )
        terminal.say((said, "dim"), wraps=True)
        terminal.print_summary(one.summary.content, 8)


def difference_document(
    conversation: str, difference: Difference, dropped: Sequence[DroppedDocument]
) -> DifferenceDocument:
    return DifferenceDocument.of(
        difference,
        conversation=conversation,
        dropped=tuple(dropped),
        entered=_ids(difference.entered),
        left=_ids(difference.left),
        summarized=tuple(
            SummarizedDocument(
                condensation=one.condensation.id,
                summary=SummaryDocument(event=one.summary.id, text=one.summary.content),
                events=_ids(one.events),
            )
            for one in difference.summarized
        ),
    )


def _ids(events: Sequence[Event]) -> tuple[int, ...]:
    return tuple(event.id for event in events)
