"""The rows of sources in one transaction: the imported file, its blocks, and the events that were
made from its records.

A source has the key of its conversation. A source may share its first records with another source,
its parent. Sources with the same root are a family. Several sources of a family may contain the
same record.

The index and the bytes of a block, and the texts about a source, are compressed. In an encrypted
conversation, the index, the bytes and the texts are encrypted with the conversation's key. The
encryption is bound to the column and the row, so a value that was moved elsewhere cannot be
decrypted.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple, Self, TypeVar, TypeVarTuple

import msgspec

from foldlog.eventstore.errors import CorruptEvent, KeyUnavailable, StoreDamaged
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.keys import DataKey
from foldlog.eventstore.log.row import NotAsWritten
from foldlog.eventstore.log.seal import ENCRYPTED
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import Conversation, as_text
from foldlog.eventstore.sources.blocks import (
    GENESIS,
    HASH_BYTES,
    AppendedIndex,
    Block,
    DamagedBlock,
    chain_head,
    cut_at,
    each_hash,
    join,
    pack,
    unpack,
    unpacked_appended,
    unpacked_index,
)

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

_DEFLATED: Final = 1
_APPENDED: Final = 16
"""The encoding of a block with an ``AppendedIndex``. The SQL queries contain this number as a
literal.
"""
_PAGE: Final = 8
"""The number of blocks that are read at once, about a megabyte."""
MADE: Final = 64
"""The number of records whose events are listed in one row of the table ``made``."""
_ROWS: Final = 4
"""The number of rows of the table ``made`` that one query for a place in it reads."""
_ASKED: Final = 1_000
"""The number of hashes or places that one query looks up."""
_ROOT: Final = 1
_PARENT: Final = 2
"""The columns of a row of the query ``source`` with the relations of a source."""
_numbers = struct.Struct(">2q").pack
TITLE: Final = "title"
"""The key of a title that a program stores outside of the records. An import replaces this title,
and the first redaction erases the title.
"""
TITLED: Final = "titled"
"""The key of the title that an import set as an attribute of the conversation."""
WHERE: Final = "where"
"""The key of the place in which a program worked, such as a folder and a branch."""
FRAME: Final = "frame"
"""The key of the text between the records of a document."""
REDACTED: Final = "redacted"
"""``Source.about`` has this key after a redaction has removed the title, and the texts that no
record contains. A later import must not store a title or such texts.
"""
ABOUT: Final = (b"about",)
"""The argument ``texts`` of a caller that reads ``Source.about``, but not ``Source.sums``."""
TEXTS: Final = (*ABOUT, b"sums")
"""The compressed columns of a source. Their values may be large."""
CONTINUED: Final = "continued"
"""The key of ``Continued`` in the source of a conversation that went on in another program."""
_SHARED: Final = (FRAME, "paths", REDACTED, CONTINUED)
"""The fields of ``Source.about`` that also hold for a fork: the text around the records, the
imported files, whether this text was removed, and the records that were handed over.
"""


class Continued(NamedTuple):
    """What a source contains of the history that goes on in it. Its first records were made from
    events that its conversation shares with its parent, so they have no events of their own.

    ``version``    the version of the conversation after the hand-over
    ``event_ids``  for each of these records, the ids of its events and summaries
    """

    version: int
    event_ids: Sequence[Sequence[int]]


class Source(NamedTuple):
    """The row of a stored source, without its blocks and events.

    ``conversation``: the key of the conversation.
    ``root``: the key of the first source of the family.
    ``parent``: the key of the source that shares the records below ``from_record``.
    ``records``: the number of records, including shared records.
    ``made``: the number of records that have events.
    ``format``: the name of the format.
    ``reader``: the version of the decoder that made the events.
    ``head``: the end of the chain of the records' hashes.
    ``fingerprint``: after an erasure, an import with this fingerprint is refused.
    ``redacted``: the numbers of the source's own redacted records, without shared records. The
    store keeps only the skeleton of a redacted record. A damaged list may name records that the
    source does not have.
    ``about``: JSON with the origin of the source, and with the data of the file that belong to no
    record.
    ``sums``: sums over the records. Until all records have events, foldlog computes the figures of
    the conversation from these sums. An import that adds records updates the sums.
    """

    conversation: int
    root: int
    parent: int | None
    from_record: int
    records: int
    made: int
    format: str
    reader: int
    head: bytes
    fingerprint: bytes
    redacted: tuple[int, ...] = ()
    about: bytes = b""
    sums: bytes = b""


class Place(NamedTuple):
    """The state of a place, such as a file, at its last import. At that import, the first ``taken``
    bytes of the file contained the first ``records`` records of ``conversation``. ``seen`` is the
    time of the import, ``state`` is the state of the file, and ``digest`` is a hash of the bytes.
    """

    conversation: int
    seen: int
    records: int
    taken: int
    state: bytes
    digest: bytes


Made = Mapping[int, tuple[int, int]]
"""Maps the number of a record to the id of its first event and the number of its events."""


class Near(NamedTuple):
    """The events of some consecutive records, with ids from ``start`` to ``stop``."""

    start: int
    stop: int
    made: dict[int, tuple[int, int]]


class Sources:
    """Reads the sources of imported conversations, and their records."""

    def __init__(
        self, database: Database, reader: Reader, keys: Mapping[int, DataKey | None] | None = None
    ) -> None:
        """``keys`` maps conversations to data keys, which are used instead of the stored keys."""
        self.database = database
        self.reader = reader
        self._keys: dict[int, DataKey | None] = dict(keys or {})

    def find_by_key(self, conversation: int, *, texts: Sequence[bytes] = TEXTS) -> Source | None:
        """Return the source of the conversation with the key ``conversation``, or None. ``texts``
        is a beginning of ``TEXTS``. The other texts stay empty, which is faster.
        """
        rows = self.reader.ask("source", conversation)
        return self._source(rows[0], texts) if rows else None

    def of(self, conversation: str) -> Source | None:
        """Return the source of the conversation with the id ``conversation``: see ``of_state``."""
        return self.of_state(self.find(conversation))

    def find(self, conversation: str) -> Conversation | None:
        """Return the row of a conversation, without making events of its source."""
        return self.database.find(self.reader, conversation, as_stored=True)

    def of_state(self, conversation: Conversation | None) -> Source | None:
        """Return the source of a conversation. If a fork has no row in ``sources``, return the
        records that it shares, as a source with an empty ``head``.
        """
        owner = conversation
        stop = sys.maxsize
        while owner is not None and owner.erasure is None:
            source = self.find_by_key(owner.key)
            if source is not None and owner is conversation:
                return source
            if source is not None and conversation is not None:
                return self._shared(source, stop, conversation)
            if owner.parent is None:
                return None
            stop = min(stop, owner.begins)
            owner = self.reader.conversation(owner.parent)
        return None

    def family(self, root: int, *, texts: Sequence[bytes] = TEXTS) -> list[Source]:
        """Return the sources with a root, the oldest first. ``texts`` is as in ``find_by_key``."""
        # The source of an erased conversation may not be deleted yet, and its key is gone.
        keys = sorted(key for (key,) in self.reader.ask_all("family", root))
        family = (self.find_by_key(key, texts=texts) for key in keys)
        return [source for source in family if source is not None]

    def sharing(self, conversation: int) -> tuple[int, list[int]]:
        """Return the root of the source of a conversation, and the keys of the sources whose parent
        it is. Without a source, both are empty. Only the family's relations are read, so a source
        with a damaged list of redacted records is found too.
        """
        rows = self.reader.ask("source", conversation)
        if not rows:
            return 0, []
        root = rows[0][_ROOT]
        family = [key for (key,) in self.reader.ask_all("family", root)]
        sources = (row for key in family for row in self.reader.ask("source", key))
        return root, [row[0] for row in sources if row[_PARENT] == conversation]

    def all(self, after: int = 0, limit: int = 500) -> list[Source]:
        """Return at most ``limit`` sources whose keys are above ``after``, in order."""
        rows = sorted(self.reader.ask_all("sources", after, limit), key=itemgetter(0))
        return [self._source(columns) for columns in rows[:limit]]

    def abouts(
        self, decode: Callable[[bytes], T], damaged: dict[str, CorruptEvent]
    ) -> Iterator[tuple[str, str, T]]:
        """Yield the id, the format and the decoded ``Source.about`` of every conversation with a
        source, from the oldest to the newest conversation of each of several joined stores. An
        encrypted source is left out if its key is missing. A damaged source is left out too, and
        its error is added to ``damaged`` under the id of its conversation.
        """
        for name, key, encoding, format, stored in self.reader.ask_all("abouts"):
            try:
                opened = self._opened(key, encoding, b"about", 0, stored)
                (about,) = self._unpacked(key, [opened])
                # A source that a runtime recorded has no stored fields.
                fields = decode(about or b"{}")
            except KeyUnavailable:
                continue
            except CorruptEvent as error:
                damaged[as_text(name)] = error
                continue
            except (msgspec.DecodeError, RecursionError) as error:
                damaged[as_text(name)] = self._corrupt(key, 0, error)
                continue
            yield as_text(name), as_text(format), fields

    def name_of(self, conversation: int) -> str:
        """Return the id of the conversation with a key, or an empty text if there is none."""
        state = self.reader.conversation(conversation)
        return "" if state is None else state.id

    # -- blocks

    def blocks(self, source: Source, start: int = 0) -> Iterator[Block]:
        """Yield the blocks from record ``start`` on. Blocks that the source shares with its parent
        come first. The last shared block is cut at ``from_record``.
        """
        if start < source.from_record:
            parent = self.parent_of(source)
            if parent is not None:
                yield from cut_at(self.blocks(parent, start), source.from_record)
                # The source may have copied these records since ``source`` was read.
                start = source.from_record
        yield from self.own_blocks(source, start)

    def own_blocks(
        self, source: Source, start: int = 0, is_wanted: Callable[[bytes], bool] = lambda raw: True
    ) -> Iterator[Block]:
        """Yield the source's own blocks from record ``start`` on. If ``is_wanted`` is passed, yield
        only blocks whose bytes it accepts.
        """
        key = source.conversation
        is_last = False
        while not is_last:
            page = self.reader.ask("blocks", key, start, _PAGE)
            is_last = len(page) < _PAGE
            for first, count, encoding, index, body in page:
                start = first + count
                raw = self._raw(key, first, encoding, body)
                if is_wanted(raw):
                    places, hashes = self._index(key, first, count, encoding, index)[:2]
                    yield Block(first, places, hashes, raw)

    def blocks_back(self, source: Source, number: int, count: int) -> list[Block]:
        """Return the last ``count`` blocks up to the block with record ``number``, in their order.
        All blocks are from one source, so there may be fewer than ``count``.
        """
        if number < source.from_record:
            parent = self.parent_of(source)
            blocks = [] if parent is None else self.blocks_back(parent, number, count)
            return [*cut_at(blocks, source.from_record)]
        key = source.conversation
        blocks = []
        for first, length, encoding, index, body in self.reader.ask(
            "blocks_back", key, number, count
        ):
            places, hashes = self._index(key, first, length, encoding, index)[:2]
            blocks.append(Block(first, places, hashes, self._raw(key, first, encoding, body)))
        return blocks[::-1]

    def hashes(self, source: Source) -> bytes:
        """Return the hashes of all records one after another, including shared records."""
        shared = b""
        parent = self.parent_of(source)
        if parent is not None:
            shared = self.hashes(parent)[: source.from_record * HASH_BYTES]
        return b"".join([shared, *(hashes for _, hashes in self.indexes(source))])

    def as_row(self, source: Source) -> Source:
        """Return a source of ``of_state`` in the form of a row in ``sources``. Cost: for a fork
        without a row, reading the hashes of the shared records.
        """
        if source.head:
            return source
        head = chain_head(GENESIS, self.hashes(source))
        fields = msgspec.json.decode(source.about or b"{}")
        shared = {name: fields[name] for name in _SHARED if name in fields}
        about = msgspec.json.encode(shared) if shared else b""
        return source._replace(head=head, about=about, sums=b"")

    def parent_of(self, source: Source) -> Source | None:
        """Return the parent of a source, without its texts, or None."""
        return None if source.parent is None else self.find_by_key(source.parent, texts=())

    def indexes(self, source: Source) -> Iterator[tuple[int, bytes]]:
        """Yield the number of the first record of each own block, and the hashes of its records."""
        key = source.conversation
        for first, count, encoding, index in self.reader.ask("block_indexes", key):
            yield first, self._index(key, first, count, encoding, index).hashes

    def all_redacted(self, source: Source) -> set[int]:
        """Return the numbers of all redacted records, including shared records."""
        numbers = set(source.redacted)
        parent = self.parent_of(source)
        if parent is not None:
            shared = self.all_redacted(parent)
            numbers |= {number for number in shared if number < source.from_record}
        return numbers

    def redacted_hashes(self, root: int) -> set[bytes]:
        """Return the hashes of the family's redacted records. An import stores only the skeletons
        of records with these hashes.
        """
        redacted = set[bytes]()
        for source in self.family(root, texts=()):
            if not source.redacted:
                continue
            numbers = set(source.redacted)
            for first, hashes in self.indexes(source):
                for number, record_hash in enumerate(each_hash(hashes), first):
                    if number in numbers:
                        redacted.add(record_hash)
        return redacted

    # -- events of records

    def made(self, source: Source) -> dict[int, tuple[int, int]]:
        """Return the events of all records, including shared records: see ``Made``."""
        made: dict[int, tuple[int, int]] = {}
        parent = self.parent_of(source)
        if parent is not None:
            shared = self.made(parent)
            made = {number: shared[number] for number in shared if number < source.from_record}
        rows = self.reader.ask("made", source.conversation)
        in_rows, in_blocks = self._made_in(source.conversation, rows)
        return made | in_rows | in_blocks

    def made_near(self, source: Source, event_id: int) -> Near:
        """Return the events of some records, beginning with the record that made the event
        ``event_id``. Records that the source shares with its parent are included.
        """
        key = source.conversation
        rows = self.reader.ask("made_near", key, event_id, _ROWS)
        in_rows, in_blocks = self._made_in(key, rows)
        first_in_blocks = min((first for first, _ in in_blocks.values()), default=sys.maxsize)
        if first_in_blocks <= event_id:
            return Near(first_in_blocks, sys.maxsize, in_blocks)
        first = min((first for first, _ in in_rows.values()), default=first_in_blocks)
        if first <= event_id:
            is_full_page = sum(encoding is None for _, _, encoding, _ in rows) == _ROWS
            if is_full_page:
                last_id, count = in_rows[max(in_rows)]
                return Near(first, last_id + count, in_rows)
            return Near(first, sys.maxsize, in_rows | in_blocks)
        parent = self.parent_of(source)
        if parent is None:
            return Near(0, first, {})
        near = self.made_near(parent, event_id)
        shared = {number: near.made[number] for number in near.made if number < source.from_record}
        return Near(near.start, min(near.stop, first), shared)

    def made_since(self, source: Source, record: int) -> dict[int, tuple[int, int]]:
        """Return the events of the records from ``record`` on, and of some records before it."""
        near = self.made_near(source, sys.maxsize)
        made = near.made
        while near.start and min(made, default=record + 1) > record:
            near = self.made_near(source, near.start - 1)
            made = near.made | made
        return made

    def end_of_made(self, source: Source, *, default: int) -> int:
        """Return the version after the last event that was made from a record."""
        near = self.made_near(source, sys.maxsize)
        while not near.made and near.start:
            near = self.made_near(source, near.start - 1)
        return max((first + count for first, count in near.made.values()), default=default)

    def records_before(self, source: Source, version: int) -> int:
        """Return the number of records that were complete at a version. A record is complete if all
        its events have ids below the version.
        """
        # Go back record by record, because the last records may have events after the version.
        while version:
            near = self.made_near(source, version - 1)
            complete = (
                number for number, (first, count) in near.made.items() if first + count <= version
            )
            last = max(complete, default=-1)
            if last >= 0:
                return last + 1
            version = near.start
        return 0

    def _made_in(
        self, conversation: int, rows: Iterable[Sequence[Any]]
    ) -> tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]]:
        """Return the events of records in two maps: from rows of the table ``made``, and from
        appended blocks.
        """
        in_rows: dict[int, tuple[int, int]] = {}
        in_blocks: dict[int, tuple[int, int]] = {}
        for first, count, encoding, data in rows:
            if encoding is not None:
                in_blocks |= self._index(conversation, first, count, encoding, data).made
                continue
            (unpacked,) = self._unpacked(conversation, [data])
            try:
                numbers = array("I", unpacked)
                events = zip(numbers[1::3], numbers[2::3], strict=True)
                in_rows.update(zip(numbers[::3], events, strict=True))
            except ValueError as error:  # numbers that no version of foldlog wrote
                raise self._corrupt(conversation, first, error) from error
        return in_rows, in_blocks

    # -- places

    def places(self, place: bytes) -> list[Place]:
        """Return the imports of a place into its conversations, the oldest first."""
        places = [Place(*columns) for columns in self.reader.ask_all("places", place)]
        return sorted(places, key=attrgetter("seen"))

    def places_among(self, places: Iterable[bytes]) -> dict[bytes, list[Place]]:
        """Return the imports of each of these places that has any, the oldest first. Cost: one
        query for 1,000 places.
        """
        remaining = iter(places)
        imports = dict[bytes, list[Place]]()
        while page := b"".join(islice(remaining, _ASKED)):
            for place, *columns in self.reader.ask_all("places_among", page):
                imports.setdefault(place, []).append(Place(*columns))
        for of_place in imports.values():
            of_place.sort(key=attrgetter("seen"))
        return imports

    def places_of(self, conversation: int) -> list[tuple[bytes, Place]]:
        rows = self.reader.ask("places_of", conversation)
        return [(place, Place(conversation, *columns)) for place, *columns in rows]

    def is_refused(self, fingerprint: bytes) -> bool:
        return bool(self.refused_among([fingerprint]))

    def refuses_any(self) -> bool:
        """Return whether the store refuses any record."""
        return bool(self.reader.ask_all("first_refused"))

    def refused_of(self, conversation: int) -> list[bytes]:
        return [fingerprint for (fingerprint,) in self.reader.ask("refused_of", conversation)]

    def refused_among(self, hashes: Iterable[bytes]) -> dict[bytes, bool]:
        """Return the refused hashes. Map each hash to whether this store refuses it by its own
        decision, and not only because a copied store does.
        """
        remaining = iter(hashes)
        refused = dict[bytes, bool]()
        while page := b"".join(islice(remaining, _ASKED)):
            for fingerprint, own in self.reader.ask_all("refused_among", page):
                refused[fingerprint] = refused.get(fingerprint, False) or bool(own)
        return refused

    def find_returning(self, root: int | None, refused: Iterable[bytes]) -> dict[bytes, bool]:
        """Return the hashes in ``refused`` that a new record would bring back to the family of
        ``root``. Map each hash to whether the family redacted a record with this hash. A hash is
        left out if the family has a record with this hash, and has not redacted it.
        """
        family = [] if root is None else self.family(root, texts=())
        redacted = set() if root is None else self.redacted_hashes(root)
        shown = {shown_hash for source in family for shown_hash in each_hash(self.hashes(source))}
        return {
            record_hash: record_hash in redacted
            for record_hash in refused
            if record_hash in redacted or record_hash not in shown
        }

    # -- steps

    def _shared(self, source: Source, version: int, fork: Conversation) -> Source:
        """Return the part of a source that a fork at ``version`` shares, as the fork's own."""
        # Computing the head would read the hashes of all shared records, so the head stays empty.
        records = self.records_before(source, version)
        return source._replace(
            conversation=fork.key,
            parent=source.conversation,
            from_record=records,
            records=records,
            made=records,
            head=b"",
            redacted=(),
        )

    def _source(self, columns: Sequence[Any], texts: Sequence[bytes] = TEXTS) -> Source:
        """Return the source in a row of the database. Texts not in ``texts`` stay empty."""
        (
            key,
            root,
            parent,
            from_record,
            records,
            made,
            format,
            reader,
            encoding,
            head,
            fingerprint,
            redacted,
            about,
            sums,
            first_appended,
            appended,
            appended_encoding,
            appended_index,
        ) = columns
        numbers = array("I")
        if len(redacted) % numbers.itemsize:
            raise StoreDamaged(
                f"the list of the redacted records of conversation number {key} is damaged; restore"
                " the store from a backup"
            )
        numbers.frombytes(redacted)
        if first_appended is not None:
            records = made = first_appended + appended
            index = self._index(key, first_appended, appended, appended_encoding, appended_index)
            head = index.head
        opened = [
            self._opened(key, encoding, name, 0, data)
            for name, data in zip(texts, (about, sums), strict=False)
        ]
        return Source(
            key,
            root,
            parent,
            from_record,
            records,
            made,
            as_text(format),
            reader,
            head,
            fingerprint,
            tuple(numbers),
            *self._unpacked(key, opened),
        )

    def _key(self, conversation: int) -> DataKey | None:
        if conversation not in self._keys:
            state = self.database.find_key(self.reader, conversation)
            self._keys[conversation] = (
                None if state is None else self.database.codec_of(state).data_key
            )
        return self._keys[conversation]

    def _index(
        self, conversation: int, first: int, count: int, encoding: int, data: bytes
    ) -> AppendedIndex:
        """Return the index of a block. Raises ``CorruptEvent`` if it is damaged."""
        index = self._opened(conversation, encoding, b"places", first, data)
        try:
            if encoding & _APPENDED:
                return unpacked_appended(first, count, index)
            return AppendedIndex(*unpacked_index(count, index), {}, b"")
        except DamagedBlock as error:
            raise self._corrupt(conversation, first, error) from error

    def _opened(
        self, conversation: int, encoding: int, column: bytes, first: int, data: bytes
    ) -> bytes:
        """Return decrypted data of a source. Raises ``CorruptEvent`` if it is not as written."""
        if not encoding & ENCRYPTED:
            return data
        key = self._key(conversation)
        try:
            if key is None:
                raise NotAsWritten("the source is encrypted, and its conversation has no key")
            return key.decrypt(data, _associated_data(column, conversation, first))
        except NotAsWritten as error:
            raise self._corrupt(conversation, first, error) from error

    def _raw(self, conversation: int, first: int, encoding: int, body: bytes) -> bytes:
        opened = self._opened(conversation, encoding, b"body", first, body)
        (raw,) = self._unpacked(conversation, [opened], first)
        return raw

    def _unpacked(self, conversation: int, packed: Iterable[bytes], first: int = 0) -> list[bytes]:
        try:
            return [unpack(data) for data in packed]
        except DamagedBlock as error:
            raise self._corrupt(conversation, first, error) from error

    def _corrupt(self, conversation: int, first: int, error: Exception) -> CorruptEvent:
        name = self.name_of(conversation)
        return CorruptEvent(
            name, 0, f"the records of the source from {first} on cannot be read: {error}"
        )


def query_sources(
    database: Database, work: Callable[[Sources, *Arguments], T], *arguments: *Arguments
) -> T:
    """Run ``work`` with the sources and the arguments in a read transaction."""
    return database.recorder.query(lambda reader: work(Sources(database, reader), *arguments))


class SourcesToWrite(Sources):
    """Reads and changes the sources of imported conversations in one transaction."""

    reader: Transaction

    @classmethod
    def beside(cls, writing: WriteTransaction) -> Self:
        return cls(
            writing.database, writing.transaction, keys={writing.state.key: writing.data_key}
        )

    def settle(self, conversation: int) -> Source | None:
        """Move the data that is stored with appended blocks (``AppendedIndex``) to the row of the
        source and to the table of made events. Return the source of the conversation with the key
        ``conversation``, or None if the conversation was not imported.

        Every change of a source or its blocks begins with ``settle``. Without ``settle``, the
        changed row or block would contradict the appended blocks.
        """
        rows = self.reader.ask("made_near", conversation, sys.maxsize, 1)
        last_row, in_blocks = self._made_in(conversation, rows)
        source = self.find_by_key(conversation)
        if in_blocks and source is not None:
            self._fill_made(source, last_row, in_blocks)
            self.set_progress(source, source.records, source.made, source.head)
        return source

    def settle_shared(self, conversation: Conversation) -> Source | None:
        """Call ``settle``. If a fork has no row in ``sources``, first store its row."""
        source = self.of_state(conversation)
        if source is not None and not source.head:
            self.put(self.as_row(source))
        return self.settle(conversation.key)

    def settle_family(self, root: int) -> list[Source]:
        """Call ``settle`` for all sources of a family, and return the family."""
        family = self.family(root)
        for source in family:
            self.settle(source.conversation)
        return family

    def put(self, source: Source) -> None:
        """Write the row of a source, with all its fields."""
        key = source.conversation
        texts = (source.about, source.sums)
        names = (b"about", b"sums")
        packed = [pack(text) for text in texts]
        sealed = [
            self._sealed(key, name, 0, data) for name, data in zip(names, packed, strict=True)
        ]
        redacted = array("I", source.redacted).tobytes()
        # The sums may have many megabytes, and the database copies them, so free the plain texts
        # first.
        source = source._replace(about=b"", sums=b"")
        del texts
        self.reader.write(
            "put_source",
            *source[:8],
            self._encoding(key),
            source.head,
            source.fingerprint,
            redacted,
            *sealed,
        )

    def set_progress(self, source: Source, records: int, made: int, head: bytes) -> None:
        """Write how many records a source has, how many of them have events, and its head."""
        self.reader.write("set_progress", source.conversation, records, made, head)

    def put_blocks(self, source: Source, blocks: Iterable[Block]) -> None:
        for block in blocks:
            self._put_block(source.conversation, block, *block.packed())

    def append_block(self, conversation: int, block: Block, made: Made, head: bytes) -> None:
        """Store a block together with the events of its records and the head after it, which a
        later ``settle`` moves to the row of the source and to the table of made events.
        """
        index = AppendedIndex(block.places, block.hashes, made, head).packed()
        self._put_block(conversation, block, index, pack(block.raw), _APPENDED)

    def _put_block(self, key: int, block: Block, index: bytes, body: bytes, form: int = 0) -> None:
        """Write a block with its index, compressed and encrypted."""
        self.reader.write(
            "put_block",
            key,
            block.first,
            block.stop - block.first,
            self._encoding(key) | form,
            self._sealed(key, b"places", block.first, index),
            self._sealed(key, b"body", block.first, body),
        )

    def delete_blocks(self, conversation: int, start: int, stop: int) -> None:
        self.reader.write("delete_blocks_between", conversation, start, stop)

    def join_blocks(self, source: Source, blocks: Sequence[Block], whole: Block) -> None:
        """Replace consecutive blocks by one block with the same records."""
        self.delete_blocks(source.conversation, blocks[0].first, blocks[-1].stop)
        self.put_blocks(source, [whole])

    def join_last(self, source: Source, first: int) -> None:
        """Join the source's own blocks from record ``first`` on."""
        blocks = list(self.own_blocks(source, first))
        self.join_blocks(source, blocks, join(blocks))

    def leave_parent(self, source: Source) -> Source:
        """Copy the shared records to the source itself, so that it needs its parent no longer.
        Return the changed source.
        """
        blocks = [*cut_at(self.blocks(source), source.from_record)]
        made = {
            number: events
            for number, events in self.made(source).items()
            if number < source.from_record
        }
        redacted = self.all_redacted(source)
        detached = source._replace(parent=None, from_record=0, redacted=tuple(sorted(redacted)))
        self.put_blocks(detached, blocks)
        self.put_made(detached, made)
        self.put(detached)
        return detached

    def add_made(self, source: Source, made: Made) -> None:
        """Store the events of new records. Fill the last row first. ``source`` is as stored."""
        last_row: Made = {}
        if source.made:
            rows = self.reader.ask("made_near", source.conversation, sys.maxsize, 1)
            last_row, _ = self._made_in(source.conversation, rows)
        self._fill_made(source, last_row, made)

    def _fill_made(self, source: Source, last_row: Made, made: Made) -> None:
        self.put_made(source, {**last_row, **made} if len(last_row) < MADE else made)

    def put_made(self, source: Source, made: Made) -> None:
        """Store the events of records, in rows of ``MADE`` records. A row replaces the stored row
        with the same first event.
        """
        remaining = iter(made.items())
        while page := [*islice(remaining, MADE)]:
            numbers = array("I")
            for number, (first, count) in page:
                numbers.extend((number, first, count))
            _, (first_event, _) = page[0]
            self.reader.write("put_made", source.conversation, first_event, pack(numbers.tobytes()))

    def put_place(self, place: bytes, state: Place) -> None:
        self.reader.write("put_place", state.conversation, place, *state[1:])

    def refuse(self, conversation: int, fingerprints: Iterable[bytes], *, own: bool) -> None:
        """Make later imports refuse the fingerprints. A fingerprint is the hash of a redacted
        record, or comes from a copied tombstone. ``own`` is False if another store decided this,
        and the fingerprints came with a copy.
        """
        for fingerprint in fingerprints:
            self.reader.write("put_refused", conversation, fingerprint, own)

    def allow(self, fingerprint: bytes) -> None:
        self.reader.write_all("allow", fingerprint)

    def _encoding(self, conversation: int) -> int:
        if self._key(conversation) is None:
            return _DEFLATED
        return _DEFLATED | ENCRYPTED

    def _sealed(self, conversation: int, column: bytes, first: int, data: bytes) -> bytes:
        key = self._key(conversation)
        if key is None:
            return data
        return key.encrypt(data, _associated_data(column, conversation, first))


def _associated_data(column: bytes, conversation: int, first: int) -> bytes:
    return b"source\0%b\0%b" % (column, _numbers(conversation, first))
