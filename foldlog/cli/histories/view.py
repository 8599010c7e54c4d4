"""``foldlog view``: show the events and summaries that the model is shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from eventstore import NOT_RECORDED, CondensationSummary, Event, Store, summary_of
from eventstore.stored.results import Border
from foldlog.cli import terminal
from foldlog.cli.borders import Borders, borders_document, borders_of
from foldlog.cli.moments import summary_at
from foldlog.cli.options import DEFAULT_DB, AsJson, ConversationId, Db
from foldlog.cli.outcome import DONE
from foldlog.cli.pager import paged
from foldlog.cli.stores import open_existing, resolved
from foldlog.cli.styles import LABEL_COLUMNS, STYLES, summary_text
from foldlog.kinds import label
from foldlog.words.event_json import event_document
from foldlog.words.gist import events_and_summaries, gist
from projections import View, Views

_NEAR = 2
"""Ids that are at most this far apart are read at once."""


def run(
    conversation: ConversationId,
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="V", min=0, help="As it was at this version.", show_default="now"),
    ] = None,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> int:
    """Show the View of a conversation, now or at any version: the events and summaries that the model is shown.

    Example: foldlog view tidewatch --at 120
    """
    with open_existing(db) as store:
        conversation = resolved(store, conversation)
        views = Views(store)
        view = views.current(conversation) if at is None else views.at(conversation, version=at)
        borders = [border for border in borders_of(store, conversation) if border.version <= view.version]
        if as_json:
            head = {**_head(conversation, view), **borders_document(borders)}
            terminal.emit_list(head, "events", _event_documents(view, _recorded(store, conversation, view)))
        else:
            with paged():
                show(terminal.console(), conversation, view, borders)
    return DONE


def _head(conversation: str, view: View) -> dict[str, Any]:
    """Return the View for programs, without its events."""
    return {
        "conversation": conversation,
        "version": view.version,
        "ids": [event.id for event in view],
        "unhandled_condensation_request": view.unhandled_condensation_request,
        "summaries": [
            {"id": event.id, "position": position, "text": event.content}
            for position, event in enumerate(view)
            if isinstance(event, CondensationSummary)
        ],
    }


def _recorded(store: Store, conversation: str, view: View) -> dict[int, datetime]:
    """Return when each event of the View was recorded; for a summary, when its condensation was recorded. Cost: these
    events, and a smaller number of events between them.
    """
    ids = sorted({event.id if event.id > NOT_RECORDED else summary_of(event.id) for event in view})
    recorded: dict[int, datetime] = {}
    start = 0
    for place, event_id in enumerate(ids):
        if place + 1 < len(ids) and ids[place + 1] - event_id <= _NEAR:
            continue
        for recorded_at, event in store.log(conversation, ids[start], event_id + 1):
            recorded[event.id] = recorded_at
        start = place + 1
    return recorded


def _event_documents(view: View, recorded: dict[int, datetime]) -> Iterator[dict[str, Any]]:
    """Yield the events of the View for programs. ``role`` is the role of the chat message of an event, None if a model
    is not sent it. A summary has the time of its condensation.
    """
    roles = {position: message["role"] for message, positions in view.rendered() for position in positions}
    shown = {summary_of(event.id) for event in view if event.id < NOT_RECORDED}
    made_by = {action.id: action for action in view.condensations if action.id in shown} if shown else {}
    for position, event in enumerate(view):
        action = made_by.get(summary_of(event.id)) if event.id < NOT_RECORDED else None
        if action is not None and isinstance(event, CondensationSummary):
            event = summary_at(event, action)
        recorded_at = recorded.get(event.id if event.id > NOT_RECORDED else summary_of(event.id))
        yield _event(event, roles.get(position), recorded_at)


def _event(event: Event, role: str | None, recorded_at: datetime | None) -> dict[str, Any]:
    return {"id": event.id, "kind": None, "role": role} | event_document(event, recorded_at) | {"role": role}


def show(console: Console, conversation: str, view: View, borders: Sequence[Border] = ()) -> None:
    """Print the View for people: one line for each event, summaries whole, with a border before the first event of the
    fork; summaries do not count.
    """
    name = terminal.printable(conversation, one_line=True)
    asked = "; a condensation is asked for" if view.unhandled_condensation_request else ""
    summaries = sum(isinstance(event, CondensationSummary) for event in view)
    shown = events_and_summaries(len(view) - summaries, summaries) or "no events"
    console.print(Text(f"{name} at version {view.version:,}: the model is shown {shown}{asked}", style="bold"))
    lines = terminal.PrintedLines()
    coming = Borders(list(borders))
    for event in view:
        for border in coming.up_to(event.id):  # a summary's id is negative: it never passes a border
            lines.write((f"{'':>8}{border}", "bold"))
        kind = label(event)
        start = ((f"{event.id:>6}  ", "dim"), (f"{kind:<{LABEL_COLUMNS}}", STYLES[kind]))
        if isinstance(event, CondensationSummary):
            by = f"condensation {summary_of(event.id)} forgot" if event.id < 0 else "was forgotten"
            lines.write(*start, (f"stands for what {by}:", "dim"))
            terminal.print_indented(console, Text(summary_text(event.content), style="magenta"), LABEL_COLUMNS + 8)
        else:
            lines.write(*start, (gist(event, lines.width), ""))
    for border in coming.up_to(view.version):
        lines.write((f"{'':>8}{border}", "bold"))
