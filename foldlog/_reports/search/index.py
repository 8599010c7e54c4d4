"""An index of words, which a store may have. It says which events may contain the words of a
search, and the search then reads only these events.

A *doc* is up to 16 consecutive events of a conversation, or records of its source without events. A
*segment* has up to 128 docs, and for each hash of their words the docs that have the word. A *part*
is 4 of the 16 events of a doc. For each pair of neighbouring words, a segment has the parts that
may have the pair. Segments are in the store (``make_search_docs`` in ``queries.sql``).

Appends do not write the index, because it would take as long as the append: ``refresh`` adds the
new events. A search reads the events that the index lacks. When the content of a conversation is
redacted, erased or encrypted, a trigger of the database removes the words of its segments in the
same transaction.

See docs/internals/decisions/0101-search-index.md.
"""

from __future__ import annotations

import json
import os
import zlib
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, islice
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeVar

from foldlog._reports.search.words import (
    hashes_of,
    hashes_to_find,
    pairs_of,
    pairs_to_find,
    words_in,
)
from foldlog._reports.words.texts import text_of
from foldlog.eventstore import (
    CorruptEvent,
    Event,
    KeyUnavailable,
    Store,
    StoreDamaged,
    StoreRefused,
)
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.redacted import has_content
from foldlog.eventstore.log.row import dense_events
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.statements import statements
from foldlog.eventstore.recorders.types import as_text
from foldlog.eventstore.sources.tables import Source, Sources

T = TypeVar("T")

FACT: Final = "search_index"
"""The name of the store's fact. Its value is ``_PLAIN``, or ``_ALL`` if the index also has the
words of encrypted conversations, or an empty text if there is no index. An index of another form
counts as none.
"""
_PLAIN: Final = "plain 5"
_ALL: Final = "all 5"
_EVENTS_IN_DOC: Final = 16
_PARTS: Final = 4
_EVENTS_IN_PART: Final = _EVENTS_IN_DOC // _PARTS
_ALL_PARTS: Final = (1 << _PARTS) - 1
_DOCS: Final = 128
"""The maximum number of docs in a segment."""
_DOC_BITS: Final = 7
_BUCKETS: Final = 256
_BUCKET_BITS: Final = 8
_PAIR_BUCKETS: Final = 128
"""The rows of pairs have the buckets behind the buckets of words."""
_PART_BITS: Final = 7
_IN_BUCKET: Final = (1 << _PART_BITS) - 1
"""A bucket has 128 pairs."""
_FAR: Final = 255
_PAGE: Final = 1_024
"""The number of events that are read at once."""
_AT_ONCE: Final = 512
"""The number of conversations whose state is read at once."""
_HASHES_MAX: Final = 3
"""A search looks up at most this number of words. The events that it reads have to contain all."""
_PAIRS_MAX: Final = 4
"""A search looks up at most this number of pairs, and only if more than ``_FEW_DOCS`` docs have the
words.
"""
_FEW_DOCS: Final = 2_000
"""If more docs, or 4 parts for each, have the words, the search takes the conversations in their
order, because the first conversations then have enough hits.
"""
_NEAR: Final = 8
"""To read so many events in between takes less time than a second read."""
_LAST: Final = 2**63 - 1
"""A position behind all events."""
_MANY: Final = 20_000
"""A search reads so many events in about a second."""
_FEW_UNPLACED: Final = 1_000
"""If the order of more conversations is not in the index, a search finds the order of all."""
_SAMPLE: Final = 4_000
"""A word is frequent if a quarter of so many docs has it."""
_OF_DOCS: Final = 0.25
_OF_DOCS_WITH_PAIR: Final = 0.75
"""A pair that more docs have is not looked up."""


Range = tuple[int, int | None]
"""The first event, and the event after the last one, or None for all later events."""


class Docs(NamedTuple):
    """The docs that have the words of a search.

    ``found``     a bit for each part of each doc, by their segments
    ``segments``  the segments in which words were looked up
    ``counts``    the number of docs of each segment that takes further docs
    """

    found: Mapping[int, int]
    segments: Collection[int] = ()
    counts: Mapping[int, int] = {}

    @property
    def are_few(self) -> bool:
        return sum(map(int.bit_count, self.found.values())) <= _FEW_DOCS * _PARTS

    def parts(self, segment: int, doc: int) -> int:
        """Return a bit for each part of a doc that may have the words. A doc that was added after
        the search has begun may have any words.
        """
        if segment not in self.segments or doc >= self.counts.get(segment, _DOCS):
            return _ALL_PARTS
        return self.found.get(segment, 0) >> doc * _PARTS & _ALL_PARTS


class Candidates(NamedTuple):
    """The conversations that may have hits.

    ``keys``    the keys of these conversations, or None for all conversations
    ``ranges``  the events to search, by the key of the conversation. A conversation that is not in
                ``ranges`` is searched completely.
    ``docs``    the docs that have the words, if ``keys`` is None: see ``ranges_of``. None if the
                words are in most docs.
    ``pairs``   pairs of words that were not looked up, because the words are in most docs: see
                ``ranges_of`` and ``look_up_pairs``
    """

    keys: frozenset[int] | None
    ranges: dict[int, list[Range]]
    docs: Docs | None = None
    pairs: Sequence[int] = ()


class IndexState(NamedTuple):
    """The state of a store's index.

    ``is_made``         whether the store has an index
    ``with_encrypted``  whether encrypted conversations are in the index
    ``until``           for each store, the position up to which events are in the index, or None
                        until ``refresh`` has read all conversations once
    """

    is_made: bool
    with_encrypted: bool = False
    until: Mapping[int, int | None] = {}

    @property
    def is_complete(self) -> bool:
        return self.is_made and None not in self.until.values()


class _Doc(NamedTuple):
    """The hashes of words of some consecutive events of a conversation, or of records of its source
    if ``of_records`` is 1. ``conversation`` is a key. ``pairs`` are the pairs of each part.
    """

    conversation: int
    of_records: int
    first: int
    stop: int
    hashes: set[int]
    pairs: list[set[int]]


class _Place(NamedTuple):
    """Events of a conversation, or records of its source if ``of_records`` is 1, from ``first`` to
    before ``stop``.
    """

    of_records: int
    first: int
    stop: int


class _Versions(NamedTuple):
    """What the index compares before it writes. ``is_there`` is false for an erased or archived
    conversation. ``events`` and ``records`` are the numbers of events and of records that are in
    docs.
    """

    key: int
    id: str
    is_there: bool
    is_encrypted: bool
    redactions: int
    parent: int
    source_records: int
    redacted_records: bytes
    events: int
    records: int


class IndexInfo(NamedTuple):
    """What an administrator wants to know about an index.

    ``is_complete``     whether searches use the index
    ``with_encrypted``  whether encrypted conversations are in the index
    ``events_left``     the number of events after those in the index, which each search reads
    ``unread``          the number of other conversations that each search reads, because they are
                        encrypted or have changed
    ``bytes``           the size on disk; an estimate in SQLite
    """

    is_complete: bool
    with_encrypted: bool
    events_left: int
    unread: int
    bytes: int


def info(store: Store) -> IndexInfo | None:
    """Return the state of the store's index, or None if there is none. Cost: the index is read."""
    return store.database.recorder.query(_read_info)


def _read_info(reader: Reader) -> IndexInfo | None:
    """Return what the index of the store has and lacks, or None if the store has no index."""
    state = state_of(reader)
    if not state.is_made:
        return None
    lags = reader.ask_all("search_lag")  # a row for each store
    events_left = sum(events for events, _ in lags)
    unread = sum(conversations for _, conversations in lags)
    size = sum(size for (size,) in reader.ask_all("search_bytes"))
    return IndexInfo(state.is_complete, state.with_encrypted, events_left, unread, size)


def state_of(reader: Reader) -> IndexState:
    """Return the state of the store's index."""
    value = reader.value(FACT)
    if value not in (_PLAIN, _ALL):
        return IndexState(is_made=False)
    until = {number: position for number, position, _ in reader.ask_all("search_state")}
    return IndexState(True, value == _ALL, until)


def make(store: Store, *, with_encrypted: bool = False) -> None:
    """Make an empty index, or make the index again. ``refresh`` then fills it. Raises
    ``StoreRefused`` on Citus.
    """
    if store.database.recorder.on_citus:
        raise StoreRefused(
            "a search index needs triggers, which Citus does not support on the tables of a store;"
            " without an index, search reads every event",
            kind="refused",
        )
    count = store.database.recorder.store_count

    def work(transaction: Transaction) -> None:
        _run_all(store, transaction, "drop_search_")
        _run_all(store, transaction, "make_search_")
        transaction.write_all("all_to_search")
        for number in range(count):
            transaction.write("put_search_state", number, _new_segment(number, count))
        transaction.set_value(FACT, _ALL if with_encrypted else _PLAIN)

    store.database.recorder.transact(work)


def make_if_missing(store: Store) -> None:
    """Make an empty index, if the store has none."""
    if not store.database.recorder.query(state_of).is_made:
        make(store)


def is_missed(store: Store) -> bool:
    """Return whether searches would be much faster with an index, and the store could have one, but
    has none.
    """
    recorder = store.database.recorder
    if recorder.on_citus or recorder.query(state_of).is_made:
        return False
    # Is there an event behind so many others?
    return bool(recorder.query(lambda reader: reader.ask_all("event_behind", 0, _LAST, _MANY)))


def drop(store: Store) -> None:
    """Remove the index. Its words are gone as the words of erased events are: see ``vacuum``."""

    def work(transaction: Transaction) -> None:
        _run_all(store, transaction, "drop_search_")
        transaction.set_value(FACT, "")

    store.database.recorder.transact(work)


def _run_all(store: Store, transaction: Transaction, prefix: str) -> None:
    """Run all statements of ``queries.sql`` whose names begin with ``prefix``."""
    dialect = "postgresql" if store.database.recorder.on_server else "sqlite"
    for name in statements(dialect):
        if name.startswith(prefix):
            transaction.write_all(name)


def _new_segment(number: int, count: int) -> int:
    """Return a random number for a segment of the store ``number`` of ``count`` stores. It names
    its store, as the key of a conversation does.
    """
    return int.from_bytes(os.urandom(6)) * count + number


# -- looking words up


def candidates(reader: Reader, terms: Sequence[str]) -> Candidates | None:
    """Return the conversations that may have events with all terms. Return None if the store has no
    complete index. All events that are not in the index are among the candidates.
    """
    if not state_of(reader).is_complete:
        return None
    docs = _docs_with_all(reader, hashes_to_find(terms)[:_HASHES_MAX])
    pairs = pairs_to_find(terms)[:_PAIRS_MAX]
    if docs is None:
        return Candidates(None, {}, pairs=pairs)
    return _candidates_in(reader, _docs_with_pairs(reader, docs, pairs))


def look_up_pairs(reader: Reader, pairs: Sequence[int]) -> Candidates:
    """Return the conversations that may have events with all of some pairs."""
    return _candidates_in(reader, _docs_with_pairs(reader, None, pairs))


def _docs_with_pairs(reader: Reader, docs: Docs | None, pairs: Sequence[int]) -> Docs | None:
    """Return those of ``docs`` that may have all pairs. None stands for all docs."""
    for pair in pairs:
        if docs is not None and docs.are_few:
            break
        docs = _in_both(docs, _docs_with_pair(reader, pair))
    return docs


def _candidates_in(reader: Reader, docs: Docs | None) -> Candidates:
    """Return the conversations of some docs, and those that are not in the index. None stands for
    all docs.
    """
    if docs is None:
        return Candidates(None, {})
    if not docs.are_few:
        counts = {
            segment: count
            for _, _, segment in reader.ask_all("search_state")
            for (count,) in reader.ask("docs_of_segment", segment)
        }
        return Candidates(None, {}, docs._replace(counts=counts))
    places = [
        (segment, doc)
        for segment, bits in docs.found.items()
        for doc in range(_DOCS)
        if bits >> doc * _PARTS & _ALL_PARTS
    ]
    rows = reader.ask_all("search_docs", json.dumps(places)) if places else []
    whole, ranges = _as_ranges([*_parts_of(rows, docs), *reader.ask_all("search_unread")])
    return Candidates(frozenset([*whole, *ranges]), ranges)


def ranges_of(
    reader: Reader, keys: Sequence[int], found: Candidates
) -> dict[int, list[Range] | None]:
    """Return the events to search in some conversations, or None to search a conversation
    completely. A conversation that cannot have hits is left out. The pairs of ``found`` are looked
    up in the segments of these conversations.
    """
    places = reader.ask_all("search_docs_of", json.dumps(keys))
    docs = found.docs
    if docs is None:
        # These docs were read before, so that no doc is newer than the words of its segment.
        docs = _docs_in_segments(reader, {place[0] for place in places} - {None}, found.pairs)
    wanted = frozenset(keys)
    unread = [row for row in reader.ask_all("search_unread") if row[0] in wanted]
    whole, ranges = _as_ranges([*_parts_of(places, docs), *unread])
    return {**ranges, **dict.fromkeys(whole)}


def _parts_of(rows: Iterable[Sequence[Any]], docs: Docs) -> Iterator[tuple[int, int, int, int]]:
    """Yield ``(conversation, of_records, first, stop)`` for the consecutive events that may have
    the words in the docs of these rows. Records are yielded as whole docs, because a search reads
    all records of a conversation.
    """
    for segment, doc, conversation, of_records, first, stop in rows:
        parts = 0 if segment is None else docs.parts(segment, doc)
        if of_records and parts:
            yield conversation, of_records, first, stop
            continue
        for begin, end in _RUNS_OF_PARTS[parts]:
            start = first + begin * _EVENTS_IN_PART
            if start < stop:
                yield conversation, 0, start, min(first + end * _EVENTS_IN_PART, stop)


def _runs(bits: int) -> list[tuple[int, int]]:
    """Return the first bit of each run of bits that are set, and the bit behind the last one."""
    runs = list[tuple[int, int]]()
    for number in range(bits.bit_length()):
        if bits >> number & 1:
            begin = runs.pop()[0] if runs and runs[-1][1] == number else number
            runs.append((begin, number + 1))
    return runs


_RUNS_OF_PARTS: Final = [_runs(parts) for parts in range(_ALL_PARTS + 1)]


def _as_ranges(places: Iterable[Sequence[Any]]) -> tuple[set[int], dict[int, list[Range]]]:
    """Return the keys of the conversations to search completely, and the events to search in the
    others.
    """
    whole = set[int]()
    ranges = defaultdict[int, list[Range]](list)
    for key, of_records, first, stop in places:
        if of_records == 0:
            ranges[key].append((first, stop))
        else:
            whole.add(key)
    return whole, {key: _joined(ranges[key]) for key in ranges.keys() - whole}


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """Return the ranges in order. Ranges that are near each other become one."""
    joined = list[Range]()
    for first, stop in sorted(ranges, key=itemgetter(0)):
        begin, end = joined[-1] if joined else (first, first)
        if joined and (end is None or first <= end + _NEAR):
            later = None if end is None or stop is None else max(end, stop)
            joined[-1] = begin, later
        else:
            joined.append((first, stop))
    return joined


def unplaced(reader: Reader) -> Collection[int] | None:
    """Return the keys of the conversations whose place in the order of a search is not in the
    index. Return None if there are too many to sort them for each search.
    """
    keys = frozenset(key for (key,) in reader.ask_all("search_unplaced"))
    return keys if len(keys) <= _FEW_UNPLACED else None


def _docs_with_all(reader: Reader, hashes: Sequence[int]) -> Docs | None:
    """Return the docs that have all hashes, or None if no hash is rare enough to be looked up."""
    found: Docs | None = None
    for word_hash in hashes:
        found = _in_both(found, _docs_with(reader, word_hash))
    return found


def _in_both(docs: Docs | None, others: Docs | None) -> Docs | None:
    """Return the docs that are in both. None stands for all docs."""
    if docs is None or others is None:
        return docs or others
    segments = docs.found.keys() & others.found.keys()
    found = {segment: docs.found[segment] & others.found[segment] for segment in segments}
    return Docs(
        {segment: bits for segment, bits in found.items() if bits},
        frozenset(docs.segments).intersection(others.segments),
    )


def _docs_with(reader: Reader, word_hash: int) -> Docs | None:
    """Return the docs with a hash, or None if a quarter of the docs has it: see ``_SAMPLE``."""
    first = word_hash >> _BUCKET_BITS << _DOC_BITS

    def docs_of(data: bytes) -> int:
        entries = _unpacked(data)
        begin = bisect_left(entries, first)
        end = bisect_left(entries, first + _DOCS, begin)
        bits = 0
        for entry in entries[begin:end]:
            bits |= _ALL_PARTS << (entry - first) * _PARTS
        return bits

    return _docs_in_bucket(reader, word_hash % _BUCKETS, docs_of, _OF_DOCS)


def _docs_with_pair(reader: Reader, pair: int) -> Docs | None:
    """Return the docs that may have a pair, or None if most parts of docs may have it."""
    docs_of = partial(_bits_of_pair, pair)
    return _docs_in_bucket(reader, _bucket_of_pair(pair), docs_of, _OF_DOCS_WITH_PAIR)


def _bits_of_pair(pair: int, data: bytes) -> int:
    """Return a bit for each part of a doc that may have a pair. A far step may be taken for a
    place, because to leave these out takes as long as the rest.
    """
    number = pair // _PAIR_BUCKETS
    places = accumulate(_steps_of_pairs(data))
    bits = 0
    for part in [place >> _PART_BITS for place in places if place & _IN_BUCKET == number]:
        bits |= 1 << part
    return bits


def _docs_in_segments(reader: Reader, segments: Collection[int], pairs: Sequence[int]) -> Docs:
    """Return the docs of some segments that may have all pairs."""
    found = dict[int, int]()
    numbers = json.dumps([*segments])
    for pair in pairs:
        rows = reader.ask_all("words_in_segments", numbers, _bucket_of_pair(pair))
        for segment, data in rows:
            bits = _bits_of_pair(pair, data)
            found[segment] = found.get(segment, bits) & bits
    return Docs(found, found.keys())


def _docs_in_bucket(
    reader: Reader, bucket: int, docs_of: Callable[[bytes], int], most: float
) -> Docs | None:
    """Return the docs that ``docs_of`` finds in the rows of a bucket, or None if it finds more than
    this share of the parts of the first docs.
    """
    found = {}
    segments = set[int]()
    count = 0
    for number, (segment, data) in enumerate(reader.ask_all("words_in_bucket", bucket), 1):
        segments.add(segment)
        if docs := docs_of(data):
            found[segment] = docs
            count += docs.bit_count()
        if number * _DOCS > _SAMPLE and count > number * _DOCS * _PARTS * most:
            return None
    return Docs(found, segments)


def _bucket_of_pair(pair: int) -> int:
    return _BUCKETS + pair % _PAIR_BUCKETS


def _unpacked(data: bytes) -> array[int]:
    """Return the entries of a bucket. An entry has the hash of a word, without the bits that all
    words of the bucket share, and then the number of a doc.
    """
    entries = array("I")
    try:
        entries.frombytes(zlib.decompress(data))
    except (zlib.error, ValueError) as error:
        raise _damaged(error) from error
    return entries


def _packed(entries: Iterable[int]) -> bytes:
    return zlib.compress(array("I", sorted(entries)).tobytes(), 1)


def _packed_pairs(places: Iterable[int]) -> bytes:
    """Compress the places of pairs, in order. The place of a pair is the number of the part that
    has it, and then the number of the pair in its bucket. Each byte is a step to the next place; a
    step of ``_FAR`` leads to no place.
    """
    steps = bytearray()
    last = 0
    for place in places:
        distance = place - last
        while distance >= _FAR:
            steps.append(_FAR)
            distance -= _FAR
        steps.append(distance)
        last = place
    return zlib.compress(steps, 1)


def _steps_of_pairs(data: bytes) -> bytes:
    """Return the steps that were compressed. Raises the error of a damaged index."""
    try:
        return zlib.decompress(data)
    except zlib.error as error:
        raise _damaged(error) from error


def _unpacked_pairs(data: bytes) -> list[int]:
    """Return the places of pairs that were compressed."""
    steps = _steps_of_pairs(data)
    places = zip(steps, accumulate(steps), strict=True)
    return [place for step, place in places if step != _FAR]


def _damaged(problem: object) -> StoreDamaged:
    return StoreDamaged(
        f"the search index is damaged ({problem}); make it again with 'foldlog store index"
        " --again'. The events are not affected"
    )


# -- adding events


def refresh(store: Store, on_events: Callable[[int], object] = lambda count: None) -> int:
    """Add the new events to the index, and return the number of added events and records. Several
    processes may call ``refresh`` at the same time. ``on_events`` is called with the number of
    events that were added together. Cost: about 150 µs of processor time for each new event of 500
    bytes.
    """
    return _Refresh(store, on_events).run()


def refresh_if_made(store: Store) -> int:
    """Do as ``refresh``, if the store has an index."""
    return refresh(store) if store.database.recorder.query(state_of).is_made else 0


class _Refresh:
    """Adds the new events of a store to its index: see ``refresh``."""

    def __init__(self, store: Store, on_events: Callable[[int], object]) -> None:
        self._store = store
        self._database = store.database
        self._recorder = store.database.recorder
        self._on_events = on_events
        self._with_encrypted = False
        self._lost: dict[int, list[_Place]] = {}
        """The docs without words, by the key of their conversation."""
        self._versions: dict[int, _Versions] = {}
        self._unplaced = defaultdict[int, list[int]](list)
        """The conversations whose place in the order is not stored, by their store."""
        self.added = 0

    def run(self) -> int:
        state, keys, positions = self._recorder.query(self._read_state)
        self._with_encrypted = state.with_encrypted
        for number, position in enumerate(positions):
            for page in _pages(keys[number], _AT_ONCE):
                self._add(number, page)
            for page in _pages(self._unplaced[number], _AT_ONCE):
                self._recorder.transact(partial(_place, number=number, keys=page))
            if position != state.until[number]:
                self._recorder.transact(partial(_move, number=number, position=position))
        return self.added

    def _read_state(self, reader: Reader) -> tuple[IndexState, dict[int, list[int]], list[int]]:
        """Return the state of the index, the conversations with events that it lacks, by their
        store, and the last position of each store.
        """
        positions = [position for (position,) in reader.ask_all("last_position")]
        state = state_of(reader)
        keys = defaultdict[int, list[int]](list)
        if not state.is_made:
            return state, keys, []
        lost = defaultdict[int, list[_Place]](list)
        staying = set[int]()
        for key, of_records, first, stop in reader.ask_all("search_unread"):
            if of_records is None:
                if first:  # the column ``stays``
                    staying.add(key)
            elif stop is not None:
                lost[key].append(_Place(of_records, first, stop))
            lost.setdefault(key, [])
        self._lost = lost
        for (key,) in reader.ask_all("search_unplaced"):
            self._unplaced[key % self._recorder.store_count].append(key)
        for key in sorted(lost.keys() - staying):
            keys[key % self._recorder.store_count].append(key)
        return state, keys, positions

    def _add(self, number: int, keys: Sequence[int]) -> None:
        """Add the new events of conversations of the store ``number``."""
        self._versions = self._recorder.query(partial(_read_versions, number=number, keys=keys))
        docs = list[_Doc]()
        read = dict[int, bool]()
        for key, versions in self._versions.items():
            stays = False
            try:
                for doc in self._docs(versions):
                    docs.append(doc)
                    if len(docs) == _DOCS:
                        self._write(number, docs, read)
                        docs = []
                        read = {}
            except (CorruptEvent, KeyUnavailable, StoreDamaged):
                stays = True  # a search reads the conversation, and reports the problem
            read[key] = stays
        self._write(number, docs, read)

    def _docs(self, versions: _Versions) -> Iterator[_Doc]:
        """Yield docs of the events and records of a conversation that the index lacks. Raises
        ``KeyUnavailable`` if the conversation is encrypted and the index has no encrypted words.
        """
        if not versions.is_there:
            return
        if versions.is_encrypted and not self._with_encrypted:
            raise KeyUnavailable(f"conversation {versions.id!r} is encrypted")
        key = versions.key
        source, begins, version = self._recorder.query(partial(self._read_source, key=key))
        places = list(self._lost[key])
        places.append(_Place(0, max(versions.events, begins), version))
        if source is not None:
            places.append(_Place(1, max(versions.records, source.made), source.records))
        yield from self._docs_of_events(key, [place for place in places if not place.of_records])
        of_records = [place for place in places if place.of_records and place.first < place.stop]
        if source is not None and of_records:
            yield from self._docs_of_records(source, version, of_records)

    def _read_source(self, reader: Reader, key: int) -> tuple[Source | None, int, int]:
        """Return the source of a conversation, the id of its first own event, and its version. For
        a conversation that is not there any more, return None and zeros.
        """
        conversation = self._database.find_key(reader, key)
        if conversation is None or conversation.erasure is not None:
            return None, 0, 0
        source = Sources(self._database, reader).find_by_key(key)
        return source, conversation.begins, conversation.version

    def _docs_of_events(self, key: int, places: Sequence[_Place]) -> Iterator[_Doc]:
        """Yield the docs of the events in some places of a conversation."""
        for place in places:
            for page in _pages(range(place.first, place.stop), _PAGE):
                events = self._recorder.query(
                    partial(self._read_events, key=key, start=page[0], stop=page[-1] + 1)
                )
                for together in _pages(events, _EVENTS_IN_DOC):
                    first = together[0].id
                    words = _words([[event] for event in together])
                    yield _Doc(key, 0, first, first + len(together), *words)

    def _read_events(self, reader: Reader, key: int, start: int, stop: int) -> list[Event]:
        """Return events of a conversation. Return no events if the conversation is not there any
        more.
        """
        conversation = self._database.find_key(reader, key)
        if conversation is None or conversation.erasure is not None:
            return []
        rows = ReadTransaction(reader, conversation, self._database).rows(start, stop, _PAGE)
        return [*dense_events(conversation.id, rows, start, stop)]

    def _docs_of_records(
        self, source: Source, version: int, places: Sequence[_Place]
    ) -> Iterator[_Doc]:
        """Yield the docs of records whose events are not made yet, at these places."""
        # This import loads the formats, which a store without imports need not load.
        from foldlog._reports.records.decoding import decode_records

        made = self._recorder.query(lambda reader: Sources(self._database, reader).made(source))
        records = decode_records(self._store, source, made, source.made, version, [])
        for together in _pages(records, _EVENTS_IN_DOC):
            first = together[0][0]
            stop = together[-1][0] + 1
            if any(place.first < stop and place.stop > first for place in places):
                words = _words([events for _, events in together])
                yield _Doc(source.conversation, 1, first, stop, *words)

    def _write(self, number: int, docs: Sequence[_Doc], read: Mapping[int, bool]) -> None:
        """Write docs into segments of the store ``number``. ``read`` are the conversations whose
        docs are now complete, and whether searches will read them nevertheless.
        """
        keys = [*{doc.conversation: None for doc in docs} | dict.fromkeys(read)]
        if not keys:
            return

        def work(transaction: Transaction) -> list[_Doc]:
            # Another process may add docs too, and a removal waits until this transaction ends.
            [(segment,)] = transaction.ask("search_turn", number)
            versions = _read_versions(transaction, number, keys)
            current = {key for key in keys if versions.get(key) == self._versions[key]}
            written = [doc for doc in docs if doc.conversation in current]
            last = _put_docs(transaction, segment, written, self._recorder.store_count)
            if last != segment:
                transaction.write("put_search_segment", number, last)
            for key in keys:
                if key not in current:
                    transaction.write("search_reads", key)
                elif key in read:
                    transaction.write("search_stays" if read[key] else "search_has_read", key)
            return written

        written = self._recorder.transact(work)
        for doc in written:
            versions = self._versions[doc.conversation]
            name = "records" if doc.of_records else "events"
            stop = max(getattr(versions, name), doc.stop)
            self._versions[doc.conversation] = versions._replace(**{name: stop})
        count = sum(doc.stop - doc.first for doc in written)
        self.added += count
        self._on_events(count)


def _place(transaction: Transaction, number: int, keys: Sequence[int]) -> None:
    """Store the places of conversations in the order of searches."""
    # This import loads prices and usage, which a search need not load.
    from foldlog._reports.figures.writing import CODE

    transaction.ask("search_turn", number)
    transaction.write("search_is_placed", number, json.dumps(keys))
    transaction.write("put_search_ends", number, CODE, json.dumps(keys))


def _move(transaction: Transaction, number: int, position: int) -> None:
    """Store the position up to which the events of a store are in the index."""
    transaction.write("move_search", number, position)


def _read_versions(reader: Reader, number: int, keys: Sequence[int]) -> dict[int, _Versions]:
    """Return ``_Versions`` for some conversations, by their keys."""
    rows = reader.ask("search_versions", number, json.dumps(keys))
    versions = (_Versions(key, as_text(name), *columns) for key, name, *columns in rows)
    return {found.key: found for found in versions}


def _put_docs(transaction: Transaction, segment: int, docs: Sequence[_Doc], count: int) -> int:
    """Write docs into a segment that may have docs, then into new segments. Return the last."""
    [(first,)] = transaction.ask("docs_of_segment", segment)
    rest = [*docs]
    while rest:
        if first == _DOCS:
            segment = _new_segment(segment % count, count)
            first = 0
        fitting = rest[: _DOCS - first]
        rest = rest[len(fitting) :]
        _put_in_segment(transaction, segment, first, fitting)
        first += len(fitting)
    return segment


def _put_in_segment(
    transaction: Transaction, segment: int, first: int, docs: Sequence[_Doc]
) -> None:
    """Write docs into a segment that has ``first`` docs already."""
    buckets = defaultdict[int, list[int]](list)
    for number, doc in enumerate(docs, first):
        for word_hash in doc.hashes:
            entry = (word_hash >> _BUCKET_BITS << _DOC_BITS) | number
            buckets[word_hash % _BUCKETS].append(entry)
    places = _places_of_pairs(docs, first)
    if first:
        for bucket, data in transaction.ask("words_of_segment", segment):
            if bucket in buckets:
                buckets[bucket].extend(_unpacked(data))
            elif bucket in places:
                places[bucket] = [*_unpacked_pairs(data), *places[bucket]]
    for bucket in sorted(buckets):
        transaction.write("put_search_words", segment, bucket, _packed(buckets[bucket]))
    for bucket in sorted(places):
        transaction.write("put_search_words", segment, bucket, _packed_pairs(places[bucket]))
    for number, doc in enumerate(docs, first):
        begin = (doc.conversation, doc.of_records, doc.first)
        transaction.write("leave_search_doc", *begin)
        transaction.write("put_search_doc", segment, number, *begin, doc.stop)


def _places_of_pairs(docs: Sequence[_Doc], first: int) -> dict[int, list[int]]:
    """Return the places of the pairs of docs, by their buckets. ``first`` is the number of the
    first doc.
    """
    places = defaultdict[int, list[int]](list)
    parts = (pairs for doc in docs for pairs in doc.pairs)
    for number, pairs in enumerate(parts, first * _PARTS):
        place = number << _PART_BITS
        for pair in pairs:
            places[pair % _PAIR_BUCKETS].append(place | pair // _PAIR_BUCKETS)
    return {_BUCKETS + bucket: sorted(of_bucket) for bucket, of_bucket in places.items()}


def _words(items: Sequence[Sequence[Event]]) -> tuple[set[int], list[set[int]]]:
    """Return the hashes of the words of a doc, and the pairs of each of its parts. ``items`` are
    the events of each record, or single events.
    """
    texts = [
        [words_in(text_of(event)) for event in events if has_content(event)] for events in items
    ]
    parts = [
        pairs_of([*chain.from_iterable(texts[begin : begin + _EVENTS_IN_PART])])
        for begin in range(0, _EVENTS_IN_DOC, _EVENTS_IN_PART)
    ]
    return hashes_of(chain.from_iterable(texts)), parts


def _pages(items: Iterable[T], size: int) -> Iterator[list[T]]:
    remaining = iter(items)
    while page := [*islice(remaining, size)]:
        yield page
