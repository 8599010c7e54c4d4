"""``foldlog append``: append chat messages to a conversation."""

from __future__ import annotations

import json
import sys

import click

from foldlog._app.cli import terminal
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.options import argument, conversation_argument, flag, option, store_options
from foldlog._app.cli.stores import open_existing, open_or_create, require_id
from foldlog._base.json_types import JsonObject
from foldlog._history.histories import Histories
from foldlog._reports.answers.events import AppendedDocument
from foldlog._reports.words.gist import count
from foldlog.eventstore import (
    ANY_VERSION,
    ConversationErased,
    InvalidEvent,
    Store,
    VersionConflict,
)

_NO_STORE = "add --new to create it, or name the store with --db STORE"


@conversation_argument
@argument(
    "text", "TEXT", "The text of a message.", required=False, show_default="JSON lines on stdin"
)
@click.option(
    "--role",
    type=click.Choice(("user", "assistant", "system")),
    default="user",
    help="The author of TEXT.",
)
@flag("--new", "Begin a new conversation with this id. Create the store if it does not exist.")
@option("--expected", "V", "Append only if the conversation has this version.")
@option("--key", "KEY", "If messages were already appended with this key, append nothing.")
@store_options
def run(
    conversation: str,
    text: str | None,
    role: str,
    new: bool,
    expected: int | None,
    key: str | None,
    db: str,
) -> None:
    """Append messages to a conversation. Without TEXT, read chat messages from stdin, one JSON
    object in every line. If one message cannot be appended, no message is appended.

    A message is {"role": "user", "content": "…"}, with tool_calls and tool_call_id as in OpenAI's
    API. The command ends when the messages are on disk.

    Example: foldlog append tidewatch "Now write the changelog."
    """
    if new and expected is not None:
        raise Refused("--new begins a conversation, which has no version yet; leave out --expected")
    if text is None:
        messages = _read_messages()
    else:
        messages = [{"role": role, "content": text}]
    opened = open_or_create(db) if new else open_existing(db, _NO_STORE)
    with opened as store:
        history = Histories(store)[conversation if new else _existing(store, conversation)]
        version = ANY_VERSION if expected is None else expected
        if new and key is None:
            version = 0
        try:
            before = 0 if key is None else history.version()
            recorded = history.append(messages, expected_version=version, idempotency_key=key)
        except (InvalidEvent, VersionConflict, TypeError) as error:
            raise Refused(str(error)) from error
        except ConversationErased as error:
            raise Refused(f"{error.problem}; choose another id") from error
        present = history.version()
    document = AppendedDocument(
        conversation=conversation, version=present, events=tuple(event.id for event in recorded)
    )
    if len(recorded) == 1:
        ids = f"{recorded[0].id:,}"
    else:
        ids = f"{recorded[0].id:,} to {recorded[-1].id:,}"
    done = "appended"
    if recorded[0].id < before:
        done = "already appended with this key"
    added = f"{count(len(recorded), 'event')} {done}"
    terminal.answer(document, f"{terminal.typed_id(conversation)}: {added}, {ids}")


def _existing(store: Store, conversation: str) -> str:
    """Return the id of an existing conversation. Raises ``Refused``."""
    try:
        return require_id(store, conversation)
    except Refused as error:
        raise Refused(f"{error}; --new begins a conversation with this id") from error


def _read_messages() -> list[JsonObject]:
    """Return the messages on stdin. Raises ``Refused``, also if one of them is wrong."""
    if sys.stdin.isatty():
        raise Refused(
            "append reads messages from stdin, which is a terminal; add TEXT, or pipe "
            "JSON lines into it"
        )
    messages = []
    for number, line in enumerate(sys.stdin.buffer, 1):
        if not line.strip():
            continue
        try:
            message = json.loads(line)
        except RecursionError as error:
            raise Refused(
                f"stdin:{number}: the line is nested too deeply; nothing was appended"
            ) from error
        except ValueError as error:
            raise Refused(
                f"stdin:{number}: the line is not JSON ({error}); nothing was appended"
            ) from error
        if not isinstance(message, dict) or "role" not in message:
            raise Refused(
                f'stdin:{number}: the line is not a message {{"role": …, "content": …}}; nothing '
                f"was appended"
            )
        messages.append(message)
    if not messages:
        raise Refused(
            "stdin has no message; nothing was appended; pipe JSON lines into it, or add TEXT"
        )
    return messages
