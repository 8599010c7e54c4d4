"""What writers were told, and whether a store keeps to it.

Every event says which batch it belongs to and how large that is, so a store alone shows half
batches. What was acknowledged is in a file beside it, one line for each call that returned: a line
that was written survives its writer.
"""

from __future__ import annotations

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

__all__ = ["Acknowledged", "Ledger", "batch_of", "contents", "inspect", "open_at"]


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
        """Append a batch, which a process that does it again after a crash finds by its key."""
        recorded = store.append(
            conversation,
            batch_of(batch, size),
            expected_version=ANY_VERSION,
            idempotency_key=batch,
        )
        self.enter(conversation, recorded[0].id, size, batch)

    @staticmethod
    def read(folder):
        """Of all writers whose ledger is in the folder. A line that its writer did not finish
        acknowledges nothing.
        """
        whole = [
            line
            for path in sorted(folder.glob("*.ledger"))
            for line in path.read_bytes().split(b"\n")[:-1]
        ]
        return [Acknowledged(*json.loads(line)) for line in whole]


def open_at(path):
    """The store, with the Views that ``inspect`` audits."""
    store = open_store(f"sqlite:///{path}")
    store.register(Views(store))
    return store


def batch_of(name, size, *, text="x" * 200, forgets=1):
    """Events that know their batch. Those at places 3, 13, 23, … are condensations: one forgets the
    first ``forgets`` events of its conversation, the next declines.
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
    """Every conversation and what it says, for comparing two stores that were written at different
    times.
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
    """What is wrong with the store; nothing, if it keeps all promises. Cost: everything in it,
    several times.

    ``erasing``: an erasure may be unfinished.
    """
    findings = []
    with open_store(f"sqlite:///{path}") as store:
        # every event, its place, its checksum, its head, and the file
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
    for ack in acknowledged:
        place = batches.get(f"{ack.conversation}/{ack.batch}")
        if place != (ack.conversation, ack.first_id, ack.size):
            findings.append(
                f"lost: {ack} was acknowledged, and is"
                f" {'elsewhere: ' + str(place) if place else 'gone'}"
            )
    return findings


def _inspect_conversation(store, conversation, batches):
    for name, run in groupby(store.events(conversation), key=lambda event: event.meta["batch"]):
        batch = list(run)
        first = batch[0]
        if [event.meta["place"] for event in batch] != list(range(first.meta["size"])):
            yield (
                f"half a batch: {len(batch)} of {first.meta['size']} events of {name} in"
                f" {conversation}"
            )
        if f"{conversation}/{name}" in batches:
            yield (
                f"twice: batch {name} in {conversation}, at {batches[f'{conversation}/{name}'][1]}"
                f" and {first.id}"
            )
        batches[f"{conversation}/{name}"] = (conversation, first.id, len(batch))
    audited = audit(store, conversation)
    yield from (
        f"revision {finding.version} of {conversation}: {finding.problem}"
        for finding in audited.findings
    )
    if audited.missing:
        yield (
            f"{audited.missing} revisions of {conversation} are missing, which were to be written"
            " with their events"
        )


def _inspect_order(store, versions):
    erased = []
    last, followed = 0, dict.fromkeys(versions, 0)
    for position, conversation, _, event in store.follow():
        if position <= last:
            yield f"out of order: position {position} behind {last}"
        last = position
        if isinstance(event, Entry):  # of the ledger, not an event of the conversation
            erased += [conversation] if isinstance(event, Erased) else []
            continue
        due = followed.get(conversation)
        if event.id != due:
            yield (
                f"out of order: event {event.id} of {conversation} is followed where {due} was due"
            )
        followed[conversation] = event.id + 1
    tombstones = [row.id for row in store.iter_conversations() if row.erased_at is not None]
    if sorted(erased) != sorted(tombstones):
        yield f"the erasures of {sorted(erased)} are followed, and {sorted(tombstones)} are erased"
    if followed != versions:
        yield f"not followed: there are {versions}, and {followed} were followed"
