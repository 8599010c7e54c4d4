"""Sources as a whole: copy one to another store, seal it again, verify it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from foldlog.eventstore.errors import CorruptEvent, HistoryDiverged
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.keys import DataKey
from foldlog.eventstore.log.row import not_erased
from foldlog.eventstore.log.writing import EVERY, WriteTransaction, begin_new
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import Conversation, Row
from foldlog.eventstore.sources.blocks import GENESIS, HASH_BYTES, Block, chained, changed_records
from foldlog.eventstore.sources.tables import Made, Place, Source, Sources, SourcesToWrite

_TOGETHER: Final = 64
"""The number of blocks in one transaction: some megabytes."""


def is_same_source(
    source: Database, target: Database, found: Conversation, there: Conversation
) -> bool:
    """Return whether both conversations have the same source, redacted in the same places, or none.
    Cost: one row of each.
    """
    ours, theirs = (
        database.recorder.query(partial(_known_of, database, key))
        for database, key in ((source, found.key), (target, there.key))
    )
    return ours == theirs


def _known_of(database: Database, key: int, reader: Reader) -> object:
    known = Sources(database, reader).of_key(key, has_texts=False)
    return None if known is None else (known.head, known.redacted, known.made)


def copy_source(source: Database, target: Database, found: Conversation, version: int) -> int:
    """Copy the source of a conversation, after its events: its own records, or all where the target
    lacks what it shares. The target has the events before ``version``: it makes later ones itself.

    Each transaction leaves a source that is sound, and shorter than this one until the last. Return
    how many records it got that are no events yet. A conversation that has no others begins here.
    Raises ``HistoryDiverged`` where the target has other records, ``ConversationErased`` where it
    erased them. Cost: nothing where both are the same; else its blocks.
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
    there = target.recorder.query(partial(_source_there, target, found))
    shared, root_key = (
        target.recorder.query(partial(_key_of, target, name)) for name in (parent, root)
    )
    if there is not None and there.parent is None:
        shared = None  # it has a copy of what this one shares
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
    hashes = source.recorder.query(lambda reader: Sources(source, reader).hashes(own))
    if there is not None and there.head != chained(GENESIS, hashes[: HASH_BYTES * there.records]):
        raise HistoryDiverged(found.id, 0, found.version)
    start = 0 if is_alone else own.from_record
    made = {
        number: (first, events)
        for number, (first, events) in made_of(source, found).items()
        if first + events <= version
    }
    copied = own._replace(
        root=root_key or 0,
        parent=shared,
        from_record=start,
        made=min(own.made, max(made, default=-1) + 1),
    )
    refused = source.recorder.query(partial(_refused_by, source, {found.key, own.root}))
    head = chained(GENESIS, hashes[: HASH_BYTES * start])
    for blocks in _pages(source, own, start):
        head = chained(head, b"".join(block.hashes for block in blocks))
        part = copied._replace(records=blocks[-1].stop, head=head, sums=b"")
        put = partial(_put, target=target, found=found, part=part, blocks=blocks, made=made)
        target.recorder.transact(put)

    def finish(transaction: Transaction) -> None:
        writing, sources = _opened(transaction, target, found)
        whole = copied._replace(conversation=writing.key, root=copied.root or writing.key)
        sources.put(whole)
        sources.refuse(writing.key, refused)
        sources.clear_made(whole)
        sources.put_made(whole, {number: made[number] for number in made if number >= start})
        for place, seen in places:
            sources.put_place(place, seen._replace(conversation=writing.key))
        writing.set_pending(whole.records - whole.made)
        writing.end()

    target.recorder.transact(finish)
    before = 0 if there is None else there.records
    return max(0, copied.records - max(copied.made, before))


def _put(
    transaction: Transaction,
    target: Database,
    found: Conversation,
    part: Source,
    blocks: list[Block],
    made: Made,
) -> None:
    """Write blocks, and what they became. The source is ``part`` then, the records up to the end of
    these blocks; or what is there, if that is longer.
    """
    writing, sources = _opened(transaction, target, found)
    there = sources.of_key(writing.key)
    for first in sources.firsts(writing.key, blocks[0].first, blocks[-1].stop):
        sources.delete_block(writing.key, first)
    redacted = {number for number in part.redacted if number < part.records}
    done = part.from_record
    part = part._replace(
        conversation=writing.key,
        root=part.root or writing.key,
        made=min(part.made, part.records),
    )
    if there is not None:
        done = max(done, there.made)
        redacted.update(there.redacted)
        part = part._replace(made=max(part.made, there.made))
        if there.records > part.records:
            part = part._replace(records=there.records, head=there.head)
    part = part._replace(redacted=tuple(sorted(redacted)))
    sources.put_blocks(part, blocks)
    sources.put(part)
    new = {number: made[number] for number in made if done <= number < blocks[-1].stop}
    sources.put_made(part, new)
    writing.set_pending(part.records - part.made)
    writing.end()


def _refused_by(database: Database, conversations: Iterable[int], reader: Reader) -> list[bytes]:
    sources = Sources(database, reader)
    return [each for key in conversations for each in sources.refused_of(key)]


def _source_there(target: Database, found: Conversation, reader: Reader) -> Source | None:
    """Return the source of a conversation in the target. Raises ``ConversationErased``, and
    ``HistoryDiverged`` where a conversation with the same id is another one.
    """
    there = not_erased(target.find(reader, found.id, pending=True))
    if there is None:
        return None
    known = Sources(target, reader).of_key(there.key)
    if known is None and there.created_at != found.created_at:
        raise HistoryDiverged(found.id, 0, there.version)
    return known


def _opened(
    transaction: Transaction, target: Database, found: Conversation
) -> tuple[WriteTransaction, SourcesToWrite]:
    """Return the conversation in the target, and its source. One without events begins."""
    there = not_erased(target.find(transaction, found.id, pending=True))
    if there is not None:
        writing = WriteTransaction(transaction, there, target)
        return writing, SourcesToWrite.beside(writing)
    new = Conversation(0, found.id, found.created_at, found.salt)
    writing = WriteTransaction(transaction, begin_new(transaction, target, new), target)
    writing.begin()
    writing.list_as(0, [EVERY])
    return writing, SourcesToWrite.beside(writing)


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


def _key_of(database: Database, conversation: str, reader: Reader) -> int | None:
    """Return the key of a conversation that has a source."""
    found = database.find(reader, conversation, pending=True)
    if found is None or found.erasure is not None:
        known = None
    else:
        known = Sources(database, reader).of_key(found.key, has_texts=False)
    return None if known is None else known.conversation


def _redacted_in(database: Database, source: Source, reader: Reader) -> set[int]:
    return Sources(database, reader).all_redacted(source)


def _pages(database: Database, source: Source, start: int) -> Iterator[list[Block]]:
    """Yield the blocks from a record on, some in each read transaction."""
    while start < source.records:

        def read(reader: Reader, start: int = start) -> list[Block]:
            found = islice(Sources(database, reader).blocks(source, start), _TOGETHER)
            # it may have grown since it was read
            own = (block for block in found if block.first < source.records)
            return [
                block if block.stop <= source.records else block.before(source.records)
                for block in own
            ]

        blocks = database.recorder.query(read)
        if not blocks:
            return
        yield blocks
        start = blocks[-1].stop
