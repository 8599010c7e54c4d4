"""Erase and redact for a reason that does not matter."""

from typing import Any

from foldlog.eventstore import Store
from foldlog.eventstore.log.results import ConversationRow
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.redact import RedactionReceipt, redact


def erased(store: Store, conversation: str, **options: Any) -> ConversationRow:
    return erase(store, conversation, reason="asked for", **options)


def redacted(store: Store, conversation: str, event_id: int) -> RedactionReceipt:
    return redact(store, conversation, event_id, reason="asked for", by="me")
