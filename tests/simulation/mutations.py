"""Break the product in one way after another, and see that the simulation finds each: ``--mutations
[NAME …]``.

A mutation names a function, and what is to stand in its place. It is applied in
this process, wherever that function has been imported to.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from foldlog.eventstore import IdempotencyConflict, Observation, Redaction
from foldlog.eventstore.log.finding import Generation
from tests.simulation.run import worlds

__all__ = ["MUTATIONS", "Mutation", "applied", "home_of", "run"]

_STEPS = 100_000


class Mutation(NamedTuple):
    """``where`` is ``MODULE:QUALNAME`` below ``foldlog``; ``instead`` makes what stands there from
    what stood there.
    """

    what: str
    where: str
    instead: Callable[[Any], Any]
    recorder: str = "memory"


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _conflict_is_a_retry(original: Any) -> Any:
    def earlier(self: Any, reading: Any, idempotency_key: str) -> Any:
        try:
            return original(self, reading, idempotency_key)
        except IdempotencyConflict:
            return ()

    return earlier


def _shorter(original: Any) -> Any:
    def patched(before: Any, change: Any) -> Any:
        return original(
            before, {**change, "add": change["add"][:-1]} if change.get("add") else change
        )

    return patched


def _request_stays(original: Any) -> Any:
    def fold_in(self: Any, event: Any) -> None:
        requested = self._requested
        original(self, event)
        self._requested = self._requested or requested

    return fold_in


def _observation_keeps(original: Any) -> Any:
    def without_content(event: Any, redacted: Any) -> Any:
        made = original(event, redacted)
        if isinstance(event, Observation):
            from msgspec.structs import replace

            return replace(made, content=event.content)
        return made

    return without_content


def _any_generation(original: Any) -> Any:
    def find_named(database: Any, reader: Any, conversation: str, generation: Any) -> Any:
        anyone = (
            None if generation is None else Generation(replaces_erased=generation.replaces_erased)
        )
        return original(database, reader, conversation, anyone)

    return find_named


def _earlier_fork(original: Any) -> Any:
    def fork(self: Any, conversation: str, at: int, new_id: str, **options: Any) -> Any:
        return original(self, conversation, max(1, at - 1), new_id, **options)

    return fork


def _without_the_last(original: Any) -> Any:
    return lambda self, start, stop, wanted: original(self, start, stop - 1, wanted)


def _follow_without_redactions(original: Any) -> Any:
    return lambda placed: (each for each in original(placed) if not _is_redaction(each))


def _is_redaction(each: Any) -> bool:
    return isinstance(getattr(each, "event", None), Redaction)


def _whatever_came_between(_: Any) -> Any:
    def rows_since(self: Any, earlier: Any) -> Any:
        return self.rows[max(earlier.version - self.before.version, 0) :]

    return rows_since


MUTATIONS = {
    "append": Mutation(
        "any version is expected", "eventstore.conversation:check_version", lambda _: _nothing
    ),
    "dedupe": Mutation(
        "ids of a source are not looked up",
        "eventstore.log.origins:select_new",
        lambda was: lambda _, batch, **options: was(None, batch, **options),
    ),
    "idempotency key": Mutation(
        "another payload is a retry",
        "eventstore.log.appending:Appending._earlier",
        _conflict_is_a_retry,
    ),
    "documents": Mutation(
        "a difference loses an element", "eventstore.documents.differences:patched", _shorter
    ),
    "lists": Mutation(
        "the last one is not listed",
        "eventstore.documents.listing:_list_some",
        lambda was: (
            lambda transaction, database, touched: was(transaction, database, list(touched)[:-1])
        ),
    ),
    "condense": Mutation(
        "a condensation answers no request", "projections.fold:_Folding._fold_in", _request_stays
    ),
    "units": Mutation(
        "nothing is left behind",
        "projections.left_behind:left_behind_after",
        lambda _: lambda shown, left_behind, start, gone: left_behind,
    ),
    "cut points": Mutation(
        "a View may be cut anywhere",
        "projections.units:cut_positions",
        lambda _: lambda count, found: tuple(range(count + 1)),
    ),
    "open calls": Mutation(
        "no call is open", "projections.units:open_positions", lambda _: lambda events, found: []
    ),
    "retract": Mutation(
        "it goes back one event too far",
        "projections.retractions:target",
        lambda was: lambda retraction: max(0, was(retraction) - 1),
    ),
    "redact": Mutation(
        "an observation keeps its text",
        "eventstore.log.redacted:without_content",
        _observation_keeps,
    ),
    "redact with summaries": Mutation(
        "no summary quotes",
        "eventstore.maintenance.redact:quotes_in",
        lambda _: lambda reading, redacted: [],
    ),
    "redact in forks": Mutation(
        "forks are not asked",
        "eventstore.maintenance.redact:forks_that_share",
        lambda _: lambda *given: iter(()),
    ),
    "erase": Mutation(
        "rows are not deleted", "eventstore.log.importing:delete_rows", lambda _: _nothing, "sqlite"
    ),
    "id used again": Mutation(
        "a writer of the erased one writes", "eventstore.log.finding:find_named", _any_generation
    ),
    "fork": Mutation("it begins an event too early", "eventstore.store:Store.fork", _earlier_fork),
    "detach": Mutation(
        "what it takes over gets no position",
        "eventstore.recorders.base:Transaction.place_past",
        lambda _: lambda self, key, events: self._write("leave_parent", key),
    ),
    "import": Mutation(
        "every event is the one that is there",
        "eventstore.log.importing:new_events",
        lambda _: lambda database, found, history: islice(history, found.version, None),
    ),
    "copy": Mutation(
        "redactions stay behind", "eventstore.maintenance.copy:_redact_too", lambda _: _nothing
    ),
    "restore": Mutation(
        "positions are given twice",
        "eventstore.recorders.sqlite.maintenance:begin_epoch_where_copied",
        lambda _: _nothing,
        "sqlite",
    ),
    "rekey": Mutation(
        "idempotency keys are left out",
        "eventstore.maintenance.rekey_steps:_Change._keys",
        lambda keys: lambda self, start: keys(self, "\U0010ffff"),
    ),
    "vacuum": Mutation(
        "the file stays as it is",
        "eventstore.recorders.sqlite.recorder:SQLiteRecorder.compact",
        lambda _: lambda self, patience_s: True,
        "sqlite",
    ),
    "search": Mutation(
        "the last event is left out", "_search:_Conversation._in_events", _without_the_last
    ),
    "audit file": Mutation(
        "redacted events stay", "_reports.audit_database:AuditTables._replace", lambda _: _nothing
    ),
    "serve": Mutation("a page is not begun again", "_web.pages:Pages._begun", lru_cache),
    "together": Mutation(
        "the last one is the first",
        "_aio:append_all",
        lambda was: lambda store, some: was(store, some[::-1]),
    ),
    "follow": Mutation(
        "receipts are left out", "eventstore.log.following:recorded", _follow_without_redactions
    ),
    "views in memory": Mutation(
        "another process's events are not missed",
        "eventstore.log.database:LastConversation.rows_since",
        _whatever_came_between,
    ),
}


def home_of(mutation: Mutation) -> tuple[Any, str]:
    """Return the object that holds what a mutation names, and its name there."""
    module, _, name = mutation.where.partition(":")
    home: Any = importlib.import_module(f"foldlog.{module}")
    *classes, name = name.split(".")
    for each in classes:
        home = getattr(home, each)
    getattr(home, name)
    return home, name


@contextmanager
def applied(mutation: Mutation) -> Iterator[None]:
    """Apply a mutation, in every module that has imported what it names."""
    home, name = home_of(mutation)
    original = getattr(home, name)
    mutated = mutation.instead(original)
    places = [home]
    if not isinstance(home, type):
        loaded = [
            module for each, module in list(sys.modules.items()) if each.startswith("foldlog")
        ]
        places = [module for module in loaded if getattr(module, name, None) is original]
    for place in places:
        setattr(place, name, mutated)
    try:
        yield
    finally:
        for place in places:
            setattr(place, name, original)


def run(names: list[str], seed: int) -> int:
    """Find these mutations, or all; print how many steps each took. Return 1 where one was not
    found.
    """
    missed = []
    for name in names or MUTATIONS:
        mutation = MUTATIONS[name]
        began = time.monotonic()
        with applied(mutation):
            taken, failures = worlds(seed, _STEPS, float("inf"), mutation.recorder, on_all=False)
        by = failures[0].label if failures else "NOT FOUND"
        print(
            f"{name}: {mutation.what}: {by}, {taken:,} steps, {time.monotonic() - began:.0f} s",
            flush=True,
        )
        if not failures:
            missed.append(name)
    print(f"{len(names or MUTATIONS) - len(missed)} of {len(names or MUTATIONS)} found")
    return 1 if missed else 0
