"""Fork a conversation: begin a new one that shares the events of another one up to a version.

No event is copied. The fork's row names the conversation that the last shared event is stored under, and a read of a
fork asks each ancestor for its part.
"""

from __future__ import annotations

from foldlog.eventstore.arguments import whole
from foldlog.eventstore.errors import ConversationNotFound, CorruptEvent, InvalidArgument, VersionConflict
from foldlog.eventstore.events import Forked
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.generation import Generation, find_meant
from foldlog.eventstore.log.ledger import enter
from foldlog.eventstore.log.past import past_of
from foldlog.eventstore.log.reading import ReadTransaction, find_begun
from foldlog.eventstore.log.row import not_erased, sound
from foldlog.eventstore.log.writing import WriteTransaction, begin_new
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.types import Conversation, Fork, RecalledKey


def begin_fork(
    database: Database,
    transaction: Transaction,
    conversation: str,
    at: int,
    new_id: str,
    generation: Generation | None = None,
) -> Conversation:
    """Begin the fork ``new_id`` of a conversation at a version, and return it.

    Raises ``ConversationNotFound``, ``ConversationErased`` (of either), ``InvalidArgument`` for a version that the
    conversation does not have or an empty ``new_id``, ``VersionConflict`` where ``new_id`` exists.
    """
    if type(new_id) is not str:
        raise TypeError(f"the id of a conversation is a text, not {new_id!r}")
    found = find_begun(database, transaction, conversation)
    if found is None:
        raise ConversationNotFound(conversation)
    if not 1 <= whole("at", at) <= found.version:
        raise InvalidArgument(
            f"conversation {conversation!r} has {found.version} events and cannot be forked at {at}: use 1 to "
            f"{found.version}"
        )
    rival, replaces = find_meant(database, transaction, new_id, generation)
    if rival is not None:
        raise VersionConflict(new_id, 0, rival.version)
    owner = _owner(database, transaction, found, at)
    rows = ReadTransaction(transaction, owner, database).rows(at - 1, at, 1)
    if not rows:
        raise CorruptEvent(owner.id, at - 1, "it is missing")
    fork = Fork(owner, sound(owner.id, rows[0]))
    begun = begin_new(transaction, database, new_id, database.now(), fork=fork, replaces=replaces)
    writing = WriteTransaction(transaction, begun, database)
    writing.begin()
    enter(transaction, begun, Forked(parent=owner.id, version=at), begun.created_at, is_first=True)
    if found.redactions:
        _keep_source_keys(ReadTransaction(transaction, found, database), writing, at)
    writing.end()
    return begun


def _keep_source_keys(parent: ReadTransaction, fork: WriteTransaction, at: int) -> None:
    """Have the fork know the ids that a source gave redacted events which it shares: these must not come back."""
    for name, each in parent.source_keys():
        if each.first_id < at:
            fork.remember(name, RecalledKey(each.first_id, 1))
    fork.count_redactions(parent.redactions)


def _owner(database: Database, transaction: Transaction, found: Conversation, at: int) -> Conversation:
    """Return the conversation that event ``at - 1`` is stored under: ``found``, or one of its ancestors."""
    if at > found.begins:
        return found
    (part,) = (part for part in past_of(database, transaction, found) if part.start < at <= part.stop)
    owner = not_erased(database.find_key(transaction, part.key))
    if owner is None:
        raise CorruptEvent(part.id, at - 1, "it is missing, as all of the conversation is")
    return owner
