"""Processes do not disturb one another: forks, a killed holder of the queue, Ctrl-C."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import ExitStack, closing, contextmanager

from foldlog.eventstore import Message, open_store
from tests.crash.ledger import Ledger, batch_of, inspect, open_at

PRELUDE = """
import os, signal, sys, threading, time
from pathlib import Path
from foldlog.eventstore import *
from tests.reading import reading
from tests.crash.ledger import Ledger, batch_of, open_at

folder = Path(sys.argv[1])
path = folder / "store.db"
ledger = Ledger(folder / f"{os.getpid()}.ledger")

def append(store, conversation, name, size=1):
    recorded = store.append(conversation, batch_of(name, size), expected_version=ANY_VERSION)
    ledger.enter(conversation, recorded[0].id, size, name)

def say(what):
    os.write(1, str(what).encode() + bytes([10]))  # in one write, so that two processes never share a line
"""


@contextmanager
def process(script, folder):
    """Run a script in another process, which is killed at the end of the block."""
    command = [sys.executable, "-c", PRELUDE + script, str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def read_line(child):
    assert child.stdout is not None
    return child.stdout.readline().strip()


def send_line(child, line="go on"):
    assert child.stdin is not None
    child.stdin.write(f"{line}\n")
    child.stdin.flush()


def read_rest(child):
    """Wait until a process succeeds, and return the rest of its output."""
    output, _ = child.communicate(timeout=60)
    assert child.returncode == 0, output
    return output


# ---------------------------------------------------------------------------------------------- forks


def test_forked_child_and_parent_lose_nothing(tmp_path):
    """The parent has the file open twice, and closes it while its child goes on. Then a third process
    opens and closes it.
    """
    script = """
store = open_at(path)
append(store, "c1", "before")
other = open_at(path)
append(other, "c2", "before")
list(store.events("c1"))
store.database.data_version()
child = os.fork()
if child == 0:
    ledger = Ledger(folder / "child.ledger")
    append(store, "c1", "child-0")
    say("child")
    sys.stdin.readline()
    for n in range(1, 4):
        append(store, "c1", f"child-{n}", 5)
    say("child has appended")
    sys.stdin.readline()
    append(store, "c1", "child-last")
    os._exit(0)
sys.stdin = None
append(store, "c1", "parent")
store.close()
other.close()
say("closed")
os.waitpid(child, 0)
"""
    with process(script, tmp_path) as family:
        assert {read_line(family), read_line(family)} == {"child", "closed"}
        send_line(family)
        assert read_line(family) == "child has appended"
        with open_at(tmp_path / "store.db") as store:
            assert store.version("c1") == 18
        send_line(family)
        read_rest(family)
    acknowledged = Ledger.read(tmp_path)
    assert len(acknowledged) == 8
    assert inspect(tmp_path / "store.db", acknowledged) == []


def test_fork_while_threads_write_and_read(tmp_path):
    script = """
store = open_at(path)
stop = threading.Event()
def work(n):
    i = 0
    while not stop.is_set():
        append(store, f"own-{n}", f"parent-{n}-{i}")
        list(store.events(f"own-{n}"))
        i += 1
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for thread in threads: thread.start()
children = []
for n in range(10):
    time.sleep(0.02)
    child = os.fork()
    if child == 0:
        ledger = Ledger(folder / f"child-{n}.ledger")
        for i in range(5):
            append(store, "shared", f"child-{n}-{i}", 3)
        os._exit(0)
    children.append(child)
failed = [status for child in children if (status := os.waitpid(child, 0)[1])]
stop.set()
for thread in threads: thread.join()
store.close()
say(f"failed: {failed}")
"""
    with process(script, tmp_path) as family:
        assert read_rest(family).strip() == "failed: []"
    assert inspect(tmp_path / "store.db", Ledger.read(tmp_path)) == []


def test_child_forked_during_a_read_is_refused(tmp_path):
    """SQLite in the child would rely on locks that the child does not have."""
    script = """
import foldlog.eventstore.recorders.sqlite.process_forks as forks
forks._PATIENCE_S = 0.1
store = open_at(path)
append(store, "c1", "before")
def attempt(work):
    try: say(f"done {work()}")
    except EventStoreError as error: say(error)
with reading(store, "c1"):
    child = os.fork()
    if child == 0:
        attempt(lambda: store.version("c1"))
        attempt(lambda: open_store(f"sqlite:///{path}"))
        attempt(lambda: open_store(f"sqlite:///{path}2").version("c1"))
        os._exit(0)
os.waitpid(child, 0)
append(store, "c1", "after")
attempt(lambda: store.version("c1"))
"""
    with process(script, tmp_path) as family:
        refused, refused_open, other_file, after = read_rest(family).splitlines()
    assert "is closed: it was in use in another thread when this process was forked" in refused
    assert (
        "was in use in another thread when this process was forked, and cannot be used safely here;"
        " fork" in refused_open
    )
    assert (other_file, after) == ("done 0", "done 2")


# ------------------------------------------------------------------------------------------ the queue

HOLDS_THE_QUEUE = """
from foldlog.eventstore.recorders.sqlite import SQLiteRecorder
recorder = SQLiteRecorder(str(path))
def work(transaction):
    say("in the queue")
    time.sleep(600)
{before}
recorder.transact(work)
"""


def test_killed_writer_holds_up_nobody(tmp_path):
    with process(HOLDS_THE_QUEUE.format(before=""), tmp_path) as holder:
        assert read_line(holder) == "in the queue"
        with process(
            "store = open_at(path)\nsay('open')\nappend(store, 'c1', 'waits')\nsay('appended')\n",
            tmp_path,
        ) as waiter:
            assert read_line(waiter) == "open"
            time.sleep(0.2)
            holder.kill()
            assert read_line(waiter) == "appended", (
                "it would be an error if it waited until its patience ended"
            )
    assert inspect(tmp_path / "store.db", Ledger.read(tmp_path)) == []


FORKS_A_CHILD = """
child = os.fork()
if child == 0:
    say(os.getpid())
    time.sleep(600)
    os._exit(0)
"""


def test_child_does_not_keep_its_parents_turn(tmp_path):
    with process(HOLDS_THE_QUEUE.format(before=FORKS_A_CHILD), tmp_path) as holder:
        child = int(
            next(line for line in (read_line(holder), read_line(holder)) if line != "in the queue")
        )
        try:
            holder.kill()
            holder.wait()
            with open_at(tmp_path / "store.db") as store:  # it would fail when its patience ends
                store.append("c1", Message(source="user", content="hi"), expected_version=0)
        finally:
            os.kill(child, signal.SIGKILL)


# --------------------------------------------------------------------------------------------- Ctrl-C


def test_ctrl_c_leaves_an_import_whole_or_absent(tmp_path):
    """Ctrl-C comes at many moments of the import, also around the publication."""
    script = """
import foldlog.eventstore.log.importing
foldlog.eventstore.log.importing.CHUNK = 20
store = open_at(path)
for line in sys.stdin:
    name = line.strip()
    imported = False
    try:
        say("begun")
        store.ingest(name, batch_of(name, 400))
        ledger.enter(name, 0, 400, name)
        imported = True
        append(store, "live", f"after-{name}", 2)
        time.sleep(60)  # Ctrl-C comes once for each history, and here at the latest
    except KeyboardInterrupt:
        append(store, "live", f"after-{name}-again", 2)
    say("imported" if imported else "interrupted")
"""
    outcomes = []
    with process(script, tmp_path) as importer:
        for n in range(20):
            send_line(importer, f"history-{n}")
            assert read_line(importer) == "begun"
            time.sleep(0.004 * n)
            importer.send_signal(signal.SIGINT)
            outcomes.append(read_line(importer))
        assert importer.stdin is not None
        importer.stdin.close()
        importer.wait(60)
    assert "interrupted" in outcomes
    path = tmp_path / "store.db"
    assert inspect(path, Ledger.read(tmp_path)) == []
    with open_store(f"sqlite:///{path}") as store:
        versions = {row.id: row.version for row in store.conversations(limit=1_000)}
    assert {version for name, version in versions.items() if name != "live"} <= {400}
    with closing(sqlite3.connect(path)) as connection:
        (rows,) = connection.execute("SELECT count(*) FROM events").fetchone()
    assert rows == sum(versions.values()), "rows of an interrupted import are left"
    with open_at(path) as store:
        for n in range(20):
            store.ingest(f"history-{n}", batch_of(f"history-{n}", 400))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT id FROM conversations WHERE NOT visible").fetchall() == []


def test_ctrl_c_does_not_stop_other_threads(tmp_path):
    script = """
store = open_at(path)
stop = threading.Event()
counts = [0] * 8
def work(n):
    while not stop.is_set():
        append(store, "shared", f"{n}-{counts[n]}")
        counts[n] += 1
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for thread in threads: thread.start()
i = 0
say("begun")
interruptions = said = 0
while said < 20:
    try:
        while said < 20:
            if said < interruptions:
                said += 1
                say("interrupted")  # the next one may come before the processor is ours again
            append(store, "shared", f"main-{i}")
            i += 1
    except KeyboardInterrupt:
        interruptions += 1
        i += 1
before = list(counts)
while any(thread.is_alive() for thread in threads) and not all(a > b for a, b in zip(counts, before)):
    time.sleep(0.01)
stop.set()
for thread in threads: thread.join(60)
say(f"{sum(thread.is_alive() for thread in threads)} stuck, {sum(a > b for a, b in zip(counts, before))} went on")
os._exit(0)
"""
    with process(script, tmp_path) as writer:
        assert read_line(writer) == "begun"
        for _ in range(20):
            time.sleep(0.03)
            writer.send_signal(signal.SIGINT)
            assert read_line(writer) == "interrupted"
        assert read_rest(writer).strip() == "0 stuck, 8 went on"
    assert inspect(tmp_path / "store.db", Ledger.read(tmp_path)) == []


# ------------------------------------------------------------------------------------------ new files


def test_processes_open_a_new_file_at_once(tmp_path):
    script = (
        "sys.stdin.readline()\nwith open_at(path) as store:\n    append(store, 'c1', f'by"
        " {os.getpid()}')\n"
    )
    with ExitStack() as stack:
        processes = [stack.enter_context(process(script, tmp_path)) for _ in range(4)]
        for child in processes:
            send_line(child)
        assert [read_rest(child) for child in processes] == [""] * 4
    acknowledged = Ledger.read(tmp_path)
    assert sorted(entry.first_id for entry in acknowledged) == list(range(4))
    assert inspect(tmp_path / "store.db", acknowledged) == []
