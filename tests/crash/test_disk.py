"""When a disk fails, the error says so. When the disk works again, the store does too, and it has all
acknowledged events.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from foldlog.eventstore import StoreUnavailable, open_store
from tests.crash import faults
from tests.crash.ledger import Acknowledged, batch_of, inspect, open_at
from tests.crash.test_crashes import assert_sound, needs_faults
from tests.said import say
from tests.small_disks import fill, mounted


def append_for_ever(append):
    while True:
        append()


@pytest.fixture
def small_disk(tmp_path):
    with mounted(tmp_path / "disk", "size=1m") as folder:
        yield folder


def test_appends_go_on_when_a_full_disk_has_space(small_disk):
    path = small_disk / "store.db"
    (small_disk / "ballast").write_bytes(b"x" * 400_000)
    acknowledged = []
    with open_at(path) as store:

        def append():
            n = len(acknowledged)
            recorded = store.append(
                "c1", batch_of(f"batch-{n}", 3, text="x" * 2_000), expected_version=3 * n
            )
            acknowledged.append(Acknowledged("c1", recorded[0].id, 3, f"batch-{n}"))

        for _ in range(2):
            with pytest.raises(
                StoreUnavailable,
                match=r"store\.db: database or disk is full; free some space; nothing",
            ):
                append_for_ever(append)
            assert len(acknowledged) > 10
            assert store.version("c1") == len(list(store.events("c1"))) == 3 * len(acknowledged)
        (small_disk / "ballast").unlink()
        append()
        assert store.version("c1") == 3 * len(acknowledged)
    assert inspect(path, acknowledged) == []


def test_a_store_needs_space_for_the_logs_index(small_disk):
    path = small_disk / "store.db"
    open_at(path).close()
    fill(small_disk / "ballast")
    with pytest.raises(StoreUnavailable, match=r"the disk is full: free some space") as raised:
        open_at(path)
    assert raised.value.kind == "full"
    (small_disk / "ballast").unlink()
    open_at(path).close()


@needs_faults
@pytest.mark.parametrize("scenarios", [["append", "migrate_new"]], ids="-".join)
def test_disk_full_from_any_write_loses_nothing(scenarios, whole):
    assert_sound("full", scenarios, 13, whole)


@needs_faults
@pytest.mark.parametrize("scenarios", [["append_batches", "ingest_staged"]], ids="-".join)
def test_any_failed_sync_loses_nothing(scenarios, whole):
    assert_sound("sync", scenarios, 1, whole)


NAME_OF = """
def name_of(error):
    return "StoreUnavailable" if isinstance(error, StoreUnavailable) else "StoreRefused"
"""
WITH_FAULTS = f"""
import os
import sys
from pathlib import Path
from foldlog.eventstore import *
from tests.crash.faults import fault
{NAME_OF}
folder = Path(sys.argv[1])
store = open_store(f"sqlite:///{{folder}}/store.db")

def append(n):
    store.append("c1", Message(source="user", content=str(n)), expected_version=n)

def attempt(n):
    try:
        append(n)
    except EventStoreError as error:
        print(name_of(error), error)
"""


def on_a_failing_disk(script, folder):
    """Run a script after ``WITH_FAULTS``, and return its output."""
    process = subprocess.run(
        [sys.executable, "-c", WITH_FAULTS + script, folder],
        env=faults.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


@needs_faults
def test_log_is_begun_again_after_a_failed_sync(tmp_path):
    """The pages of a failed sync may never reach the disk, and no later sync reports it. After a power
    cut the log would end before them, without all events that were acknowledged later.
    """
    script = """
append(0)
fault("fail_sync_at").value = fault("syncs").value + 1
attempt(1)  # this sync fails, the next ones do not
print((folder / "store.db-wal").stat().st_size, store.version("c1"))
attempt(1)
print(store.version("c1"))
"""
    printed = on_a_failing_disk(script, tmp_path)
    first, *others = printed.splitlines()
    assert first.startswith("StoreUnavailable cannot write to ")
    assert first.endswith("store.db: disk I/O error; look at the disk; nothing was written")
    assert others == ["0 1", "2"]


@needs_faults
def test_nothing_is_written_behind_a_failed_sync(tmp_path):
    script = """
append(0)
fault("fail_sync_at").value = fault("syncs").value + 1
with store.database.recorder.read() as reader:
    reader.conversation("c1")
    attempt(1)
    attempt(1)
    print(store.version("c1"))
attempt(1)
print(store.version("c1"))
"""
    printed = on_a_failing_disk(script, tmp_path)
    first, second, *others = printed.splitlines()
    assert (
        "disk I/O error; look at the disk; it is not known whether the events were written" in first
    )
    assert "store.db failed, and the log cannot be emptied while a reader is open" in second
    assert others == ["1", "2"]


@needs_faults
def test_failed_sync_then_kill_leaves_no_commit(tmp_path):
    """SQLite then reads the log again, and would find a commit that the error said was not written."""
    script = """
append(0)
fault("fail_sync_at").value = fault("syncs").value + 1
attempt(1)
sys.stdout.flush()
os._exit(0)
"""
    printed = on_a_failing_disk(script, tmp_path)
    assert printed.endswith("nothing was written\n")
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        assert store.version("c1") == 1


@needs_faults
def test_store_goes_on_after_each_failure(tmp_path):
    script = """
from tests.crash.goes_on import try_all_places
print(try_all_places(folder))
"""
    printed = on_a_failing_disk(script, tmp_path)
    assert int(printed) > 30


def loop_of_the_page(sleep):
    """Return the function ``say`` of docs/errors.md, with this ``time.sleep``."""
    page = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
    names = {}
    exec(page.split("```python\n")[1].split("\n\nwith foldlog.open")[0], names)
    names["time"] = SimpleNamespace(sleep=sleep)
    return names["say"]


@needs_faults
def test_documented_retry_loop_appends_once(tmp_path):
    script = """
import foldlog
from tests.crash.test_disk import loop_of_the_page

waits = []

def sleep(seconds):
    waits.append(seconds)
    if len(waits) == 3:
        fault("no_space_from").value = 0

histories = foldlog.open(f"{folder}/app.db")
say = loop_of_the_page(sleep)
say(histories["c1"], "before", "mail-16")
fault("no_space_from").value = fault("calls").value + 1
say(histories["c1"], "hello", "mail-17")
say(histories["c1"], "hello", "mail-17")
print(waits, [event.content for event in histories["c1"].events()])
"""
    printed = on_a_failing_disk(script, tmp_path)
    assert printed == "[1, 1, 1] ['before', 'hello']\n"


@needs_faults
def test_writers_wait_for_a_slow_disk(tmp_path):
    script = """
from tests.at_once import at_once

def append_own(n):
    store.append(f"c{n}", Message(source="user", content="hi"), expected_version=0)

fault("sync_delay_us").value = 300_000
at_once(append_own, range(4))
print([store.version(f"c{n}") for n in range(4)])
"""
    assert on_a_failing_disk(script, tmp_path) == "[1, 1, 1, 1]\n"


def as_nobody(script, folder):
    """Run a script without the rights of root, whom no permission stops, and return its output."""
    prelude = f"""
import os
from foldlog.eventstore import *
import foldlog.eventstore.recorders.sqlite
from foldlog._app.cli.stores import open_existing
# Everything is imported, so this process need not read Python's own files any more.
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
{NAME_OF}
def attempt(work):
    try:
        print("done", work())
    except EventStoreError as error:
        print(name_of(error), error)

url = "sqlite:///{folder}/store.db"
message = Message(source="user", content="hi")
"""
    process = subprocess.run(
        [sys.executable, "-c", prelude + script],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.fixture
def open_folder():
    """A folder that every user can enter. (Other users cannot enter pytest's folders.)"""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
        Path(folder).chmod(0o755)  # to remove its files


@pytest.fixture
def path(open_folder):
    """A store of one event that no user may write."""
    path = open_folder / "store.db"
    with open_at(path) as store:
        say(store, "c1", "hi")
    path.chmod(0o444)
    return path


@pytest.mark.usefixtures("path")
def test_store_that_nobody_may_write_is_read(open_folder):
    open_folder.chmod(0o555)
    read = "attempt(lambda: open_store(url + '?mode=ro').version('c1'))\n"
    assert as_nobody(read, open_folder) == "done 1\n"


@pytest.mark.usefixtures("path")
def test_read_only_store(open_folder):
    open_folder.chmod(0o777)
    (open_folder / "store.db-queue").chmod(0o444)
    printed = as_nobody(
        "attempt(lambda: open_store(url))\n"
        "attempt(lambda: open_store(url + '?mode=ro').version('c1'))\n"
        "attempt(lambda: open_store(url + '?mode=ro').append('c1', message, expected_version=1))\n",
        open_folder,
    ).splitlines()
    assert printed[0].startswith("StoreUnavailable cannot open ")
    assert "Permission denied" in printed[0]
    assert "to read only, name the file by this URL: sqlite:///PATH?mode=ro" in printed[0]
    assert printed[1] == "done 1"
    assert (
        "is open for reading only; to write, open it as a user who may write the file"
        " and its folder" in printed[2]
    )


NOT_WRITABLE_BY_SCRIPT = 0o755 if os.getuid() == 0 else 0o577
"""The mode of a folder in which the script may not write. Root's script runs as nobody; any other
user's script runs as the folder's owner.
"""
FILES_BESIDE = (
    "give this user the right to write the file and its folder, because SQLite makes files beside"
    " a database even for reading; or copy the file to a folder"
)


@pytest.mark.parametrize(
    "folder_mode, store_mode, options, message",
    [
        (
            NOT_WRITABLE_BY_SCRIPT,
            None,
            "",
            r"cannot make .*Permission denied; name a file in a folder that this user may write",
        ),
        (
            NOT_WRITABLE_BY_SCRIPT,
            0o000,
            "?mode=ro",
            r"cannot open .*unable to open database file; check that it exists, and give this user the"
            r" right to",
        ),
        (NOT_WRITABLE_BY_SCRIPT, 0o444, "?mode=ro", FILES_BESIDE),
        (0o555, 0o644, "?mode=ro", FILES_BESIDE),
    ],
    ids=["folder", "file", "folder of a file", "writable file"],
)
def test_missing_permission_names_the_remedy(
    open_folder, folder_mode, store_mode, options, message
):
    if store_mode is not None:
        open_at(open_folder / "store.db").close()
        (open_folder / "store.db").chmod(store_mode)
    open_folder.chmod(folder_mode)
    printed = as_nobody(f"attempt(lambda: open_store(url + '{options}'))\n", open_folder)
    assert re.match(f"StoreUnavailable .*{message}", printed), printed


@pytest.mark.usefixtures("path")
def test_commands_miss_no_store_in_a_folder_that_they_may_not_enter(open_folder):
    open_folder.chmod(0o000)
    printed = as_nobody("attempt(lambda: open_existing(url))\n", open_folder)
    assert re.match("StoreUnavailable cannot open .*: Permission denied; give this user", printed)


def test_read_only_file_system(tmp_path):
    with mounted(tmp_path / "disk", "size=4m") as folder:
        with open_at(folder / "store.db") as store:
            say(store, "c1", "hi")
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        with pytest.raises(StoreUnavailable, match=r"Read-only file system; .*\?mode=ro"):
            open_at(folder / "store.db")
        with open_store(f"sqlite:///{folder}/store.db?mode=ro") as store:
            assert store.version("c1") == 1
