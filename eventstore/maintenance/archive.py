"""Archive a conversation: write its events to an object, then delete their rows."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from foldlog.eventstore.errors import (
    ConversationNotFound,
    CorruptEvent,
    KeyUnavailable,
    StoreDamaged,
    StoreUnusable,
)
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.finding import living_forks
from foldlog.eventstore.log.importing import ARCHIVE, ARCHIVED
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.maintenance.archived import (
    Placed,
    archived_in,
    check_reachable,
    check_url,
    delete_object,
    go_on,
    new_address,
    packed,
    read_archived,
    write_object,
)
from foldlog.eventstore.maintenance.unfinished import check_finished, on_finished
from foldlog.eventstore.maintenance.verify import Check, Verdict, VerifyFinding
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.errors import FAILURES
from foldlog.eventstore.recorders.types import Conversation, Unfinished
from foldlog.eventstore.store import Store

_CHANGED = "it was changed at the same time; archive it again"


class Archived(NamedTuple):
    """The outcome for one conversation: how many of its events are in an object now, and of how
    many bytes that is; or why it stays.
    """

    conversation: str
    events: int
    bytes: int
    stays: str | None = None


def archive(store: Store, conversation: str, to: str) -> Archived:
    """Write the events of a conversation, as they are stored, to a new object in the object store
    ``to``, read it back, then delete their rows. The last event stays, with all that is beside the
    events. Call it again after an interruption.

    A conversation stays that is damaged, has forks, or a source whose events are not made; one with
    a single event; and one that is changed at the same time. Raises ``ConversationNotFound``,
    ``InvalidArgument`` if ``to`` is not a URL; ``StoreUnavailable`` and ``StoreUnusable`` where the
    object store does not answer or refuses. Cost: its events three times, in memory.
    """
    check_url(to)
    database = store.database
    recorder = database.recorder
    found, placed, stays = recorder.query(partial(_read, conversation=conversation))
    stays = stays or _damage(store, found)
    if stays is not None:
        return Archived(conversation, 0, 0, stays)
    assert found.head is not None  # it has events
    data = packed(placed)
    mine = Unfinished(found.key, found.id, ARCHIVE, new_address(to, found.head, data))
    check_reachable(mine.state)
    if not on_finished(database, partial(_begin, found=found, mine=mine)):
        return Archived(conversation, 0, 0, _CHANGED)
    try:
        write_object(mine.state, data)
    except StoreUnusable:  # then there is none
        recorder.transact(partial(go_on, left=mine, operation=None))
        raise
    end = partial(_end, database=database, found=found, mine=mine, events=len(placed))
    if recorder.transact(end):
        return Archived(conversation, len(placed), len(data))
    delete_object(mine.state)
    recorder.transact(partial(go_on, left=mine, operation=None))
    return Archived(conversation, 0, 0, _CHANGED)


def checked(store: Store, verdict: Verdict) -> Verdict:
    """Return the verdict on a conversation with what is wrong with its object, if it is archived.
    Cost: the object.
    """
    find = partial(archived_in, conversation=verdict.conversation or "")
    archived = store.database.recorder.query(find) if verdict.archived else None
    if archived is None:
        return verdict
    try:
        read_archived(archived[0].id, archived[1])
    except FAILURES as error:
        finding = VerifyFinding(None, None, str(error))
        return verdict._replace(findings=(*verdict.findings, finding))
    return verdict


def _read(reader: Reader, conversation: str) -> tuple[Conversation, list[Placed], str | None]:
    """Return a conversation, its own rows but for the last one, and why it stays."""
    found = reader.conversation(conversation)
    if found is None:
        raise ConversationNotFound(conversation)
    last = found.version - 1
    forks = living_forks(reader, found.key)
    stays = None
    if found.erasure is not None:
        stays = "it is erased"
    elif found.pending:
        stays = "it is archived" if found.pending < 0 else "its source has records without events"
    elif forks:
        stays = f"forks need its events: {', '.join(repr(fork.id) for fork in forks)}"
    elif last <= found.begins:
        stays = "it has no events of its own but the last"
    if stays is not None:
        return found, [], stays
    rows = reader.rows(found.key, 0, last, last)
    positions = reader.ask_sources("positions", found.key, last)
    return found, [(row, at) for row, (at,) in zip(rows, positions, strict=True)], None


def _damage(store: Store, found: Conversation) -> str | None:
    """Return the first finding in the rows of a conversation: none may be archived as sound."""
    try:
        check = Check(store.database, found, found.version, {})
        check.run()
    except (CorruptEvent, KeyUnavailable, StoreDamaged) as error:
        return str(error)
    return str(check.findings[0]) if check.findings else None


def _begin(transaction: Transaction, found: Conversation, mine: Unfinished) -> bool:
    """Note the address of the object that will be made."""
    if transaction.conversation(found.id) != found:
        return False
    check_finished(transaction, found.key)
    transaction.leave_unfinished(found.key, ARCHIVE, mine.state)
    return True


def _end(
    transaction: Transaction, database: Database, found: Conversation, mine: Unfinished, events: int
) -> bool:
    """Delete the rows that the object holds, and the records that can be made of them, unless
    something has changed since they were read.
    """
    now = transaction.conversation(found.id)
    left = [*transaction.unfinished(found.key)]
    if left == [mine._replace(operation=ARCHIVED)]:
        return True  # the transaction is run again after its commit
    if now != found or left != [mine] or living_forks(transaction, found.key):
        return False
    WriteTransaction(transaction, found, database).forget_records()
    transaction.archive(found.key, found.version - 1, events)
    transaction.leave_unfinished(found.key, ARCHIVED, mine.state)
    return True
