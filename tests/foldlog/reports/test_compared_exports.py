"""The document of an export, compared with the records of its import."""

import json
import os
from pathlib import Path

import pytest

from foldlog import Histories, KeyRing
from foldlog._reports.records import compared_exports
from foldlog._reports.records.compared_exports import find_other_records_in_document
from foldlog.eventstore import open_store


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no file in memory")
def test_document_of_an_encrypted_import_is_in_memory_only(tmp_path, monkeypatch):
    path = tmp_path / "chat.json"
    message = {"role": "user", "content": "where is the lighthouse?"}
    path.write_text(json.dumps({"messages": [message], "model": "gpt-4o"}, indent=1))
    compared = []
    read = compared_exports.histories

    def look(path, recognized):
        compared.append(b"lighthouse" in Path(path).read_bytes())
        assert path.is_symlink()
        assert path.stat().st_nlink == 0
        return read(path, recognized)

    monkeypatch.setattr(compared_exports, "histories", look)
    with open_store("memory:", keys=KeyRing("11" * 32)) as store:
        histories = Histories(store)
        (imported,) = histories.import_(path)
        assert list(find_other_records_in_document(store, imported.id)) == []
    assert compared
    assert all(compared)
