"""``foldlog demo``: condense the shipped history while it grows, and show the saved tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from foldlog._app.cli import terminal
from foldlog._app.cli.hints import DEMO_DB
from foldlog._app.cli.options import name_store, option
from foldlog._app.cli.printing.demo import IMPORTED, LIVE, show_demo
from foldlog._app.cli.stores import open_or_create
from foldlog._history.histories import Histories
from foldlog._history.history import History
from foldlog.condensers import Condensation
from foldlog.eventstore import ANY_VERSION, Action, Annotation, Event, Store, UnknownEvent
from foldlog.eventstore.events import is_structural

SAMPLE = Path(__file__).parents[2] / "sample" / "tidewatch.jsonl"
"""The shipped history."""
_CONDENSER = {"type": "digest", "max_size": 80}


@option(
    "--db",
    "STORE",
    "The store to create. The store stays, so you can try commands on it.",
    default=DEMO_DB,
    callback=name_store,
)
def run(db: str) -> None:
    """Show what foldlog does: replay 286 events of an agent, and condense the growing View.

    Example: foldlog demo --db try.db
    """
    with open_or_create(db) as store:
        histories = Histories(store, condenser=_CONDENSER)
        before = histories[IMPORTED].version()
        histories.import_(SAMPLE, conversation=IMPORTED)
        with terminal.working("working", "events", store.version(IMPORTED)) as update:
            for _ in _work_again(store, histories[LIVE]):
                update(advance=1)
        show_demo(db, histories, added=not before)


def _work_again(store: Store, history: History) -> Iterator[Event]:
    """Append the imported events again, as a runtime would append them. Like a runtime, call
    ``history.step()`` before every call of the model.

    Yields the events. Events that an interrupted demo appended are not appended again.
    """
    ids: dict[int | None, int] = {}
    response: str | None = None
    imported = list(store.events(IMPORTED))
    if _is_done(history, imported[-1]):
        return
    for event in imported:
        yield event
        if is_structural(event) or isinstance(event, UnknownEvent):
            continue
        if isinstance(event, Action) and event.response_id != response:
            response = event.response_id
            while isinstance(history.step(), Condensation):
                pass
        again = replace(event, id=-1, cause=ids.get(event.cause), origin=None)
        key = f"demo-{event.id}"
        [recorded] = store.append(
            history.id, again, expected_version=ANY_VERSION, idempotency_key=key
        )
        ids[event.id] = recorded.id


def _is_done(history: History, end: Event) -> bool:
    """Return whether an earlier demo appended all events, up to the annotation at the end."""
    version = history.version()
    if not version:
        return False
    (last,) = history.events(version - 1)
    return isinstance(last, Annotation) and last.data == getattr(end, "data", None)
