"""Redact events: erase their content permanently, first for all readers, then in the files.

The id, kind, place, times and size of the event stay. The event's head stays valid, because it
depends only on a salted hash of the body. The salt is erased too. The receipt is an event of the
conversation, so followers read the receipt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
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
    RedactionCopied,
    names_source_ids,
    summary_id,
    summary_of,
)
from foldlog.eventstore.log.database import Database, behind
from foldlog.eventstore.log.finding import find_again, find_existing, forks_that_share
from foldlog.eventstore.log.ledger import enter
from foldlog.eventstore.log.origins import source_key
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.redacted import (
    can_be_redacted,
    has_content,
    without_content,
    without_trace,
)
from foldlog.eventstore.log.row import (
    PLAIN,
    commitment_of,
    from_microseconds,
    is_redacted,
    stored_event_of,
)
from foldlog.eventstore.log.writing import WriteTransaction, list_again
from foldlog.eventstore.maintenance.archive_objects import bytes_remain
from foldlog.eventstore.maintenance.unfinished import check_finished, on_finished, purge
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.types import Place, RecalledKey, Row
from foldlog.eventstore.store import Store


class _Decision(NamedTuple):
    """Who decided a redaction, and why."""

    by: str
    reason: str


class Quote(NamedTuple):
    """An event that may quote a redacted event: a condensation, or an event of a companion
    conversation. ``redacted`` is true if the content of the quoting event is erased too.
    """

    conversation: str
    event_id: int
    redacted: bool


class RedactionReceipt(NamedTuple):
    """The receipt of a redaction: the redacted events, the time, the person and the reason.

    ``event_ids`` are the redacted events, and ``hashes`` are the commitments to their former
    content, as in ``Redacted``. Followers find the receipt at ``position``. ``position`` is None if
    all these events were already redacted. ``quotes`` are the condensations whose summaries may
    quote the redacted events. ``History.redact`` adds events of companion conversations, if these
    events may quote the redacted events. ``forks`` share the redacted events. ``unconfirmed`` are
    the read models that have not reached ``position``, so they may still contain the content.
    ``History.redact`` adds the files and the records that may still contain the content.
    ``bytes_pending`` is true if only ``vacuum`` can complete the redaction. The documents in
    ``documents_lost``, such as ``attributes``, lost their newest value. ``documents_lost`` is set
    only by ``History.redact``.
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
    """Erase the content of an event. To finish an interrupted redaction, call ``redact`` again.

    Args:
        store: The store.
        conversation: The id of the conversation that stores the event.
        event_id: The event. The id of a summary (below -1) stands for the condensation that made
            the summary.
        reason: Why the content is erased. The receipt keeps the reason.
        by: Who asked for it.
        complete: Remove the bytes now, as ``erase`` describes.
        others: Maps the ids of other conversations to the events that are redacted there: copies of
            the event, and summaries that may quote it.
        also: Called in the transaction with the ids of all redacted events, to erase their content
            elsewhere, such as in source records.

    Returns:
        The receipt. Its ``bytes_pending`` says whether bytes of the content may still be in the
        files.

    Raises:
        ConversationNotFound, ConversationErased: There is no such conversation.
        InvalidArgument: The event does not exist, or ``conversation`` is a fork that shares it with
            its parent.
        CannotRedact: An event of this kind cannot be redacted, for example a receipt.

    Cost: reading the structural events of the conversation. Removing the bytes costs as much as in
    ``erase``.
    """
    check_text("conversation", conversation)
    check_whole("event_id", event_id)
    check_reason(reason, "receipt")
    check_text("by", by)
    database = store.database
    receipt, place, key = on_finished(
        database,
        lambda transaction: _redact(
            transaction, database, conversation, event_id, _Decision(by, reason), others or {}, also
        ),
    )
    if complete:
        purge(database.recorder, f"event {event_id} of {conversation!r} is redacted")
    position = None if place is None else place()
    newest = database.last_position if position is None else position
    unconfirmed, is_pending = database.recorder.query(
        lambda reader: (tuple(behind(reader, newest)), bytes_remain(reader, key))
    )
    return receipt._replace(position=position, unconfirmed=unconfirmed, bytes_pending=is_pending)


def _redact(
    transaction: Transaction,
    database: Database,
    conversation: str,
    named_id: int,
    decision: _Decision,
    others: Mapping[str, Sequence[int]],
    also: Callable[[Transaction, Mapping[str, Sequence[int]]], object] | None,
) -> tuple[RedactionReceipt, Place | None, int]:
    """Redact an event and the events ``others`` of other conversations in one transaction. ``also``
    is called in it, with all events to redact. Return the receipt, its place if a receipt was
    appended, and the key of the conversation.
    """
    state = find_existing(database, transaction, conversation)
    check_finished(transaction, state.key)
    writing = WriteTransaction(transaction, state, database)
    stored = _stored(writing, (named_id, *others.get(conversation, ())))
    to_redact = {**others, conversation: [*stored]}
    sharing = sharing_events(transaction, writing, stored)
    quotes = [*_condensations_that_quote(stored, sharing, to_redact)]
    if also is not None:
        also(transaction, to_redact)
    receipts, place = _erase_content(writing, stored, sharing, decision)
    forks = [fork.conversation for fork, _ in sharing[1:]]
    for name in others:
        if name != conversation:
            forks += _redact_beside(transaction, database, name, to_redact[name], decision)
    copy_quotes = (
        Quote(name, event_id, redacted=True)
        for name in to_redact
        if name != conversation
        for event_id in to_redact[name]
    )
    ids = tuple(receipts)
    first = receipts[ids[0]]
    receipt = RedactionReceipt(
        conversation=conversation,
        event_ids=ids,
        hashes=tuple(redacted.hash for redacted in receipts.values()),
        at=first.at,
        by=first.by,
        reason=first.reason,
        position=None,
        quotes=tuple(dict.fromkeys((*quotes, *copy_quotes))),
        forks=tuple(dict.fromkeys(forks)),
        unconfirmed=(),
        bytes_pending=True,
    )
    return receipt, place, state.key


def _condensations_that_quote(
    stored: Mapping[int, tuple[Row, Event]],
    sharing: Sequence[tuple[ReadTransaction, Sequence[int]]],
    to_redact: Mapping[str, Sequence[int]],
) -> Iterator[Quote]:
    """Yield the condensations whose summaries may quote the events ``stored``. ``sharing`` is the
    result of ``sharing_events``. ``to_redact`` names all events that the redaction erases.
    """
    for reading, shared_ids in sharing:
        owner = reading.state
        for action in quotes_in(reading, [stored[event_id][1] for event_id in shared_ids]):
            # A shared condensation is reported only for the conversation that stores it.
            if action.id >= owner.begins:
                is_redacted = action.id in to_redact.get(owner.id, ()) or not has_content(action)
                yield Quote(owner.id, action.id, is_redacted)


def _redact_beside(
    transaction: Transaction,
    database: Database,
    conversation: str,
    event_ids: Sequence[int],
    decision: _Decision,
) -> list[str]:
    """Erase the content of events of another conversation. Return the forks that share them."""
    state = database.find(transaction, conversation)
    # The conversation may have been erased after the caller chose its events.
    if state is None or state.erasure is not None:
        return []
    check_finished(transaction, state.key)
    writing = WriteTransaction(transaction, state, database)
    stored = _stored(writing, event_ids)
    sharing = sharing_events(transaction, writing, stored)
    _erase_content(writing, stored, sharing, decision)
    return [fork.conversation for fork, _ in sharing[1:]]


def _stored(
    writing: WriteTransaction, requested_ids: Iterable[int]
) -> dict[int, tuple[Row, Event]]:
    """Return the rows and the events to redact, by id: see ``_read``."""
    stored: dict[int, tuple[Row, Event]] = {}
    for requested in dict.fromkeys(requested_ids):
        # The id of a summary stands for the condensation that made the summary.
        event_id = summary_of(requested) if requested < -1 else requested
        stored[event_id] = _read(writing, event_id, requested)
    return stored


def sharing_events(
    transaction: Transaction, writing: WriteTransaction, ids: Collection[int]
) -> list[tuple[ReadTransaction, Sequence[int]]]:
    """Return the conversation with the ids, then each fork with the ids that it shares."""
    database = writing.database
    state = writing.state
    forks = forks_that_share(database, transaction, state.key, ids)
    return [
        (ReadTransaction(transaction, owner, database), shared)
        for owner, shared in ((state, [*ids]), *forks)
    ]


def _erase_content(
    writing: WriteTransaction,
    stored: Mapping[int, tuple[Row, Event]],
    sharing: Sequence[tuple[ReadTransaction, Sequence[int]]],
    decision: _Decision,
) -> tuple[dict[int, Redacted], Place | None]:
    """Erase the content of the events ``stored``, and append a receipt. Return the receipts of all
    these events by id, and the place of the new receipt if an event was not redacted before.
    """
    state = writing.state
    by, reason = decision
    now = max(writing.database.now(), state.changed_at)
    receipts: dict[int, Redacted] = {}
    redacted: list[tuple[Event, Redacted, Row]] = []
    for reading, shared_ids in sharing:
        shared = {event_id: stored[event_id][1] for event_id in shared_ids}
        _check_that_none_builds_on(reading, shared)
    for event_id, (row, event) in stored.items():
        receipt = event.redacted
        if receipt is None:
            if not can_be_redacted(event):
                raise CannotRedact(
                    f"conversation {state.id!r}, event {row.id}: an event of kind {row.kind!r}"
                    " cannot be redacted, because it is a receipt, or was written by a later"
                    " version of foldlog; redact another event, or erase the conversation"
                )
            commitment = commitment_of(row.proof, row.body)
            at = from_microseconds(now)
            # The size in the receipt does not include the trace context.
            appended = without_trace(event)
            size = size_of(row.body if appended is event else encode(appended, ours=True).body)
            receipt = Redacted(at=at, by=by, reason=reason, hash=commitment.hex(), bytes=size)
            body = encode(without_content(event, receipt), ours=True).body
            row = row.in_form(PLAIN, body, row.head + commitment)
            redacted.append((event, receipt, row))
        receipts[event_id] = receipt
    place = None
    if redacted:
        redaction = Redaction(
            event_ids=tuple(row.id for _, _, row in redacted),
            hashes=tuple(receipt.hash for _, receipt, _ in redacted),
            by=by,
            reason=reason,
            bodies=tuple(sha256(row.body).hexdigest() for _, _, row in redacted),
        )
        place = writing.append([encode(redaction, ours=True)], now)[0]
        redact_rows(writing, [(event, row) for event, _, row in redacted], sharing)
    return receipts, place


def redacted_bodies(rows: Iterable[Row]) -> dict[int, str]:
    """Map the ids of the redacted rows to SHA-256 of their bodies. The rows are decoded."""
    return {row.id: sha256(row.body).hexdigest() for row in rows if is_redacted(row.proof)}


def enter_copied_redactions(writing: WriteTransaction, bodies: Mapping[int, str]) -> None:
    """Enter the receipt of redacted events in the ledger, because the conversation may never have
    the receipt of the conversation from which they were copied. ``bodies`` maps the ids of the
    events to hashes of their bodies.
    """
    if bodies:
        ids = sorted(bodies)
        copied = RedactionCopied(
            event_ids=tuple(ids), bodies=tuple(bodies[event_id] for event_id in ids)
        )
        at = max(writing.database.now(), writing.state.changed_at)
        enter(writing.transaction, writing.state, copied, at)


def redact_rows(
    writing: WriteTransaction,
    redacted: Sequence[tuple[Event, Row]],
    sharing: Sequence[tuple[ReadTransaction, Sequence[int]]],
) -> None:
    """Replace the rows of events with the new rows in ``redacted``, which have no content, then
    call ``writing.end``. Delete the records of projections, if they may hold the content. The forks
    in ``sharing`` (see ``sharing_events``) lose these records too.
    """
    writing.redact([row for _, row in redacted])
    _forget_derived_content(writing, [event for event, _ in redacted])
    writing.end()
    for fork, shared_ids in sharing[1:]:
        shared = [event for event, _ in redacted if event.id in shared_ids]
        if not shared:
            continue
        database = writing.database
        transaction = writing.transaction
        check_finished(transaction, fork.key)
        # The parent may have got a key in this transaction, so read the fork again.
        present = find_again(database, transaction, fork.state).state
        beside = WriteTransaction(transaction, present, database)
        beside.count_redactions(len(shared))
        _forget_derived_content(beside, shared)
        beside.end()


# -- what to redact


def _read(writing: WriteTransaction, event_id: int, named_id: int) -> tuple[Row, Event]:
    """Return the row and the event to redact. ``named_id`` is the id that the caller named, which
    may be the id of the event's summary. Raises ``InvalidArgument`` if the event does not exist, or
    is stored in another conversation.
    """
    state = writing.state
    if not 0 <= event_id < state.version:
        raise InvalidArgument(
            f"conversation {state.id!r} has no event {named_id}; it has events 0 to"
            f" {state.version - 1}"
        )
    if event_id < state.begins:
        raise InvalidArgument(
            f"event {event_id} of conversation {state.id!r} belongs to conversation"
            f" {writing.owner_of(event_id)!r}, from which {state.id!r} was forked; redact the"
            " event there, which redacts it in every fork too"
        )
    row = writing.last_row(event_id + 1)
    event = stored_event_of(state.id, row)
    is_summary = isinstance(event, CondensationAction) and (
        event.summary is not None or event.redacted is not None
    )
    if named_id != event_id and not is_summary:
        raise InvalidArgument(
            f"conversation {state.id!r} has no event {named_id}: the summary of event c has the"
            f" id -(c+2), and event {event_id} has no summary"
        )
    return row, event


def quotes_in(reading: ReadTransaction, redacted: Sequence[Event]) -> list[CondensationAction]:
    """Return the condensations whose summaries may quote the events ``redacted``, sorted from the
    oldest to the newest. A condensation may quote the events that it forgets. A condensation that
    forgets a summary may also quote the events in that summary.
    """
    # A condensation of the V0 dialect contains ids of its source. Any other condensation contains
    # ids of events.
    source_ids: list[Any] = [
        event.origin.id for event in redacted if event.origin and names_source_ids(event)
    ]
    # A condensation is never shown, so no other condensation forgets it.
    ids = [event.id for event in redacted if not isinstance(event, CondensationAction)]
    summary_ids = {summary_id(event.id) for event in redacted}
    quoting: list[CondensationAction] = []
    first_id = min((event.id for event in redacted), default=reading.state.version)
    for action in reading.structural_events(first_id):
        if not isinstance(action, CondensationAction) or action.summary is None:
            continue
        is_v0 = names_source_ids(action)
        intervals, forgotten_summaries = action.forgotten
        forgets_event = any(
            first <= event_id <= last
            for event_id in (source_ids if is_v0 else ids)
            if type(event_id) is int
            for first, last in intervals
        )
        forgets_summary = not is_v0 and not summary_ids.isdisjoint(forgotten_summaries)
        if forgets_event or forgets_summary:
            quoting.append(action)
            summary_ids.add(summary_id(action.id))
            if is_v0 and action.origin is not None:
                source_ids.append(action.origin.id)
    return quoting


def _check_that_none_builds_on(reading: ReadTransaction, redacted: Mapping[int, Event]) -> None:
    """Raise ``CannotRedact`` if a later event stores a document as a difference from a value that
    would be redacted.
    """
    changes: dict[Any, Any] = {
        event_id: event.changed
        for event_id, event in redacted.items()
        if isinstance(event, DocumentChanges)
    }
    if not changes:
        return
    for later in reading.document_changes(min(changes) + 1):
        if later.id in redacted:
            continue
        for name, change in later.changed.items():
            if name in changes.get(change.get("base"), ()):
                raise CannotRedact(
                    f"conversation {reading.conversation!r}, event {change['base']}: event"
                    f" {later.id} stores document {name!r} as a difference from it; redact event"
                    f" {later.id} first"
                )


def _forget_derived_content(writing: WriteTransaction, events: Sequence[Event]) -> None:
    """Delete the records that may hold the content of redacted events. Projections can make the
    records again. The digests of source ids stay.
    """
    for event in events:
        if event.origin is None:
            key = None
        else:
            key = source_key(event.origin.format, event.origin.id)
        if key is not None and writing.recalled(key) is None:
            # A later import must recognize the event, even if the conversation has no index yet.
            writing.remember(key, RecalledKey(event.id, 1))
    writing.forget_records()
    if any(isinstance(event, DocumentChanges) and ATTRIBUTES in event.changed for event in events):
        list_again(writing, newest_value(writing, ATTRIBUTES))
