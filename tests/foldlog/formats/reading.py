"""Reads what a program wrote: records as events, and files as the histories that an import makes of
them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from foldlog.eventstore import Event, Store
from foldlog.eventstore.sources.reading import blocks_of
from foldlog.runtimes import parse
from tests.foldlog.imports.imports import Failed, Import, new_store, source_of
from tests.foldlog.records import GOLDEN, read_lines

GOLDEN_READS = GOLDEN / "reads"


class ReadHistory(NamedTuple):
    """A history that was imported, and used once. ``added`` of its records were new."""

    name: str
    format: str
    records: list[Any]
    events: list[Event]
    findings: list[str]
    added: int


def recorded(format: str, name: str) -> list[Any]:
    """Return the records of a golden row: see ``test_reads.py``."""
    rows = read_lines(GOLDEN_READS / f"{format}.jsonl")
    (records,) = [row["records"] for row in rows if row["name"] == name]
    return list(records)


def histories_at(
    path: str | os.PathLike[str], format: str = "auto", store: Store | None = None
) -> list[ReadHistory]:
    """Return the histories at a path, in their order, in a new store or in this one. Raises the
    error of an import that failed, and ``NotAHistory`` if there is no history.
    """
    if store is None:
        with new_store() as store:
            return histories_at(path, format, store)
    imports = Import(store, [Path(path)], format)
    histories = list[ReadHistory]()
    for outcome in imports:
        if isinstance(outcome, Failed):
            raise outcome.error
        findings = [*map(str, outcome.findings)]
        records = records_in(store, outcome.conversation)
        events = list(store.events(outcome.conversation))
        history = ReadHistory(
            outcome.conversation, outcome.format, records, events, findings, outcome.added
        )
        histories.append(history)
    if not histories:
        raise imports.nothing()
    return histories


def records_in(store: Store, conversation: str) -> list[Any]:
    """Return the records of the source of a conversation."""
    blocks = blocks_of(store.database, source_of(store, conversation))
    return [parse(record) for block in blocks for record in block.records()]
