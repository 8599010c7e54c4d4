"""``foldlog store vacuum``: reclaim the space of deleted rows."""

from __future__ import annotations

from foldlog._app.cli import terminal
from foldlog._app.cli.options import flag, store_options
from foldlog._app.cli.stores import open_existing
from foldlog._app.cli.vacuuming import bytes_pending_words, vacuum
from foldlog._reports.answers.store import VacuumDocument
from foldlog._reports.words.gist import count


@flag(
    "--copied-objects",
    "Also delete archived objects of erased events that another copy of this store may need.",
)
@store_options
def run(
    copied_objects: bool,
    db: str,
) -> None:
    """Reclaim disk space, and remove the bytes of erased events and the remains of interrupted
    imports.

    Events keep their ids and positions. During the command, readers continue and writers wait. The
    command needs as much free disk space as the store. While a reader is open, the files do not
    shrink, and the command prints a note. For a PostgreSQL store, run the command as the owner of
    the tables. If another role runs the command, the exit status is 1.

    Example: foldlog store vacuum
    """
    with open_existing(db) as store:
        outcome = vacuum(store, copied_objects=copied_objects)
        remedy = bytes_pending_words(store, "what was erased")
    is_postgresql = outcome.bytes_before is None  # the size of its store is unknown
    if not is_postgresql:
        space = f"{outcome.bytes_before:,} bytes before, {outcome.bytes_after:,} now"
    elif outcome.space_returned:
        space = "the tables are vacuumed"
    else:
        space = "the tables were not vacuumed"
    removed = ""
    if outcome.discarded:
        removed = f"; the remains of {count(outcome.discarded, 'import')} were removed"
    document = VacuumDocument.of(outcome, imports_discarded=outcome.discarded)
    terminal.answer(document, f"{space}{removed}")
    if outcome.space_returned:
        return
    if is_postgresql:
        terminal.warn(remedy)
    else:
        terminal.note(
            "the store is rewritten, but its files cannot shrink while an earlier reader is still "
            "open; close it and run 'foldlog store vacuum' again"
        )
