"""Vacuum a store, and report where erased bytes are left."""

from __future__ import annotations

from foldlog._app.cli import terminal
from foldlog._app.cli.hints import command
from foldlog.eventstore import EventStoreError, Store
from foldlog.eventstore.errors import StoreUnavailable
from foldlog.eventstore.maintenance import backup
from foldlog.eventstore.maintenance.backup import Vacuumed
from foldlog.eventstore.maintenance.unfinished import PURGE_PATIENCE_S
from foldlog.eventstore.recorders.base import PATIENCE_S


def bytes_pending_words(store: Store, of: str) -> str:
    """Say where erased bytes are left, and how to remove them."""
    if store.path is not None:
        return (
            f"the files of the store may still contain bytes of {of}; run 'foldlog store vacuum' to"
            " remove them"
        )
    return (
        f"the tables may still contain deleted rows of {of}. No query returns these rows. To remove"
        f" them, and to prove it, run as the owner of the tables: {command('store vacuum')}"
    )


def vacuum(
    store: Store, patience_s: float = PATIENCE_S, *, copied_objects: bool = False
) -> Vacuumed:
    """Remove erased bytes from the store, while a person sees that it works."""
    with terminal.working("vacuuming"):
        return backup.vacuum(store, patience_s, copied_objects=copied_objects)


def vacuum_pending(store: Store, sentence: str, of: str, *, no_vacuum: bool) -> str:
    """Vacuum a store if it still has erased bytes. If erased bytes are left, return where they are,
    and how to remove them. ``sentence`` says what was erased, for the message of a failed vacuum.
    The removal is complete before the vacuum: the vacuum waits only briefly for older readers.
    """
    is_pending = store.database.bytes_pending
    if is_pending and not no_vacuum:
        try:
            is_pending = vacuum(store, PURGE_PATIENCE_S).bytes_pending
        except EventStoreError as error:
            if isinstance(error, StoreUnavailable) and error.kind == "read":
                terminal.note(f"{sentence}, and its bytes are pending: {error}")
            else:
                terminal.warn(f"{sentence}, but the vacuum that removes its bytes failed: {error}")
    return bytes_pending_words(store, of) if is_pending else ""
