"""``foldlog export``: write a conversation in the format of its source, or conversations as a
database.
"""

from __future__ import annotations

import sys
from pathlib import Path

from msgspec import UNSET

from foldlog._app.cli import terminal
from foldlog._app.cli.database_export import check_options, follow_with_database, write_database
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.options import (
    complete_from,
    conversations_argument,
    flag,
    force_option,
    new_file,
    option,
    output_option,
    store_options,
    with_children_option,
)
from foldlog._app.cli.record_files import choose_export, readable, write_files
from foldlog._app.cli.run_export import export_test
from foldlog._app.cli.stores import open_existing, resolve
from foldlog._reports.answers.document import stream
from foldlog._reports.answers.files import RecordsDocument
from foldlog._reports.figures.documents import trees_of
from foldlog._reports.words.gist import count
from foldlog.eventstore import Store
from foldlog.formats.registry import formats


@conversations_argument
@option(
    "--format",
    "FORMAT",
    "The format to write. An imported conversation can be written in the format of its "
    "source or as openai-chat.",
    shell_complete=complete_from(lambda: [*formats()]),
    show_default="the format of its source",
)
@flag("--view", "Write the messages that would be sent to a model now, by default as openai-chat.")
@output_option(
    "--output -o",
    show_default="stdout",
    help="The file to write.",
)
@force_option
@with_children_option
@option(
    "--to",
    "FILE",
    "Create or update a database of the named conversations, or of all"
    " conversations, for SQL and Datasette.",
    callback=new_file,
)
@flag("--follow", "With --to: keep the database up to date until Ctrl-C.")
@option(
    "--as-test",
    "DIR",
    "Write the conversation into this folder as a recorded run for tests with pytest. Secrets"
    " are replaced. Needs the extra 'secrets'.",
)
@store_options
def run(
    conversations: tuple[str, ...],
    format: str | None,
    view: bool,
    output: Path | None,
    force: bool,
    with_children: bool,
    to: Path | None,
    follow: bool,
    as_test: Path | None,
    db: str,
) -> None:
    """Write a conversation in the format of its source. The output contains forgotten events, but
    no retracted events.

    With --to, write a SQLite database of all events and condensations. If the database exists, the
    command adds the new events. With --with-children and --output FILE, the sub-agents are written
    into files in a folder beside FILE, which has its name without the ending.

    Example: foldlog export tidewatch --output exported.jsonl
    """
    options = {
        "--format": format,
        "--view": view,
        "--output": output,
        "--force": force,
        "--with-children": with_children,
    }
    others = [name for name, value in options.items() if value]
    if as_test is not None:
        is_alone = to is None and not follow and not others
        export_test(conversations, db, as_test, is_alone=is_alone)
        return
    check_options(to, follow=follow, others=others, conversations=conversations)
    if to is None:
        if with_children and output is None:
            raise Refused("--with-children writes several files; name the first with --output FILE")
        with open_existing(db) as store:
            conversation = resolve(store, conversations[0])
            trees = trees_of(store, is_complete=with_children)
            below = [name for name, _ in trees.below(conversation)]
            if below and not with_children:
                left = count(len(below), "sub-agent")
                terminal.note(
                    f"{left} not exported; --with-children --output FILE exports them too"
                )
            if output is None:
                _print(store, conversation, format, view=view)
            else:
                children = below if with_children else []
                write_files(store, conversation, children, output, format, view=view, force=force)
    elif follow:
        follow_with_database(db, to)
    else:
        write_database(db, conversations, to)


def _print(store: Store, conversation: str, format: str | None, *, view: bool) -> None:
    """Write a conversation to stdout."""
    findings = list[str]()
    as_json = terminal.prints_json()
    export = choose_export(store, conversation, format, view=view, as_records=as_json)
    if as_json:
        read = stream(readable(export.records, findings))
        terminal.emit_list(
            RecordsDocument(conversation=conversation, format=export.format, records=read),
            lambda: {"findings": tuple(findings), "notes": tuple(export.notes) or UNSET},
            exact=True,
        )
    else:
        sys.stdout.flush()
        export.write(sys.stdout.buffer)  # UTF-8, whatever the terminal's encoding
    terminal.warn(*findings)
    terminal.note(*export.notes)
