"""An audit database that follows its store: each event once, erasures too, also after kills."""

import subprocess
import sys
from contextlib import closing

import pytest

from foldlog import Histories
from foldlog._reports.audit_database import AuditTables
from foldlog.eventstore import open_store
from tests.privacy import erased, redacted
from tests.said import say
from tests.stored_rows import execute
from tests.waiting import until


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, url_on):
    return url_on(request.param)


def say_words(store, conversation, count):
    say(store, conversation, *(f"word {n}" for n in range(count)))


def test_removals_are_applied_and_confirmed(url, tmp_path):
    path = tmp_path / "audit.db"
    with open_store(url) as store:
        say_words(store, "c1", 3)
        say_words(store, "c2", 3)
        with closing(AuditTables(store, path)) as tables:
            tables.catch_up()
            tables.refresh()
            name = f"audit database {path}"
            assert redacted(store, "c1", 1).unconfirmed == (name,)
            assert erased(store, "c2").unconfirmed == (name,)
            tables.refresh()  # it has not come to the entries
            tables.catch_up()
            tables.refresh()
            assert store.conversation("c2").unconfirmed == ()
        assert execute(path, "SELECT id, text FROM events WHERE id < 3 ORDER BY id") == [
            (0, "word 0"),
            (1, "[redacted]"),
            (2, "word 2"),
        ]
        written = path.read_bytes()
        assert b"word 0" in written
        assert b"word 1" not in written


def test_interrupted_batch_is_not_counted(tmp_path, monkeypatch):
    def interrupted(tables, scope, position):
        raise KeyboardInterrupt

    with (
        open_store(f"sqlite:///{tmp_path}/history.db") as store,
        closing(AuditTables(store, tmp_path / "audit.db")) as tables,
    ):
        say_words(store, "c1", 3)
        with monkeypatch.context() as patch:
            patch.setattr(AuditTables, "_follow", interrupted)
            with pytest.raises(KeyboardInterrupt):
                tables.catch_up()
        assert tables.events == 0
        tables.catch_up()
        assert tables.events == 3


def test_two_followers_add_each_event_once(url, tmp_path):
    path = tmp_path / "audit.db"
    with (
        open_store(url) as store,
        closing(AuditTables(store, path)) as first,
        closing(AuditTables(store, path)) as second,
    ):
        for number in range(5):
            Histories(store).create("c1", replace_erased=True)
            say_words(store, "c1", 2)
            say_words(store, "kept", 1)
            for each in (first, second):
                each.catch_up()
            expected = [("c1", 3), ("kept", number + 1)]
            assert (
                execute(path, "SELECT conversation, count(*) FROM events GROUP BY 1 ORDER BY 1")
                == expected
            )
            erased(store, "c1")
        first.catch_up()
    assert execute(path, "SELECT conversation, count(*) FROM events GROUP BY 1") == [("kept", 5)]


def test_killed_follower_loses_no_event(tmp_path):
    url = f"sqlite:///{tmp_path}/history.db"
    path = tmp_path / "audit.db"
    command = [sys.executable, "-m", *f"foldlog export --db {url} --to {path} --follow".split()]

    def followed():
        """Return how many events the follower has added."""
        if not path.exists():
            return 0
        ((count,),) = execute(path, "SELECT count(*) FROM events")
        return count

    with open_store(url) as store:
        for round_ in range(3):
            before = followed()
            say(store, "other", "a word by which the follower shows that it follows")
            process = subprocess.Popen(
                command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
            try:
                until(lambda before=before: followed() > before)
                for _ in range(20):
                    say_words(store, "c1", 50)
                assert process.poll() is None
            finally:
                process.kill()
                process.wait()
            assert store.version("c1") == 1_000 * (round_ + 1)
        with closing(AuditTables(store, path)) as tables:
            tables.catch_up()
    of_c1 = "SELECT count(*), count(DISTINCT id), max(id) FROM events WHERE conversation = 'c1'"
    assert execute(path, of_c1) == [(3_000, 3_000, 2_999)]


KILLED_AT_EACH_CALL = """
import os, signal, sys
from pathlib import Path
from foldlog.eventstore import Message, open_store
from foldlog._reports import audit_database, audit_file

folder = Path(sys.argv[1])
store = open_store("memory:")
store.append("c1", [Message(source="user", content="word")], expected_version=0)
every, calls = int(sys.argv[2]), 0
while True:
    path = folder / f"{calls}.db"
    calls += every
    child = os.fork()
    if child == 0:
        left = calls

        def count(frame, event, called):
            global left
            if event == "c_call" and called.__name__ in ("execute", "executescript", "mkstemp", "link", "fsync"):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(count)
        audit_file.open_database(store, path)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    audit_database.update(store, path)
    if not os.WIFSIGNALED(status):
        break
print(calls)
"""


def test_kill_leaves_a_usable_file(tmp_path, whole):
    every = 1 if whole else 5
    process = subprocess.run(
        [sys.executable, "-c", KILLED_AT_EACH_CALL, str(tmp_path), str(every)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.stderr == ""
    assert int(process.stdout) > 20
    for number in range(0, int(process.stdout), every):
        assert execute(tmp_path / f"{number}.db", "SELECT text FROM events") == [("word",)]
