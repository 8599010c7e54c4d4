"""The conversations that this process knows: the one cache of them, and observers of what it appends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol
from weakref import ref

from foldlog.eventstore.log.seal import RowCodec
from foldlog.eventstore.recorders.types import Conversation, Row

_KNOWN_MAX: Final = 10_000


class Known(NamedTuple):
    """A conversation as this process found or left it: as stored, with its salt decrypted, and its codec.

    ``era`` is that of the write transaction which found or left it so (``Reader.era``), None for a read transaction.
    ``foreign``: another process has written to it since this one left it, and may do so again.
    """

    stored: Conversation
    plain: Conversation
    codec: RowCodec
    era: int | None = None
    foreign: bool = False


class Observer(Protocol):
    """Something that is told what this process appends, for example to go on from a state in memory."""

    def appended(self, before: Conversation, after: Conversation, rows: Sequence[Row], /) -> None:
        """Take the plain rows by which a transaction lets a conversation grow. Rows with attachments are left out.

        The transaction may still be rolled back, and other writers append too. Heads tell: rows belong to a
        conversation only where they lead from one head of it to another. It must not ask the store, nor raise.
        """


class KnownConversations:
    """The conversations that this process found or left last, by id. Any number of threads may use it.

    Where a transaction was rolled back after it noted how it leaves a conversation, nothing is wrong: no transaction
    has its era any more, and the conversation that is found then is another one.
    """

    def __init__(self) -> None:
        self._by_id: dict[str, Known] = {}
        self.get = self._by_id.get
        self._observers: tuple[ref[Observer], ...] = ()

    def note(self, known: Known) -> None:
        """Note how a conversation was found, or how a transaction of this process leaves it. A staged one is left out:
        several may have the same id.
        """
        if known.stored.visible:
            if len(self._by_id) >= _KNOWN_MAX:
                self._by_id.clear()
            self._by_id[known.plain.id] = known

    def forget(self, conversation: str) -> None:
        """Forget a conversation that a transaction noted and the database then refused to keep: on a server the next
        one would begin with a state that never was, which a guard would be shown before the server refuses it.
        """
        self._by_id.pop(conversation, None)

    def observe(self, observer: Observer) -> None:
        """From now on tell an observer what is appended, for as long as other code holds it."""
        self._observers = (*[each for each in self._observers if each() is not None], ref(observer))

    def tell(self, before: Conversation, after: Conversation, rows: Sequence[Row]) -> None:
        """Tell the observers what a transaction appends."""
        for each in self._observers:
            observer = each()
            if observer is not None:
                observer.appended(before, after, rows)
