"""Redact the source records of events, in all sources of a family.

A *family* is the set of sources that share their first records. All sources of a family are
searched for the hash of a redacted record, because a fork may contain the record again. A skeleton
without texts replaces a redacted record. The hash of the record stays, so later imports recognize
the record. All events of a redacted record are redacted too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from foldlog.eventstore import CorruptEvent, Store, StoreDamaged
from foldlog.eventstore.log.finding import forks_that_share
from foldlog.eventstore.log.row import from_microseconds
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.types import Conversation
from foldlog.eventstore.sources.blocks import HASH_BYTES, Block, chained, numbers_with
from foldlog.eventstore.sources.reading import (
    about,
    continued,
    is_about_readable,
    without_texts,
)
from foldlog.eventstore.sources.tables import Source, Sources, SourcesToWrite, query_sources
from foldlog.formats.record_decoding import NamedRecords
from foldlog.formats.registry import format_named
from foldlog.formats.skeleton import count_block


class _Imported(msgspec.Struct):
    """The time of the last import in ``Source.about``, in microseconds since 1970."""

    imported_at: int | None = None


_decode_imported = msgspec.json.Decoder(_Imported).decode


def events_of_records(
    sources: Sources, ids_by_conversation: Iterable[tuple[Conversation, Iterable[int]]]
) -> dict[str, set[int]]:
    """Return the ids of all events from the records of these events, by conversation."""
    result: dict[str, set[int]] = {}
    for root, hashes in _hashes_of_events(sources, ids_by_conversation).items():
        for source in sources.family(root, texts=()):
            events_made = sources.made(source)
            conversation = sources.reader.conversation(source.conversation)
            if conversation is None:
                continue
            ids = result.setdefault(conversation.id, set())
            # A copied fork has its own events even for the records that it shares with its
            # parent.
            for number in numbers_with(0, sources.hashes(source), hashes):
                first, count = events_made.get(number, (0, 0))
                if first >= conversation.begins:
                    ids.update(range(first, first + count))
    return result


def redact_records(
    store: Store,
    common_events: Collection[tuple[str, int]],
    transaction: Transaction,
    ids_by_name: Mapping[str, Iterable[int]],
) -> None:
    """Blank the records of the redacted events in every source of the family, in the transaction of
    the redaction.

    The function also updates the sums of the sources. Later imports of any history refuse the
    blanked records. The records of ``common_events`` may occur in unrelated histories. So an import
    refuses a record of ``common_events`` only if all records before it are equal too.
    """
    sources = SourcesToWrite(store.database, transaction)
    found = ((sources.find(name), ids) for name, ids in ids_by_name.items())
    events = [(state, ids) for state, ids in found if state is not None]
    redacted = _hashes_of_events(sources, events)
    refused = redacted
    if common_events:
        rare_events = (
            (state, [number for number in ids if (state.id, number) not in common_events])
            for state, ids in events
        )
        refused = _hashes_of_events(sources, rare_events)
    for root, hashes in redacted.items():
        rare_hashes = refused.get(root, set())
        sources.refuse(root, rare_hashes, own=True)
        beginnings = _beginnings(sources, root, hashes - rare_hashes)
        sources.refuse(root, beginnings, own=True)
        for source in sources.settle_family(root):
            _blank(sources, source, _numbers_with(sources, source, hashes))
        _clear_beside(sources, root)
    for conversation, ids in events:
        _clear_handed_over(sources, conversation, ids)


def _clear_handed_over(
    sources: SourcesToWrite, conversation: Conversation, event_ids: Iterable[int]
) -> None:
    """Blank the records that were handed over to another program, in the conversation and in its
    forks, if they contain one of the events. They are no records of these events, because they were
    made from the events.
    """
    ids = [*event_ids]
    if not ids:
        return
    holders = [conversation]
    for fork, _ in forks_that_share(sources.database, sources.reader, conversation.key, ids):
        holders.append(fork)
    for holder in holders:
        source = sources.find_by_key(holder.key)
        handed_over = None if source is None else continued(source)
        if source is not None and handed_over is not None and min(ids) < handed_over.version:
            sources.settle_family(source.root)
            _clear_beside(sources, source.root)


def redact_beside(store: Store, conversation: str) -> None:
    """Remove the title, the texts between records, and the records without events from a source and
    its family. Later imports do not bring the removed texts back.
    """

    def redact(transaction: Transaction) -> None:
        sources = SourcesToWrite(store.database, transaction)
        shared = sources.of(conversation)
        if shared is None:
            return
        for source in sources.settle_family(shared.root):
            # This call marks the rows as changed, so a vacuum removes the bytes of the removed
            # texts.
            transaction.replace_rows(source.conversation, ())
        _clear_beside(sources, shared.root)

    store.database.recorder.transact(redact)


def _hashes_of_events(
    sources: Sources, ids_by_conversation: Iterable[tuple[Conversation, Iterable[int]]]
) -> dict[int, set[bytes]]:
    """Return the hashes of the records of these events, by the root of their family."""
    by_root: dict[int, set[bytes]] = {}
    for conversation, ids in ids_by_conversation:
        event_ids = set(ids)
        if conversation.erasure is not None:
            continue
        source = sources.find_by_key(conversation.key)
        if source is None:
            continue
        events_made = sources.made(source)
        numbers = [
            number
            for number, (first, count) in events_made.items()
            if not event_ids.isdisjoint(range(first, first + count))
        ]
        if numbers:
            hashes = sources.hashes(source)
            by_root.setdefault(source.root, set()).update(
                hashes[HASH_BYTES * number : HASH_BYTES * (number + 1)] for number in numbers
            )
    return by_root


def _beginnings(sources: Sources, root: int, hashes: set[bytes]) -> Iterator[bytes]:
    """Yield for each source of a family the fingerprint of its first record with one of the hashes.
    Another source has this fingerprint only if all its records up to this one are equal.
    """
    if not hashes:
        return
    for source in sources.family(root, texts=()):
        for record in chained(sources.hashes(source)):
            if record.hash in hashes:
                yield record.fingerprint
                break


def _numbers_with(sources: Sources, source: Source, hashes: set[bytes]) -> Iterator[int]:
    for first, source_hashes in sources.indexes(source):
        yield from numbers_with(first, source_hashes, hashes)


def _clear_beside(sources: SourcesToWrite, root: int) -> None:
    """Remove the texts of a family that belong to no event: records without events, damaged lines
    and titles. They may repeat a redacted record.
    """
    for source in sources.family(root):
        events_made = sources.made(source)
        _blank(
            sources,
            source,
            (
                number
                for number in range(source.from_record, source.made)
                if number not in events_made
            ),
        )
    for source in sources.family(root):
        blocks = ((block, block.alone()) for block in sources.own_blocks(source))
        sources.put_blocks(source, [alone for block, alone in blocks if alone is not block])
        _count_again(sources, source)


def _blank(sources: SourcesToWrite, source: Source, record_numbers: Iterable[int]) -> None:
    """Replace records of a source with their skeletons, which have no texts."""
    numbers = sorted({*record_numbers}.difference(source.redacted))
    if not numbers:
        return
    format = format_named(source.format)
    skeleton = NamedRecords(format) if format.skeleton is None else format.skeleton()
    changed = dict[int, Block]()
    block: Block | None = None
    for number in numbers:
        if block is None or number >= block.stop:
            block = next(sources.own_blocks(source, number))
        block = block.with_record(number, skeleton.without_texts(block.record(number)))
        changed[block.first] = block
    sources.put_blocks(source, changed.values())
    sources.put(source._replace(redacted=tuple(sorted({*source.redacted, *numbers}))))


def _count_again(sources: SourcesToWrite, source: Source) -> None:
    """Remove the title and the texts between records, and make the sums of a source again without
    the texts of its redacted records.
    """
    sources.reader.forget_figures(source.conversation)
    format = format_named(source.format)
    source = source._replace(about=without_texts(source))
    # Without sums or a skeleton, the figures come from the events, so there is nothing to count.
    if not source.sums or format.skeleton is None:
        sources.put(source)
        return
    skeleton = format.skeleton()
    for block in sources.blocks(source):
        count_block(skeleton, block)
    sources.put(source._replace(sums=skeleton.encode()))


def source_files(
    store: Store, names: Sequence[str], unread: set[str] | None = None
) -> dict[str, tuple[str, ...]]:
    """Return the paths from which conversations were imported, by conversation. A fork without a
    source has the paths of its parent. Conversations that were not imported are left out. If the
    source of a conversation is damaged, the conversation is left out, and added to ``unread``.
    """
    unread_names = set() if unread is None else unread

    def read(sources: Sources) -> dict[str, tuple[str, ...]]:
        stored = dict[str, tuple[str, ...]]()
        for name in names:
            conversation = sources.find(name)
            try:
                source = sources.of_state(conversation)
            except (CorruptEvent, StoreDamaged):
                unread_names.add(name)
                continue
            if source is not None and is_about_readable(source):
                stored[name] = _paths_in(source)
            elif source is not None:
                unread_names.add(name)
        return {name: paths for name, paths in stored.items() if paths}

    return query_sources(store.database, read)


def imported_paths(sources: Sources, conversation: Conversation | None) -> tuple[str, ...]:
    """Return the paths from which a conversation or its parent was imported."""
    source = sources.of_state(conversation)
    return _paths_in(source) if source else ()


def _paths_in(source: Source) -> tuple[str, ...]:
    return tuple(about(source).get("paths", ()))


def imported_at(store: Store, damaged: dict[str, CorruptEvent]) -> dict[str, datetime]:
    """Return the time of each conversation's last import. Conversations whose keys are missing are
    left out. A damaged source is left out too, and its error is added to ``damaged`` under the id
    of its conversation. Cost: the function reads a row of each conversation.
    """

    def read(sources: Sources) -> dict[str, datetime]:
        return {
            name: from_microseconds(fields.imported_at)
            for name, _, fields in sources.abouts(_decode_imported, damaged)
            if fields.imported_at is not None
        }

    return query_sources(store.database, read)
