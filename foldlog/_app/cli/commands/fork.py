"""``foldlog fork``: begin a conversation that shares the first events of another conversation."""

from __future__ import annotations

from foldlog._app.cli import terminal
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.options import argument, conversation_argument, option, store_options
from foldlog._app.cli.stores import open_existing, require_id
from foldlog._history.histories import Histories
from foldlog._reports.answers.conversations import ConversationDocument
from foldlog._reports.words.gist import count
from foldlog.eventstore import ConversationErased, InvalidArgument, VersionConflict


@conversation_argument
@argument("new", "NEW", "The id of the fork.")
@option(
    "--at",
    "V",
    "The version up to which the fork shares events.",
    show_default="the present",
)
@option(
    "--at-source",
    "SOURCE_ID",
    "Begin after the record with this id in the imported source, such as the last "
    "record of a branch.",
    show_default=False,
)
@store_options
def run(
    conversation: str,
    new: str,
    at: int | None,
    at_source: str | None,
    db: str,
) -> None:
    """Fork a conversation: begin a new conversation that shares its events up to a version.

    No event is copied. Example: foldlog fork tidewatch tidewatch-other --at 120
    """
    if at is not None and at_source is not None:
        raise Refused("--at and --at-source both set where the fork begins; use only one of them")
    with open_existing(db) as store:
        conversation = require_id(store, conversation)
        try:
            Histories(store)[conversation].fork(at, new, at_source=at_source)
        except (InvalidArgument, VersionConflict) as error:
            raise Refused(str(error)) from error
        except ConversationErased as error:
            if error.conversation != new:
                raise
            raise Refused(f"{error.problem}; choose another id for the fork") from error
        fork = store.conversation(new)
    shared = count(fork.parent_version or 0, "event")
    parent = terminal.typed_id(fork.parent or "")
    sentence = f"{terminal.typed_id(fork.id)}: shares {shared} of {parent}"
    terminal.answer(ConversationDocument.of_row(fork), sentence)
