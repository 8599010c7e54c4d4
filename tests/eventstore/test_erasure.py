"""An erased conversation is gone: from every reader, from the tables, and from the bytes of the
files.
"""

from __future__ import annotations

import multiprocessing
import random
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from foldlog.eventstore import (
    ANY_VERSION,
    Action,
    CondensationRequest,
    ConversationErased,
    KeyRing,
    Message,
    Observation,
    Store,
    StoreUnavailable,
    open_store,
)
from foldlog.eventstore.inside import Record
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.maintenance import backup
from foldlog.eventstore.maintenance.backup import vacuum
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.rekey import rekey
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.recorders.sqlite import SQLiteRecorder, maintenance
from foldlog.eventstore.recorders.types import as_rows
from tests.crash.bytes_left import bytes_left
from tests.reading import reading

SECRET = b"Mrs Alva Quist, account 55-17-204"
OTHER = b"the other conversation stays"
KEY = KeyRing([SecretStr("11" * 32)])


class Keeper:
    """A projection that keeps a private text, as it should not."""

    name = "keeper"

    def project(self, snapshot: WriteTransaction, events: object) -> None:
        text = SECRET if snapshot.conversation == "secret" else OTHER
        snapshot.put_records("keeper", [Record(snapshot.version, 1, text)])


def fill(url: str, keys: KeyRing | None = None, count: int = 300) -> None:
    with open_store(url, keys=keys, compression="zlib" if keys else "none") as store:
        store.register(Keeper())
        for name, text in (("secret", SECRET), ("other", OTHER)):
            store.ingest(
                name,
                (Message(source="user", content=f"{n} {text.decode()} {n}") for n in range(count)),
            )
            # Over several pages, so that its overflow pages must go too.
            store.append(
                name,
                Observation(content=text.decode() * 2_000),
                expected_version=count,
                idempotency_key=text.decode(),
            )
            store.append(
                name, [CondensationRequest(reason=text.decode())], expected_version=ANY_VERSION
            )
            store.append(
                name,
                Action(tool="terminal", arguments={"command": text.decode()}),
                expected_version=ANY_VERSION,
            )


def files_with(folder: Path, text: bytes) -> list[str]:
    return [path.name for path in sorted(folder.iterdir()) if text in path.read_bytes()]


def test_deleted_rows_are_overwritten_before_any_vacuum(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'history.db'}"
    with open_store(url) as store:
        store.append("secret", Message(source="user", content=SECRET.decode()), expected_version=0)
        erase(store, "secret", reason="asked to")
    assert files_with(tmp_path, SECRET) == []


def test_in_a_sealed_store_the_keys_go_too(tmp_path: Path):
    path = tmp_path / "history.db"
    url = f"sqlite:///{path}"
    fill(url, KEY)
    with open_store(url, keys=KEY) as store:
        assert files_with(tmp_path, SECRET) == []
        with store._recorder.read() as reader:
            found = reader.conversation("secret")
            assert found is not None
            assert found.sealed_key is not None
            bodies = [row.body for row in as_rows(reader.rows(found.key, 0, 10, 10))]
        erase(store, "secret", reason="asked to")
    for secret in (SECRET, found.sealed_key, *bodies):
        assert files_with(tmp_path, secret) == []


def test_an_import_that_is_going_on_is_erased_with_it(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'history.db'}"
    fill(url)
    staged, erased = threading.Event(), threading.Event()

    def history() -> Iterator[Message]:
        for n in range(3_000):
            if n == 2_500:
                staged.set()
                assert erased.wait(30)
            yield Message(source="user", content=f"{n} {SECRET.decode()}")

    with open_store(url) as store, open_store(url) as importing:
        store.append("late", Message(source="user", content="first"), expected_version=0)
        erase(store, "late", reason="before")
        failures: list[BaseException] = []

        def run() -> None:
            try:
                importing.ingest("coming", history())
            except BaseException as error:  # noqa: BLE001 - it is looked at below
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        assert staged.wait(30)
        store.append("coming", Message(source="user", content=SECRET.decode()), expected_version=0)
        erase(store, "coming", reason="asked to")
        erase(store, "secret", reason="asked to")
        vacuum(store)
        assert files_with(tmp_path, SECRET) == []
        erased.set()
        thread.join()
        assert [type(failure) for failure in failures] == [ConversationErased]
        erase(store, "coming", reason="asked to")
        vacuum(store)
        assert files_with(tmp_path, SECRET) == []


def _append_until_told(url: str, ready: object, stop: object) -> None:
    with open_store(url) as store:
        ready.set()  # type: ignore[attr-defined]
        while not stop.is_set():  # type: ignore[attr-defined]
            store.append(
                "live", Message(source="user", content="on we go"), expected_version=ANY_VERSION
            )


def test_others_go_on_writing_while_a_long_history_is_erased(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'history.db'}"
    fill(url, count=3_000)
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    writer = context.Process(target=_append_until_told, args=(url, ready, stop))
    writer.start()
    try:
        assert ready.wait(30)
        with open_store(url) as store:
            before = store.version("live")
            erase(store, "secret", reason="asked to")
            assert store.version("live") > before
            vacuum(store)
    finally:
        stop.set()
        writer.join(30)
    assert files_with(tmp_path, SECRET) == []


def mark(kind: str, name: str) -> str:
    """What every few bytes of a conversation's texts repeat, so that a short part of one shows
    too.
    """
    return f"{kind}{name}~"


def fill_keyed(path: Path) -> None:
    with open_store(f"sqlite:///{path}", durability="relaxed") as store:
        for n in range(400):
            keyed(store, "secret" if n % 3 else "other", n)


def keyed(store: Store, name: str, n: int) -> None:
    """Append an event under a key that comes anywhere among those of its conversation."""
    key = f"{random.Random(n).random()}{mark('k', name) * 20}"
    event = Message(source="user", content=mark("b", name) * (1 + n % 50))
    store.append(name, event, expected_version=ANY_VERSION, idempotency_key=key)


SECRETS = [mark("b", "secret"), mark("k", "secret")]


# -- bytes pending
# --------------------------------------------------------------------------------------------------


def test_the_tombstone_says_that_bytes_are_pending_and_vacuum_removes_them(tmp_path: Path):
    path = tmp_path / "store.db"
    fill_keyed(path)
    with open_store(f"sqlite:///{path}") as store:
        assert not store.database.bytes_pending
        assert erase(store, "secret", reason="asked to").bytes_pending
    with open_store(f"sqlite:///{path}") as store:
        assert [(row.id, row.bytes_pending) for row in store.conversations()] == [
            ("other", False),
            ("secret", True),
        ]
        assert store.conversation("secret").bytes_pending
        done = vacuum(store)
        assert not store.database.bytes_pending
        assert not store.conversation("secret").bytes_pending
        assert done.bytes_after == path.stat().st_size, "nothing is left in the log"
        assert bytes_left(tmp_path, SECRETS) == []


def test_a_rekey_says_in_its_result_that_bytes_are_pending_and_vacuum_removes_them(tmp_path: Path):
    path = tmp_path / "store.db"
    fill_keyed(path)
    with open_store(f"sqlite:///{path}", keys=KeyRing([SecretStr("ab" * 32)])) as store:
        assert [done.bytes_pending for done in rekey(store)] == [None, True]
        # the second run changes no row
        assert [done.bytes_pending for done in rekey(store)] == [None, True]
        vacuum(store)
        assert [done.bytes_pending for done in rekey(store)] == [None, False]
        assert bytes_left(tmp_path, SECRETS[:1]) == []


def test_vacuum_waits_for_readers_where_bytes_are_pending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(backup, "PATIENCE_S", 0.1)
    path = tmp_path / "store.db"
    fill_keyed(path)
    with open_store(f"sqlite:///{path}") as store, open_store(f"sqlite:///{path}") as other:
        assert erase(store, "secret", reason="asked to").bytes_pending
        with (
            reading(other, "other"),
            pytest.raises(StoreUnavailable, match="the deleted bytes are still in the files"),
        ):
            vacuum(store)
        assert not vacuum(store).bytes_pending
        assert bytes_left(tmp_path, SECRETS) == []


class _Killed(BaseException):
    """As if the process had died here."""


def test_vacuum_completes_an_erasure_that_was_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "store.db"
    fill_keyed(path)

    def killed(*_: object) -> None:
        raise _Killed

    with open_store(f"sqlite:///{path}") as store:
        with monkeypatch.context() as patched:
            patched.setattr(
                "foldlog.eventstore.recorders.sqlite.transaction.SQLiteTransaction.delete", killed
            )
            with pytest.raises(_Killed):
                erase(store, "secret", reason="asked to")
        assert store.conversation("secret").bytes_pending
        assert bytes_left(tmp_path, SECRETS) != []
        vacuum(store)
        assert not store.conversation("secret").bytes_pending
        assert bytes_left(tmp_path, SECRETS) == []
        assert [finding for verdict in verify(store) for finding in verdict.findings] == []


def test_bytes_of_an_erasure_that_began_after_the_rewriting_stay_pending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "store.db"
    fill_keyed(path)
    rewrite = maintenance.rewrite
    with open_store(f"sqlite:///{path}") as store, open_store(f"sqlite:///{path}") as other:
        keyed(store, "last", 10_000)
        erase(store, "secret", reason="asked to")

        def then_erase(writer: sqlite3.Connection) -> tuple[bytes] | None:
            pending = rewrite(writer)
            threading.Thread(
                target=erase, args=(other, "last"), kwargs={"reason": "asked to"}
            ).start()
            return pending

        # the log cannot be emptied at once
        with monkeypatch.context() as patched, reading(other, "other"):
            patched.setattr(maintenance, "rewrite", then_erase)
            patched.setattr(backup, "PATIENCE_S", 1)
            with pytest.raises(StoreUnavailable, match="the deleted bytes are still in the files"):
                vacuum(store)
        assert store.database.bytes_pending
        assert not vacuum(store).bytes_pending
        assert bytes_left(tmp_path, [*SECRETS, mark("b", "last"), mark("k", "last")]) == []


def test_bytes_of_an_erasure_after_another_vacuum_stay_pending(tmp_path: Path):
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        for name in ("first", "last"):
            store.append(name, Message(source="user", content="x"), expected_version=0)
        recorder = store.database.recorder
        assert isinstance(recorder, SQLiteRecorder)
        erase(store, "first", reason="asked to")
        with recorder._alone() as writer:
            pending = maintenance.rewrite(writer)
        assert not vacuum(store).bytes_pending  # a second vacuum ends before the first one
        erase(store, "last", reason="asked to")
        with recorder._alone() as writer:
            assert maintenance.empty_log(writer, pending)
        assert store.database.bytes_pending
