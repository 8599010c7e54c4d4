"""Write a source: its blocks, its figures, and what is known beside its records.

Counted is what is stored: a record that was redacted, or is secret, comes in and counts as what
stays of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from os import path as os_path
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from foldlog._archive.compacting import still_compacting
from foldlog._archive.projecting import SECRET, SECRET_BYTES, change_of_documents, make_events
from foldlog._archive.reading import FINDINGS_MAX, reading_of, state_of
from foldlog._figures.of_sources import count_block, figures_in
from foldlog._figures.writing import put_figures
from foldlog._formats.decoded import READER, DecodedRecords
from foldlog._formats.files.found_sources import Found, SourceRefused
from foldlog._formats.files.frames import KEY as FRAME, REDACTED, TITLE, WHERE, Frame
from foldlog._formats.format import Format
from foldlog._formats.record import ImportFinding
from foldlog._formats.registry import format_named
from foldlog._formats.skeleton import Skeleton
from foldlog._formats.usage import calls_beside
from foldlog._usage import IMPORTED
from foldlog.eventstore import DocumentChanges, Store, VersionConflict
from foldlog.eventstore.log.appending import begin_fork
from foldlog.eventstore.log.row import new_salt
from foldlog.eventstore.log.writing import EVERY, WriteTransaction, begin_new
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.types import Conversation
from foldlog.eventstore.sources.blocks import (
    GENESIS,
    HASH_BYTES,
    Block,
    chained,
    each_hash,
    fingerprint_of,
)
from foldlog.eventstore.sources.reading import IMPORTED_AT, about, blocks_of
from foldlog.eventstore.sources.tables import Place, Source, Sources, SourcesToWrite

_TRANSACTION_BYTES: Final = 2**19
"""The bytes of a source in one transaction: a longer source comes in several."""
_FIRST: Final = 4
"""The number of records that tell a document from others."""


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


class SourceOptions(NamedTuple):
    """How sources are imported: see ``Import``."""

    prefix: str = ""
    again: bool = False
    is_secret: Callable[[bytes], bool] | None = None
    where: Mapping[str, str] = {}


class SourceWriter:
    """Writes one source and what is known of it, some blocks in each transaction."""

    def __init__(
        self,
        store: Store,
        found: Found,
        place: bytes,
        options: SourceOptions,
        state: bytes | None = None,
    ) -> None:
        """``state`` is how the file is; by default as it is now."""
        self.store = store
        self.found = found
        self.place = place
        self.options = options
        self.reading = reading_of(found.path, found.reader)
        self.skeleton = counting(found.format)
        """What counts the records that the reading yields."""
        self.database = store.database
        self.state = state_of(found.path) if state is None else state
        self.key: int | None = None
        self.forked_at: int | None = None
        self.written = 0
        """How many records are on disk by now."""
        self.secret = set[bytes]()
        """The hashes of records that are kept out."""
        self._gone = list[int]()
        """The numbers of the records that come in as what stays of them."""
        self._is_noted = False
        """Whether it is stored that all of the source is here."""
        self._is_counted = True
        """Whether the stored figures count all that is stored of the source."""
        self._unclear = list[ImportFinding]()
        """What the decoder says of records, where it counts them."""
        self._unclear_count = 0

    def counting_on(self, source: Source, stop: int | None = None) -> Skeleton | DecodedRecords:
        """Return what counts a source on, after what is here of it, or after its records before
        ``stop``.
        """
        format = format_named(source.format)
        start = 0
        skeleton = counting(format)
        if stop is None and format.skeleton is not None and source.sums:
            counted = format.skeleton(source.sums, self.hashes_of(source))
            start = counted.state.records
            skeleton = counted
        stop = source.records if stop is None else stop
        for block in blocks_of(self.store.database, source._replace(records=stop), start):
            if block.first >= stop:
                break
            part = block if block.stop <= stop else block.before(stop)
            count_block(skeleton, part.since(max(start, part.first)))
        return skeleton

    def new_blocks(self, source: Source, skip: int) -> Iterator[Block]:
        """Yield the blocks from record ``skip`` on. What is redacted in the family comes in as what
        stays of it, and then nothing between records.
        """
        forbidden = self.query(lambda sources: sources.redacted_hashes(source.root))
        is_whole = self.query(lambda sources: _is_whole(sources, source.root))
        number = count(self.reading.records)
        add_new = self.adds()

        def add(record: bytes, hashed: bytes) -> None:
            if hashed in forbidden:
                record = self.skeleton.left_of(record)
            if next(number) >= skip:
                add_new(record, hashed)

        for block in self.reading.blocks(add):
            if block.stop <= skip:
                continue
            block = self.without(block.since(max(skip, block.first)), forbidden | self.secret)
            yield block if is_whole else block.alone()

    def without(self, block: Block, hashes: set[bytes]) -> Block:
        """Return a block in which what stays of the records with these hashes is in their place."""
        for number in block.numbers_of(hashes) if hashes else ():
            block = block.with_record(number, self.skeleton.left_of(block.record(number)))
            self._gone.append(number)
        return block

    def append(
        self, source: Source, skip: int, first: Callable[[SourcesToWrite], None] | None = None
    ) -> None:
        """Append the blocks of the reading from record ``skip`` on to a source. ``first`` is done
        before, in the transaction of the first ones.
        """
        self.key = source.conversation
        self._append_groups(source, _grouped(self.new_blocks(source, skip)), first)

    def begin(
        self, name: str, blocks: Iterator[Block], parent: Source | None = None, alike: int = 0
    ) -> None:
        """Begin a conversation for a source, and write its blocks."""
        groups = _grouped(blocks)
        group = next(groups)
        source = self.database.recorder.transact(self.beginning(name, group, parent, alike))
        self.key = source.conversation
        self.written = source.records - alike
        group.clear()  # before the next ones are read
        self._append_groups(source, groups)

    def _append_groups(
        self,
        source: Source,
        groups: Iterator[list[Block]],
        first: Callable[[SourcesToWrite], None] | None = None,
    ) -> None:
        for group in groups:
            before = source.records
            source = self._appended(source, group, first)
            self.written += source.records - before
            group.clear()  # before the next ones are read
            first = None
        self.finish(source)

    def finish(self, source: Source) -> None:
        """Write what is known at the end of a source, and was not written with its last records.
        Make the events of a fork: its figures count the records that it shares too, and sums of the
        store count these once only among events.
        """
        if not self._is_counted:
            source = self._appended(source, ())
        if not self._is_noted:
            self.note(source)
        if source.parent is not None:
            make_events(self.store, self.name_of(source.conversation))

    def beginning(
        self, name: str, blocks: Sequence[Block], parent: Source | None = None, alike: int = 0
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
                fingerprint(self.skeleton, blocks) if parent is None else parent.fingerprint,
            )
            return self._put(writing, sources, begun, blocks)

        return begin

    def _begun(
        self, transaction: Transaction, name: str, parent: Source | None, alike: int
    ) -> WriteTransaction:
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
                fork = begin_fork(
                    database, transaction, sources.name_of(parent.conversation), border, name
                )
                return WriteTransaction(
                    transaction, database.find_key(transaction, fork.key) or fork, database
                )
        if self.options.again:
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
        first: Callable[[SourcesToWrite], None] | None = None,
    ) -> Source:
        def append(transaction: Transaction) -> Source:
            sources = Sources(self.database, transaction)
            now = sources.find_by_key(source.conversation)
            found = self.database.find(
                transaction, sources.name_of(source.conversation), pending=True
            )
            before = None if now is None else (now.made, now.redacted)
            if (
                before != (source.made, source.redacted)
                or found is None
                or found.key != source.conversation
            ):
                raise VersionConflict(
                    self.name_of(source.conversation), source.records, source.records
                )
            writing = WriteTransaction(transaction, found, self.database)
            sources = SourcesToWrite.beside(writing)
            if first is not None:
                first(sources)
            assert now is not None
            stored = source._replace(about=now.about, sums=now.sums)
            return self._put(writing, sources, stored, blocks)

        return self.database.recorder.transact(append)

    def _put(
        self,
        writing: WriteTransaction,
        sources: SourcesToWrite,
        source: Source,
        blocks: Sequence[Block],
    ) -> Source:
        """Write blocks behind those of a source, if there are any, and what is known of it then."""
        reading = self.reading
        skeleton = self.skeleton
        records = blocks[-1].stop if blocks else source.records
        self._check_refused(sources, source, blocks)
        sources.put_blocks(source, blocks)
        hashes = b"".join(block.hashes for block in blocks)
        gone = [number for number in self._gone if source.records <= number < records]
        told: dict[str, Any] = {
            "paths": self._paths(source),
            "prefix": self.options.prefix,
            "usage": _with_usage(about(source).get("usage", ()), self.found.usage),
            "unread": reading.unread,
            IMPORTED_AT: self.database.now(),
        }
        if isinstance(skeleton, DecodedRecords):
            of_records = skeleton.where
        else:
            of_records = skeleton.state.where
        if where := {**self.options.where, **about(source).get(WHERE, {}), **of_records}:
            told[WHERE] = where
        if REDACTED in about(source):
            told[REDACTED] = True
        told |= still_compacting(about(source), skeleton)
        told[SECRET] = about(source).get(SECRET) or os.urandom(SECRET_BYTES).hex()
        told |= self._words(sources, source, is_whole=not gone)
        grown = source._replace(
            records=records,
            head=chained(source.head, hashes),
            redacted=tuple(sorted({*source.redacted, *gone})),
            about=msgspec.json.encode(told),
        )
        self._is_counted = reading.is_done or not source.records
        writing.set_pending(grown.records - grown.made)
        # of a long source at its beginning and its end, since it costs what is counted so far
        if self._is_counted:
            self._put_figures(writing, grown)
            sources.put(grown._replace(sums=skeleton.encoded()))
        else:
            sources.put(grown)
        if reading.records == records:
            sources.put_place(self.place, self._seen(grown))
            self._is_noted = reading.is_done
        writing.end()
        return grown

    def _put_figures(self, writing: WriteTransaction, source: Source) -> None:
        """Write the figures of a source, of which all records are counted."""
        figures = figures_in(self.skeleton, self.found.format, source.records, about(source))
        put_figures(
            writing.transaction,
            writing.state,
            writing.data_key,
            self.database.settings.keys,
            figures,
        )

    def _check_refused(self, sources: Sources, source: Source, blocks: Sequence[Block]) -> None:
        """Refuse records that were redacted in another history; those of this family came in as
        what stays of them.
        """
        if not sources.refuse_any():
            return
        gone = {*self._gone}
        head = source.head
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
        # since the import began
        if {hashes[number] for number in refused} & sources.redacted_hashes(source.root):
            raise VersionConflict(
                sources.name_of(source.conversation), source.records, source.records
            )
        if not self.options.again:
            raise SourceRefused(
                f"its record {min(refused)} was redacted or erased in another conversation, and"
                " would come back; import it with --again if it has to"
            )

    def _words(self, sources: Sources, source: Source, *, is_whole: bool = True) -> dict[str, Any]:
        """Return the title of a source, and what a document holds between its records: nothing,
        where these or a record of the family are redacted, since both may repeat that one.
        """
        told = dict[str, Any]()
        title = self.found.title
        frame = self.reading.frame if self.reading.is_done else None
        if not title and frame is None:
            return told
        is_whole = is_whole and _is_whole(sources, source.root)
        if title and is_whole:
            told[TITLE] = title
        if frame is not None:
            told[FRAME] = frame if is_whole else Frame()
        return told

    def adds(self) -> Callable[[bytes, bytes], None]:
        """Return what counts the records of the reading, and takes notice of what the decoder says
        of them, and of which are secret.
        """
        skeleton = self.skeleton
        if isinstance(skeleton, Skeleton):
            add = skeleton.add
            if self.options.is_secret is None:
                return add
            return lambda record, hashed: add(self._kept(record, hashed), hashed)
        decoded = skeleton

        def add_decoded(record: bytes, hashed: bytes) -> None:
            record = self._kept(record, hashed)
            before = len(decoded.findings)
            decoded.add(record, hashed)
            for problem in decoded.findings[before:]:
                self._unclear_count += 1
                if len(self._unclear) < FINDINGS_MAX:
                    self._unclear.append(ImportFinding(self.reading.place, problem))

        return add_decoded

    def _kept(self, record: bytes, hashed: bytes) -> bytes:
        """Return a record, or what stays of one that is secret."""
        if self.options.is_secret is None or not self.options.is_secret(record):
            return record
        self.secret.add(hashed)
        return self.skeleton.left_of(record)

    def note(self, source: Source) -> None:
        """Note what is at this place now, its title, and what a document now holds between its
        records.
        """

        def note(transaction: Transaction) -> None:
            sources = SourcesToWrite(self.database, transaction)
            sources.put_place(self.place, self._seen(source))
            now = sources.find_by_key(source.conversation)
            if now is not None and self.reading.records == now.records:
                told = {**about(now), "paths": self._paths(now), **self._words(sources, now)}
                if (encoded := msgspec.json.encode(told)) != now.about:
                    sources.put(now._replace(about=encoded))
                    transaction.forget_figures(now.conversation)

        self.key = source.conversation
        self.database.recorder.transact(note)
        self._note_usage()

    def _note_usage(self) -> None:
        """Note the usage that a source with the same records now tells beside them. Where these are
        all events, figures are counted from the events, so it is an event too.
        """
        source = None if self.key is None else self.source(self.key)
        if source is None or not self.found.usage or self.reading.records != source.records:
            return
        before = about(source).get("usage", [])
        name = self.name_of(source.conversation)
        told = {**about(source), "usage": _with_usage(before, self.found.usage)}
        # it is an older copy
        if told["usage"] == before or _amount(told["usage"]) < _amount(before):
            return
        now = source._replace(about=msgspec.json.encode(told))
        events = list[DocumentChanges]()
        version = self.store.conversation(name, pending=True).version
        if source.made == source.records:
            changes = change_of_documents(self.store, name, {IMPORTED: told["usage"]})
            events += [] if changes is None else [changes]

        def also(writing: WriteTransaction) -> None:
            sources = SourcesToWrite.beside(writing)
            if sources.find_by_key(source.conversation) != source:
                raise VersionConflict(name, version, version)
            sources.put(now)
            writing.transaction.forget_figures(now.conversation)

        self.store.extend(name, events, expected_version=version, also=also)

    def _paths(self, source: Source) -> list[str]:
        """Return the files from which a source came, with those of this import."""
        those = (os_path.abspath(path) for path in (self.found.path, *self.found.others))
        return [*dict.fromkeys((*about(source).get("paths", ()), *those))]

    def _seen(self, source: Source) -> Place:
        now = time.time_ns() // 1_000
        reading = self.reading
        state = self.state if reading.is_done else b""
        return Place(
            source.conversation, now, reading.records, reading.taken, state, reading.digest
        )

    # -- steps
    # ----------------------------------------------------------------------------------------------

    def query(self, work: Callable[[Sources], Any]) -> Any:
        return self.database.recorder.query(lambda reader: work(Sources(self.database, reader)))

    def source(self, key: int) -> Source | None:
        found: Source | None = self.query(lambda sources: sources.find_by_key(key))
        return found

    def hashes_of(self, source: Source) -> bytes:
        hashes: bytes = self.query(lambda sources: sources.hashes(source))
        return hashes

    def name_of(self, key: int) -> str:
        return str(self.query(lambda sources: sources.name_of(key)))

    def outcome(self, added: int, conversation: str = "") -> Imported:
        """Return what became of the source: ``conversation`` is what it is here."""
        reading = self.reading
        return Imported(
            conversation or self.name_of(self.key or 0),
            added,
            reading.records,
            self.found.format.name,
            self.found.path,
            self.forked_at,
            waits=reading.waits,
            findings=(*self.found.findings, *reading.findings, *self._unclear),
            findings_count=len(self.found.findings) + reading.findings_count + self._unclear_count,
            note=self.found.format.note,
        )


def _with_usage(before: Sequence[Any], now: Sequence[Any]) -> list[Any]:
    """Return what a source told of calls of models, with what it tells now: that of a reply once, a
    total again.
    """
    replies = {call.get("reply") for call in now}
    return [
        *(
            call
            for call in before
            if call.get("reply") is not None and call["reply"] not in replies
        ),
        *now,
    ]


def _is_whole(sources: Sources, root: int) -> bool:
    """Return whether nothing of a family was redacted."""
    return not any(each.redacted or REDACTED in about(each) for each in sources.family(root))


def _amount(usage: Sequence[Any]) -> tuple[int, float]:
    """Return the tokens and the cost that a source tells beside its records."""
    calls = list(calls_beside(usage))
    tokens = (
        call.usage.get(name, 0) for call in calls for name in ("prompt_tokens", "completion_tokens")
    )
    return sum(tokens), sum(call.cost or 0.0 for call in calls)


def fingerprint(skeleton: Skeleton | DecodedRecords, blocks: Sequence[Block]) -> bytes:
    """Return what a source is refused by once it is erased: the first line of a log, which has an
    id or a time. Many documents begin with the same prompt, so of these the first records together.
    """
    hashes = b"".join(block.hashes for block in blocks)
    if isinstance(skeleton, Skeleton):
        return hashes[:HASH_BYTES]
    return fingerprint_of(chained(GENESIS, hashes[: _FIRST * HASH_BYTES]))


def counting(format: Format) -> Skeleton | DecodedRecords:
    if format.skeleton is None:
        return DecodedRecords(format)
    return format.skeleton()


def _grouped(blocks: Iterator[Block]) -> Iterator[list[Block]]:
    """Yield blocks together that one transaction writes."""
    group = list[Block]()
    size = 0
    for block in blocks:
        group.append(block)
        size += len(block.raw)
        if size >= _TRANSACTION_BYTES:
            yield group
            group = []
            size = 0
    if group:
        yield group
