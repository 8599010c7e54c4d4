"""The store of one ``History``. After the erasure of its conversation, the history never shows a
new conversation with the same id. See ``docs/internals/decisions/0036-generations.md``.
"""

from __future__ import annotations

from copy import copy

from foldlog.eventstore import ConversationNotFound, Store
from foldlog.eventstore.log.database import Database, LastConversation
from foldlog.eventstore.log.finding import Generation
from foldlog.eventstore.log.row import not_erased
from foldlog.eventstore.recorders.base import Reader, Transaction
from foldlog.eventstore.recorders.types import Conversation


class BoundDatabase(Database):
    """A database that remembers the first conversation that it finds under an id. After the erasure
    of this conversation, the database does not find a new conversation with the same id.
    """

    def __init__(self, database: Database, conversation: str) -> None:
        super().__init__(database.recorder, database.settings)
        self.now = database.now
        self.id, self.generation = conversation, Generation()

    def find(
        self, reader: Reader, conversation: str, *, pending: bool = False
    ) -> Conversation | None:
        row = super().find(reader, conversation, pending=pending)
        key = self.generation.key
        if conversation != self.id or row is None or row.key == key:
            return row
        if key is not None:  # another conversation has the id
            not_erased(reader.conversation(key), row)
            raise ConversationNotFound(conversation)
        # A transaction may be rolled back.
        if row.erasure is None and not isinstance(reader, Transaction):
            self.generation.key = row.key
        return row

    def cached_state(self, conversation: str) -> LastConversation | None:
        state = super().cached_state(conversation)
        if state is not None and state.state.key == self.generation.key:
            return state
        return None


def bound_store(store: Store, conversation: str) -> tuple[BoundDatabase, Store]:
    own = copy(store)
    own.database = database = BoundDatabase(store.database, conversation)
    return database, own
