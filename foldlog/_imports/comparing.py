"""Import a source that may be stored already. A comparison of the source's records with the stored
records decides what the import does:

unchanged or older   add nothing
longer               append the new records
changed              fork the conversation at the first record that differs
new                  begin a conversation

A longer source becomes a fork too if events were appended to its conversation in foldlog.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, count
from typing import Any, Final, NamedTuple

from foldlog._imports.making_events import make_events
from foldlog._imports.writing import (
    Imported,
    Rewritten,
    SourceOptions,
    SourceWriter,
    fingerprint,
)
from foldlog.eventstore import DocumentChanges, Redaction, Store, VersionConflict
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.types import Conversation
from foldlog.eventstore.sources.blocks import (
    GENESIS,
    HASH_BYTES,
    Block,
    chain_head,
    count_shared,
    fingerprint_of,
    place_of_beginning,
)
from foldlog.eventstore.sources.reading import about, blocks_of, continued, end_of_records
from foldlog.eventstore.sources.tables import Continued, Place, Source, Sources, SourcesToWrite
from foldlog.formats.files.found_sources import FoundHistory, NotAHistory, SourceRefused
from foldlog.formats.files.source_reading import LineReading, WholeReading, reading_of
from foldlog.formats.record_decoding import values_of
from foldlog.formats.skeleton import Skeleton

_APART: Final = (
    "To import the source anyway, import it under another name with '--prefix TEXT --again', and "
    "redact it there"
)


class NewSource(NamedTuple):
    """A source that was read and is not stored yet.

    ``begin`` returns None if another process has stored the source, or if the source is refused.
    """

    source_import: SourceImport
    name: str
    begin: Callable[[Transaction], Source | None]
    size: int


class SourceImport(SourceWriter):
    """The import of one source. ``named`` gets the name of the conversation in the records, or None
    if the records contain no name. It returns the name to use.
    """

    def __init__(
        self,
        store: Store,
        history: FoundHistory,
        place: bytes,
        options: SourceOptions,
        named: Callable[[str | None], str],
        state: bytes | None = None,
        begun: LineReading | None = None,
    ) -> None:
        """``begun`` has read the lines of the last import."""
        super().__init__(store, history, place, options, state)
        self.reading = begun or self.reading
        self.named = named
        self._hashes_before = b""
        """The hashes of the records that this source continues, if it continues a stored history.
        Otherwise the value is empty.
        """

    def import_source(self) -> Imported:
        """Import the source. Raises ``VersionConflict`` if another process has stored the source
        first, or erases its conversation now. Raises ``SourceRefused`` for an erased source, or if
        the import would bring back a redacted record. Raises ``NotAHistory`` if the source has no
        records.
        """
        places = self.query(Sources.places, self.place)
        if self._is_refused(self.place):
            raise SourceRefused(
                "the source imported from this path was erased; to import it again, use --again"
            )
        if places:
            source = self.source(places[-1].conversation)
            outcome = None if source is None else self._append_grown(places[-1], source)
            if outcome is not None:
                return outcome
        sources = [
            source
            for source in map(self.source, dict.fromkeys(place.conversation for place in places))
            if source
        ]
        if not sources:
            return self._import_new()
        self._find_hashes_before(sources)
        return self._import_compared(sources, places[-1])

    def read_new(self) -> NewSource | None:
        """Read a whole new source. Return None if the source is empty or continues another
        conversation.
        """
        skeleton = self.skeleton
        blocks = [
            self.blank_records(block, self.secret_hashes)
            for block in self.reading.blocks(self.counting_function())
        ]
        if not blocks or skeleton.follows is not None:
            return None
        if self._source_handed_over(skeleton) is not None:
            return None
        name = self.named(skeleton.conversation)
        size = sum(len(block.raw) for block in blocks)
        begin = self.begin_function(name, blocks)

        def begin_new(transaction: Transaction) -> Source | None:
            sources = Sources(self.database, transaction)
            is_here = sources.find(name) is not None
            is_known = is_here or sources.places(self.place)
            if is_known or sources.refused_among([self.place, *self._fingerprints(blocks)]):
                return None
            return begin(transaction)

        return NewSource(self, name, begin_new, size)

    def _fingerprints(self, blocks: Sequence[Block]) -> list[bytes]:
        """Return the fingerprints by which a whole new source may be refused. A document is also
        refused as a beginning of an erased document.
        """
        fingerprints = [fingerprint(self.skeleton, blocks)]
        if not isinstance(self.skeleton, Skeleton):
            head = chain_head(GENESIS, b"".join(block.hashes for block in blocks))
            fingerprints.append(place_of_beginning(fingerprint_of(head)))
        return fingerprints

    def finish_new(self, new: NewSource, source: Source) -> Imported:
        """Finish the import of a source that ``new.begin`` has stored."""
        self.finish(source)
        return self.outcome(self.reading.records, new.name)

    # -- a longer source
    # ----------------------------------------------------------------------------------------------

    def _append_grown(self, place: Place, source: Source) -> Imported | None:
        """Append the new records of a source. Return None if earlier records have changed or must
        be compared, or if events were appended to its conversation in foldlog.
        """
        if place.records != source.records or not self._continues(place, source):
            return None
        if source.made and self._is_continued_here(source):
            return None
        if self.reading.is_done:
            self.note(source)
            return self.outcome(0)
        self.reading.unread += about(source).get("unread", [])
        return self._append_rest(source)

    def _continues(self, place: Place, source: Source) -> bool:
        """Return whether the file begins with the records of its last import, and skip them."""
        reading = self.reading
        if isinstance(reading, WholeReading):
            return reading.continues(
                place.digest, place.records, partial(self._hashes_since, source)
            )
        if reading.is_packed:
            return False
        # The format may have been found by these bytes, so they may be read already.
        is_read = (reading.taken, reading.digest) == (place.taken, place.digest)
        return is_read or reading.begins_with(place.taken, place.digest, place.records)

    def _hashes_since(self, source: Source, first: int) -> bytes:
        """Return the hashes of the stored records from record ``first`` on."""
        blocks = blocks_of(self.database, source, first)
        return b"".join(block.since(max(first, block.first)).hashes for block in blocks)

    def _append_rest(self, source: Source, skip: int = 0) -> Imported:
        """Append the records of the file that ``source`` lacks. ``skip`` is the number of records
        that the file repeats, if they were not skipped already.
        """
        records_before = source.records
        self.continue_counting(source)
        self.append(source, skip)
        return self.outcome(self.reading.records - records_before)

    def _is_continued_here(self, source: Source) -> bool:
        """Return whether events were appended to the conversation in foldlog, so that new records
        of its source become a fork.
        """
        name = self.name_of(source.conversation)
        end = self.query(end_of_records, source)
        version = self.store.conversation(name, as_stored=True).version
        if version <= end or source.made != source.records:
            return False
        later_events = self.store.events(name, end, version)
        return not all(isinstance(event, DocumentChanges | Redaction) for event in later_events)

    # -- a new source
    # ----------------------------------------------------------------------------------------------

    def _import_new(self) -> Imported:
        """Import a source that was not imported before: as a continuation, as a rewritten source,
        or as a new conversation.
        """
        self._read_again()
        reading = self.reading
        skeleton = self.skeleton
        blocks = (
            self.blank_records(block, self.secret_hashes)
            for block in reading.blocks(self.counting_function())
        )
        first = next(blocks, None)
        if first is None or reading.records == 0:
            raise self._no_history()
        name = self.named(skeleton.conversation)
        existing = self._find(name)
        if self._is_refused(fingerprint(skeleton, [first])):
            raise SourceRefused("this source was erased; to import it again, use --again")
        outcome = None
        if isinstance(skeleton, Skeleton):
            outcome = self._import_continuation(skeleton, name)
        if outcome is not None:
            return outcome
        base = self._source_handed_over(skeleton)
        outcome = None if base is None else self._import_rewritten(base, name)
        if outcome is not None:
            return outcome
        if existing is not None and existing.erasure is None:
            source = self.source(existing.key)
            if source is None:
                raise VersionConflict(name, 0, existing.version)
            return self._import_compared(self._forks_named(source, name))
        if existing is not None and not self.options.again:
            self.store.version(name)  # This call raises the error for an erased conversation.
        self.begin(name, chain([first], blocks))
        return self.outcome(reading.records)

    def _import_continuation(self, skeleton: Skeleton, name: str) -> Imported | None:
        """Import a source that continues the history of another source. Return None if the source
        continues no stored history.
        """
        if skeleton.follows is None:
            return None
        thread, end = skeleton.follows
        base = self._find_base((f"{self.options.prefix}{thread}", name), end, skeleton)
        if base is None:
            return None
        self._hashes_before = self._first_hashes(base, end)
        existing = self._source_named(name)
        if existing is None:
            return self._fork(base, end, name)
        if existing.root != base.root:
            return self._import_compared([existing])
        return self._import_compared(self._forks_named(base, name))

    def _forks_named(self, source: Source, name: str) -> list[Source]:
        """Return the sources of the family whose conversations have this name, or are forks of the
        conversation with this name.
        """
        family = [(self.name_of(member.conversation), member) for member in self._family(source)]
        forks = [
            member
            for member_name, member in family
            if member_name == name or member_name.startswith(f"{name}@")
        ]
        if not forks:  # the conversation was erased after it was found
            raise VersionConflict(name, 0, 0)
        return forks

    def _find_base(self, names: Iterable[str], end: int, skeleton: Skeleton) -> Source | None:
        """Return the stored source whose first ``end`` records this source continues, or None. A
        source can be the base only if its record ``end - 1`` carries this number itself. Within a
        family, the newest source is searched first.
        """
        for name in names:
            source = self._source_named(name)
            family = [] if source is None else self._family(source)
            for member in reversed(family):
                if member.records < end:
                    continue
                last_block = next(blocks_of(self.database, member, end - 1), None)
                if last_block is not None and skeleton.is_number(
                    last_block.record(end - 1), end - 1
                ):
                    return member
        return None

    # -- a session that another program went on with, written again
    # ----------------------------------------------------------------------------------------------

    def _source_handed_over(self, skeleton: object) -> Source | None:
        """Return the stored source of the session that this source continues, if foldlog wrote the
        session.
        """
        if not isinstance(skeleton, Skeleton) or skeleton.handed_over_in is None:
            return None
        source = self._source_named(f"{self.options.prefix}{skeleton.handed_over_in}")
        return None if source is None or continued(source) is None else source

    def _import_rewritten(self, base: Source, name: str) -> Imported | None:
        """Import a source that repeats the records that were handed over in ``base``, although not
        byte by byte: as a fork of the history at the hand-over. Return None if the source does not
        have all of these records in their order, or if the fork exists. Raises ``SourceRefused`` if
        one of them was redacted.
        """
        if self._find(name) is not None:
            return None
        self._check_redactions([base], 0)
        handed_over = continued(base)
        assert handed_over is not None
        event_ids = self._find_handed_over(base, handed_over)
        if event_ids is None:
            return None
        self._read_again()
        self.rewritten = Rewritten(
            self.name_of(base.conversation), Continued(handed_over.version, event_ids)
        )
        blocks = (
            self.blank_records(block, self.secret_hashes)
            for block in self.reading.blocks(self.counting_function())
        )
        self.begin(name, blocks)
        return self.outcome(self.reading.records - len(event_ids), name)

    def _find_handed_over(self, base: Source, handed_over: Continued) -> list[Sequence[int]] | None:
        """Return the event ids of the records of this source, up to the last record that was handed
        over.
        """
        own_key = self.found_history.format.own_key
        keys = deque(
            (key, event_ids)
            for record, event_ids in zip(
                self._records_of(base), handed_over.event_ids, strict=False
            )
            if (key := own_key(record)) is not None
        )
        if not keys:
            return None
        result = list[Sequence[int]]()
        self._read_again()
        for block in self.reading.blocks(self.skeleton.check):
            for value in values_of(block.records()):
                is_next = bool(keys) and own_key(value) == keys[0][0]
                result.append(keys.popleft()[1] if is_next else ())
                if not keys:
                    return result
        return None

    def _records_of(self, source: Source) -> Iterator[Any]:
        for block in blocks_of(self.database, source):
            yield from values_of(block.records())

    # -- a source with stored records
    # ----------------------------------------------------------------------------------------------

    def _import_compared(self, sources: list[Source], place: Place | None = None) -> Imported:
        """Compare the source with the stored ``sources``. ``place`` describes the last import from
        the same path.
        """
        self._read_again()
        reading = self.reading
        hashes = self._hashes_before + b"".join(
            block.hashes for block in reading.blocks(self.skeleton.check)
        )
        total = reading.records
        if total == 0:
            raise self._no_history()
        if place is not None and (place.records, place.digest) == (total, reading.digest):
            unchanged = self.source(place.conversation)
            if unchanged is not None:
                self.note(unchanged)
            return self.outcome(0, self.name_of(place.conversation))
        # The source belongs to the stored source with which it shares the most records.
        shared_counts = [count_shared(self.hashes_of(source), hashes) for source in sources]
        shared_count = max(shared_counts)
        source = sources[shared_counts.index(shared_count)]
        if shared_count == total:
            self.note(source)
            is_older = total < source.records
            return self.outcome(0, self.name_of(source.conversation))._replace(is_older=is_older)
        self._check_redactions(sources, shared_count)
        handed_over = continued(source)
        if handed_over is not None and shared_count < len(handed_over.event_ids):
            outcome = self._import_rewritten(source, f"{self.name_of(source.conversation)}@0")
            if outcome is not None:
                return outcome
        if shared_count == 0 and place is not None:
            # The path now has a different source, whose records may name another conversation.
            return self._import_new()
        if shared_count == source.records:
            self._read_again()
            if source.made and self._is_continued_here(source):
                return self._fork(source, shared_count)
            return self._append_rest(source, shared_count)
        # A file at a new path that has no more records than the stored source may be a different
        # continuation of the conversation, so it becomes a fork.
        goes_on = place is not None or total > source.records
        if (
            goes_on
            and isinstance(reading, WholeReading)
            and self._is_provisional(source, shared_count)
        ):
            return self._replace_last(source, shared_count)
        return self._fork(source, shared_count)

    def _check_redactions(self, sources: list[Source], shared_count: int) -> None:
        """Raise ``SourceRefused`` if the import would bring back redacted text. It would do so in
        two cases: the file differs from the stored source at the redacted record or before it, or
        each record of the format repeats all earlier records.
        """
        for source in sources:
            redacted_numbers = self.query(Sources.all_redacted, source)
            if redacted_numbers and self.found_history.format.repeats:
                problem = "its records repeat the texts of earlier records"
            elif any(number >= shared_count for number in redacted_numbers):
                problem = f"it was rewritten from record {shared_count} on"
            else:
                continue
            raise SourceRefused(
                f"{problem}, so an import would bring back record {max(redacted_numbers)} of"
                f" {self.name_of(source.conversation)!r}, which was redacted;"
                f" nothing was added. {_APART}"
            )

    def _is_provisional(self, source: Source, shared_count: int) -> bool:
        """Return whether only the last stored record differs, because the program was still writing
        it at the earlier import.
        """
        is_last = shared_count == source.records - 1 and shared_count >= source.from_record
        return is_last and source.made <= shared_count and shared_count not in source.redacted

    def _fork(self, source: Source, shared_count: int, chosen_name: str = "") -> Imported:
        """Import the source as a fork that shares the first ``shared_count`` records of
        ``source``.
        """
        while source.parent is not None and shared_count <= source.from_record:
            source = self.source(source.parent) or source
        name = self.name_of(source.conversation)
        fork_name = chosen_name or f"{name}@{shared_count}"
        numbers = count(2)
        while self._find(fork_name) is not None:
            fork_name = f"{name}@{shared_count}.{next(numbers)}"
        if shared_count:
            make_events(self.store, name)
            source = self.source(source.conversation) or source
        self._read_again()
        self.skeleton = self.count_until(source, shared_count)
        self.forked_at = shared_count
        self.begin(fork_name, self.new_blocks(source, shared_count), source, shared_count)
        return self.outcome(self.reading.records - shared_count)

    def _replace_last(self, source: Source, shared_count: int) -> Imported:
        """Replace the last stored record by the record in the file, and append the later
        records.
        """
        blocks = self.query(lambda sources: [*sources.own_blocks(source, shared_count)])
        head = chain_head(GENESIS, self._first_hashes(source, shared_count))
        shared_block = blocks[0].before(shared_count)
        shared_blocks = [shared_block] if shared_block.hashes else []
        self._read_again()
        self.skeleton = self.count_until(source, shared_count)
        shorter = source._replace(records=shared_count, head=head)

        def cut(sources: SourcesToWrite) -> None:
            self.check_unchanged(sources, source)
            sources.delete_blocks(source.conversation, blocks[0].first, blocks[-1].stop)
            sources.put_blocks(source, shared_blocks)
            sources.set_progress(source, shared_count, source.made, head)

        self.append(shorter, shared_count, first=cut)
        return self.outcome(self.reading.records - source.records)

    # -- helpers
    # ----------------------------------------------------------------------------------------------

    def _find_hashes_before(self, sources: list[Source]) -> None:
        """Set ``_hashes_before`` if the file continues a stored history. The file may contain the
        records of this history, or only the records after them.
        """
        if self.found_history.format.skeleton is None:
            return
        skeleton = self.found_history.format.skeleton()
        reading = reading_of(self.found_history.path, self.found_history.reader)
        first = next(reading.blocks(skeleton.add), None)
        if first is None or skeleton.follows is None:
            return
        first_hash = first.hashes[:HASH_BYTES]
        end = skeleton.follows[1]
        is_after = not any(self.hashes_of(source).startswith(first_hash) for source in sources)
        if is_after and end <= sources[-1].records:
            self._hashes_before = self._first_hashes(sources[-1], end)

    def _first_hashes(self, source: Source, end: int) -> bytes:
        return self.hashes_of(source)[: end * HASH_BYTES]

    def _read_again(self) -> None:
        """Begin to read the file from its first record again. If the source continues a history,
        its first record gets the next number after the records of this history.
        """
        self.reading = reading_of(self.found_history.path, self.found_history.reader)
        self.reading.records = len(self._hashes_before) // HASH_BYTES
        self.skeleton = self.new_counter(self.found_history.format)

    def _family(self, source: Source) -> list[Source]:
        return self.query(Sources.family, source.root)

    def _source_named(self, name: str) -> Source | None:
        conversation = self._find(name)
        if conversation is None or conversation.erasure is not None:
            return None
        return self.source(conversation.key)

    def _find(self, name: str) -> Conversation | None:
        return self.query(Sources.find, name)

    def _is_refused(self, fingerprint: bytes) -> bool:
        return not self.options.again and self.query(Sources.is_refused, fingerprint)

    def _no_history(self) -> NotAHistory:
        findings = map(str, self.reading.findings[:1])
        return NotAHistory(
            self.found_history.path, "; ".join(("contains no record that can be read", *findings))
        )
