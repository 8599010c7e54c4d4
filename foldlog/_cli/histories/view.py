"""``foldlog view``: show the events and summaries that the model is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from foldlog._cli import terminal
from foldlog._cli.events import LABEL_COLUMNS, event_spans
from foldlog._cli.options import DEFAULT_DB, AsJson, ConversationId, Db
from foldlog._cli.pager import paged
from foldlog._cli.stores import open_existing, resolved
from foldlog._documents import SummaryDocument, ViewDocument, streamed
from foldlog._words.event_json import event_document
from foldlog._words.gist import events_and_summaries, gist
from foldlog.eventstore import CondensationSummary, Event, summary_of
from foldlog.projections import View, Views


def run(
    conversation: ConversationId,
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="V", min=0, help="As it was at this version.", show_default="now"),
    ] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", metavar="N", min=0, help="Only the last N events and summaries.")
    ] = None,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Show the View of a conversation, now or at any version: the events and summaries that the model is shown.

    The id of a summary is minus (2 + the id of its condensation): -262 is the summary of condensation 260.
    With --json, --tail cuts only the list of events; all other fields are those of the whole View.

    Example: foldlog view tidewatch --at 120 --tail 20
    """
    with open_existing(db) as store:
        conversation = resolved(store, conversation)
        name, views = terminal.typed_id(conversation), Views(store)
        if tail is not None and not as_json:
            version, events = views.tail(conversation, tail, at)
            _show(f"{name} at version {version:,}: the end of the View, {_amount(events)}", events)
            return
        view = views.current(conversation) if at is None else views.at(conversation, version=at)
        if as_json:
            terminal.emit_list(_document(conversation, view, len(view) if tail is None else len(view.tail(tail))))
        else:
            asked = "; a condensation is asked for" if view.unhandled_condensation_request else ""
            _show(f"{name} at version {view.version:,}: the model is shown {_amount(view.events)}{asked}", view.events)


def _document(conversation: str, view: View, count: int) -> ViewDocument:
    """Return the View for programs, with its last ``count`` events. ``role`` is that of the chat message, None if a
    model is not sent the event.
    """
    roles = {position: message["role"] for message, positions in view.rendered() for position in positions}
    start = len(view) - count
    return ViewDocument(
        conversation=conversation,
        version=view.version,
        ids=tuple(event.id for event in view),
        unhandled_condensation_request=view.unhandled_condensation_request,
        summaries=tuple(
            SummaryDocument(event=event.id, position=position, text=event.content)
            for position, event in enumerate(view)
            if isinstance(event, CondensationSummary)
        ),
        events=streamed(
            {**event_document(event), "role": roles.get(position)} for position, event in enumerate(view[start:], start)
        ),
    )


def _amount(events: Sequence[Event]) -> str:
    summaries = sum(isinstance(event, CondensationSummary) for event in events)
    return events_and_summaries(len(events) - summaries, summaries) or "no events"


def _show(title: str, events: Sequence[Event]) -> None:
    """Print events of the View for people: one line for each, summaries whole."""
    with paged():
        terminal.console().print(Text(title, style="bold"))
        lines = terminal.PrintedLines()
        for event in events:
            start = event_spans(event)
            if isinstance(event, CondensationSummary):
                by = f"condensation {summary_of(event.id)} forgot" if event.id < 0 else "was forgotten"
                lines.write(*start, (f"replaces what {by}:", "dim"))
                terminal.print_summary(event.content, LABEL_COLUMNS + 8)
            else:
                lines.write(*start, (gist(event, lines.width), ""))
