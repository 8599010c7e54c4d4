"""What a store says of itself, on each database."""

from collections.abc import Mapping

from msgspec.structs import asdict

import foldlog
from foldlog.eventstore import Store
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.info import store_info
from foldlog.eventstore.recorders.statements import migrations
from foldlog.eventstore.recorders.types import Conversation
from tests.conformance.conftest import ENCRYPTS
from tests.said import said, say

RECORDS = '{"role": "user", "content": "%s"}\n'


def counts(store) -> Mapping[str, object]:
    return {name: value for name, value in asdict(store_info(store)).items() if value}


def test_an_empty_store_contains_nothing(store):
    info = counts(store)
    assert info.pop("made_by") == "foldlog 0.1.0"
    assert info.pop("schema") == max(migrations("sqlite"))
    assert info.pop("uuid") == store.database.uuid
    assert info.pop("database") in ("sqlite", "postgresql", "memory")
    assert (info.pop("bytes", 0) > 0) is (store_info(store).database != "memory")
    assert info == {}


def test_counts_of_contents_and_pending_work(store, tmp_path):
    histories = foldlog.Histories(store)
    say(store, "c1", "0")
    say(store, "c1", "1")
    histories["c1"].fork(1, id="fork").append(said("2"))
    histories["c1"].set_attributes(user="ann")
    say(store, "gone", "3")
    erase(store, "gone", reason="asked for")
    path = tmp_path / "chat.jsonl"
    path.write_text(RECORDS % "a" + RECORDS % "b")
    histories.import_(path, conversation="chat")
    store.database.recorder.transact(
        lambda transaction: transaction.leave_unfinished(
            transaction.begin(Conversation(0, "staged", 5, b"s" * 16, visible=False)).key, "import"
        )
    )
    info = store_info(store)
    assert (info.conversations, info.forks, info.erased, info.archived) == (3, 1, 1, 0)
    assert (info.events, info.document_changes) == (4, 1)
    assert (info.sources, info.records, info.records_pending) == (1, 2, 2)
    assert info.unfinished == {"import": 1}
    assert len([*histories["chat"].events()]) == 2
    assert (store_info(store).records_pending, store_info(store).events) == (0, 6)


def test_a_store_names_the_keys_in_use(recorder):
    store = Store(recorder, ENCRYPTS)
    say(store, "c1", "0")
    say(store, "c2", "0")
    [key_id] = {*recorder.value("key_ids").split()}
    assert store_info(store).keys == {key_id: 2}
