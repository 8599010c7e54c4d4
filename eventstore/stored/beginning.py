"""The beginning of a conversation: every write that begins one calls this file."""

from __future__ import annotations

from eventstore.errors import InvalidArgument
from eventstore.recorders.base import Transaction
from eventstore.recorders.types import Beginning, Conversation, Fork
from eventstore.stored import hash_chain


def begin_new(
    transaction: Transaction,
    conversation: str,
    now: int,
    *,
    staged: bool = False,
    fork: Fork | None = None,
    replaces: int | None = None,
) -> Conversation:
    """Begin a conversation with a new salt, as ``Transaction.begin`` does. Raises ``InvalidArgument`` for an empty id.

    A copy of a store does not use this function, because it keeps ids and salts.
    """
    if not conversation:
        raise InvalidArgument("the id of a new conversation is empty; give it at least one character")
    return transaction.begin(Beginning(conversation, now, hash_chain.new_salt(), staged, fork, replaces))
