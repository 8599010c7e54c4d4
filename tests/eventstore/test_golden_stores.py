"""Stores of each schema since number 2 are read for ever: the same events, heads, Views and order.
A store of a development version before is refused, and stays as it is.
"""

import gzip
import json
import sqlite3
from contextlib import closing

import pytest
from click.testing import CliRunner

import foldlog
from foldlog.eventstore import StoreRefused, open_store
from foldlog.eventstore.recorders.sqlite import schema
from foldlog.eventstore.recorders.statements import migrations
from foldlog.projections import audit
from tests.commands import application
from tests.eventstore.newer import become_newer
from tests.golden.going_on import check_that_it_goes_on
from tests.golden.make import ARCHIVE, GOLDEN, KEYS, contents, move_archive, put_objects
from tests.sound import assert_sound
from tests.stored_rows import execute

STORES = sorted((GOLDEN / "stores").glob("schema-*.db.gz"))
DEVELOPMENT = GOLDEN / "stores" / "development.db.gz"
"""Made by a version of 25 November 2026, whose schema had the number 1."""


def unpacked(packed, folder):
    """Return the path of a copy of a golden store, which a test may change."""
    path = folder / packed.name.removesuffix(".gz")
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


@pytest.fixture(params=STORES, ids=lambda path: path.name)
def packed(request):
    return request.param


@pytest.fixture
def path(packed, tmp_path):
    return unpacked(packed, tmp_path)


@pytest.fixture
def golden(packed):
    return json.loads(packed.with_suffix("").with_suffix(".json").read_text())


@pytest.fixture
def promised(golden):
    return {name: golden[name] for name in ("conversations", "order")}


def test_each_schema_has_a_golden_store():
    assert [path.name for path in STORES] == [
        f"schema-{number}.db.gz" for number in migrations("sqlite")
    ]


@pytest.mark.parametrize("mode", ["rwc", "rw", "ro"])
def test_development_store_is_refused(mode, tmp_path):
    path = unpacked(DEVELOPMENT, tmp_path)
    with pytest.raises(StoreRefused) as refused:
        open_store(f"sqlite:///{path}?mode={mode}")
    assert type(refused.value) is StoreRefused, "the store is not damaged"
    assert str(refused.value) == (
        f"{path} was written by a development version of foldlog from before 0.1.0 (its schema 1),"
        " which this version does not read; the store is not damaged: with the version that wrote"
        " it, run 'foldlog export ID --output ID.jsonl' for each conversation, then run 'foldlog"
        " import *.jsonl --db STORE' with this version, for a new STORE"
    )
    assert path.read_bytes() == gzip.decompress(DEVELOPMENT.read_bytes())


COMMANDS = ["list", "store verify", "store vacuum", "store copy {} new.db", "append c1 hi"]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_calls_a_development_store_damaged(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = unpacked(DEVELOPMENT, tmp_path)
    words = command.format(path).split()
    result = CliRunner().invoke(
        application, words if "{}" in command else [*words, "--db", str(path)]
    )
    assert result.exit_code != 0
    assert "was written by a development version" in str(result.exception)
    assert path.read_bytes() == gzip.decompress(DEVELOPMENT.read_bytes())


def test_golden_store_takes_a_later_migration(path, promised, monkeypatch):
    become_newer(
        monkeypatch,
        """ALTER TABLE events ADD COLUMN colour TEXT;
        CREATE TABLE colours (name TEXT) STRICT;
        INSERT INTO colours SELECT kind FROM events WHERE id = 0;
        """,
    )
    with foldlog.open(path, keys=KEYS) as histories:
        assert contents(histories) == promised
        assert_sound(histories.store)
    assert execute(path, "PRAGMA user_version") == [(schema.NEWEST,)]
    assert execute(path, "SELECT count(*) > 0 FROM colours") == [(1,)]


def test_golden_store_reads_the_same(path, promised):
    with foldlog.open(path, keys=KEYS) as histories:
        assert contents(histories) == promised
        assert_sound(histories.store)
        for name, expected in promised["conversations"].items():
            if "events" in expected:
                assert (audit(histories.store, name).findings, name) == ((), name)


def test_golden_store_goes_on(path, golden, tmp_path):
    objects = tmp_path / "objects"
    put_objects(golden["objects"], objects)
    with closing(sqlite3.connect(path)) as connection:
        move_archive(connection, ARCHIVE, f"file://{objects}")
    with foldlog.open(path, keys=KEYS) as histories:
        check_that_it_goes_on(histories, golden["conversations"], tmp_path)


def test_new_store_has_the_migrated_schema(path, tmp_path):
    """Otherwise an old script was changed, and the stores that it has already migrated lack the
    change.
    """
    schemas = []
    for opened in (path, tmp_path / "new.db"):
        open_store(opened).close()
        query = "SELECT type, name, sql FROM sqlite_schema ORDER BY type, name"
        schemas.append(sorted(execute(opened, query)))
    assert schemas[0] == schemas[1]
