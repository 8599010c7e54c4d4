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
    """The store at ``db``; a SQLite file is made if it is not there. For commands that bring something in."""
    from eventstore import open_store

    return open_store(db)


def open_existing(db: str) -> Store:
    """The store at ``db``, which must be there: a mistyped name must not make a new, empty store. A file that may not
    be written is opened for reading.
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
            f"there is no store at {location.path}; bring histories in with 'foldlog import PATH', or name the store "
            f"with --db URL"
        )
    if "mode" in location.options:
        return open_store(db)
    folder = os.path.dirname(os.path.abspath(location.path))
    mode = "rw" if os.access(location.path, os.W_OK) and os.access(folder, os.W_OK) else "ro"
    return open_store(f"{db}{'&' if location.options else '?'}mode={mode}")


def chosen(store: Store, conversations: Sequence[str] | None) -> Iterator[str]:
    """The conversations named, each once, or else all that have events. Raises ``ConversationNotFound`` or
    ``ConversationErased`` before the first is done, where one of those named is not there, or not any more.
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
