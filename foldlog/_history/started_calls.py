"""The calls of other runtimes that this process has begun, and the calls that other workers left
behind. ``runtime_calls.py`` uses both to decide whether a tool runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock
from typing import Final, TypeAlias

from foldlog.projections.call_states import CallTrace

BoundConversation: TypeAlias = tuple[str, int | None]
"""The id and the key of a conversation. After an erasure, another conversation may have the id."""
_REMEMBERED_MAX: Final = 1_000
"""The number of calls that this process remembers. A remembered call is recognized when the runtime
repeats it.
"""


class StartedCalls:
    """The calls of one ``Histories``. Many threads may use the same object."""

    def __init__(self) -> None:
        self._worker_token = os.urandom(8).hex()
        self._lock = Lock()
        self._intents: dict[tuple[BoundConversation, str], int] = {}
        self._left_behind: dict[BoundConversation, list[CallTrace]] = {}

    @property
    def worker(self) -> str:
        """The name of this worker. Two ``Histories`` of one process count as two workers, because
        neither knows which calls the other has begun.
        """
        return f"{self._worker_token} {os.getpid()}"

    def remember(self, conversation: BoundConversation, call_id: str, intent_id: int) -> None:
        """Remember the event that records that a call began. The oldest call is forgotten."""
        with self._lock:
            self._intents[conversation, call_id] = intent_id
            if len(self._intents) > _REMEMBERED_MAX:
                del self._intents[next(iter(self._intents))]

    def intent_of(self, conversation: BoundConversation, call_id: str) -> int | None:
        """Return the event that records that the call began, or None if this process did not begin
        the call or has forgotten it.
        """
        return self._intents.get((conversation, call_id))

    def forget_left_behind(self, conversation: BoundConversation) -> None:
        """Read the calls that other workers left behind again at the next question."""
        with self._lock:
            self._left_behind.pop(conversation, None)

    def load_left_behind(
        self, conversation: BoundConversation, read: Callable[[], list[CallTrace]]
    ) -> None:
        """Remember the calls that other workers left behind. ``read`` is called if they are not in
        memory.
        """
        if conversation not in self._left_behind:
            traces = read()
            with self._lock:
                self._left_behind.setdefault(conversation, traces)

    def take_left_behind(self, conversation: BoundConversation, call_id: str) -> CallTrace | None:
        """Remove a call that another worker left behind, and return it."""
        with self._lock:
            traces = self._left_behind.get(conversation, [])
            for trace in traces:
                if trace.call.call_id == call_id:
                    traces.remove(trace)
                    return trace
        return None

    def untold(self, conversation: BoundConversation) -> list[CallTrace]:
        """Return the calls left behind about which the model has no message yet."""
        with self._lock:
            traces = self._left_behind.get(conversation, [])
            return [trace for trace in traces if not trace.is_told]
