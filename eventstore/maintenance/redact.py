"""Redact events: erase their content for good, from every reader at once, then from the files.

Id, kind, place, times and sizes stay. The head stays too: it commits to a hash of the body under a
salt of the event, and the salt is erased with the body. The receipt is an event of the
conversation, so followers read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from foldlog.eventstore.arguments import check_reason, check_text, check_whole
from foldlog.eventstore.codec import encode
from foldlog.eventstore.codec_json import size_of
from foldlog.eventstore.documents.values import newest_value
from foldlog.eventstore.errors import CannotRedact, InvalidArgument
from foldlog.eventstore.events import (
    ATTRIBUTES,
    CondensationAction,
    DocumentChanges,
    Event,
    Redacted,
    Redaction,
    names_source_ids,
    summary_id,
    summary_of,
)
from foldlog.eventstore.log.database import Database, behind
from foldlog.eventstore.log.finding import find_again, find_existing, forks_that_share
from foldlog.eventstore.log.origins import source_key
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.redacted import can_be_redacted, has_content, untraced, without_content
from foldlog.eventstore.log.row import PLAIN, commitment_of, from_microseconds, stored_event_of
from foldlog.eventstore.log.writing import WriteTransaction, list_again
from foldlog.eventstore.maintenance.unfinished import check_finished, on_finished, purge
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.types import Place, RecalledKey, Row
from foldlog.eventstore.store import Store


class Quote(NamedTuple):
    """A condensation or an event of a companion that may quote a redacted event. ``redacted``: it
    is erased too.
    """

    conversation: str
    event_id: int
    redacted: bool


class RedactionReceipt(NamedTuple):
    """The receipt of a redaction: the redacted events, the time, the person and the reason.

    ``event_ids`` are the redacted events, ``hashes`` the commitments to their former content (see
    ``Redacted``). ``position`` is the position of the receipt that followers read; None if all
    events were redacted before. ``quotes`` are the condensations whose summaries may quote the
    events, from ``History.redact`` also the events of companions that do; ``forks`` are the forks
    that share the redacted events, and show them redacted. ``unconfirmed`` are the read models that
    have not reached this position and so may still hold the content. ``bytes_pending`` says whether
    ``vacuum`` has to complete the redaction. ``documents_lost``, from ``History.redact``, lost
    their newest value: ``attributes`` is one.
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
    documents_lost: tuple[str, ...] = ()


def redact(
    store: Store,
    conversation: str,
    event_id: int,
    *,
    reason: str,
    by: str,
    complete: bool = True,
    others: Mapping[str, Sequence[int]] | None = None,
    also: Callable[[Transaction, Mapping[str, Sequence[int]]], object] | None = None,
) -> RedactionReceipt:
    """Erase the content of an event. Return the receipt, which says whether bytes of the content
    may still be in the files (``bytes_pending``); for ``complete`` and what then removes them, see
    ``erase``. Call it again to finish an interrupted redaction. The id of a summary, which is below
    -1, stands for the condensation that made it.

    ``others`` are events that go with it, by the names of their conversations: the summaries that
    may quote it, copies of it. ``also`` is called in the transaction with all events that go, to
    erase what else holds their content: the records of the source from which they were made.

    Raises ``ConversationNotFound``, ``ConversationErased``, ``InvalidArgument`` if the conversation
    has no such event of its own, and ``CannotRedact``, for example for a receipt of a redaction.
    Cost: the structural events of the conversation; for the bytes, as ``erase``.
    """
    check_text("conversation", conversation)
    check_whole("event_id", event_id)
    check_reason(reason, "receipt")
    check_text("by", by)
    database = store.database
    asked = conversation, event_id, (by, reason), others or {}, also
    receipt, place = on_finished(
        database, lambda transaction: _redact(transaction, database, *asked)
    )
    if complete:
        purge(database.recorder, f"event {event_id} of {conversation!r} is redacted")
    position = None if place is None else place()
    newest = database.last_position if position is None else position
    unconfirmed = tuple(database.recorder.query(lambda reader: behind(reader, newest)))
    return receipt._replace(
        position=position, unconfirmed=unconfirmed, bytes_pending=database.bytes_pending
    )


def _redact(
    transaction: Transaction,
    database: Database,
    conversation: str,
    named_id: int,
    who: tuple[str, str],
    others: Mapping[str, Sequence[int]],
    also: Callable[[Transaction, Mapping[str, Sequence[int]]], object] | None,
) -> tuple[RedactionReceipt, Place | None]:
    """Redact events. Return the receipt as far as it is known here, and the place of the event with
    it.
    """
    found = find_existing(database, transaction, conversation)
    check_finished(transaction, found.key)
    writing = WriteTransaction(transaction, found, database)
    named = {
        summary_of(each) if each < -1 else each: each
        for each in (named_id, *others.get(conversation, ()))
    }
    events = {
        event_id: _read(writing, event_id, its_name)[1] for event_id, its_name in named.items()
    }
    goes = {**others, conversation: [*events]}
    quotes: list[Quote] = []
    for each, shared in (
        (found, [*events]),
        *forks_that_share(database, transaction, found.key, events),
    ):
        theirs = quotes_in(
            ReadTransaction(transaction, each, database), [events[one] for one in shared]
        )
        own = [one for one in theirs if one.id >= each.begins]
        quotes += [
            Quote(each.id, one.id, one.id in goes.get(each.id, ()) or not has_content(one))
            for one in own
        ]
    if also is not None:
        also(transaction, goes)
    receipts, place, forks = _erase_content(transaction, writing, [*events], who)
    for name in others:
        now = database.find(transaction, name)
        # it may be erased since it was chosen
        if now is not None and now.erasure is None and name != conversation:
            check_finished(transaction, now.key)
            beside = WriteTransaction(transaction, now, database)
            forks += _erase_content(transaction, beside, goes.get(name, ()), who)[-1]
    copies = (
        Quote(name, each, redacted=True)
        for name in goes
        if name != conversation
        for each in goes[name]
    )
    ids = tuple(receipts)
    hashes = tuple(each.hash for each in receipts.values())
    told = tuple(dict.fromkeys((*quotes, *copies)))
    names = tuple(dict.fromkeys(forks))
    first = receipts[ids[0]]
    who_and_why = (first.at, first.by, first.reason)
    return (
        RedactionReceipt(
            conversation, ids, hashes, *who_and_why, None, told, names, (), bytes_pending=True
        ),
        place,
    )


def _erase_content(
    transaction: Transaction, writing: WriteTransaction, ids: Sequence[int], who: tuple[str, str]
) -> tuple[dict[int, Redacted], Place | None, list[str]]:
    """Erase the content of these events, unless it was erased before. Return their receipts, the
    place of the new one, and the forks that share some.
    """
    found, (by, reason) = writing.state, who
    now = max(writing.database.now(), found.updated_at or 0)
    receipts: dict[int, Redacted] = {}
    gone: list[tuple[Event, Redacted, Row]] = []
    read = {each: _read(writing, each, each) for each in ids}
    sharing = [*forks_that_share(writing.database, transaction, found.key, read)]
    for each, shared in ((found, ids), *sharing):
        its = {event_id: read[event_id][1] for event_id in shared}
        _check_that_none_builds_on(ReadTransaction(transaction, each, writing.database), its)
    for event_id, (row, event) in read.items():
        receipt = event.redacted
        if receipt is None:
            if not can_be_redacted(event):
                raise CannotRedact(
                    f"conversation {found.id!r}, event {row.id}: an event of kind {row.kind!r}"
                    " cannot be redacted, because it is a receipt or of a later version of"
                    " foldlog; redact another event, or erase the conversation"
                )
            its_hash = commitment_of(row.proof, row.body)
            own = untraced(event)
            size = size_of(row.body if own is event else encode(own, ours=True).body)
            receipt = Redacted(
                at=from_microseconds(now), by=by, reason=reason, hash=its_hash.hex(), bytes=size
            )
            body = encode(without_content(event, receipt), ours=True).body
            row = row.in_form(PLAIN, body, row.head + its_hash)
            gone.append((event, receipt, row))
        receipts[event_id] = receipt
    place = None
    if gone:
        event_ids, hashes = zip(*((row.id, receipt.hash) for _, receipt, row in gone), strict=True)
        redaction = Redaction(event_ids=event_ids, hashes=hashes, by=by, reason=reason)
        place = writing.append([encode(redaction, ours=True)], now)[0]
        redact_rows(transaction, writing, [(event, row) for event, _, row in gone])
    return receipts, place, [fork.id for fork, _ in sharing]


def redact_rows(
    transaction: Transaction, writing: WriteTransaction, gone: Sequence[tuple[Event, Row]]
) -> None:
    """Replace events by rows without content, and end ``writing``. Data beside the events is
    deleted, also in the forks that share them: the records of projections that may hold content.
    """
    writing.redact([row for _, row in gone])
    _leave_nothing_beside(writing, [event for event, _ in gone])
    writing.end()
    database = writing.database
    ids = [row.id for _, row in gone]
    for fork, shared in [*forks_that_share(database, transaction, writing.key, ids)]:
        check_finished(transaction, fork.key)
        # its parent may be encrypted since just now
        fork_now = find_again(database, transaction, fork).state
        beside = WriteTransaction(transaction, fork_now, database)
        beside.count_redactions(len(shared))
        _leave_nothing_beside(beside, [event for event, _ in gone if event.id in shared])
        beside.end()


# -- what to redact
# --------------------------------------------------------------------------------------------------


def _read(writing: WriteTransaction, event_id: int, named_id: int) -> tuple[Row, Event]:
    """Return an event that is stored under the conversation's own key, which the caller named by
    this id. Raises ``InvalidArgument``, ``CorruptEvent``.
    """
    found = writing.state
    if not 0 <= event_id < found.version:
        raise InvalidArgument(
            f"conversation {found.id!r} has no event {named_id}; it has events 0 to"
            f" {found.version - 1}"
        )
    if event_id < found.begins:
        owner = next(part.id for part in writing.past if part.start <= event_id < part.stop)
        raise InvalidArgument(
            f"event {event_id} of {found.id!r} belongs to conversation {owner!r}, which it was"
            " forked from; redact it there, and every fork shows it redacted"
        )
    row = writing.last_row(event_id + 1)
    event = stored_event_of(found.id, row)
    is_summary = isinstance(event, CondensationAction) and (
        event.summary is not None or event.redacted is not None
    )
    if named_id != event_id and not is_summary:
        raise InvalidArgument(
            f"conversation {found.id!r} has no event {named_id}: the summary of condensation c is"
            f" event -(c+2), and event {event_id} has no summary"
        )
    return row, event


def quotes_in(reading: ReadTransaction, redacted: Sequence[Event]) -> list[CondensationAction]:
    """Return the condensations whose summaries stand for events, or for their own summaries, the
    first one first. A condensation counts too if it forgets the summary of one of these
    condensations.
    """
    sources: list[Any] = [
        each.origin.id for each in redacted if each.origin and names_source_ids(each)
    ]
    # those are no events of a View
    ids = [each.id for each in redacted if not isinstance(each, CondensationAction)]
    summaries_gone = {summary_id(each.id) for each in redacted}
    found: list[CondensationAction] = []
    for event in reading.structural_events(
        min((each.id for each in redacted), default=reading.version)
    ):
        if not isinstance(event, CondensationAction) or event.summary is None:
            continue
        is_v0 = names_source_ids(event)
        intervals, summaries = event.forgotten
        named = sources if is_v0 else ids
        if any(
            first <= each <= last
            for each in named
            if type(each) is int
            for first, last in intervals
        ) or (not is_v0 and not summaries_gone.isdisjoint(summaries)):
            found.append(event)
            summaries_gone.add(summary_id(event.id))
            if is_v0 and event.origin is not None:
                sources.append(event.origin.id)
    return found


def _check_that_none_builds_on(reading: ReadTransaction, gone: Mapping[int, Event]) -> None:
    """Raise ``CannotRedact`` if a remaining value of a document is stored as a difference to a
    redacted one.
    """
    changes: dict[Any, Any] = {
        at: each.changed for at, each in gone.items() if isinstance(each, DocumentChanges)
    }
    for later in reading.document_changes(min(changes) + 1) if changes else ():
        for name, change in later.changed.items() if later.id not in gone else ():
            if name in changes.get(change.get("base"), ()):
                raise CannotRedact(
                    f"conversation {reading.conversation!r}, event {change['base']}: event"
                    f" {later.id} stores document {name!r} as a difference to it; redact event"
                    f" {later.id} first"
                )


def _leave_nothing_beside(writing: WriteTransaction, events: Sequence[Event]) -> None:
    """Delete the records of projections that may hold content: they are made again. Then list the
    conversation with its present attributes. The digests of source ids stay.
    """
    for event in events:
        if event.origin is None:
            key = None
        else:
            key = source_key(event.origin.format, event.origin.id)
        if key is not None and writing.recalled(key) is None:
            # A later import must recognize the event, also if there is no index yet.
            writing.remember(key, RecalledKey(event.id, 1))
    writing.forget_records()
    if any(isinstance(event, DocumentChanges) and ATTRIBUTES in event.changed for event in events):
        list_again(writing, newest_value(writing, ATTRIBUTES))
