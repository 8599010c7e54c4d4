"""How this process's appends left their conversations, so that the next append need not ask before it writes.

Most appends follow on one of the same process. Others write too, so what is known of a conversation is only ever a
guess: the server checks it before anything is written, in the same round trip. A guess that is wrong costs that round
trip and a line in the server's log, so it is ventured only while the last append found everything as we had left it.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from eventstore.recorders.types import Conversation

__all__ = ["PostgresVersionCache"]

_KEPT_MAX: Final = 10_000


class _Tail(NamedTuple):
    conversation: Conversation
    is_ours: bool


class PostgresVersionCache:
    """Conversations by id, those that were written to last. Any number of threads may use it."""

    def __init__(self, kept_max: int = _KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._mutex = threading.Lock()
        self._by_id: dict[str, _Tail] = {}

    def take(self, conversation_id: str) -> Conversation | None:
        """Return how a conversation ends, if a guess is worth it. It is told once: of two threads that append at the
        same time only one can be right about how the other leaves it, and if that one is wrong, there was somebody
        else.
        """
        with self._mutex:
            tail = self._by_id.get(conversation_id)
            if tail is None or not tail.is_ours:
                return None
            self._by_id[conversation_id] = tail._replace(is_ours=False)
            return tail.conversation

    def keep(self, found: Conversation, left: Conversation) -> None:
        """Remember how a committed transaction found and left a conversation. Transactions may be told out of order."""
        with self._mutex:
            known = self._by_id.get(left.id)
            if known is not None and known.conversation.version > left.version:
                return  # another thread came behind it, and was told of first
            self._by_id.pop(left.id, None)
            self._by_id[left.id] = _Tail(left, known is None or known.conversation.head == found.head)
            if len(self._by_id) > self._kept_max:
                del self._by_id[next(iter(self._by_id))]
