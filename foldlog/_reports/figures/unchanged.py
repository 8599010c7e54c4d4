"""Figures are written only if their conversation has not changed since it was read."""

from __future__ import annotations

from foldlog.eventstore import ConversationRow
from foldlog.eventstore.recorders.types import Conversation


def is_as_in(row: ConversationRow, conversation: Conversation) -> bool:
    """Return whether a stored conversation is as in a row that was read before."""
    return (
        conversation.version == row.version
        and (conversation.head or b"").hex() == row.head
        and conversation.redactions == row.redactions
        and (conversation.unmade, conversation.archived) == (row.unmade, 0)
        and (conversation.parent is None) == (row.parent is None)
    )
