"""The face offers what an administrator runs."""

from __future__ import annotations

from pathlib import Path

import foldlog
from foldlog import Message


def test_the_face_offers_maintenance(tmp_path: Path):
    with foldlog.open(f"sqlite:///{tmp_path}/a.db") as histories, foldlog.open(f"sqlite:///{tmp_path}/b.db") as others:
        histories["c1"].append(Message(source="user", content="hello"))
        histories["c2"].append(Message(source="user", content="private"))
        care = histories.maintenance
        assert histories.erase("c2", reason="asked to").erased_reason == "asked to"
        assert [verdict.findings for verdict in care.verify("c1")] == [()]
        assert [done.conversation for done in care.rekey()] == ["c1"]
        assert care.back_up(f"{tmp_path}/copy.db").events == 1
        assert not care.vacuum().bytes_pending
        assert sorted(each.conversation for each in others.maintenance.copy_from(histories.store)) == ["c1", "c2"]
        assert list(others.maintenance.differences_from(histories.store)) == []
