"""Copy a source to another store, encrypt a stored source again, and verify a source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from itertools import islice
from typing import Final, NamedTuple

from foldlog.eventstore.errors import (
    CannotRedact,
    ConversationErased,
    CorruptEvent,
    HistoryDiverged,
    StoreDamaged,
    count,
)
from foldlog.eventstore.log.database import Database, check_not_erased
from foldlog.eventstore.log.keys import DataKey
from foldlog.eventstore.log.row import is_redacted
from foldlog.eventstore.log.writing import EVERY, WriteTransaction, begin_new
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import NOT_BEGUN, Conversation, Row
from foldlog.eventstore.sources.blocks import (
    GENESIS,
    HASH_BYTES,
    Block,
    ChainedRecord,
    TextsBetween,
    chain_head,
    chained,
    changed_records,
    each_hash,
    place_of_beginning,
)
from foldlog.eventstore.sources.reading import (
    about,
    blocks_of,
    is_about_readable,
    is_family_whole,
    stored_blocks_of,
    without_texts,
)
from foldlog.eventstore.sources.tables import (
    REDACTED,
    Made,
    Place,
    Source,
    Sources,
    SourcesToWrite,
    query_sources,
)

_TOGETHER: Final = 64
"""The number of blocks that one transaction writes, a few megabytes."""
_TOO_LARGE: Final = "the list of its redacted records names records that it does not have"


def has_source(
    source: Database, target: Database, original: Conversation, copy: Conversation
) -> bool:
    """Return whether the copy of a conversation has the records and the redactions of the original,
    and events for the same records.
    """
    ours = query_sources(source, _with_all_redacted, original)
    theirs = query_sources(target, _with_all_redacted, copy)
    if ours is None or theirs is None:
        return ours is None
    # A fork without a row in ``sources`` has no stored head.
    is_same_head = not ours.head or not theirs.head or ours.head == theirs.head
    return ours.records == theirs.records and is_same_head and _has_as_much(theirs, ours)


def _with_all_redacted(sources: Sources, conversation: Conversation) -> Source | None:
    stored = sources.of_state(conversation)
    if stored is None:
        return None
    return stored._replace(redacted=tuple(sources.all_redacted(stored)))


def _has_as_much(existing: Source, original: Source) -> bool:
    """Return whether the source in the target has at least the events and the redactions of
    ``original``.
    """
    return existing.made >= original.made and not _has_redacted_more(original, existing)


def _has_redacted_more(source: Source, other: Source) -> bool:
    return not set(source.redacted).issubset(other.redacted) or _lacks_mark(other, source)


def _lacks_mark(existing: Source, original: Source) -> bool:
    # A redaction may have removed only texts that no record contains.
    return REDACTED in about(original) and REDACTED not in about(existing)


class _Original(NamedTuple):
    """A source that is copied, with all its redacted records, the hashes and the events of its
    records, the names of its parent and its family, the places from which it was imported, and the
    fingerprints that imports refuse because of it.
    """

    source: Source
    redacted: set[int]
    hashes: bytes
    made: Made
    parent: str
    family: dict[str, bytes]
    places: list[tuple[bytes, Place]]
    refused: set[bytes]


class _TargetChanged(Exception):
    """The target imported records of the conversation during the copy."""


class CopiedRecords:
    """The records of a conversation that is copied. Every transaction that makes records or their
    events visible in the target calls ``check``, because the target may redact a record at any
    time.
    """

    def __init__(
        self, source: Database, target: Database, conversation: Conversation, *, again: bool
    ) -> None:
        self.source = source
        self.target = target
        self.conversation = conversation
        self.again = again

    def check(self, reader: Reader, is_new: Callable[[int, tuple[int, int]], bool]) -> None:
        """Raise ``CannotRedact`` if the target redacted or erased a new record. An import would
        refuse the record, too. But if the store of the source also refuses the record, its user has
        decided to keep the record, and the copy contains the record too. The source may have
        received its refusal with a copy of the target. Such a refusal is not a decision of the
        source's user, or a two-way copy would bring the record back. ``is_new`` gets the number of
        a record, and a pair: the id of the record's first event, and the number of its events. It
        returns whether the copy adds the record. Cost: one small read, if the target refuses no
        record.
        """
        sources = Sources(self.target, reader)
        original = self.original if sources.refuses_any() else None
        if original is None:
            return
        new = {
            fingerprint: record
            for record in self._records
            if is_new(record.number, original.made.get(record.number, (0, 0)))
            for fingerprint in (record.hash, record.fingerprint)
        }
        new |= {
            place_of_beginning(record.fingerprint): record
            for record in new.values()
            if record.number + 1 == original.source.records
        }
        refused = sources.refused_among(new)
        if not refused:
            return
        root = _root_in_target(reader, self.target, original.family)
        returning = sources.find_returning(root, (new[fingerprint].hash for fingerprint in refused))
        by_source = query_sources(self.source, Sources.refused_among, new)
        for record in sorted({new[fingerprint] for fingerprint in refused}):
            if returning.get(record.hash):
                raise _would_come_back(self.conversation.id, record.number)
            is_decided = _refusal(record, by_source) >= _refusal(record, refused)
            if record.hash in returning and not (self.again or is_decided):
                raise _would_come_back(self.conversation.id, record.number, elsewhere=True)

    @cached_property
    def original(self) -> _Original | None:
        return query_sources(self.source, _read_original, self.conversation)

    @property
    def made(self) -> Made:
        return {} if self.original is None else self.original.made

    @cached_property
    def _records(self) -> list[ChainedRecord]:
        """The records that are not redacted."""
        assert self.original is not None
        redacted = self.original.redacted
        return [record for record in chained(self.original.hashes) if record.number not in redacted]


def copy_source(records: CopiedRecords, version: int) -> int:
    """Copy the source of a conversation after its events were copied. If the target lacks the
    parent of the source, the shared records are copied too. The target already has the events
    before ``version``. Later, the target makes the remaining events from the records.

    After each transaction, the copy of the source is consistent, but the last records are missing
    until the last transaction. The copy keeps events that the target itself made, and records that
    the target redacted stay redacted. If the source redacts a record during the copy, or the target
    imports one, the copy begins again. Return the number of new records that have no events yet. If
    the conversation has no events, ``copy_source`` begins the conversation in the target. Raises
    ``HistoryDiverged`` if the target has other records, ``ConversationErased`` if the target erased
    the conversation, and ``CannotRedact`` as ``CopiedRecords.check`` does. Cost: reading the index
    of each block and the list of events, and copying the new blocks. If the source has redacted
    records since the last copy, all blocks are read.
    """
    source = records.source
    target = records.target
    conversation = records.conversation
    copied = 0
    is_complete = False
    while not is_complete:
        # The source may have redacted records since its records were read.
        present = CopiedRecords(source, target, conversation, again=records.again)
        added, is_complete = _copy_until_change(present, version)
        copied += added
    return copied


def _copy_until_change(records: CopiedRecords, version: int) -> tuple[int, bool]:
    """Copy the records that the target lacks. Return how many of them have no events yet, and
    False if the source redacted a record or the target imported one in the meantime, so that the
    copy has to begin again.
    """
    source = records.source
    target = records.target
    stored = records.original
    if stored is None:
        return 0, True
    existing = _redacted_in_target(records, stored)
    if existing is None:
        parent = _parent_in_target(target, stored)
    else:
        parent = existing.parent
    original = stored.source
    is_alone = original.parent is not None and parent is None
    if is_alone:
        original = original._replace(redacted=tuple(sorted(stored.redacted)))
    if existing is not None and (
        existing.records > original.records
        or (existing.head == original.head and _has_as_much(existing, original))
    ):
        return 0, True
    made = {
        number: (first, events)
        for number, (first, events) in stored.made.items()
        if first + events <= version
    }
    copied = original._replace(
        parent=parent,
        from_record=0 if parent is None else (existing or original).from_record,
        made=min(original.made, max(made, default=-1) + 1),
    )
    start = max(copied.from_record, _end_of(existing)[0])
    head = chain_head(GENESIS, stored.hashes[: HASH_BYTES * start])
    write = partial(_write_part, records=records, made=made, family=stored.family)
    written = existing
    last = list[Block]()
    remaining = blocks_of(source, original, start)

    def added() -> int:
        return max(0, _end_of(written)[0] - max(copied.made, _end_of(existing)[0]))

    try:
        while True:
            blocks = [*islice(remaining, _TOGETHER)]
            if query_sources(source, _redacted_by_now, original) != stored.redacted:
                # ``original`` may contain text of the redacted record.
                return added(), False
            if not blocks:
                break
            # The first block may begin before record ``start``: leave out the earlier records.
            blocks[0] = blocks[0].since(max(start, blocks[0].first))
            if last:
                part = copied._replace(records=last[-1].stop, head=head, sums=b"")
                written = target.recorder.transact(
                    partial(write, part=part, blocks=last, before=written)
                )
            last = blocks
            head = chain_head(head, b"".join(block.hashes for block in blocks))
        write_last = partial(write, part=copied, blocks=last, before=written)
        target.recorder.transact(
            partial(_finish, write_last=write_last, records=records, copied=copied, made=made)
        )
    except _TargetChanged:
        return added(), False
    return max(0, copied.records - max(copied.made, _end_of(existing)[0])), True


def _finish(
    transaction: Transaction,
    write_last: Callable[[Transaction], Source],
    records: CopiedRecords,
    copied: Source,
    made: Made,
) -> None:
    """Write the last records of a copy together with all data beside the records."""
    stored = records.original
    assert stored is not None
    whole = write_last(transaction)
    writing, sources = _open_in_target(transaction, records.target, records.conversation)
    sources.refuse(writing.key, stored.refused, own=False)
    if whole.made == copied.made:  # the target made no further events
        transaction.write("delete_made", whole.conversation)
        own_made = {number: made[number] for number in made if number >= whole.from_record}
        sources.put_made(whole, own_made)
    for place, imported in stored.places:
        sources.put_place(place, imported._replace(conversation=writing.key))


def _redacted_by_now(sources: Sources, source: Source) -> set[int]:
    """Return the numbers of all records of a source that are redacted at the time of this read."""
    check_not_erased(sources.database.find_key(sources.reader, source.conversation))
    present = sources.find_by_key(source.conversation, texts=()) or source
    return sources.all_redacted(present)


def _redacted_in_target(records: CopiedRecords, original: _Original) -> Source | None:
    """Return the source in the target, after the target has redacted the same records. Raises
    ``HistoryDiverged`` if the target has other records.
    """
    source = records.source
    target = records.target
    conversation = records.conversation
    existing = query_sources(target, _source_in_target, conversation)
    if existing is None:
        return None
    hashes = original.hashes
    if existing.head != original.source.head:
        own_hashes = query_sources(target, Sources.hashes, existing)
        if not (hashes.startswith(own_hashes) or own_hashes.startswith(hashes)):
            raise HistoryDiverged(conversation.id, 0, conversation.version)
    # The shared records of a fork are redacted in its parent.
    to_redact = original.redacted if existing.parent is None else set(original.source.redacted)
    missing = to_redact - query_sources(target, Sources.all_redacted, existing)
    is_redacted = missing.isdisjoint(range(existing.records))
    if is_redacted and not _lacks_mark(existing, original.source):
        return existing
    found = find_redacted_records(source, conversation)
    target.recorder.transact(partial(_redact_in_target, records=records, redacted=found))
    return query_sources(target, _source_in_target, conversation)


def _redact_in_target(
    transaction: Transaction, records: CopiedRecords, redacted: RedactedRecords | None
) -> None:
    """Redact the records of the target that are redacted in the source."""
    writing, _ = _open_in_target(transaction, records.target, records.conversation)
    if redacted is not None:
        redact_records(writing, redacted)
        # A vacuum has to remove the bytes of the redacted records.
        transaction.replace_rows(writing.key, ())
    writing.end()


def _read_original(sources: Sources, conversation: Conversation) -> _Original | None:
    """Return what is stored of a conversation's source, or None if it was not imported."""
    source = sources.of_state(conversation)
    if source is None:
        return None
    source = sources.as_row(source)
    redacted = sources.all_redacted(source)
    if max(redacted, default=-1) >= source.records:
        raise StoreDamaged(
            f"conversation {conversation.id!r}: {_TOO_LARGE}; restore the store from a backup"
        )
    return _Original(
        source,
        redacted,
        sources.hashes(source),
        sources.made(source),
        "" if source.parent is None else sources.name_of(source.parent),
        _family_of(sources, source),
        sources.places_of(conversation.key),
        _refused_by(sources, source),
    )


def _parent_in_target(target: Database, original: _Original) -> int | None:
    """Return the key of the parent's copy in the target, or None if the target has no copy with
    which the copied source could share its first records.
    """
    parent_key = query_sources(target, _key_of, original.parent)
    if parent_key is None:
        return None
    # The conversation with the parent's name in the target may have other records, fewer records,
    # or fewer redactions.
    parent_hashes, parent_redacted, parent_made = query_sources(target, _hashes_of, parent_key)
    from_record = original.source.from_record
    own_records = range(from_record, original.source.records)
    size = from_record * HASH_BYTES
    missing = original.redacted.difference(parent_redacted, own_records)
    is_same = original.hashes[:size] == parent_hashes[:size]
    # A redaction in the fork finds the records of shared events in the parent's list of events.
    lists_events = parent_made >= min(from_record, original.source.made)
    return parent_key if is_same and lists_events and not missing else None


def _hashes_of(sources: Sources, key: int) -> tuple[bytes, set[int], int]:
    """Return the hashes of the records of a source, the numbers of its redacted records, and the
    number of its records that have events.
    """
    stored = sources.find_by_key(key, texts=())
    if stored is None:
        return b"", set(), 0
    return sources.hashes(stored), sources.all_redacted(stored), stored.made


def _write_part(
    transaction: Transaction,
    records: CopiedRecords,
    made: Made,
    family: Mapping[str, bytes],
    part: Source,
    blocks: list[Block],
    before: Source | None,
) -> Source:
    """Write some blocks of the copied source, and its row ``part``, which ends with these blocks.
    ``before`` is the copy in the target before this call. Return the new row of the copy. Raises
    ``_TargetChanged``.
    """
    target = records.target
    conversation = records.conversation
    first = _end_of(before)[0]
    stop = part.records
    records.check(transaction, lambda number, _: first <= number < stop)
    # The members of a family may be copied in any order and at the same time. On a server, each of
    # their transactions first locks the name of the root, so the transactions run one after
    # another.
    root = None if before is not None else _root_in_target(transaction, target, family)
    writing, sources = _open_in_target(transaction, target, conversation)
    existing = sources.settle_shared(writing.state)
    if _end_of(existing) != _end_of(before):
        raise _TargetChanged
    if writing.state.redactions:
        _check_events(writing, part, made, first)
    if existing is not None:
        has_redacted_more = _has_redacted_more(existing, part)
    else:
        # If the source has redacted a text of the family, ``part`` has none of these texts.
        has_redacted_more = REDACTED not in about(part) and not is_family_whole(
            sources, root or writing.key
        )
    if has_redacted_more:
        # The sums of ``part`` include the records that only the target redacted, and its title and
        # the texts between its records may repeat what the target redacted.
        part = part._replace(about=without_texts(part), sums=b"")
        blocks = [block.alone() for block in blocks]
    redacted = {number for number in part.redacted if number < part.records}
    first_new = part.from_record
    part = part._replace(
        conversation=writing.key,
        root=root or writing.key,
        made=min(part.made, part.records),
    )
    if existing is not None:
        part = part._replace(root=existing.root)
        first_new = max(first_new, existing.made)
        redacted.update(existing.redacted)
        part = part._replace(made=max(part.made, existing.made))
    part = part._replace(redacted=tuple(sorted(redacted)))
    sources.put_blocks(part, blocks)
    sources.put(part)
    new = {number: made[number] for number in made if first_new <= number < part.made}
    sources.put_made(part, new)
    writing.set_unmade(part.records - part.made)
    # Make the figures again. They lack the new records, but the version did not change, so they
    # seem current.
    transaction.forget_figures(writing.key)
    writing.end()
    return part


def _check_events(writing: WriteTransaction, part: Source, made: Made, start: int) -> None:
    """Raise ``CannotRedact`` if the target redacted an event of a new record. The events are copied
    before their records, so the target may have redacted an event before it got the event's record.
    """
    new = {
        event_id: number
        for number, (first, count) in made.items()
        if max(start, part.from_record) <= number < part.records and number not in part.redacted
        for event_id in range(first, first + count)
    }
    for event_id in new:
        for row in writing.rows(event_id, event_id + 1):
            if is_redacted(row.proof):
                raise _would_come_back(writing.conversation, new[event_id])


def _refusal(record: ChainedRecord, refused: Mapping[bytes, bool]) -> int:
    """Return 2 if a store refuses a record by its own decision, 1 if it received its refusal with a
    copy, and 0 if it does not refuse the record.
    """
    names = record.hash, record.fingerprint, place_of_beginning(record.fingerprint)
    decisions = [refused[name] for name in names if name in refused]
    if not decisions:
        return 0
    return 2 if any(decisions) else 1


def _would_come_back(conversation: str, number: int, *, elsewhere: bool = False) -> CannotRedact:
    """Return the error for a copy that would bring back a record. ``elsewhere`` says that another
    conversation of the target redacted or erased it.
    """
    if elsewhere:
        return CannotRedact(
            f"conversation {conversation!r}: a copy would bring back record {number} of its source,"
            " which the target redacted or erased in another conversation; to copy the record"
            " anyway, use again=True (the option --again)"
        )
    return CannotRedact(
        f"conversation {conversation!r}: the target redacted record {number} of its source, and a"
        " copy would bring the record back; redact the record in the source too, then copy again"
    )


def _family_of(sources: Sources, source: Source) -> dict[str, bytes]:
    """Return the names of the family's conversations, and the fingerprints of their sources."""
    return {
        sources.name_of(member.conversation): member.fingerprint
        for member in (source, *sources.family(source.root, texts=()))
    }


def _root_in_target(reader: Reader, target: Database, family: Mapping[str, bytes]) -> int | None:
    """Return the key of the root of the family in the target, or None if the target has no source
    of the family.
    """
    sources = Sources(target, reader)
    for name in family:
        key = _key_of(sources, name)
        member = None if key is None else sources.find_by_key(key, texts=())
        # Another conversation may have the name in the target.
        if member is not None and member.fingerprint == family[name]:
            return member.root
    return None


def _end_of(source: Source | None) -> tuple[int, bytes]:
    """Return the number of records of a source, and the end of their chain of hashes."""
    return (0, GENESIS) if source is None else (source.records, source.head)


def _refused_by(sources: Sources, source: Source) -> set[bytes]:
    """Return the fingerprints that imports refuse because of the source and its family."""
    hashes = each_hash(sources.hashes(source))
    # If another conversation had the record too, the fingerprint may belong to that conversation.
    refused = sources.refused_among(hashes[number] for number in sources.all_redacted(source))
    return set(refused).union(*map(sources.refused_of, {source.conversation, source.root}))


def _source_in_target(sources: Sources, conversation: Conversation) -> Source | None:
    """Return the source that the target has of a conversation, or None. Raises ``HistoryDiverged``
    if the target has another conversation under the id.
    """
    existing = check_not_erased(sources.find(conversation.id))
    if existing is None:
        return None
    source = sources.of_state(existing)
    if source is None and existing.created_at != conversation.created_at:
        raise HistoryDiverged(conversation.id, 0, existing.version)
    return None if source is None else sources.as_row(source)


def _open_in_target(
    transaction: Transaction, target: Database, conversation: Conversation
) -> tuple[WriteTransaction, SourcesToWrite]:
    """Open the copy of a conversation in the target. If the target lacks it, begin it."""
    existing = check_not_erased(target.find(transaction, conversation.id, as_stored=True))
    if existing is not None:
        writing = WriteTransaction(transaction, existing, target)
        return writing, SourcesToWrite.beside(writing)
    new = Conversation(NOT_BEGUN, conversation.id, conversation.created_at, conversation.salt)
    writing = WriteTransaction(transaction, begin_new(transaction, target, new), target)
    writing.list_as(0, [EVERY])
    return writing, SourcesToWrite.beside(writing)


class RedactedRecords(NamedTuple):
    """The redacted records of the source that is copied. ``remains`` maps the number of a redacted
    record to its skeleton. ``source`` is the row of the source to which the records belong, and
    ``refused`` contains the hashes that later imports refuse.
    """

    remains: dict[int, bytes]
    source: Source
    refused: set[bytes]


def find_redacted_records(database: Database, conversation: Conversation) -> RedactedRecords | None:
    """Return what is left of the redacted records of a conversation's source, or None if it was not
    imported.
    """

    def read(sources: Sources) -> RedactedRecords | None:
        original = _read_original(sources, conversation)
        if original is None:
            return None
        source = original.source
        redacted = original.redacted
        remains = {
            number: block.record(number)
            for block in sources.blocks(source, min(redacted, default=source.records))
            for number in redacted.intersection(range(block.first, block.stop))
        }
        return RedactedRecords(remains, source, original.refused)

    return query_sources(database, read)


def redact_records(writing: WriteTransaction, redacted: RedactedRecords) -> None:
    """Redact the records of a copy that ``redacted`` names: replace them by their skeletons, and
    refuse them in later imports.
    """
    sources = SourcesToWrite.beside(writing)
    own = sources.settle_shared(writing.state)
    if own is None:
        return
    missing = redacted.remains.keys() - sources.all_redacted(own)
    numbers = missing.intersection(range(own.records))
    if not numbers and not _lacks_mark(own, redacted.source):
        return
    if min(numbers, default=own.records) < own.from_record:
        # In this store, another conversation may have the name of the parent.
        own = sources.leave_parent(own)
    for stored in sources.own_blocks(own):
        block = stored
        for number in numbers.intersection(range(block.first, block.stop)):
            block = block.with_record(number, redacted.remains[number])
        # The texts between records may repeat a redacted record.
        block = block.alone()
        if block is not stored:
            sources.put_blocks(own, [block])
    original = redacted.source
    all_redacted = tuple(sorted({*own.redacted, *numbers}))
    # The sums of the original fit the copy only if both sources have redacted the same records.
    is_equal = own.head == original.head and {*all_redacted} == {*original.redacted}
    sums = original.sums if is_equal else b""
    about_copy = original.about
    if _has_redacted_more(own, original):
        about_copy = without_texts(original)
    sources.put(own._replace(redacted=all_redacted, about=about_copy, sums=sums))
    sources.refuse(writing.key, redacted.refused, own=False)


def event_beyond(
    writing: WriteTransaction, redacted: RedactedRecords | None, event_ids: set[int]
) -> int | None:
    """Return one of the events ``event_ids`` whose record the other store does not have, so that
    the redaction of the event there did not include the record.
    """
    sources = SourcesToWrite.beside(writing)
    own = sources.settle(writing.key)
    records = 0 if redacted is None else redacted.source.records
    if own is None or own.made <= records:
        return None
    for number, (first, events) in sources.made(own).items():
        if number >= records and number not in own.redacted:
            for event_id in event_ids.intersection(range(first, first + events)):
                return event_id
    return None


def split_at_records(
    chunks: Iterable[list[Row]], made: Made, is_whole: Callable[[], bool]
) -> Iterator[list[Row]]:
    """Group rows so that all events of a record are in one group. ``is_whole``, which is called
    after the last row, returns False if rows are missing. The events of the last record may then be
    incomplete, so they are left out.
    """
    first_of_later = {
        event_id: first
        for first, count in made.values()
        for event_id in range(first + 1, first + count)
    }
    remaining: list[Row] = []
    for chunk in chunks:
        rows = [*remaining, *chunk]
        # If the next row is a later event of a record, cut before the first event of this record.
        next_border = first_of_later.get(rows[-1].id + 1, rows[-1].id + 1)
        cut = max(0, next_border - rows[0].id)
        remaining = rows[cut:]
        if cut:
            yield rows[:cut]
    if remaining and is_whole():
        yield remaining


def note_made(writing: WriteTransaction, made: Made, version: int) -> None:
    """Store which events the records of a copied source became, for the events before ``version``
    that were just copied.
    """
    sources = SourcesToWrite.beside(writing)
    source = sources.settle(writing.key) if made else None
    if source is None:
        return
    new = {
        number: (first, count)
        for number, (first, count) in made.items()
        if source.made <= number < source.records and first + count <= version
    }
    if not new:
        return
    stop = max(new) + 1
    sources.put_made(source, new)
    sources.set_progress(source, source.records, stop, source.head)
    writing.set_unmade(source.records - stop)


def detach_source_forks(transaction: Transaction, database: Database, conversation: int) -> None:
    """Copy shared records to the sources that share records with the source of ``conversation``,
    so that it can be erased.
    """
    sources = SourcesToWrite(database, transaction)
    root, sharing_keys = sources.sharing(conversation)
    if not sharing_keys:
        return  # A damaged source that shares nothing can be erased too.
    for member in sources.settle_family(root):
        if member.parent == conversation:
            sources.leave_parent(member)


def seal_again(
    transaction: Transaction, database: Database, conversation: int, key: DataKey | None
) -> None:
    """Encrypt the source of a conversation with another key. Without ``key``, store it plain."""
    sources = SourcesToWrite(database, transaction)
    source = sources.settle(conversation)
    if source is None:
        return
    target = SourcesToWrite(database, transaction, keys={conversation: key})
    for block in sources.own_blocks(source):
        target.put_blocks(source, [block])
    target.put(source)


def problems_of(
    database: Database, conversation: Conversation, between: TextsBetween
) -> Iterator[str]:
    """Yield the problems of the source of a conversation. Collect the texts between its records."""
    try:
        yield from _problems_of(database, conversation, between)
    except CorruptEvent as error:
        yield error.problem
    except ConversationErased:  # an erased conversation cannot be verified
        return


def _problems_of(
    database: Database, conversation: Conversation, between: TextsBetween
) -> Iterator[str]:
    """Yield what is wrong with the source of a conversation and its records."""
    source = query_sources(database, Sources.find_by_key, conversation.key)
    if source is None:
        if conversation.unmade:
            yield f"its source lacks {count(conversation.unmade, 'record')}"
        return
    if not is_about_readable(source):
        yield "what is stored beside the records of its source cannot be read"
    if max(source.redacted, default=-1) >= source.records:
        yield _TOO_LARGE
    # Reading the list of events raises ``CorruptEvent`` if the list is damaged.
    made = query_sources(database, Sources.made, source)
    if any(
        number >= source.made or first + events > conversation.version
        for number, (first, events) in made.items()
    ):
        yield "the list of the events that its records became names records without events"
    head = GENESIS
    number = 0
    for block in stored_blocks_of(database, source):
        if block.first != number:
            yield f"records {number} to {block.first - 1} of its source are missing"
        between.take(block)
        head = chain_head(head, block.hashes)
        number = block.stop
        changed = changed_records(block)
        redacted = query_sources(database, _redacted_by_now, source) if changed else set()
        for number_changed in sorted(changed - redacted):
            yield f"record {number_changed} of its source differs from the imported record"
    if number < source.records:
        yield f"records {number} to {source.records - 1} of its source are missing"
    elif head != source.head:
        yield "the hash chain of the records of its source does not end in the stored head"
    if source.records - source.made != conversation.unmade:
        yield (
            f"its row says that {conversation.unmade} source records have no events yet, but the"
            f" number is {source.records - source.made}"
        )


def _key_of(sources: Sources, conversation: str) -> int | None:
    """Return the key of a conversation that has a source and is not erased, or None."""
    state = sources.find(conversation)
    if state is None or state.erasure is not None:
        return None
    source = sources.find_by_key(state.key, texts=())
    return None if source is None else source.conversation
