"""``foldlog attributes``: show or change the attributes of a conversation."""

from __future__ import annotations

from functools import partial

from foldlog._app.cli import terminal
from foldlog._app.cli.options import conversation_argument, option, store_options
from foldlog._app.cli.selection import pairs
from foldlog._app.cli.stores import open_existing, require_id, resolve
from foldlog._history.histories import Histories
from foldlog._reports.answers.events import AttributesDocument
from foldlog._reports.words.gist import compact


@conversation_argument
@option("--set changed", "NAME=VALUE", "Set an attribute; NAME= removes it.", multiple=True)
@store_options
def run(
    conversation: str,
    changed: tuple[str, ...],
    db: str,
) -> None:
    """Show or change the attributes of a conversation, such as app, user, project, title, parent
    and tags.

    A value is stored as a text, unless it is JSON of one of these kinds: a whole number, true,
    false, or a list. 'foldlog list NAME=VALUE' lists the conversations with an attribute.

    Example: foldlog attributes tidewatch --set project=tides
    """
    changes = pairs(changed)
    with open_existing(db) as store:
        find_conversation = require_id if changes else resolve
        conversation = find_conversation(store, conversation)
        history = Histories(store)[conversation]
        if changes:
            attributes = history.set_attributes(**changes)
        else:
            attributes = history.attributes()
    values = {
        name: "null" if value is None else compact(value) for name, value in attributes.items()
    }
    none = "No attributes; --set NAME=VALUE sets one."
    document = AttributesDocument(conversation=conversation, attributes=attributes)
    terminal.answer(document, partial(terminal.print_values, values) if values else none)
