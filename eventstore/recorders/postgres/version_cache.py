"""The last known version of conversations that this process appended to, so that the next append need not ask for it.

Most appends follow an append of the same process. Other processes write too, so the known version is only a guess: the
server checks it before it writes, in the same round trip. A wrong guess costs that round trip and a line in the
server's log. So a guess is made only if the last append found the conversation as this process had left it.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from eventstore.recorders.types import Conversation

_KEPT_MAX: Final = 10_000


class _Tail(NamedTuple):
    conversation: Conversation
    is_ours: bool


class PostgresVersionCache:
    """The most recently written conversations, by id. Any number of threads may use it."""

    def __init__(self, kept_max: int = _KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._mutex = threading.Lock()
        self._by_id: dict[str, _Tail] = {}

    def take(self, conversation_id: str) -> Conversation | None:
        """Return the last version of a conversation, if a guess is worth it. Each guess is given once: of two threads
        that append at the same time only one guess can be right.
        """
        with self._mutex:
            tail = self._by_id.get(conversation_id)
            if tail is None or not tail.is_ours:
                return None
            self._by_id[conversation_id] = tail._replace(is_ours=False)
            return tail.conversation

    def keep(self, found: Conversation, left: Conversation) -> None:
        """Remember how a committed transaction found and left a conversation. Calls may come out of order."""
        with self._mutex:
            known = self._by_id.get(left.id)
            if known is not None and known.conversation.version > left.version:
                return  # another thread appended after it, and its append was recorded first
            self._by_id.pop(left.id, None)
            self._by_id[left.id] = _Tail(left, known is None or known.conversation.head == found.head)
            if len(self._by_id) > self._kept_max:
                del self._by_id[next(iter(self._by_id))]
