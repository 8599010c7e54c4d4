"""Redact events: erase their content for good, from every reader at once, then from the files.

Id, kind, place, times and sizes stay. The head stays too: it commits to a hash of the body under a salt of the event,
and the salt is erased with the body. The receipt is an event of the conversation, so followers read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from foldlog.eventstore.arguments import reason_text, text, whole
from foldlog.eventstore.codec import Encoded, encode
from foldlog.eventstore.codec_json import size_of
from foldlog.eventstore.documents.values import newest_value
from foldlog.eventstore.errors import CannotRedact, CorruptEvent, InvalidArgument
from foldlog.eventstore.events import (
    ATTRIBUTES,
    CondensationAction,
    DocumentChanges,
    Event,
    Redacted,
    Redaction,
    summary_id,
    summary_of,
)
from foldlog.eventstore.log.attributes import list_again
from foldlog.eventstore.log.database import Database, behind, translated
from foldlog.eventstore.log.idempotency import source_key
from foldlog.eventstore.log.reading import ReadTransaction, find_existing
from foldlog.eventstore.log.redacted import can_be_redacted, without_content
from foldlog.eventstore.log.row import (
    PLAIN,
    checksum,
    checksum_seed,
    commitment_of,
    from_microseconds,
    sound,
    stored_event_of,
)
from foldlog.eventstore.log.writing import WriteTransaction, forget_records
from foldlog.eventstore.maintenance.erase import living_forks, purge
from foldlog.eventstore.maintenance.unfinished import check_finished, on_finished
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.types import Conversation, Place, RecalledKey, Row
from foldlog.eventstore.store import Store

_PAGE = 1_000
_PATIENCE_S = 60.0
_V0 = "openhands-v0"
"""The format whose condensations name ids of the source."""


class Quote(NamedTuple):
    """A condensation whose summary may quote a redacted event. ``redacted``: the summary is erased too."""

    conversation: str
    event_id: int
    redacted: bool


class RedactionReceipt(NamedTuple):
    """What was redacted, when, by whom and why.

    ``event_ids`` are the redacted events, ``hashes`` the commitments to their former content (see ``Redacted``).
    ``position`` is that of the receipt that followers read, None if all events were redacted before. ``quotes`` are the
    summaries that may quote the events, ``forks`` the conversations that share an event and show it redacted too.
    ``unconfirmed`` are the read models that have not reached this position and so may still hold the content.
    ``bytes_pending`` says whether bytes of the content may still be in unused parts of the file; ``vacuum`` then
    completes the redaction.
    """

    conversation: str
    event_ids: tuple[int, ...]
    hashes: tuple[str, ...]
    at: datetime
    by: str
    reason: str
    position: int | None
    quotes: tuple[Quote, ...]
    forks: tuple[str, ...]
    unconfirmed: tuple[str, ...]
    bytes_pending: bool


class _Done(NamedTuple):
    """The outcome of one transaction: the commitments by event, the place of its receipt, and what it found."""

    receipts: dict[int, Redacted]
    place: Place | None
    quotes: tuple[Quote, ...]
    forks: tuple[str, ...]


def redact(
    store: Store,
    conversation: str,
    event_id: int,
    *,
    reason: str,
    by: str,
    with_summaries: bool = False,
    complete: bool = True,
    records: Sequence[int] = (),
) -> RedactionReceipt:
    """Erase the content of an event. Return the receipt, which says whether bytes of the content may still be in the
    files (``bytes_pending``); for ``complete`` and what then removes them, see ``erase``. Call it again to finish an
    interrupted redaction. The id of a summary, which is below -1, stands for the condensation that made it.

    ``with_summaries`` also redacts the condensations whose summaries stand for the event, in its forks too. The events
    ``records`` lose the record of their source, which repeats the content, and keep the rest.

    Raises ``ConversationNotFound``, ``ConversationErased``, ``InvalidArgument`` where the conversation has no such
    event of its own, and ``CannotRedact``, for example for a receipt of a redaction. Cost:
    the structural events and the idempotency keys of the conversation; for the bytes, as ``erase``.
    """
    text("conversation", conversation)
    whole("event_id", event_id)
    reason_text(reason, "receipt")
    text("by", by)
    database = store.database
    what = _What(database, reason, by, with_summaries)
    with translated():
        work = partial(_redact_all, conversation=conversation, event_id=event_id, what=what, records=records)
        done, redacted = on_finished(database, work)
        gone = complete and purge(database.recorder, _PATIENCE_S, f"event {event_id} of {conversation!r} is redacted")
        position = None if done.place is None else done.place()
        newest = int(database.recorder.value("last_position")) if position is None else position
        unconfirmed = database.recorder.query(lambda reader: behind(reader, newest))
    first = done.receipts[_recorded_id(event_id)]
    return RedactionReceipt(
        conversation,
        tuple(done.receipts),
        tuple(each.hash for each in done.receipts.values()),
        first.at,
        first.by,
        first.reason,
        position,
        tuple(each if each[:2] not in redacted else each._replace(redacted=True) for each in done.quotes),
        done.forks,
        tuple(unconfirmed),
        not gone,
    )


class _What(NamedTuple):
    """The arguments that all transactions of a redaction share."""

    database: Database
    reason: str
    by: str
    with_summaries: bool


def _redact_all(
    transaction: Transaction, conversation: str, event_id: int, what: _What, records: Sequence[int]
) -> tuple[_Done, set[tuple[str, int]]]:
    """Redact an event; with summaries, also those of its forks that may quote it. Return the outcome for the event, and
    the conversations and ids of all that is redacted.
    """
    done = _redact(transaction, conversation, [event_id], what, records)
    redacted = {(conversation, each) for each in done.receipts}
    for name in dict.fromkeys(each.conversation for each in done.quotes if what.with_summaries):
        if name != conversation:
            ids = [each.event_id for each in done.quotes if each.conversation == name]
            redacted.update((name, each) for each in _redact(transaction, name, ids, what).receipts)
    return done, redacted


def _redact(
    transaction: Transaction, conversation: str, ids: Sequence[int], what: _What, records: Sequence[int] = ()
) -> _Done:
    """Redact these events, if they are not redacted yet; with summaries, also condensations that may quote them. Erase
    ``records``.
    """
    database = what.database
    found = find_existing(database, transaction, conversation)
    check_finished(transaction, found.key)
    writing = WriteTransaction(transaction, found, database)
    for each in ids:
        _check_summary(writing, found, each)
    ids = [_recorded_id(each) for each in ids]
    first = _read(writing, found, ids[0])[1]
    own = _quotes(writing, [(each, _read(writing, found, each)[1]) for each in ids])
    forks = [*forks_that_share(database, transaction, found.key, first.id)]
    quotes = [Quote(conversation, each, _is_redacted(writing, each)) for each in own]
    for fork in forks:
        check_finished(transaction, fork.key)
        reading = ReadTransaction(transaction, fork, database)
        shared = [(each, event) for each, event in _events(writing, [*ids, *own]) if each < fork.begins]
        their_own = (each for each in _quotes(reading, shared) if each >= fork.begins)
        quotes += [Quote(fork.id, each, _is_redacted(reading, each)) for each in their_own]
    receipts: dict[int, Redacted] = {}
    gone: list[tuple[Event, Redacted, Row]] = []
    now = max(database.now(), found.updated_at or 0)
    whole_ids = [*ids, *(each for each in own if what.with_summaries and each not in ids)]
    for event_id in [*whole_ids, *(each for each in records if each not in whole_ids and each >= found.begins)]:
        row, event = _read(writing, found, event_id)
        is_record = event_id not in whole_ids
        if event.redacted is not None and (is_record or not event.redacted.record):
            if not is_record:
                receipts[event_id] = event.redacted
            continue
        commitment = _commitment(conversation, row, event)
        if isinstance(event, DocumentChanges):
            for reading in (writing, *(ReadTransaction(transaction, fork, database) for fork in forks)):
                _check_that_none_builds_on(reading, event)
        receipt = Redacted(
            at=from_microseconds(now),
            by=what.by,
            reason=what.reason,
            hash=commitment.hex(),
            bytes=size_of(row.body),
            record=is_record,
        )
        if not is_record:
            receipts[event_id] = receipt
        gone.append((event, receipt, _without_content(conversation, row, event, receipt)))
    done = _Done(receipts, None, tuple(quotes), tuple(fork.id for fork in forks))
    if not gone:
        return done
    announced: list[Encoded] = []
    for is_record in (False, True):
        told = [(row.id, each.hash) for _, each, row in gone if each.record == is_record]
        if told:
            event_ids, hashes = zip(*told, strict=True)
            receipt_of = Redaction(event_ids=event_ids, hashes=hashes, by=what.by, reason=what.reason, record=is_record)
            announced.append(encode(receipt_of, ours=True))
    place, _ = writing.append(announced, now)
    redact_rows(transaction, writing, [(event, row) for event, _, row in gone], forks)
    return done._replace(place=place)


def redact_rows(
    transaction: Transaction,
    writing: WriteTransaction,
    gone: Sequence[tuple[Event, Row]],
    forks: Iterable[Conversation],
) -> None:
    """Replace events by rows without content, and end ``writing``. What is kept beside them goes, in these forks too:
    the records of projections.
    """
    writing.redact([row for _, row in gone])
    _leave_nothing_beside(transaction, writing, [event for event, _ in gone])
    writing.end()
    for fork in forks:
        beside = WriteTransaction(transaction, fork, writing.database)
        shared = [event for event, _ in gone if event.id < fork.begins]
        beside.count_redactions(len(shared))
        _leave_nothing_beside(transaction, beside, shared)
        beside.end()


# -- what to redact ---------------------------------------------------------------------------------------------------


def _read(writing: WriteTransaction, found: Conversation, event_id: int) -> tuple[Row, Event]:
    """Return an event that is stored under the conversation's own key. Raises ``InvalidArgument``, ``CorruptEvent``."""
    if not 0 <= event_id < found.version:
        raise InvalidArgument(
            f"conversation {found.id!r} has no event {event_id}; it has events 0 to {found.version - 1}"
        )
    if event_id < found.begins:
        owner = next(part.id for part in writing.past if part.start <= event_id < part.stop)
        raise InvalidArgument(
            f"event {event_id} of {found.id!r} belongs to conversation {owner!r}, which it was forked from; redact it "
            f"there, and every fork shows it redacted"
        )
    rows = writing.rows(event_id, event_id + 1, 1)
    if not rows or rows[0].id != event_id:
        raise CorruptEvent(found.id, event_id, "it is missing")
    return sound(found.id, rows[0]), stored_event_of(found.id, rows[0])


def _recorded_id(event_id: int) -> int:
    """Return the id of the event that is stored: for a summary, that of its condensation."""
    return summary_of(event_id) if event_id < -1 else event_id


def _check_summary(writing: WriteTransaction, found: Conversation, event_id: int) -> None:
    """Raise ``InvalidArgument`` for the id of a summary that does not exist."""
    if event_id >= -1:
        return
    condensation = summary_of(event_id)
    if condensation < found.version:
        event = _read(writing, found, condensation)[1]
        if isinstance(event, CondensationAction) and (event.summary is not None or event.redacted is not None):
            return
    raise InvalidArgument(
        f"conversation {found.id!r} has no event {event_id}: the summary of condensation c is event -(c+2), and event "
        f"{condensation} has no summary"
    )


def _events(writing: WriteTransaction, ids: Iterable[int]) -> list[tuple[int, Event]]:
    return [(each, event) for each in dict.fromkeys(ids) for event in writing.events(each, each + 1)]


def _commitment(conversation: str, row: Row, event: Event) -> bytes:
    """Return the commitment in the head of an event. Raises ``CannotRedact``."""
    if not can_be_redacted(event):
        raise CannotRedact(
            f"conversation {conversation!r}, event {row.id}: an event of kind {row.kind!r} cannot be redacted, because "
            f"it is a receipt or of a later version of foldlog; redact another event, or erase the conversation"
        )
    return commitment_of(row.proof, row.body)


def _is_redacted(reading: ReadTransaction, event_id: int) -> bool:
    return next(reading.events(event_id, event_id + 1)).redacted is not None


def _quotes(reading: ReadTransaction, events: Sequence[tuple[int, Event]]) -> list[int]:
    """Return the ids of the condensations whose summaries stand for one of these events, ascending. A condensation
    counts too if it forgets the summary of one of these condensations.
    """
    ids = {event_id for event_id, _ in events}
    sources = {event.origin.id for _, event in events if event.origin is not None and event.origin.format == _V0}
    found: list[int] = []
    for event in reading.structural_events(min(ids) + 1) if ids else ():
        if not isinstance(event, CondensationAction) or event.summary is None:
            continue
        is_v0 = event.origin is not None and event.origin.format == _V0
        intervals, summaries = event.forgotten
        named = sources if is_v0 else ids
        if any(first <= each <= last for each in named if type(each) is int for first, last in intervals) or (
            not is_v0 and not {summary_id(each) for each in found}.isdisjoint(summaries)
        ):
            found.append(event.id)
            if is_v0 and event.origin is not None:
                sources.add(event.origin.id)
    return found


def forks_that_share(database: Database, transaction: Transaction, key: int, event_id: int) -> Iterator[Conversation]:
    for fork in living_forks(transaction, key):
        if event_id < fork.begins:
            whole_fork = database.find_key(transaction, fork.key)  # a list leaves out its ancestors
            if whole_fork is not None:
                yield whole_fork
                yield from forks_that_share(database, transaction, fork.key, event_id)


def _check_that_none_builds_on(reading: ReadTransaction, event: DocumentChanges) -> None:
    """Raise ``CannotRedact`` where a later value of a document is stored as a difference to the value in this event."""
    for later in reading.document_changes(event.id + 1):
        for name, change in later.changed.items():
            if change.get("base") == event.id and name in event.changed:
                raise CannotRedact(
                    f"conversation {reading.conversation!r}, event {event.id}: event {later.id} stores document "
                    f"{name!r} as a difference to it; redact event {later.id} first"
                )


# -- what stays of it -----------------------------------------------------------------------------------------------


def _without_content(conversation: str, row: Row, event: Event, receipt: Redacted) -> Row:
    """Return the plain row that remains of a redacted event."""
    body = encode(without_content(event, receipt), ours=True).body
    row = row._replace(encoding=PLAIN, body=body, proof=row.head + bytes.fromhex(receipt.hash))
    return row._replace(checksum=checksum(checksum_seed(conversation), *row[:-1]))


def _keep_source_key(writing: WriteTransaction, event: Event) -> None:
    """Have the id that its source gave an event stand for it, also where the conversation has no index yet."""
    key = None if event.origin is None else source_key(event.origin.format, event.origin.id)
    if key is not None and writing.recalled(key) is None:
        writing.remember(key, RecalledKey(event.id, 1))


def _leave_nothing_beside(transaction: Transaction, writing: WriteTransaction, events: Sequence[Event]) -> None:
    """Delete the records of projections, which are made again. Then list the conversation with its present attributes.
    The digests of source ids stay.
    """
    for event in events:
        _keep_source_key(writing, event)
    forget_records(transaction, writing.key, but=ATTRIBUTES)
    if any(isinstance(event, DocumentChanges) and ATTRIBUTES in event.changed for event in events):
        list_again(writing, newest_value(writing, ATTRIBUTES))
