"""``foldlog documents``: show the named values beside a conversation."""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated, Any

import typer

from foldlog._cli import terminal
from foldlog._cli.options import DEFAULT_DB, AsJson, ConversationId, Db
from foldlog._cli.outcome import Refused
from foldlog._cli.stores import open_existing, resolved
from foldlog._documents import DocumentsDocument
from foldlog.eventstore import ATTRIBUTES, Documents, Store
from foldlog.eventstore.inside import said


def run(
    conversation: ConversationId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The document.", show_default="all of them")] = "",
    at: Annotated[
        int | None, typer.Option("--at", metavar="V", min=0, help="The version to show.", show_default="the present")
    ] = None,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Show the documents of a conversation: named values that an agent keeps beside its events.

    Example: foldlog documents tidewatch
    """
    with open_existing(db) as store:
        conversation = resolved(store, conversation)
        version = _version(store, conversation, at)
        documents = _documents(store, conversation, name, version)
    values = {each: json.dumps(value, ensure_ascii=False, default=said) for each, value in documents.items()}
    none = f"{terminal.typed_id(conversation)} has no documents at version {version}."
    document = DocumentsDocument(conversation=conversation, version=version, documents=documents)
    terminal.answer(document, partial(terminal.print_values, values) if values else none)


def _version(store: Store, conversation: str, at: int | None) -> int:
    present = store.conversation(conversation).version
    if at is not None and at > present:
        raise Refused(
            f"conversation {conversation!r} has {present:,} events; --at {at} is past its end (use 0 to {present})"
        )
    return present if at is None else at


def _documents(store: Store, conversation: str, name: str, version: int) -> dict[str, Any]:
    """Return the documents, or the one with this name."""
    found = Documents(store)
    if not name:
        documents = found.all(conversation, version=version)
        return {each: value for each, value in documents.items() if each != ATTRIBUTES}
    missing = object()
    value = found.get(conversation, name, missing, version=version)
    if value is missing:
        raise Refused(
            f"conversation {conversation!r} has no document {name!r} at version {version}; leave it out to see all"
        )
    return {name: value}
