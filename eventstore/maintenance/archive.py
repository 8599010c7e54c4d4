"""Archive a conversation: write its events to an object in an object store, then delete their
rows.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from foldlog.eventstore.errors import (
    ConversationNotFound,
    CorruptEvent,
    KeyUnavailable,
    StoreDamaged,
    StoreRefused,
    count,
)
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.importing import ARCHIVE, ARCHIVED
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.maintenance.archive_objects import (
    Placed,
    archived_in,
    check_reachable,
    check_url,
    delete_object,
    new_address,
    owner_of_objects,
    pack_rows,
    read_archived,
    replace_operation,
    write_object,
)
from foldlog.eventstore.maintenance.unfinished import check_finished, on_finished
from foldlog.eventstore.maintenance.verify import Check, Verdict, VerifyFinding, verify
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.errors import FAILURES
from foldlog.eventstore.recorders.types import Conversation, Unfinished, as_rows
from foldlog.eventstore.store import Store

_CHANGED = "it was changed at the same time; archive it again"
_IN_BOTH = "it is in the store and in the object of its archive"
_WRONG_OBJECT = (
    "the object {} does not have the bytes that were written; the events are whole in this store;"
    " look at the object store, then archive the conversation again"
)


class Archived(NamedTuple):
    """The result of archiving one conversation: the number of events in the object, and the size of
    the object in bytes. If the conversation was not archived, ``stays`` is the reason.
    """

    conversation: str
    events: int
    bytes: int
    stays: str | None = None


def archive(store: Store, conversation: str, to: str) -> Archived:
    """Write the stored events of a conversation to a new object in the object store ``to``. Read
    the object back, then delete the rows of the events. The store keeps the last event, the
    idempotency keys and the source of the conversation. After an interruption, call ``archive``
    again.

    A conversation is not archived if it is erased, archived already or damaged, has forks, or has
    only one event of its own. A conversation is not archived if some records of its source have no
    events yet, if it changes during the call, or if the object does not read back as it was
    written. Raises ``ConversationNotFound``, and ``InvalidArgument`` if ``to`` is not a URL. Raises
    ``StoreUnavailable`` if the object store does not answer, and ``StoreRefused`` if it refuses, or
    if ``to`` names no object store. Cost: reading and writing the events once. Memory: three copies
    of the events.
    """
    database = store.database
    recorder = database.recorder
    check_url(recorder, to)
    try:
        state, placed, stays = recorder.query(partial(_read_stored, conversation=conversation))
    except StoreDamaged as error:
        return Archived(conversation, 0, 0, str(error))
    if stays is None:
        stays = _find_damage(store, state)
        if (
            stays is not None
            and recorder.query(lambda reader: reader.conversation(state.id)) != state
        ):
            stays = _CHANGED
    if stays is not None:
        return Archived(conversation, 0, 0, stays)
    assert state.head is not None  # the conversation has events
    data = pack_rows(placed)
    owner = owner_of_objects(recorder)
    attempt = Unfinished(state.key, state.id, ARCHIVE, new_address(to, state.head, data, owner))
    check_reachable(attempt.state)
    if not on_finished(database, partial(_begin, state=state, attempt=attempt)):
        return Archived(conversation, 0, 0, _CHANGED)
    try:
        write_object(attempt.state, data)
    except StoreRefused:  # the object store made no object
        replace_operation(recorder, attempt, None)
        raise
    try:
        is_written = read_archived(conversation, attempt.state) == placed
    except StoreRefused as error:
        if recorder.query(lambda reader: [*reader.unfinished(state.key)]) != [attempt]:
            return Archived(conversation, 0, 0, _CHANGED)  # another process deleted the object
        if error.kind != "archive":
            raise
        is_written = False
    if not is_written:
        # The note on the object stays, so the next call or vacuum deletes the object.
        return Archived(conversation, 0, 0, _WRONG_OBJECT.format(attempt.state.partition(" ")[2]))
    end = partial(
        _archive_rows, database=database, state=state, attempt=attempt, events=len(placed)
    )
    if recorder.transact(end):
        return Archived(conversation, len(placed), len(data))
    delete_object(attempt.state)
    replace_operation(recorder, attempt, None)
    return Archived(conversation, 0, 0, _CHANGED)


def check_archived(store: Store, verdict: Verdict) -> Verdict:
    """Check the archived events of a conversation, whose verdict ``verify`` gave. Without the key
    of an encrypted conversation, check only that the object is unchanged.
    """
    database = store.database
    find = partial(archived_in, conversation=verdict.conversation or "")
    archived = database.recorder.query(find) if verdict.archived else None
    if archived is None:
        return verdict
    state, address = archived
    check = None
    findings = database.recorder.query(partial(_beside_object, state=state))
    try:
        rows = as_rows(row for row, _ in read_archived(state.id, address))
        check = Check(database, state, state.version, rows)
        findings += check.run()
        if len(rows) != state.archived:
            counted = count(state.archived, "archived event")
            problem = f"its row counts {counted}, and the archive has {len(rows):,}"
            findings.append(VerifyFinding(None, None, problem))
    except KeyUnavailable:  # which is a finding already
        check = None
    except FAILURES as error:
        findings.append(VerifyFinding(None, None, str(error)))
    if findings and database.recorder.query(find) != archived:  # it was restored or erased
        *_, verdict = verify(store, state.id)
        return check_archived(store, verdict)
    redacted = () if check is None else tuple(check.redacted())
    return verdict._replace(findings=(*verdict.findings, *findings), redacted=redacted)


def _beside_object(reader: Reader, state: Conversation) -> list[VerifyFinding]:
    """Return a finding if the store has an event that only the object may have. Followers would
    read it, and the events of the object could not be put back.
    """
    columns = reader.columns(state.key, state.begins, state.version - 1, 1)
    return [VerifyFinding(event_id, event_id, _IN_BOTH) for event_id, *_ in columns]


def _read_stored(
    reader: Reader, conversation: str
) -> tuple[Conversation, list[Placed], str | None]:
    """Return a conversation and its rows, except the last one. If it cannot be archived, return the
    reason instead of the rows.
    """
    state = reader.conversation(conversation)
    if state is None:
        raise ConversationNotFound(conversation)
    last = state.version - 1
    forks = reader.living_forks(state.key)
    stays = None
    if state.erasure is not None:
        stays = "it is erased"
    elif state.archived:
        stays = "it is archived"
    elif state.unmade:
        stays = "its source has records without events"
    elif forks:
        stays = f"forks need its events: {', '.join(repr(fork.id) for fork in forks)}"
    elif last <= state.begins:
        stays = "it has no events of its own except the last one"
    if stays is not None:
        return state, [], stays
    rows = reader.rows(state.key, 0, last)
    positions = reader.ask("positions", state.key, last)
    return state, [(row, at) for row, (at,) in zip(rows, positions, strict=True)], None


def _find_damage(store: Store, state: Conversation) -> str | None:
    """Return the first problem of a conversation, or None. A damaged conversation must not be
    archived.
    """
    try:
        findings = Check(store.database, state, state.version).run()
    except (CorruptEvent, KeyUnavailable, StoreDamaged) as error:
        return str(error)
    return str(findings[0]) if findings else None


def _begin(transaction: Transaction, state: Conversation, attempt: Unfinished) -> bool:
    """Store the object's address before the object is written, so that a later call can find and
    delete the object after an interruption.
    """
    if transaction.conversation(state.id) != state:
        return False
    check_finished(transaction, state.key)
    transaction.leave_unfinished(state.key, ARCHIVE, attempt.state)
    return True


def _archive_rows(
    transaction: Transaction,
    database: Database,
    state: Conversation,
    attempt: Unfinished,
    events: int,
) -> bool:
    """Delete the rows that are in the object. Return False if the conversation has changed since it
    was read.
    """
    present = transaction.conversation(state.id)
    unfinished = [*transaction.unfinished(state.key)]
    if unfinished == [attempt._replace(operation=ARCHIVED)]:
        return True  # the transaction was committed before, and is run again
    if present != state or unfinished != [attempt] or transaction.living_forks(state.key):
        return False
    WriteTransaction(transaction, state, database).forget_records()
    transaction.archive(state.key, state.version - 1, events)
    transaction.leave_unfinished(state.key, ARCHIVED, attempt.state)
    return True
