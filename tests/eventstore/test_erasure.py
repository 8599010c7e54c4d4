"""An erased conversation is gone: from every reader, from the tables, and from the bytes of the files."""

from __future__ import annotations

import itertools
import multiprocessing
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
    Record,
    StoreUnavailable,
    open_store,
)
from foldlog.eventstore.log.writing import WriteTransaction
from foldlog.eventstore.maintenance.backup import vacuum
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.recorders.errors import OperationalError
from foldlog.eventstore.recorders.types import as_rows

SECRET = b"Mrs Alva Quist, account 55-17-204"
OTHER = b"the other conversation stays"
KEY = KeyRing([SecretStr("11" * 32)])


class Keeper:
    """A projection that keeps a private text, as it should not."""

    name = "keeper"

    def project(self, snapshot: WriteTransaction, events: object) -> None:
        text = SECRET if snapshot.conversation == "secret" else OTHER
        snapshot.put_records("keeper", [Record(snapshot.version, 1, None, text)])


def fill(url: str, keys: KeyRing | None = None, count: int = 300) -> None:
    with open_store(url, keys=keys, compression="zlib" if keys else "none") as store:
        store.register(Keeper())
        for name, text in (("secret", SECRET), ("other", OTHER)):
            store.ingest(name, (Message(source="user", content=f"{n} {text.decode()} {n}") for n in range(count)))
            # Over several pages, so that its overflow pages must go too.
            store.append(
                name, Observation(content=text.decode() * 2_000), expected_version=count, idempotency_key=text.decode()
            )
            store.append(name, [CondensationRequest(reason=text.decode())], expected_version=ANY_VERSION)
            store.append(
                name, Action(tool="terminal", arguments={"command": text.decode()}), expected_version=ANY_VERSION
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
            store.append("live", Message(source="user", content="on we go"), expected_version=ANY_VERSION)


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


def test_an_erasure_that_the_disk_ends_says_how_far_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    url = f"sqlite:///{tmp_path}/history.db"
    with open_store(url) as store:
        store.append("secret", Message(source="user", content="x"), expected_version=0)
        transact, calls = store.database.recorder.transact, itertools.count()

        def fail_after_the_first(work: object, **how: object) -> object:
            if next(calls):
                raise OperationalError("cannot write: disk I/O error; nothing was written")
            return transact(work, **how)  # type: ignore[arg-type]

        monkeypatch.setattr(store.database.recorder, "transact", fail_after_the_first)
        with pytest.raises(
            StoreUnavailable, match=r"is erased for every reader, but not all .* run the same command again"
        ):
            erase(store, "secret", reason="asked to")
        monkeypatch.undo()
        with pytest.raises(ConversationErased):
            list(store.events("secret"))
        assert erase(store, "secret", reason="asked to").version == 1
        assert all(verdict.findings == () for verdict in verify(store))
