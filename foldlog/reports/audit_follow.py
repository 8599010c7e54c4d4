"""Keep the audit database up to date as a read model, run by the eventsourcing library's runner.

Events and the position of the last one are written in one transaction, so each event is added exactly once, also after
a crash. ``AuditTables.describe`` writes the rows about conversations (version, revisions, whether it was erased); its
caller calls it from time to time.
"""

from __future__ import annotations

import threading
from pathlib import Path

from eventsourcing.persistence import IntegrityError, Tracking

from foldlog.eventstore import Erased, Recorded, Redaction, Store, confirm
from foldlog.eventstore.integrations.batches import BatchFollower, BatchView, RecordedBatch
from foldlog.reports.audit_database import (
    Damaged,
    add_events,
    damaged_among,
    describe,
    erased_in,
    events_among,
    name_of,
    purge,
    replace_redacted,
)
from foldlog.reports.audit_file import WHOLE_STORE, followed_up_to, open_database


class AuditTables(BatchView):
    """The tables of an audit database, with the position up to which they are complete."""

    def __init__(self, store: Store, path: Path) -> None:
        self.store = store
        self.writing = threading.Lock()
        self.touched: set[str] = set()
        self.damaged: list[Damaged] = []
        self.events = 0
        self._redacted = False
        self._to_confirm = True
        """Whether something was removed from the store before the present position, and that is not confirmed."""
        self._to_look_for_erased = True
        """Whether a conversation may be erased whose entry was not met, since it is damaged."""
        self._name = name_of(path)
        self._database = open_database(store, path)

    def add(self, batch: RecordedBatch, tracking: Tracking) -> None:
        """Add the events of a batch and its position in one transaction."""
        sound = events_among(batch.events)
        lost = damaged_among(batch.events)
        with self.writing:
            with self._database.conn:
                add_events(self._database, sound, lost)
                self._redacted |= replace_redacted(self.store, self._database, sound)
                self._track(tracking)
            self.events += len(sound)
            self.damaged += lost
            self._to_look_for_erased |= bool(lost)
            removals = (r for r in batch.events if isinstance(r, Recorded) and isinstance(r.event, Erased | Redaction))
            self._to_confirm |= any(removals)
            self.touched.update(r.conversation for r in batch.events if r.conversation)

    def describe(self) -> int:
        """Write the rows of conversations that got events or were erased. Return the number of these conversations."""
        with self.writing:
            touched, self.touched = self.touched, set()
            if self._to_look_for_erased:
                known = self._database.execute("SELECT id FROM conversations WHERE erased_at NOTNULL")
                erased, is_whole = erased_in(self.store)
                touched |= erased - {name for (name,) in known}
                self._to_look_for_erased = not is_whole
            gone, lost = describe(self.store, self._database, touched)
            self.damaged += [one for one in lost if one not in self.damaged]
            self.touched.update(one.conversation for one in lost)
            self._to_confirm |= bool(lost) or self._to_look_for_erased  # what was erased of them may still be here
            if gone or self._redacted:
                purge(self._database)
                self._redacted = False
            return len(touched)

    def insert_tracking(self, tracking: Tracking) -> None:
        with self.writing, self._database.conn:
            self._track(tracking)

    def max_tracking_id(self, application_name: str) -> int | None:
        with self.writing:
            return followed_up_to(self._database.conn) or None

    def refresh(self) -> None:
        """Describe the conversations that have new events, and confirm what was removed."""
        with self.writing:
            due, position = self._to_confirm, followed_up_to(self._database.conn)
            self._to_confirm = False
        self.describe()
        if due and not self._to_confirm and self.store.database.recorder.writable:
            confirm(self.store, self._name, position)

    def close(self) -> None:
        """Close the database."""
        with self.writing:
            self._database.close()

    def _track(self, tracking: Tracking) -> None:
        position = tracking.notification_id
        done = self._database.execute(
            "INSERT INTO followed (scope, position) VALUES (?, ?) ON CONFLICT (scope) DO UPDATE"
            " SET position = excluded.position WHERE excluded.position > position",
            [WHOLE_STORE, position],
        )
        if done.rowcount != 1:
            raise IntegrityError(
                f"the audit database has position {position} already: another follower writes to it; stop one of them"
            )


class AuditFollower(BatchFollower[AuditTables]):
    """Keeps an audit database up to date in a thread of its own. A context manager.

    Raises ``NoAuditDatabase`` and ``AuditDatabaseMismatch`` when it is made. Cost: the events that are new.
    """

    def __init__(self, store: Store, path: Path) -> None:
        super().__init__(store.database, AuditTables(store, path))
