"""The store that ``--db`` names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eventstore import Store

__all__ = ["chosen", "ids_from", "open_existing", "open_or_create"]


def open_or_create(db: str) -> Store:
    """Open the store at ``db``, or create a SQLite file. For commands that add conversations."""
    from eventstore import open_store

    return open_store(db)


def open_existing(db: str) -> Store:
    """Open the store at ``db``, which must exist: a mistyped name must not create an empty store. A file without write
    permission is opened for reading.
    """
    from eventstore import open_store
    from eventstore.urls import parse
    from foldlog.cli.outcome import Refused

    location = parse(db)
    if location.scheme == "postgresql" and "mode" not in location.options:
        return open_store(f"{db}{'&' if '?' in db else '?'}mode=rw")
    if location.scheme != "sqlite":
        return open_store(db)
    if not os.path.exists(location.path):
        raise Refused(
            f"there is no store at {location.path}; import histories with 'foldlog import PATH', or name the store "
            f"with --db URL"
        )
    if "mode" in location.options:
        return open_store(db)
    folder = os.path.dirname(os.path.abspath(location.path))
    mode = "rw" if os.access(location.path, os.W_OK) and os.access(folder, os.W_OK) else "ro"
    return open_store(f"{db}{'&' if location.options else '?'}mode={mode}")


def chosen(store: Store, conversations: Sequence[str] | None) -> Iterator[str]:
    """Yield the named conversations, each once, or else all that have events. Raises ``ConversationNotFound`` or
    ``ConversationErased`` before the first one, if a named one is unknown or erased.
    """
    if conversations:
        for name in conversations:
            store.events(name, stop=0)
        yield from dict.fromkeys(conversations)
    else:
        yield from (row.id for row in store.iter_conversations() if row.erased_at is None)


def ids_from(store: Store, beginning: str, limit: int) -> Iterator[str]:
    """Yield the ids that begin with ``beginning``, at most ``limit``."""
    if beginning and store.version(beginning):
        yield beginning
    rows = islice(store.iter_conversations(after=beginning or None), limit)
    yield from takewhile(lambda name: name.startswith(beginning), (row.id for row in rows))
