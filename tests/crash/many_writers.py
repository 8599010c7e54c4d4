"""Many processes with many threads each write to one file while a long history is imported and
another one erased: does anybody wait, fail, lose, or win twice?

A third of the appends go to conversations of their own, a third to one that all append to whatever
its version is, and a third race for the next version of another one. A follower reads along.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field

from foldlog.eventstore import ANY_VERSION, Message, VersionConflict, open_store
from foldlog.eventstore.maintenance.erase import erase
from tests.at_once import at_once
from tests.crash.under_load import Follower


@dataclass
class Answers:
    """What the threads of one process got: ids won in each kind of conversation, waits,
    errors.
    """

    won: list[tuple[str, int, int]] = field(default_factory=list)
    """(conversation, id, position) of every append that returned"""
    lost: int = 0
    waits: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def _event(text="x" * 500):
    return Message(source="user", content=text)


def write(path, name, threads, seconds, answer):
    """A process of writers. Its threads begin together with those of the others, once everybody is
    there.
    """
    answers = Answers()
    with open_store(f"sqlite:///{path}") as store:
        answer.send("ready")
        answer.recv()
        until = time.monotonic() + seconds
        at_once(lambda n: _write(store, f"{name}-{n}", until, answers), range(threads))
    answer.send(answers)


def _write(store, own, until, answers):
    try:
        for conversation in _in_turn(own, "anybody", "race"):
            expected = ANY_VERSION if conversation == "anybody" else store.version(conversation)
            begun = time.monotonic()
            if begun > until:
                return
            try:
                (recorded,) = store.append(conversation, _event(), expected_version=expected)
            except VersionConflict:
                answers.lost += 1
            else:
                answers.won.append((conversation, recorded.id, recorded.position))
                if expected is not ANY_VERSION and recorded.id != expected:
                    answers.errors.append(
                        f"{own} expected version {expected} of {conversation}, and got"
                        f" {recorded.id}"
                    )
            answers.waits.append(time.monotonic() - begun)
    except Exception as error:  # noqa: BLE001 - it is what the test is about
        answers.errors.append(f"{own}: {type(error).__name__}: {error}")


def _in_turn(*conversations):
    while True:
        yield from conversations


def import_history(path, events, answer):
    with open_store(f"sqlite:///{path}") as store:
        answer.send("ready")
        answer.recv()
        begun = time.monotonic()
        store.ingest("imported", (_event() for _ in range(events)))
        answer.send(time.monotonic() - begun)


def erase_history(path, events, answer):
    with open_store(f"sqlite:///{path}") as store:
        answer.send("ready")
        answer.recv()
        begun = time.monotonic()
        erase(store, "to erase", reason="asked for")
        answer.send(time.monotonic() - begun)


def run(folder, *, processes, threads, seconds, imported, erased, longest_wait_s):
    path = folder / "store.db"
    with open_store(f"sqlite:///{path}") as store:
        store.ingest("to erase", (_event() for _ in range(erased)))
    spawned = multiprocessing.get_context("forkserver")
    spawned.set_forkserver_preload(["foldlog.eventstore"])
    targets = [(write, (path, f"own-{n}", threads, seconds)) for n in range(processes)]
    targets += [(import_history, (path, imported)), (erase_history, (path, erased))]
    ends = []
    for target, arguments in targets:
        ours, theirs = spawned.Pipe()
        spawned.Process(target=target, args=(*arguments, theirs), daemon=True).start()
        ends.append(ours)
    for end in ends:
        end.recv()
    sync_before = _sync_seconds(folder)
    follower = Follower(path)
    for end in ends:
        end.send("go")
    answers = [end.recv() for end in ends[:-2]]
    import_seconds, erasure_seconds = ends[-2].recv(), ends[-1].recv()
    follower.end()
    others = (
        f"{imported:,} events were imported in {import_seconds:.1f} s and {erased:,} erased in"
        f" {erasure_seconds:.1f} s"
    )
    return _judged(path, answers, follower, imported, others, seconds, longest_wait_s, sync_before)


def _judged(path, answers, follower, imported, others, seconds, longest_wait_s, sync_seconds):
    findings = [error for each in answers for error in each.errors]
    won = [event for each in answers for event in each.won]
    waits = sorted(wait for each in answers for wait in each.waits)
    with open_store(f"sqlite:///{path}") as store:
        there = [
            (r.position, r.conversation, r.id)
            for r in store.follow()
            if r.conversation != "to erase"
        ]
    if there != [event for event in follower.seen if event[1] != "to erase"]:
        findings.append(
            f"the follower saw {len(follower.seen)} events, in an order of its own; there are"
            f" {len(there)}"
        )
    if any(a[0] >= b[0] for a, b in itertools.pairwise(there)):
        findings.append("positions do not rise strictly")
    at = {(conversation, event_id): position for position, conversation, event_id in there}
    findings += [f"lost: {c} {i} at {p}" for c, i, p in won if at.get((c, i)) != p][:10]
    twice = [event for event, count in Counter((c, i) for c, i, _ in won).items() if count > 1]
    findings += [f"two winners: {event}" for event in twice[:10]]
    if len(won) != len(there) - imported:
        findings.append(f"{len(won)} appends returned, {len(there) - imported} are there")
    if waits[-1] > longest_wait_s:
        findings.append(f"an append waited {waits[-1]:.2f} s; {longest_wait_s} s is the most")
    print(
        f"{len(answers)} processes: {len(waits) / seconds:,.0f} appends/s ({len(won):,} done, "
        f"{sum(each.lost for each in answers):,} lost a race) while {others}; "
        f"waits: median {statistics.median(waits) * 1e3:.1f}, "
        f"p99 {waits[int(len(waits) * 0.99)] * 1e3:.0f}, longest {waits[-1] * 1e3:.0f} ms "
        f"(a sync takes {sync_seconds * 1e3:.2f} ms); {len(findings)} findings"
    )
    return findings


def _sync_seconds(folder):
    """How long the disk takes to sync a page, in the middle of several."""
    probe = os.open(folder / "probe", os.O_CREAT | os.O_WRONLY)
    durations = []
    for _ in range(21):
        os.write(probe, b"x" * 4096)
        begun = time.monotonic()
        os.fdatasync(probe)
        durations.append(time.monotonic() - begun)
    os.close(probe)
    return statistics.median(durations)
