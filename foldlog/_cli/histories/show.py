"""``foldlog show``: show one event in full."""

from __future__ import annotations

from foldlog._cli import terminal
from foldlog._cli.events import show_event, summary_at
from foldlog._cli.hints import command
from foldlog._cli.options import DEFAULT_DB, EVENT_SETTINGS, AsJson, ConversationId, Db, EventId
from foldlog._cli.outcome import Refused
from foldlog._cli.stores import open_existing, resolved
from foldlog._documents import ShownDocument
from foldlog._reports.own_ids import in_own_ids
from foldlog._words.event_json import event_document
from foldlog.eventstore import CondensationAction
from foldlog.projections import summary_event

SETTINGS = EVENT_SETTINGS


def run(conversation: ConversationId, event: EventId, db: Db = DEFAULT_DB, as_json: AsJson = False) -> None:
    """Show one event in full: all its fields, its arguments formatted, its text with its line breaks.

    Example: foldlog show tidewatch 17
    """
    with open_existing(db) as store:
        conversation = resolved(store, conversation)
        version = store.version(conversation)
        wanted = -event - 2 if event < -1 else event
        if not 0 <= wanted < version:
            raise Refused(
                f"conversation {conversation!r} has no event {event}; its events are 0 to {version - 1}, and the "
                f"summary of condensation c is event -(c+2)"
            )
        ((recorded_at, found),) = store.log(conversation, wanted, wanted + 1)
        told = in_own_ids(store, conversation)(found)
    if event < 0:
        if not isinstance(found, CondensationAction) or found.summary is None:
            hint = f"'{command('log', conversation, '--kind', 'condensation')}' lists its condensations"
            raise Refused(f"conversation {conversation!r} has no event {event}: event {wanted} has no summary; {hint}")
        told = found = summary_at(summary_event(found), found)
    document = ShownDocument(conversation=conversation, event=event_document(found, recorded_at))
    terminal.answer(document, lambda: show_event(told, recorded_at))
