"""``foldlog export``: write a history as its source wrote it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from msgspec import UNSET

from foldlog._cli import terminal
from foldlog._cli.options import DEFAULT_DB, AsJson, ConversationId, Db, Force, output_option
from foldlog._cli.outcome import Refused
from foldlog._cli.stores import open_existing, resolved
from foldlog._copies import noted
from foldlog._documents import ExportedDocument, RecordsDocument, streamed
from foldlog._formats.conversion import ANY_HISTORY, format_of_history
from foldlog._formats.registry import format_named
from foldlog._history.histories import Histories
from foldlog._whole_file import whole_file
from foldlog._words.gist import count
from foldlog._words.safe_text import json_text
from foldlog.eventstore import EventStoreError
from foldlog.formats import FORMATS, UnknownFormat


def run(
    conversation: ConversationId,
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            show_default="the format of its source",
            autocompletion=lambda: list(FORMATS),
            help="The format to write. An imported conversation: that of its source, or openai-chat.",
        ),
    ] = None,
    view: Annotated[
        bool,
        typer.Option("--view", help="Write the messages that a model is sent now, by default as openai-chat."),
    ] = False,
    output: Annotated[
        Path | None,
        output_option("--output", "-o", help="The file to write.", show_default="stdout"),
    ] = None,
    force: Force = False,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Write a conversation as its source wrote it: with forgotten events, without retracted ones.

    Example: foldlog export tidewatch --output exported.jsonl
    """
    with open_existing(db) as store:
        conversation = resolved(store, conversation)
        chosen = format or (ANY_HISTORY if view else format_of_history(store, conversation))
        notes: list[str] = []
        try:
            records = Histories(store)[conversation].export(chosen, view=view, notes=notes.append)
        except UnknownFormat as error:
            raise Refused(str(error)) from error
        findings: list[str] = []
        if output is not None:
            with noted(store, "export", output, conversation), whole_file(output) as file:
                number = _write(file, records, chosen)
            document = ExportedDocument(
                conversation=conversation, format=chosen, file=str(output), records=number, notes=tuple(notes) or UNSET
            )
            told = f"{count(number, 'record')} of {conversation} ({chosen}) in {output}"
            terminal.answer(document, told)
        elif as_json:
            read = streamed(_readable(records, findings))
            terminal.emit_list(
                RecordsDocument(conversation=conversation, format=chosen, records=read),
                lambda: {"findings": tuple(findings), "notes": tuple(notes) or UNSET},
                exact=True,
            )
        else:
            sys.stdout.flush()
            _write(sys.stdout.buffer, records, chosen)  # UTF-8, whatever the terminal's encoding
    for finding in findings:
        terminal.warn(finding)
    for note in notes:
        terminal.note(note)


def _readable(records: Iterable[Any], findings: list[str]) -> Iterator[Any]:
    """Yield the records up to the first that cannot be read or written: that one is a finding."""
    try:
        yield from records
    except (EventStoreError, ValueError) as error:
        findings.append(str(error))


def _write(file: BinaryIO, records: Iterable[Any], format: str) -> int:
    """Write a line for each record, or the document of the format, and return their number. Of lines those before a
    record that cannot be read are written too.
    """
    document = format_named(format).document
    if document is not None:
        held = list(records)
        content = document(held)
        text = content if isinstance(content, str) else _line(content)
        file.write((terminal.printable(text) if file.isatty() else text).encode())
        return len(held)
    number = 0
    for record in records:
        file.write(_line(record).encode())
        number += 1
    return number


def _line(record: Any) -> str:
    return f"{json_text(record, exact=True)}\n"
