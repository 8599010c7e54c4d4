"""``foldlog import``: import histories of other agents."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from foldlog._app.cli import terminal
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.import_paths import formats_with_places, places_of, with_stdin
from foldlog._app.cli.importing import Importing
from foldlog._app.cli.options import (
    argument,
    complete_from,
    flag,
    option,
    redact_secrets_option,
    store_options,
)
from foldlog._app.cli.stores import open_or_create
from foldlog._imports.importing import Import
from foldlog.formats import UnknownFormat
from foldlog.formats.registry import AUTO, formats
from foldlog.projections import Views


@argument("paths", "PATH", "Files, or folders with any number of histories; - is stdin.", nargs=-1)
@option(
    "--from agents",
    "FORMAT",
    "Import from the folder in which the program of this format stores histories,"
    " for example claude-code.",
    multiple=True,
    shell_complete=complete_from(lambda: formats_with_places()),
    show_default=False,
)
@option(
    "--format",
    "FORMAT",
    "The format of the files.",
    default="auto",
    shell_complete=complete_from(lambda: [AUTO, *formats()]),
)
@option(
    "--conversation",
    "ID",
    "The id of the conversation, for a single history.",
    show_default="the source's own",
)
@option(
    "--prefix",
    "TEXT",
    "A text to put before the id of each conversation.",
    default="",
    show_default=False,
)
@flag("--check", "Also read unchanged files, and compare them with the stored records.")
@flag("--watch", "Import new and growing files until Ctrl-C.")
@flag(
    "--use",
    "Make the events now, not at the first use. Programs that follow the store need events.",
)
@flag("--again", "Also import sources that were erased from the store.")
@redact_secrets_option
@flag("--strict", "End with exit status 1 if a record cannot be read.")
@store_options
def run(
    paths: tuple[Path, ...],
    agents: tuple[str, ...],
    format: str,
    conversation: str | None,
    prefix: str,
    check: bool,
    watch: bool,
    use: bool,
    again: bool,
    redact_secrets: bool,
    strict: bool,
    db: str,
) -> None:
    """Import histories from files and folders. A second import of a source adds only new records.

    foldlog stores the source unchanged. The first use of the conversation makes the events from the
    stored records. If a source was rewritten, the import makes a fork at the first changed record.
    The import reports records that it cannot read, and imports all other records. Unchanged files
    are skipped. If a history names no conversation, its id is the name of its file, such as kite.
    If you import a folder, or if the file has a common name such as chat1, the name of the folder
    comes first: FOLDER/chat1.

    Example: foldlog import --from claude-code
    """
    sources = [*paths, *(place for name in agents for place in places_of(name))]
    if not sources:
        raise Refused(
            f"name a PATH, or use --from FORMAT with one of {', '.join(formats_with_places())}"
        )
    if watch and (terminal.prints_json() or Path("-") in sources):
        raise Refused("--watch follows files until Ctrl-C; leave out --json and -")
    if conversation is not None and prefix:
        raise Refused("--conversation sets the whole name; leave out --prefix")
    with TemporaryDirectory(prefix="foldlog-stdin-") as folder, open_or_create(db) as store:
        store.register(Views(store))  # then the store makes Views while it writes events
        with_copy = with_stdin(sources, Path(folder))
        is_secret = None
        if redact_secrets:
            from foldlog._reports.search.secrets import secret_finder

            is_secret = secret_finder()
        try:
            imports = Import(
                store,
                with_copy,
                format,
                prefix=prefix,
                conversation=conversation,
                read_all=check,
                again=again,
                is_secret=is_secret,
            )
        except UnknownFormat as error:
            raise Refused(str(error)) from error
        importing = Importing(store, with_copy, imports, use=use, strict=strict, stdin=f"{folder}/")
        try:
            before = importing.states() if watch else {}
            importing.run()
            importing.sum_up(db)
            while watch:
                before = importing.wait(before)
                importing.run(again=True)
        except KeyboardInterrupt:
            if not watch:  # Ctrl-C is the usual end
                terminal.note(
                    "all records that were read are stored; the same command continues after them"
                )
                raise
