"""After an erasure, or an encryption, no byte of what was there before is in any file of the store, or in a backup."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

import eventstore.writing.importing
from eventstore import ANY_VERSION, KeyRing, Message, Store, StoreUnavailable, open_store
from eventstore.maintenance.backup import vacuum
from eventstore.maintenance.erase import erase
from eventstore.maintenance.rekey import rekey
from eventstore.maintenance.verify import verify
from eventstore.recorders.errors import StillRead
from eventstore.recorders.sqlite import store_file
from eventstore.recorders.sqlite.erased_bytes import scrub
from eventstore.recorders.sqlite.erased_bytes.page_space import is_tree_page, suspicious, unused_parts
from eventstore.stored.read_transaction import reading
from tests.crash.bytes_left import bytes_left
from tests.crash.erased_bytes import look, mark


@pytest.fixture(autouse=True)
def imports_in_small_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eventstore.writing.importing, "CHUNK", 10)


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_nothing_is_left_in_random_stores(first: int, whole: bool):
    """In the first four of each twenty; in all of them with ``scripts/test --whole``, and in more, each in both ways,
    with ``python -m tests.crash bytes``.
    """
    for seed in range(first, first + (20 if whole else 4)):
        assert look(seed, "encryption" if seed % 2 else "erasures") == []


def fill(path: Path) -> None:
    with open_store(f"sqlite:///{path}", durability="relaxed") as store:
        for n in range(400):
            keyed(store, "secret" if n % 3 else "other", n)


def keyed(store: Store, name: str, n: int) -> None:
    """Append an event under a key that comes anywhere among those of its conversation."""
    key = f"{random.Random(n).random()}{mark('k', name) * 20}"
    event = Message(source="user", content=mark("b", name) * (1 + n % 50))
    store.append(name, event, expected_version=ANY_VERSION, idempotency_key=key)


SECRETS = [mark("b", "secret"), mark("k", "secret")]

OLD = "old-bytes~"
NAMES = [f"c{n:02}" for n in range(20)]


def fill_with_old_bytes(path: Path) -> None:
    """A store whose pages all keep old bytes in their gaps."""
    with open_store(f"sqlite:///{path}", durability="relaxed") as store:
        for n in range(800):
            keyed(store, NAMES[n * 7 % 20], n)
    content = bytearray(path.read_bytes())
    for at in range(4_096, len(content), 4_096):
        page, number = bytes(content[at : at + 4_096]), at // 4_096 + 1
        if is_tree_page(page, number):
            for first, end in unused_parts(page, number) or ():
                content[at + first : at + end] = (OLD.encode() * 410)[: end - first]
    path.write_bytes(content)
    assert content.count(OLD.encode()) > 1_000


# -- while others use the store ---------------------------------------------------------------------------------------


def test_pages_that_others_write_during_the_search_are_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where pages are split, one with old bytes may get the number of another one that was looked at before."""
    path = tmp_path / "store.db"
    fill_with_old_bytes(path)
    search = scrub._Scrub._search

    def searched(self: Any) -> tuple[list[int], bool]:
        found, ended = search(self)
        for n in range(1_000, 1_100):
            keyed(other, NAMES[n % 20], n)
        with open(f"{path}-wal", "rb") as log:
            content = log.read()
        assert OLD.encode() in content
        written = {int.from_bytes(content[at : at + 4], "big") for at in range(32, len(content), 24 + 4_096)}
        return [number for number in found if number not in written], ended

    with open_store(f"sqlite:///{path}") as store, open_store(f"sqlite:///{path}") as other:
        monkeypatch.setattr(scrub._Scrub, "_search", searched)
        assert store._recorder.purge()
        assert bytes_left(tmp_path, [OLD]) == []
        assert [finding for verdict in verify(other) for finding in verdict.findings] == []


def test_a_page_in_the_cache_of_another_connection_does_not_bring_the_bytes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "store.db"
    fill_with_old_bytes(path)
    overwrite = scrub._Scrub._overwrite
    with (
        open_store(f"sqlite:///{path}") as store,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):

        def overwritten(self: Any, *arguments: Any) -> bool:
            assert other.execute("SELECT sum(first_id) FROM idempotency_keys").fetchone()[0] > 0
            return overwrite(self, *arguments)

        monkeypatch.setattr(scrub._Scrub, "_overwrite", overwritten)
        assert store._recorder.purge()
        other.execute("UPDATE idempotency_keys SET events = 2")
        assert bytes_left(tmp_path, [OLD]) == []


def test_others_write_while_the_file_is_searched_and_between_two_parts_that_are_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A part is as large as can be overwritten while others wait. None of them waits for the whole file."""
    path = tmp_path / "store.db"
    fill(path)
    monkeypatch.setattr(scrub, "_PAGES_MAX", 3)
    monkeypatch.setattr(scrub, "_CHUNK_BYTES", 16_384)
    search, versions = scrub._Scrub._search, []

    def searched(self: Any) -> tuple[list[int], bool]:
        found = search(self)
        append = threading.Thread(target=keyed, args=(other, "other", 10_000 + len(versions)))
        append.start()
        append.join(30)
        versions.append(other.version("other"))
        return found

    with open_store(f"sqlite:///{path}") as store, open_store(f"sqlite:///{path}") as other:
        monkeypatch.setattr(scrub._Scrub, "_search", searched)
        erase(store, "secret", reason="asked to")
        assert len(versions) > 5
        assert versions == list(range(versions[0], versions[0] + len(versions)))
        assert bytes_left(tmp_path, SECRETS) == []


def test_a_log_that_grows_long_during_the_search_is_emptied_before_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "store.db"
    fill(path)
    monkeypatch.setattr(scrub, "_CHUNK_BYTES", 16_384)
    monkeypatch.setattr(scrub, "_LOG_BYTES_MAX", 100_000)
    search, lengths = scrub._Scrub._search, []

    def searched(self: Any) -> tuple[list[int], bool]:
        lengths.append(os.stat(self._log).st_size)
        store.append("long", Message(source="user", content="x" * 150_000), expected_version=ANY_VERSION)
        return search(self)

    with open_store(f"sqlite:///{path}") as store:
        monkeypatch.setattr(scrub._Scrub, "_search", searched)
        erase(store, "secret", reason="asked to")
        assert len(lengths) > 3
        assert max(lengths) < 100_000
        assert bytes_left(tmp_path, SECRETS) == []


def test_a_reader_that_stays_open_is_waited_for_and_then_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "store.db"
    fill(path)
    monkeypatch.setattr(scrub, "_PATIENCE_S", 0.1)
    search = scrub._Scrub._search
    with open_store(f"sqlite:///{path}") as store, open_store(f"sqlite:///{path}") as other:
        snapshot = reading(other, "other")

        def searched(self: Any) -> tuple[list[int], bool]:
            keyed(other, "other", 5_000)
            snapshot.__enter__()
            return search(self)

        with monkeypatch.context() as patched:
            patched.setattr(scrub._Scrub, "_search", searched)
            with pytest.raises(StillRead, match="the store is being read, so its WAL cannot be emptied now"):
                store._recorder.purge()
        snapshot.__exit__(None, None, None)
        assert store._recorder.purge()


# -- bytes pending ----------------------------------------------------------------------------------------------------


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that does not say with which descriptor a file is open."""
    monkeypatch.setattr(store_file, "_DESCRIPTORS", "/nowhere")


@pytest.mark.usefixtures("unseen")
def test_where_bytes_cannot_be_overwritten_the_receipt_says_so_and_vacuum_completes_it(tmp_path: Path):
    path = tmp_path / "store.db"
    fill(path)
    with open_store(f"sqlite:///{path}") as store:
        assert not store.database.bytes_pending
        assert erase(store, "secret", reason="asked to").bytes_pending
    with open_store(f"sqlite:///{path}") as store:
        assert [(row.id, row.bytes_pending) for row in store.conversations()] == [("other", False), ("secret", True)]
        assert store.conversation("secret").bytes_pending
        done = vacuum(store)
        assert not store.database.bytes_pending
        assert not store.conversation("secret").bytes_pending
        assert done.bytes_after == path.stat().st_size, "nothing is left in the log"
        assert bytes_left(tmp_path, SECRETS) == []


@pytest.mark.usefixtures("unseen")
def test_a_rekey_says_in_its_result_that_bytes_are_pending_and_vacuum_completes_it(tmp_path: Path):
    path = tmp_path / "store.db"
    fill(path)
    with open_store(f"sqlite:///{path}", keys=KeyRing([SecretStr("ab" * 32)])) as store:
        assert [done.bytes_pending for done in rekey(store)] == [None, True]
        assert [done.bytes_pending for done in rekey(store)] == [None, True]  # the second run changes no row
        vacuum(store)
        assert [done.bytes_pending for done in rekey(store)] == [None, False]
        assert bytes_left(tmp_path, SECRETS[:1]) == []


def test_vacuum_waits_for_readers_where_bytes_are_pending(tmp_path: Path, unseen: None):
    path = tmp_path / "store.db"
    fill(path)
    with open_store(f"sqlite:///{path}") as store, open_store(f"sqlite:///{path}") as other:
        assert erase(store, "secret", reason="asked to").bytes_pending
        with reading(other, "other"), pytest.raises(StoreUnavailable, match="the deleted bytes are still in the files"):
            vacuum(store, patience_s=0.1)
        assert not vacuum(store, patience_s=0.1).bytes_pending
        assert bytes_left(tmp_path, SECRETS) == []


def test_of_many_erasures_the_last_one_removes_the_bytes_of_all(tmp_path: Path):
    path = tmp_path / "store.db"
    fill(path)
    with open_store(f"sqlite:///{path}") as store:
        keyed(store, "last", 10_000)
        assert erase(store, "secret", reason="asked to", complete=False).bytes_pending
        assert store.database.bytes_pending
        assert not erase(store, "last", reason="asked to").bytes_pending
        assert not store.database.bytes_pending
        assert bytes_left(tmp_path, [*SECRETS, mark("b", "last"), mark("k", "last")]) == []


class _Killed(BaseException):
    """As if the process had died here."""


def test_vacuum_completes_an_erasure_that_was_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "store.db"
    fill(path)

    def killed(*_: object) -> None:
        raise _Killed

    with open_store(f"sqlite:///{path}") as store:
        with monkeypatch.context() as patched:
            patched.setattr("eventstore.recorders.sqlite.transaction.SQLiteTransaction.delete", killed)
            with pytest.raises(_Killed):
                erase(store, "secret", reason="asked to")
        assert store.conversation("secret").bytes_pending
        assert bytes_left(tmp_path, SECRETS) != []
        vacuum(store)
        assert not store.conversation("secret").bytes_pending
        assert bytes_left(tmp_path, SECRETS) == []
        assert [finding for verdict in verify(store) for finding in verdict.findings] == []


def test_bytes_of_an_erasure_that_began_later_stay_pending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "store.db"
    fill(path)
    search = scrub._Scrub._search
    with open_store(f"sqlite:///{path}") as store, open_store(f"sqlite:///{path}") as other:

        def searched(self: Any) -> tuple[list[int], bool]:
            other._recorder.transact(lambda transaction: transaction.delete(2, 5))
            return search(self)

        with monkeypatch.context() as patched:
            patched.setattr(scrub._Scrub, "_search", searched)
            erase(store, "secret", reason="asked to")
        assert store.database.bytes_pending
        assert store._recorder.purge()
        assert not store.database.bytes_pending


# -- pages ------------------------------------------------------------------------------------------------------------


def page_of(kind: int, free_block: int, cells: int, content: int, rest: bytes = b"") -> bytes:
    header = bytes([kind]) + b"".join(n.to_bytes(2, "big") for n in (free_block, cells, content)) + b"\0"
    return (header + rest).ljust(4_096, b"\0")


@pytest.mark.parametrize(
    "page",
    [
        page_of(13, 0, 4_000, 4_000),
        page_of(13, 0, 0, 4_097),
        page_of(13, 0, 1, 4_000, b"\x0f\x9f"),
        page_of(13, 0, 1, 4_000, b"\x0f\xff"),
        page_of(13, 10, 0, 4_000),
        page_of(13, 4_094, 0, 4_000),
        page_of(13, 4_000, 0, 4_000),
        page_of(13, 4_000, 1, 4_000, b"\x0f\xa2").replace(bytes(96), bytes(88) + b"\0\0\0\x20" + bytes(4), 1),
    ],
)
def test_a_page_that_contradicts_itself_is_left_as_it_is(page: bytes):
    assert unused_parts(page[:4_096], 2) is None


@given(st.binary(min_size=512, max_size=512), st.sampled_from((2, 5, 10, 13)), st.integers(1, 3))
def test_whatever_is_in_a_page_what_leads_to_its_cells_and_their_places_are_not_unused(
    content: bytes, kind: int, number: int
):
    start = 100 if number == 1 else 0
    page = content[:start] + bytes([kind]) + content[start + 1 :]
    assert is_tree_page(page, number)
    parts = unused_parts(page, number)
    if parts is not None:
        cells = int.from_bytes(page[start + 3 : start + 5], "big")
        pointers = start + (12 if kind in (2, 5) else 8)
        places = [int.from_bytes(page[at : at + 2], "big") for at in range(pointers, pointers + 2 * cells, 2)]
        for first, end in parts:
            assert pointers + 2 * cells <= first < end <= 512
            assert not any(first <= place < end for place in places)
        if any(any(page[first:end]) for first, end in parts):
            assert list(suspicious(page, 512, number)) == [number]


def test_the_pages_of_a_real_file_are_of_one_piece(tmp_path: Path):
    """Every byte of a page is in its header, in a cell, in a fragment of at most three bytes, or unused."""
    path = tmp_path / "store.db"
    fill(path)
    content = path.read_bytes()
    trees = 0
    for number in range(1, len(content) // 4_096 + 1):
        page = content[(number - 1) * 4_096 : number * 4_096]
        if is_tree_page(page, number):
            trees += 1
            assert unused_parts(page, number) is not None
    assert trees > 50
