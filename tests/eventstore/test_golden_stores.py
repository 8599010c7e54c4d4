"""Stores that earlier versions wrote are read for ever: the same events, heads and Views."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

import foldlog
from eventstore import Annotation, ConversationErased, Erased, KeyRing, Message, Origin, open_store
from eventstore.maintenance.erase import erase
from eventstore.maintenance.verify import verify
from eventstore.writing.generation import Generation
from projections import Views, audit

STORES = Path(__file__).parent.parent / "golden" / "stores"
KEYS = KeyRing([SecretStr("11" * 32)])

HEADS_OF_SCHEMA_2 = {
    "begun plain": "773634b7130b0d3043dfa54ebe9eb7b11f81953d8ded66fc3d44414e8683efd3",
    "encrypted": "a39decb5b5441ae1f1c18a0f7dc6eede87718c5dd9b3d30474325152729a5c5b",
    "encrypted zlib": "d45f2e0574fbe0e533b1d5a6bc9bb0890381dd5e0ae6c9ff608ef8b00cb015db",
    "encrypted zstd": "ff15c0833fa9cc88739a8c5db5b37412d55a92754380eb4b5047d738cf63411b",
    "exact": "d8ae5e68e769313f85a724883af9b2a7a5fac53d5b27d99c66def489a22cad1e",
    "gone": "9e21f439f8905b67a0f0abb7ea2305ef66132c946a51d059cd58b7b16034af72",
    "long": "dd0fc713215be0db0f9b12faa9c044f44c31151743a58f7af0b169600b61cc87",
    "plain": "8e0512556390f1f6dc0a324891c6f8fb3bf20645512e5e2010599e63ea400120",
    "zlib": "20b00eef784615dcb284bd7b53a826d45a86c5530a2236ae7cf956eea168e85c",
    "zstd": "219d939843ae98aecb6094f3f9859ea17ca39393cf88b7d7d313855655d81035",
}
OF_TEN = [name for name in HEADS_OF_SCHEMA_2 if name not in ("exact", "gone", "long")]
"""Conversations that hold the same ten events, stored differently."""
SHOWN = [0, -7, 4, 6, 7, 9]


def unpacked(name: str, folder: Path) -> Path:
    """A copy of a golden store, as a file that a test may change."""
    path = folder / name
    path.write_bytes(gzip.decompress((STORES / f"{name}.gz").read_bytes()))
    return path


@pytest.fixture
def schema_2(tmp_path: Path) -> str:
    """The URL of a store of schema 2, with plain, compressed and encrypted conversations, one of them encrypted from
    event 4 on, an erased one, a staged import, and a conversation of events that JSON cannot hold.
    """
    return f"sqlite:///{unpacked('schema-2.db', tmp_path)}"


HEADS_OF_SCHEMA_3 = {
    "encrypted": "5478d1c979a4168d997ee6507033c109c0a1b4764d84964d2bf205296e8d015f",
    "erased": "c46e44c355851b80ec3a9d7509c5a4787719adb443f0ec860e8a392d10f074c2",
    "notes/attributes": "5ff37939a6588421da4b103ba382c678e581848752e1d23441eeec73409c0e9d",
    "retracted": "a9c727140c6588ff4733cf9d6a637a4a87db85011afbcc7b8dfb7c466d794b14",
}


def texts(events: Any) -> list[object]:
    return [getattr(event, "content", None) for event in events]


def test_a_store_of_schema_2_reads_the_same(schema_2: str):
    with open_store(schema_2, keys=KEYS) as store:
        views = Views(store)
        assert {row.id: row.head for row in store.conversations()} == HEADS_OF_SCHEMA_2
        for name in OF_TEN:
            assert texts(store.events(name)) == texts(store.events("plain"))
            assert [event.id for event in views.current(name).events] == SHOWN
        assert len(list(store.events("long"))) == 1_001
        assert len(list(store.follow())) == 10 * len(OF_TEN) + 2 + 1_001
        with pytest.raises(ConversationErased):
            store.events("gone")
        assert [verdict.findings for verdict in verify(store) if verdict.findings] == []


def test_what_json_cannot_hold_was_stored_in_another_form_and_is_the_same_import(schema_2: str):
    history = [Message(source="user", content="a \ud800 b"), Annotation(name="n", data=float("inf"))]
    with open_store(schema_2) as store:
        assert texts(store.events("exact")) == ["a \ud800 b", None]
        assert store.ingest("exact", history) == (0, 2)
        assert store.ingest("exact", [*history, Message(source="user", content="c")]) == (1, 3)


def test_a_store_of_schema_3_reads_the_same_and_its_revisions_are_replaced(tmp_path: Path):
    """Its revisions are of the first form, those of two retractions among them."""
    with open_store(f"sqlite:///{unpacked('schema-3.db', tmp_path)}", keys=KEYS) as store:
        assert {row.id: row.head for row in store.conversations()} == HEADS_OF_SCHEMA_3
        assert [verdict.findings for verdict in verify(store) if verdict.findings] == []
        before = audit(store, "retracted")
        assert (before.findings, before.missing, before.revisions) == ((), 4, 4)
        views = Views(store)
        assert texts(views.current("retracted")) == [f"message {n}" for n in range(6)] + ["the last message"]
        assert texts(views.current("encrypted")) == ["private 0", "private 1", "private end"]
        assert (audit(store, "retracted").findings, audit(store, "retracted").missing) == ((), 0)
        assert [event.name for event in store.events("notes/attributes") if isinstance(event, Annotation)] == [
            "foldlog.attributes",
            "foldlog.document",
        ]


HEADS_OF_SCHEMA_6 = {
    "deduped": "9b3b49b90970d4ca53e9137267480e92a60352c36b2db6bdfd66188b2453d1fc",
    "encrypted": "c34ce529d4b06f456b8016e870229927b5a46c5e8b18ae43c6c4d7a54ab13425",
    "gone": "d114a1bfd981da6cb9467fdc2cc6425b1a4aa64e7b3e74997a0bb6fa5ef90e12",
    "plain": "4782cd07bdfeb8f3dc56160967df52af8db6321289d623dcaebbd653b37a2e59",
}


def test_a_store_of_schema_6_reads_the_same(tmp_path: Path):
    """The last schema before forks; it has documents, attributes, lists and an index by source id."""
    with foldlog.open(f"sqlite:///{unpacked('schema-6.db', tmp_path)}", keys=KEYS) as histories:
        plain, encrypted = histories["plain"], histories["encrypted"]
        assert {row.id: row.head for row in histories.store.conversations()} == HEADS_OF_SCHEMA_6
        assert texts(plain.events()) == [None, "one", "two", "three", None, None, "four", "five", "six"]
        assert [event.id for event in plain.view] == [-6, 3, 6, 7, 8]
        assert texts(encrypted.view) == ["five", "seven"]
        assert (plain.attributes["title"], plain.document("plan")) == ("Kites", {"steps": [1, 2]})
        assert [row.id for row in histories.recent({"tags": ["wind"]}).conversations] == ["plain"]
        again = Message(source="user", content="b", origin=Origin(format="source", id="b"))
        assert histories["deduped"].append(again, dedupe="origin") == ()
        assert [verdict.findings for verdict in verify(histories.store) if verdict.findings] == []


HEADS_OF_SCHEMA_9 = {
    "encrypted": "bc3a50b1dca14dfb4bac3fc237696067f0921a210c8d18051a91186078a938b3",
    "fork": "fa1b41e25d43f01e361da48352a69c4eabb82b2946b0178a53ecd5ade49d239b",
    "plain": "78bd80ce655fc99057c50a7fc88e0cf1a77cd132c95467eece0922009e061c71",
    "zlib": "a806637387dfd20f6f472d5f100a0a836e20a5de21d25e96f2bdda8f2359bda5",
}


def test_a_store_of_schema_9_reads_the_same_and_takes_bytes_from_then_on(tmp_path: Path):
    """The last schema before bytes; it has a redacted event, and a fork that shares it."""
    with open_store(f"sqlite:///{unpacked('schema-9.db', tmp_path)}", keys=KEYS) as store:
        assert {row.id: row.head for row in store.conversations()} == HEADS_OF_SCHEMA_9
        assert texts(store.events("plain", 0, 4)) == ["one", None, "a kite", "[redacted]"]
        assert texts(store.events("fork")) == ["one", None, "a kite", "[redacted]", "elsewhere"]
        for name in HEADS_OF_SCHEMA_9:
            version, before = store.version(name), list(store.events(name))
            store.append(name, Annotation(name="raw", data=[b"\x00\xff", name]), expected_version=version)
            *same, added = store.events(name)
            assert same == before
            assert isinstance(added, Annotation)
            assert added.data == [b"\x00\xff", name]
        assert [verdict.findings for verdict in verify(store) if verdict.findings] == []


HEADS_OF_SCHEMA_10 = {
    "encrypted": "6832c0088941b15767b15190c5fa17abe2f52f5da63aac4760a6c7d2118c7846",
    "gone": "de59d2e0a345f9034d0d553c68824062563d26b8069b19d369a17cef0e6ae513",
    "imported": "b2d593e32add73252bc8e26cc4d5892e01a8d94b52df400f712f1a4e16b38cfc",
    "plain": "de240f24d81b35733b0d0655a26057d1e194a353176c7432da07370fe95987de",
    "used again": "4b25eb70a615eb395a0a49de9672d8528b0d9fea946722d456c450d38ee4516d",
}


def test_a_store_of_schema_10_reads_the_same_and_its_erasures_get_an_entry_when_their_id_is_used_again(tmp_path: Path):
    """The last schema before entries of erasures. "gone" is erased, "used again" too, and then begun again."""
    with open_store(f"sqlite:///{unpacked('schema-10.db', tmp_path)}", keys=KEYS) as store:
        assert {row.id: row.head for row in store.conversations()} == HEADS_OF_SCHEMA_10
        before = list(store.follow())
        assert len(before) == 4 + 1 + 2 + 1_001
        assert [verdict.findings for verdict in verify(store) if verdict.findings] == []
        new = Message(source="user", content="new")
        store.append("gone", new, expected_version=0, generation=Generation(replaces_erased=True))
        erase(store, "used again", reason="again")
        entries = list(store.follow(before[-1].position))
        assert [(one.conversation, one.event.id, type(one.event)) for one in entries] == [
            ("gone", 2, Erased),
            ("gone", 0, Message),
            ("used again", 1, Erased),
        ]
        assert [verdict.findings for verdict in verify(store) if verdict.findings] == []


def test_a_store_of_schema_11_knows_its_keys(tmp_path: Path):
    """The last schema before the index of keys. Each key has a conversation, and one that is erased."""
    with open_store(f"sqlite:///{unpacked('schema-11.db', tmp_path)}", keys=KEYS) as store:
        assert store.database.recorder.value("key_ids").split() == sorted([*KEYS.names, *KeyRing(["22" * 32]).names])
        assert [row.version for row in store.conversations() if row.erased_at is None] == [2, 2, 2]
        erase(store, "under key 1", reason="test")
        assert store.database.recorder.value("key_ids").split() == KeyRing(["22" * 32]).names
        assert [verdict.findings for verdict in verify(store, "plain") if verdict.findings] == []


@pytest.mark.parametrize(
    "file, names, heads",
    [
        ("schema-3.db", ("retracted", "encrypted"), HEADS_OF_SCHEMA_3),
        ("schema-6.db", ("plain", "encrypted", "deduped"), HEADS_OF_SCHEMA_6),
    ],
)
def test_a_store_that_was_made_before_forks_can_be_forked(
    tmp_path: Path, file: str, names: tuple[str, ...], heads: dict[str, str]
):
    with open_store(f"sqlite:///{unpacked(file, tmp_path)}", keys=KEYS) as store:
        for name in names:
            version = store.version(name)
            for at in (1, version):
                fork = f"{name} at {at}"
                store.fork(name, at, fork)
                assert texts(store.events(fork)) == texts(store.events(name, 0, at))
                store.append(fork, Message(source="user", content="on"), expected_version=at)
                assert list(Views(store).at(fork, at)) == list(Views(store).at(name, at))
        assert {row.id: row.head for row in store.conversations() if row.parent is None} == heads
        assert [verdict.findings for verdict in verify(store) if verdict.findings] == []
