"""``foldlog view``: show the events and summaries that the model is shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from foldlog._cli import terminal
from foldlog._cli.borders import Borders, borders_document, borders_of
from foldlog._cli.events import LABEL_COLUMNS, STYLES, summary_at, summary_text
from foldlog._cli.options import DEFAULT_DB, AsJson, ConversationId, Db
from foldlog._cli.pager import paged
from foldlog._cli.stores import open_existing, resolved
from foldlog._documents import SummaryDocument, ViewDocument, streamed
from foldlog._kinds import label
from foldlog._words.event_json import event_document
from foldlog._words.gist import events_and_summaries, gist
from foldlog.eventstore import NOT_RECORDED, Border, CondensationSummary, Event, Store, summary_of
from foldlog.projections import View, Views

_NEAR = 2
"""Ids that are at most this far apart are read at once."""


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

    With --json and --tail, only the list of events is cut: all other fields are those of the whole View.

    Example: foldlog view tidewatch --at 120 --tail 20
    """
    with open_existing(db) as store:
        conversation = resolved(store, conversation)
        name = terminal.typed_id(conversation)
        views, lineage = Views(store), borders_of(store, conversation)
        if tail is not None and not as_json:
            version, events = views.tail(conversation, tail, at)
            first = next((event.id for event in events if event.id >= 0), version + 1)
            title = f"{name} at version {version:,}: the end of the View, {_amount(events)}"
            _show(title, events, Borders(_until(lineage, version), first), version)
            return
        view = views.current(conversation) if at is None else views.at(conversation, version=at)
        borders = _until(lineage, view.version)
        if as_json:
            last = view.events if tail is None else view.tail(tail)
            documents = _event_documents(view, len(last), _recorded(store, conversation, last))
            terminal.emit_list(_document(conversation, view, borders, documents))
        else:
            asked = "; a condensation is asked for" if view.unhandled_condensation_request else ""
            title = f"{name} at version {view.version:,}: the model is shown {_amount(view.events)}{asked}"
            _show(title, view.events, Borders(borders), view.version)


def _until(borders: Sequence[Border], version: int) -> list[Border]:
    return [border for border in borders if border.version <= version]


def _document(conversation: str, view: View, borders: list[Border], events: Iterator[dict[str, Any]]) -> ViewDocument:
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
        **borders_document(borders),
        events=streamed(events),
    )


def _recorded(store: Store, conversation: str, events: Sequence[Event]) -> dict[int, datetime]:
    """Return when each of these events was recorded; for a summary, when its condensation was recorded. Cost: these
    events, and a smaller number of events between them.
    """
    ids = sorted({event.id if event.id > NOT_RECORDED else summary_of(event.id) for event in events})
    recorded: dict[int, datetime] = {}
    start = 0
    for place, event_id in enumerate(ids):
        if place + 1 < len(ids) and ids[place + 1] - event_id <= _NEAR:
            continue
        for recorded_at, event in store.log(conversation, ids[start], event_id + 1):
            recorded[event.id] = recorded_at
        start = place + 1
    return recorded


def _event_documents(view: View, count: int, recorded: dict[int, datetime]) -> Iterator[dict[str, Any]]:
    """Yield the last ``count`` events of the View for programs. ``role`` is the role of the chat message of an event,
    None if a model is not sent it. A summary has the time of its condensation.
    """
    roles = {position: message["role"] for message, positions in view.rendered() for position in positions}
    shown = {summary_of(event.id) for event in view if event.id < NOT_RECORDED}
    made_by = {action.id: action for action in view.condensations if action.id in shown} if shown else {}
    start = len(view) - count
    for position, event in enumerate(view[start:], start):
        action = made_by.get(summary_of(event.id)) if event.id < NOT_RECORDED else None
        if action is not None and isinstance(event, CondensationSummary):
            event = summary_at(event, action)
        recorded_at = recorded.get(event.id if event.id > NOT_RECORDED else summary_of(event.id))
        yield _event(event, roles.get(position), recorded_at)


def _event(event: Event, role: str | None, recorded_at: datetime | None) -> dict[str, Any]:
    return {"id": event.id, "kind": None, "role": role} | event_document(event, recorded_at) | {"role": role}


def _amount(events: Sequence[Event]) -> str:
    summaries = sum(isinstance(event, CondensationSummary) for event in events)
    return events_and_summaries(len(events) - summaries, summaries) or "no events"


def _show(title: str, events: Sequence[Event], borders: Borders, version: int) -> None:
    """Print events of the View for people: one line for each, summaries whole, with a border before the first event of
    the fork; summaries do not count.
    """
    with paged():
        console = terminal.console()
        console.print(Text(title, style="bold"))
        lines = terminal.PrintedLines()
        for event in events:
            for border in borders.up_to(event.id):  # a summary's id is negative: it never passes a border
                lines.write((f"{'':>8}{border}", "bold"))
            kind = label(event)
            start = ((f"{event.id:>6}  ", "dim"), (f"{kind:<{LABEL_COLUMNS}}", STYLES[kind]))
            if isinstance(event, CondensationSummary):
                by = f"condensation {summary_of(event.id)} forgot" if event.id < 0 else "was forgotten"
                lines.write(*start, (f"stands for what {by}:", "dim"))
                terminal.print_indented(console, Text(summary_text(event.content), style="magenta"), LABEL_COLUMNS + 8)
            else:
                lines.write(*start, (gist(event, lines.width), ""))
        for border in borders.up_to(version):
            lines.write((f"{'':>8}{border}", "bold"))
