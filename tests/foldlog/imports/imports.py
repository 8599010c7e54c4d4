"""Import files into a store, and read what the store then has."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from foldlog import Histories
from foldlog._imports import makes_events
from foldlog._imports.importing import Failed, Import, Imported
from foldlog._reports.records.stored import raw
from foldlog.eventstore import Event, KeyRing, Store, open_store
from foldlog.eventstore.maintenance.copy import copy_store
from foldlog.eventstore.maintenance.redact import RedactionReceipt
from foldlog.eventstore.sources.tables import Source, Sources
from tests.between import call_before
from tests.figures import FiguresOfStore, Where

KEYS = KeyRing(["11" * 32])
SIZES = {
    "block": "foldlog.formats.files.source_reading.SIZE",
    "transaction": "foldlog._imports.writing._TRANSACTION_BYTES",
    "short": "foldlog._imports.importing._SHORT_BYTES",
    "together": "foldlog._imports.importing._TOGETHER_BYTES",
    "events": "foldlog._imports.making_events._EVENTS",
    "recorded_block": "foldlog._imports.recording.SIZE",
    "chunk": "foldlog.eventstore.log.importing.CHUNK",
    "copied_blocks": "foldlog.eventstore.sources.moving._TOGETHER",
}


def set_sizes(patch: pytest.MonkeyPatch, **sizes: int) -> None:
    """Let the work on a source be done in parts of these sizes: bytes of records in a ``block``, in
    a ``transaction``, in a ``short`` source and in short sources that are imported ``together``,
    ``events`` that are made at once, …
    """
    for name, size in sizes.items():
        patch.setattr(SIZES[name], size)
        if name == "block":
            patch.setattr("foldlog._imports.writing.SIZE", size)


def open_one() -> Store:
    """Open a store; a fixture puts one on another database in its place."""
    return open_store("memory:")


def new_store() -> Store:
    return makes_events(open_one())


def open_with_imports(url: object = "memory:", **settings: Any) -> Store:
    """Open a store that makes the events of imports, beside the store of a test."""
    return makes_events(open_store(url, **settings))


def imported(store: Store, path: Path, format: str = "auto", **how: Any) -> Imported:
    """Import one source."""
    (outcome,) = Import(store, [path], format, **how)
    assert isinstance(outcome, Imported), outcome
    return outcome


def imported_lines(store: Store, path: Path, lines: Iterable[bytes]) -> Imported:
    """Write these lines to a file, and import it."""
    path.write_bytes(b"".join(lines))
    return imported(store, path)


def refused(store: Store, path: Path, format: str = "auto", **how: Any) -> Exception:
    """Import one source that is refused, and return why."""
    (outcome,) = Import(store, [path], format, **how)
    assert isinstance(outcome, Failed), outcome
    return outcome.error


def source_of(store: Store, conversation: str) -> Source:
    source = store.database.recorder.query(
        lambda reader: Sources(store.database, reader).of(conversation)
    )
    assert source is not None
    return source


def bytes_of(store: Store, conversation: str) -> bytes:
    """Return the bytes of a source, as it would be exported."""
    return b"".join(raw(store, conversation))


def figures_of(store: Store, conversation: str) -> dict[str, Any]:
    """Return what lists and statistics say of a conversation, with or without made events."""
    row = store.conversation(conversation, as_stored=True)
    stored = FiguresOfStore(store)
    ((_, figures),) = stored.of([row])
    stats = stored.totals(Where(only=[conversation]))
    return {
        "calls": sorted(map(repr, figures.calls)),
        "context": [*figures.texts.context],
        "errors": figures.columns.errors,
        "first_error": figures.first_error,
        "state": figures.state,
        "longest_wait_s": figures.columns.longest_wait_s,
        "tools": {name: (tool.calls, tool.errors) for name, tool in stats.tools.items()},
        "days": sorted(stats.days),
        "last": figures.overview.last_event_at,
        "title": figures.overview.title,
        "condensations": figures.columns.condensations,
    }


def events_of(store: Store, conversation: str) -> list[Event]:
    return list(store.events(conversation))


def copy_all(source: Store, target: Store, *names: str, **how: Any) -> dict[str, str | None]:
    """Copy all conversations or some, and return the problem of each."""
    copied = copy_store(source, target, *names, **how)
    return {moved.conversation: moved.problem for moved in copied}


@contextmanager
def meanwhile(store: Store, number: int, act: Callable[[], object], *calls: str) -> Iterator[None]:
    """Let another process act, during a block, right before the transaction with this number. The
    first transaction of the store has the number 0.
    """
    recorder = store.database.recorder
    store.database.recorder = call_before(recorder, number, act, *calls)
    try:
        yield
    finally:
        store.database.recorder = recorder


def redact_event(store: Store, conversation: str, event_id: int) -> RedactionReceipt:
    """Redact an event with its record, for a reason that does not matter."""
    return Histories(store)[conversation].redact(event_id, reason="asked for", by="me")
