"""Many processes with many threads write to one file while a long history is imported and another one
is erased. No append may wait for long, fail, be lost, or return a version that another one got.

A third of the appends go to a conversation of each thread, a third to a shared conversation at any
version, and a third race for the next version of another conversation. A follower reads the events.
"""

import itertools
import multiprocessing
import os
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from foldlog.eventstore import ANY_VERSION, Message, VersionConflict, open_store
from foldlog.eventstore.maintenance.erase import erase
from tests.at_once import at_once
from tests.crash.under_load import Follower, places


@dataclass
class Answers:
    """The results of the threads of one process."""

    won: list[tuple[str, int, int]] = field(default_factory=list)
    """(conversation, id, position) of every append that returned"""
    conflicts: int = 0
    waits: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def _event(text="x" * 500):
    return Message(source="user", content=text)


def write(path, name, threads, seconds, pipe):
    """Run a process of writers. Their threads begin when all processes are ready."""
    answers = Answers()
    with open_store(f"sqlite:///{path}") as store:
        pipe.send("ready")
        pipe.recv()
        until = time.monotonic() + seconds
        at_once(lambda n: _write(store, f"{name}-{n}", until, answers), range(threads))
    pipe.send(answers)


def _write(store, own, until, answers):
    try:
        for conversation in itertools.cycle((own, "anybody", "race")):
            expected = ANY_VERSION if conversation == "anybody" else store.version(conversation)
            began = time.monotonic()
            if began > until:
                return
            try:
                (recorded,) = store.append(conversation, _event(), expected_version=expected)
            except VersionConflict:
                answers.conflicts += 1
            else:
                answers.won.append((conversation, recorded.id, recorded.position))
                if expected is not ANY_VERSION and recorded.id != expected:
                    answers.errors.append(
                        f"{own} expected version {expected} of {conversation}, got {recorded.id}"
                    )
            answers.waits.append(time.monotonic() - began)
    except Exception as error:  # noqa: BLE001 - any error is a finding
        answers.errors.append(f"{own}: {type(error).__name__}: {error}")


def time_work(path, work, pipe):
    """Run a process that works once, when all processes are ready, and sends how long it took."""
    with open_store(f"sqlite:///{path}") as store:
        pipe.send("ready")
        pipe.recv()
        began = time.monotonic()
        work(store)
        pipe.send(time.monotonic() - began)


def import_history(store, events):
    store.ingest("imported", (_event() for _ in range(events)))


def erase_history(store):
    erase(store, "to erase", reason="asked for")


def run(folder, *, processes, threads, seconds, imported, erased, longest_wait_s):
    """Run the writers, an import of ``imported`` events and an erasure of ``erased`` ones on a new
    store, all at the same time. Return the findings.
    """
    path = folder / "store.db"
    with open_store(f"sqlite:///{path}") as store:
        store.ingest("to erase", (_event() for _ in range(erased)))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["foldlog.eventstore"])

    def start(target, *arguments):
        """Start a process, and return the parent's end of its pipe."""
        ours, theirs = context.Pipe()
        context.Process(target=target, args=(path, *arguments, theirs), daemon=True).start()
        theirs.close()  # so that ``recv`` of the parent fails if the process dies
        return ours

    writers = [start(write, f"own-{n}", threads, seconds) for n in range(processes)]
    importer = start(time_work, partial(import_history, events=imported))
    eraser = start(time_work, erase_history)
    pipes = [*writers, importer, eraser]
    for pipe in pipes:
        pipe.recv()
    sync_seconds = _sync_seconds(folder)
    follower = Follower(path)
    for pipe in pipes:
        pipe.send("go")
    answers = [writer.recv() for writer in writers]
    import_seconds = importer.recv()
    erasure_seconds = eraser.recv()
    follower.end()
    beside = (
        f"{imported:,} events were imported in {import_seconds:.1f} s and {erased:,} erased in"
        f" {erasure_seconds:.1f} s"
    )
    return _findings(
        path, answers, follower, imported, beside, seconds, longest_wait_s, sync_seconds
    )


def _findings(path, answers, follower, imported, beside, seconds, longest_wait_s, sync_seconds):
    findings = [error for process in answers for error in process.errors]
    won = [event for process in answers for event in process.won]
    waits = sorted(wait for process in answers for wait in process.waits)
    with open_store(f"sqlite:///{path}") as store:
        stored = [event for event in places(store.follow()) if event[1] != "to erase"]
    if stored != [event for event in follower.events if event[1] != "to erase"]:
        findings.append(
            f"the follower read {len(follower.events)} events, and not in the order of the"
            f" {len(stored)} stored ones"
        )
    if any(event[0] >= later[0] for event, later in itertools.pairwise(stored)):
        findings.append("positions do not rise strictly")
    lost = {(position, conversation, event_id) for conversation, event_id, position in won}
    lost -= set(stored)
    findings += [f"lost: {event}" for event in sorted(lost)[:10]]
    winners = Counter((conversation, event_id) for conversation, event_id, _ in won)
    twice = [event for event, count in winners.items() if count > 1]
    findings += [f"two winners: {event}" for event in twice[:10]]
    if len(won) != len(stored) - imported:
        findings.append(f"{len(won)} appends returned, {len(stored) - imported} are stored")
    if waits[-1] > longest_wait_s:
        findings.append(f"an append waited {waits[-1]:.2f} s, longer than {longest_wait_s} s")
    print(
        f"{len(answers)} processes: {len(waits) / seconds:,.0f} appends/s ({len(won):,} done, "
        f"{sum(process.conflicts for process in answers):,} lost a race) while {beside}; "
        f"waits: median {statistics.median(waits) * 1e3:.1f}, "
        f"p99 {waits[int(len(waits) * 0.99)] * 1e3:.0f}, longest {waits[-1] * 1e3:.0f} ms "
        f"(a sync takes {sync_seconds * 1e3:.2f} ms); {len(findings)} findings"
    )
    return findings


def _sync_seconds(folder):
    """Return the median time that the disk takes to sync a page."""
    probe = os.open(folder / "probe", os.O_CREAT | os.O_WRONLY)
    durations = []
    for _ in range(21):
        os.write(probe, b"x" * 4096)
        began = time.monotonic()
        os.fdatasync(probe)
        durations.append(time.monotonic() - began)
    os.close(probe)
    return statistics.median(durations)
