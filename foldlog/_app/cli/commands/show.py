"""``foldlog show``: show one event in full, or the documents of a conversation."""

from __future__ import annotations

import json
from functools import partial

from foldlog._app.cli import terminal
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.hints import command
from foldlog._app.cli.options import (
    EVENT_SETTINGS,
    argument,
    conversation_argument,
    flag,
    option,
    store_options,
)
from foldlog._app.cli.printing.events import event_id_in, show_event, summary_at
from foldlog._app.cli.stores import open_existing, resolve
from foldlog._reports.answers.events import DocumentsDocument, ShownDocument
from foldlog._reports.v0_ids import in_own_ids
from foldlog._reports.words.event_json import shown_document
from foldlog._reports.words.gist import count, id_words
from foldlog.eventstore import (
    ATTRIBUTES,
    NOT_RECORDED,
    CondensationAction,
    Documents,
    Store,
    summary_of,
)
from foldlog.eventstore.codec_json import describe_value
from foldlog.projections import summary_event

SETTINGS = EVENT_SETTINGS


@conversation_argument
@argument(
    "event",
    "EVENT",
    "The id of an event, such as 17, or S260 for the summary of condensation 260.",
    required=False,
)
@flag("--documents", "Show the documents: named values that an agent stores beside its events.")
@option("--at", "V", "With --documents: at this version.")
@store_options
def run(
    conversation: str,
    event: str | None,
    documents: bool,
    at: int | None,
    db: str,
) -> None:
    """Show one event in full: all fields, formatted arguments, and the text with its line breaks.

    Example: foldlog show tidewatch 17
    """
    with open_existing(db) as store:
        conversation = resolve(store, conversation)
        if documents and event is None:
            _show_documents(store, conversation, at)
        elif event is None or documents or at is not None:
            raise Refused(
                "name an event: foldlog show ID EVENT; or show the documents: --documents [--at V]"
            )
        else:
            event_id = event_id_in(event)
            if event_id is None:
                raise Refused(
                    f"{event!r} is not the id of an event; use a number, or S260 for a summary"
                )
            _show_event(store, conversation, event_id)


def _show_event(store: Store, conversation: str, event: int) -> None:
    """Show an event, or the summary of a condensation. Raises ``Refused``."""
    version = store.version(conversation)
    stored_id = summary_of(event) if event < NOT_RECORDED else event
    if not 0 <= stored_id < version:
        raise Refused(
            f"conversation {conversation!r} has no event {id_words(event)}; its events are 0 to"
            f" {version - 1}, and S5 means the summary of condensation 5"
        )
    ((recorded_at, stored_event),) = store.log(conversation, stored_id, stored_id + 1)
    shown_event = in_own_ids(store, conversation)(stored_event)
    if event < 0:
        if not isinstance(stored_event, CondensationAction) or stored_event.summary is None:
            hint = (
                f"'{command('log', conversation, '--kind', 'condensation')}' lists its"
                " condensations"
            )
            raise Refused(
                f"conversation {conversation!r} has no event {id_words(event)}: event {stored_id}"
                f" has no summary; {hint}"
            )
        shown_event = stored_event = summary_at(summary_event(stored_event), stored_event)
    document = ShownDocument(
        conversation=conversation, event=shown_document(stored_event, recorded_at)
    )
    terminal.answer(document, lambda: show_event(shown_event, recorded_at))


def _show_documents(store: Store, conversation: str, at: int | None) -> None:
    """Show the documents at a version, without the attributes."""
    present = store.conversation(conversation).version
    version = present if at is None else at
    if version > present:
        raise Refused(
            f"conversation {conversation!r} has {count(present, 'event')}, so --at {at} is after"
            f" its end (use 0 to {present})"
        )
    documents = Documents(store).all(conversation, version=version)
    documents.pop(ATTRIBUTES, None)
    values = {
        name: json.dumps(value, ensure_ascii=False, default=describe_value)
        for name, value in documents.items()
    }
    none = f"{terminal.typed_id(conversation)} has no documents at version {version}."
    document = DocumentsDocument(conversation=conversation, version=version, documents=documents)
    terminal.answer(document, partial(terminal.print_values, values) if values else none)
