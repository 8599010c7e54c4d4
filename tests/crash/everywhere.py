"""Crash at every point of each scenario, and look at what is left.

    statements    a process is killed before every SQL statement
    writes        a process is killed before every call that changes a file
    power         the same, and what was not synced by then is lost
    full          the disk is full from a write on
    sync          a sync fails

Of many points a sample can be taken: the first, the third, the fifth, and so on.

What is left must be whole, hold everything that was acknowledged, and let the next process do it
all again to the same end. A full disk or a sync that failed must come as ``StoreUnavailable`` or
``StoreUnusable``, or not matter. This process has no threads, so that it can fork; a child is
killed by its own hand, at the point it counted to.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import NamedTuple

from foldlog.eventstore import StoreUnavailable
from tests.crash.bytes_left import bytes_left
from tests.crash.faults import fault
from tests.crash.ledger import Ledger, contents, inspect
from tests.crash.scenarios import SCENARIOS
from tests.in_memory import in_memory

_ENDED, _CAME = 0, 3
"""How a child says that its scenario ended before it came to the point, or came to it and was not
killed there.
"""


def before_statement(n):
    """From now on, this process kills itself before its ``n``-th SQL statement, counted over all
    connections.
    """
    connect, numbers = sqlite3.connect, count(1)

    def kill_at_last(statement):
        if next(numbers) == n:
            os.kill(os.getpid(), signal.SIGKILL)

    def traced(*arguments, **options):
        connection = connect(*arguments, **options)
        connection.set_trace_callback(kill_at_last)
        return connection

    sqlite3.connect = traced


def before_write(n):
    fault("kill_at").value = fault("calls").value + n


def before_write_with_power_cut(n):
    fault("keep_synced").value = 1
    before_write(n)


def full_from_write(n):
    fault("no_space_from").value = fault("calls").value + n


def failing_sync(n):
    fault("fail_sync_at").value = fault("syncs").value + n


def as_it_is(base, crashed):
    """A process was killed: what it wrote, it wrote."""
    yield crashed


def as_the_disk_has_it(base, crashed):
    """The power was cut: of what was not synced, nothing may be there, or what was written to the
    database alone.
    """
    for name, files in (("nothing unsynced", ()), ("unsynced pages", ("store.db",))):
        image = crashed.with_name(name)
        shutil.rmtree(image, ignore_errors=True)
        shutil.copytree(base, image)
        for ledger in crashed.glob("*.ledger"):
            shutil.copy(ledger, image)
        for file in ("store.db", "store.db-wal"):
            for source in (crashed / f"{file}.synced", crashed / file):
                if source.exists() and (source.suffix == ".synced" or file in files):
                    shutil.copy(source, image / file)
        yield image


def never():
    """Whoever is killed does not come to the end."""
    return False


def space_was_missed():
    return fault("calls").value >= fault("no_space_from").value


def sync_failed():
    return fault("syncs").value >= fault("fail_sync_at").value


class Way(NamedTuple):
    """A way to crash. ``arm(n)`` makes the process crash at its ``n``-th point; ``left`` gives what
    may be left.
    """

    arm: Callable[[int], None]
    left: Callable[[Path, Path], Iterator[Path]]
    needs_faults: bool
    came: Callable[[], bool] = never
    """Asked at the end of a scenario: whether it came to the point all the same, and went on."""


WAYS = {
    "statements": Way(before_statement, as_it_is, False),
    "writes": Way(before_write, as_it_is, True),
    "power": Way(before_write_with_power_cut, as_the_disk_has_it, True),
    "full": Way(full_from_write, as_it_is, True, came=space_was_missed),
    "sync": Way(failing_sync, as_it_is, True, came=sync_failed),
}


def crash_everywhere(scenario, way, folder, every=1):
    """Crash a scenario at its first point, at its second, …, until one run reaches the end; or at
    every so many.

    Returns the number of crashes and what was wrong after them.
    """
    base = folder / "base"
    base.mkdir()
    scenario.prepare(base / "store.db")
    whole = _copied(base, folder / "whole")
    if not _succeeds(scenario, whole / "store.db", Ledger(whole / "all.ledger")):
        return 0, ["the scenario fails without a crash"]
    end = contents(whole / "store.db")
    findings = []
    crashes = 0
    for n in count(1, every):
        crashed = _copied(base, folder / "crashed")

        def run(n=n, crashed=crashed):
            way.arm(n)
            try:
                scenario.run(crashed / "store.db", Ledger(crashed / "first.ledger"))
            except StoreUnavailable:
                return _CAME
            except AssertionError:  # what a scenario asserts holds where nothing failed
                if not way.came():
                    raise
            return _CAME if way.came() else _ENDED

        ended = in_child(run)
        if ended == _ENDED:
            break
        if ended not in (-signal.SIGKILL, _CAME):
            findings.append(f"point {n}: the child ended with {ended}")
            break
        crashes += 1
        for image in way.left(base, crashed):
            findings += [
                f"point {n}, {image.name}: {finding}"
                for finding in _consequences(scenario, image, end)
            ]
    return crashes, findings


def _succeeds(scenario, path, ledger):
    def run():
        scenario.run(path, ledger)
        return _ENDED

    return in_child(run) == _ENDED


def in_child(work):
    """Run ``work`` in a forked child; returns its exit code, or the signal that ended it, negative.
    What it raises goes to stderr.
    """
    child = os.fork()
    if child == 0:
        try:
            os._exit(work())
        except BaseException:  # noqa: BLE001 - the parent is told
            traceback.print_exc()
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _copied(base, target):
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(base, target))


def _consequences(scenario, image, end):
    path = image / "store.db"
    try:
        findings = []
        if path.exists():
            findings += inspect(path, Ledger.read(image), erasing=bool(scenario.erases))
        if not _succeeds(scenario, path, Ledger(image / "second.ledger")):
            return [*findings, "the next process cannot do it again"]
        findings += inspect(path, Ledger.read(image))
        for synced in image.glob("*.synced"):
            synced.unlink()  # not of the store: what the disk was made to lose
        if contents(path) != end:
            findings.append("done again, it ends elsewhere")
        with closing(sqlite3.connect(path)) as connection:
            (staged,) = connection.execute(
                "SELECT count(*) FROM conversations WHERE NOT visible"
            ).fetchone()
        if scenario.erases:
            findings += [
                f"bytes are left: {place}" for place in bytes_left(image, [scenario.erases])
            ]
        if staged:
            findings.append(f"{staged} conversations are left in staging")
    except Exception as error:  # noqa: BLE001 - whatever a broken store raises is a finding
        return [f"{type(error).__name__}: {error}"]
    return findings


def run(way, names, every=1):
    """Crash these scenarios everywhere, or at every so many points; prints a line for each, returns
    what was wrong.
    """
    all_findings = []
    for name in names or SCENARIOS:
        with tempfile.TemporaryDirectory(prefix="foldlog-crash-", dir=in_memory()) as folder:
            crashes, findings = crash_everywhere(SCENARIOS[name], WAYS[way], Path(folder), every)
        print(f"{name}: {crashes} crashes ({way}), {len(findings)} findings", flush=True)
        all_findings += [f"{name}, {finding}" for finding in findings]
    return all_findings
