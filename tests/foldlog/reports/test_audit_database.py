"""The audit database is complete, goes on where it ended, has nothing that was erased, and answers
its documented queries.
"""

import errno
import os
import re
import sqlite3
import stat
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import astuple
from sqlite_utils import Database

from foldlog import EventStoreError, Histories
from foldlog._reports import audit_database
from foldlog._reports.audit_database import AuditTables, name_of, update
from foldlog._reports.audit_file import NoAuditDatabase, check_target, open_database
from foldlog._reports.figures.overview import counted_in
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CorruptEvent,
    Observation,
    Origin,
    Retraction,
    Store,
    StoreUnavailable,
    SystemMessage,
    open_store,
)
from foldlog.eventstore.maintenance.backup import back_up
from foldlog.eventstore.usage import PLACED_FROM, WRITTEN_AGAIN
from foldlog.projections import Views
from tests.between import before_next_call
from tests.privacy import erased, redacted
from tests.said import said, say
from tests.stored_rows import execute

DOCUMENT = Path(__file__).parents[3] / "docs" / "AUDIT.md"


@pytest.fixture
def store(tmp_path):
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        store.register(Views(store))
        store.append(
            "tidewatch",
            [
                said("why is the cache slow? \ud800"),
                Action(tool="terminal", arguments={"command": "pytest -q"}, call_id="k"),
                Observation(
                    tool="terminal", call_id="k", content="1 failed", is_error=True, cause=1
                ),
                Annotation(name="state", data={"cost": 1}),
                CondensationAction(
                    forgotten_event_ids=[1, 2],
                    summary="the cache was measured",
                    summary_offset=1,
                    metadata={"reason": "events", "tokens_before": 90, "tokens_after": 30},
                ),
            ],
            expected_version=0,
        )
        yield store


@pytest.fixture
def path(tmp_path):
    """The path of the audit database."""
    return tmp_path / "audit.db"


def test_everything_is_in_it(store, path):
    result = update(store, path)
    assert (result.events, result.condensations, result.conversations) == (5, 1, 1)
    events = execute(path, "SELECT kind, tool, is_error, shown, text FROM events ORDER BY id")
    kinds = ["message", "action", "observation", "annotation", "condensation"]
    assert [kind for kind, *_ in events] == kinds
    assert events[0][4] == "why is the cache slow? \\ud800"
    assert (events[2][1:3], events[3][3]) == (("terminal", 1), 0)
    of_condensation = "SELECT forgotten, forgotten_count, reason, tokens_after FROM condensations"
    assert execute(path, of_condensation) == [("[[1,2]]", 2, "events", 30)]
    head = store.conversation("tidewatch").head
    assert execute(path, "SELECT version, head FROM conversations") == [(5, head)]
    assert execute(path, "SELECT version FROM revisions") == [(5,)]


def test_counts_are_those_of_stats(path):
    (tools,) = re.findall(r"```sql\n(SELECT coalesce.*?)```", DOCUMENT.read_text(), re.DOTALL)
    replaced = {"outcome": "replaced", "reason": "the system prompt was updated"}
    declined = {"outcome": "declined", "reason": "nothing to forget"}
    events = [
        SystemMessage(content="be brief"),
        SystemMessage(content="be kind"),
        CondensationAction(forgotten_event_ids=[0], metadata=replaced),
        Action(tool="run", call_id="a"),
        Action(tool="run", call_id="b"),
        Observation(tool="run", call_id="a", content="asked to wait"),
        Observation(tool="run", call_id="a", content="no", is_error=True),
        Observation(call_id="b", cause=4, content="a result that names no tool", is_error=True),
        Action(tool="run", source="user"),
        CondensationAction(forgotten_event_ids=[1], summary="be", summary_offset=0),
        CondensationAction(forgotten_event_ids=[], metadata=declined),
    ]
    with open_store("memory:") as store:
        store.append("c", events, expected_version=0)
        assert update(store, path).condensations == 2
        stats = Histories(store)["c"].stats()
    (counted,) = stats.condensations.values()
    assert (counted.made, counted.declined) == (1, 1)
    outcomes = execute(path, "SELECT outcome FROM condensations ORDER BY id")
    assert outcomes == [(None,), ("declined",)]
    expected = [(name, *astuple(figures)) for name, figures in stats.tools.items()]
    assert execute(path, tools) == expected


def test_nothing_is_confirmed_while_reads_fail(store, path, monkeypatch):
    update(store, path)
    name = name_of(path)
    assert erased(store, "tidewatch").unconfirmed == (name,)

    def unreadable(_, conversation):
        raise CorruptEvent(conversation, 0, "its row cannot be read")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "conversation", unreadable)
        update(store, path)
    assert store.conversation("tidewatch").unconfirmed == (name,)
    update(store, path)
    assert store.conversation("tidewatch").unconfirmed == ()


def test_failed_confirmation_is_repeated(store, path, monkeypatch):
    update(store, path)
    name = name_of(path)
    erased(store, "tidewatch")

    def refused(*_):
        raise StoreUnavailable("the store is busy", kind="busy")

    with closing(AuditTables(store, path)) as tables:
        tables.catch_up()
        with monkeypatch.context() as patch:
            patch.setattr("foldlog._reports.audit_database.confirm", refused)
            with pytest.raises(StoreUnavailable):
                tables.refresh()
        assert store.conversation("tidewatch").unconfirmed == (name,)
        tables.refresh()
    assert store.conversation("tidewatch").unconfirmed == ()


def test_other_database_stays_unchanged(store, tmp_path):
    execute(tmp_path / "foreign.db", "CREATE TABLE events (a)")
    open_store(f"sqlite:///{tmp_path}/other.db").close()
    for path in (tmp_path / "foreign.db", tmp_path / "other.db"):
        before = path.read_bytes()
        with pytest.raises(EventStoreError, match="use another file"):
            update(store, path)
        assert path.read_bytes() == before


def test_an_empty_file_becomes_one(store, path):
    path.touch()
    assert update(store, path).events == 5
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_documented_queries_find_something(store, path):
    update(store, path)
    queries = re.findall(r"```sql\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)
    assert len(queries) == 3
    for query in queries:
        assert execute(path, query), query


def test_odd_numbers_are_stored(store, path):
    origin = Origin(format="codex", id=7)
    odd = [
        said("a", cause=10**30),
        CondensationAction(
            forgotten_events_start_id=0,
            forgotten_events_end_id=10**35,
            summary="S",
            summary_offset=-(10**40),
            metadata={"tokens_before": 10**30, "tokens_after": {"about": 1}, "cost": "little"},
            origin=origin,
        ),
    ]
    store.ingest("odd", odd)
    update(store, path)
    counted = "SELECT forgotten_count, tokens_before, tokens_after, cost FROM condensations"
    assert execute(path, f"{counted} WHERE conversation = 'odd'") == [
        (1e35, 1e30, '{"about": 1}', "little")
    ]


def damage(store, conversation, event_id):
    """Change a word of an event's body in the file."""
    key = f"SELECT key FROM conversations WHERE id = '{conversation}'"
    execute(
        store._recorder.path,
        "UPDATE events SET body = replace(body, 'word', 'WORD')"
        f" WHERE conversation = ({key}) AND id = {event_id}",
    )


def test_redaction_meanwhile_is_in_the_next_run(store, path, monkeypatch):
    before_next_call(
        monkeypatch,
        AuditTables,
        "_add",
        lambda: redacted(store, "tidewatch", 0),
    )
    for word in ("cache", "[redacted]"):
        update(store, path, ["tidewatch"])
        ((text,),) = execute(path, "SELECT text FROM events WHERE id = 0")
        assert word in text


def test_unreadable_event_is_named(store, tmp_path):
    for conversation in ("c1", "c2"):
        say(store, conversation, *(f"word {n}" for n in range(5)))
    damage(store, "c1", 2)
    damage(store, "c1", 3)
    damage(store, "c2", 4)  # the last one: what leads to it is sound, it is not
    whole = update(store, tmp_path / "whole.db")
    some = update(store, tmp_path / "some.db", ["c1", "c2"])
    for updated, path in ((whole, tmp_path / "whole.db"), (some, tmp_path / "some.db")):
        lost = [("c1", 2), ("c1", 3), ("c2", 4)]
        assert [(event.conversation, event.event) for event in updated.damaged] == lost
        assert all("checksum" in event.problem for event in updated.damaged)
        others = "FROM events WHERE conversation <> 'tidewatch'"
        assert execute(path, f"SELECT conversation, id {others} ORDER BY 1, 2") == [
            (name, n) for name in ("c1", "c2") for n in range(5) if (name, n) not in lost
        ]
        assert execute(path, "SELECT conversation, id FROM damaged ORDER BY 1, 2") == lost
    say(store, "c1", "later")
    again = update(store, tmp_path / "whole.db")
    assert (again.events, again.damaged) == (1, ())


@pytest.mark.parametrize("named", [None, ["tidewatch"]])
def test_restored_store_makes_it_again(store, tmp_path, named):
    audit = tmp_path / "audit.db"
    backup = tmp_path / "backup.db"
    back_up(store, str(backup))
    update(store, audit, named)
    say(store, "tidewatch", "lost")
    update(store, audit, named)
    store.close()
    backup.rename(tmp_path / "store.db")
    with open_store(f"sqlite:///{tmp_path}/store.db") as restored:
        for rebuilt in (True, False):
            result = update(restored, audit, named)
            assert (result.rebuilt, result.events) == (rebuilt, 5 if rebuilt else 1)
            say(restored, "tidewatch", "new")
        update(restored, audit, named)
    assert execute(audit, "SELECT text FROM events WHERE id > 4") == [("new",), ("new",)]
    assert b"lost" not in audit.read_bytes()


def test_command_says_that_it_was_made_again(store, tmp_path, foldlog):
    export = ("export", f"--to={tmp_path}/audit.db", f"--db={tmp_path}/store.db")
    back_up(store, str(tmp_path / "backup.db"))
    say(store, "tidewatch", "lost")
    assert foldlog(*export).err == ""
    store.close()
    (tmp_path / "backup.db").rename(tmp_path / "store.db")
    assert "audit.db was made again: the store was restored" in foldlog(*export).err


def test_reused_id_has_only_new_events(path):
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    with open_store("memory:", clock=lambda: now[0]) as store:
        for named in (None, ["c"]):
            say(store, "c", "former")
            update(store, path, named)
            now[0] -= timedelta(seconds=3)
            erased(store, "c")
            Histories(store).create("c", replace_erased=True)
            update(store, path, named)
            assert execute(path, "SELECT kind FROM events") == [("document_changes",)]
            assert b"former" not in path.read_bytes()


def test_open_reader_keeps_erased_rows(store, path, monkeypatch):
    update(store, path)
    erased(store, "tidewatch")
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0.1))
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        with pytest.raises(
            StoreUnavailable, match="has open readers, so deleted rows stay in its log"
        ):
            update(store, path)
    update(store, path)
    assert b"why is the cache slow?" not in path.read_bytes()
    assert not path.with_name("audit.db-wal").exists()


@pytest.mark.parametrize(
    "error, remedy",
    [
        (sqlite3.SQLITE_FULL, "free some space"),
        (OSError(errno.ENOSPC, "No space left on device"), "free some space"),
        (
            sqlite3.SQLITE_BUSY_SNAPSHOT,
            "another program is writing it; try again when that program has ended",
        ),
        (sqlite3.SQLITE_IOERR_WRITE, "check its disk, or use another file"),
        (OSError(errno.EIO, "Input/output error"), "check its disk, or use another file"),
        (
            sqlite3.SQLITE_READONLY_DIRECTORY,
            "let this user write the file and its folder, or use another file",
        ),
        (PermissionError(errno.EACCES, "Permission denied"), "its folder, or use another file"),
        (sqlite3.SQLITE_NOTADB, "it; use another file"),
    ],
)
def test_file_error_names_the_remedy(store, path, monkeypatch, error, remedy):
    def fail(*_):
        if isinstance(error, int):
            raised = sqlite3.OperationalError("SQLite refuses it")
            raised.sqlite_errorcode = error
            raise raised
        raise error

    monkeypatch.setattr(AuditTables, "_insert", fail)
    with pytest.raises(EventStoreError, match=f"{remedy}$"):
        update(store, path)


def test_follower_names_a_locked_file(foldlog, tmp_path, monkeypatch):
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        say(store, "c1", "word")
        update(store, tmp_path / "audit.db")
        say(store, "c1", "again")
    reached = AuditTables.apply

    def locked(self, *arguments, **named):
        self._database.execute("PRAGMA busy_timeout = 0")
        with closing(sqlite3.connect(tmp_path / "audit.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            return reached(self, *arguments, **named)

    monkeypatch.setattr(AuditTables, "apply", locked)
    ran = foldlog("export --follow", f"--to={tmp_path}/audit.db", f"--db={tmp_path}/store.db")
    assert (ran.status, ran.err.count("\n")) == (2, 2), ran.err
    assert (
        "audit.db cannot be the audit database: database is locked; another program is writing it"
        in ran.err
    )


def test_one_statement_for_many_events(store, path, monkeypatch):
    store.append("tidewatch", [said(str(number)) for number in range(300)], expected_version=5)
    statements = []
    execute_one = Database.execute

    def noting(database, sql, parameters=None):
        statements.append(sql)
        return execute_one(database, sql, parameters)

    monkeypatch.setattr(Database, "execute", noting)
    update(store, path)
    assert sum(sql.startswith('INSERT OR REPLACE INTO "events"') for sql in statements) == 1
    assert execute(path, "SELECT count(*) FROM events_fts") == [(305,)]


def test_plugins_of_sqlite_utils_are_not_loaded(store, path, monkeypatch):
    loaded = []
    monkeypatch.setattr("sqlite_utils.db.ensure_plugins_loaded", lambda: loaded.append(1))
    update(store, path)
    assert not loaded


def test_full_disk_leaves_no_half_database(store, tmp_path, monkeypatch):
    tables = []

    def fail(database):
        tables.extend(database.table_names())
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Database, "enable_wal", fail)
    with pytest.raises(EventStoreError):
        update(store, tmp_path / "audit.db")
    assert {"events", "condensations_fts", "store"} <= set(tables)
    assert list(tmp_path.glob("audit*")) == []


def test_second_name_of_a_killed_run_is_removed(store, path):
    update(store, path)
    path.with_name("audit.db.abcdefgh.part").hardlink_to(path)
    other = path.with_name("audit.db.ijklmnop.part")
    other.touch()
    update(store, path)
    assert sorted(path.parent.glob("audit*")) == [path, other]


@pytest.mark.parametrize("has_file", [False, True])
@pytest.mark.parametrize("checked", [check_target, update])
def test_log_of_a_removed_database_is_named(store, path, checked, has_file):
    """A run was killed, and a person removed the file alone, to begin again."""
    log = path.with_name(f"{path.name}-wal")
    log.write_bytes(b"changes")
    if has_file:
        path.touch()
    with pytest.raises(NoAuditDatabase, match="removed or moved away; delete this log too"):
        checked(store, path)
    assert (log.read_bytes(), path.exists()) == (b"changes", has_file)
    log.unlink()
    checked(store, path)


def link_to_nothing(path):
    path.symlink_to(path.with_name("nothing"))


@pytest.mark.parametrize("checked", [check_target, update])
@pytest.mark.parametrize(
    "make, problem",
    [
        (os.mkfifo, "it is not a regular file"),
        (link_to_nothing, "it is a symbolic link to a file that does not exist"),
    ],
)
def test_what_is_no_file_is_refused_before_a_long_run(store, path, make, problem, checked):
    make(path)
    with pytest.raises(NoAuditDatabase, match=problem):
        checked(store, path)
    assert list(path.parent.glob("audit*")) == [path]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write every folder")
@pytest.mark.parametrize("checked", [check_target, update])
def test_folder_that_cannot_be_written_is_refused_before_a_long_run(store, tmp_path, checked):
    (tmp_path / "read-only").mkdir(mode=0o500)
    with pytest.raises(NoAuditDatabase, match="let this user write the file and its folder"):
        checked(store, tmp_path / "read-only/audit.db")


def test_file_system_without_hard_links(store, path, monkeypatch):
    def refuse(*names):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        update(store, path)
    assert list(path.parent.glob("audit*")) == [path]
    update(store, path)


def test_erasure_meanwhile_is_in_the_next_update(store, path, monkeypatch):
    find = store.conversation

    def then_erased(name, **options):
        row = find(name, **options)
        if row.erased_at is None:
            erased(store, name)
        return row

    monkeypatch.setattr(store, "conversation", then_erased)
    update(store, path)
    update(store, path)
    assert execute(path, "SELECT * FROM events") == []


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(("message", "placed", "program", "again")), st.integers(0, 30))
    ),
    batch=st.sampled_from((1, 3, 1_000)),
)
@settings(max_examples=40)
def test_taken_back_marks_what_figures_do_not_count(steps, batch):
    """The program of a source takes back events, the source writes events again, and the import
    supplies results.
    """
    origin = Origin(format="gemini-cli")
    events = [said("hi", origin=origin)]
    for kind, version in steps:
        if kind == "message":
            event = said("on", origin=origin)
        elif kind == "placed":
            event = Observation(call_id="t", content="", origin=origin, meta={PLACED_FROM: None})
        else:
            reason = WRITTEN_AGAIN if kind == "again" else ""
            event = Retraction(version=version % len(events), reason=reason, origin=origin)
        events.append(event)
    with open_store("memory:") as store, TemporaryDirectory() as folder:
        store.ingest("c", events)
        path = Path(folder, "audit.db")
        with closing(AuditTables(store, path)) as tables:
            tables.batch_size = batch
            tables.catch_up()
        marks = execute(path, "SELECT taken_back FROM events ORDER BY id")
        structural = [event for event in store.events("c") if isinstance(event, Retraction)]
        counts_event = counted_in(structural, len(events))
        assert marks == [(not counts_event(event),) for event in store.events("c")]


def test_tables_that_cannot_be_emptied_are_closed(store, path, monkeypatch):
    """After a restore, a full disk may keep the tables from being emptied."""
    update(store, path)
    execute(path, "UPDATE followed SET position = 1000000")
    opened = []

    def noted(*arguments):
        opened.append(open_database(*arguments))
        return opened[-1]

    def no_room(tables):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(audit_database, "open_database", noted)
    monkeypatch.setattr(AuditTables, "begin_again", no_room)
    with pytest.raises(OSError, match="No space left"):
        AuditTables(store, path)
    (database,) = opened
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        database.execute("SELECT 1")


def test_step_back_costs_what_it_takes_back(path, monkeypatch):
    """A long history grows by steps back: each run reads and marks only the last events."""
    origin = Origin(format="gemini-cli")
    count = 50
    history = [said("on", origin=origin)] * count
    starts = []
    with open_store("memory:") as store, closing(AuditTables(store, path)) as tables:
        store.ingest("c", history)
        tables.catch_up()
        statements = []
        tables._database.conn.set_trace_callback(statements.append)
        log = store.log

        def logged(name, start=0, stop=None):
            starts.append(start)
            return log(name, start, stop)

        monkeypatch.setattr(store, "log", logged)
        for version in (count - 1, count + 1):
            again = Retraction(version=version, reason=WRITTEN_AGAIN, origin=origin)
            history += [again, said("on", origin=origin)]
            store.ingest("c", history)
            tables.catch_up()
    assert starts == [count - 1, count + 1]
    # SQLite also traces the statement for each of its triggers.
    updates = {text for text in statements if text.startswith("UPDATE events ")}
    # Each step takes back one event, and its retraction does not count either.
    assert len(updates) == 4
    marks = execute(path, "SELECT id FROM events WHERE taken_back")
    assert marks == [(count - 1,), (count,), (count + 1,), (count + 2,)]


def test_marks_of_an_older_rule_are_made_again_once(path, monkeypatch):
    """An earlier version of foldlog also marked events that figures count."""
    origin = Origin(format="gemini-cli")
    events = [
        said("on", origin=origin),
        said("taken back by the program", origin=origin),
        Retraction(version=1, origin=origin),
        Retraction(version=0, reason=WRITTEN_AGAIN, origin=origin),
        said("on", origin=origin),
    ]
    supplied = Observation(call_id="t", content="", origin=origin, meta={PLACED_FROM: None})
    query = "SELECT taken_back FROM events ORDER BY conversation, id"
    mark = AuditTables._mark_uncounted
    marked = []

    def noted(tables, name, first_new):
        marked.append(name)
        mark(tables, name, first_new)

    monkeypatch.setattr(AuditTables, "_mark_uncounted", noted)
    with open_store("memory:") as store:
        store.ingest("c", events)
        store.ingest("d", [supplied])
        store.ingest("e", [said("on", origin=origin)])
        update(store, path)
        marks = execute(path, query)
        with closing(AuditTables(store, path)) as tables:
            tables.begin_again()
        update(store, path)
        assert marked == ["c", "c"]  # A new file, and one that is filled again, have the rule.
        with closing(sqlite3.connect(path)) as file, file:
            file.execute("UPDATE events SET taken_back = conversation = 'c' AND id < 4")
            file.execute("DELETE FROM followed WHERE scope LIKE 'marks%'")
        assert execute(path, query) != marks
        update(store, path)
        assert execute(path, query) == marks
        update(store, path)
        assert marked == ["c", "c", "c", "d"]
