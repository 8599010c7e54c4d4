"""Stores that a released version wrote are read for ever: the same events, heads, Views and
order.
"""

import gzip
import json

import pytest

import foldlog
from foldlog.eventstore import ANY_VERSION, Origin, open_store
from foldlog.projections import audit
from tests.golden.make import GOLDEN, KEYS, LONG, contents, history
from tests.said import said, say
from tests.sound import assert_sound

STORES = sorted((GOLDEN / "stores").glob("*.db.gz"))


def unpacked(packed, folder):
    """Return the URL of a copy of a golden store, which a test may change."""
    path = folder / packed.name.removesuffix(".gz")
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return f"sqlite:///{path}"


def promised(packed):
    return json.loads(packed.with_suffix("").with_suffix(".json").read_text())


def test_there_is_a_golden_store():
    assert [path.name for path in STORES] == ["schema-1.db.gz"]


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
