"""Make checkpoints: one root over the heads of all conversations, to keep where the writers of the
store cannot change it.

A checkpoint is the root of a Merkle tree. Each checkpoint adds a leaf for every conversation that
changed since the checkpoint before, so it costs nothing at appends, and its cost depends only on
what is new.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property, partial
from hashlib import sha256
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Final

import msgspec

from foldlog.eventstore.errors import CorruptEvent, KeyUnavailable
from foldlog.eventstore.log.database import Database, iter_pages, start_after
from foldlog.eventstore.log.finding import tombstones_before
from foldlog.eventstore.log.row import first_head
from foldlog.eventstore.log.seal import DAMAGED, RowCodec
from foldlog.eventstore.maintenance.copy import OF_THE_STORE
from foldlog.eventstore.proof.leaves import (
    FORM,
    NO_HEAD,
    Extent,
    Leaf,
    hash_in_clear,
    hash_of_texts,
    ledger_hash,
    origin_of_fork,
    receipt_of,
    redacted_pages,
)
from foldlog.eventstore.proof.merkle import root_of_edge
from foldlog.eventstore.proof.signed_note import StoreCheckpoint
from foldlog.eventstore.proof.stored_leaves import (
    LEAVES_A_RECORD,
    StoredLeaves,
    newest_tree,
    origin_of,
    put_if_newest,
    stored_records,
)
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import Conversation, as_text, utf8
from foldlog.eventstore.sources.blocks import TextsBetween
from foldlog.eventstore.sources.tables import Source, Sources
from foldlog.eventstore.store import Store

_PAGE: Final = 1_000


def make_checkpoint(store: Store) -> StoreCheckpoint:
    """Make and store a checkpoint of the present state. If nothing is new, it is the last one.

    Cost: reading one row of each conversation that changed since the last checkpoint. If an import
    changed, also its new records. If the store has imports without events, a row of each of them
    (3 µs), and all leaves.

    Raises ``StoreRefused`` or ``StoreUnavailable`` if the store cannot be written, or if redacted
    events of an archived conversation cannot be read, and ``StoreDamaged`` if what it reads is
    damaged.
    """
    recorder = store.database.recorder
    origin = origin_of(store.database)
    while True:
        newest = recorder.query(partial(newest_tree, origin=origin))
        # Leaves of earlier forms cover less, so make a new leaf for every conversation once.
        is_continued = bool(newest.position) and newest.form == FORM
        # A store of imports that nobody has opened is at position 0.
        after = recorder.position(newest.position) if is_continued else None
        position, leaves = recorder.query(
            lambda reader: _NewLeaves(reader, store.database, origin, after).read()  # noqa: B023
        )
        if recorder.store_count > 1:  # joined stores have no common ledger
            leaves = [leaf for leaf in leaves if leaf.name]
        tree = newest
        records = list[StoredLeaves]()
        for start in range(0, len(leaves), LEAVES_A_RECORD):
            record = tree.grown(position, leaves[start : start + LEAVES_A_RECORD])
            records.append(record)
            tree = record
        if recorder.transact(partial(put_if_newest, origin=origin, former=newest, records=records)):
            return StoreCheckpoint(origin, tree.size, root_of_edge(tree.edge))


class _NewLeaves:
    """Reads the leaves of what changed after a position, which is None for the first checkpoint."""

    def __init__(self, reader: Reader, database: Database, origin: str, after: int | None) -> None:
        self._reader = reader
        self._database = database
        self._origin = origin
        self._is_first = after is None
        self._after = after or 0
        # Each of several joined stores has positions of its own.
        self._since = self._after if database.recorder.store_count == 1 else 0

    def read(self) -> tuple[str, list[Leaf]]:
        """Return the position up to which the leaves were read, and the leaves."""
        # The first statement of the transaction asks for the position.
        until, touched = self._reader.touched(self._after, 0)
        if until == 0:  # the store has only imports without events
            touched = ()
        if not self._is_first:
            changed = (self._reader.conversation(key) for key, _ in sorted(touched) if key)
            states = [state for state in changed if state and (state.visible or state.erasure)]
        else:
            states = [*_all_states(self._reader)]
        leaves = [self._leaf(state) for state in states]
        if self._has_sources and not self._is_first:
            leaves += self._grown_sources({key for key, _ in touched})
        if self._is_first or (OF_THE_STORE, -1) in touched:
            ledger = ledger_hash(self._reader, OF_THE_STORE)
            leaves.append(Leaf(b"", 0, False, 0, NO_HEAD, ledger))
        return str(until), [leaf for leaf in leaves if self._is_new(leaf)]

    def _is_new(self, leaf: Leaf) -> bool:
        # An import of records without events has no position, so only its leaf shows whether it is
        # new.
        if leaf.extent is None or not leaf.extent.records:
            return not leaf.is_empty
        former = self._former.get((leaf.name, leaf.generation))
        return former is None or _without_texts_between(former) != _without_texts_between(leaf)

    @cached_property
    def _has_sources(self) -> bool:
        return bool(self._reader.ask_all("any_source"))

    @cached_property
    def _former(self) -> dict[tuple[bytes, int], Leaf]:
        """The newest leaf of each conversation."""
        stored = stored_records(self._reader, self._origin)
        leaves = chain.from_iterable(record.leaves for record in stored)
        return {(leaf.name, leaf.generation): leaf for leaf in leaves}

    def _grown_sources(self, touched: Collection[int]) -> list[Leaf]:
        """Return leaves of the conversations that have records without events, if their source is
        not as in their newest leaf. An import writes no event, so they are not in ``touched``.

        Cost: reading a row of each source that has records without events.
        """
        covered = dict[bytes, Extent | None]()
        for (name, _), leaf in sorted(self._former.items(), key=itemgetter(0)):
            covered[name] = leaf.extent  # the last one is of the present generation
        keys = [
            key
            for key, name, *of_source in self._reader.ask_all("all_with_unmade")
            if key not in touched and not _is_covered(covered.get(utf8(as_text(name))), *of_source)
        ]
        states = [state for state in map(self._reader.conversation, keys) if state is not None]
        return [self._leaf(state) for state in states]

    def _leaf(self, state: Conversation) -> Leaf:
        """Return the leaf of a conversation in this state."""
        version, head = state.end
        generation = len(tombstones_before(self._reader, state))
        if state.erasure is not None:
            head = receipt_of(state.erasure)
            extent = Extent(0, created_at=state.created_at, form=FORM, **origin_of_fork(state))
        else:
            extent = self._extent(state, generation)
        if not version and state.erasure is None and state.sealed_key is None:
            head = first_head(state, state.salt)
        return Leaf(
            utf8(state.id),
            generation,
            state.erasure is not None,
            version,
            head or NO_HEAD,
            ledger_hash(self._reader, state.key),
            extent,
        )

    def _extent(self, state: Conversation, generation: int) -> Extent:
        """Return the extent of a conversation that is not erased. ``generation`` is the number of
        its erasures.
        """
        redacted = tuple(_redacted(self._reader, self._database, state))
        clear = (0, b"")
        if state.sealed_key is not None:
            clear = _clear_since(self._reader, state, self._since)
        source = None
        if self._has_sources:
            source = Sources(self._database, self._reader).find_by_key(state.key, texts=())
        of_source: tuple[int, bytes, str, tuple[int, ...]] = (0, b"", "", ())
        between = (0, b"")
        made = 0
        if source is not None:
            made = source.made
            numbers = tuple(sorted(source.redacted))
            of_source = source.records, source.head, source.format, numbers
            between = self._between(source, utf8(state.id), generation)
        return Extent(
            state.updated_at or 0,
            *of_source,
            redacted,
            *clear,
            state.created_at,
            FORM,
            *between,
            **origin_of_fork(state),
            made=made,
        )

    def _between(self, source: Source, name: bytes, generation: int) -> tuple[int, bytes]:
        """Return the number of the first record since the last leaf, and the hash of the texts that
        stand between the records from there on. If there is no record since then, or if the records
        cannot be read, the hash is empty: this leaf and later ones prove nothing of these texts.
        ``verify`` reports damaged records. Cost: reading the records since then.
        """
        former = self._former.get((name, generation))
        start = 0
        if former is not None and former.extent is not None and former.extent.form:
            start = min(former.extent.records, source.records)
        if start == source.records:
            return start, b""
        texts = TextsBetween()
        try:
            # The texts before a record begin at the end of the record before it.
            for block in Sources(self._database, self._reader).blocks(source, max(start - 1, 0)):
                texts.take(block)
        except (KeyUnavailable, CorruptEvent):
            return source.records, b""
        return start, hash_of_texts(texts.found, start, source.records)


def _is_covered(
    extent: Extent | None, records: int, head: bytes, format: bytes | str, redacted: bytes
) -> bool:
    """Return whether the row of a source is as in the extent. A source with redacted records counts
    as changed, because only its new leaf shows which records are redacted now.
    """
    if extent is None or extent.redacted_records or redacted:
        return False
    return (extent.records, extent.source_head, extent.format) == (records, head, as_text(format))


def _without_texts_between(leaf: Leaf) -> Leaf:
    extent = None if leaf.extent is None else leaf.extent.without_texts_between
    return msgspec.structs.replace(leaf, extent=extent)


def _all_states(reader: Reader) -> Iterator[Conversation]:
    def page(after: str | None) -> Sequence[Conversation]:
        return reader.conversations(start_after(after), _PAGE)

    for state in iter_pages(page, attrgetter("id"), _PAGE):
        yield from tombstones_before(reader, state)
        yield state


def _clear_since(reader: Reader, state: Conversation, position: int) -> tuple[int, bytes]:
    """Return the first event after a position, and the hash of the events from there on. Cost:
    reading their rows without the bodies.
    """
    before = reader.ask("last_until", state.key, position, -state.key)
    first = max(state.begins, *(event_id + 1 for (event_id,) in before), 0)
    if first >= state.version:
        return first, b""
    return first, hash_in_clear(reader, state, first, state.version)


def _redacted(reader: Reader, database: Database, state: Conversation) -> Iterator[tuple[int, str]]:
    """Yield the redacted events of a conversation. Cost: if it has any, a scan of its rows that
    reads only the redacted ones.
    """
    # The past of a detached fork was copied, and its redactions were not counted again.
    has_copies = state.parent is None and state.parent_version
    if not (state.redactions or has_copies):
        return
    try:
        codec = database.codec_of(state)
    except (KeyUnavailable, CorruptEvent):
        codec = RowCodec(state.id)
    for page in redacted_pages(reader, state):
        for row in codec.decode_rows(page):
            is_read = row.encoding != DAMAGED
            yield row.id, sha256(row.body).hexdigest() if is_read else ""
