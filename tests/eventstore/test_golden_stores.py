"""Stores of each schema since number 2 are read for ever: the same events, heads, Views and order.
A store of a development version before is refused, and stays as it is.
"""

import gzip
import json

import pytest
from typer.testing import CliRunner

import foldlog
from foldlog._cli.application import build
from foldlog.eventstore import ANY_VERSION, Origin, StoreUnusable, open_store
from foldlog.eventstore.recorders.sqlite import schema
from foldlog.eventstore.recorders.statements import migrations
from foldlog.projections import audit
from tests.eventstore.newer import become_newer
from tests.golden.make import GOLDEN, KEYS, LONG, contents, history
from tests.said import said, say
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


def promised(packed):
    return json.loads(packed.with_suffix("").with_suffix(".json").read_text())


def test_there_is_a_golden_store_of_each_schema():
    assert [path.name for path in STORES] == [
        f"schema-{number}.db.gz" for number in migrations("sqlite")
    ]


@pytest.mark.parametrize("mode", ["rwc", "rw", "ro"])
def test_a_store_of_a_development_version_is_refused_and_stays_as_it_is(mode, tmp_path):
    url = unpacked(DEVELOPMENT, tmp_path)
    path = tmp_path / "development.db"
    with pytest.raises(StoreUnusable) as refused:
        open_store(f"{url}?mode={mode}")
    assert type(refused.value) is StoreUnusable  # not StoreDamaged
    assert str(refused.value) == (
        f"{path} was written by a development version of foldlog from before 0.1.0 (its schema 1),"
        " which this version does not read; the store is not damaged: with the version that wrote"
        " it, run 'foldlog export ID --output ID.jsonl' for each conversation, then run 'foldlog"
        " import *.jsonl --db NEW.db' with this version"
    )
    assert path.read_bytes() == gzip.decompress(DEVELOPMENT.read_bytes())


COMMANDS = ["list", "store verify", "store vacuum", "store copy {} new.db", "append c1 hi"]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_calls_a_store_of_a_development_version_damaged(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    unpacked(DEVELOPMENT, tmp_path)
    path = tmp_path / "development.db"
    words = command.format(path).split()
    result = CliRunner().invoke(build(), words if "{}" in command else [*words, "--db", str(path)])
    assert result.exit_code != 0
    assert "was written by a development version" in str(result.exception)
    assert path.read_bytes() == gzip.decompress(DEVELOPMENT.read_bytes())


@pytest.mark.parametrize("packed", STORES, ids=lambda path: path.name)
def test_a_golden_store_is_migrated_to_a_later_schema(packed, tmp_path, monkeypatch):
    become_newer(
        monkeypatch,
        """ALTER TABLE events ADD COLUMN colour TEXT;
        CREATE TABLE colours (name TEXT) STRICT;
        INSERT INTO colours SELECT kind FROM events WHERE id = 0;
        """,
    )
    with open_store(unpacked(packed, tmp_path), keys=KEYS) as store:
        assert contents(store) == promised(packed)
        assert_sound(store)
    path = tmp_path / packed.name.removesuffix(".gz")
    assert execute(path, "PRAGMA user_version") == [(schema.NEWEST,)]
    assert execute(path, "SELECT count(*) > 0 FROM colours") == [(1,)]


@pytest.mark.parametrize("packed", STORES, ids=lambda path: path.name)
def test_a_golden_store_reads_the_same(packed, tmp_path):
    with open_store(unpacked(packed, tmp_path), keys=KEYS) as store:
        assert contents(store) == promised(packed)
        assert_sound(store)
        for name, expected in promised(packed)["conversations"].items():
            if expected["events"]:
                assert (audit(store, name).findings, name) == ((), name)


@pytest.mark.parametrize("packed", STORES, ids=lambda path: path.name)
def test_a_golden_store_goes_on(packed, tmp_path):
    """Every conversation takes an event and a fork; keys and source ids are known again; documents
    read the same.
    """
    with foldlog.open(unpacked(packed, tmp_path), keys=KEYS) as histories:
        store, conversations = histories.store, promised(packed)["conversations"]
        for name, expected in conversations.items():
            if expected["events"]:
                say(store, name, "on")
                store.fork(name, expected["version"], f"fork of {name}")
                assert len(list(store.events(f"fork of {name}"))) == expected["version"]
        for name in ("plain none", "encrypted zstd"):
            repeated = store.append(name, history(), expected_version=0, idempotency_key="filled")
            assert [each.event.id for each in repeated] == list(range(len(history())))
        again = [said("0", origin=Origin(format="golden", id=n)) for n in (0, LONG - 1)]
        assert store.append("long", again, expected_version=ANY_VERSION, dedupe="origin") == ()
        documents = histories["documents"]
        assert documents.document("plan")["steps"] == [1, 2]
        assert documents.attributes() == {"title": "Kites", "tags": ["wind", "sky"]}
        tagged = {row.id for row in histories.list({"tags": ["wind"]}).conversations}
        assert tagged == {"documents", "fork of documents"}
        assert_sound(store)
