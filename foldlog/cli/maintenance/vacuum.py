"""``foldlog vacuum``: reclaim the space of deleted rows."""

from __future__ import annotations

from eventstore.maintenance.backup import vacuum as vacuum_store
from foldlog.cli import terminal
from foldlog.cli.options import DEFAULT_DB, AsJson, Db
from foldlog.cli.outcome import DONE
from foldlog.cli.stores import open_existing
from foldlog.words.gist import count


def run(db: Db = DEFAULT_DB, as_json: AsJson = False) -> int:
    """Reclaim disk space and remove the remains of interrupted imports.

    Events keep their ids and positions. Readers go on; writers wait. It needs free space of the size of the store.
    While a reader is open, the files do not shrink; the command says so.

    Example: foldlog vacuum
    """
    with open_existing(db) as store:
        done = vacuum_store(store)
    if as_json:
        terminal.emit(
            {
                "imports_discarded": done.discarded,
                "bytes_before": done.bytes_before,
                "bytes_after": done.bytes_after,
                "bytes_pending": done.bytes_pending,
                "space_returned": done.space_returned,
            }
        )
    else:
        left = f"; the remains of {count(done.discarded, 'import')} were removed" if done.discarded else ""
        terminal.console().print(f"{done.bytes_before:,} bytes before, {done.bytes_after:,} now{left}")
    if not done.space_returned:
        terminal.note(
            "the store is rewritten, but its files cannot shrink while a reader that was opened before is still open; "
            "end it and run 'foldlog vacuum' again"
        )
    return DONE
