"""Follow a store with tables that are derived from it.

New events, and the position of the newest event, are written in one transaction. So each event is
added exactly once, even after a crash.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Generic, NoReturn

from foldlog._base.telemetry import measure, tell
from foldlog._reports.audit_tables import Derived, R
from foldlog.eventstore import EventStoreError, Store

_LAG_MAX_S = 60.0
"""If an event is not in the tables after this number of seconds, a message is logged."""
_MESSAGE_EVERY_S = 60.0
"""The minimum time in seconds between two messages about late events."""
_POLL_S = 0.005


class Follower(Generic[R]):
    """Updates tables that are derived from a store, such as an audit database.

    Other processes may update the same tables. Cost: the new events are read. While there are none,
    the store is asked 200 times a second whether it has changed, which takes microseconds.
    """

    def __init__(self, store: Store, derived: Derived[R]) -> None:
        self._store = store
        self._derived = derived
        self._silent_until = 0.0

    def run(self, every_s: float, on_events: Callable[[], object]) -> NoReturn:
        """Follow the store until Ctrl-C or an error. Every ``every_s`` seconds, refresh the tables
        and call ``on_events``.
        """
        while True:
            self._add_events(time.monotonic() + every_s)
            self._derived.refresh()
            self._tell_lag()
            on_events()

    def _add_events(self, until: float) -> None:
        seen: int | None = None
        while time.monotonic() < until:
            version = self._store.database.data_version()
            if version == seen:
                time.sleep(_POLL_S)
            else:
                self._derived.catch_up()
                seen = version

    def _tell_lag(self) -> None:
        """Report the age of the first event that is not yet in the tables, if it can be read."""
        with suppress(EventStoreError):
            for first in self._store.follow(self._derived.position, limit=1):
                seconds = (datetime.now(UTC) - first.recorded_at).total_seconds()
                is_due = seconds > _LAG_MAX_S and time.monotonic() >= self._silent_until
                if is_due:
                    self._silent_until = time.monotonic() + _MESSAGE_EVERY_S
                # ``tell`` logs a message in addition to the measurement.
                report = tell if is_due else measure
                report(
                    "foldlog.follower.behind",
                    follower=type(self._derived).__name__,
                    seconds=seconds,
                    position=first.position,
                )
