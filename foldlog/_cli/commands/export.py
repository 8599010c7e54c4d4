"""``foldlog export``: write a conversation in the format of its source, or conversations as a
database.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click
from msgspec import UNSET

from foldlog._answers.document import stream
from foldlog._answers.files import ExportedDocument, RecordsDocument
from foldlog._cli import terminal
from foldlog._cli.command_line import complete_from
from foldlog._cli.database_export import check_options, follow_with_database, write_database
from foldlog._cli.options import (
    conversations_argument,
    db_option,
    force_option,
    json_option,
    new_file,
    output_option,
)
from foldlog._cli.record_files import choose_export, readable
from foldlog._cli.stores import open_existing, resolve
from foldlog._files.whole_file import whole_file
from foldlog._files.written_files import note_file
from foldlog._formats.registry import formats
from foldlog._words.gist import count


@conversations_argument
@click.option(
    "--format",
    metavar="FORMAT",
    shell_complete=complete_from(lambda: [*formats()]),
    show_default="the format of its source",
    help="The format to write. An imported conversation can be written in the format of its "
    "source or as openai-chat.",
)
@click.option(
    "--view",
    is_flag=True,
    help="Write the messages that would be sent to a model now, by default as openai-chat.",
)
@output_option(
    "--output",
    "-o",
    show_default="stdout",
    help="The file to write.",
)
@force_option
@click.option(
    "--to",
    metavar="FILE",
    type=Path,
    callback=new_file,
    help="Create or update a database of the named conversations, or of all"
    " conversations, for SQL and Datasette.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="With --to: keep the database up to date until Ctrl-C.",
)
@db_option
@json_option
def run(
    conversations: tuple[str, ...],
    format: str | None,
    view: bool,
    output: Path | None,
    force: bool,
    to: Path | None,
    follow: bool,
    db: str,
    as_json: bool,
) -> None:
    """Write a conversation in the format of its source. The output contains forgotten events, but
    no retracted events.

    With --to, write a SQLite database of all events and condensations. If the database exists, the
    command adds the new events.

    Example: foldlog export tidewatch --output exported.jsonl
    """
    options = {"--format": format, "--view": view, "--output": output, "--force": force}
    others = [name for name, value in options.items() if value]
    check_options(to, follow=follow, as_json=as_json, others=others, conversations=conversations)
    if to is None:
        _export(conversations[0], format, db, view=view, output=output, as_json=as_json)
    elif follow:
        follow_with_database(db, to)
    else:
        write_database(db, conversations, to)


def _export(
    conversation: str,
    format: str | None,
    db: str,
    *,
    view: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    findings = list[str]()
    with open_existing(db) as store:
        conversation = resolve(store, conversation)
        is_listed = as_json and output is None
        choose = partial(
            choose_export, store, conversation, format, view=view, as_records=is_listed
        )
        if output is not None:
            # ``choose`` may already read the View, so the store notes the file before that.
            with note_file(store, "export", output, conversation):
                export = choose()
                with whole_file(output) as file:
                    number = export.write(file)
            document = ExportedDocument(
                conversation=conversation,
                format=export.format,
                file=str(output),
                records=number,
                notes=tuple(export.notes) or UNSET,
            )
            sentence = f"{count(number, 'record')} of {conversation} ({export.format}) in {output}"
            terminal.answer(document, sentence)
        elif is_listed:
            export = choose()
            read = stream(readable(export.records, findings))
            terminal.emit_list(
                RecordsDocument(conversation=conversation, format=export.format, records=read),
                lambda: {"findings": tuple(findings), "notes": tuple(export.notes) or UNSET},
                exact=True,
            )
        else:
            export = choose()
            sys.stdout.flush()
            export.write(sys.stdout.buffer)  # UTF-8, whatever the terminal's encoding
    for finding in findings:
        terminal.warn(finding)
    for note in export.notes:
        terminal.note(note)
