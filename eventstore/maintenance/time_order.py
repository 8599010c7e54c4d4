"""Compare the times of events with their order in the store, which no clock can change."""

from __future__ import annotations

import struct
from datetime import datetime
from functools import partial
from typing import Final

from foldlog.eventstore.errors import StoreRefused
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.store import Store
from foldlog.eventstore.times import EventTime, event_microseconds

_time: Final = struct.Struct(">Q").pack


class OldByOrder:
    """Finds conversations that only seem to be older than ``before``: the store has an event that
    was recorded earlier, and has a later time than ``before``. So the clock was wrong that dated
    the conversation. Times after the present prove nothing.
    """

    def __init__(self, store: Store, before: datetime) -> None:
        self._store = store
        self._before = before
        # No event is older than 1970.
        self._since = max(event_microseconds(EventTime(before)), 0)
        self._until = store.database.now()
        self._checked = 0
        """Up to this position, no event is newer than ``before``."""

    def problem(self, conversation: str) -> StoreRefused | None:
        """Return an error if a conversation only seems to be old.

        Cost: for all calls together, looking at the times of the events before the last event of
        each conversation, up to the first newer event.
        """
        if self._store.database.recorder.query(partial(self._has_newer, conversation)):
            return StoreRefused(
                f"conversation {conversation!r} stays: its last event is dated before"
                f" {self._before:%Y-%m-%d %H:%M:%S} UTC, but an event that the store recorded"
                " earlier is dated later, so a clock was wrong; if the conversation is old, erase"
                " it by its name",
                kind="refused",
            )
        return None

    def _has_newer(self, conversation: str, reader: Reader) -> bool:
        """Return whether an earlier event is newer than ``before``, though the conversation's last
        event is older.
        """
        state = reader.conversation(conversation)
        if state is None or state.erasure is not None or (state.updated_at or 0) >= self._since:
            return False
        times = _time(self._since), _time(self._until)
        answer = reader.ask("newer_before", state.key, self._checked, *times)
        for position, has_newer in answer:
            # Each of several joined stores has positions of its own.
            if not has_newer and self._store.database.recorder.store_count == 1:
                self._checked = max(self._checked, position)
            return bool(has_newer)
        return False
