"""Redact the records of events: by their hashes, in a source and all that share its root.

What stays of a record is its skeleton, and its hash, by which it is recognized for ever. A fork may
hold the same record once more, behind the one that was edited; so all records of the family with
this hash go, with all of their events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from foldlog._archive.recording import source_of
from foldlog._figures.of_sources import count_block
from foldlog._formats.decoded import DecodedRecords
from foldlog._formats.files.frames import without_words
from foldlog._formats.registry import format_named
from foldlog.eventstore import Store
from foldlog.eventstore.log.row import from_microseconds
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.sources.blocks import GENESIS, Block, chained, each_hash, fingerprint_of
from foldlog.eventstore.sources.reading import IMPORTED_AT, about
from foldlog.eventstore.sources.tables import Source, Sources, SourcesToWrite

T = TypeVar("T")


def events_of_records(store: Store, named: Mapping[str, Iterable[int]]) -> dict[str, set[int]]:
    """Return, by conversation, these events and all others that came of the same records: those of
    a record that is in several sources of a family, and the other events of one record. Cost: the
    indexes of the blocks of their families.
    """
    found = {name: set(ids) for name, ids in named.items()}

    def read(sources: Sources) -> None:
        for root, hashes in _hashes(sources, named).items():
            for source in sources.family(root):
                made = sources.made(source)
                name = sources.name_of(source.conversation)
                for number in _numbers(sources, source, hashes):
                    first, count = made.get(number, (0, 0))
                    found.setdefault(name, set()).update(range(first, first + count))

    store.database.recorder.query(lambda reader: read(Sources(store.database, reader)))
    return {name: ids for name, ids in found.items() if ids}


def redact_records(
    store: Store, common: Collection[tuple[str, int]] = ()
) -> Callable[[Transaction, Mapping[str, Iterable[int]]], None]:
    """Return what takes the content of the records of these events out of all sources of their
    families, in the transaction that redacts the events. Sums and lines of these sources are
    counted again from what is left.

    Later imports refuse these records in any other history; the records of ``common`` events only
    in one that begins with the same records.
    """

    def redact(transaction: Transaction, named: Mapping[str, Iterable[int]]) -> None:
        sources = SourcesToWrite(store.database, transaction)
        rare = {
            name: [each for each in ids if (name, each) not in common]
            for name, ids in named.items()
        }
        refused = _hashes(sources, rare)
        for root, hashes in _hashes(sources, named).items():
            rare_hashes = refused.get(root, set())
            sources.refuse(root, rare_hashes)
            sources.refuse(root, _beginnings(sources, root, hashes - rare_hashes))
            for source in sources.family(root):
                _blank(sources, source, _numbers(sources, source, hashes))
            _clear_beside(sources, root)

    return redact


def redact_beside(store: Store, conversation: str) -> None:
    """Take the title, what a source holds between its records, and the records without events, from
    the source of a conversation and all sources that share its root: later imports do not bring
    them back.
    """

    def redact(transaction: Transaction) -> None:
        sources = SourcesToWrite(store.database, transaction)
        found = source_of(sources, conversation)
        if found is None:
            return
        for source in sources.family(found.root):
            # so that a vacuum removes the former bytes
            transaction.replace_rows(source.conversation, ())
        _clear_beside(sources, found.root)

    store.database.recorder.transact(redact)


def _hashes(sources: Sources, named: Mapping[str, Iterable[int]]) -> dict[int, set[bytes]]:
    """Return the hashes of the records that became these events, by the roots of their sources."""
    found: dict[int, set[bytes]] = {}
    for name, ids in named.items():
        wanted = set(ids)
        there = sources.database.find(sources.reader, name, pending=True)
        if there is None or there.erasure is not None:
            source = None
        else:
            source = sources.find_by_key(there.key)
        if source is None:
            continue
        made = sources.made(source)
        numbers = [
            n
            for n, (first, count) in made.items()
            if not wanted.isdisjoint(range(first, first + count))
        ]
        hashes = sources.hashes(source) if numbers else b""
        found.setdefault(source.root, set()).update(hashes[16 * n : 16 * n + 16] for n in numbers)
    return {root: hashes for root, hashes in found.items() if hashes}


def _beginnings(sources: Sources, root: int, hashes: set[bytes]) -> Iterator[bytes]:
    """Yield, of each source of a family, the fingerprint of its records up to the first one with
    such a hash: whatever begins as this source and has a later one has this one too.
    """
    for source in sources.family(root) if hashes else ():
        head = GENESIS
        for hashed in each_hash(sources.hashes(source)):
            head = chained(head, hashed)
            if hashed in hashes:
                yield fingerprint_of(head)
                break


def _numbers(sources: Sources, source: Source, hashes: set[bytes]) -> Iterator[int]:
    """Yield the numbers of the own records of a source that have one of these hashes."""
    for first, stored in sources.indexes(source):
        for place in range(0, len(stored), 16):
            if stored[place : place + 16] in hashes:
                yield first + place // 16


def _clear_beside(sources: SourcesToWrite, root: int) -> None:
    """Clear what no event shows and may repeat a redacted record, in all sources of a root: records
    without events, damaged lines, titles. Count what is left.
    """
    for source in sources.family(root):
        made = sources.made(source)
        _blank(
            sources, source, (n for n in range(source.from_record, source.made) if n not in made)
        )
    for source in sources.family(root):
        blocks = ((block, block.alone()) for block in sources.own_blocks(source))
        sources.put_blocks(source, [alone for block, alone in blocks if alone is not block])
        _count_again(sources, source)


def _blank(sources: SourcesToWrite, source: Source, found: Iterable[int]) -> None:
    """Leave of own records of a source what their format keeps of a redacted one."""
    numbers = sorted({*found}.difference(source.redacted))
    if not numbers:
        return
    format = format_named(source.format)
    skeleton = DecodedRecords(format) if format.skeleton is None else format.skeleton()
    changed = dict[int, Block]()
    for number in numbers:
        known = (block for block in changed.values() if block.first <= number < block.stop)
        block = next(known, None) or next(sources.own_blocks(source, number))
        changed[block.first] = block.with_record(number, skeleton.left_of(block.record(number)))
    sources.put_blocks(source, changed.values())
    sources.put(source._replace(redacted=tuple(sorted({*source.redacted, *numbers}))))


def _count_again(sources: SourcesToWrite, source: Source) -> None:
    """Count the sums of a source from its stored records: a title may have been among what went.
    The title that its program gave, and what a document holds between its records, may repeat
    these, so they go too.
    """
    sources.reader.forget_figures(source.conversation)
    format = format_named(source.format)
    source = source._replace(about=without_words(source.about))
    # it is counted from its events, or from its records
    if not source.sums or format.skeleton is None:
        sources.put(source)
        return
    skeleton = format.skeleton()
    for block in sources.blocks(source):
        count_block(skeleton, block)
    sources.put(source._replace(sums=skeleton.encoded()))


def source_files(store: Store, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the files from which these conversations were imported; of a fork without a source
    those of its parent.
    """

    def read(sources: Sources) -> dict[str, tuple[str, ...]]:
        found = {}
        for name in names:
            there = sources.database.find(sources.reader, name, pending=True)
            if there is None or there.erasure is not None:
                source = None
            else:
                source = source_of(sources, name)
            if source is not None:
                found[name] = tuple(about(source).get("paths", ()))
        return {name: paths for name, paths in found.items() if paths}

    return store.database.recorder.query(lambda reader: read(Sources(store.database, reader)))


def imported_at(store: Store) -> dict[str, datetime]:
    """Return when the last import added to each conversation, by their ids; without those whose key
    is not given. Cost: a row of each.
    """

    def read(reader: Reader) -> dict[str, datetime]:
        abouts = Sources(store.database, reader).abouts()
        # a runtime's are empty
        told = ((name, msgspec.json.decode(stored)) for name, _, stored in abouts if stored)
        return {
            name: from_microseconds(each[IMPORTED_AT]) for name, each in told if IMPORTED_AT in each
        }

    return store.database.recorder.query(read)
