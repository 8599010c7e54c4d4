"""Keep states that several sessions share: each is a document of a separate conversation.

A change comes with an event of a session, which is another conversation, so the two are not written in one transaction.
The session keeps the change with a key, in the transaction of its event, and the change is written once under that key.
If a process is killed in between, the next reader of the session writes the change.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from foldlog._histories import Histories
from foldlog.eventstore import Annotation, ConversationErased, IdempotencyConflict, VersionConflict

_STATE = "state"
Values = dict[str, Any]


class SharedStates:
    """The shared states of a store, by the ids of their conversations. Values are JSON."""

    def __init__(self, histories: Histories) -> None:
        self._histories = histories

    def read(self, conversation: str) -> Values:
        """Return a state; empty where there is none."""
        try:
            state: Values = self._histories[conversation].document(_STATE, {})
        except ConversationErased:
            return {}
        return state

    def pending(self, changes: Mapping[str, Values]) -> Values | None:
        """Return changes of states by their conversations, as a session keeps them; None without changes."""
        changes = {conversation: change for conversation, change in changes.items() if change}
        return {"key": secrets.token_hex(8), "changes": changes} if changes else None

    def write(self, session: str, pending: Values | None) -> None:
        """Write the changes that a session keeps and that are not written yet. Durability: on disk when it returns.

        Cost: a search for the key in each of the conversations, and the new changes.
        """
        for conversation, change in (pending or {"changes": {}})["changes"].items():
            while not self._is_written(session, conversation, change, str(pending and pending["key"])):
                continue  # another session wrote first

    def _is_written(self, session: str, conversation: str, change: Values, key: str) -> bool:
        """Write a change. Return whether it is written; if not, its state has changed in that time: call it again. An
        event is appended with it, because a change to equal values alone would not record its key.
        """
        history = self._histories[conversation]
        try:
            version = history.version()
            if version and self._histories.store.query(conversation, lambda read: read.recall(key)) is not None:
                return True
            state = history.document(_STATE, {}, version=version) if version else {}
            changed = Annotation(name="state", data={"session": session})
            documents = {_STATE: {**state, **change}}
            history.append(changed, expected_version=version, documents=documents, idempotency_key=key)
        except ConversationErased:
            with suppress(VersionConflict):
                self._histories.create(conversation, replace_erased=True)
            return False
        except IdempotencyConflict:
            return True  # another process wrote this change
        except VersionConflict:
            return False
        return True
