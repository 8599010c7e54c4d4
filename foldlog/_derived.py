"""What is derived from a store and lies outside of its own file, as far as the store knows of it.

Files that a command was told to write, such as backups, exports and reports, are copies: they do not follow the store,
and it does not know where they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from foldlog._reports.audit_database import path_of
from foldlog._search.index import index_path
from foldlog.eventstore import Store
from foldlog.eventstore.log.database import behind

_ALL = 2**63


class Derived(NamedTuple):
    """A thing that is derived from a store. It holds plain text, whether the store is encrypted or not.

    ``name``     such as "search index" or "audit database /path"
    ``remedy``   what removes from it what was erased from the store
    ``follows``  the store's own maintenance does this: ``erase`` and ``redact`` bring it up to date, ``rekey`` to
                 encryption removes it
    """

    name: str
    remedy: str
    follows: bool


def derived_from(store: Store) -> Iterator[Derived]:
    """Yield what is derived from a store and is there. Cost: two look-ups."""
    path = index_path(store)
    if path is not None and os.path.exists(path):
        yield Derived(f"search index {path}", "'foldlog search --rebuild'", follows=True)
    models = store.database.recorder.query(lambda reader: behind(reader, _ALL))
    for name in models:
        audit = path_of(name)
        if audit is not None and audit.exists():
            yield Derived(name, f"'foldlog audit --to {audit}'", follows=False)
