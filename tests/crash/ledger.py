"""The acknowledged writes of a store, and whether the store still has them.

Each event has the name and the size of its batch, so the store alone shows an incomplete batch. The
acknowledgements are in a file beside the store, one line for each call that returned. A line that
was written survives its writer.
"""

import json
import os
from itertools import groupby
from typing import NamedTuple

from foldlog.eventstore import (
    ANY_VERSION,
    CondensationAction,
    Entry,
    Erased,
    Message,
    open_store,
)
from foldlog.eventstore.maintenance.verify import verify
from foldlog.projections import Views, audit


class Acknowledged(NamedTuple):
    conversation: str
    first_id: int
    size: int
    batch: str


class Ledger:
    """The acknowledgements of one writer, in a file that outlives it."""

    def __init__(self, path):
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def enter(self, conversation, first_id, size, batch):
        os.write(self._file, json.dumps([conversation, first_id, size, batch]).encode() + b"\n")

    def append(self, store, conversation, batch, size):
        """Append a batch under a key, so that it is there once if it is repeated after a crash."""
        recorded = store.append(
            conversation,
            batch_of(batch, size),
            expected_version=ANY_VERSION,
            idempotency_key=batch,
        )
        self.enter(conversation, recorded[0].id, size, batch)

    @staticmethod
    def read(folder):
        """Return the acknowledgements of all ledgers in a folder. An incomplete line acknowledges
        nothing.
        """
        lines = [
            line
            for path in sorted(folder.glob("*.ledger"))
            for line in path.read_bytes().split(b"\n")[:-1]
        ]
        return [Acknowledged(*json.loads(line)) for line in lines]


def open_at(path):
    """Open a store with the Views that ``inspect`` audits."""
    store = open_store(f"sqlite:///{path}")
    store.register(Views(store))
    return store


def batch_of(name, size, *, text="x" * 200, forgets=1):
    """Return a batch of events. The events at places 3, 23, 43, … are condensations that forget the
    first ``forgets`` events of the conversation. At 13, 33, 53, … they are declined condensations.
    """
    return [_event(name, place, size, text, forgets) for place in range(size)]


def _event(name, place, size, text, forgets):
    meta = {"batch": name, "place": place, "size": size}
    if place % 20 == 3:
        return CondensationAction(
            forgotten_events_start_id=0,
            forgotten_events_end_id=forgets - 1,
            metadata={"reason": text},
            meta=meta,
        )
    if place % 20 == 13:
        return CondensationAction(
            forgotten_event_ids=(), metadata={"outcome": "declined", "reason": text}, meta=meta
        )
    return Message(source="user", content=text, meta=meta)


def contents(path):
    """Return all conversations and the batches of their events: equal for two stores in which the
    same was written at different times.
    """
    with open_store(f"sqlite:///{path}") as store:
        return [
            (
                row.id,
                ["erased"] if row.erased_at else [event.meta for event in store.events(row.id)],
            )
            for row in store.conversations(limit=10_000)
        ]


def inspect(path, acknowledged, *, erasing=False):
    """Return what is wrong with the store, and which acknowledged events it lost. Reads everything
    several times.

    ``erasing``: an erasure may be incomplete.
    """
    findings = []
    with open_store(f"sqlite:///{path}") as store:
        for verdict in verify(store):
            findings += [
                f"{verdict.conversation or 'the file'}: {finding}"
                for finding in verdict.findings
                if not (erasing and "its erasure is not complete" in str(finding))
            ]
        batches = {}
        versions = {
            row.id: row.version for row in store.conversations(limit=100_000) if not row.erased_at
        }
        for conversation in versions:
            findings += _inspect_conversation(store, conversation, batches)
        findings += _inspect_order(store, versions)
    for entry in acknowledged:
        stored = batches.get(f"{entry.conversation}/{entry.batch}")
        if stored is None:
            findings.append(f"lost: {entry} was acknowledged, and is missing")
        elif stored != (entry.conversation, entry.first_id, entry.size):
            findings.append(f"lost: {entry} was acknowledged, and is elsewhere: {stored}")
    return findings


def _inspect_conversation(store, conversation, batches):
    for name, run in groupby(store.events(conversation), key=lambda event: event.meta["batch"]):
        batch = list(run)
        first = batch[0]
        key = f"{conversation}/{name}"
        if [event.meta["place"] for event in batch] != list(range(first.meta["size"])):
            yield (
                f"half a batch: {len(batch)} of {first.meta['size']} events of {name} in"
                f" {conversation}"
            )
        if key in batches:
            yield f"twice: batch {name} in {conversation}, at {batches[key][1]} and {first.id}"
        batches[key] = (conversation, first.id, len(batch))
    report = audit(store, conversation)
    for finding in report.findings:
        yield f"revision {finding.version} of {conversation}: {finding.problem}"
    if report.missing:
        yield f"{report.missing} revisions of {conversation} were not written with their events"


def _inspect_order(store, versions):
    erased = []
    last = 0
    next_ids = dict.fromkeys(versions, 0)
    for position, conversation, _, event in store.follow():
        if position <= last:
            yield f"out of order: position {position} after {last}"
        last = position
        if isinstance(event, Entry):  # of the ledger, not an event of the conversation
            if isinstance(event, Erased):
                erased.append(conversation)
            continue
        expected_id = next_ids.get(conversation)
        if event.id != expected_id:
            yield f"out of order: event {event.id} of {conversation}, expected {expected_id}"
        next_ids[conversation] = event.id + 1
    tombstones = [row.id for row in store.iter_conversations() if row.erased_at is not None]
    if sorted(erased) != sorted(tombstones):
        yield f"a follower reads the erasures of {sorted(erased)}, not of {sorted(tombstones)}"
    if next_ids != versions:
        yield f"a follower reads the versions {next_ids}, not {versions}"
