"""Stores of each schema since number 2, with the rows that their version wrote to PostgreSQL."""

import itertools

import pytest

import foldlog
from foldlog.eventstore import open_store
from foldlog.eventstore.recorders.statements import migrations
from tests.golden import postgres
from tests.golden.going_on import check_that_it_goes_on
from tests.golden.make import ARCHIVE, GOLDEN, KEYS, contents, put_objects
from tests.sound import assert_sound

STORES = sorted((GOLDEN / "stores").glob("schema-*.postgresql.json.gz"))
numbers = itertools.count()
each_store = pytest.mark.parametrize("packed", STORES, ids=lambda path: path.name)


@pytest.fixture
def schema(postgres_server):
    name = f"golden_{next(numbers)}"
    yield name
    postgres_server.sql(f"DROP SCHEMA {name} CASCADE")


def test_each_schema_has_a_golden_store():
    assert [path.name for path in STORES] == [
        f"schema-{number}.postgresql.json.gz" for number in migrations("postgresql")
    ]


@each_store
def test_a_golden_store_reads_the_same(packed, schema, postgres_server):
    golden = postgres.read(packed)
    postgres.load(postgres_server.url(), schema, golden)
    with foldlog.open(postgres_server.url(schema=schema), keys=KEYS) as histories:
        assert contents(histories) == golden["contents"]
        assert_sound(histories.store)


@each_store
def test_a_golden_store_goes_on(packed, schema, postgres_server, tmp_path):
    golden = postgres.read(packed)
    objects = tmp_path / "objects"
    put_objects(golden["objects"], objects)
    rows = postgres.moved(golden["rows"], ARCHIVE, f"file://{objects}")
    postgres.load(postgres_server.url(), schema, {**golden, "rows": rows})
    with foldlog.open(postgres_server.url(schema=schema), keys=KEYS) as histories:
        check_that_it_goes_on(histories, golden["contents"]["conversations"], tmp_path)


@each_store
def test_migrated_stores_equal_new_stores(packed, schema, postgres_server):
    """Otherwise an old script was changed, and the stores that it has already migrated lack the
    change.
    """
    postgres.load(postgres_server.url(), schema, postgres.read(packed))
    open_store(postgres_server.url(schema=schema), keys=KEYS).close()
    new = f"{schema}_new"
    open_store(postgres_server.url(schema=new)).close()
    made = postgres.shape(postgres_server.url(), new)
    migrated = postgres.shape(postgres_server.url(), schema)
    postgres_server.sql(f"DROP SCHEMA {new} CASCADE")
    assert made == migrated
