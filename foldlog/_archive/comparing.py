"""Compare a source with what is here of it: is it new, does it go on, is it older, or a fork?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain, count
from typing import Final, NamedTuple

from foldlog._archive.projecting import make_events
from foldlog._archive.reading import LineReading, Reading, WholeReading, check_json, reading_of
from foldlog._archive.writing import Imported, SourceOptions, SourceWriter, counting, fingerprint
from foldlog._formats.decoded import DecodedRecords
from foldlog._formats.files.found_sources import Found, NotAHistory, SourceRefused
from foldlog._formats.files.readers import JsonLines
from foldlog._formats.skeleton import Skeleton
from foldlog.eventstore import DocumentChanges, Redaction, Store, VersionConflict
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.types import Conversation
from foldlog.eventstore.sources.blocks import GENESIS, HASH_BYTES, chained, shared
from foldlog.eventstore.sources.reading import about, blocks_of
from foldlog.eventstore.sources.tables import Place, Source, Sources, SourcesToWrite

_APART: Final = (
    "To have it all the same, import it apart with '--prefix TEXT --again', and redact it there"
)


class NewSource(NamedTuple):
    """A source that is read as a whole and not written yet. ``size`` is in bytes.

    ``begin`` writes it in a transaction, and returns None where something of it is here by then.
    """

    one: SourceImport
    name: str
    begin: Callable[[Transaction], Source | None]
    size: int


class SourceImport(SourceWriter):
    """The import of one source. ``named`` gives its name, by what its records say."""

    def __init__(
        self,
        store: Store,
        found: Found,
        place: bytes,
        options: SourceOptions,
        named: Callable[[str | None], str],
        state: bytes | None = None,
    ) -> None:
        super().__init__(store, found, place, options, state)
        self.named = named
        self._before = b""
        """The hashes of the records from which it goes on, where it does not hold these."""

    def imported(self) -> Imported:
        """Import the source. Raises ``VersionConflict`` where another process was first,
        ``SourceRefused``, ``NotAHistory``.
        """
        known: list[Place] = self.query(lambda sources: sources.places(self.place))
        if self._is_refused(self.place):
            raise SourceRefused("the source of this place was erased; import it again with --again")
        if known:
            source = self.source(known[-1].conversation)
            if source is not None and (one := self._grown(known[-1], source)) is not None:
                return one
        sources = [
            each for each in map(self.source, dict.fromkeys(p.conversation for p in known)) if each
        ]
        if not sources:
            return self._new()
        self._find_beginning(sources)
        return self._compared(sources, known[-1])

    def read_new(self) -> NewSource | None:
        """Read the whole of a source that is new as far as its place tells; None where it is not a
        conversation of its own.
        """
        skeleton = self.skeleton
        blocks = [self.without(block, self.secret) for block in self.reading.blocks(self.adds())]
        if not blocks or (isinstance(skeleton, Skeleton) and skeleton.follows is not None):
            return None
        name = self.named(skeleton.conversation)
        size = sum(len(block.raw) for block in blocks)
        begin = self.beginning(name, blocks)

        def begin_new(transaction: Transaction) -> Source | None:
            sources = Sources(self.database, transaction)
            is_here = sources.database.find(transaction, name, pending=True) is not None
            is_known = is_here or sources.places(self.place)
            if is_known or sources.refused_among([self.place, fingerprint(skeleton, blocks)]):
                return None
            return begin(transaction)

        return NewSource(self, name, begin_new, size)

    def begun(self, new: NewSource, source: Source) -> Imported:
        """Return the outcome of a new source that was written."""
        self.finish(source)
        return self.outcome(self.reading.records, new.name)

    # -- what it is
    # ----------------------------------------------------------------------------------------------

    def _grown(self, place: Place, source: Source) -> Imported | None:
        """Append what a log has beyond its last import; None where it does not begin with the same
        bytes, more of it came from another place, or somebody went on with its conversation.
        """
        reading = self.reading
        if type(self.found.reader) is not JsonLines or self.found.reader.is_packed:
            return None
        assert isinstance(reading, LineReading)
        if place.records != source.records or not reading.begins_with(
            place.taken, place.digest, place.records
        ):
            return None
        if source.made and self._goes_on_here(source):
            return None
        reading.unread += about(source).get("unread", [])
        return self._append_rest(source)

    def _append_rest(self, source: Source, skip: int = 0) -> Imported:
        """Append the records that the reading yields, but those before number ``skip``, which are
        here.
        """
        before = source.records
        if source.made and self._goes_on_here(source):
            return self._fork(source, before)
        self.skeleton = self.counting_on(source)
        self.append(source, skip)
        return self.outcome(self.reading.records - before)

    def _goes_on_here(self, source: Source) -> bool:
        """Return whether somebody went on with a conversation here: then its source goes on in a
        fork.
        """
        name = self.name_of(source.conversation)
        made = self.query(lambda sources: sources.made(source))
        end = max((first + events for first, events in made.values()), default=0)
        version = self.store.conversation(name, pending=True).version
        later = (
            self.store.events(name, end, version)
            if version > end and source.made == source.records
            else ()
        )
        return not all(isinstance(event, DocumentChanges | Redaction) for event in later)

    def _new(self) -> Imported:
        """Import a source of which nothing was found at this place."""
        self._read_again()
        reading = self.reading
        skeleton = self.skeleton
        blocks = (self.without(block, self.secret) for block in reading.blocks(self.adds()))
        first = next(blocks, None)
        if first is None or reading.records == 0:
            raise NotAHistory(self.found.path, _no_record(reading))
        name = self.named(skeleton.conversation)
        there = self._find(name)
        if self._is_refused(fingerprint(skeleton, [first])):
            raise SourceRefused("this source was erased; import it again with --again")
        if isinstance(skeleton, Skeleton) and (one := self._go_on(skeleton, name)) is not None:
            return one
        if there is not None and not (there.erasure is not None and self.options.again):
            source = self.source(there.key) if there.erasure is None else None
            if there.erasure is not None:
                self.store.version(name)  # raises what says so
            if source is None:
                raise VersionConflict(name, 0, there.version)
            return self._compared(self._own_forks(source, name))
        self.begin(name, chain([first], blocks))
        return self.outcome(reading.records)

    def _go_on(self, skeleton: Skeleton, name: str) -> Imported | None:
        """Import a source that says from which history it goes on, and does not hold that; None
        where this is not here.

        What it holds is of the conversation ``name``: it is appended if it goes on at the end of
        that, else it is a fork.
        """
        if skeleton.follows is None:
            return None
        thread, end = skeleton.follows
        base = self._reaching((f"{self.options.prefix}{thread}", name), end, skeleton)
        if base is None:
            return None
        self._before = self._hashes_before(base, end)
        there = self._source_named(name)
        if there is None:
            return self._fork(base, end, name)
        if there.root != base.root:
            return self._compared([there])
        return self._compared(self._own_forks(base, name))

    def _own_forks(self, source: Source, name: str) -> list[Source]:
        """Return the sources of a family that are this conversation or the forks that imports made
        of it.
        """
        family = [(self.name_of(each.conversation), each) for each in self._family(source)]
        return [each for named, each in family if named == name or named.startswith(f"{name}@")]

    def _reaching(self, names: Iterable[str], end: int, skeleton: Skeleton) -> Source | None:
        """Return the newest source of the first of these conversations, or of its forks, that has
        the record before number ``end``.
        """
        for name in names:
            source = self._source_named(name)
            for each in reversed([] if source is None else self._family(source)):
                if each.records >= end:
                    last = next(blocks_of(self.database, each, end - 1), None)
                else:
                    last = None
                if last is not None and skeleton.is_number(last.record(end - 1), end - 1):
                    return each
        return None

    def _family(self, source: Source) -> list[Source]:
        return [*self.query(lambda sources: [*sources.family(source.root)])]

    def _find_beginning(self, known: list[Source]) -> None:
        """Take notice of the records from which a source goes on, unless it was imported without
        them.
        """
        skeleton = counting(self.found.format)
        if isinstance(skeleton, DecodedRecords):
            return
        reading = reading_of(self.found.path, self.found.reader)
        first = next(reading.blocks(skeleton.add), None)
        if first is None or skeleton.follows is None:
            return
        hashes = [self.hashes_of(each) for each in known]
        if not any(each.startswith(first.hashes[:HASH_BYTES]) for each in hashes):
            self._before = self._hashes_before(known[-1], skeleton.follows[1])

    def _hashes_before(self, source: Source, end: int) -> bytes:
        return self.hashes_of(source)[: end * HASH_BYTES]

    def _source_named(self, name: str) -> Source | None:
        there = self._find(name)
        if there is None or there.erasure is not None:
            return None
        return self.source(there.key)

    def _find(self, name: str) -> Conversation | None:
        found: Conversation | None = self.query(
            lambda sources: sources.database.find(sources.reader, name, pending=True)
        )
        return found

    def _is_refused(self, fingerprint: bytes) -> bool:
        return not self.options.again and self.query(
            lambda sources: sources.is_refused(fingerprint)
        )

    def _read_again(self) -> None:
        """Begin another pass over the source, in which the first record follows those from which it
        goes on.
        """
        self.reading = reading_of(self.found.path, self.found.reader)
        self.reading.records = len(self._before) // HASH_BYTES
        self.skeleton = counting(self.found.format)

    def _compared(self, known: list[Source], place: Place | None = None) -> Imported:
        """Import a source that may differ from what is here: it goes on with what it has most in
        common with. A place that is as it was stays what it became, also where that went on since
        from another place.
        """
        self._read_again()
        reading = self.reading
        hashes = self._before + b"".join(block.hashes for block in reading.blocks(check_json))
        total = reading.records
        if total == 0:
            raise NotAHistory(self.found.path, _no_record(reading))
        if place is not None and (place.records, place.digest) == (total, reading.digest):
            if (source := self.source(place.conversation)) is not None:
                self.note(source)
            return self.outcome(0, self.name_of(place.conversation))
        there = [(self.hashes_of(each), each) for each in known]
        alike, nearest = max(
            (shared(stored, hashes), -number) for number, (stored, _) in enumerate(there)
        )
        source = known[-nearest]
        if alike == total:
            self.note(source)
            is_older = total < source.records
            return self.outcome(0, self.name_of(source.conversation))._replace(is_older=is_older)
        self._check_redactions(known, alike)
        if alike == 0 and place is not None:  # another source: it may name its own conversation
            return self._new()
        if alike == source.records:
            self._read_again()
            return self._append_rest(source, alike)
        if isinstance(reading, WholeReading) and self._is_provisional(source, alike):
            return self._replace_last(source, alike)
        return self._fork(source, alike)

    def _check_redactions(self, known: list[Source], alike: int) -> None:
        """Refuse a source that was written again before a redacted record, or whose records repeat
        earlier ones.
        """
        for source in known:
            gone: set[int] = self.query(partial(Sources.all_redacted, source=source))
            if gone and self.found.format.repeats:
                raise SourceRefused(
                    f"its records repeat what earlier ones say, and record {max(gone)} of"
                    f" {self.name_of(source.conversation)!r} was redacted, which would come back;"
                    f" nothing was added. {_APART}"
                )
            if any(number >= alike for number in gone):
                raise SourceRefused(
                    f"it was written again from record {alike} on, and record {max(gone)} of"
                    f" {self.name_of(source.conversation)!r} was redacted, which would come back;"
                    f" nothing was added. {_APART}"
                )

    def _is_provisional(self, source: Source, alike: int) -> bool:
        """Return whether only the last record differs, of which no event was made: its program was
        writing it.
        """
        is_last = alike == source.records - 1 and alike >= source.from_record
        return is_last and source.made <= alike and alike not in source.redacted

    def _fork(self, source: Source, alike: int, named: str = "") -> Imported:
        """Begin a fork of a source at its first record that differs, with this name or one of its
        own.
        """
        while source.parent is not None and alike <= source.from_record:
            source = self.source(source.parent) or source
        name = self.name_of(source.conversation)
        fork = named or f"{name}@{alike}"
        for number in count(2):
            if self._find(fork) is None:
                break
            fork = f"{name}@{alike}.{number}"
        if alike:
            make_events(self.store, name)
            source = self.source(source.conversation) or source
        self._read_again()
        self.skeleton = self.counting_on(source, alike)
        self.forked_at = alike
        self.begin(fork, self.new_blocks(source, alike), source, alike)
        return self.outcome(self.reading.records - alike)

    def _replace_last(self, source: Source, alike: int) -> Imported:
        """Write the last record of a source again, and those behind it."""
        blocks = self.query(lambda sources: [*sources.own_blocks(source, alike)])
        head = chained(
            GENESIS, self.query(lambda sources: sources.hashes(source))[: alike * HASH_BYTES]
        )
        kept = blocks[0].before(alike)
        self._read_again()
        self.skeleton = self.counting_on(source, alike)
        shorter = source._replace(records=alike, head=head)

        def cut(sources: SourcesToWrite) -> None:
            sources.join_blocks(source, blocks, kept)

        self.append(shorter, alike, first=cut)
        return self.outcome(self.reading.records - source.records)


def _no_record(reading: Reading) -> str:
    return "; ".join(("holds no record that can be read", *map(str, reading.findings[:1])))
