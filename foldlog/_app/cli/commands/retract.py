"""``foldlog retract``: take back the newest events of a conversation."""

from __future__ import annotations

from foldlog._app.cli import terminal
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.hints import command
from foldlog._app.cli.options import conversation_argument, option, store_options
from foldlog._app.cli.stores import open_existing, require_id
from foldlog._history.histories import Histories
from foldlog._reports.answers.events import RetractedDocument
from foldlog._reports.figures.overview import changes_of_documents
from foldlog._reports.words.gist import count


@conversation_argument
@option("--to", "V", "The version to which the View returns.", required=True)
@option(
    "--reason", "TEXT", "The reason, which is stored in the log.", default="", show_default=False
)
@store_options
def run(
    conversation: str,
    to: int,
    reason: str,
    db: str,
) -> None:
    """Take back the events of a conversation after a version. After the retraction, the View is as
    it was at that version.

    The events stay in the log, and attributes do not change. To reverse a retraction, pass its id
    as --to.

    Example: foldlog retract tidewatch --to 120 --reason "wrong turn"
    """
    with open_existing(db) as store:
        version = store.conversation(require_id(store, conversation)).version
        if to >= version:
            raise Refused(
                f"conversation {conversation!r} has {count(version, 'event')}; --to {to} takes"
                f" nothing back (use 0 to {version - 1})"
            )
        history = Histories(store)[conversation]
        history.at(version)  # if no View can be made, nothing is taken back
        recorded = history.retract(to, reason, expected_version=version)
        shown = len(history.view())
        event_count = version - to - changes_of_documents(store, conversation, to, version)
    document = RetractedDocument(
        conversation=conversation, event=recorded.id, to=to, taken_back=event_count, shown=shown
    )
    name = terminal.typed_id(conversation)
    sentence = (
        f"{name}: took back {count(event_count, 'event')}, the View shows {count(shown, 'event')}; "
        f"'{command('retract', name, '--to', recorded.id)}' reverses it"
    )
    terminal.answer(document, sentence)
