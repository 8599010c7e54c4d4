"""``store_info`` describes and counts the contents of a store, on each database."""

import json
from collections.abc import Mapping

from msgspec.structs import asdict

import foldlog
from foldlog._reports.store_info import store_info
from foldlog.eventstore import Store
from foldlog.eventstore.recorders.statements import migrations
from foldlog.eventstore.recorders.types import Conversation
from tests.conformance.conftest import ENCRYPTS
from tests.privacy import erased
from tests.said import said, say

OF_A_DATABASE = ("database", "schema", "made_by", "uuid", "bytes", "bytes_pending")


def counts(store) -> Mapping[str, object]:
    """Return what is not 0, without what depends on the database."""
    info = asdict(store_info(store))
    return {name: value for name, value in info.items() if value and name not in OF_A_DATABASE}


def test_an_empty_store_contains_nothing(store):
    info = store_info(store)
    dialect = "postgresql" if info.database == "postgresql" else "sqlite"
    assert (info.made_by, info.schema) == (
        f"foldlog {foldlog.__version__}",
        max(migrations(dialect)),
    )
    assert info.uuid == store.database.uuid
    assert bool(info.bytes) == (info.database != "memory")
    assert info.database in ("sqlite", "postgresql", "memory")
    assert counts(store) == {}


def test_counts_of_contents_and_pending_work(store, tmp_path):
    histories = foldlog.Histories(store)
    say(store, "c1", "0", "1")
    histories["c1"].fork(1, id="fork").append(said("2"))
    histories["c1"].set_attributes(user="ann")
    say(store, "gone", "3")
    erased(store, "gone")
    path = tmp_path / "chat.json"
    path.write_text(json.dumps([{"role": "user", "content": text} for text in "ab"]))
    histories.import_(path, conversation="chat")
    store.database.recorder.transact(
        lambda transaction: transaction.leave_unfinished(
            transaction.begin(Conversation(0, "staged", 5, b"s" * 16, visible=False)).key, "import"
        )
    )
    assert counts(store) == {
        "conversations": 3,
        "forks": 1,
        "erased": 1,
        "events": 4,
        "document_changes": 1,
        "sources": 1,
        "records": 2,
        "records_pending": 2,
        "unfinished": {"import": 1},
    }
    assert len([*histories["chat"].events()]) == 2
    assert (store_info(store).records_pending, store_info(store).events) == (0, 6)


def test_a_store_names_the_keys_in_use(recorder):
    store = Store(recorder, ENCRYPTS)
    say(store, "c1", "0")
    say(store, "c2", "0")
    [key_id] = {*recorder.value("key_ids").split()}
    assert store_info(store).keys == {key_id: 2}
