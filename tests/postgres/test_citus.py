"""A store on Citus, where ``$FOLDLOG_CITUS_URL`` names a coordinator:
``postgresql://user@host:port/database``, with ``citus.enable_schema_based_sharding`` on and two
workers. The conformance suite runs there too then.
"""

import os
import re
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import foldlog
from foldlog.eventstore import StoreRefused, StoreUnavailable, open_store
from foldlog.eventstore.maintenance.backup import vacuum
from foldlog.eventstore.recorders.postgres.recorder import ON_CITUS
from foldlog.eventstore.recorders.postgres.setup import in_schema
from foldlog.eventstore.recorders.postgres.wire import ConnectionLost, of_driver
from foldlog.eventstore.recorders.statements import statements
from tests.privacy import erased
from tests.said import said, say, texts

from .every_operation import run
from .servers import Address
from .test_statements import REFUSED_BY_CITUS


@pytest.fixture
def citus():
    address = os.environ.get("FOLDLOG_CITUS_URL")
    if not address:
        pytest.skip("FOLDLOG_CITUS_URL names no server with Citus")
    return Address(address)


@pytest.fixture
def schema(citus):
    """The name of a new schema. It is dropped at the end, and so are the schemas of several stores."""
    schema = f"citus_{time.time_ns()}"
    yield schema
    query = "SELECT nspname::text FROM pg_namespace WHERE starts_with(nspname, %s)"
    with psycopg.connect(citus.url(), autocommit=True) as connection:
        for (made,) in connection.execute(query, [schema]).fetchall():
            connection.execute(f"DROP SCHEMA {made} CASCADE".encode())


def worker_of(connection, schema):
    """Return the host and the port of the worker that has a schema."""
    query = "SELECT nodename, nodeport FROM citus_shards WHERE table_name::text = %s"
    [worker] = connection.execute(query, [f"{schema}.events"]).fetchall()
    return worker


def move(citus, schema):
    """Move a schema to another worker."""
    others = """SELECT nodename, nodeport FROM pg_dist_node
        WHERE shouldhaveshards AND NOT (nodename = %s AND nodeport = %s) LIMIT 1"""
    with psycopg.connect(citus.url(), autocommit=True) as connection:
        here = worker_of(connection, schema)
        [there] = connection.execute(others, here).fetchall()
        connection.execute("SELECT citus_schema_move(%s, %s, %s, 'block_writes')", [schema, *there])


def test_every_operation_works(citus, schema):
    stores = os.environ.get("FOLDLOG_POSTGRES_STORES", "1")
    options = {"stores": stores} if stores != "1" else {}
    outcomes = [*run(citus.url(schema=schema, **options))]
    assert [outcome for outcome in outcomes if outcome.error] == []


def test_a_follower_survives_a_moved_schema(citus, schema):
    url = citus.url(schema=schema, patience_s="60")
    with open_store(url) as store:
        say(store, "c1", "before")
        place = str([*store.follow()][-1].position)
        move(citus, schema)
        say(store, "c1", "after")
        assert [entry.id for entry in store.follow(place)] == [1]
    with open_store(url) as again:
        say(again, "c1", "later")
        assert [entry.id for entry in again.follow(place)] == [1, 2]
        assert [event.id for event in again.events("c1")] == [0, 1, 2]


def test_a_schema_moves_only_between_transactions(citus, schema):
    """Otherwise a transaction gets its number from one worker and writes its events on another."""
    waiting = """SELECT FROM pg_stat_activity
        WHERE query LIKE 'SELECT citus_schema_move%' AND wait_event_type = 'Lock'"""
    with (
        open_store(citus.url(schema=schema)) as store,
        psycopg.connect(citus.url(), autocommit=True) as observer,
        ThreadPoolExecutor() as pool,
    ):
        say(store, "c1", "before")

        def read_and_wait(transaction):
            transaction.conversation("c1")
            moving = pool.submit(move, citus, schema)
            while not moving.done() and not observer.execute(waiting).fetchall():
                time.sleep(0.05)
            return moving, moving.done()

        moving, is_moved = store._recorder.transact(read_and_wait)
        moving.result()
        assert not is_moved
        say(store, "c1", "after")


def test_an_erasure_asks_its_own_worker(citus, schema):
    with (
        open_store(citus.url(schema=schema, stores="4")) as store,
        psycopg.connect(citus.url(), autocommit=True) as connection,
    ):
        names = [f"c{n}" for n in range(20)]
        for name in names:
            say(store, name, "0", "1")
        workers = {
            name: worker_of(connection, f"{schema}_{store._recorder.home(name):02d}")
            for name in names
        }
        here = workers["c0"]
        elsewhere = next(worker for worker in workers.values() if worker != workers["c0"])
        host, port = here
        with psycopg.connect(
            citus.url(), host=host, port=port, application_name="report"
        ) as reader:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT 1")
            assert erased(store, "c0").bytes_pending
            other = next(name for name in names if workers[name] == elsewhere)
            assert not erased(store, other).bytes_pending
            with pytest.raises(StoreUnavailable, match=r"session \d+ of 'report'"):
                store._recorder.compact(0)
        assert not vacuum(store).bytes_pending


@pytest.mark.parametrize("stores", ["1", "4"])
def test_a_search_index_is_refused(citus, schema, stores):
    options = {"stores": stores} if stores != "1" else {}
    with pytest.raises(StoreRefused, match="needs triggers, which Citus does not support"):
        foldlog.open(citus.url(schema=schema, **options), search_index=True)


@pytest.mark.parametrize("rows", [1, 3])
def test_events_without_a_position_are_stored(citus, schema, rows):
    """If a null made a whole value null, Citus would see no table in the statement, and would
    insert nothing.
    """
    with open_store(citus.url(schema=schema)) as store:
        store.ingest("c1", map(said, "abc"[:rows]))
        assert texts(store, "c1") == [*"abc"[:rows]]


@pytest.mark.parametrize("state", ["XX000", "58030"])
def test_a_worker_that_goes_away(state):
    """A server alone reports a damaged file or a full disk with these codes."""
    error = psycopg.errors.lookup(state)("server closed the connection unexpectedly")
    assert isinstance(of_driver(error, "a server", state, is_on_citus=True), ConnectionLost)
    assert not isinstance(of_driver(error, "a server", state), ConnectionLost)


PLANNED = ("SELECT", "(SELECT", "WITH", "INSERT", "UPDATE", "DELETE")
PLACES = {"{here}": "{schema}.here()", "{timeline}": "{schema}.timeline()", "{store}": "0"}
VALUES = {
    "bigint": "1",
    "boolean": "true",
    "bytea": "'[]'",
    "bigint[]": "'{1}'",
    "boolean[]": "'{true}'",
    "bytea[]": "'{a}'",
}


@pytest.fixture
def made(citus, schema):
    """A connection, and the schema of an empty store."""
    open_store(citus.url(schema=schema)).close()
    with psycopg.connect(citus.url(), autocommit=True) as connection:
        yield connection, schema


def test_citus_plans_each_statement(made):
    connection, schema = made
    refused = {}
    for name, statement in statements("postgresql", ON_CITUS).items():
        # Citus refuses a search index, so its statements are left out.
        if not statement.startswith(PLANNED) or "{schema}.search_" in statement:
            continue
        for place, words in PLACES.items():
            statement = statement.replace(place, words)
        types = dict(re.findall(r"\$(\d+)::(\w+(?:\[\])?)", statement))
        values = [VALUES[types[str(n)]] for n in range(1, len(types) + 1)]
        query = in_schema(schema, statement.replace("%s", "NULL")).decode()
        try:
            connection.execute(f"PREPARE {name} AS {query}".encode())
            execute = f"EXECUTE {name}({', '.join(values)})" if values else f"EXECUTE {name}"
            connection.execute(f"EXPLAIN {execute}".encode())
        except psycopg.Error as error:
            refused[name] = str(error)
    assert refused == {}


@pytest.mark.parametrize("reason", REFUSED_BY_CITUS)
def test_citus_refuses_what_statements_finds(made, reason):
    connection, schema = made
    for statement in REFUSED_BY_CITUS[reason]:
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            connection.execute(in_schema(schema, statement))
