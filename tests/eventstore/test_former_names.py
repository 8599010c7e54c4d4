"""Former names of modules and methods lead to the present ones."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from eventstore import Message, Store, open_store


@pytest.fixture
def store() -> Store:
    return open_store("memory:")


@pytest.mark.parametrize(
    "former, present, name",
    [
        ("eventstore.keys", "eventstore.stored.keys", "KeyRing"),
        ("eventstore.rows", "eventstore.stored.rows", "chained"),
        ("eventstore.integrity", "eventstore.stored.hash_chain", "checksum_seed"),
        ("eventstore.importing", "eventstore.writing.importing", "Ingestion"),
        ("eventstore.results", "eventstore.stored.results", "Recorded"),
        ("eventstore.transaction", "eventstore.stored.read_transaction", "reading"),
        ("eventstore.transaction", "eventstore.stored.write_transaction", "WriteTransaction"),
    ],
)
def test_a_module_is_found_under_its_former_name(former: str, present: str, name: str):
    assert getattr(import_module(former), name) is getattr(import_module(present), name)


def test_the_page_for_those_who_upgrade_has_every_former_name():
    table = import_module("eventstore.former").__doc__ or ""
    formers = re.findall(r"^``([\w.]+)`` ", table, re.MULTILINE)
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "upgrading.md").read_text()
    assert len(formers) > 20
    assert [name for name in formers if f"`{name}`" not in page] == []


def test_reseal_is_rekey(store: Store):
    store.append("c", Message(source="user", content="x"), expected_version=0)
    assert [rekeyed.conversation for rekeyed in store.reseal()] == ["c"]


@pytest.mark.parametrize(
    "name",
    [
        "rekey",
        "erase",
        "verify",
        "back_up",
        "vacuum",
        "bring",
        "differences_from",
        "status",
        "lost_after",
        "snapshot",
        "tail",
    ],
)
def test_a_method_that_moved_is_found_under_its_former_name(store: Store, name: str):
    assert callable(getattr(store, name))


def test_the_recorder_and_facts_of_the_store_are_found(store: Store):
    assert store.guard.unguarded is store.database.recorder
    assert store.uuid
    assert (store.writable, store.bytes_pending) == (True, False)


def test_a_name_that_never_was_is_an_attribute_error(store: Store):
    with pytest.raises(AttributeError, match="'Store' object has no attribute 'resael'"):
        store.resael  # noqa: B018
    assert not hasattr(store, "guards")
