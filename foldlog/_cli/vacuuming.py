"""Vacuum a store, and report where erased bytes are left."""

from __future__ import annotations

from foldlog._cli import terminal
from foldlog._maintenance import Maintenance, Vacuumed
from foldlog.eventstore import EventStoreError, Store


def bytes_pending_words(store: Store, of: str) -> str:
    if store.path is not None:
        return (
            f"the files of the store may still contain bytes of {of}; run 'foldlog store vacuum' to"
            " remove them"
        )
    return (
        f"the tables may still contain deleted rows of {of}, because this role may not run VACUUM."
        " No query returns these rows, and autovacuum removes them later. To remove them now, run"
        " as the owner of the tables: foldlog store vacuum"
    )


def vacuum(store: Store) -> Vacuumed:
    with terminal.working("vacuuming") as update:
        return Maintenance(store).vacuum(lambda done, of: update(completed=done, total=of))


def bytes_stay_pending(store: Store, sentence: str, *, no_vacuum: bool) -> bool:
    """Vacuum a store if it still has erased bytes. Return whether erased bytes are left.
    ``sentence`` says what was erased, for the message of a failed vacuum.
    """
    if no_vacuum or not store.database.bytes_pending:
        return store.database.bytes_pending
    try:
        return vacuum(store).bytes_pending
    except EventStoreError as error:
        terminal.warn(f"{sentence}, but the vacuum that removes its bytes failed: {error}")
        return True
