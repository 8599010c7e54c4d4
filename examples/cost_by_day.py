"""Count tokens and cost by day and model, kept up to date while agents work.

    python examples/cost_by_day.py sqlite:///history.db costs.db
    python examples/cost_by_day.py sqlite:///history.db costs.db --follow

This program is an example of a projection. The runner of the eventsourcing library follows the
store and passes each event to ``CountCosts``, which writes the model calls of the event to a table
in ``costs.db``. One transaction writes the table and the position of the event, so every event
counts once, even after a crash. If you run the program again, it continues after the last event.

If some calls have no recorded tokens or cost, the line says how many calls the sum includes. For
imports of Codex, Copilot and OpenHands, whose usage is a running total, and for costs computed from
a table of prices, use ``foldlog stats``.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any, NamedTuple

from eventsourcing.persistence import Tracking
from eventsourcing.projection import Projection, ProjectionRunner
from eventsourcing.sqlite import SQLiteTrackingRecorder

from foldlog import CondensationAction, Event
from foldlog.condensers import model_of, on_a_model, reports_of
from foldlog.eventstore.integrations.eventsourcing import ConversationEvent, Conversations

PATIENCE_S = 60.0


class Call(NamedTuple):
    """A call of a model. Replies with the same name are one call, because an import may have a
    reply in several events and histories.
    """

    name: str
    model: str
    tokens: int | None
    cost: float | None


class Costs(SQLiteTrackingRecorder):
    """The table ``calls``: the day, the tokens and the cost of each call."""

    def construct_create_table_statements(self) -> list[str]:
        return [
            *super().construct_create_table_statements(),
            (
                "CREATE TABLE IF NOT EXISTS calls (name TEXT PRIMARY KEY, day TEXT, model TEXT,"
                " tokens INTEGER, cost REAL)"
            ),
        ]

    def add(self, day: str, calls: Sequence[Call], tracking: Tracking) -> None:
        with self.datastore.transaction(commit=True) as cursor:
            self._insert_tracking(cursor, tracking)
            for call in calls:  # the last event of a reply has the usage of the whole reply
                values = (call.name, day, call.model, call.tokens, call.cost)
                cursor.execute("INSERT OR REPLACE INTO calls VALUES (?, ?, ?, ?, ?)", values)

    def rows(self) -> list[tuple[Any, ...]]:
        with self.datastore.transaction(commit=False) as cursor:
            cursor.execute(
                "SELECT day, model, count(*), sum(tokens), count(tokens), sum(cost), count(cost)"
                " FROM calls GROUP BY day, model ORDER BY day, model"
            )
            return [tuple(row) for row in cursor.fetchall()]


class CountCosts(Projection[Costs]):
    """Writes the calls of each event to the table; other events only move the position."""

    name = "costs"

    def process_event(self, domain_event: ConversationEvent, tracking: Tracking) -> None:
        event = domain_event.event
        happened = event.timestamp or domain_event.recorded_at
        assert happened is not None  # it was read from the store
        place = f"{domain_event.originator_id} {event.id}"
        calls = [
            Call(
                str(fields.get("reply") or f"{place} {n}"),
                model,
                tokens_of(fields),
                fields.get("cost"),
            )
            for n, (model, fields) in enumerate(calls_in(event))
        ]
        self.view.add(happened.astimezone(UTC).date().isoformat(), calls, tracking)


def calls_in(event: Event) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the model and the figures of each call in an event. The figures of a condenser's calls
    are in its reports, and the figures of a reply are in ``meta``.
    """
    if reports := on_a_model(reports_of(event)):
        return [(model_of(report), report["metrics"]) for report in reports]
    fields = event.metadata if isinstance(event, CondensationAction) else event.meta
    is_call = fields.get("model") or fields.get("usage") or fields.get("cost") is not None
    return [(str(fields.get("model", "(not named)")), fields)] if is_call else []


def tokens_of(fields: Mapping[str, Any]) -> int | None:
    """Return the tokens of a call's prompt and reply. Return None if both are unknown."""
    usage = fields.get("usage") or fields
    counts = [
        usage[name]
        for name in ("prompt_tokens", "completion_tokens")
        if usage.get(name) is not None
    ]
    return sum(counts) if counts else usage.get("total_tokens")


def runner(url: str, table: str) -> ProjectionRunner[Conversations, Costs]:
    """Return a runner that follows the store at ``url`` and writes to the SQLite file ``table``."""
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
    parser.add_argument("table", help="the SQLite file with the table")
    parser.add_argument("--follow", action="store_true", help="continue until Ctrl-C")
    arguments = parser.parse_args()
    with runner(arguments.url, arguments.table) as following:
        following.wait(following.app.recorder.max_notification_id(), timeout=PATIENCE_S)
        if arguments.follow:
            with contextlib.suppress(KeyboardInterrupt):
                following.run_forever()
        for day, model, calls, tokens, tokens_known, cost, costs_known in following.view.rows():
            used = sum_in_words(tokens, ",", tokens_known, calls)
            spent = sum_in_words(cost, ".4f", costs_known, calls)
            print(f"{day}  {model:30}  {calls:6,} calls  tokens {used:>12}  cost {spent:>10}")
    return 0


def sum_in_words(value: float | None, form: str, known: int, calls: int) -> str:
    """Return a sum, and the number of calls that it includes if the others are unknown."""
    if value is None:
        return "unknown"
    text = format(value, form)
    return text if known == calls else f"{text} (of {known:,} calls)"


if __name__ == "__main__":
    sys.exit(main())
