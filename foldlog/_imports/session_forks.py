"""Fork a conversation for a session in which another program goes on with it.

The fork has the id of the session, and its source begins with the records of the session file. The
events of these records are the events that the fork shares with its parent, so no record becomes an
event again. A later import of the session file adds the records after them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foldlog._imports.importing import place_of_file
from foldlog.eventstore import Event, Seen, Store
from foldlog.eventstore.log.appending import begin_fork
from foldlog.eventstore.log.finding import find_existing
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.sources.blocks import (
    GENESIS,
    HASH_BYTES,
    SIZE,
    Block,
    chain_head,
    of_records,
)
from foldlog.eventstore.sources.reading import IMPORTED_AT
from foldlog.eventstore.sources.tables import (
    CONTINUED,
    WHERE,
    Continued,
    Place,
    Source,
    SourcesToWrite,
)
from foldlog.eventstore.store import prepare_append
from foldlog.formats.record_decoding import READER


class NewSession(NamedTuple):
    """A session file that was written.

    ``id``          the id of the session, and of the fork
    ``format``      the format of the records
    ``path``        the file. Until the append is on disk, the file has another name
    ``cwd``         the folder in which the session's program works
    ``records``     the lines of the file, without their ends
    ``event_ids``   for each record, the ids of the events and summaries that it contains
    ``state``       the bytes of ``state_of(path)``, by which an import sees that the file is
                    unchanged
    """

    id: str
    format: str
    path: Path
    cwd: str
    records: Sequence[bytes]
    event_ids: Sequence[Sequence[int]]
    state: bytes


def begin_continuation(
    store: Store,
    conversation: str,
    seen: Seen,
    session: NewSession,
    events: Sequence[Event],
) -> None:
    """Fork ``conversation`` at the version of ``seen``, append ``events`` to the fork, and store
    the records of the session as its source, in one transaction.

    Raises ``VersionConflict`` with equal versions if an event of ``conversation`` was redacted
    after it was read, and the errors of ``Store.fork``. Durability: the fork is on disk when
    the function returns.
    """
    database = store.database
    at = seen.version
    append = prepare_append(store, session.id, events, at)

    def begin(transaction: Transaction) -> None:
        begin_fork(database, transaction, conversation, at, session.id)
        seen.at_any_version().check(find_existing(database, transaction, conversation))
        append(transaction)
        fork = find_existing(database, transaction, session.id)
        _put_source(SourcesToWrite(database, transaction), fork.key, at + len(events), session)

    database.recorder.transact(begin)


def _put_source(sources: SourcesToWrite, key: int, version: int, session: NewSession) -> None:
    """Store the source of the fork ``key``, which begins at ``version``, and the place of its
    file.
    """
    blocks = [*_blocks_of(session.records)]
    hashes = b"".join(block.hashes for block in blocks)
    facts: dict[str, Any] = {
        "paths": [str(session.path)],
        IMPORTED_AT: sources.database.now(),
        WHERE: {"cwd": session.cwd},
        CONTINUED: Continued(version, session.event_ids),
    }
    source = Source(
        conversation=key,
        root=key,
        parent=None,
        from_record=0,
        records=len(session.records),
        made=len(session.records),
        format=session.format,
        reader=READER,
        head=chain_head(GENESIS, hashes),
        fingerprint=hashes[:HASH_BYTES],
        about=msgspec.json.encode(facts),
    )
    sources.put_blocks(source, blocks)
    sources.put(source)
    written = b"".join(block.raw for block in blocks)
    place = Place(
        key,
        time.time_ns() // 1_000,
        source.records,
        len(written),
        session.state,
        sha256(written).digest(),
    )
    sources.put_place(place_of_file(session.path), place)


def _blocks_of(records: Sequence[bytes]) -> Iterator[Block]:
    """Yield the blocks of the records. A record stands on a line of its own."""
    first = 0
    size = 0
    for number, record in enumerate(records):
        size += len(record) + 1
        if size >= SIZE or number + 1 == len(records):
            yield of_records(first, records[first : number + 1])
            first = number + 1
            size = 0
