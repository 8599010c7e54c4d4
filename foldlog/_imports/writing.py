"""Write a source into the store: its blocks, figures and facts.

A redacted or secret record is stored as its skeleton, without texts. The figures count redacted and
secret records too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import path as os_path
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, TypeVarTuple

import msgspec

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog._imports.compacting import count_rest, is_compacting, still_compacting
from foldlog._imports.making_events import SECRET, SECRET_BYTES, change_of_documents, make_events
from foldlog._reports.figures.overview import PARENT
from foldlog.eventstore import DocumentChanges, Store, VersionConflict
from foldlog.eventstore.codec_json import whole_pairs
from foldlog.eventstore.log.appending import Seen, begin_fork
from foldlog.eventstore.log.row import new_salt
from foldlog.eventstore.log.writing import EVERY, WriteTransaction, begin_new
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.types import NOT_BEGUN, Conversation
from foldlog.eventstore.sources.blocks import (
    GENESIS,
    HASH_BYTES,
    SIZE,
    Block,
    chain_head,
    chained,
    fingerprint_of,
    join,
    numbers_with,
    place_of_beginning,
)
from foldlog.eventstore.sources.reading import (
    IMPORTED_AT,
    about,
    blocks_of,
    continued,
    is_family_whole,
)
from foldlog.eventstore.sources.tables import (
    CONTINUED,
    FRAME,
    REDACTED,
    TITLE,
    TITLED,
    WHERE,
    Continued,
    Place,
    Source,
    Sources,
    SourcesToWrite,
    query_sources,
)
from foldlog.eventstore.usage import IMPORTED
from foldlog.formats.files.found_sources import FoundHistory, SourceRefused
from foldlog.formats.files.frames import Frame
from foldlog.formats.files.source_reading import LineReading, reading_of, state_of
from foldlog.formats.format import Format
from foldlog.formats.json_text import parse
from foldlog.formats.model_calls import calls_beside
from foldlog.formats.record import ImportFinding, pick, refuse
from foldlog.formats.record_decoding import READER, DecodedRecords, NamedRecords, values_of
from foldlog.formats.registry import format_named
from foldlog.formats.skeleton import Skeleton, changes_titles, count_block

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")
_TRANSACTION_BYTES: Final = 2 * 2**20
"""The number of bytes after which a transaction writes no more blocks. With a quarter of them, a
first import of long logs takes 4 % more CPU (``benchmarks.hooks --rows logs``), and 1.5 MB less
memory.
"""
_FIRST: Final = 4
"""A document is recognized by its first records, up to this number."""


class Imported(NamedTuple):
    """The outcome of the import of a source.

    ``conversation``    the conversation of the source
    ``added``           the number of new records
    ``records``         the number of all records of the source
    ``format``          the name of the source's format
    ``path``            the file of the source
    ``forked_at``       if the import made a fork, the first record that differs from the stored
                        records
    ``is_older``        whether the store has more records than the source
    ``is_unchanged``    whether the file was not read, because it has not changed
    ``waits``           whether the last line of the source is incomplete; the next import reads
                        this line
    ``findings``        the first problems of records, and ``findings_count`` the number of all
    ``note``            what a user should know about the format
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


class Rewritten(NamedTuple):
    """A source that repeats the records that foldlog handed over in ``conversation``."""

    conversation: str
    continued: Continued


class SourceOptions(NamedTuple):
    """The options of an import that concern each source: see ``importing.Import``."""

    prefix: str = ""
    again: bool = False
    is_secret: Callable[[bytes], bool] | None = None
    where: Mapping[str, str] = {}


class SourceWriter:
    """Writes the records of a source. ``reading`` reads the records, and ``skeleton`` computes
    their figures. ``begin`` writes a new conversation, and ``append`` adds records to a stored
    conversation.
    """

    def __init__(
        self,
        store: Store,
        history: FoundHistory,
        place: bytes,
        options: SourceOptions,
        state: bytes | None = None,
    ) -> None:
        self.store = store
        self.found_history = history
        self.place = place
        self.options = options
        self.reading = reading_of(history.path, history.reader)
        self.skeleton = self.new_counter(history.format)
        self.database = store.database
        self.state = state_of(history.path) if state is None else state
        self.key: int | None = None
        self.forked_at: int | None = None
        self.written = 0
        self.secret_hashes = set[bytes]()
        """The hashes of secret records."""
        self.rewritten: Rewritten | None = None
        """The hand-over whose records this source repeats, if it does."""
        self._names = dict[int, str]()
        """The names of conversations that were looked up. A conversation keeps its name."""
        self._redacted_numbers = list[int]()
        self._problems = set[str]()
        """The problems that ``skeleton`` found."""
        self._is_place_noted = False
        self._is_counted = True
        """Whether the stored figures count all stored records of the source."""
        self._is_used = False
        """Whether the source has all its events, so that its figures come from its events."""
        self._counts = True
        """Whether ``skeleton`` counts all records of the source."""

    def _has_events(self, source: Source) -> bool:
        """Return whether this import makes the events of ``source``, from which its figures are
        counted then.
        """
        # Figures from the records of a fork, or of a history that went on in another program, would
        # count shared records twice.
        if self._is_used or source.parent is not None or CONTINUED in about(source):
            return True
        return self.reading.grows and self.found_history.format.skeleton is None

    def _leaves_last(self, source: Source) -> bool:
        """Return whether the program may still change the last record of ``source``, so that its
        events are made when the conversation is used. A log only grows at its end.
        """
        if self._is_used or source.parent is not None or CONTINUED in about(source):
            return False
        return not isinstance(self.reading, LineReading)

    def new_counter(self, format: Format) -> Skeleton | NamedRecords:
        """Return an object that counts records of a format from the first record on. Without a
        skeleton, the decoder of the format counts, or only names the conversation.
        """
        if format.skeleton is not None:
            return format.skeleton()
        if self.reading.grows:
            return NamedRecords(format)  # the decoder reports its findings when it makes the events
        return DecodedRecords(format)

    def continue_counting(self, source: Source) -> None:
        """Prepare ``skeleton`` for new records of ``source``."""
        self._is_used = source.made == source.records
        self._counts = not self._is_used or is_compacting(about(source))
        if self._counts:
            self.skeleton = self.count_until(source)
        elif self.found_history.format.skeleton is None:
            self.skeleton = NamedRecords(self.found_history.format)
        else:
            self.skeleton = self.new_counter(self.found_history.format)

    def count_until(self, source: Source, stop: int | None = None) -> Skeleton | NamedRecords:
        """Return an object that has counted the stored records of ``source``, or only the records
        before ``stop``.
        """
        format = format_named(source.format)
        start = 0
        counter = self.new_counter(format)
        if type(counter) is NamedRecords:
            return counter
        if stop is None and format.skeleton is not None and source.sums:
            # The stored sums already include most records, so continue from these sums.
            skeleton = format.skeleton(source.sums, self.hashes_of(source))
            start = skeleton.state.records
            counter = skeleton
        counted = source if stop is None else source._replace(records=stop)
        for block in blocks_of(self.store.database, counted, start):
            if isinstance(counter, Skeleton):
                count_block(counter, block.since(max(start, block.first)))
            else:
                for value in values_of(block.records()):
                    counter.take(value)
        return counter

    def new_blocks(self, source: Source, skip: int) -> Iterator[Block]:
        """Yield the blocks of the file from record ``skip`` on. Records that were redacted in the
        family of ``source`` are blank. Then the texts between records are left out too, because
        they may repeat a redacted record. Raises ``VersionConflict`` if the file changed since it
        was compared.
        """
        forbidden = self.query(Sources.redacted_hashes, source.root)
        is_whole = self.query(is_family_whole, source.root)
        name = self.name_of(source.conversation)
        skipped = self.hashes_of(source)[: skip * HASH_BYTES] if skip else b""
        number = self.reading.records
        stored_end = self._end_of_last_line(source, skip)
        before = b""
        add_new = self.counting_function()

        def add(record: bytes, record_hash: bytes) -> None:
            nonlocal number
            if number < skip:
                self.skeleton.check(record, record_hash)  # A damaged line is not a record.
            elif record_hash in forbidden:
                add_new(self.skeleton.without_texts(record), record_hash)
            else:
                add_new(record, record_hash)
            number += 1

        for block in self.reading.blocks(add):
            # The file may have been rewritten since it was compared, so compare it again.
            same = skipped[block.first * HASH_BYTES : block.stop * HASH_BYTES]
            if not block.hashes.startswith(same):
                raise VersionConflict(name, skip, self.reading.records)
            if block.stop <= skip:
                before = block.raw[block.places[-1] :]
                continue
            if block.first < skip:
                before = block.text_before(skip)
                block = block.since(skip)
            if stored_end is not None:
                block = block.after(before.removeprefix(stored_end))
                stored_end = None
            block = self.blank_records(block, forbidden | self.secret_hashes)
            yield block if is_whole else block.alone()
        if self.reading.records < skip:
            raise VersionConflict(name, skip, self.reading.records)

    def _end_of_last_line(self, source: Source, skip: int) -> bytes | None:
        """Return the stored text after the last record of ``source``, if the file goes on with
        record ``skip`` after it. The last line may have been imported before its program ended it.
        """
        if not isinstance(self.reading, LineReading) or not 0 < skip == source.records:
            return None
        last_block = next(blocks_of(self.database, source, skip - 1))
        return last_block.raw[last_block.places[-1] :]

    def blank_records(self, block: Block, hashes: set[bytes]) -> Block:
        """Return the block with skeletons in place of the records with these hashes."""
        for number in numbers_with(block.first, block.hashes, hashes) if hashes else ():
            block = block.with_record(number, self.skeleton.without_texts(block.record(number)))
            self._redacted_numbers.append(number)
        return block

    def append(
        self, source: Source, skip: int, first: Callable[[SourcesToWrite], None] | None = None
    ) -> None:
        """Append the records of the file from record ``skip`` on to ``source``. ``first`` is called
        in the transaction of the first blocks, before these blocks are written.
        """
        self.key = source.conversation
        self._append_groups(source, _group_blocks(self.new_blocks(source, skip)), first)

    def begin(
        self,
        name: str,
        blocks: Iterator[Block],
        parent: Source | None = None,
        shared_count: int = 0,
    ) -> None:
        """Begin the conversation ``name`` with the records in ``blocks``. With ``parent``, it is a
        fork that shares the first ``shared_count`` records of ``parent``.
        """
        groups = _group_blocks(blocks)
        group = next(groups, None)
        if group is None:  # the file became shorter since it was compared
            raise VersionConflict(name, shared_count, shared_count)
        source = self.database.recorder.transact(
            self.begin_function(name, group, parent, shared_count)
        )
        self.key = source.conversation
        # A question to the database after each commit took 2 % of a first import
        # (``benchmarks.hooks --rows logs``).
        self._names[source.conversation] = name
        self.written = source.records - shared_count
        group.clear()  # Free the memory of the group before the next blocks are read.
        self._append_groups(source, groups)

    def _append_groups(
        self,
        source: Source,
        groups: Iterator[list[Block]],
        first: Callable[[SourcesToWrite], None] | None = None,
    ) -> None:
        """Append groups of blocks, each in a transaction, and finish the source. ``first`` is
        called in the first transaction.
        """
        for group in groups:
            records_before = source.records
            source = self._append_blocks(source, group, first)
            self.written += source.records - records_before
            group.clear()  # Free the memory of the group before the next blocks are read.
            first = None
        self.finish(source)

    def finish(self, source: Source) -> None:
        """Write the figures and the place of ``source``, and make its events if its figures come
        from events.
        """
        if not self._is_counted:
            source = self._append_blocks(source, ())
        if not self._is_place_noted:
            self.note(source)
        if self._has_events(source):
            findings = list[tuple[int, str]]()
            make_events(
                self.store,
                self.name_of(source.conversation),
                findings,
                leaves_last=self._leaves_last(source),
            )
            for number, problem in reversed(findings):
                if problem not in self._problems:
                    self.reading.find_in(number, problem)
        if not self._is_used:
            self._count_sub_agent(source)

    def _count_sub_agent(self, source: Source) -> None:
        """Count the figures of a sub-agent, because a conversation finds its sub-agents by their
        figures. The first list counts the figures of all other sources without a skeleton.
        """
        if PARENT in about(source).get(WHERE, {}):
            from foldlog._reports.figures.of_store import FiguresOfStore
            from foldlog._reports.figures.tables import Where

            figures = FiguresOfStore(self.store)
            figures.bring_up_to_date(Where(only=[self.name_of(source.conversation)]))

    def begin_function(
        self,
        name: str,
        blocks: Sequence[Block],
        parent: Source | None = None,
        shared_count: int = 0,
    ) -> Callable[[Transaction], Source]:
        """Return a function that does in a transaction what ``begin`` does with its first blocks,
        and returns the stored source.
        """

        def begin(transaction: Transaction) -> Source:
            writing = self._begin_conversation(transaction, name, parent, shared_count)
            sources = SourcesToWrite.beside(writing)
            shared_hashes = b""
            if parent is not None and shared_count:
                shared_hashes = sources.hashes(parent)[: shared_count * HASH_BYTES]
            source = Source(
                conversation=writing.key,
                root=writing.key if parent is None else parent.root,
                parent=parent.conversation if parent is not None and shared_count else None,
                from_record=shared_count,
                records=shared_count,
                made=shared_count,
                format=self.found_history.format.name,
                reader=READER,
                head=chain_head(GENESIS, shared_hashes),
                fingerprint=fingerprint(self.skeleton, blocks, shared_hashes),
                about=self._handed_over(parent if shared_count else None),
            )
            return self._put(writing, sources, source, blocks)

        return begin

    def _handed_over(self, parent: Source | None) -> bytes:
        """Return ``Source.about`` of a new source, with the records that were handed over in its
        parent or that it repeats.
        """
        if self.rewritten is not None:
            return _encode({CONTINUED: self.rewritten.continued})
        fields = {} if parent is None else pick(about(parent), (CONTINUED,))
        return _encode(fields) if fields else b""

    def _begin_conversation(
        self, transaction: Transaction, name: str, parent: Source | None, shared_count: int
    ) -> WriteTransaction:
        """Begin the conversation of a new source: a fork, or a new conversation. Raises
        ``VersionConflict`` if another writer has begun it, or has changed ``parent``.
        """
        database = self.database
        existing = database.find(transaction, name, as_stored=True)
        if existing is not None and existing.erasure is None:
            raise VersionConflict(name, 0, existing.version)
        if self.rewritten is not None:
            version = self.rewritten.continued.version
            fork = begin_fork(database, transaction, self.rewritten.conversation, version, name)
            return WriteTransaction(
                transaction, database.find_key(transaction, fork.key) or fork, database
            )
        if parent is not None and shared_count:
            sources = Sources(database, transaction)
            # Since the parent was read, a writer may have erased or redacted it.
            present = sources.find_by_key(parent.conversation)
            if present is None or _compared_by(present) != _compared_by(parent):
                raise VersionConflict(name, 0, 0)
            events_made = sources.made(parent)
            # The fork shares all events before the parent's next record, including events that were
            # appended after the last shared record.
            shared_ends = [
                first + events
                for number, (first, events) in events_made.items()
                if number < shared_count
            ]
            later_starts = [
                first for number, (first, _) in events_made.items() if number >= shared_count
            ]
            handed_over = continued(parent)
            first = 0 if handed_over is None else handed_over.version
            border = min(later_starts, default=max(shared_ends, default=first))
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
        replaces = None if existing is None else existing.key
        new = Conversation(NOT_BEGUN, name, database.now(), new_salt(), replaces=replaces)
        begun = begin_new(transaction, database, new)
        writing = WriteTransaction(transaction, begun, database)
        writing.begin()
        writing.list_as(0, [EVERY])
        return writing

    def _append_blocks(
        self,
        source: Source,
        blocks: Sequence[Block],
        first: Callable[[SourcesToWrite], None] | None = None,
    ) -> Source:
        """Append blocks to a stored source in one transaction, and return its new row. ``first``
        is called in this transaction, before the blocks are written. Raises ``VersionConflict`` if
        another writer has changed the source or replaced its conversation.
        """

        def append(transaction: Transaction) -> Source:
            stored_sources = Sources(self.database, transaction)
            name = stored_sources.name_of(source.conversation)
            conversation = stored_sources.find(name)
            if conversation is None or conversation.key != source.conversation:
                raise VersionConflict(name, source.records, source.records)
            writing = WriteTransaction(transaction, conversation, self.database)
            sources = SourcesToWrite.beside(writing)
            if first is not None:
                first(sources)
            stored = self.check_unchanged(sources, source)
            stored_source = source._replace(about=stored.about, sums=stored.sums)
            stored_source = self._with_present_fingerprint(sources, stored_source, blocks)
            return self._put(writing, sources, stored_source, blocks)

        return self.database.recorder.transact(append)

    def _put(
        self,
        writing: WriteTransaction,
        sources: SourcesToWrite,
        source: Source,
        blocks: Sequence[Block],
    ) -> Source:
        """Write the blocks, the row, the figures and the place of a source. Return its new row."""
        reading = self.reading
        records = blocks[-1].stop if blocks else source.records
        self._check_refused(sources, source, blocks)
        _put_blocks(sources, source, blocks)
        hashes = b"".join(block.hashes for block in blocks)
        redacted_numbers = [
            number for number in self._redacted_numbers if source.records <= number < records
        ]
        fields = self._facts(sources, source, is_whole=not redacted_numbers)
        grown = source._replace(
            records=records,
            head=chain_head(source.head, hashes),
            redacted=tuple(sorted({*source.redacted, *redacted_numbers})),
            about=_encode(fields),
        )
        self._is_counted = reading.is_done
        writing.set_unmade(grown.records - grown.made)
        # Each write of figures contains all counts so far. So the figures of a long source are
        # written only with its last blocks. After an interrupted import, the next list counts them.
        if self._is_counted:
            self._put_figures(writing, grown)
            sources.put(grown._replace(sums=self._sums(sources, source, blocks)))
        else:
            sources.put(grown)
        if reading.records == records:
            sources.put_place(self.place, self._present_place(grown))
            self._is_place_noted = reading.is_done
        writing.end()
        return grown

    def _with_present_fingerprint(
        self, sources: SourcesToWrite, source: Source, blocks: Sequence[Block]
    ) -> Source:
        """Return the source with the fingerprint that one import of all its records would give it.
        With fewer records than ``_FIRST``, its fingerprint was that of all documents with the same
        beginning. Note the beginnings that earlier imports may have read as places of the source,
        so that imports refuse copies of them after an erasure.
        """
        is_log = isinstance(self.skeleton, Skeleton)
        if is_log or source.records >= _FIRST or continued(source) is not None:
            return source
        hashes = sources.hashes(source)[: source.records * HASH_BYTES]
        new = b"".join(block.hashes for block in blocks)
        stop = min(len(hashes + new) // HASH_BYTES, _FIRST)
        for record in chained(hashes + new):
            is_beginning = source.records <= record.number + 1 < stop
            if is_beginning and not self.written:
                place = self._present_place(source)._replace(records=record.number + 1)
                sources.put_place(place_of_beginning(record.fingerprint), place)
        return source._replace(fingerprint=fingerprint(self.skeleton, blocks, hashes))

    def _facts(self, sources: Sources, source: Source, *, is_whole: bool) -> JsonObject:
        """Return the new fields of ``Source.about``. ``is_whole`` is false if a new record was
        redacted.
        """
        found_history = self.found_history
        former = about(source)
        fields: JsonObject = {
            "paths": self._paths(source),
            "prefix": self.options.prefix,
            "usage": _merge_usage(former.get("usage", ()), found_history.usage),
            "unread": self.reading.unread,
            IMPORTED_AT: self.database.now(),
        }
        link = {**(found_history.link or found_history.format.begun_by(found_history.path))}
        # A skeleton that has not seen the first records takes a side chain for a sub-agent's log.
        parent = _parent_in(self.skeleton) if self._counts else None
        if PARENT not in link and parent:
            link[PARENT] = parent
        if PARENT in link:
            link[PARENT] = f"{self.options.prefix}{link[PARENT]}"
        where_before = former.get(WHERE, {})
        present = self.skeleton.where
        if not self._counts and "cwd" in where_before:
            # This skeleton has not seen the first records, which name the folder.
            present = {name: present[name] for name in present if name != "cwd"}
        if where := {**self.options.where, **where_before, **present, **link}:
            fields[WHERE] = where
        fields |= pick(former, (REDACTED, CONTINUED, TITLED))
        fields |= still_compacting(former, self.skeleton)
        fields[SECRET] = former.get(SECRET) or os.urandom(SECRET_BYTES).hex()
        fields |= self._texts_beside(sources, source, is_whole=is_whole)
        return fields

    def _sums(self, sources: Sources, source: Source, blocks: Sequence[Block]) -> bytes:
        """Return the new sums of a source. A source that is in use keeps its former sums, unless
        the new records change its title, which the attributes of the conversation show.
        """
        new = self.skeleton
        if self._counts:
            return new.encode()
        if not isinstance(new, Skeleton) or not changes_titles(source.sums, new):
            return source.sums
        counter = type(new)(source.sums, sources.hashes(source))
        count_rest(sources, source, counter)
        for block in blocks:
            count_block(counter, block)
        return counter.encode()

    def _put_figures(self, writing: WriteTransaction, source: Source) -> None:
        """Write the figures that are counted from records. If they come from events instead, forget
        stored figures, unless the conversation is in use.
        """
        if self._has_events(source) or not isinstance(self.skeleton, Skeleton):
            # These figures are counted from events, and their version is the version of the events.
            if not self._is_used:
                writing.transaction.forget_figures(source.conversation)
            return
        # The import of a source that is in use needs none of the modules that count figures.
        from foldlog._reports.figures.of_sources import figures_in
        from foldlog._reports.figures.writing import put_figures

        figures = figures_in(
            self.skeleton, self.found_history.format, source.records, about(source)
        )
        put_figures(
            writing.transaction,
            writing.state,
            writing.data_key,
            self.database.settings.keys,
            figures,
        )

    def _check_refused(self, sources: Sources, source: Source, blocks: Sequence[Block]) -> None:
        """Raise ``SourceRefused`` if a new record was redacted or erased in another conversation.
        Records that were redacted in the source's own family are already blank.
        """
        if not sources.refuses_any():
            return
        redacted_numbers = {*self._redacted_numbers}
        hashes = b"".join(block.hashes for block in blocks)
        new = {
            fingerprint: record
            for record in chained(hashes, source.records, source.head)
            if record.number not in redacted_numbers
            for fingerprint in (record.hash, record.fingerprint)
        }
        if self.reading.is_done:
            new |= {
                place_of_beginning(record.fingerprint): record
                for record in new.values()
                if record.number + 1 == self.reading.records
            }
        records = (new[fingerprint] for fingerprint in sources.refused_among(new))
        refused = {record.hash: record.number for record in records}
        if not refused:
            return
        returning = sources.find_returning(source.root, refused)
        # A record of this family was redacted after the import began, so begin the import again.
        if any(returning.values()):
            raise VersionConflict(
                sources.name_of(source.conversation), source.records, source.records
            )
        if returning and not self.options.again:
            number = min(refused[record_hash] for record_hash in returning)
            raise SourceRefused(
                f"the import would bring back its record {number}, which was redacted"
                " or erased in another conversation; to import it anyway, use --again"
            )

    def _texts_beside(
        self, sources: Sources, source: Source, *, is_whole: bool = True
    ) -> JsonObject:
        """Return the title of the source, and the texts between its records. If a record of its
        family was redacted, they are left out, because they may repeat it.
        """
        fields = dict[str, Any]()
        title = self.found_history.title
        frame = self.reading.frame if self.reading.is_done else None
        if not title and frame is None:
            return fields
        is_whole = is_whole and is_family_whole(sources, source.root)
        if title and is_whole:
            fields[TITLE] = title
        if frame is not None:
            fields[FRAME] = frame if is_whole else Frame()
        return fields

    def counting_function(self) -> Callable[[bytes, bytes], None]:
        """Return the function that counts a record and its hash. It also notes which records are
        secret, and the problems that a decoder finds.
        """
        counter = self.skeleton
        if isinstance(counter, Skeleton):
            counter.on_another_shape = self._check_shape
        # A skeleton that does not count all records does not know the earlier records. The decoder
        # then finds their problems.
        if not isinstance(counter, Skeleton) or self._counts:
            counter.on_finding = self._add_finding
        if self.options.is_secret is None:
            return counter.add
        return lambda record, record_hash: counter.add(
            self._blank_if_secret(record, record_hash), record_hash
        )

    def _check_shape(self, record: bytes) -> None:
        """Note a finding if the format does not accept a record."""
        format = self.found_history.format
        value = parse(record)
        if not format.accepts(value):
            self._add_finding(str(refuse(format.expected, value)))

    def _add_finding(self, problem: str) -> None:
        self._problems.add(problem)
        self.reading.report(self.reading.place, problem, is_unread=False)

    def _blank_if_secret(self, record: bytes, record_hash: bytes) -> bytes:
        if self.options.is_secret is None or not self.options.is_secret(record):
            return record
        self.secret_hashes.add(record_hash)
        return self.skeleton.without_texts(record)

    def note(self, source: Source) -> None:
        """Store the place, title and usage of a source that has no new records."""

        def update(transaction: Transaction) -> None:
            sources = SourcesToWrite(self.database, transaction)
            sources.put_place(self.place, self._present_place(source))
            stored = sources.settle(source.conversation)
            if stored is not None and self.reading.records == stored.records:
                fields = {
                    **about(stored),
                    "paths": self._paths(stored),
                    **self._texts_beside(sources, stored),
                }
                if (encoded := _encode(fields)) != stored.about:
                    sources.put(stored._replace(about=encoded))
                    transaction.forget_figures(stored.conversation)

        self.key = source.conversation
        self.database.recorder.transact(update)
        self._note_title()
        self._note_usage()

    def _note_title(self) -> None:
        """If all events of the source are made, append an event that sets its new title."""
        source = None if self.key is None else self.source(self.key)
        if source is None or source.made != source.records:
            return
        facts = about(source)
        title = facts.get(TITLE)
        if title is None or facts.get(TITLED) in (None, title):
            return
        name = self.name_of(source.conversation)
        changes, seen, sets_title = change_of_documents(
            self.store, name, {}, {TITLE: title}, facts[TITLED]
        )
        if sets_title:
            changed = source._replace(about=_encode({**facts, TITLED: title}))
            self._extend(source, changed, [] if changes is None else [changes], seen)

    def _note_usage(self) -> None:
        """Store new usage that no record contains. If all events of the source are made, its
        figures are counted from its events, so the usage is appended as an event too.
        """
        source = None if self.key is None else self.source(self.key)
        if source is None or not self.found_history.usage or self.reading.records != source.records:
            return
        usage_before = about(source).get("usage", [])
        name = self.name_of(source.conversation)
        fields = {**about(source), "usage": _merge_usage(usage_before, self.found_history.usage)}
        # An older copy of the source has less usage.
        is_older = _sum_usage(fields["usage"]) < _sum_usage(usage_before)
        if fields["usage"] == usage_before or is_older:
            return
        changed = source._replace(about=_encode(fields))
        events = list[DocumentChanges]()
        version = self.store.conversation(name, as_stored=True).version
        if source.made == source.records:
            changes, _, _ = change_of_documents(self.store, name, {IMPORTED: fields["usage"]})
            if changes is not None:
                events.append(changes)

        self._extend(source, changed, events, version)

    def _extend(
        self,
        source: Source,
        changed: Source,
        events: Sequence[DocumentChanges],
        expected_version: int | Seen,
    ) -> None:
        """Append events that no record has, and store the changed row of ``source`` with them."""
        name = self.name_of(source.conversation)

        def write_source(writing: WriteTransaction) -> None:
            sources = SourcesToWrite.beside(writing)
            if sources.settle(source.conversation) != source:
                raise VersionConflict(name, writing.version, writing.version)
            sources.put(changed)
            writing.transaction.forget_figures(changed.conversation)

        self.store.extend(name, events, expected_version=expected_version, also=write_source)

    def _paths(self, source: Source) -> list[str]:
        """Return the paths of all files from which the source was imported."""
        paths = map(_storable, (self.found_history.path, *self.found_history.others))
        return [*dict.fromkeys((*about(source).get("paths", ()), *paths))]

    def _present_place(self, source: Source) -> Place:
        imported_at = time.time_ns() // 1_000
        reading = self.reading
        state = self.state if reading.is_done else b""
        return Place(
            source.conversation, imported_at, reading.records, reading.taken, state, reading.digest
        )

    # -- steps -------------------------------------------------------------------------------------

    def check_unchanged(self, sources: SourcesToWrite, source: Source) -> Source:
        """Call this method before a change of ``source``. Return the stored source after
        ``settle``. Raises ``VersionConflict`` if another writer has changed the source.
        """
        stored = sources.settle(source.conversation)
        if stored is None or _compared_by(stored) != _compared_by(source):
            name = sources.name_of(source.conversation)
            raise VersionConflict(name, source.records, source.records)
        return stored

    def query(self, read: Callable[[Sources, *Arguments], T], *arguments: *Arguments) -> T:
        return query_sources(self.database, read, *arguments)

    def source(self, key: int) -> Source | None:
        return self.query(Sources.find_by_key, key)

    def hashes_of(self, source: Source) -> bytes:
        return self.query(Sources.hashes, source)

    def name_of(self, key: int) -> str:
        if key not in self._names:
            self._names[key] = self.query(Sources.name_of, key)
        return self._names[key]

    def outcome(self, added: int, conversation: str = "") -> Imported:
        """Return the outcome of this import, by default for the conversation that was written."""
        reading = self.reading
        return Imported(
            conversation or self.name_of(self.key or 0),
            added,
            reading.records,
            self.found_history.format.name,
            self.found_history.path,
            self.forked_at,
            waits=reading.waits,
            findings=(*self.found_history.findings, *reading.findings),
            findings_count=len(self.found_history.findings) + reading.findings_count,
            note=self.found_history.format.note,
        )


def _encode(fields: JsonMap) -> bytes:
    try:
        return msgspec.json.encode(fields)
    except UnicodeEncodeError:  # a title has half a surrogate pair
        return msgspec.json.encode(whole_pairs(fields, "replace"))


def _storable(path: Path) -> str:
    """Return the absolute path of a file. If this path is not UTF-8, return the path of the nearest
    parent folder that has a UTF-8 path.
    """
    name = os_path.abspath(path)
    while name != name.encode("utf-8", "replace").decode():
        name = os_path.dirname(name)
    return name


def _compared_by(source: Source) -> tuple[object, ...]:
    """Return the values that show whether another writer has changed a source. The last value
    changes if a redaction removes only the title and other texts that no record contains.
    """
    return source.records, source.head, source.made, source.redacted, REDACTED in about(source)


def _merge_usage(earlier: Sequence[Any], present: Sequence[Any]) -> list[Any]:
    """Return the usage of both imports. The present usage of a reply, and the present total, which
    has no reply, replace the earlier ones.
    """
    replies = {call.get("reply") for call in present}
    return [
        *(
            call
            for call in earlier
            if call.get("reply") is not None and call["reply"] not in replies
        ),
        *present,
    ]


def _sum_usage(usage: Sequence[Any]) -> tuple[int, float]:
    """Return the number of tokens and the cost of all calls."""
    calls = list(calls_beside(usage))
    tokens = (
        call.usage.get(name, 0) for call in calls for name in ("prompt_tokens", "completion_tokens")
    )
    return sum(tokens), sum(call.cost or 0.0 for call in calls)


def _parent_in(skeleton: Skeleton | NamedRecords) -> str | None:
    """Return the conversation that began a sub-agent, if its own records name it."""
    return skeleton.state.parent if isinstance(skeleton, Skeleton) else skeleton.parent


def fingerprint(
    skeleton: Skeleton | NamedRecords, blocks: Sequence[Block], shared_hashes: bytes = b""
) -> bytes:
    """Return the hash by which a later import recognizes the source if it was erased. The hash of a
    log is the hash of its first line, which has an id or a time. The hash of a document is the
    chained hash of its first records, because many documents begin with the same prompt.
    """
    hashes = shared_hashes + b"".join(block.hashes for block in blocks)
    if isinstance(skeleton, Skeleton):
        return hashes[:HASH_BYTES]
    return fingerprint_of(chain_head(GENESIS, hashes[: _FIRST * HASH_BYTES]))


def _put_blocks(sources: SourcesToWrite, source: Source, blocks: Sequence[Block]) -> None:
    """Store new blocks. If a source grows by one record at a time, many small blocks would take
    more time to read, and more space. So the first new block is joined with the blocks before it,
    as long as these are not larger and the joined block is not too large. Cost: a record is written
    again whenever its block has doubled, so some seven times if it has 1 kB.
    """
    if not blocks:
        return
    to_join = [blocks[0]]
    size = len(blocks[0].raw)
    while source.from_record < to_join[0].first and size <= SIZE // 2:
        (before,) = sources.blocks_back(source, to_join[0].first - 1, 1)
        if len(before.raw) > min(size, SIZE - size):
            break
        to_join.insert(0, before)
        size += len(before.raw)
    if len(to_join) > 1:
        sources.delete_blocks(source.conversation, to_join[0].first, blocks[0].first)
    sources.put_blocks(source, [join(to_join), *blocks[1:]])


def _group_blocks(blocks: Iterator[Block]) -> Iterator[list[Block]]:
    """Yield the blocks that one transaction writes together."""
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
