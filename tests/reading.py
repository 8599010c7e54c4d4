"""Read a conversation several times in one transaction."""

from collections.abc import Iterator
from contextlib import contextmanager

from foldlog.eventstore import ReadTransaction, Store
from foldlog.eventstore.log.finding import find_existing


@contextmanager
def reading(store: Store, conversation: str) -> Iterator[ReadTransaction]:
    database = store.database
    with database.recorder.read() as reader:
        yield ReadTransaction(reader, find_existing(database, reader, conversation), database)
