"""``foldlog import``: import histories of other agents."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import click

from foldlog._cli import terminal
from foldlog._cli.command_line import argument, complete_from
from foldlog._cli.import_paths import formats_with_places, places_of, with_stdin
from foldlog._cli.importing import Importing, ImportOptions
from foldlog._cli.options import db_option, json_option, redact_secrets_option
from foldlog._cli.outcome import Refused
from foldlog._cli.stores import open_or_create
from foldlog._formats.registry import AUTO, formats
from foldlog.projections import Views


@argument(
    "paths",
    metavar="PATH",
    type=Path,
    nargs=-1,
    help="Files, or folders with any number of histories; - is stdin.",
)
@click.option(
    "--from",
    "agents",
    metavar="FORMAT",
    multiple=True,
    shell_complete=complete_from(lambda: formats_with_places()),
    show_default=False,
    help="Import from the folder in which the program of this format stores histories,"
    " for example claude-code.",
)
@click.option(
    "--format",
    metavar="FORMAT",
    default="auto",
    shell_complete=complete_from(lambda: [AUTO, *formats()]),
    help="The format of the files.",
)
@click.option(
    "--conversation",
    metavar="ID",
    show_default="the source's own",
    help="The id of the conversation, for a single history.",
)
@click.option(
    "--prefix",
    metavar="TEXT",
    default="",
    show_default=False,
    help="A text to put before the id of each conversation.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Also read unchanged files, and compare them with the stored records.",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Import new and growing files until Ctrl-C.",
)
@click.option(
    "--use",
    is_flag=True,
    help="Make the events now, not at the first use. Programs that follow the store need events.",
)
@click.option(
    "--again",
    is_flag=True,
    help="Also import sources that were erased from the store.",
)
@redact_secrets_option
@click.option(
    "--strict",
    is_flag=True,
    help="End with exit status 1 if a record cannot be read.",
)
@db_option
@json_option
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
    as_json: bool,
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
    if watch and (as_json or Path("-") in sources):
        raise Refused("--watch follows files until Ctrl-C; leave out --json and -")
    if conversation is not None and prefix:
        raise Refused("--conversation sets the whole name; leave out --prefix")
    with TemporaryDirectory(prefix="foldlog-stdin-") as folder, open_or_create(db) as store:
        store.register(Views(store))  # Then the store makes Views while it writes events.
        options = ImportOptions(
            format, prefix, conversation, check, again, use, strict, as_json, redact_secrets
        )
        importing = Importing(store, with_stdin(sources, Path(folder)), options, f"{folder}/")
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
