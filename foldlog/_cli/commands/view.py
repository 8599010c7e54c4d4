"""``foldlog view``: show the events and summaries of a View, and which of them a model is sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from foldlog._cli import terminal
from foldlog._cli.events import DAMAGED_STYLE, LABEL_COLUMNS, damaged_spans, event_spans
from foldlog._cli.options import DEFAULT_DB, AsJson, ConversationId, Db
from foldlog._cli.pager import paged
from foldlog._cli.stores import open_existing, resolved
from foldlog._documents import SummaryDocument, UnreadEventDocument, ViewDocument, streamed
from foldlog._reports.sent import sent_of, states_of
from foldlog._unreadable import sound_view
from foldlog._words.event_json import shown_document
from foldlog._words.gist import events_and_summaries, gist
from foldlog.eventstore import CondensationSummary, CorruptEvent, summary_of
from foldlog.projections import Views

if TYPE_CHECKING:
    from foldlog._reports.as_sent import Sent


def run(
    conversation: ConversationId,
    at: Annotated[
        int | None,
        typer.Option(
            "--at", metavar="V", min=0, help="As it was at this version.", show_default="now"
        ),
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option(
            "--tail", "-n", metavar="N", min=0, help="Only the last N events and summaries."
        ),
    ] = None,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Show the View of a conversation, now or at any version: the events and summaries that the
    model is shown.

    S260 is the summary of condensation 260; in JSON its id is -262, which is minus (2 + 260). An
    event that is not sent whole is marked: 'why' says why. --tail cuts only the list of events. An
    event that is damaged is named in its place, and the View is made of the others.

    Example: foldlog view tidewatch --at 120 --tail 20
    """
    from foldlog._reports.as_sent import Sent, sent  # the help needs no condenser

    with open_existing(db) as store:
        conversation = resolved(store, conversation)
        views = Views(store)
        problems: dict[int, str] = {}
        try:
            if at is None:
                view = views.current(conversation)
            else:
                view = views.at(conversation, version=at)
            found = sent(store, conversation, view)
        except CorruptEvent:
            view = sound_view(store, conversation, at, problems)
            found = Sent(view, view)
        start = 0 if tail is None else max(0, len(view) - tail)
        if as_json:
            terminal.emit_list(_document(conversation, found, start, problems))
        else:
            _show(terminal.typed_id(conversation), found, start, problems)
        for event_id, problem in problems.items():
            terminal.warn(f"conversation {conversation!r}, event {event_id}: {problem}")


def _document(
    conversation: str, found: Sent, start: int, problems: Mapping[int, str]
) -> ViewDocument:
    """Return the View for programs, with its events from ``start`` on. ``role`` is that of the chat
    message, None if no message has the event.
    """
    view = found.view
    roles = {
        found.sent[place].id: message["role"]
        for message, places in found.sent.rendered()
        for place in places
    }
    states, (events, summaries) = states_of(found), sent_of(found)
    return ViewDocument(
        conversation=conversation,
        version=view.version,
        ids=tuple(event.id for event in view),
        unhandled_condensation_request=view.unhandled_condensation_request,
        damaged=tuple(
            UnreadEventDocument(event=event_id, problem=problem)
            for event_id, problem in problems.items()
        ),
        sent_events=events if found.known else None,
        sent_summaries=summaries if found.known else None,
        summaries=tuple(
            SummaryDocument(event=event.id, position=position, text=event.content)
            for position, event in enumerate(view)
            if isinstance(event, CondensationSummary)
        ),
        events=streamed(
            {**shown_document(event), "role": roles.get(event.id), "state": states[position]}
            for position, event in enumerate(view[start:], start)
        ),
    )


def _show(name: str, found: Sent, start: int, problems: Mapping[int, str]) -> None:
    """Print the View from ``start`` on for people: one line for each event, summaries whole."""
    view = found.view
    states = states_of(found)
    amount = events_and_summaries(*sent_of(found))
    if found.known:
        said = f"the model is sent {amount or 'no events'}"
    else:
        said = "what the model is sent is not known"
    title = f"{name} at version {view.version:,}: {said}"
    for state in ("masked", "shortened", "hidden", "pending", "unsent"):
        of = "more" if state in {"hidden", "pending", "unsent"} else "of them"
        title += f"; {states.count(state):,} {of} {state}" if state in states else ""
    title += f"; by {found.rules}" if found.rules else ""
    title += "; a condensation is asked for" if view.unhandled_condensation_request else ""
    with paged():
        terminal.say((title, "bold"), wraps=True)
        lines = terminal.PrintedLines()
        damaged = sorted(problems)
        for event, state in zip(view[start:], states[start:], strict=True):
            while damaged and damaged[0] < event.id:
                _write_damaged(lines, damaged.pop(0), problems)
            mark = ("" if state == "sent" else f"{state}: ", "dim")
            if isinstance(event, CondensationSummary):
                if event.id < 0:
                    by = f"condensation {summary_of(event.id)} forgot"
                else:
                    by = "was forgotten"
                lines.write(*event_spans(event), mark, (f"replaces what {by}:", "dim"))
                terminal.print_summary(event.content, LABEL_COLUMNS + 8)
            else:
                lines.write(*event_spans(event), mark, (gist(event, lines.width), ""))
        for event_id in damaged:
            _write_damaged(lines, event_id, problems)


def _write_damaged(
    lines: terminal.PrintedLines, event_id: int, problems: Mapping[int, str]
) -> None:
    lines.write(*damaged_spans(event_id), ("", "dim"), (problems[event_id], DAMAGED_STYLE))
