"""Crash at every point of each scenario, or at every Nth point, and check the store.

    statements    kill a process before each SQL statement
    writes        kill a process before each call that changes a file
    power         also drop the bytes that were not synced
    full          fill the disk before each write
    sync          let each sync fail

After a crash the store must be sound and have every acknowledged event, and the next process must be
able to repeat the scenario with the same result. If the disk is full or a sync fails, the call must
raise ``StoreUnavailable`` or ``StoreRefused``, or succeed.

This process has no threads, so that it can fork. The forked child kills itself.
"""

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

_ENDED = 0
_PASSED = 3
"""Exit codes of a child: its scenario ended before it reached the point, or it reached the point and
was not killed there.
"""


def before_statement(n):
    """Let this process kill itself before its ``n``-th SQL statement from now, counted over all
    connections.
    """
    connect = sqlite3.connect
    numbers = count(1)

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


def images_after_kill(base, crashed):
    """Yield the folder as the killed process left it."""
    yield crashed


def images_after_power_cut(base, crashed):
    """Yield copies of the folder as a disk may have it: without any unsynced bytes, or with the
    unsynced bytes of the database file alone.
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
    """A killed process does not reach the end of its scenario."""
    return False


def disk_was_full():
    return fault("calls").value >= fault("no_space_from").value


def sync_failed():
    return fault("syncs").value >= fault("fail_sync_at").value


class Mode(NamedTuple):
    """A way to crash. ``arm(n)`` makes the process crash at its ``n``-th point; ``images`` yields the
    folders that may remain.
    """

    arm: Callable[[int], None]
    images: Callable[[Path, Path], Iterator[Path]]
    needs_faults: bool = True
    """Whether the process must run with ``faults.c``, which counts the calls that change a file."""
    has_passed: Callable[[], bool] = never
    """Returns, at the end of a scenario, whether it has reached the point and gone on."""


MODES = {
    "statements": Mode(before_statement, images_after_kill, needs_faults=False),
    "writes": Mode(before_write, images_after_kill),
    "power": Mode(before_write_with_power_cut, images_after_power_cut),
    "full": Mode(full_from_write, images_after_kill, has_passed=disk_was_full),
    "sync": Mode(failing_sync, images_after_kill, has_passed=sync_failed),
}


def crash_everywhere(scenario, mode, folder, every=1):
    """Crash a scenario at each point, or at every Nth point, until a run reaches the end. Return the
    number of crashes and the findings after them.
    """
    base = folder / "base"
    base.mkdir()
    scenario.prepare(base / "store.db")
    complete = _copy_folder(base, folder / "complete")
    if not _succeeds(scenario, complete / "store.db", Ledger(complete / "all.ledger")):
        return 0, ["the scenario fails without a crash"]
    end = contents(complete / "store.db")
    findings = []
    crashes = 0
    for n in count(1, every):
        crashed = _copy_folder(base, folder / "crashed")

        def run(n=n, crashed=crashed):
            mode.arm(n)
            try:
                scenario.run(crashed / "store.db", Ledger(crashed / "first.ledger"))
            except StoreUnavailable:
                return _PASSED
            except AssertionError:  # what a scenario asserts holds where nothing failed
                if not mode.has_passed():
                    raise
            return _PASSED if mode.has_passed() else _ENDED

        status = in_child(run)
        if status == _ENDED:
            break
        if status not in (-signal.SIGKILL, _PASSED):
            findings.append(f"point {n}: the child ended with {status}")
            break
        crashes += 1
        for image in mode.images(base, crashed):
            findings += [
                f"point {n}, {image.name}: {finding}"
                for finding in _inspect_image(scenario, image, end)
            ]
    return crashes, findings


def _succeeds(scenario, path, ledger):
    def run():
        scenario.run(path, ledger)
        return _ENDED

    return in_child(run) == _ENDED


def in_child(work):
    """Run ``work`` in a forked child. Return its exit code; if a signal ended it, the number of the
    signal, negative. Exceptions are printed on stderr.
    """
    child = os.fork()
    if child == 0:
        try:
            os._exit(work())
        except BaseException:  # noqa: BLE001 - the exit code tells the parent
            traceback.print_exc()
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _copy_folder(base, target):
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(base, target))


def _inspect_image(scenario, image, end):
    path = image / "store.db"
    try:
        findings = []
        if path.exists():
            findings += inspect(path, Ledger.read(image), erasing=bool(scenario.erases))
        if not _succeeds(scenario, path, Ledger(image / "second.ledger")):
            return [*findings, "the next process cannot repeat the scenario"]
        findings += inspect(path, Ledger.read(image))
        for synced in image.glob("*.synced"):
            synced.unlink()  # faults.c wrote them, not the store
        if contents(path) != end:
            findings.append("the repeated scenario has another result")
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


def run(mode, names, every=1):
    """Crash these scenarios at each point, or at every Nth point. Print a line for each scenario, and
    return the findings.
    """
    all_findings = []
    for name in names or SCENARIOS:
        with tempfile.TemporaryDirectory(prefix="foldlog-crash-", dir=in_memory()) as folder:
            crashes, findings = crash_everywhere(SCENARIOS[name], MODES[mode], Path(folder), every)
        print(f"{name}: {crashes} crashes ({mode}), {len(findings)} findings", flush=True)
        all_findings += [f"{name}, {finding}" for finding in findings]
    return all_findings
