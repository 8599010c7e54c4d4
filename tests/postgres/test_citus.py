"""A store on Citus, where ``$FOLDLOG_CITUS_URL`` names a coordinator:
``postgresql://user@host:port/database``, with ``citus.enable_schema_based_sharding`` on and two
workers. The conformance suite runs there too then.
"""

import os
import time

import psycopg
import pytest

from foldlog.eventstore import open_store
from tests.said import say

from .servers import Address


@pytest.fixture
def citus():
    address = os.environ.get("FOLDLOG_CITUS_URL")
    if not address:
        pytest.skip("FOLDLOG_CITUS_URL names no server with Citus")
    return Address(address)


def move(citus, schema):
    """Move a schema to another worker."""
    placed = "SELECT nodename, nodeport FROM citus_shards WHERE table_name::text = %s LIMIT 1"
    others = """SELECT nodename, nodeport FROM pg_dist_node
        WHERE shouldhaveshards AND NOT (nodename = %s AND nodeport = %s) LIMIT 1"""
    with psycopg.connect(citus.url(), autocommit=True) as connection:
        [here] = connection.execute(placed, [f"{schema}.events"]).fetchall()
        [there] = connection.execute(others, here).fetchall()
        connection.execute("SELECT citus_schema_move(%s, %s, %s, 'block_writes')", [schema, *there])


def test_a_follower_misses_nothing_after_the_schema_of_a_store_moved(citus):
    schema = f"moving_{time.time_ns()}"
    url = citus.url(schema=schema, patience_s="60")
    with open_store(url) as store:
        say(store, "c1", "before")
        place = str([*store.follow()][-1].position)
        move(citus, schema)
        say(store, "c1", "after", expected_version=1)
        assert [entry.id for entry in store.follow(place)] == [1]
    with open_store(url) as again:
        say(again, "c1", "later")
        assert [entry.id for entry in again.follow(place)] == [1, 2]
        assert [event.id for event in again.events("c1")] == [0, 1, 2]
