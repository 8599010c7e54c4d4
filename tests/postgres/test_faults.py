"""Connections that break, servers that go away, and commits whose answer is lost: each write is
there once, or not at all.
"""

import contextlib
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from unittest import mock

import psycopg
import pytest
from psycopg.pq import ConnStatus

from foldlog import Histories
from foldlog.eventstore import (
    StoreRefused,
    StoreUnavailable,
    VersionConflict,
    open_store,
)
from foldlog.eventstore.maintenance import erase as erasing
from foldlog.eventstore.maintenance.backup import vacuum
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.recorders.postgres import recorder as recorder_module
from foldlog.eventstore.recorders.postgres.open_transaction import OpenTransaction
from foldlog.eventstore.recorders.postgres.recorder import PostgresRecorder
from foldlog.eventstore.recorders.postgres.wire import (
    ConnectionLost,
    IsStandby,
    TryAgain,
    Wire,
    of_driver,
)
from foldlog.eventstore.recorders.types import Conversation, Erasure
from tests.between import before_next_call
from tests.ports import free_port
from tests.reading import reading
from tests.said import said, say, texts
from tests.waiting import in_thread, until

from .conftest import CUTS, before_recovery


@pytest.fixture
def store(via):
    with open_store(via) as store:
        say(store, "warm", "up")
        yield store


def give_up_soon(store):
    """Let a store try for one second to reach its server. Its open connections wait for an answer
    as long as before, because the server may be busy.
    """
    store._recorder._patience_s = 1.0


def test_waiting_for_a_server_is_reported_once(caplog):
    port = free_port()
    with pytest.raises(
        StoreUnavailable,
        match=r"tried for 1 s, the store was not opened; to wait less, set patience_s in the URL",
    ):
        open_store(f"postgresql://agent@127.0.0.1:{port}/history?patience_s=1")
    [notice] = [
        record.getMessage() for record in caplog.records if record.name == "foldlog.store.away"
    ]
    assert "Connection refused" in notice
    assert notice.endswith("; trying again for up to 1 s (patience_s in the URL)")


@pytest.mark.parametrize(
    "hosts, words", [("", "a standby$"), ("&host=127.0.0.1,localhost", "tried for 1 s")]
)
def test_only_a_failover_is_waited_for(url, monkeypatch, hosts, words):
    """A standby that is the only server of the URL is a mistake in the URL."""

    def refuse(recorder):
        raise IsStandby("a standby")

    monkeypatch.setattr(recorder_module, "_STANDBY_S", 0.1)
    monkeypatch.setattr(PostgresRecorder, "_new_connection", refuse)
    with pytest.raises(StoreUnavailable, match=words):
        open_store(url.replace("patience_s=60", "patience_s=1") + hosts)


def test_a_standby_that_is_promoted_soon_is_waited_for(url, monkeypatch):
    connect = PostgresRecorder._new_connection

    def refuse_once(recorder):
        monkeypatch.undo()
        raise IsStandby("a standby")

    monkeypatch.setattr(PostgresRecorder, "_new_connection", refuse_once)
    with open_store(url) as store:
        say(store, "c1", "0")
    assert PostgresRecorder._new_connection is connect


@pytest.mark.parametrize(
    "ends, outcome",
    [
        (
            "at the commit",
            "it is not known whether the events were written: append them again with the same"
            " idempotency key",
        ),
        ("before the append", "nothing was written"),
    ],
)
def test_an_error_says_whether_an_append_is_written(via, proxy, ends, outcome):
    with open_store(via) as store:
        say(store, "c1", "0")
        give_up_soon(store)
        if ends == "at the commit":
            before_recovery(store, proxy.close)
            proxy.order("answer")
        else:
            proxy.close()
        with pytest.raises(StoreUnavailable, match=f"tried for 1 s, {outcome}$"):
            say(store, "c1", "1", expected_version=1)


@pytest.mark.parametrize(
    "state, text, remedy",
    [
        (None, "unsupported startup parameter: options", "the URL needs pooler=prepared"),
        ("42P05", "die vorbereitete Anweisung existiert bereits", "pooler=transaction if it is"),
        ("26000", "l'instruction n'existe pas", "pooler=transaction if it is"),
        ("57014", "запрос отменён", "ALTER ROLE ... SET statement_timeout = 0"),
        (
            "0A000",
            "not allowed in statement pooling mode",
            "set pool_mode of PgBouncer to transaction",
        ),
    ],
)
def test_an_error_behind_a_pooler_has_its_remedy(state, text, remedy):
    error = of_driver(psycopg.OperationalError(text), "a server", state)
    assert remedy in str(error)
    assert isinstance(error, StoreRefused) == (state != "57014")


@pytest.mark.parametrize(
    "state, text, kind, remedy",
    [
        (None, "server is in hot standby mode", IsStandby, "add mode=ro to the URL"),
        (None, "FATAL: password authentication failed", StoreUnavailable, "failed$"),
        (None, "Connection refused", ConnectionLost, "refused$"),
        (
            "42P01",
            "relation f.events does not exist",
            StoreUnavailable,
            "restore its schema from a",
        ),
        ("25006", "cannot execute INSERT", ConnectionLost, "INSERT$"),
        ("57P01", "terminating connection", ConnectionLost, "connection$"),
        ("40P01", "deadlock detected", TryAgain, "detected$"),
        ("55P03", "canceling statement due to lock timeout", TryAgain, "timeout$"),
        ("53300", "too many clients", TryAgain, "clients$"),
        ("XX000", "the worker is gone", StoreUnavailable, "gone$"),
    ],
)
def test_the_state_of_an_error_says_what_helps(state, text, kind, remedy):
    error = of_driver(psycopg.OperationalError(text), "a server", state)
    assert type(error) is kind
    assert re.search(remedy, str(error))
    assert str(error).startswith(f"a server: {text}")
    of_citus = of_driver(psycopg.OperationalError(text), "a server", state, is_on_citus=True)
    assert type(of_citus) is (ConnectionLost if state == "XX000" else kind)


def test_a_reader_cannot_vacuum(url):
    open_store(url).close()
    with (
        open_store(f"{url}&mode=ro") as store,
        pytest.raises(StoreRefused, match="to write, leave mode=ro out"),
    ):
        vacuum(store)


def test_a_server_that_closes_between_two_results_is_lost():
    class Closed:
        status = ConnStatus.BAD
        is_busy = None

        def get_result(self):
            return None

    connection = Wire.__new__(Wire)
    connection._unread = [["rows"]]
    connection._pg = Closed()
    connection._wait = lambda *_: None
    with pytest.raises(psycopg.OperationalError, match="the server closed the connection"):
        connection._results()


@pytest.mark.parametrize("cut", CUTS)
def test_a_cut_append_is_stored_once(store, proxy, cut):
    proxy.order(cut)
    recorded = say(store, "c1", "0", expected_version=0)
    assert [*store.follow()][1:] == [*recorded]
    for _ in range(2):
        proxy.order(cut)
    say(store, "c1", "1", "2", expected_version=1, idempotency_key="turn-1")
    for text in "345":
        proxy.order(cut)
        recorded = say(store, "c1", text)
    assert proxy.cuts == 6
    assert texts(store, "c1") == list("012345")
    assert list(recorded) == list(store.follow())[-1:]


@pytest.mark.parametrize("cut", CUTS)
def test_a_lease_survives_cut_connections(store, proxy, cut):
    history = Histories(store)["c1"]
    proxy.order(cut)
    with history.lease(worker="one") as lease:
        for n in range(2):
            proxy.order(cut)
            history.append(said(str(n)), expected_version=n)
        proxy.order(cut)
        assert history._lease_block.renew()
        assert lease.held
        proxy.order(cut)
    assert proxy.cuts == 5
    assert history.current_lease() is None
    assert texts(store, "c1") == ["0", "1"]


def test_a_lost_commit_yields_to_another_writer(store, proxy, url):
    """The commit never arrives. Before the writer tries again, another one appends at the same
    version, which is a conflict.
    """
    say(store, "c1", "0")
    with open_store(url) as other:
        before_recovery(store, lambda: say(other, "c1", "theirs"))
        proxy.order("request")
        with pytest.raises(VersionConflict):
            say(store, "c1", "ours", expected_version=1)
    assert texts(store, "c1") == ["0", "theirs"]


def test_a_vanished_client_lets_its_conversation_go(store, proxy):
    """The commit arrived, its answer did not, and the server does not know that the client has
    gone.
    """
    proxy.order("answer", linger=True)
    say(store, "c1", "0", expected_version=0)
    assert proxy.cuts == 1
    say(store, "c1", "1", expected_version=1)
    assert texts(store, "c1") == ["0", "1"]


def test_writes_are_found_after_a_lost_answer(store, proxy):
    """Work that would be refused the second time is not run a second time."""
    recorder = store._recorder
    runs = []

    def lose(work):
        proxy.order("answer")
        runs.clear()
        recorder.transact(lambda transaction: (runs.append(1), work(transaction)))
        assert len(runs) == 1

    staged = recorder.transact(
        lambda transaction: transaction.begin(Conversation(0, "c1", 1, b"salt", visible=False))
    ).key
    lose(
        lambda transaction: transaction.begin(
            Conversation(0, "c2", 1, b"other salt", visible=False)
        )
    )
    lose(lambda transaction: transaction.publish(staged, 1))
    lose(lambda transaction: transaction.set_value("tracking app", str(7)))
    encrypted = Conversation(staged, "c1", 1, b"new salt", key_id="k", sealed_key=b"sealed")
    lose(lambda transaction: transaction.set_key(encrypted))
    lose(lambda transaction: transaction.erase(staged, Erasure(5, "asked to", 0, b"head")))
    assert proxy.cuts == 5


def test_a_commit_that_ends_after_the_search_for_it(store, proxy, monkeypatch):
    """The second attempt looks for the first before the server has committed it, and then meets it."""
    find = OpenTransaction.was_committed
    found = [False]

    def find_later(transaction, earlier):
        return found.pop() if found else find(transaction, earlier)

    monkeypatch.setattr(OpenTransaction, "was_committed", find_later)
    proxy.order("answer")

    def begin(transaction):
        return transaction.begin(Conversation(0, "c1", 1, b"salt")).key

    key = store._recorder.transact(begin)
    assert found == []
    assert proxy.cuts == 1
    stored = store._recorder.query(lambda reader: store.database.find(reader, "c1"))
    assert stored.key == key
    # The id belongs to the first call. A second call must not take its conversation for its own.
    with pytest.raises(StoreUnavailable) as refused:
        store._recorder.transact(begin)
    assert refused.value.kind == "taken"


def test_ended_connections_are_not_tried(postgres_url, postgres_server):
    with open_store(postgres_url()) as store:
        say(store, "c1", "0")
        with contextlib.ExitStack() as opened:
            for _ in range(8):
                opened.enter_context(reading(store, "c1"))
        with mock.patch.object(store._recorder, "_recover", side_effect=AssertionError):
            end_connections(postgres_server)
            assert store.version("c1") == 1
            end_connections(postgres_server)
            assert texts(store, "c1") == ["0"]
            end_connections(postgres_server)
            say(store, "c1", "1")
        assert store.version("c1") == 2


def end_connections(server):
    server.sql(
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name ="
        " 'foldlog'"
    )


def test_writers_survive_ended_connections(postgres_url, postgres_server):
    with open_store(postgres_url()) as store:
        stop = threading.Event()
        acknowledged = dict.fromkeys(("c0", "c1", "c2", "c3"), 0)

        def write(name):
            while not stop.is_set():
                version = acknowledged[name]
                say(store, name, str(version), expected_version=version)
                acknowledged[name] = version + 1

        def wait_for_appends(count):
            enough = sum(acknowledged.values()) + count
            until(lambda: sum(acknowledged.values()) >= enough)

        with contextlib.ExitStack() as writers:
            for name in acknowledged:
                writers.enter_context(in_thread(partial(write, name), stop.set))
            for _ in range(3):
                wait_for_appends(20)
                end_connections(postgres_server)
            wait_for_appends(20)
        for name, version in acknowledged.items():
            assert texts(store, name) == [str(n) for n in range(version)]
        assert len(list(store.follow())) == sum(acknowledged.values())


def test_a_server_that_stays_away(via, proxy):
    with open_store(via) as store:
        say(store, "c1", "0")
        give_up_soon(store)
        proxy.close()
        with pytest.raises(StoreUnavailable, match="tried for 1 s, nothing was written"):
            say(store, "c1", "1", expected_version=1)
        with pytest.raises(StoreUnavailable, match="tried for 1 s, nothing was read"):
            store.version("c1")


def test_an_erasure_whose_server_goes_away_is_a_finding_until_the_vacuum(
    via, proxy, url, monkeypatch
):
    """The conversation is erased for every reader, but a failover came before its rows were
    deleted.
    """

    def findings(store):
        return [str(finding) for verdict in verify(store) for finding in verdict.findings]

    with open_store(url) as store:
        say(store, "c1", "0")
    with open_store(via) as store:
        give_up_soon(store)
        before_next_call(monkeypatch, erasing, "_delete_rows", proxy.close)
        with pytest.raises(StoreUnavailable, match=r"is erased for every reader, but not all"):
            erasing.erase(store, "c1", reason="asked to")
    with open_store(url) as store:
        assert findings(store) == [
            "its erasure is not complete; run 'foldlog store vacuum' to complete it"
        ]
        vacuum(store)
        assert findings(store) == []


CANCEL_WAITS = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


def commits_wait(server):
    """Return whether a commit waits for a standby. Sessions know a new setting before commits
    follow it, because another process of the server tells them to wait.
    """
    warnings = []
    with psycopg.connect(server.url(), autocommit=True) as probe, ThreadPoolExecutor(1) as threads:
        probe.add_notice_handler(warnings.append)
        commit = threads.submit(probe.execute, "SELECT pg_logical_emit_message(true, 'probe', '')")
        of_probe = f"{CANCEL_WAITS} AND pid = {probe.info.backend_pid}"
        until(lambda: commit.done() or server.sql(of_probe) == "t")
        commit.result()
    return bool(warnings)


@contextlib.contextmanager
def waiting_for_nobody(server):
    """Let commits wait for a standby that does not exist, and tell them again and again not to
    wait.
    """
    ended = threading.Event()

    def cancel():
        with psycopg.connect(server.url(), autocommit=True) as canceling:
            while not ended.wait(0.1):
                canceling.execute(CANCEL_WAITS)

    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    server.reload()
    try:
        until(lambda: commits_wait(server))
        with in_thread(cancel, ended.set):
            yield
    finally:
        server.sql("ALTER SYSTEM RESET synchronous_standby_names")
        server.reload()


def test_what_no_standby_confirmed_is_not_acknowledged(postgres_url, postgres_server):
    """A server that is told to wait no longer for its standby commits, and calls that a success
    with a warning.
    """
    with open_store(postgres_url().replace("patience_s=60", "patience_s=2")) as store:
        say(store, "c1", "0")
        with waiting_for_nobody(postgres_server):
            # The second time, the event is already stored, but still no standby has confirmed it.
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match="no standby has confirmed it"):
                    say(store, "c1", "1", expected_version=1, idempotency_key="turn-1")
        [recorded] = say(store, "c1", "1", expected_version=1, idempotency_key="turn-1")
        assert (recorded.id, store.version("c1")) == (1, 2)


def test_a_guard_that_outlasts_the_server(postgres_url, postgres_server):
    """The guard is not called again, because it would be as slow again."""
    url = postgres_url()
    with open_store(url) as other:
        say(other, "c1", "0", "1")
    with open_store(url + "&options=-c%20idle_in_transaction_session_timeout%3D200ms") as store:
        versions = []

        def slow(snapshot):
            versions.append(snapshot.version)
            sessions = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'"
            until(lambda: postgres_server.sql(sessions) == "0")

        def slow_and_read(snapshot):
            slow(snapshot)
            list(snapshot.events())

        for guard in (slow, slow_and_read):
            with pytest.raises(
                StoreUnavailable, match=r"a guard .* the server ends a .*nothing was written"
            ):
                say(store, "c1", "2", expected_version=2, guard=guard)
        assert versions == [2, 2]
        assert store.version("c1") == 2


def test_a_long_wait_names_who_holds_the_lock(postgres_url):
    url = postgres_url()
    patient = "&options=-c%20idle_in_transaction_session_timeout%3D60s"
    with (
        psycopg.connect(url.partition("?")[0]) as holding_others,
        open_store(url + patient) as holding,
        open_store(url.replace("patience_s=60", "patience_s=2")) as waiting,
    ):
        holding_others.execute("SELECT pg_advisory_lock(n) FROM generate_series(1, 50) n")
        say(holding, "c1", "0")
        recorder = holding._recorder
        refused = []

        def hold(transaction):
            transaction.conversation("c1")
            transaction.value("last_position")  # This question sends the server the lock.
            if not refused:
                with ThreadPoolExecutor() as others, pytest.raises(StoreUnavailable) as error:
                    others.submit(waiting.append, "c1", said("1"), expected_version=1).result()
                refused.append(str(error.value))

        recorder.transact(hold)
        assert re.search(
            r"tried for 2 s, nothing was written; the conversation is locked by session \d+ of"
            r" 'foldlog' at 127.0.0.1, "
            r"which has been idle in transaction",
            refused[0],
        )


def test_a_child_process_has_its_own_connections(postgres_url, postgres_server):
    with open_store(postgres_url() + "&application_name=forked") as store:
        say(store, "c1", "0")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                say(store, "c1", "child")
                sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'forked'"
                status = 0 if postgres_server.sql(sessions) == "2" else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        say(store, "c1", "parent")
        assert texts(store, "c1") == ["0", "child", "parent"]
