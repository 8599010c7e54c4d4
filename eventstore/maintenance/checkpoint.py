"""Checkpoints: one root over the heads of all conversations, to keep where the writers of the store
cannot change it.

A checkpoint is the root of a Merkle tree. Each checkpoint adds a leaf for every conversation that
changed since the checkpoint before, so it costs nothing at appends, and its cost depends only on
what is new. ``docs/internals/STORED_BYTES.md`` defines the bytes of a leaf.

The rows of ``records`` with conversation 0 and the projection ``checkpoints foldlog/UUID`` list the
leaves of the store with this UUID; ``version`` is the number of leaves after the row. The body is
JSON: ``size``; ``position``, up to which the checkpoint read the store; ``edge``, the roots of the
largest complete subtrees; ``form``, the form of the extents; ``leaves``, each an array with the
fields of ``Leaf``. Bytes are in base64. A copy of a store has the lists of its source too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, partial
from hashlib import sha256
from itertools import accumulate, chain
from operator import attrgetter, itemgetter
from typing import Any, Final, TypeVar

import msgspec

from foldlog.eventstore.errors import CorruptEvent, KeyUnavailable, StoreDamaged, count
from foldlog.eventstore.events import Redaction
from foldlog.eventstore.log.database import Database, iter_pages, start_after
from foldlog.eventstore.log.finding import tombstones_before
from foldlog.eventstore.log.ledger import entries
from foldlog.eventstore.log.row import first_head, is_redacted, stored_event_of
from foldlog.eventstore.log.seal import DAMAGED, RowCodec
from foldlog.eventstore.maintenance.archive import check_archived
from foldlog.eventstore.maintenance.archived import address_of_object, read_archived
from foldlog.eventstore.maintenance.merkle import grown_edge, leaf_hash, root_of, root_of_edge
from foldlog.eventstore.maintenance.signed_note import StoreCheckpoint
from foldlog.eventstore.maintenance.verify import (
    Later,
    RedactedEvent,
    Verdict,
    VerifyFinding,
    of_all,
    verify,
)
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import (
    HEAD_BYTES,
    Conversation,
    Erasure,
    Record,
    Row,
    as_text,
    unpacked,
    utf8,
)
from foldlog.eventstore.sources.blocks import GENESIS, TextsBetween, chain_head
from foldlog.eventstore.sources.reading import blocks_of
from foldlog.eventstore.sources.tables import Source, Sources, query_sources
from foldlog.eventstore.store import Store

T = TypeVar("T")

_OF_THE_STORE: Final = 0
_LIST: Final = "checkpoints "
"""The list of checkpoints of a store has this name, and the origin. A copy has the lists of its
sources too.
"""
_CODE: Final = 1
_CODEC: Final = RowCodec("")
_BEFORE: Final = "it was not proved, because the checkpoint of an earlier version does not cover"
_LEDGER_OF_A_COPY: Final = (
    "its ledger was not compared: this is a copy of the store of the checkpoint, or its id was"
    " changed"
)
_ATTEMPTS: Final = 5
"""How many times a comparison is repeated if the conversation changed during the comparison."""
_PAGE: Final = 1_000
_LEAVES: Final = 100
"""How many leaves a record has. Larger records cost every reader of the table ``records``: to find
a row, SQLite copies the whole rows that it compares with the key.
"""
_ALL: Final = 2**62
_NOTHING: Final = bytes(HEAD_BYTES)
_numbers: Final = struct.Struct(">BIQ").pack
_time: Final = struct.Struct(">q").pack
_number: Final = struct.Struct(">Q").pack
_FORM: Final = 1
"""The form of new extents, the first byte of what their hash covers."""
_begins: Final = struct.Struct(">BQQ").pack
_NO_TEXT: Final = sha256().digest()
_NOTHING_OF_FORM_0: Final = _number(0) + _NOTHING + 3 * _NO_TEXT
_NOTHING_BESIDE: Final = _NOTHING_OF_FORM_0 + 2 * (_number(0) + _NOTHING) + _number(0) + _NO_TEXT
"""What an extent hashes after its times if a conversation has events and nothing else."""


class Extent(msgspec.Struct, frozen=True, array_like=True):
    """What a leaf covers beside the events: the source of an import, what is left of redacted
    events, and from where a fork comes. Leaves of checkpoints of earlier versions have no extent.

    ``recorded_at``       the time of the last event, in microseconds since 1970
    ``records``           the number of records of the source, 0 without a source
    ``source_head``       the end of the chain of the records' hashes
    ``format``            the name of the source's format
    ``redacted_records``  the numbers of its redacted records
    ``redacted``          the ids of redacted events, with SHA-256 of what is left of each. The hash
                          is empty if the key of the conversation was missing
    ``clear_from``, ``clear``  of an encrypted conversation, a hash over the ids, kinds, times and
                          heads of the events from ``clear_from`` on. Each leaf has the events that
                          were new. Empty for a conversation that was not encrypted
    ``created_at``        when the conversation began, in microseconds since 1970
    ``form``              0 in checkpoints of earlier versions, which lack the next fields
    ``between_from``, ``between``  a hash over the texts between the records of the source, from the
                          record ``between_from`` on. Each leaf has the records that were new. Empty
                          if there is only white space and commas
    ``parent``, ``parent_version``  the id of a fork's parent, and the first event of the fork
    """

    recorded_at: int
    records: int = 0
    source_head: bytes = b""
    format: str = ""
    redacted_records: tuple[int, ...] = ()
    redacted: tuple[tuple[int, str], ...] = ()
    clear_from: int = 0
    clear: bytes = b""
    created_at: int = 0
    form: int = 0
    between_from: int = 0
    between: bytes = b""
    parent: str = ""
    parent_version: int = 0

    @property
    def hash(self) -> bytes:
        if self.form:
            beside = _NOTHING_BESIDE if self._is_plain else self._beside
            return sha256(_begins(self.form, self.recorded_at, self.created_at) + beside).digest()
        created_at = _number(self.created_at) if self.created_at else b""
        clear = _number(self.clear_from) + self.clear if self.clear else b""
        return sha256(
            _number(self.recorded_at) + self._source_and_redacted + clear + created_at
        ).digest()

    @property
    def _beside(self) -> bytes:
        return b"".join(
            (
                self._source_and_redacted,
                _number(self.clear_from) + (self.clear or _NOTHING),
                _number(self.between_from) + (self.between or _NOTHING),
                _number(self.parent_version) + sha256(utf8(self.parent)).digest(),
            )
        )

    @property
    def _source_and_redacted(self) -> bytes:
        records = b"".join(map(_number, self.redacted_records))
        redacted = b"".join(
            _number(event_id) + (bytes.fromhex(body) or _NOTHING)
            for event_id, body in self.redacted
        )
        return b"".join(
            (
                _number(self.records) + (self.source_head or _NOTHING),
                sha256(utf8(self.format)).digest(),
                sha256(records).digest(),
                sha256(redacted).digest(),
            )
        )

    @property
    def has_right_lengths(self) -> bool:
        return (
            all(len(digest) in (0, HEAD_BYTES) for digest in (self.source_head, self.clear))
            and len(self.between) in (0, HEAD_BYTES)
            and all(len(body) in (0, 2 * HEAD_BYTES) for _, body in self.redacted)
        )

    @property
    def without_texts_between(self) -> Extent:
        return msgspec.structs.replace(self, between_from=0, between=b"")

    @property
    def _is_plain(self) -> bool:
        # Most extents are, so their hash costs less.
        return not (
            self.records
            or self.redacted
            or self.source_head
            or self.format
            or self.redacted_records
            or self.clear
            or self.clear_from
            or self.between
            or self.between_from
            or self.parent
            or self.parent_version
        )


class Leaf(msgspec.Struct, frozen=True, array_like=True):
    """The state of a conversation at a checkpoint.

    ``name``        the id of the conversation, in UTF-8; empty for the store itself
    ``generation``  how many erased conversations had this id before
    ``erased``      whether the conversation is a tombstone
    ``version``     the number of events
    ``head``        the last head; for a tombstone, a hash of the tombstone; for an import without
                    events, the head before its first event
    ``ledger``      a hash over the entries of the conversation's ledger
    ``extent``      what the leaf covers beside the events; None in older checkpoints, and for
                    the store itself. The extent of a tombstone has only ``created_at`` and the
                    parent
    """

    name: bytes
    generation: int
    erased: bool
    version: int
    head: bytes
    ledger: bytes
    extent: Extent | None = None

    @property
    def hash(self) -> bytes:
        numbers = _numbers(self.erased, self.generation, self.version)
        extent = b"" if self.extent is None else self.extent.hash
        return leaf_hash(sha256(self.name).digest() + numbers + self.head + self.ledger + extent)

    @property
    def has_right_lengths(self) -> bool:
        if not len(self.head) == len(self.ledger) == HEAD_BYTES:
            return False
        return self.extent is None or self.extent.has_right_lengths

    @property
    def is_empty(self) -> bool:
        records = 0 if self.extent is None else self.extent.records
        return not (self.version or records) and self.ledger == _NOTHING


class _Tree(msgspec.Struct, frozen=True):
    """The state of the list after a record of leaves, without the leaves. ``size`` and ``edge``
    belong to the tree after these leaves. ``position`` is the position up to which the store was
    read, and ``form`` the form of the extents of the leaves.
    """

    size: int
    position: str
    edge: tuple[bytes, ...]
    form: int = 0

    def grown(self, position: str, leaves: Sequence[Leaf]) -> _Stored:
        edge = grown_edge(self.edge, self.size, (leaf.hash for leaf in leaves))
        size = self.size + len(leaves)
        return _Stored(size, position, tuple(edge), _FORM, leaves=tuple(leaves))


class _Stored(_Tree, frozen=True):
    """A record of at most ``_LEAVES`` new leaves."""

    leaves: tuple[Leaf, ...] = ()


_read: Final = msgspec.json.Decoder(_Stored).decode
_read_tree: Final = msgspec.json.Decoder(_Tree).decode
"""Skips the leaves. A record of an earlier version has up to 10,000."""


# -- making a checkpoint


def origin_of(database: Database) -> str:
    return f"foldlog/{database.uuid}"


def make_checkpoint(store: Store) -> StoreCheckpoint:
    """Make and store a checkpoint of the present state. If nothing is new, it is the last one.

    Cost: reading one row of each conversation that changed since the last checkpoint. If an import
    changed, also its new records. If the store has imports without events, a row of each of them
    (3 µs), and all leaves.
    """
    recorder = store.database.recorder
    origin = origin_of(store.database)
    while True:
        newest = recorder.query(partial(_newest, origin=origin))
        # Leaves of earlier forms cover less, so make a new leaf for every conversation once.
        is_continued = bool(newest.position) and newest.form == _FORM
        # A store of imports that nobody has opened is at position 0.
        after = recorder.position(newest.position) if is_continued else None
        position, leaves = recorder.query(
            lambda reader: _NewLeaves(reader, store.database, origin, after).read()  # noqa: B023
        )
        if recorder.store_count > 1:  # joined stores have no common ledger
            leaves = [leaf for leaf in leaves if leaf.name]
        tree = newest
        records = list[_Stored]()
        for start in range(0, len(leaves), _LEAVES):
            record = tree.grown(position, leaves[start : start + _LEAVES])
            records.append(record)
            tree = record
        if recorder.transact(partial(_put, origin=origin, former=newest, records=records)):
            return StoreCheckpoint(origin, tree.size, root_of_edge(tree.edge))


def _put(transaction: Transaction, origin: str, former: _Tree, records: Sequence[_Stored]) -> bool:
    transaction.lock_all([_LIST])
    if _newest(transaction, origin) != former:
        return False  # another process has made a checkpoint
    _put_records(transaction, origin, records)
    return True


def _put_records(transaction: Transaction, origin: str, records: Iterable[_Stored]) -> None:
    name = _LIST + origin
    encoded = (Record(stored.size, _CODE, msgspec.json.encode(stored)) for stored in records)
    with_checksums = [_CODEC.encoded_record(name, record) for record in encoded]
    transaction.put_records(_OF_THE_STORE, name, with_checksums)


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
            found = (self._reader.conversation(key) for key, _ in sorted(touched) if key)
            states = [state for state in found if state and (state.visible or state.erasure)]
        else:
            states = [*_all_states(self._reader)]
        leaves = [self._leaf(state) for state in states]
        if self._has_sources and not self._is_first:
            leaves += self._grown_sources({key for key, _ in touched})
        if self._is_first or (_OF_THE_STORE, -1) in touched:
            ledger = _ledger(self._reader, _OF_THE_STORE)
            leaves.append(Leaf(b"", 0, False, 0, _NOTHING, ledger))
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
        stored = _records(self._reader, self._origin)
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
        version, head = state.end
        generation = len(tombstones_before(self._reader, state))
        if state.erasure is not None:
            head = _receipt(state.erasure)
            extent = Extent(0, created_at=state.created_at, form=_FORM, **_origin_of_fork(state))
        else:
            extent = self._extent(state, generation)
        if not version and state.erasure is None and state.sealed_key is None:
            head = first_head(state, state.salt)
        return Leaf(
            utf8(state.id),
            generation,
            state.erasure is not None,
            version,
            head or _NOTHING,
            _ledger(self._reader, state.key),
            extent,
        )

    def _extent(self, state: Conversation, generation: int) -> Extent:
        redacted = tuple(_redacted(self._reader, self._database, state))
        clear = (0, b"")
        if state.sealed_key is not None:
            clear = _clear_since(self._reader, state, self._since)
        source = None
        if self._has_sources:
            source = Sources(self._database, self._reader).find_by_key(state.key, texts=())
        of_source: tuple[int, bytes, str, tuple[int, ...]] = (0, b"", "", ())
        between = (0, b"")
        if source is not None:
            numbers = tuple(sorted(source.redacted))
            of_source = source.records, source.head, source.format, numbers
            between = self._between(source, utf8(state.id), generation)
        return Extent(
            state.updated_at or 0,
            *of_source,
            redacted,
            *clear,
            state.created_at,
            _FORM,
            *between,
            **_origin_of_fork(state),
        )

    def _between(self, source: Source, name: bytes, generation: int) -> tuple[int, bytes]:
        """Return the first record since the last leaf, and the hash of the texts from there on.
        Cost: reading the records since then.
        """
        former = self._former.get((name, generation))
        start = 0
        if former is not None and former.extent is not None and former.extent.form:
            start = min(former.extent.records, source.records)
        if start == source.records:
            return start, b""
        texts = TextsBetween()
        try:
            for block in Sources(self._database, self._reader).blocks(source, max(start - 1, 0)):
                texts.take(block)
        except (KeyUnavailable, CorruptEvent):
            return source.records, b""  # the next checkpoint with the key covers nothing of them
        return start, _hash_of_texts(texts.found, start, source.records)


def _is_covered(
    extent: Extent | None, records: int, head: bytes, format: bytes | str, redacted: bytes
) -> bool:
    """Return whether the row of a source is as in the extent. Of a redacted source, the leaf must
    be made to know.
    """
    if extent is None or extent.redacted_records or redacted:
        return False
    return (extent.records, extent.source_head, extent.format) == (records, head, as_text(format))


def _origin_of_fork(state: Conversation) -> dict[str, Any]:
    if state.parent is None and state.version:
        return {}  # a fork that has copied its past keeps ``parent_version``
    return {"parent": state.parent_id or "", "parent_version": state.parent_version or 0}


def _without_texts_between(leaf: Leaf) -> Leaf:
    extent = None if leaf.extent is None else leaf.extent.without_texts_between
    return msgspec.structs.replace(leaf, extent=extent)


def _hash_of_texts(texts: Iterable[tuple[int, bytes]], start: int, stop: int) -> bytes:
    """Return a hash over the texts before the records ``start`` to ``stop`` - 1, or nothing if
    there are none.
    """
    covered = [_number(number) + digest for number, digest in texts if start <= number < stop]
    return sha256(b"".join(covered)).digest() if covered else b""


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
    return first, _clear_hash(reader, state, first, state.version) if first < state.version else b""


def _clear_hash(reader: Reader, state: Conversation, first: int, stop: int) -> bytes:
    """Return a hash over what is not encrypted of the events ``first`` to ``stop`` - 1."""
    hashed = sha256()
    for row in _rows_without_bodies(reader, state, first, stop):
        _, event_id, _, _, recorded_at, schema, shown, structural, _, _ = unpacked(row.meta)
        kind = row.kind.encode()
        fields = f"{event_id} {schema} {shown:d} {structural:d} {recorded_at} {len(kind)} "
        hashed.update(fields.encode() + kind + b"\n" + row.head)
    return hashed.digest()


def _rows_without_bodies(
    reader: Reader, state: Conversation, first: int, stop: int
) -> Iterator[Row]:
    if state.archived:
        archived = read_archived(state.id, address_of_object(reader, state.key))
        yield from (row for row, _ in archived if first <= row.id < stop)
    while page := reader.ask("metas", state.key, first, stop, _PAGE):
        yield from (Row(event_id, meta, b"") for event_id, meta in page)
        first = page[-1][0] + 1


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
    for page in _redacted_pages(reader, state):
        for row in codec.decode_rows(page):
            is_read = row.encoding != DAMAGED
            yield row.id, sha256(row.body).hexdigest() if is_read else ""


def _redacted_pages(reader: Reader, state: Conversation) -> Iterator[Sequence[Row]]:
    start = state.begins
    if state.archived:
        archived = read_archived(state.id, address_of_object(reader, state.key))
        yield [row for row, _ in archived if is_redacted(row.proof)]
    while page := reader.rows(state.key, start, state.version, _PAGE, "redacted_rows"):
        yield page
        start = page[-1].id + 1


def _receipt(erasure: Erasure) -> bytes:
    return sha256(erasure.head + _time(erasure.erased_at) + utf8(erasure.reason)).digest()


def _ledger(reader: Reader, key: int) -> bytes:
    *_, newest = _ledgers(reader, key)
    return newest


def _ledgers(reader: Reader, key: int) -> Iterator[bytes]:
    """Yield the hash of a ledger before its first entry, then after each entry."""
    return accumulate(
        entries(reader, key),
        lambda former, row: sha256(former + row.columns + row.body).digest(),
        initial=_NOTHING,
    )


# -- the lists of checkpoints


def _newest(reader: Reader, origin: str) -> _Tree:
    for record in reader.records(_OF_THE_STORE, _LIST + origin, _ALL, 1, backwards=True):
        return _decoded(record, origin, _read_tree)
    return _Tree(0, "", (), _FORM)


def _decoded(record: Record, origin: str, read: Callable[[bytes], T]) -> T:
    decoded = _CODEC.decoded_record(_LIST + origin, record)
    if decoded is not None:
        with suppress(msgspec.DecodeError):
            return read(decoded.body)
    raise StoreDamaged(
        f"the list of checkpoints is damaged at leaf {record.version}; restore the store from a"
        " backup"
    )


def _records(reader: Reader, origin: str) -> Iterator[_Stored]:
    size = 0
    while page := reader.records(_OF_THE_STORE, _LIST + origin, size, 1):
        yield _decoded(page[0], origin, _read)
        size = page[0].version


def leaves_of(reader: Reader, checkpoint: StoreCheckpoint) -> list[Leaf]:
    records = _records(reader, checkpoint.origin)
    leaves = chain.from_iterable(stored.leaves for stored in records)
    return [*leaves][: checkpoint.size]


def copy_checkpoints(source: Database, target: Database) -> None:
    """Copy the lists of checkpoints, so that a copy can be verified against them."""

    def read(reader: Reader) -> dict[str, list[_Stored]]:
        names = (record.projection for record in reader.records(_OF_THE_STORE, None, 0, _ALL))
        origins = [name.removeprefix(_LIST) for name in names if name.startswith(_LIST)]
        return {origin: [*_records(reader, origin)] for origin in origins}

    lists: dict[str, list[_Stored]] = {}
    # Damage beside the events costs the copy no event. Verifying the copy names a missing list.
    with suppress(StoreDamaged):
        lists = source.recorder.query(read)
    for origin, records in lists.items():
        target.recorder.transact(partial(_put_records, origin=origin, records=records))


# -- verifying against a checkpoint


def verify_against(store: Store, checkpoint: StoreCheckpoint) -> Iterator[Verdict]:
    """Check every event as ``verify`` does, and compare every conversation with the leaves of a
    checkpoint. Without the key of an encrypted conversation, compare the stored heads. Erasures
    and redactions since the checkpoint are lawful: the verdicts have their receipts. A copy has a
    ledger of its own, which is not compared.

    The last verdict is about the store. Raises the errors of ``verify``.
    """
    comparison = _Comparison(store, checkpoint)
    for verdict in verify(store):
        if verdict.conversation is not None:
            yield comparison.compare(check_archived(store, verdict))
            continue
        yield from comparison.missing()
        findings = (*verdict.findings, *map(of_all, comparison.problems()))
        if comparison.is_copy:
            findings = (*findings, of_all(_LEDGER_OF_A_COPY, unproved=True))
        yield verdict._replace(findings=findings, later=comparison.later)


class _Comparison:
    def __init__(self, store: Store, checkpoint: StoreCheckpoint) -> None:
        self._database = store.database
        self._recorder = store.database.recorder
        self._checkpoint = checkpoint
        # A copy has a ledger of its own.
        self.is_copy = checkpoint.origin != origin_of(store.database)
        self._leaves = self._recorder.query(partial(leaves_of, checkpoint=checkpoint))
        self._receipts = set[tuple[bytes, int, bytes, int]]()
        self._covered = {
            redacted
            for leaf in self._leaves
            if leaf.extent is not None
            for redacted in leaf.extent.redacted
            if redacted[1]
        }
        """The ids of the redacted events of all leaves, with the hashes of what is left of them."""
        self._with_source = {
            key for (key,) in self._recorder.query(lambda reader: reader.ask_all("source_keys"))
        }
        self.later = Later()
        self._compared = set[tuple[bytes, int]]()
        self._of_place: dict[tuple[bytes, int], list[Leaf]] = {}
        for leaf in self._leaves:
            self._of_place.setdefault((leaf.name, leaf.generation), []).append(leaf)

    def problems(self) -> Iterator[str]:
        if len(self._leaves) < self._checkpoint.size:
            yield (
                f"its list of checkpoints has {len(self._leaves):,} of the"
                f" {self._checkpoint.size:,} leaves of the checkpoint: the list was shortened, or"
                " the store is older than the checkpoint"
            )
        elif root_of([leaf.hash for leaf in self._leaves]) != self._checkpoint.root:
            yield (
                "its list of checkpoints was changed: its root is not the root of the checkpoint,"
                " so conversations may be changed that are not named"
            )
        # Fields of other lengths can have the same hash as other fields of a leaf.
        elif not all(leaf.has_right_lengths for leaf in self._leaves):
            yield (
                "its list of checkpoints was changed: the fields of a leaf do not have their"
                " lengths, so conversations may be changed that are not named"
            )
        if not self._has_ledger(_OF_THE_STORE, self._of_place.get((b"", 0), ())):
            yield "the ledger of the store was changed since the checkpoint"

    def missing(self) -> Iterator[Verdict]:
        """Yield verdicts about the tombstones and conversations that are not in the store."""
        for place, leaves in self._of_place.items():
            newest = leaves[-1]
            problem = ""
            receipt = (newest.name, newest.generation, newest.head, newest.version)
            if newest.erased and receipt not in self._receipts:
                problem = "its tombstone was changed or removed since the checkpoint"
            elif newest.name and not newest.erased and place not in self._compared:
                records = 0 if newest.extent is None else newest.extent.records
                had = count(newest.version, "event") if newest.version else count(records, "record")
                problem = f"it is missing, and had {had} at the checkpoint"
            if problem:
                yield Verdict(as_text(newest.name), 0, None, None, (of_all(problem),))

    def compare(self, verdict: Verdict, attempts: int = _ATTEMPTS) -> Verdict:
        name = utf8(verdict.conversation or "")
        if verdict.erasure is not None:
            erasure = verdict.erasure
            self._receipts.add((name, verdict.generation, _receipt(erasure), erasure.events))
        self._compared.add((name, verdict.generation))
        leaves = self._of_place.get((name, verdict.generation), [])
        state, ledgers = self._recorder.query(partial(_state_and_ledgers, verdict=verdict))
        if state is not None and attempts == _ATTEMPTS:
            self._count(state, leaves)
        if state is None or not leaves:
            return verdict
        findings = [*verdict.findings]
        has_heads = all(finding.needs_key for finding in findings)
        if not (self.is_copy or ledgers.issuperset(leaf.ledger for leaf in leaves)):
            findings.append(of_all("its ledger was changed since the checkpoint"))
        changes = [*self._changes(state, leaves, has_heads)]
        if changes and attempts:  # another process may have archived it between two reads
            present = self._recorder.query(partial(_state_of, verdict=verdict))
            if present != state:
                return self.compare(verdict, attempts - 1)
        findings += map(of_all, changes)
        if state.erasure is None:
            if any(finding.needs_key for finding in findings):
                verdict = self._with_unread_redactions(state, leaves[-1], verdict)
            findings += self._changes_beside(state, leaves, verdict)
        if state.erasure is not None or any(not finding.unproved for finding in findings):
            return verdict._replace(findings=tuple(findings))
        redactions = (
            *self._redactions(state, leaves[-1].version),
            *self._copied_redactions(leaves[-1], verdict),
        )
        return verdict._replace(
            findings=tuple(findings),
            redactions=redactions,
            redacted_records=self._redacted_since(state, leaves[-1]),
            covered=_covered(state, leaves[-1]),
        )

    def _count(self, state: Conversation, leaves: Sequence[Leaf]) -> None:
        """Count what came after the checkpoint."""
        events, records, conversations, erased = self.later
        if state.erasure is not None:
            erased += not any(leaf.erased for leaf in leaves)
        else:
            extents = (leaf.extent for leaf in leaves if leaf.extent is not None)
            source = None
            with suppress(KeyUnavailable):  # the number of its records is encrypted
                source = self._source_of(state)
            version = max((leaf.version for leaf in leaves), default=state.begins)
            events += max(state.version - version, 0)
            if source is not None:
                covered = max((extent.records for extent in extents), default=0)
                records += max(source.records - covered, 0)
            conversations += not leaves
        self.later = Later(events, records, conversations, erased)

    def _redacted_since(self, state: Conversation, leaf: Leaf) -> tuple[int, ...]:
        """Return the records that were redacted since the checkpoint and have no events of their
        own, so no event is a receipt for them.
        """
        source = self._source_of(state)
        if source is None or leaf.extent is None:
            return ()
        made = query_sources(self._database, Sources.made, source)
        return tuple(
            number
            for number in sorted({*source.redacted}.difference(leaf.extent.redacted_records))
            if number < leaf.extent.records and not self._own_events(state, made.get(number))
        )

    def _own_events(self, state: Conversation, made: tuple[int, int] | None) -> set[int]:
        first, events = made or (0, 0)
        return {*range(first, first + events)} if first >= state.begins else set()

    # -- beside the events

    def _changes_beside(
        self, state: Conversation, leaves: Sequence[Leaf], verdict: Verdict
    ) -> Iterator[VerifyFinding]:
        leaf = leaves[-1]
        for event in verdict.redacted:
            if event.id < leaf.version:
                yield from self._changes_of_redacted(leaf, event)
        if leaf.extent is None:
            if state.key in self._with_source:
                yield of_all(f"{_BEFORE} the source of an import", unproved=True)
            return
        is_read = not any(finding.needs_key for finding in verdict.findings)
        if not is_read:
            yield from self._changes_in_clear(state, leaves)
            # A copy of a redacted event has its receipt in the ledger.
            copied = bool(self._recorder.query(partial(_copied, state=state)))
            if not (verdict.receipts_unread or copied):
                for event_id in verdict.redacted_unread:
                    problem = "its content was erased since the checkpoint, and no receipt followed"
                    yield VerifyFinding(event_id, event_id, problem)
        else:
            now_redacted = {event.id for event in verdict.redacted}
            for event_id, _ in leaf.extent.redacted:
                if event_id not in now_redacted:
                    problem = "it was redacted at the checkpoint, and has content again"
                    yield VerifyFinding(event_id, event_id, problem)
        try:
            yield from map(of_all, self._changes_of_source(state, leaves, verdict))
        except KeyUnavailable as error:
            problem = f"the records of its source could not be checked: {error}"
            yield of_all(problem, needs_key=True)

    def _with_unread_redactions(self, state: Conversation, leaf: Leaf, verdict: Verdict) -> Verdict:
        """Without the key of a conversation, its rows still show which events are redacted, and
        which events are receipts, but not of whom.
        """
        if leaf.extent is None:
            return verdict
        former = {event_id for event_id, _ in leaf.extent.redacted}

        def read(reader: Reader) -> tuple[list[int], list[int]]:
            pages = _redacted_pages(reader, state)
            columns = reader.columns(state.key, leaf.version, state.version, state.version)
            redacted = [row.id for page in pages for row in page]
            return redacted, [event_id for event_id, kind, *_ in columns if kind == b"redaction"]

        redacted, receipts = self._recorder.query(read)
        return verdict._replace(
            redacted_unread=tuple(
                event_id
                for event_id in redacted
                if event_id < leaf.version and event_id not in former
            ),
            receipts_unread=tuple(receipts),
        )

    def _changes_in_clear(
        self, state: Conversation, leaves: Sequence[Leaf]
    ) -> Iterator[VerifyFinding]:
        """Compare the ids, kinds, times and heads of the events of an encrypted conversation."""
        proved = min((leaf.extent.clear_from for leaf in leaves if leaf.extent), default=0)
        for leaf in leaves:
            extent = leaf.extent
            if extent is None or not extent.clear or leaf.version > state.version:
                continue
            first, stop = extent.clear_from, leaf.version
            if first > proved:
                break
            now = self._recorder.query(partial(_clear_hash, state=state, first=first, stop=stop))
            if now != extent.clear:
                problem = "their order, kinds or times were changed since the checkpoint"
                yield VerifyFinding(first, stop - 1, problem)
            proved = stop
        # Of a conversation whose end is cut off, the hash is of events that are gone.
        if proved < leaves[-1].version <= state.version:
            problem = "their order was not proved: they were not encrypted at the checkpoint"
            yield VerifyFinding(proved, leaves[-1].version - 1, problem, unproved=True)

    def _changes_of_redacted(self, leaf: Leaf, event: RedactedEvent) -> Iterator[VerifyFinding]:
        def find(problem: str, *, unproved: bool = False) -> VerifyFinding:
            return VerifyFinding(event.id, event.id, problem, unproved=unproved)

        is_later = event.receipt is not None and event.receipt >= leaf.version
        if (event.id, event.body) in self._covered:
            return
        if leaf.extent is None:
            if not (is_later or event.is_whole):
                yield find(f"{_BEFORE} what is left of redacted events", unproved=True)
            return
        left = dict(leaf.extent.redacted)
        if left.get(event.id) == "":
            problem = "what is left of it was not proved: the checkpoint was made without the key"
            yield find(problem, unproved=True)
        elif event.id in left:
            yield find("what is left of this redacted event was changed since the checkpoint")
        elif not event.is_whole or not (is_later or event.entry is not None):
            yield find("its content was erased since the checkpoint, and no receipt says by whom")

    def _copied_redactions(self, leaf: Leaf, verdict: Verdict) -> Iterator[Redaction]:
        """Yield redactions since the checkpoint whose receipt is an entry of the ledger."""
        for event in verdict.redacted:
            is_old = event.id >= leaf.version or (event.id, event.body) in self._covered
            if not is_old and leaf.extent is not None and event.receipt is None:
                yield Redaction(
                    event_ids=(event.id,),
                    hashes=(event.mark.hash,),
                    by=event.mark.by,
                    reason=event.mark.reason,
                )

    def _changes_of_source(
        self, state: Conversation, leaves: Sequence[Leaf], verdict: Verdict
    ) -> Iterator[str]:
        extent = leaves[-1].extent
        if extent is None or not extent.records:
            return
        source = self._source_of(state)
        had = count(extent.records, "record")
        if source is None:
            yield f"its source is missing, and had {had} at the checkpoint"
        elif source.records < extent.records:
            yield f"its source had {had} at the checkpoint, and has {source.records:,}"
        elif source.format != extent.format:
            yield f"its source had the format {extent.format!r} at the checkpoint"
        elif self._head_of_source(source, extent.records) != extent.source_head:
            yield "the records of its source were changed since the checkpoint"
        else:
            yield from self._redacted_records(state, source, extent, verdict)
            # A redaction removes all texts between records.
            if verdict.between and not all(
                _hash_of_texts(verdict.between, past.between_from, past.records) == past.between
                for past in (past_leaf.extent for past_leaf in leaves)
                if past is not None and past.form and past.records <= extent.records
            ):
                yield "the texts between records of its source were changed since the checkpoint"

    def _source_of(self, state: Conversation) -> Source | None:
        if state.key not in self._with_source:
            return None
        with suppress(StoreDamaged):  # ``verify`` has named the damage
            return query_sources(
                self._database, lambda sources: sources.find_by_key(state.key, texts=())
            )
        return None

    def _head_of_source(self, source: Source, records: int) -> bytes:
        # ``verify`` has compared the head of all records with their hashes.
        if records == source.records:
            return source.head
        head = GENESIS
        for block in blocks_of(self._database, source):
            if block.stop > records:
                return chain_head(head, block.before(records).hashes)
            head = chain_head(head, block.hashes)
        return head

    def _redacted_records(
        self, state: Conversation, source: Source, extent: Extent, verdict: Verdict
    ) -> Iterator[str]:
        before = {*extent.redacted_records}
        for number in sorted(before.difference(source.redacted)):
            yield f"record {number} of its source was redacted at the checkpoint, and is not now"
        if any(finding.needs_key for finding in verdict.findings):
            return  # the receipts cannot be read
        redacted_ids = {event.id for event in verdict.redacted}
        made = query_sources(self._database, Sources.made, source)
        family = query_sources(self._database, Sources.family, source.root)
        for number in sorted({*source.redacted} - before):
            own = self._own_events(state, made.get(number))
            # A redaction makes the events of an import, but not the events of its relatives, which
            # have the same records.
            has_no_receipt = own.isdisjoint(redacted_ids) if own else number >= source.made
            if number < extent.records and has_no_receipt and (own or len(family) == 1):
                yield f"record {number} of its source was erased without a receipt"

    def _changes(
        self, state: Conversation, leaves: Sequence[Leaf], has_heads: bool
    ) -> Iterator[str]:
        """Compare stored heads, unless ``verify`` has found damage. ``verify`` has also found that
        the heads belong to the events, unless the key of the conversation is missing.
        """
        version, _ = state.end
        yield from self._changes_of_origin(state, leaves)
        newest_at = max((leaf.extent.recorded_at for leaf in leaves if leaf.extent), default=0)
        if state.erasure is not None and state.erasure.erased_at < newest_at:
            yield "its erasure is dated before its last event"
        for leaf in leaves:
            if leaf.erased or not leaf.version:
                if state.version == 0 and not self._has_first_head(state, leaf):
                    yield "the salt or the seed in its row was changed since the checkpoint"
                continue
            if leaf.version > version:
                had = count(leaf.version, "event")
                yield f"its end is cut off: it had {had} at the checkpoint, and has {version:,}"
            elif has_heads and not self._has_head(state, leaf):
                yield (
                    f"at version {leaf.version} its head differs from the checkpoint: its history"
                    " was rewritten"
                )

    def _changes_of_origin(self, state: Conversation, leaves: Sequence[Leaf]) -> Iterator[str]:
        """Compare when a conversation began, and from where a fork comes."""
        covered = [leaf.extent for leaf in leaves if leaf.extent is not None]
        if any(extent.created_at not in (0, state.created_at) for extent in covered):
            yield "the time when it began was changed since the checkpoint"
        # A fork may have copied its past, and a copy of a tombstone has no parent.
        extent = covered[-1] if covered else Extent(0)
        if state.erasure is None:
            is_comparable = state.parent is not None or state.version == 0
        else:
            is_comparable = leaves[-1].erased and not self.is_copy
        if not (extent.form and is_comparable):
            return
        now = Extent(0, **_origin_of_fork(state))
        if (now.parent, now.parent_version) != (extent.parent, extent.parent_version):
            had = f"shared {count(extent.parent_version, 'event')} with {extent.parent!r}"
            was = had if extent.parent else "was no fork"
            yield f"its parent differs from the checkpoint, at which it {was}"

    def _has_ledger(self, key: int, leaves: Sequence[Leaf]) -> bool:
        ledgers = self._recorder.query(lambda reader: {*_ledgers(reader, key)})
        return self.is_copy or ledgers.issuperset(leaf.ledger for leaf in leaves)

    def _has_first_head(self, state: Conversation, leaf: Leaf) -> bool:
        """Return whether the first event of an import without events will continue the chain that
        the leaf began.
        """
        if leaf.erased or leaf.head == _NOTHING or state.sealed_key is not None:
            return True
        return state.erasure is not None or first_head(state, state.salt) == leaf.head

    def _has_head(self, state: Conversation, leaf: Leaf) -> bool:
        if state.erasure is not None:  # the rows of earlier versions are gone
            return leaf.version < state.erasure.events or leaf.head == state.erasure.head

        def read(reader: Reader) -> Sequence[bytes]:
            last = leaf.version - 1
            if leaf.version < state.version and state.archived:
                archived = read_archived(state.id, address_of_object(reader, state.key))
                return [row.head for row, _ in archived if row.id == last]
            past = (one.key for one in state.lineage if leaf.version <= one.stop)
            *_, key = (state.key, *past)
            return [row.head for row in reader.rows(key, last, leaf.version, 1)]

        return leaf.head in self._recorder.query(read)

    def _redactions(self, state: Conversation, version: int) -> tuple[Redaction, ...]:
        if version >= state.version:
            return ()

        # Not ``Store.events``, because it restores an archived conversation.
        def read(reader: Reader) -> list[Row]:
            columns = reader.columns(state.key, version, state.version, state.version)
            ids = [event_id for event_id, kind, *_ in columns if kind == b"redaction"]
            return [row for n in ids for row in reader.rows(state.key, n, n + 1, 1)]

        rows = self._database.codec_of(state).decode_rows(self._recorder.query(read))
        events = (stored_event_of(state.id, row) for row in rows)
        return tuple(event for event in events if isinstance(event, Redaction))


def _covered(state: Conversation, leaf: Leaf) -> tuple[int, int] | None:
    records = 0 if leaf.extent is None else leaf.extent.records
    return (records, leaf.version) if records and state.version > leaf.version else None


def _copied(reader: Reader, state: Conversation) -> list[Row]:
    return [row for row in entries(reader, state.key) if row.kind == "redaction_copied"]


def _state_of(reader: Reader, verdict: Verdict) -> Conversation | None:
    newest = reader.conversation(verdict.conversation or "")
    if newest is None:
        return None
    return [*tombstones_before(reader, newest), newest][verdict.generation]


def _state_and_ledgers(reader: Reader, verdict: Verdict) -> tuple[Conversation | None, set[bytes]]:
    """Return a conversation, and the hashes of its ledger after each entry. One query costs less
    than two.
    """
    state = _state_of(reader, verdict)
    return state, set() if state is None else {*_ledgers(reader, state.key)}
