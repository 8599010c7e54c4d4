"""What becomes of the source of an import: it is kept as it came, and its conversation is made at the first use.

importing.py   append, fork or refuse what is found at a place; reading.py: read it in blocks
projecting.py  make the events of the records, once; read a conversation without storing them
recording.py   records that a runtime hands over one by one
redacting.py   redact records of a source
stored.py      the records of a conversation as they came, for an export

What figures show of a source is in ``foldlog._reports.pending``. How sources are stored is in
``foldlog.eventstore.sources``; which formats there are, in ``foldlog._formats``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foldlog.eventstore import EventsNotMade, Store


def makes_events(store: Store) -> Store:
    """Return a store that makes the events of an imported conversation when a transaction first asks for them."""

    def on_pending(pending: EventsNotMade) -> None:
        from foldlog._archive.projecting import make_events  # most processes need no format

        make_events(store, pending.conversation)

    store.database.recorder.on_pending = on_pending
    return store
