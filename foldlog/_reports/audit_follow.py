"""Keep the audit database up to date as a read model, run by the eventsourcing library's runner.

Events and the position of the last one are written in one transaction, so each event is added exactly once, also after
a crash. ``AuditTables.describe`` writes the rows about conversations (version, revisions, whether it was erased); its
caller calls it from time to time.
"""

from __future__ import annotations

from pathlib import Path

from eventsourcing.persistence import Tracking

from foldlog._reports.audit_database import AuditTables
from foldlog.eventstore import Store
from foldlog.eventstore.integrations.batches import BatchFollower, BatchView, RecordedBatch


class AuditView(BatchView):
    """The tables of an audit database as the library needs them."""

    def __init__(self, store: Store, path: Path) -> None:
        self.tables = AuditTables(store, path)
        self._after = self.tables.position

    @property
    def events(self) -> int:  # type: ignore[override]
        """The number of events that were added."""
        return self.tables.events

    def add(self, batch: RecordedBatch, tracking: Tracking) -> None:
        """Apply a batch. Where another process has changed the file since the last one, what is new is read again."""
        if not self.tables.apply(batch.events, tracking.notification_id, after=self._after):
            self.tables.catch_up()
        self._after = self.tables.position

    def insert_tracking(self, tracking: Tracking) -> None:
        self.add(RecordedBatch(()), tracking)

    def max_tracking_id(self, application_name: str) -> int | None:
        return self.tables.position or None

    def refresh(self) -> None:
        """Describe the conversations that have new events, and confirm what was removed."""
        self.tables.describe()
        self.tables.confirm()

    def close(self) -> None:
        """Close the database."""
        self.tables.close()


class AuditFollower(BatchFollower[AuditView]):
    """Keeps an audit database up to date in a thread of its own. A context manager.

    Raises ``NoAuditDatabase`` and ``AuditDatabaseMismatch`` when it is made. Cost: the events that are new.
    """

    def __init__(self, store: Store, path: Path) -> None:
        super().__init__(store.database, AuditView(store, path))
