"""Import sources, and store their records unchanged. The events of an imported conversation are
made when the conversation is first used.

importing.py         import the sources in files and folders
comparing.py         decide whether a source is new, has new records, or is a fork
writing.py           write the blocks and figures of a source
making_events.py     make the events of a source
titles.py            note that a user chose the title of an imported conversation
events_in_memory.py  make events in memory if the store is read-only
recording.py         store the records that a runtime appends
session_forks.py     fork a conversation for a session in which another program goes on
compacting.py        note a compaction that the program has not written to its file yet
redacting.py         redact records of a source

``foldlog._reports.figures.of_sources`` counts the figures of a source.
``foldlog.eventstore.sources`` stores sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foldlog._imports.events_in_memory import EventsInMemory
    from foldlog.eventstore import EventsNotMade, Store
    from foldlog.eventstore.recorders.base import Recorder


def makes_events(store: Store) -> Store:
    """Let ``store`` make the events of an imported conversation when a transaction first needs
    them, and restore an archived conversation when a transaction first needs its events. If the
    store is read-only, the events are made in memory. Return ``store``.
    """
    in_memory: EventsInMemory | None = None

    def on_missing(missing: EventsNotMade) -> Recorder | None:
        nonlocal in_memory
        if missing.archived:
            from foldlog.eventstore.maintenance.archive_objects import restore

            restore(store.database, missing.conversation)
            return None
        if store.database.recorder.writable:
            # Imported here, because most processes need no format.
            from foldlog._imports.making_events import make_events

            make_events(store, missing.conversation)
            return None
        from foldlog._imports.events_in_memory import EventsInMemory

        in_memory = in_memory or EventsInMemory(store)
        return in_memory.of(missing.conversation)

    store.database.recorder.on_missing = on_missing
    return store
