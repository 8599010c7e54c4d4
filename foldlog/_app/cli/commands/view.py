"""``foldlog view``: show the events and summaries of a View, and mark events that are not sent to a
model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from foldlog._app.cli import terminal
from foldlog._app.cli.options import conversation_argument, option, store_options
from foldlog._app.cli.printing.view import show_view
from foldlog._app.cli.stores import open_existing, resolve
from foldlog._reports.answers.document import stream
from foldlog._reports.answers.events import UnreadEventDocument
from foldlog._reports.answers.views import SummaryDocument, ViewDocument
from foldlog._reports.sent_events import sent_of, states_of
from foldlog._reports.words.event_json import shown_document
from foldlog.eventstore import CondensationSummary, CorruptEvent
from foldlog.projections import Views
from foldlog.projections.conversations.unreadable import sound_view

if TYPE_CHECKING:
    from foldlog._reports.as_sent import Sent


@conversation_argument
@option("--at", "V", "Show the View of this version.", show_default="now")
@option("--tail -n", "N", "Only the last N events and summaries.")
@store_options
def run(
    conversation: str,
    at: int | None,
    tail: int | None,
    db: str,
) -> None:
    """Show the View of a conversation, now or at any version: the events and summaries that the
    model is shown.

    S260 is the summary of condensation 260. In JSON, S260 has the id -(260 + 2) = -262. An event
    that is not sent whole has a mark, and 'foldlog why' explains the mark. --tail shortens the list
    of events, but not the counts. A damaged event is reported at its position, and left out of the
    View.

    Example: foldlog view tidewatch --at 120 --tail 20
    """
    from foldlog._reports.as_sent import Sent, sent  # the help needs no condenser

    with open_existing(db) as store:
        conversation = resolve(store, conversation)
        views = Views(store)
        problems: dict[int, str] = {}
        try:
            if at is None:
                view = views.current(conversation)
            else:
                view = views.at(conversation, version=at)
            sent_view = sent(store, conversation, view)
        except CorruptEvent:
            view = sound_view(store, conversation, at, problems)
            sent_view = Sent(view, view)
        start = 0 if tail is None else max(0, len(view) - tail)
        if terminal.prints_json():
            terminal.emit_list(_document(conversation, sent_view, start, problems))
        else:
            show_view(terminal.typed_id(conversation), sent_view, start, problems)
        for event_id, problem in problems.items():
            terminal.warn(f"conversation {conversation!r}, event {event_id}: {problem}")


def _document(
    conversation: str, sent_view: Sent, start: int, problems: Mapping[int, str]
) -> ViewDocument:
    """Return the View as a document, without the View's first ``start`` events."""
    view = sent_view.view
    roles = {
        sent_view.sent[place].id: message["role"]
        for message, places in sent_view.sent.rendered()
        for place in places
    }
    states = states_of(sent_view)
    events, summaries = sent_of(sent_view)
    return ViewDocument.of(
        view,
        conversation=conversation,
        ids=tuple(event.id for event in view),
        damaged=tuple(
            UnreadEventDocument(event=event_id, problem=problem)
            for event_id, problem in problems.items()
        ),
        sent_events=events if sent_view.is_known else None,
        sent_summaries=summaries if sent_view.is_known else None,
        summaries=tuple(
            SummaryDocument(event=event.id, position=position, text=event.content)
            for position, event in enumerate(view)
            if isinstance(event, CondensationSummary)
        ),
        events=stream(
            {**shown_document(event), "role": roles.get(event.id), "state": states[position]}
            for position, event in enumerate(view[start:], start)
        ),
    )
