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
    """Return the URL of a copy of a golden store, which a test may change."""
    path = folder / packed.name.removesuffix(".gz")
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return f"sqlite:///{path}"


def golden(packed):
    return json.loads(packed.with_suffix("").with_suffix(".json").read_text())


def promised(packed):
    return {name: golden(packed)[name] for name in ("conversations", "order")}


@pytest.fixture
def objects(tmp_path):
    """A folder for the objects of archived conversations."""
    return tmp_path / "objects"


def test_each_schema_has_a_golden_store():
    assert [path.name for path in STORES] == [
        f"schema-{number}.db.gz" for number in migrations("sqlite")
    ]


@pytest.mark.parametrize("mode", ["rwc", "rw", "ro"])
def test_development_store_is_refused(mode, tmp_path):
    url = unpacked(DEVELOPMENT, tmp_path)
    path = tmp_path / "development.db"
    with pytest.raises(StoreRefused) as refused:
        open_store(f"{url}?mode={mode}")
    assert type(refused.value) is StoreRefused  # not StoreDamaged
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
    unpacked(DEVELOPMENT, tmp_path)
    path = tmp_path / "development.db"
    words = command.format(path).split()
    result = CliRunner().invoke(
        application, words if "{}" in command else [*words, "--db", str(path)]
    )
    assert result.exit_code != 0
    assert "was written by a development version" in str(result.exception)
    assert path.read_bytes() == gzip.decompress(DEVELOPMENT.read_bytes())


@pytest.mark.parametrize("packed", STORES, ids=lambda path: path.name)
def test_golden_store_takes_a_later_migration(packed, tmp_path, monkeypatch):
    become_newer(
        monkeypatch,
        """ALTER TABLE events ADD COLUMN colour TEXT;
        CREATE TABLE colours (name TEXT) STRICT;
        INSERT INTO colours SELECT kind FROM events WHERE id = 0;
        """,
    )
    with foldlog.open(unpacked(packed, tmp_path), keys=KEYS) as histories:
        assert contents(histories) == promised(packed)
        assert_sound(histories.store)
    path = tmp_path / packed.name.removesuffix(".gz")
    assert execute(path, "PRAGMA user_version") == [(schema.NEWEST,)]
    assert execute(path, "SELECT count(*) > 0 FROM colours") == [(1,)]


@pytest.mark.parametrize("packed", STORES, ids=lambda path: path.name)
def test_golden_store_reads_the_same(packed, tmp_path):
    with foldlog.open(unpacked(packed, tmp_path), keys=KEYS) as histories:
        assert contents(histories) == promised(packed)
        assert_sound(histories.store)
        for name, expected in promised(packed)["conversations"].items():
            if "events" in expected:
                assert (audit(histories.store, name).findings, name) == ((), name)


@pytest.mark.parametrize("packed", STORES, ids=lambda path: path.name)
def test_golden_store_goes_on(packed, tmp_path, objects):
    put_objects(golden(packed)["objects"], objects)
    url = unpacked(packed, tmp_path)
    with closing(sqlite3.connect(tmp_path / packed.name.removesuffix(".gz"))) as connection:
        move_archive(connection, ARCHIVE, f"file://{objects}")
    with foldlog.open(url, keys=KEYS) as histories:
        check_that_it_goes_on(histories, promised(packed)["conversations"], tmp_path)


@pytest.mark.parametrize("packed", STORES, ids=lambda path: path.name)
def test_new_store_has_the_migrated_schema(packed, tmp_path):
    """A change of an old script would be no migration: the stores of its number would lack it."""
    open_store(unpacked(packed, tmp_path)).close()
    open_store(f"sqlite:///{tmp_path}/new.db").close()
    migrated, new = (
        sorted(execute(path, "SELECT type, name, sql FROM sqlite_schema ORDER BY type, name"))
        for path in (tmp_path / packed.name.removesuffix(".gz"), tmp_path / "new.db")
    )
    assert migrated == new
