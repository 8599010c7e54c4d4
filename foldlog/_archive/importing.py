"""Import what is found at a place: append what is new of it, or begin a fork at the first record that differs.

An import is a copy. It never takes back or repairs what is here, and no question is decided twice: which conversation
a place became is a row (``places``), and a record is recognized by its hash. A source that was written again before a
redacted record is refused, since what was redacted could come back unrecognized; so is one that was erased.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from itertools import count
from os import path as os_path
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from foldlog._archive.compacting import still_compacting
from foldlog._archive.projecting import change_of_documents, make_events
from foldlog._archive.reading import (
    FINDINGS_MAX,
    LineReading,
    Reading,
    WholeReading,
    check_json,
    reading_of,
    state_of,
)
from foldlog._figures.of_sources import count_block, figures_in
from foldlog._figures.writing import put_figures
from foldlog._formats.decoded import READER, DecodedRecords
from foldlog._formats.detection import of_lines, recognize
from foldlog._formats.files.found import Found, LeftOut, NotAHistory, SourceRefused, Unchanged
from foldlog._formats.files.frames import KEY as FRAME, REDACTED, TITLE, WHERE, Frame
from foldlog._formats.files.histories import histories
from foldlog._formats.files.naming import Names
from foldlog._formats.files.readers import JsonLines
from foldlog._formats.format import Format
from foldlog._formats.record import ImportFinding
from foldlog._formats.registry import AUTO, format_named
from foldlog._formats.skeleton import Skeleton
from foldlog._formats.usage import calls_beside
from foldlog._usage import IMPORTED
from foldlog.eventstore import (
    ConversationErased,
    DocumentChanges,
    EventStoreError,
    InvalidArgument,
    Redaction,
    Store,
    VersionConflict,
)
from foldlog.eventstore.log.appending import begin_fork
from foldlog.eventstore.log.row import new_salt
from foldlog.eventstore.log.writing import EVERY, WriteTransaction, begin_new
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import Conversation
from foldlog.eventstore.sources.blocks import (
    GENESIS,
    HASH_BYTES,
    Block,
    chained,
    each_hash,
    fingerprint_of,
    hash_of,
    shared,
)
from foldlog.eventstore.sources.reading import IMPORTED_AT, about, blocks_of
from foldlog.eventstore.sources.tables import Place, Source, Sources, SourcesToWrite

_TRIES: Final = 5
_TRANSACTION_BYTES: Final = 2**20
"""The bytes of a source in one transaction: a longer source comes in several."""
_TOGETHER_BYTES: Final = 2 * 2**20
"""The bytes of short new sources that one transaction writes."""
_SHORT_BYTES: Final = 2**20
_PLACE_BYTES: Final = 16
_APART: Final = "To have it all the same, import it apart with '--prefix TEXT --again', and redact it there"
_FIRST: Final = 4
"""The number of records that tell a document from others."""
_NO_HISTORY: Final = "holds no history that can be imported"


class Imported(NamedTuple):
    """The outcome for one source.

    ``conversation``  what it is here; ``added`` of its ``records`` are new
    ``forked_at``     the first record that differs from what was here, if it became a fork now
    ``is_older``      what is here has more records
    ``waits``         its last line is not whole yet: the next import takes it
    """

    conversation: str
    added: int
    records: int
    format: str
    path: Path
    forked_at: int | None = None
    is_older: bool = False
    is_unchanged: bool = False
    waits: bool = False
    findings: Sequence[ImportFinding] = ()
    findings_count: int = 0
    note: str = ""


class Failed(NamedTuple):
    """A source that was not imported, or as far as ``added`` records are here now, and why."""

    conversation: str
    format: str
    path: Path
    error: Exception
    added: int = 0


class Import:
    """Imports the sources at some paths, all with the same options: iterate it for the outcome of each.

    As of the last iteration, ``findings`` are the problems that belong to no source, ``left_out`` the files in folders
    that are of no known format, and ``not_opened`` those with names that histories do not have.

    ``again`` lets a source in whose place or beginning was erased or redacted, under another name. ``only`` imports of
    a file with several histories the one of this name. A record that ``is_secret`` comes in as what stays of a redacted
    one. ``where`` is where sources were written, as far as their records do not say it.
    """

    def __init__(
        self,
        store: Store,
        paths: Iterable[Path],
        format: str = AUTO,
        *,
        prefix: str = "",
        conversation: str | None = None,
        read_all: bool = False,
        again: bool = False,
        only: str | None = None,
        is_secret: Callable[[bytes], bool] | None = None,
        where: Mapping[str, str] | None = None,
    ) -> None:
        self._where = where or {}
        self._only, self._is_secret = only, is_secret
        self._store, self._paths = store, list(paths)
        self._prefix, self._conversation, self._again = prefix, conversation, again
        self._recognize = recognize(format)
        self._options = (format, prefix, conversation or "")
        self._reads_all = read_all
        self.findings = list[ImportFinding]()
        self.left_out = list[Path]()
        self.not_opened = list[Path]()
        self._waiting = list[_NewSource]()

    def __iter__(self) -> Iterator[Imported | Failed]:
        self.findings, self.left_out, self.not_opened = [], [], []
        if self._conversation is not None:
            self._check_is_one()
        for path in self._paths:
            is_empty, before = True, len(self.findings)
            try:
                for outcome in self._below(path):
                    is_empty = False
                    yield outcome
                if is_empty and len(self.findings) == before and len(self._paths) > 1:
                    self.findings.append(ImportFinding(str(path), _NO_HISTORY))
            except NotAHistory as error:
                self.findings.append(ImportFinding(str(path), error.why))
            except OSError as error:
                self.findings.append(ImportFinding(str(path), f"cannot be read: {error.strerror}"))

    def has_place(self, path: Path) -> bool:
        """Return whether a file was imported with these options."""
        return bool(self._known(self._place(path, 0)))

    def is_here(self, path: Path) -> bool:
        """Return whether a file is as it was when it was imported last with these options."""
        known = self._known(self._place(path, 0))
        return bool(known and known[-1].state and known[-1].state == state_of(path))

    def nothing(self) -> NotAHistory:
        """Return the error for paths of which nothing could be imported."""
        path = self._paths[0] if self._paths else Path()
        first = next(iter(self.findings), None)
        if first is not None and first.place == str(path):
            return NotAHistory(path, first.problem)
        return NotAHistory(path, _NO_HISTORY + (f"; {first}" if first else ""))

    def _check_is_one(self) -> None:
        """Raise ``InvalidArgument`` where several sources would be one conversation. Cost: what finding them costs."""
        number = 0
        for path in self._paths:
            with suppress(NotAHistory, OSError):
                found = histories(path, self._recognize, lambda file: None)
                number += sum(isinstance(each, Found) for each in found)
        if number > 1:
            raise InvalidArgument(
                f"--conversation {self._conversation!r} names one conversation, and there are {number:,} at these "
                f"paths; leave it out, or name one file"
            )

    def _below(self, root: Path) -> Iterator[Imported | Failed]:
        for found, number in self._sources_below(root):
            new = None if isinstance(found, Unchanged) else self._short_and_new(found, number)
            if new is not None:
                self._waiting.append(new)
                if sum(each.size for each in self._waiting) < _TOGETHER_BYTES:
                    continue
            yield from self._write_waiting()
            if isinstance(found, Unchanged):
                yield from self._unchanged(found.path)
            elif new is None:
                yield self._import(found, number)
        yield from self._write_waiting()

    def _sources_below(self, root: Path) -> Iterator[tuple[Found | Unchanged, int]]:
        """Yield the sources, each with its number in its file. Report what is not a source."""
        numbers = dict[Path, Iterator[int]]()
        for found in histories(root, self._recognize, partial(self._look, root)):
            if isinstance(found, Unchanged):
                yield found, 0
            elif isinstance(found, LeftOut):
                (self.left_out if found.is_read else self.not_opened).append(found.path)
            elif isinstance(found, ImportFinding):
                self.findings.append(found)
            else:
                number = next(numbers.setdefault(found.path, count()))
                is_other = self._only not in (None, found.name.name) and type(found.reader) is not JsonLines
                if not is_other:
                    yield found, number

    # -- files that are as they were ----------------------------------------------------------------------------------

    def _look(self, root: Path, path: Path) -> Found | Unchanged | None:
        """Return a file that is as it was when it was imported last; a log whose first lines tell what it is, or that
        goes on behind what was imported; None for what has to be looked into. Cost: the status of the file, and of a
        log its beginning, or all that was imported.
        """
        if not self._reads_all and self.is_here(path):
            return Unchanged(path)
        format = (of_lines(path) or self._recorded(path)) if self._options[0] == AUTO else None
        if format is None:
            return None
        return Found(Names(root, path).of({}), format, path, JsonLines(path))

    def _recorded(self, path: Path) -> Format | None:
        """Return the format of a log as its last import recorded it, if the log still begins with what was taken then.
        Lines that its program added later may be of no format: they do not decide again.
        """
        known = self._known(self._place(path, 0))
        if not known or not known[-1].taken:
            return None
        reading = LineReading(path)
        if not reading.begins_with(known[-1].taken, known[-1].digest, known[-1].records):
            return None
        database, key = self._store.database, known[-1].conversation
        source = database.recorder.query(lambda reader: Sources(database, reader).of_key(key))
        return None if source is None else format_named(source.format)

    def _unchanged(self, path: Path) -> Iterator[Imported]:
        for number in count():
            known = self._known(self._place(path, number))
            if not known:
                return
            place = known[-1]

            def read(reader: Reader, key: int = place.conversation) -> tuple[str, Source | None]:
                sources = Sources(self._store.database, reader)
                return sources.name_of(key), sources.of_key(key)

            name, source = self._store.database.recorder.query(read)
            if source is not None:
                yield Imported(name, 0, place.records, source.format, path, is_unchanged=True)

    def _known(self, place: bytes) -> list[Place]:
        database = self._store.database
        return database.recorder.query(lambda reader: Sources(database, reader).places(place))

    def _place(self, path: Path, number: int) -> bytes:
        """Return the name of a place: a hash of path, place inside and options."""
        named = "\0".join((os_path.abspath(path), str(number), *self._options))
        return blake2b(named.encode("utf-8", "surrogateescape"), digest_size=_PLACE_BYTES).digest()

    # -- one source ---------------------------------------------------------------------------------------------------

    def _import(self, found: Found, number: int) -> Imported | Failed:
        name = found.name.prefixed(self._prefix).name
        tries = count(1)
        while True:
            one = self._source(found, number)
            try:
                return one.imported()
            except VersionConflict as error:  # another process imports it: what it added is compared now
                if next(tries) == _TRIES:
                    return Failed(name, found.format.name, found.path, error)
            except (EventStoreError, OSError) as error:
                begun = one.name_of(one.key) if one.key is not None and one.written else name
                return Failed(begun, found.format.name, found.path, error, one.written)

    def _source(self, found: Found, number: int) -> _OneSource:
        name = found.name.prefixed(self._prefix).name
        one = _OneSource(self._store, found, self._place(found.path, number), self._named(name))
        one.again, one.prefix, one.is_secret = self._again, self._prefix, self._is_secret
        one.where = self._where
        if self._only is not None and type(found.reader) is not JsonLines:  # its other histories are not read
            one.state = b""
        return one

    def _short_and_new(self, found: Found, number: int) -> _NewSource | None:
        """Return a short source of which nothing is here, read as a whole; None for any other."""
        try:
            if os_path.getsize(found.path) > _SHORT_BYTES:
                return None
            return self._source(found, number).read_new(number)
        except (EventStoreError, OSError):  # its import says so
            return None

    def _write_waiting(self) -> Iterator[Imported | Failed]:
        """Write the short sources in one transaction. Where one of them cannot be written, each is imported alone."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        try:
            sources = self._store.database.recorder.transact(
                lambda transaction: [new.begin(transaction) for new in waiting]
            )
        except EventStoreError:
            for new in waiting:
                yield self._import(new.one.found, new.number)
            return
        for new, source in zip(waiting, sources, strict=True):
            yield new.one.begun(new, source)

    def _named(self, name: str) -> Callable[[str | None], str]:
        """Return what names a source: by its records, else by its place."""

        def named(told: str | None) -> str:
            if self._conversation is not None:
                return self._conversation
            return f"{self._prefix}{told}" if told else name

        return named


class _NewSource(NamedTuple):
    """A source that is read as a whole and not written yet. ``size`` is in bytes, ``number`` its place in its file."""

    one: _OneSource
    reading: Reading
    begin: Callable[[Transaction], Source]
    size: int
    number: int


class _OneSource:
    """The import of one source: it is read, compared with what is here, and written."""

    again = False
    prefix = ""
    is_secret: Callable[[bytes], bool] | None = None
    where: Mapping[str, str] = MappingProxyType({})

    def __init__(self, store: Store, found: Found, place: bytes, named: Callable[[str | None], str]) -> None:
        self.store, self.found, self.place, self.named = store, found, place, named
        self.database = store.database
        self.state = state_of(found.path)
        self.key: int | None = None
        self.forked_at: int | None = None
        self.is_noted = False
        """Whether it is stored that all of the source is here."""
        self.is_counted = True
        """Whether the stored figures count all that is stored of the source."""
        self.unclear = list[ImportFinding]()
        """What the decoder says of records, where it counts them."""
        self.unclear_count = 0
        self.written = 0
        """How many records are on disk by now."""
        self.gone = list[int]()
        """The numbers of the records that come in as what stays of them."""
        self.secret = set[bytes]()
        """The hashes of records that are kept out."""
        self.before = b""
        """The hashes of the records from which it goes on, where it does not hold these."""

    def imported(self) -> Imported:
        known, is_refused = self._known()
        if is_refused and not self.again:
            raise SourceRefused("the source of this place was erased; import it again with --again")
        if known:
            source = self.source(known[-1].conversation)
            if source is not None and (one := self._grown(known[-1], source)) is not None:
                return one
        sources = [each for each in map(self.source, dict.fromkeys(p.conversation for p in known)) if each]
        if not sources:
            return self._new()
        self._find_beginning(sources)
        return self._compared(sources, known[-1])

    def _known(self) -> tuple[list[Place], bool]:
        """Return what was found at this place before, and whether a source was erased that was."""
        found: tuple[list[Place], bool] = self.query(
            lambda sources: (sources.places(self.place), sources.is_refused(self.place))
        )
        return found

    def read_new(self, number: int) -> _NewSource | None:
        """Read a source of which nothing is here; None where it is not new, or not a conversation of its own."""
        known, is_refused = self._known()
        if known or is_refused:
            return None
        reading = reading_of(self.found.path, self.found.reader)
        skeleton = _counting(self.found.format)
        read = reading.blocks(self._adds_to(reading, skeleton))
        blocks = [self._without(block, self.secret, skeleton) for block in read]
        if not blocks or (isinstance(skeleton, Skeleton) and skeleton.follows is not None):
            return None
        name = self.named(skeleton.conversation)
        there, is_refused = self._there(name, _fingerprint(skeleton, blocks))
        if there is not None or is_refused:
            return None
        begin = self._beginning(reading, skeleton, name, blocks)
        return _NewSource(self, reading, begin, sum(len(block.raw) for block in blocks), number)

    def begun(self, new: _NewSource, source: Source) -> Imported:
        """Return the outcome of a new source that was written."""
        self.key = source.conversation
        if not self.is_noted:
            self._note(source, new.reading)
        return self._outcome(new.reading, new.reading.records)

    def _there(self, name: str, fingerprint: bytes) -> tuple[Conversation | None, bool]:
        """Return the conversation with this name, and whether a source with this fingerprint was erased."""
        found: tuple[Conversation | None, bool] = self.query(
            lambda sources: (
                sources.database.find(sources.reader, name, pending=True),
                sources.is_refused(fingerprint),
            )
        )
        return found

    # -- what it is ---------------------------------------------------------------------------------------------------

    def _grown(self, place: Place, source: Source) -> Imported | None:
        """Append what a log has beyond its last import; None where it does not begin with the same bytes, more of it
        came from another place, or somebody went on with its conversation.
        """
        reading = reading_of(self.found.path, self.found.reader)
        if type(self.found.reader) is not JsonLines or self.found.reader.is_packed:
            return None
        assert isinstance(reading, LineReading)
        if place.records != source.records or not reading.begins_with(place.taken, place.digest, place.records):
            return None
        if source.made and self._goes_on_here(source):
            return None
        reading.unread += about(source).get("unread", [])
        return self._append(reading, source)

    def _append(self, reading: Reading, source: Source, skip: int = 0) -> Imported:
        """Append the records that a reading yields, but those before number ``skip``, which are here."""
        before = source.records
        if source.made and self._goes_on_here(source):
            return self._fork(source, before)
        self._write(reading, source, self._skeleton(source), skip)
        return self._outcome(reading, reading.records - before)

    def _goes_on_here(self, source: Source) -> bool:
        """Return whether somebody went on with a conversation here: then its source goes on in a fork."""
        name = self.name_of(source.conversation)
        made = self.query(lambda sources: sources.made(source))
        end = max((first + events for first, events in made.values()), default=0)
        version = self.store.conversation(name, pending=True).version
        later = self.store.events(name, end, version) if version > end and source.made == source.records else ()
        return not all(isinstance(event, DocumentChanges | Redaction) for event in later)

    def _new(self) -> Imported:
        """Import a source of which nothing was found at this place."""
        reading = reading_of(self.found.path, self.found.reader)
        skeleton = _counting(self.found.format)
        read = reading.blocks(self._adds_to(reading, skeleton))
        blocks = (self._without(block, self.secret, skeleton) for block in read)
        first = next(blocks, None)
        if first is None or reading.records == 0:
            raise NotAHistory(self.found.path, _no_record(reading))
        name = self.named(skeleton.conversation)
        there, is_refused = self._there(name, _fingerprint(skeleton, [first]))
        if is_refused and not self.again:
            raise SourceRefused("this source was erased; import it again with --again")
        if isinstance(skeleton, Skeleton) and (one := self._go_on(skeleton, name)) is not None:
            return one
        if there is not None and not (there.erasure is not None and self.again):
            source = self.source(there.key) if there.erasure is None else None
            if there.erasure is not None:
                self.store.version(name)  # raises what says so
            if source is None:
                raise VersionConflict(name, 0, there.version)
            return self._compared(self._own_forks(source, name))
        self._write_new(reading, skeleton, name, first, blocks, None, 0)
        return self._outcome(reading, reading.records)

    def _go_on(self, skeleton: Skeleton, name: str) -> Imported | None:
        """Import a source that says from which history it goes on, and does not hold that; None where this is not here.

        What it holds is of the conversation ``name``: it is appended if it goes on at the end of that, else it is a
        fork.
        """
        if skeleton.follows is None:
            return None
        thread, end = skeleton.follows
        base = self._reaching((f"{self.prefix}{thread}", name), end, skeleton)
        if base is None:
            return None
        self.before = self._hashes_before(base, end)
        there = self._source_named(name)
        if there is None:
            return self._fork(base, end, name)
        if there.root != base.root:
            return self._compared([there])
        return self._compared(self._own_forks(base, name))

    def _own_forks(self, source: Source, name: str) -> list[Source]:
        """Return the sources of a family that are this conversation or the forks that imports made of it."""
        family = [(self.name_of(each.conversation), each) for each in self._family(source)]
        return [each for named, each in family if named == name or named.startswith(f"{name}@")]

    def _reaching(self, names: Iterable[str], end: int, skeleton: Skeleton) -> Source | None:
        """Return the newest source of the first of these conversations, or of its forks, that has the record before
        number ``end``.
        """
        for name in names:
            source = self._source_named(name)
            for each in reversed([] if source is None else self._family(source)):
                if each.records >= end and skeleton.is_number(self._record(each, end - 1), end - 1):
                    return each
        return None

    def _family(self, source: Source) -> list[Source]:
        return [*self.query(lambda sources: [*sources.family(source.root)])]

    def _find_beginning(self, known: list[Source]) -> None:
        """Take notice of the records from which a source goes on, unless it was imported without them."""
        skeleton = _counting(self.found.format)
        if isinstance(skeleton, DecodedRecords):
            return
        reading = reading_of(self.found.path, self.found.reader)
        first = next(reading.blocks(skeleton.add), None)
        if first is None or skeleton.follows is None:
            return
        hashes = [self._hashes_of(each) for each in known]
        if not any(each.startswith(first.hashes[:HASH_BYTES]) for each in hashes):
            self.before = self._hashes_before(known[-1], skeleton.follows[1])

    def _hashes_before(self, source: Source, end: int) -> bytes:
        return self._hashes_of(source)[: end * HASH_BYTES]

    def _hashes_of(self, source: Source) -> bytes:
        hashes: bytes = self.query(lambda sources: sources.hashes(source))
        return hashes

    def _redacted_in(self, source: Source) -> set[int]:
        numbers: set[int] = self.query(lambda sources: sources.all_redacted(source))
        return numbers

    def _is_taken(self, name: str) -> bool:
        return self.query(lambda sources: sources.database.find(sources.reader, name, pending=True)) is not None

    def _source_named(self, name: str) -> Source | None:
        there = self.query(lambda sources: sources.database.find(sources.reader, name, pending=True))
        is_here = there is not None and there.erasure is None
        return self.source(there.key) if is_here else None

    def _record(self, source: Source, number: int) -> bytes:
        block = next(blocks_of(self.store.database, source, number))
        return block.record(number)

    def _reading(self) -> LineReading | WholeReading:
        """Return a pass over the source, in which the first record follows those from which it goes on."""
        reading = reading_of(self.found.path, self.found.reader)
        reading.records = len(self.before) // HASH_BYTES
        return reading

    def _compared(self, known: list[Source], place: Place | None = None) -> Imported:
        """Import a source that may differ from what is here: it goes on with what it has most in common with. A place
        that is as it was stays what it became, also where that went on since from another place.
        """
        reading = self._reading()
        hashes = self.before + b"".join(block.hashes for block in reading.blocks(check_json))
        total = reading.records
        if total == 0:
            raise NotAHistory(self.found.path, _no_record(reading))
        if place is not None and (place.records, place.digest) == (total, reading.digest):
            if (source := self.source(place.conversation)) is not None:
                self._note(source, reading)
            return self._outcome(reading, 0, conversation=place.conversation)
        there = [(self._hashes_of(each), each) for each in known]
        alike, nearest = max((shared(stored, hashes), -number) for number, (stored, _) in enumerate(there))
        source = known[-nearest]
        if alike == total:
            self._note(source, reading)
            is_older = total < source.records
            return self._outcome(reading, 0, conversation=source.conversation)._replace(is_older=is_older)
        self._check_redactions(known, alike)
        if alike == 0 and place is not None:  # another source: it may name its own conversation
            return self._new()
        if alike == source.records:
            return self._append(self._reading(), source, alike)
        if isinstance(reading, WholeReading) and self._is_provisional(source, alike):
            return self._replace_last(source, alike)
        return self._fork(source, alike)

    def _check_redactions(self, known: list[Source], alike: int) -> None:
        """Refuse a source that was written again before a redacted record, or whose records repeat earlier ones."""
        for source in known:
            gone = self._redacted_in(source)
            if gone and self.found.format.repeats:
                raise SourceRefused(
                    f"its records repeat what earlier ones say, and record {max(gone)} of "
                    f"{self.name_of(source.conversation)!r} was redacted, which would come back; nothing was added. "
                    f"{_APART}"
                )
            if any(number >= alike for number in gone):
                raise SourceRefused(
                    f"it was written again from record {alike} on, and record {max(gone)} of "
                    f"{self.name_of(source.conversation)!r} was redacted, which would come back; nothing was added. "
                    f"{_APART}"
                )

    def _is_provisional(self, source: Source, alike: int) -> bool:
        """Return whether only the last record differs, of which no event was made: its program was writing it."""
        is_last = alike == source.records - 1 and alike >= source.from_record
        return is_last and source.made <= alike and alike not in source.redacted

    def _fork(self, source: Source, alike: int, named: str = "") -> Imported:
        """Begin a fork of a source at its first record that differs, with this name or one of its own."""
        while source.parent is not None and alike <= source.from_record:
            source = self.source(source.parent) or source
        name = self.name_of(source.conversation)
        fork = named or f"{name}@{alike}"
        for number in count(2):
            if not self._is_taken(fork):
                break
            fork = f"{name}@{alike}.{number}"
        if alike:
            make_events(self.store, name)
            source = self.source(source.conversation) or source
        reading = self._reading()
        skeleton = self._skeleton(source, alike)
        self.forked_at = alike
        self._write_new(reading, skeleton, fork, None, self._blocks(reading, skeleton, source, alike), source, alike)
        return self._outcome(reading, reading.records - alike)

    def _replace_last(self, source: Source, alike: int) -> Imported:
        """Write the last record of a source again, and those behind it."""
        blocks = self.query(lambda sources: [*sources.own_blocks(source, alike)])
        head = chained(GENESIS, self.query(lambda sources: sources.hashes(source))[: alike * HASH_BYTES])
        kept = blocks[0].before(alike)
        skeleton = self._skeleton(source, alike)
        reading = reading_of(self.found.path, self.found.reader)
        shorter = source._replace(records=alike, head=head)

        def cut(sources: SourcesToWrite) -> None:
            sources.join_blocks(source, blocks, kept)

        self._write(reading, shorter, skeleton, alike, first=cut)
        return self._outcome(reading, reading.records - source.records)

    # -- writing ------------------------------------------------------------------------------------------------------

    def _skeleton(self, source: Source, stop: int | None = None) -> Skeleton | DecodedRecords:
        """Return what counts a source on, after what is here of it, or after its records before ``stop``."""
        format = format_named(source.format)
        start, skeleton = 0, _counting(format)
        if stop is None and format.skeleton is not None and source.sums:
            counted = format.skeleton(source.sums, self._hashes_of(source))
            start, skeleton = counted.state.records, counted
        stop = source.records if stop is None else stop
        for block in blocks_of(self.store.database, source._replace(records=stop), start):
            if block.first >= stop:
                break
            part = block if block.stop <= stop else block.before(stop)
            count_block(skeleton, part.since(max(start, part.first)))
        return skeleton

    def _blocks(
        self, reading: Reading, skeleton: Skeleton | DecodedRecords, source: Source, skip: int
    ) -> Iterator[Block]:
        """Yield the blocks from record ``skip`` on. What is redacted in the family comes in as what stays of it, and
        then nothing between records.
        """
        forbidden = self.query(lambda sources: sources.redacted_hashes(source.root))
        is_whole = self.query(lambda sources: _is_whole(sources, source.root))
        number = count(reading.records)
        add_new = self._adds_to(reading, skeleton)

        def add(record: bytes, hashed: bytes) -> None:
            if hashed in forbidden:
                record = skeleton.left_of(record)
            if next(number) >= skip:
                add_new(record, hashed)

        for block in reading.blocks(add):
            if block.stop <= skip:
                continue
            block = self._without(block.since(max(skip, block.first)), forbidden | self.secret, skeleton)
            yield block if is_whole else block.alone()

    def _without(self, block: Block, hashes: set[bytes], skeleton: Skeleton | DecodedRecords) -> Block:
        """Return a block in which what stays of the records with these hashes is in their place."""
        for number in block.numbers_of(hashes) if hashes else ():
            block = block.with_record(number, skeleton.left_of(block.record(number)))
            self.gone.append(number)
        return block

    def _write(
        self,
        reading: Reading,
        source: Source,
        skeleton: Skeleton | DecodedRecords,
        skip: int,
        first: Callable[[SourcesToWrite], None] = lambda sources: None,
    ) -> None:
        """Append the blocks of a reading to a source."""
        self.key = source.conversation
        blocks = self._blocks(reading, skeleton, source, skip)
        for group in _grouped(blocks):
            source = self._appended(source, group, skeleton, reading, first)
            self.written += group[-1].stop - group[0].first
            group.clear()  # before the next ones are read
            first = lambda sources: None  # noqa: E731 - only once
        self._finish(source, skeleton, reading)

    def _write_new(
        self,
        reading: Reading,
        skeleton: Skeleton | DecodedRecords,
        name: str,
        first: Block | None,
        blocks: Iterator[Block],
        parent: Source | None,
        alike: int,
    ) -> None:
        """Begin a conversation for a source, and write its blocks."""
        groups = _grouped(blocks if first is None else _with(first, blocks))
        group = next(groups)
        begin = self._beginning(reading, skeleton, name, group, parent, alike)
        source = self.database.recorder.transact(begin)
        self.key = source.conversation
        self.written = source.records - alike
        group.clear()  # before the next ones are read
        for more in groups:
            source = self._appended(source, more, skeleton, reading)
            self.written = source.records - alike
            more.clear()
        self._finish(source, skeleton, reading)

    def _finish(self, source: Source, skeleton: Skeleton | DecodedRecords, reading: Reading) -> None:
        """Write what is known at the end of a source, and was not written with its last records."""
        if not self.is_counted:
            self._count_all(source, skeleton)
        if not self.is_noted:
            self._note(source, reading)
        self._make_fork(source)

    def _count_all(self, source: Source, skeleton: Skeleton | DecodedRecords) -> None:
        """Write the figures of all records of a source."""

        def count_all(transaction: Transaction) -> None:
            sources = SourcesToWrite(self.database, transaction)
            now = sources.of_key(source.conversation)
            if now is None or (now.records, now.redacted) != (source.records, source.redacted):
                raise VersionConflict(self.name_of(source.conversation), source.records, source.records)
            sources.put(now._replace(sums=skeleton.encoded()))
            found = self.database.find_key(transaction, now.conversation)
            if found is not None:
                self._put_figures(WriteTransaction(transaction, found, self.database), now, skeleton)

        self.database.recorder.transact(count_all)
        self.is_counted = True

    def _beginning(
        self,
        reading: Reading,
        skeleton: Skeleton | DecodedRecords,
        name: str,
        blocks: Sequence[Block],
        parent: Source | None = None,
        alike: int = 0,
    ) -> Callable[[Transaction], Source]:
        """Return what begins a conversation with the first blocks of a source."""

        def begin(transaction: Transaction) -> Source:
            writing = self._begun(transaction, name, parent, alike)
            sources = SourcesToWrite.beside(writing)
            of_fork = parent is not None and alike > 0
            head = GENESIS
            if parent is not None and alike:
                head = chained(GENESIS, sources.hashes(parent)[: alike * HASH_BYTES])
            begun = Source(
                writing.key,
                writing.key if parent is None else parent.root,
                parent.conversation if of_fork and parent else None,
                alike,
                alike,
                alike,
                self.found.format.name,
                READER,
                head,
                _fingerprint(skeleton, blocks) if parent is None else parent.fingerprint,
            )
            return self._put(writing, sources, begun, blocks, skeleton, reading)

        return begin

    def _make_fork(self, source: Source) -> None:
        """Make the events of a source that is a fork: its line counts the records that it shares too, and sums of the
        store count these once only among events.
        """
        if source.parent is not None:
            make_events(self.store, self.name_of(source.conversation))

    def _begun(self, transaction: Transaction, name: str, parent: Source | None, alike: int) -> WriteTransaction:
        """Begin the conversation of a source, or of a fork."""
        database = self.database
        there = database.find(transaction, name, pending=True)
        if there is not None and there.erasure is None:
            raise VersionConflict(name, 0, there.version)
        if parent is not None and alike:
            sources = Sources(database, transaction)
            made = sources.made(parent)
            ends = (first + events for number, (first, events) in made.items() if number < alike)
            last = max(ends, default=0)
            border = min((made[number][0] for number in made if number >= alike), default=last)
            if border:
                fork = begin_fork(database, transaction, sources.name_of(parent.conversation), border, name)
                return WriteTransaction(transaction, database.find_key(transaction, fork.key) or fork, database)
        if self.again:
            sources_to_write = SourcesToWrite(database, transaction)
            sources_to_write.allow(self.place)
        replaces = None if there is None else there.key
        new = Conversation(0, name, database.now(), new_salt(), replaces=replaces)
        begun = begin_new(transaction, database, new)
        writing = WriteTransaction(transaction, begun, database)
        writing.begin()
        writing.list_as(0, [EVERY])
        return writing

    def _appended(
        self,
        source: Source,
        blocks: Sequence[Block],
        skeleton: Skeleton | DecodedRecords,
        reading: Reading,
        first: Callable[[SourcesToWrite], None] = lambda sources: None,
    ) -> Source:
        def append(transaction: Transaction) -> Source:
            sources = Sources(self.database, transaction)
            now = sources.of_key(source.conversation)
            found = self.database.find(transaction, sources.name_of(source.conversation), pending=True)
            before = None if now is None else (now.made, now.redacted)
            if before != (source.made, source.redacted) or found is None or found.key != source.conversation:
                raise VersionConflict(self.name_of(source.conversation), source.records, source.records)
            writing = WriteTransaction(transaction, found, self.database)
            sources = SourcesToWrite.beside(writing)
            first(sources)
            assert now is not None
            return self._put(writing, sources, source._replace(about=now.about), blocks, skeleton, reading)

        return self.database.recorder.transact(append)

    def _put(
        self,
        writing: WriteTransaction,
        sources: SourcesToWrite,
        source: Source,
        blocks: Sequence[Block],
        skeleton: Skeleton | DecodedRecords,
        reading: Reading,
    ) -> Source:
        """Write blocks behind those of a source, and what is known of it then."""
        self._check_refused(sources, source, blocks)
        sources.put_blocks(source, blocks)
        hashes = b"".join(block.hashes for block in blocks)
        gone = [number for number in self.gone if blocks[0].first <= number < blocks[-1].stop]
        told: dict[str, Any] = {
            "paths": self._paths(source),
            "prefix": self.prefix,
            "usage": _with_usage(about(source).get("usage", ()), self.found.usage),
            "unread": reading.unread,
            IMPORTED_AT: self.database.now(),
        }
        of_records = skeleton.where if isinstance(skeleton, DecodedRecords) else skeleton.state.where
        if where := {**self.where, **about(source).get(WHERE, {}), **of_records}:
            told[WHERE] = where
        if REDACTED in about(source):
            told[REDACTED] = True
        told |= still_compacting(about(source), skeleton)
        told |= self._words(sources, source, reading, is_whole=not gone)
        records = blocks[-1].stop
        grown = source._replace(
            records=records,
            head=chained(source.head, hashes),
            redacted=tuple(sorted({*source.redacted, *gone})),
            about=msgspec.json.encode(told),
        )
        self.is_counted = reading.is_done or not source.records
        if self.is_counted:  # of a long source at its beginning and its end, since it costs what is counted so far
            grown = grown._replace(sums=skeleton.encoded())
        sources.put(grown)
        writing.set_pending(grown.records - grown.made)
        if self.is_counted:
            self._put_figures(writing, grown, skeleton)
        if reading.records == records:
            sources.put_place(self.place, self._seen(grown, reading))
            self.is_noted = reading.is_done
        writing.end()
        return grown

    def _put_figures(self, writing: WriteTransaction, source: Source, skeleton: Skeleton | DecodedRecords) -> None:
        """Write the figures of a source, of which all records are counted."""
        figures = figures_in(skeleton, self.found.format, source.records, about(source))
        put_figures(writing.transaction, writing.found, writing.data_key, self.database.settings.keys, figures)

    def _check_refused(self, sources: Sources, source: Source, blocks: Sequence[Block]) -> None:
        """Refuse records that were redacted in another history; those of this family came in as what stays of them."""
        if not sources.refuse_any():
            return
        gone, head = {*self.gone}, source.head
        numbers = dict[bytes, int]()
        hashes = dict[int, bytes]()
        for block in blocks:
            for number, hashed in enumerate(each_hash(block.hashes), block.first):
                head = chained(head, hashed)
                if number not in gone:
                    hashes[number] = hashed
                    numbers |= {hashed: number, fingerprint_of(head): number}
        refused = {numbers[fingerprint] for fingerprint in sources.refused_among(numbers)}
        if not refused:
            return
        if {hashes[number] for number in refused} & sources.redacted_hashes(source.root):  # since the import began
            raise VersionConflict(sources.name_of(source.conversation), source.records, source.records)
        if not self.again:
            raise SourceRefused(
                f"its record {min(refused)} was redacted or erased in another conversation, and would come back; "
                f"import it with --again if it has to"
            )

    def _words(self, sources: Sources, source: Source, reading: Reading, *, is_whole: bool = True) -> dict[str, Any]:
        """Return the title of a source, and what a document holds between its records: nothing, where these or a record
        of the family are redacted, since both may repeat that one.
        """
        told, title, frame = dict[str, Any](), self.found.title, reading.frame if reading.is_done else None
        if not title and frame is None:
            return told
        is_whole = is_whole and _is_whole(sources, source.root)
        if title and is_whole:
            told[TITLE] = title
        if frame is not None:
            told[FRAME] = frame if is_whole else Frame()
        return told

    def _adds_to(self, reading: Reading, skeleton: Skeleton | DecodedRecords) -> Callable[[bytes, bytes], None]:
        """Return what counts the records of a reading, and takes notice of what the decoder says of them, and of which
        are secret.
        """
        if isinstance(skeleton, Skeleton):
            add = skeleton.add
            if self.is_secret is None:
                return add
            return lambda record, hashed: add(self._kept(record, hashed, skeleton), hashed)
        decoded = skeleton

        def add_decoded(record: bytes, hashed: bytes) -> None:
            record = self._kept(record, hashed, decoded)
            before = len(decoded.findings)
            decoded.add(record, hashed)
            for problem in decoded.findings[before:]:
                self.unclear_count += 1
                if len(self.unclear) < FINDINGS_MAX:
                    self.unclear.append(ImportFinding(reading.place, problem))

        return add_decoded

    def _kept(self, record: bytes, hashed: bytes, skeleton: Skeleton | DecodedRecords) -> bytes:
        """Return a record, or what stays of one that is secret."""
        if self.is_secret is None or not self.is_secret(record):
            return record
        self.secret.add(hashed)
        return skeleton.left_of(record)

    def _note(self, source: Source, reading: Reading) -> None:
        """Note what is at this place now, its title, and what a document now holds between its records."""

        def note(transaction: Transaction) -> None:
            sources = SourcesToWrite(self.database, transaction)
            sources.put_place(self.place, self._seen(source, reading))
            now = sources.of_key(source.conversation)
            if now is not None and reading.records == now.records:
                told = {**about(now), "paths": self._paths(now), **self._words(sources, now, reading)}
                if (encoded := msgspec.json.encode(told)) != now.about:
                    sources.put(now._replace(about=encoded))
                    transaction.forget_figures(now.conversation)

        self.key = source.conversation
        self.database.recorder.transact(note)
        self._note_usage(reading)

    def _note_usage(self, reading: Reading) -> None:
        """Note the usage that a source with the same records now tells beside them. Where these are all events, figures
        are counted from the events, so it is an event too.
        """
        source = None if self.key is None else self.source(self.key)
        if source is None or not self.found.usage or reading.records != source.records:
            return
        before, name = about(source).get("usage", []), self.name_of(source.conversation)
        told = {**about(source), "usage": _with_usage(before, self.found.usage)}
        if told["usage"] == before or _amount(told["usage"]) < _amount(before):  # it is an older copy
            return
        now = source._replace(about=msgspec.json.encode(told))
        events = list[DocumentChanges]()
        version = self.store.conversation(name, pending=True).version
        if source.made == source.records:
            changes = change_of_documents(self.store, name, {IMPORTED: told["usage"]})
            events += [] if changes is None else [changes]

        def also(writing: WriteTransaction) -> None:
            sources = SourcesToWrite.beside(writing)
            if sources.of_key(source.conversation) != source:
                raise VersionConflict(name, version, version)
            sources.put(now)
            writing.transaction.forget_figures(now.conversation)

        self.store.extend(name, events, expected_version=version, also=also)

    def _paths(self, source: Source) -> list[str]:
        """Return the files from which a source came, with those of this import."""
        those = (os_path.abspath(path) for path in (self.found.path, *self.found.others))
        return [*dict.fromkeys((*about(source).get("paths", ()), *those))]

    def _seen(self, source: Source, reading: Reading) -> Place:
        now = time.time_ns() // 1_000
        state = self.state if reading.is_done else b""
        return Place(source.conversation, now, reading.records, reading.taken, state, reading.digest)

    # -- steps --------------------------------------------------------------------------------------------------------

    def query(self, work: Callable[[Sources], Any]) -> Any:
        return self.database.recorder.query(lambda reader: work(Sources(self.database, reader)))

    def source(self, key: int) -> Source | None:
        found: Source | None = self.query(lambda sources: sources.of_key(key))
        return found

    def name_of(self, key: int) -> str:
        return str(self.query(lambda sources: sources.name_of(key)))

    def _outcome(self, reading: Reading, added: int, conversation: int | None = None) -> Imported:
        key = self.key if conversation is None else conversation
        assert key is not None
        return Imported(
            self.name_of(key),
            added,
            reading.records,
            self.found.format.name,
            self.found.path,
            self.forked_at,
            waits=reading.waits,
            findings=(*self.found.findings, *reading.findings, *self.unclear),
            findings_count=len(self.found.findings) + reading.findings_count + self.unclear_count,
            note=self.found.format.note,
        )


def _with_usage(before: Sequence[Any], now: Sequence[Any]) -> list[Any]:
    """Return what a source told of calls of models, with what it tells now: that of a reply once, a total again."""
    replies = {call.get("reply") for call in now}
    return [*(call for call in before if call.get("reply") is not None and call["reply"] not in replies), *now]


def _is_whole(sources: Sources, root: int) -> bool:
    """Return whether nothing of a family was redacted."""
    return not any(each.redacted or REDACTED in about(each) for each in sources.family(root))


def _amount(usage: Sequence[Any]) -> tuple[int, float]:
    """Return the tokens and the cost that a source tells beside its records."""
    calls = list(calls_beside(usage))
    tokens = (call.usage.get(name, 0) for call in calls for name in ("prompt_tokens", "completion_tokens"))
    return sum(tokens), sum(call.cost or 0.0 for call in calls)


def _no_record(reading: Reading) -> str:
    return "; ".join(("holds no record that can be read", *map(str, reading.findings[:1])))


def _fingerprint(skeleton: Skeleton | DecodedRecords, blocks: Sequence[Block]) -> bytes:
    """Return what a source is refused by once it is erased: the first line of a log, which has an id or a time. Many
    documents begin with the same prompt, so of these the first records together.
    """
    hashes = b"".join(block.hashes for block in blocks)
    if isinstance(skeleton, Skeleton):
        return hashes[:HASH_BYTES]
    return fingerprint_of(chained(GENESIS, hashes[: _FIRST * HASH_BYTES]))


def _counting(format: Format) -> Skeleton | DecodedRecords:
    return DecodedRecords(format) if format.skeleton is None else format.skeleton()


def _with(first: Block, blocks: Iterator[Block]) -> Iterator[Block]:
    yield first
    yield from blocks


def _grouped(blocks: Iterator[Block]) -> Iterator[list[Block]]:
    """Yield blocks together that one transaction writes."""
    group, size = list[Block](), 0
    for block in blocks:
        group.append(block)
        size += len(block.raw)
        if size >= _TRANSACTION_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


__all__ = ["ConversationErased", "Failed", "Import", "Imported", "hash_of"]
