"""An erasure returns when no new reader sees the data. Numbers of the server, and not its words,
prove that VACUUM removed the rows.
"""

import threading

import psycopg
import pytest

from foldlog.eventstore import open_store
from foldlog.eventstore.errors import StoreUnavailable
from foldlog.eventstore.maintenance.backup import vacuum
from foldlog.eventstore.recorders.postgres import deleted_rows
from tests.conformance.conftest import noted
from tests.privacy import erased, redacted
from tests.said import say
from tests.waiting import until

from .servers import Server, new_primary


@pytest.fixture
def store(url):
    with open_store(url) as store:
        for name in ("c1", "c2"):
            say(store, name, "0", "1", "2")
        yield store


@pytest.fixture
def vacuums(monkeypatch):
    """A function that returns the VACUUM statements that were sent."""
    calls = noted(monkeypatch, psycopg.Connection, "execute")
    return lambda: [query for _, query, *_ in calls if query[:6] == b"VACUUM"]


def connect(url, **options):
    return psycopg.connect(url.partition("?")[0], **options)


class OfCitus:
    """A connection to a coordinator whose worker answers ``rows``."""

    def __init__(self, *rows):
        self._rows = rows

    def execute(self, query, parameters=()):
        return self

    def fetchall(self):
        return [*self._rows]


STATEMENTS = {"node_horizon": b"SELECT", "on_worker": b"SELECT"}


def test_an_answer_of_a_lost_worker_is_no_document():
    """The text of its error stands where its answer would."""
    lost = OfCitus((False, "connection to the remote node localhost:5433 failed"))
    with pytest.raises(StoreUnavailable, match="remote node localhost:5433 failed"):
        deleted_rows.Tables(lost, STATEMENTS, is_on_citus=True).horizon()
    there = OfCitus((True, '{"number": 7, "kind": "session", "name": "1"}'))
    assert deleted_rows.Tables(there, STATEMENTS, is_on_citus=True).horizon().number == 7


def test_an_erasure_beside_a_lost_worker_has_its_receipt(store, monkeypatch):
    def refuse(tables):
        raise StoreUnavailable("the Citus worker does not answer", kind="read")

    with monkeypatch.context() as patch:
        patch.setattr(deleted_rows.Tables, "relations", refuse)
        assert erased(store, "c1").bytes_pending
        with pytest.raises(StoreUnavailable, match="Citus worker does not answer"):
            store._recorder.compact(0)
    assert not vacuum(store).bytes_pending


class CanceledLate:
    """A connection whose vacuum ends while its cancellation is under way."""

    def __init__(self):
        self._is_canceling = threading.Event()
        self._has_ended = threading.Event()
        self.is_canceled = False

    def execute(self, query):
        assert self._is_canceling.wait(10)
        self._has_ended.set()

    def cancel_safe(self, timeout):
        self._is_canceling.set()
        assert self._has_ended.wait(10)
        self._has_ended.clear()
        self._has_ended.wait(0.05)  # During this time, a next statement would begin.
        self.is_canceled = True
        raise psycopg.OperationalError("the server is away")


def test_a_late_cancellation_ends_no_later_statement():
    """Otherwise an erasure said that its server was away, because its mark was not deleted."""
    connection = CanceledLate()
    deleted_rows.Tables(connection, {}, is_on_citus=False).freeze(["foldlog.events"], 0)
    assert connection.is_canceled


def reading(url, **options):
    """Begin a transaction that sees the present state until it is closed."""
    connection = connect(url, **options)
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    connection.execute("SELECT 1")
    return connection


@pytest.mark.parametrize(
    "remove",
    [
        lambda store: erased(store, "c1"),
        lambda store: redacted(store, "c1", 1),
    ],
    ids=["erase", "redact"],
)
def test_a_removal_does_not_wait_for_readers(url, store, vacuums, remove):
    with reading(url, application_name="reports") as reader:
        assert remove(store).bytes_pending
        assert len(vacuums()) == 1
        named = rf"session {reader.info.backend_pid} of 'reports', idle in transaction for \d+ s"
        with pytest.raises(StoreUnavailable, match=named):
            store._recorder.compact(0)
    assert not erased(store, "c2").bytes_pending
    assert not vacuum(store).bytes_pending


def test_no_word_of_the_server_is_read(store, monkeypatch):
    for text in ("message_primary", "message_detail", "message_hint", "severity"):
        words = property(lambda diagnostic: "etwas anderes")
        monkeypatch.setattr(psycopg.errors.Diagnostic, text, words)
    assert not erased(store, "c1").bytes_pending


def test_a_later_reader_holds_nothing(url, store):
    erased(store, "c1", complete=False)
    with reading(url):
        assert not vacuum(store).bytes_pending


def test_a_prepared_transaction_is_named(store, postgres_server):
    postgres_server.sql("BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'forgotten'")
    try:
        assert erased(store, "c1").bytes_pending
        with pytest.raises(StoreUnavailable, match="prepared transaction 'forgotten'"):
            store._recorder.compact(0)
    finally:
        postgres_server.sql("ROLLBACK PREPARED 'forgotten'")
    store._recorder.compact(0)


def test_sessions_of_another_database(url, store, postgres_server):
    postgres_server.sql("CREATE DATABASE elsewhere")
    other_url = url.replace("/postgres?", "/elsewhere?")
    try:
        with reading(other_url):
            assert not erased(store, "c1").bytes_pending
        with connect(other_url, application_name="loading") as writer:
            writer.execute("SELECT pg_current_xact_id()")
            assert erased(store, "c2").bytes_pending
            with pytest.raises(StoreUnavailable, match="of 'loading'"):
                store._recorder.compact(0)
    finally:
        postgres_server.sql("DROP DATABASE elsewhere WITH (FORCE)")


def test_rows_on_a_page_in_use(url, schema, store):
    """VACUUM skips such a page, and says so only in words and in a number."""
    erased(store, "c1", complete=False)
    with connect(url) as reader:
        reader.execute(f"DECLARE slow CURSOR FOR SELECT * FROM {schema}.events")
        reader.execute("FETCH 1 FROM slow")
        with pytest.raises(StoreUnavailable, match="reads a page with deleted rows"):
            store._recorder.compact(0.1)
        assert store.database.bytes_pending
    store._recorder.compact(0)
    assert not store.database.bytes_pending


def test_tables_are_frozen_without_counters(url, store, vacuums):
    with connect(url, autocommit=True) as owner:
        owner.execute("ALTER DATABASE postgres SET track_counts = off")
        try:
            assert not erased(store, "c1").bytes_pending
        finally:
            owner.execute("ALTER DATABASE postgres RESET track_counts")
    assert [sent.startswith(b"VACUUM (FREEZE)") for sent in vacuums()] == [False, True]


@pytest.mark.long
def test_the_slot_of_a_lost_standby_is_named(folder):
    """Its standby had a reader, and sent that as feedback, before it was lost."""
    primary = new_primary(folder / "primary", {"wal_level": "replica"})
    standby = Server(folder / "standby")
    try:
        with open_store(primary.url()) as store:
            say(store, "c1", "0")
            primary.sql("SELECT pg_create_physical_replication_slot('east')")
            standby.follow(primary, "east")
            standby.configure({"primary_slot_name": "east", "hot_standby_feedback": "on"})
            standby.start()
            reader = reading(standby.url())
            until(lambda: primary.sql("SELECT xmin FROM pg_replication_slots"))
            standby.kill()
            reader.close()
            until(lambda: not primary.sql("SELECT pid FROM pg_stat_replication"))
            assert erased(store, "c1").bytes_pending
            with pytest.raises(StoreUnavailable, match="replication slot 'east' may still read"):
                store._recorder.compact(0)
            primary.sql("SELECT pg_drop_replication_slot('east')")
            assert not vacuum(store).bytes_pending
    finally:
        primary.remove()
