"""Keep what is derived from the events of a store up to date, so that no reader has to wait:
figures, the list of conversations, and the search index if the store has one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Self

from foldlog._base.telemetry import tell
from foldlog._history.histories import Histories
from foldlog.eventstore import EventStoreError, Store

EVERY_S: Final = 1.0
"""How often a ``Keeper`` looks for new events."""
_REST: Final = 1
"""How long a ``Keeper`` rests after its work, for each second of it. While it computes, appends
wait for the interpreter's lock.
"""
_REST_MAX_S: Final = 5.0
"""It never rests longer, so that readers are at most this far behind."""


class Keeper:
    """Keeps a store up to date in a thread of its own, until the end of the ``with`` statement. If
    the store raises an error, a message is logged, and the ``Keeper`` tries again. Several
    processes may each have a ``Keeper``. A store that is read-only is left as it is.
    """

    def __init__(self, store: Store, every_s: float = EVERY_S) -> None:
        self._store = store
        self._every_s = every_s
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self.run, name="foldlog-keeper", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_ending.set()
        self._thread.join()

    def run(self, on_kept: Callable[[], object] = lambda: None) -> None:
        """Keep up until the ``Keeper`` ends, or return at once if the store is read-only.
        ``on_kept`` is called each time when all is done.
        """
        version_kept: int | None = None
        recorder = self._store.database.recorder
        maintenance = Histories(self._store).maintenance
        while recorder.writable and not self._is_ending.is_set():
            wait_s = self._every_s
            try:
                version = self._store.database.data_version()
                if version != version_kept:
                    began_at = time.monotonic()
                    maintenance.keep_up()
                    took_s = time.monotonic() - began_at
                    wait_s = max(wait_s, min(_REST * took_s, _REST_MAX_S))
                    # What was written meanwhile by this call needs no other call.
                    version_kept = version
                    on_kept()
            except EventStoreError as error:
                tell("foldlog.keeper.behind", problem=str(error))
            self._is_ending.wait(wait_s)
