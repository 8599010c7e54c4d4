"""A process that is killed between any two transactions of an import, a fork or a first use: the next one goes on."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from foldlog._archive import importing, makes_events, projecting, reading
from foldlog._archive.importing import Import
from foldlog.eventstore import Store, open_store
from foldlog.eventstore.maintenance.verify import verify
from tests.foldlog.archive.imports import bytes_of, events_of, figures_of
from tests.foldlog.records import CORPUS


class Killed(BaseException):
    """The process ends here."""


def killed_after(store: Store, transactions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a store end the process when it would begin one more write transaction than these."""
    recorder, numbers = store.database.recorder, count()
    transact = recorder.transact

    def counted(work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if next(numbers) >= transactions:
            raise Killed
        return transact(work, *args, **options)

    monkeypatch.setattr(recorder, "transact", counted)


def grow(store: Store, path: Path) -> None:
    lines = whole().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]))
    list(Import(store, [path]))
    path.write_bytes(whole())
    list(Import(store, [path]))


def use(store: Store, path: Path) -> None:
    path.write_bytes(whole())
    (one,) = Import(store, [path])
    store.version(one.conversation)


def fork(store: Store, path: Path) -> None:
    use(store, path)
    lines = whole().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-4]) + lines[-1])
    list(Import(store, [path]))


def whole() -> bytes:
    return (CORPUS / "claude-code.jsonl").read_bytes()


def told(store: Store) -> list[Any]:
    rows = [row.id for row in store.conversations()]
    return [(name, bytes_of(store, name), events_of(store, name), figures_of(store, name)) for name in sorted(rows)]


@pytest.mark.parametrize("work", [grow, use, fork])
def test_a_killed_import_or_first_use_goes_on(
    work: Callable[[Store, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SIZE", 1_000)
    monkeypatch.setattr(importing, "_TRANSACTION_BYTES", 1_000)
    monkeypatch.setattr(projecting, "_EVENTS", 3)
    path = tmp_path / "session.jsonl"
    with makes_events(open_store("memory:")) as store:
        work(store, path)
        expected = told(store)
    for transactions in count():
        url = f"sqlite:///{tmp_path}/{transactions}.db"
        is_over = True
        with makes_events(open_store(url)) as store, monkeypatch.context() as patched:
            killed_after(store, transactions, patched)
            try:
                work(store, path)
            except Killed:
                is_over = False
        with makes_events(open_store(url)) as store:
            assert [each.findings for each in verify(store) if each.findings] == []
            work(store, path)
            assert told(store) == expected, transactions
            assert [each.findings for each in verify(store) if each.findings] == []
        if is_over:
            assert transactions > 2
            return
