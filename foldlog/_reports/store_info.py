"""What a store contains, which version wrote it, and what is pending."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Literal

from msgspec import Struct

from foldlog.eventstore.maintenance.backup import size_on_disk
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import as_text
from foldlog.eventstore.recorders.versions import MADE_BY
from foldlog.eventstore.store import Store

DatabaseKind = Literal["sqlite", "postgresql", "memory"]


class StoreInfo(Struct, frozen=True, kw_only=True):
    """What a store contains, and what is pending.

    ``schema``, ``made_by``  the number of the stored form, and the version of foldlog that made the
                             store
    ``bytes``                the size on disk, with indexes and log files; None in memory
    ``forks``, ``archived``  how many of the ``conversations`` are forks or archived
    ``erased``               tombstones, which ``conversations`` does not contain
    ``events``               the stored events. An event that forks share counts once.
    ``archived_events``      events in the objects of archived conversations, which ``events`` does
                             not contain
    ``document_changes``     how many of the ``events`` change documents
    ``records``              the records of the ``sources``, which are the imported histories
    ``records_pending``      records that have no events yet: their conversation was not used
    ``refused``              records and sources that imports refuse after a redaction or erasure
    ``keys``                 maps each encryption key in use to the number of its conversations
    ``bytes_pending``        whether erased bytes may still be in the files
    ``unfinished``           maps the name of an interrupted operation to its number
    """

    database: DatabaseKind
    schema: int
    made_by: str
    uuid: str
    bytes: int | None
    conversations: int
    forks: int
    erased: int
    archived: int
    archived_events: int
    events: int
    document_changes: int
    sources: int
    records: int
    records_pending: int
    attachments: int
    refused: int
    keys: dict[str, int]
    bytes_pending: bool
    unfinished: dict[str, int]


def store_info(store: Store) -> StoreInfo:
    """Return what a store contains, at one moment. Raises ``StoreUnavailable`` if the store cannot
    be read now. Cost: counting the rows of most tables, which reads an index of all events.
    """
    return store.database.recorder.query(partial(_read_info, store))


def _read_info(store: Store, reader: Reader) -> StoreInfo:
    recorder = store.database.recorder
    database: DatabaseKind
    size: int | None
    if recorder.on_server:
        database = "postgresql"
        [size] = _sums(reader, "store_bytes")
    else:
        database = "memory" if recorder.path is None else "sqlite"
        size = size_on_disk(recorder.path)
    conversations, forks, erased, archived, archived_events, pending = _sums(
        reader, "count_conversations"
    )
    sources, records = _sums(reader, "count_sources")
    keys = Counter[str]()
    for key_id, used in reader.ask_all("count_keys"):
        keys[as_text(key_id)] += used
    return StoreInfo(
        database=database,
        schema=max(number for (number,) in reader.ask_all("schema_number")),
        made_by=reader.value(MADE_BY),
        uuid=store.database.uuid,
        bytes=size,
        conversations=conversations,
        forks=forks,
        erased=erased,
        archived=archived,
        archived_events=archived_events,
        events=_sums(reader, "count_events")[0],
        document_changes=_sums(reader, "count_document_changes")[0],
        sources=sources,
        records=records,
        records_pending=pending,
        attachments=_sums(reader, "count_attachments")[0],
        refused=_sums(reader, "count_refused")[0],
        keys=dict(sorted(keys.items())),
        bytes_pending=reader.value("bytes_pending") != "",
        unfinished=dict(Counter(unfinished.operation for unfinished in reader.unfinished())),
    )


def _sums(reader: Reader, statement: str) -> list[int]:
    """Add up the rows of a statement: several stores behind one address return a row each."""
    columns = zip(*reader.ask_all(statement), strict=True)
    return [sum(column) for column in columns]
