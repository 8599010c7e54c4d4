"""Several appends in as few transactions as possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from eventstore.log.appending import Appending
from eventstore.log.database import Database, translated
from eventstore.log.results import Recorded
from eventstore.values.outcome import Outcome


def can_append_all(database: Database) -> bool:
    """Return whether ``append_all`` is possible: not on a server, where each writer has a connection of its own."""
    return not database.recorder.on_server


def append_all(database: Database, works: Sequence[Appending]) -> list[Outcome[tuple[Recorded, ...]]]:
    """Make several appends that ``store.prepare_append`` prepared, in their order, in as few transactions as possible.
    Return the outcome of each: what ``Store.append`` would have returned or raised. One that fails does not change the
    others.
    """
    with translated():
        outcomes = database.recorder.transact_all([(work, work.any_thread) for work in works])
    return [Outcome.of(partial(_recorded, work, outcome)) for work, outcome in zip(works, outcomes, strict=True)]


def _recorded(work: Appending, outcome: Outcome[Callable[[], tuple[Recorded, ...]]]) -> tuple[Recorded, ...]:
    with translated():
        return work.recorded(outcome.unwrap())
