"""Sources as a whole: copy one to another store, seal it again, verify it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from foldlog.eventstore.errors import CorruptEvent, HistoryDiverged
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.keys import DataKey
from foldlog.eventstore.log.writing import EVERY, WriteTransaction, begin_new
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import Conversation, Row
from foldlog.eventstore.sources.blocks import GENESIS, HASH_BYTES, Block, chained, changed_records
from foldlog.eventstore.sources.tables import Made, Place, Source, Sources, SourcesToWrite

_TOGETHER: Final = 64
"""The number of blocks in one transaction: some megabytes."""


def copy_source(
    source: Database, target: Database, found: Conversation, stop: int | None = None
) -> int:
    """Copy the source of a conversation, after its events: its own records, or all where the target
    lacks what it shares. Of a damaged one only the events before ``stop`` were copied: later ones
    are made again.

    Return how many records it got that are no events yet. A conversation that has no others begins
    here. Raises ``HistoryDiverged`` where the target has other records. Cost: nothing where both
    are the same; else its blocks.
    """

    def read(reader: Reader) -> tuple[Source | None, str, str, list[tuple[bytes, Place]]]:
        sources = Sources(source, reader)
        own = sources.of_key(found.key)
        if own is None:
            return None, "", "", []
        parent = "" if own.parent is None else sources.name_of(own.parent)
        return own, parent, sources.name_of(own.root), sources.places_of(found.key)

    own, parent, root, places = source.recorder.query(read)
    if own is None:
        return 0
    key, there = target.recorder.transact(lambda transaction: _begin(transaction, target, found))
    shared = target.recorder.query(
        lambda reader: _key_of(target, reader, parent) if parent else None
    )
    is_alone = own.parent is not None and shared is None
    if is_alone:
        gone = source.recorder.query(partial(_redacted_in, source, own))
        own = own._replace(redacted=tuple(sorted(gone)))
    if there is not None and (there.head, there.redacted, there.made) == (
        own.head,
        own.redacted,
        own.made,
    ):
        return 0
    _check_same(source, own, there, found)
    start = 0 if is_alone else own.from_record
    for blocks in _pages(source, own, start):
        target.recorder.transact(partial(_put, target=target, key=key, blocks=blocks))
    made = made_of(source, found)
    if stop is not None:
        made = {
            number: (first, events)
            for number, (first, events) in made.items()
            if first + events <= stop
        }
        own = own._replace(made=min(own.made, max(made, default=-1) + 1))

    def of_family(reader: Reader) -> list[bytes]:
        sources = Sources(source, reader)
        return [each for key in {found.key, own.root} for each in sources.refused_of(key)]

    refused = source.recorder.query(of_family)

    def finish(transaction: Transaction) -> None:
        now = target.find_key(transaction, key)
        if now is None:
            return
        writing = WriteTransaction(transaction, now, target)
        sources = SourcesToWrite.beside(writing)
        root_key = _key_of(target, transaction, root)
        copy = own._replace(
            conversation=key,
            root=key if root_key is None else root_key,
            parent=shared,
            from_record=start,
        )
        sources.put(copy)
        sources.refuse(key, refused)
        sources.clear_made(copy)
        sources.put_made(copy, {number: place for number, place in made.items() if number >= start})
        for place, seen in places:
            sources.put_place(place, seen._replace(conversation=key))
        writing.set_pending(copy.records - copy.made)
        writing.end()

    target.recorder.transact(finish)
    before = 0 if there is None else there.records
    return max(0, own.records - max(own.made, before))


def made_of(source: Database, found: Conversation) -> Made:
    """Return which events the records of a conversation became."""

    def read(reader: Reader) -> Made:
        sources = Sources(source, reader)
        own = sources.of_key(found.key)
        return {} if own is None else sources.made(own)

    return source.recorder.query(read)


def of_whole_records(
    chunks: Iterable[list[Row]], made: Made, is_whole: Callable[[], bool]
) -> Iterator[list[Row]]:
    """Yield rows in groups none of which ends between two events of one record. Unless they are
    whole in the end, the first events of their last record are left out: it has not all of them.
    """
    inside = {
        event_id: first
        for first, count in made.values()
        for event_id in range(first + 1, first + count)
    }
    left: list[Row] = []
    for chunk in chunks:
        rows = [*left, *chunk]
        border = inside.get(rows[-1].id + 1, rows[-1].id + 1)
        cut = max(0, border - rows[0].id)
        left = rows[cut:]
        if cut:
            yield rows[:cut]
    if left and is_whole():
        yield left


def note_made(writing: WriteTransaction, made: Made, version: int) -> None:
    """Write that the events before a version are those of their records, where the conversation has
    these already.
    """
    sources = SourcesToWrite.beside(writing)
    source = sources.of_key(writing.key) if made else None
    if source is None:
        return
    new = {
        number: (first, count)
        for number, (first, count) in made.items()
        if source.made <= number < source.records and first + count <= version
    }
    if not new:
        return
    stop = max(new) + 1
    sources.put_made(source, new)
    sources.set_progress(source, source.records, stop, source.head)
    writing.set_pending(source.records - stop)


def leave_alone(transaction: Transaction, database: Database, conversation: int) -> None:
    """Give the sources that share records of this one a copy of them. Cost: these records."""
    sources = SourcesToWrite(database, transaction)
    source = sources.of_key(conversation)
    for each in () if source is None else sources.family(source.root):
        if each.parent == conversation:
            sources.leave_parent(each)


def seal_again(
    transaction: Transaction, database: Database, conversation: int, key: DataKey | None
) -> None:
    """Seal what is stored of a source with this key, or store it plain. Cost: its blocks."""
    sources = SourcesToWrite(database, transaction)
    source = sources.of_key(conversation)
    if source is None:
        return
    target = SourcesToWrite(database, transaction, key_of={conversation: key})
    for block in sources.own_blocks(source):
        target.put_blocks(source, [block])
    target.put(source)


def problems_of(database: Database, found: Conversation) -> Iterator[str]:
    """Yield what is wrong with the records of a conversation. Cost: one hash of each."""
    try:
        yield from _problems_of(database, found)
    except CorruptEvent as error:
        yield error.problem


def _problems_of(database: Database, found: Conversation) -> Iterator[str]:
    """Yield what is wrong with its records. Raises ``CorruptEvent`` for what cannot be read."""
    source = database.recorder.query(lambda reader: Sources(database, reader).of_key(found.key))
    if source is None:
        if found.pending:
            yield f"{found.pending} records of its source are missing"
        return
    gone = database.recorder.query(lambda reader: Sources(database, reader).all_redacted(source))
    database.recorder.query(lambda reader: Sources(database, reader).made(source))
    head = GENESIS
    number = 0
    for blocks in _pages(database, source, 0):
        for block in blocks:
            if block.first != number:
                yield f"records {number} to {block.first - 1} of its source are missing"
            head = chained(head, block.hashes)
            number = block.stop
            for changed in changed_records(block, gone):
                yield f"record {changed} of its source is not what was imported"
    if number < source.records:
        yield f"records {number} to {source.records - 1} of its source are missing"
    elif head != source.head:
        yield "the chain of the records of its source does not end in the head that is stored"
    if source.records - source.made != found.pending:
        yield (
            f"it says that {found.pending} records have no events, and"
            f" {source.records - source.made} have none"
        )


def _begin(
    transaction: Transaction, target: Database, found: Conversation
) -> tuple[int, Source | None]:
    """Return the key of the conversation in the target, and its source there; a conversation
    without events begins.
    """
    there = target.find(transaction, found.id, pending=True)
    sources = SourcesToWrite(target, transaction)
    if there is not None:
        return there.key, sources.of_key(there.key)
    begun = begin_new(transaction, target, Conversation(0, found.id, found.created_at, found.salt))
    writing = WriteTransaction(transaction, begun, target)
    writing.begin()
    writing.list_as(0, [EVERY])
    # until its records are here: without any it would be one that lost its events
    writing.set_pending(1)
    writing.end()
    return writing.key, None


def _check_same(source: Database, own: Source, there: Source | None, found: Conversation) -> None:
    """Raise ``HistoryDiverged`` where the target's records are not the first ones of the source."""
    if there is None:
        return
    hashes = source.recorder.query(lambda reader: Sources(source, reader).hashes(own))
    if chained(GENESIS, hashes[: HASH_BYTES * there.records]) != there.head:
        raise HistoryDiverged(found.id, 0, found.version)


def _key_of(database: Database, reader: Reader, conversation: str) -> int | None:
    """Return the key of a conversation that has a source."""
    found = database.find(reader, conversation, pending=True)
    if found is None or found.erasure is not None:
        known = None
    else:
        known = Sources(database, reader).of_key(found.key)
    return None if known is None else known.conversation


def _redacted_in(database: Database, source: Source, reader: Reader) -> set[int]:
    return Sources(database, reader).all_redacted(source)


def _pages(database: Database, source: Source, start: int) -> Iterator[list[Block]]:
    """Yield the blocks from a record on, some in each read transaction."""
    while start < source.records:

        def read(reader: Reader, start: int = start) -> list[Block]:
            found = Sources(database, reader).blocks(source, start)
            return list(islice(found, _TOGETHER))

        blocks = database.recorder.query(read)
        if not blocks:
            return
        yield blocks
        start = blocks[-1].stop


def _put(transaction: Transaction, target: Database, key: int, blocks: list[Block]) -> None:
    sources = SourcesToWrite(target, transaction)
    for first in sources.firsts(key, blocks[0].first, blocks[-1].stop):
        sources.delete_block(key, first)
    sources.put_blocks(Source(key, key, None, 0, 0, 0, "", 0, b"", b""), blocks)
