"""The face offers what an administrator runs, and the store beneath it stays small."""

from __future__ import annotations

from pathlib import Path

import foldlog
from eventstore import Store
from eventstore.recorders.base import Index, Reader, Recorder, Transaction, WritableIndex
from foldlog import Message

STORE_NAMES_MAX = 14
RECORDER_METHODS_MAX = 20
INDEX_METHODS_MAX = 6


def test_a_store_has_few_public_names():
    names = {name for name in (*vars(Store), *vars(foldlog.open("memory:").store)) if not name.startswith("_")}
    assert len(names) <= STORE_NAMES_MAX, sorted(names)


def test_the_face_offers_maintenance(tmp_path: Path):
    with foldlog.open(f"sqlite:///{tmp_path}/a.db") as histories, foldlog.open(f"sqlite:///{tmp_path}/b.db") as others:
        histories["c1"].append(Message(source="user", content="hello"))
        histories["c2"].append(Message(source="user", content="private"))
        care = histories.maintenance
        assert care.erase("c2", reason="asked to").erased_reason == "asked to"
        assert [verdict.findings for verdict in care.verify("c1")] == [()]
        assert [done.conversation for done in care.rekey()] == ["c1"]
        assert care.back_up(f"{tmp_path}/copy.db").events == 1
        assert not care.vacuum().bytes_pending
        assert sorted(each.conversation for each in others.maintenance.copy_from(histories.store)) == ["c1", "c2"]
        assert list(others.maintenance.differences_from(histories.store)) == []


def test_a_recorder_has_few_methods():
    assert len(_methods(Reader, Transaction, Recorder)) <= RECORDER_METHODS_MAX
    assert len(_methods(Index, WritableIndex)) <= INDEX_METHODS_MAX


def _methods(*contract: type) -> list[str]:
    return sorted({name for part in contract for name, what in vars(part).items() if callable(what) and name[0] != "_"})
