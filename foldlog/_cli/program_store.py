"""The store that coding agents write into."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from foldlog._cli.hints import home_db, home_folder, use_store
from foldlog._cli.quick_hook import program_db
from foldlog._cli.stores import open_or_create
from foldlog.eventstore import Store


@contextmanager
def program_store(db: str) -> Iterator[Store]:
    named = program_db(db)
    use_store(named)
    if named == home_db():
        os.makedirs(home_folder(), mode=0o700, exist_ok=True)
    with open_or_create(named, may_be_empty=True) as store:
        yield store
