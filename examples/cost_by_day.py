"""Count tokens and cost by day and model, kept up to date while agents work.

    python examples/cost_by_day.py sqlite:///history.db costs.db
    python examples/cost_by_day.py sqlite:///history.db costs.db --follow

This is a projection of one's own. The eventsourcing library's runner follows the store and gives each event to
``CountCosts``, which adds it to a table in ``costs.db``. The table and the position of the event are written in one
transaction, so every event is counted exactly once, also after a crash. Run it again: it goes on after the last event.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import Any

from eventsourcing.persistence import Tracking
from eventsourcing.projection import Projection, ProjectionRunner
from eventsourcing.sqlite import SQLiteTrackingRecorder

from foldlog import CondensationAction, Event
from foldlog.eventstore.integrations.eventsourcing import ConversationEvent, Conversations

PATIENCE_S = 60.0


class Costs(SQLiteTrackingRecorder):
    """The table ``costs``: tokens and cost of each day and model."""

    def construct_create_table_statements(self) -> list[str]:
        return [
            *super().construct_create_table_statements(),
            "CREATE TABLE IF NOT EXISTS costs (day TEXT, model TEXT, calls INTEGER, tokens INTEGER, cost REAL,"
            " PRIMARY KEY (day, model))",
        ]

    def add(self, day: str, model: str, tokens: int, cost: float, tracking: Tracking) -> None:
        with self.datastore.transaction(commit=True) as cursor:
            self._insert_tracking(cursor, tracking)
            cursor.execute(
                "INSERT INTO costs VALUES (?, ?, 1, ?, ?) ON CONFLICT (day, model) DO UPDATE"
                " SET calls = calls + 1, tokens = tokens + excluded.tokens, cost = cost + excluded.cost",
                (day, model, tokens, cost),
            )

    def rows(self) -> list[tuple[Any, ...]]:
        with self.datastore.transaction(commit=False) as cursor:
            cursor.execute("SELECT day, model, calls, tokens, cost FROM costs ORDER BY day, model")
            return [tuple(row) for row in cursor.fetchall()]


class CountCosts(Projection[Costs]):
    """Adds each model call to the table; other events only move the position."""

    name = "costs"

    def process_event(self, domain_event: ConversationEvent, tracking: Tracking) -> None:
        call = model_call(domain_event.event)
        if call is None:
            self.view.insert_tracking(tracking)
        else:
            assert domain_event.recorded_at is not None  # it was read from the store
            self.view.add(domain_event.recorded_at.date().isoformat(), *call, tracking)


def model_call(event: Event) -> tuple[str, int, float] | None:
    """Return model, tokens and cost of the model call that an event stands for, or None.

    A condenser's call is in its condensation's metadata. A runtime writes its own calls into ``meta``, for example
    ``Message(…, meta={"model": "openai/gpt-4o", "total_tokens": 812, "cost": 0.004})``.
    """
    said = event.metadata if isinstance(event, CondensationAction) else event.meta or {}
    if not said.get("model"):
        return None
    tokens = said.get("total_tokens") or 0
    return str(said["model"]), int(tokens), float(said.get("cost") or 0.0)


def runner(url: str, table: str) -> ProjectionRunner[Conversations, Costs]:
    """Return a runner that follows the store at ``url`` and keeps the table in the SQLite file ``table``."""
    return ProjectionRunner(
        application_class=Conversations,
        projection_class=CountCosts,
        view_class=Costs,
        env={
            "PERSISTENCE_MODULE": "foldlog.eventstore.integrations.eventsourcing",
            "FOLDLOG_URL": url,
            "COSTS_PERSISTENCE_MODULE": "eventsourcing.sqlite",
            "COSTS_SQLITE_DBNAME": table,
        },
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", help="the store, such as sqlite:///history.db")
    parser.add_argument("table", help="the SQLite file that keeps the table")
    parser.add_argument("--follow", action="store_true", help="go on until Ctrl-C")
    asked = parser.parse_args()
    with runner(asked.url, asked.table) as following:
        following.wait(following.app.recorder.max_notification_id(), timeout=PATIENCE_S)
        if asked.follow:
            with contextlib.suppress(KeyboardInterrupt):
                following.run_forever()
        for day, model, calls, tokens, cost in following.view.rows():
            print(f"{day}  {model:30}  {calls:6,} calls  {tokens:12,} tokens  {cost:10.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
