"""What only the recorder of SQLite has: files, a schema, connections, and groups that share a
transaction. ``tests/conformance`` tests what all recorders share.
"""

import gc
import os
import re
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from foldlog.eventstore import (
    ConversationErased,
    CorruptEvent,
    InvalidOption,
    Store,
    StoreRefused,
    StoreUnavailable,
    open_store,
)
from foldlog.eventstore.codec import encode
from foldlog.eventstore.log.finding import find_existing
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.maintenance.copy import CopyOptions, copy_conversation
from foldlog.eventstore.recorders.sqlite import (
    SQLiteRecorder,
    log_checkpoints,
    schema,
    store_file,
    writing,
)
from foldlog.eventstore.recorders.sqlite.memory import MemoryRecorder
from foldlog.eventstore.recorders.sqlite.reader import SQL
from foldlog.eventstore.recorders.sqlite.transaction import SQLiteTransaction
from foldlog.eventstore.recorders.statements import statements as statements_of
from foldlog.eventstore.recorders.types import Conversation, as_rows, row_of
from foldlog.eventstore.recorders.urls import absolute_hint, as_url
from tests.at_once import at_once
from tests.eventstore.newer import become_newer
from tests.eventstore.test_copy import without_page
from tests.eventstore.test_group_commit import Callers, a_held_transaction
from tests.said import ids, said, say
from tests.stored_rows import execute

HI = said("hi")


def row(event_id):
    return row_of(event_id, "message", 1, True, False, 5, 0, b"{}", b"h" * 32)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "store.db")


@pytest.fixture
def recorder(path):
    recorder = SQLiteRecorder(path)
    yield recorder
    recorder.close()


def begin(recorder, name="c1", rows=1):
    def work(transaction):
        key = transaction.begin(Conversation(0, name, 5, b"s" * 16)).key
        transaction.insert(key, [row(n) for n in range(rows)])
        return key

    return recorder.transact(work)


@pytest.fixture(params=["live", "imported"])
def lost(request, path):
    """The id of a conversation of which a page with some events near event 50 cannot be read."""
    with open_store(path) as store:
        say(store, "live", *[f"live {n:04} " + "x" * 300 for n in range(100)])
        store.ingest("imported", (said(f"imported {n:04} " + "x" * 300) for n in range(1_500)))
    without_page(Path(path), lambda page: f"{request.param} 0050 ".encode() in page)
    return request.param


def test_follower_passes_an_unreadable_page(path, lost):
    followed = []
    position = 0
    with open_store(path) as store:
        while True:
            try:
                followed.extend(store.follow(position))
            except CorruptEvent as error:
                followed.append(error)
                position = error.position
            else:
                break
    assert [entry.position for entry in followed] == [*range(1, 1_601)]
    errors = [entry for entry in followed if isinstance(entry, CorruptEvent)]
    assert {error.conversation for error in errors} == {lost}
    for error in errors:
        assert abs(error.event_id - 50) < 25
        assert "it cannot be read: " in str(error)


@pytest.mark.parametrize("reverse, step", [(False, 1), (True, -1)])
def test_unreadable_page_names_the_remedy(path, lost, reverse, step):
    read = []
    with (
        open_store(path) as store,
        pytest.raises(CorruptEvent, match=r"it cannot be read: .*copy --damaged") as raised,
    ):
        read.extend(event.id for event in store.events(lost, reverse=reverse))
    assert abs(raised.value.event_id - 50) < 25
    assert raised.value.event_id == read[-1] + step


@pytest.mark.parametrize("key", [1, 2**31 - 2, 2**31 - 1, 2**40, 2**62])
def test_staged_events_of_any_conversation_key(key):
    recorder = MemoryRecorder()
    recorder.set_next_key(key)
    with Store(recorder) as store, open_store("memory:") as source:
        say(source, "c", *[f"{n}" for n in range(2_000)])
        copy_conversation(source.database, store.database, "c", CopyOptions(threading.Event()))
        assert store.version("c") == 2_000


# -- statements
# --------------------------------------------------------------------------------------------------


def test_placeholders_have_no_numbers():
    """Python 3.12.1 warns each time that a placeholder with a number is bound."""
    assert [name for name, sql in SQL.items() if re.search(r"\?\d", sql)] == []


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_statements_have_no_comments(dialect):
    """A comment at the end of a part would hide what follows the part in a statement."""
    assert [name for name, sql in statements_of(dialect).items() if "--" in sql] == []


# -- files
# --------------------------------------------------------------------------------------------------


def test_files_are_their_owners_alone(recorder, tmp_path):
    begin(recorder)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(
        ("store.db", "store.db-wal", "store.db-shm", "store.db-queue"), 0o600
    )


def test_commits_are_synced(recorder, path):
    def setting(of, name):
        connection = of.transact(lambda _: of._writing.connection)
        [value] = connection.execute(f"PRAGMA {name}").fetchone()
        return value

    full = 2
    normal = 1
    relaxed = SQLiteRecorder(path, durable=False)
    assert setting(recorder, "synchronous") == full
    assert setting(relaxed, "synchronous") == normal
    assert setting(recorder, "journal_mode") == setting(relaxed, "journal_mode") == b"wal"
    relaxed.close()


def test_log_has_a_greatest_length(path, monkeypatch):
    for module in (log_checkpoints, writing):
        monkeypatch.setattr(module, "IN_COMMITS_AT", 2 * log_checkpoints.AT)
    page = 4_096 + 24
    body = b"x" * 100_000
    # The commit that reaches the limit waits for the thread, the next one may still have to write
    # the log back, and only the one after it writes at the beginning again.
    pages_max = log_checkpoints.IN_COMMITS_AT + 4 * (len(body) // 4_096 + 5)
    with closing(SQLiteRecorder(path)) as recorder:  # opened with the limit of this test
        key = begin(recorder)
        for n in range(1, 100):
            recorder.transact(lambda t, n=n: t.insert(key, [row(n)._replace(body=body)]))
        assert os.path.getsize(f"{path}-wal") < pages_max * page


@pytest.mark.parametrize("name", ["a?b#c%20d.db", "ä 漢.db", "-wal"])
def test_any_file_name_is_that_file(tmp_path, name):
    recorder = SQLiteRecorder(str(tmp_path / name))
    begin(recorder)
    recorder.close()
    assert {path.name for path in tmp_path.iterdir()} == {name, f"{name}-queue"}


def test_a_missing_file_or_folder_is_refused(tmp_path):
    for options in ({"create": False}, {"writable": False}):
        with pytest.raises(StoreUnavailable, match=r"unable to open .* file; check that it exists"):
            SQLiteRecorder(str(tmp_path / "missing.db"), **options)
    with pytest.raises(StoreUnavailable, match="No such file or directory; make its folder first"):
        SQLiteRecorder(str(tmp_path / "nowhere" / "store.db"))
    assert not (tmp_path / "missing.db").exists()


def test_a_path_meant_as_absolute_is_explained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        StoreUnavailable, match=r"; for the absolute path write /usr/x\.db, .* sqlite:////usr/x\.db"
    ):
        open_store("sqlite:///usr/x.db")
    with pytest.raises(StoreUnavailable, match=r"No such file or directory; make its folder first"):
        open_store("sqlite:///no such folder/x.db")
    assert absolute_hint("no such folder/x.db") == ""


def test_a_path_that_is_not_utf_8_is_explained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidOption, match=r"use this URL: sqlite:///caf%E9\.db\?mode=ro"):
        as_url("caf\udce9.db?mode=ro")
    monkeypatch.setattr(os.path, "isdir", lambda path: path == "/caf\udce9")
    assert absolute_hint("caf\udce9/x.db").endswith("sqlite:////caf%E9/x.db")


def with_schema(number):
    """Return a function that makes a store and gives it the number of another schema."""

    def make(path):
        with open_store(path) as store:
            say(store, "c1", "hi")
        execute(path, f"PRAGMA user_version = {number}")

    return make


def development_store(number):
    """Return a function that makes a store as a development version wrote it. Its schemas had
    other numbers.
    """

    def make(path):
        with_schema(number)(path)
        execute(path, "DELETE FROM store WHERE name = 'made_by'")

    return make


OF_DEVELOPMENT = (
    r"was written by a development version of foldlog from before 0\.1\.0 \(its schema \d+\), which"
    r" this version does not read; the store is not damaged: .*'foldlog export ID"
)
NO_DATABASE = "file is not a database; choose another file"
FILES = [
    (lambda path: Path(path).write_bytes(b"not a database, but long enough" * 40), NO_DATABASE),
    (lambda path: Path(path).write_bytes(b"SQLite format 3"), NO_DATABASE),
    (lambda path: Path(path).write_bytes(b"X"), NO_DATABASE),
    (os.mkdir, "is a folder, and a store is a regular file; name another file"),
    (os.mkfifo, "is a device, a pipe or a socket, and a store is a regular file"),
    (
        lambda path: execute(path, "CREATE TABLE notes (text)"),
        "is a SQLite database, but not a foldlog store; choose another file",
    ),
    (with_schema(99), r"has schema 99, but this version .* up to \d+; upgrade foldlog to open it"),
    (with_schema(1), "names schema 1, but schemas begin at 2: "),
    (with_schema(0), "names schema 0, but schemas begin at 2: "),
    (with_schema(-1), "names schema -1, but schemas begin at 2: "),
    *((development_store(number), OF_DEVELOPMENT) for number in (0, 1, 2, 12)),
]


@pytest.mark.parametrize("make, problem", FILES)
@pytest.mark.parametrize("options", [{}, {"create": False}, {"writable": False}], ids=str)
def test_file_that_is_no_store(tmp_path, path, make, problem, options):
    def state():
        # SQLite itself may make an empty log to read with.
        files = [file for file in tmp_path.iterdir() if not file.name.endswith(("-wal", "-shm"))]
        return {file: file.is_file() and file.read_bytes() for file in files}

    make(path)
    before = state()
    with pytest.raises(StoreRefused, match=problem):
        SQLiteRecorder(path, **options)
    assert state() == before


# -- the schema
# --------------------------------------------------------------------------------------------------


def test_older_file_is_migrated_whole(path, monkeypatch):
    recorder = SQLiteRecorder(path)
    begin(recorder)
    uuid = recorder.value("uuid")
    recorder.close()
    become_newer(monkeypatch, "CREATE TABLE colours (name TEXT) STRICT;\n")
    with pytest.raises(
        StoreRefused,
        match="of an older schema; to bring it up to date, open it as a user who may write",
    ):
        SQLiteRecorder(path, writable=False)
    recorder = SQLiteRecorder(path)
    assert recorder.value("uuid") == uuid
    recorder.transact(lambda transaction: transaction.set_value("tracking application", str(1)))
    recorder.close()
    new = SQLiteRecorder(path + "-new")
    assert sorted(statements(path)) == sorted(statements(new.path))
    new.close()


def statements(path):
    return [sql for (sql,) in execute(path, "SELECT sql FROM sqlite_schema WHERE sql NOT NULL")]


def test_concurrent_openers_migrate_once(path, monkeypatch):
    with open_store(path) as store:
        say(store, "c1", "hi")
    become_newer(monkeypatch, "CREATE TABLE colours (name TEXT) STRICT;\n")
    barrier = threading.Barrier(4)

    def open_one(name):
        barrier.wait()
        with open_store(path) as store:
            say(store, name, "hi")

    at_once(open_one, ["c2", "c3", "c4", "c5"])
    with open_store(path) as store:
        assert sorted(row.id for row in store.conversations()) == ["c1", "c2", "c3", "c4", "c5"]


def test_older_program_meets_a_later_schema(path):
    """The migration of a later version took away what the older program reads."""
    with open_store(path) as store:
        say(store, "c1", "hi")
        newest = schema.NEWEST
        execute(
            path,
            f"PRAGMA user_version = {newest + 1}",
            "ALTER TABLE events RENAME COLUMN kind TO name",
        )
        refused = f"has schema {newest + 1}, but .* knows schemas up to {newest}; upgrade foldlog"
        for work in (lambda: [*store.events("c1")], lambda: say(store, "c1", "more")):
            with pytest.raises(StoreRefused, match=refused):
                work()


def test_failed_migration_leaves_the_older_schema(path, monkeypatch):
    SQLiteRecorder(path).close()
    before = statements(path)
    become_newer(monkeypatch, "CREATE TABLE half (x);\nCREATE TABLE half (x);\n")
    with pytest.raises(StoreRefused, match="table half already exists"):
        SQLiteRecorder(path)
    assert statements(path) == before
    monkeypatch.undo()
    SQLiteRecorder(path).close()


# -- connections
# --------------------------------------------------------------------------------------------------


def test_reader_sees_one_moment(recorder):
    with recorder.read() as reader:
        assert reader.conversation("c1") is None
        begin(recorder)
        assert reader.conversation("c1") is None


def test_closed_store_finishes_its_readers(recorder, tmp_path):
    begin(recorder, rows=3)
    with recorder.read() as reader:
        key = reader.conversation("c1").key
        recorder.close()
        assert len(as_rows(reader.rows(key, 0, 9, 9))) == 3
        with (
            pytest.raises(StoreRefused, match=r"store.db is closed; open the store again"),
            recorder.read(),
        ):
            pass
    assert {path.name for path in tmp_path.iterdir()} == {"store.db", "store.db-queue"}


def test_a_signal_at_the_end_of_a_read_goes_on(recorder, monkeypatch):
    def interrupted(connection):
        raise KeyboardInterrupt

    reading = recorder.read()
    reading.__enter__()
    monkeypatch.setattr(store_file.Connection, "rollback", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reading.__exit__(None, None, None)
    monkeypatch.undo()
    with recorder.read() as reader:
        assert reader.conversation("c1") is None


def test_closing_waits_for_the_transaction(recorder):
    def work(transaction):
        transaction.begin(Conversation(0, "c1", 5, b"s" * 16))

    closer = threading.Thread(target=recorder.close)
    with a_held_transaction(recorder._queue, work):
        closer.start()
        closer.join(0.1)
        assert closer.is_alive()
    closer.join(20)
    assert execute(recorder.path, "SELECT count(*) FROM conversations") == [(1,)]


def test_forgotten_recorder_leaves_no_file_open(path):
    # What is made from here on stays in the youngest generation, and only this generation is
    # collected. The garbage of other tests stays where it is.
    gc.disable()
    try:
        gc.collect(0)
        begin(SQLiteRecorder(path))
        gc.collect(0)
        open_files = psutil.Process().open_files()
        assert not [file for file in open_files if file.path.startswith(str(path))]
    finally:
        gc.enable()


def test_data_version_never_repeats(recorder):
    versions = {recorder.value("data_version")}
    for n in range(3):
        recorder._close_poller()  # A fork of the process does this.
        begin(recorder, f"c{n}")
        version = recorder.value("data_version")
        assert version not in versions
        assert recorder.value("data_version") == version
        versions.add(version)


def test_other_program_holds_the_file(path):
    with Store(SQLiteRecorder(path, patience_s=0.05)) as store:
        say(store, "c1", "hi")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(
                StoreUnavailable,
                match="database is locked; a program other than foldlog holds the file",
            ):
                say(store, "c1", "hi")
            assert store.version("c1") == 1
            other.execute("ROLLBACK")
        # The other program wrote nothing, so the store stayed open.
        say(store, "c1", "hi")


def test_first_opening_waits_for_the_locks_of_a_killed_process(path, monkeypatch):
    waits = []
    with closing(sqlite3.connect(path, isolation_level=None)) as killed:
        killed.execute("BEGIN IMMEDIATE")

        def release(seconds):
            waits.append(seconds)
            if len(waits) == 3:
                killed.execute("ROLLBACK")

        clock = SimpleNamespace(sleep=release, monotonic=time.monotonic)
        monkeypatch.setattr(store_file, "time", clock)
        with Store(SQLiteRecorder(path, patience_s=60)) as store:
            say(store, "c1", "hi")
            assert store.version("c1") == 1
    assert len(waits) == 3


def test_first_opening_waits_no_longer_than_its_patience(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="database is locked"):
            SQLiteRecorder(path, patience_s=0.05)


# -- groups
# --------------------------------------------------------------------------------------------------


def together(recorder, works):
    """Run several pieces of work in one group; return what each returned or raised. They gather
    behind a transaction that is open.
    """
    callers = Callers(recorder._queue)
    with a_held_transaction(recorder._queue, lambda transaction: None):
        callers.add(*works)
    return callers.finish()


def test_group_shares_one_commit(recorder, path):
    key = begin(recorder)
    with closing(sqlite3.connect(path)) as watching:
        before = watching.execute("PRAGMA data_version").fetchone()[0]
        together(recorder, [lambda t, n=n: t.insert(key, [row(n)]) for n in range(1, 9)])
        with recorder.read() as reader:
            placed = [(placed.position, placed.row[0]) for placed in reader.placed_rows(0, 9)]
        assert placed == [(n + 1, n) for n in range(9)]
        # The group is one commit. The transaction behind which it gathered may count as another.
        assert watching.execute("PRAGMA data_version").fetchone()[0] - before <= 2


class FollowedBy:
    """A cursor on which something happens right after the first commit."""

    def __init__(self, cursor, happens):
        self._cursor = cursor
        self._happens = [happens]

    def __getattr__(self, name):
        return getattr(self._cursor, name)

    def execute(self, statement, *parameters):
        cursor = self._cursor.execute(statement, *parameters)
        if statement == "COMMIT" and self._happens:
            self._happens.pop()()
        return cursor


def appends_to(store, conversation):
    """Return a job that appends an event, whatever its version; it returns the event's id."""

    def append(transaction):
        existing = find_existing(store.database, transaction, conversation)
        writing = WriteTransaction(transaction, existing, store.database)
        writing.append([encode(HI)], 5)
        writing.end()
        return existing.version

    return append


def test_refused_insert_uses_no_id(path, monkeypatch):
    """Its transaction is committed, because it may have other jobs."""

    def refuse(*_, **__):
        raise StoreUnavailable("refused", kind="taken")

    with open_store(path) as store:
        say(store, "c1", "hi", "hi")
        with monkeypatch.context() as patched:
            patched.setattr(SQLiteTransaction, "insert", refuse)
            with pytest.raises(StoreUnavailable, match="refused"):
                store.append("c1", HI, expected_version=2)
        assert store.append("c1", HI, expected_version=2)[0].id == 2


def test_rolled_back_state_is_forgotten(path):
    """The first job is run again, and must not go on from what it left before."""

    def writes_and_fails(transaction):
        transaction.begin(Conversation(0, "never", 5, b"s" * 16))
        raise ZeroDivisionError

    with open_store(path) as store:
        say(store, "c1", "hi", "hi")
        append = appends_to(store, "c1")
        recorder = store.database.recorder
        outcomes = together(recorder, [append, writes_and_fails, append])
        assert [outcomes[0], type(outcomes[1]), outcomes[2]] == [2, ZeroDivisionError, 3]
        assert ids(store.events("c1")) == [0, 1, 2, 3]
        assert [entry.position for entry in store.follow()] == [1, 2, 3, 4]


def test_uncommitted_state_is_not_cached(path):
    with open_store(path) as store:
        say(store, "c1", "hi", "hi")
        append = appends_to(store, "c1")
        recorder = store.database.recorder
        assert together(recorder, [append, lambda _: recorder.last_conversation]) == [2, None]
        cached = store.database.cached_state("c1")
        assert cached.state.version == 3


def test_memory_forgets_what_sqlite_rolled_back():
    """SQLite itself rolls a transaction back if it has no memory left."""

    def fails(transaction):
        recorder = store.database.recorder
        transaction.begin(Conversation(0, "never", 5, b"s" * 16))
        recorder._connection.rollback()
        raise MemoryError

    with open_store("memory:") as store:
        say(store, "c1", "hi")
        assert store.database.cached_state("c1") is not None
        with pytest.raises(MemoryError):
            store.database.recorder.transact(fails)
        assert store.database.recorder.last_conversation is None


# -- commits of other programs
# --------------------------------------------------------------------------------------------------

ERASED = (
    "UPDATE conversations SET erased_at = 5, erased_events = 3, erased_head = x'00' WHERE key = 1"
)


@pytest.fixture(params=["by the log's index", "by SQLite"])
def commit_detection(request, monkeypatch):
    """Let a store find the commits of other programs in one of its two ways."""
    if request.param == "by SQLite":
        monkeypatch.setattr(writing, "descriptors_of", lambda _: [])


@pytest.mark.usefixtures("commit_detection")
def test_commit_of_another_program_is_seen(path):
    with open_store(path) as store:
        store.append("c1", HI, expected_version=0)
        store.append("c1", HI, expected_version=1)
        ours = store._recorder._writing._transaction
        # The other program erases the conversation right after the third append is committed.
        ours.cursor = FollowedBy(ours.cursor, lambda: execute(path, ERASED))
        store.append("c1", HI, expected_version=2)
        with pytest.raises(ConversationErased):
            store.append("c1", HI, expected_version=3)


@pytest.mark.usefixtures("commit_detection")
def test_two_writers_in_turn_append_in_order(path):
    with open_store(path) as ours, open_store(path) as other:
        for version in range(0, 12, 3):
            ours.append("c1", HI, expected_version=version)
            ours.append("c1", HI, expected_version=version + 1)
            other.append("c1", HI, expected_version=version + 2)
        assert ids(ours.events("c1")) == list(range(12))
        assert [entry.position for entry in other.follow()] == list(range(1, 13))


# -- what others made
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["rw", "ro"])
def test_empty_file_is_no_store(tmp_path, mode):
    path = tmp_path / "history.db"
    path.touch()
    with pytest.raises(StoreRefused, match="is an empty file, not a store"):
        open_store(f"sqlite:///{path}?mode={mode}")
    assert path.stat().st_size == 0
    open_store(path).close()


def test_foreign_index_or_table_is_no_harm(path):
    with open_store(path) as store:
        say(store, "c1", "hi")
    execute(path, "CREATE INDEX by_kind ON events (kind)")
    execute(path, "CREATE TABLE notes (text)")
    with open_store(path) as store:
        say(store, "c1", "hi")


def test_no_connection_trusts_the_schema(recorder):
    begin(recorder)
    with recorder.read():
        pass
    for connection in (recorder._writing.connection, recorder._readers._idle[0]):
        assert connection.execute("PRAGMA trusted_schema").fetchone() == (0,)


def test_connection_that_is_not_opened_to_its_end_is_closed(path, monkeypatch):
    connections = []
    connect = store_file.StoreFile.connect

    def remembered(self, **options):
        connections.append(connect(self, **options))
        return connections[-1]

    with closing(SQLiteRecorder(path)) as recorder:
        begin(recorder)
        recorder._writing.close()
        monkeypatch.setattr(store_file.StoreFile, "connect", remembered)
        monkeypatch.setattr(writing, "descriptors_of", interrupt)
        with pytest.raises(KeyboardInterrupt):
            recorder.transact(lambda transaction: transaction.set_value("a", "b"))
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connections[0].execute("SELECT 1")


def interrupt(path):
    raise KeyboardInterrupt
