"""``foldlog import``: import histories of other agents."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from foldlog._cli import terminal
from foldlog._cli.import_paths import formats_with_places, places_of, with_stdin
from foldlog._cli.importing import Importing, ImportOptions
from foldlog._cli.options import DEFAULT_DB, AsJson, Db, RedactSecrets
from foldlog._cli.outcome import Refused
from foldlog._cli.stores import open_or_create
from foldlog._formats.registry import AUTO, formats
from foldlog.projections import Views


def run(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH",
            show_default=False,
            help="Files, or folders with any number of histories; - is stdin.",
        ),
    ] = None,
    agents: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="FORMAT",
            show_default=False,
            autocompletion=lambda: formats_with_places(),
            help=(
                "Import from the folder in which the program of this format stores histories,"
                " for example claude-code."
            ),
        ),
    ] = None,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            autocompletion=lambda: [AUTO, *formats()],
            help="The format of the files.",
        ),
    ] = "auto",
    conversation: Annotated[
        str | None,
        typer.Option(
            "--conversation",
            metavar="ID",
            show_default="the source's own",
            help="The id of the conversation, for a single history.",
        ),
    ] = None,
    prefix: Annotated[
        str,
        typer.Option(
            "--prefix",
            metavar="TEXT",
            show_default=False,
            help="A text to put before the id of each conversation.",
        ),
    ] = "",
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Also read unchanged files, and compare them with the stored records."
        ),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Import new and growing files until Ctrl-C.")
    ] = False,
    use: Annotated[
        bool,
        typer.Option(
            "--use",
            help="Make the events now, not at the first use. Programs that follow the store need"
            " events.",
        ),
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Also import sources that were erased from the store.")
    ] = False,
    redact_secrets: RedactSecrets = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="End with exit status 1 if a record cannot be read.")
    ] = False,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
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
    paths = [*(paths or ()), *(place for name in agents or () for place in places_of(name))]
    if not paths:
        raise Refused(
            f"name a PATH, or use --from FORMAT with one of {', '.join(formats_with_places())}"
        )
    if watch and (as_json or Path("-") in paths):
        raise Refused("--watch follows files until Ctrl-C; leave out --json and -")
    if conversation is not None and prefix:
        raise Refused("--conversation sets the whole name; leave out --prefix")
    with TemporaryDirectory(prefix="foldlog-stdin-") as folder, open_or_create(db) as store:
        store.register(Views(store))  # Then the store makes Views while it writes events.
        options = ImportOptions(
            format, prefix, conversation, check, again, use, strict, as_json, redact_secrets
        )
        importing = Importing(store, with_stdin(paths, Path(folder)), options, f"{folder}/")
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


# -- where programs keep their histories, and how they change
# ----------------------------------------------------------
