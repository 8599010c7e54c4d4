"""An import finds the histories in files and folders, names them, and reports damaged files.

``tests/golden/found.jsonl`` has files, each with its lines, as texts or as JSON, and what an import
finds at some paths.

    python -m tests.foldlog.formats.test_sources

writes again what is found. Look at what changed.
"""

import json
import os
import sqlite3
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from foldlog.formats.files.readers import on_lines, open_read_only
from tests.foldlog.formats.reading import records_in
from tests.foldlog.imports.imports import Failed, Import, new_store
from tests.foldlog.records import GOLDEN, read_lines, write_lines

FILE = GOLDEN / "found.jsonl"
ROWS = read_lines(FILE)


def write(path, *lines):
    """Write lines. A text is written unchanged, and surrogates stand for bytes that are not text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_bytes("\n".join(texts).encode("utf-8", "surrogateescape"))
    return path


def import_paths(folder, *paths, format="auto"):
    """Return what an import finds at paths in a folder: histories, and what belongs to none."""
    with new_store() as store:
        imports = Import(store, [folder / path for path in paths], format)
        histories = []
        findings = []
        for outcome in imports:
            if isinstance(outcome, Failed):
                findings.append(str(outcome.error))
                continue
            history = {"name": outcome.conversation, "format": outcome.format}
            history["records"] = records_in(store, outcome.conversation)
            history["findings"] = [*map(str, outcome.findings)]
            histories.append(history)
        findings += map(str, imports.findings)
        if not histories:
            findings.append(str(imports.nothing()))
        text = json.dumps({"found": histories, "findings": findings})
    return json.loads(text.replace(f"{folder}/", "").replace(str(folder), "."))


def row_in(folder, row):
    """Return a row with what is found now in its files."""
    files = folder / "files"
    for name, lines in row["files"].items():
        write(files / name, *lines)
    return {**row, **import_paths(files, *row["paths"], format=row.get("format", "auto"))}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_an_import_finds_these_histories(row, tmp_path):
    assert json.dumps(row_in(tmp_path, row)) == json.dumps(row)


def chat():
    return {"role": "user", "content": "hi"}


def test_linked_folders_are_read_once(tmp_path):
    for name in ("runs/a.jsonl", "runs/z/b.jsonl", "elsewhere/c.jsonl", "above.jsonl"):
        write(tmp_path / name, chat(), chat())
    for name, to in (("a", "z"), ("link", "../elsewhere"), ("link2", "../elsewhere"), ("up", "..")):
        (tmp_path / "runs" / name).symlink_to(to)
    (tmp_path / "elsewhere/loop").symlink_to("../runs")
    (tmp_path / "runs/dangling.jsonl").symlink_to("nowhere")
    os.mkfifo(tmp_path / "runs/pipe.jsonl")
    result = import_paths(tmp_path, "runs")
    assert [history["name"] for history in result["found"]] == ["runs/a", "runs/link/c", "runs/z/b"]
    assert sorted(result["findings"]) == [
        "runs/dangling.jsonl: is a link to a missing file",
        "runs/pipe.jsonl: is neither a file nor a folder",
    ]


@pytest.mark.parametrize("begin, between, end", [("", "", ""), ("[", ",", "]")])
def test_record_that_is_too_long_is_found(begin, between, end, tmp_path):
    long = {**chat(), "content": "x" * 16 * 2**20}
    lines = (json.dumps(record) for record in (chat(), long, chat()))
    write(tmp_path / "a.json", begin + f"{between}\n".join(lines) + end)
    (history,) = import_paths(tmp_path, "a.json")["found"]
    assert history["records"] == [chat(), chat()]
    assert history["findings"] == [
        "a.json:2: longer than 16,777,216 bytes, the limit for one record"
    ]


@pytest.mark.parametrize("pack", [bytes, zstandard.compress])
def test_a_line_with_a_history_may_be_longer_than_a_record(pack, tmp_path, monkeypatch):
    monkeypatch.setattr("foldlog.formats.files.readers.RECORD_SIZE_MAX", 150)
    long = json.dumps({"instance_id": "b", "history": [chat()] * 9})
    rows = {"instance_id": "a", "history": [chat(), chat()]}, long, long[:-2], {}
    path = write(tmp_path / "a.jsonl", *rows)
    path.write_bytes(pack(path.read_bytes()))
    result = import_paths(tmp_path, "a.jsonl")
    assert [(history["name"], len(history["records"])) for history in result["found"]] == [
        ("a:a", 2),
        ("a:b", 9),
    ]
    damaged, empty = result["findings"]
    assert damaged.startswith("a.jsonl:3: not JSON at character ")
    assert empty == "a.jsonl:4: no history in it"


def test_file_nested_too_deep_is_refused(tmp_path):
    write(tmp_path / "a.json", "[" * 100_000)
    *_, finding = import_paths(tmp_path, "a.json")["findings"]
    assert finding.startswith("a.json: nested deeper than 480 levels")


def test_paths_without_a_history(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    for path, why in (
        ("nowhere", "nowhere: no such file or folder"),
        ("folder", "folder: contains no history that can be imported"),
        ("pipe.json", "pipe.json: is neither a file nor a folder"),
    ):
        assert import_paths(tmp_path, path)["findings"][-1].startswith(why)


@pytest.mark.parametrize(
    "text, is_on_lines",
    [
        ("{}\n{}", True),
        (" \n {}\n\n\n {}", True),
        ("{}" + " " * 2**16 + "\n{}", True),
        ("{}\n \n", False),
        ("\n", False),
    ],
)
def test_two_lines_with_text_are_jsonl(text, is_on_lines, tmp_path):
    file = tmp_path / "a.json"
    file.write_text(text)
    assert on_lines(file) is is_on_lines


def test_file_that_is_emptied_before_it_is_read_is_no_jsonl(tmp_path, monkeypatch):
    file = tmp_path / "a.json"
    file.write_text("{}\n{}")
    really = Path.open

    def emptied(path, *how):
        os.truncate(path, 0)
        return really(path, *how)

    monkeypatch.setattr(Path, "open", emptied)
    assert not on_lines(file)


def test_database_may_be_closed_by_another_thread(tmp_path):
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE kept (name)")
    opened = open_read_only(path)
    thread = threading.Thread(target=opened.__enter__)
    thread.start()
    thread.join()
    opened.__exit__(None, None, None)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        rows = [row_in(Path(folder, f"{number}"), row) for number, row in enumerate(ROWS)]
    write_lines(FILE, rows)
