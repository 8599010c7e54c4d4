"""If this process has a database open, reading the database's file releases no lock of SQLite."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import foldlog
from foldlog.errors import InvalidOption
from foldlog.eventstore.files.open_files import is_store, parts_of
from foldlog.eventstore.files.whole_file import whole_file
from foldlog.eventstore.recorders.sqlite.store_file import descriptors_of
from foldlog.formats import NotAHistory
from tests.said import said

HELLO = said("hello")
LAST = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM events')"


def locks(path):
    """Return the locks of this process on the files of a store, as Linux lists them for each
    descriptor. ``/proc/locks`` may leave a lock out while other processes lock and unlock files.
    """
    return sorted(
        line.split(":", 2)[2].split()
        for end in ("", "-wal", "-shm")
        for descriptor in descriptors_of(f"{path}{end}")
        for line in Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
        if line.startswith("lock:") and " POSIX " in line
    )


def import_folder(histories, path):
    path.with_name("link.json").symlink_to(f"{path}-shm")
    histories.import_(path.parent)


def import_files(histories, path):
    for file in (path, Path(f"{path}-shm")):
        with pytest.raises(NotAHistory):
            histories.import_(file)


def write_over(histories, path):
    with pytest.raises(InvalidOption, match="is a database"), whole_file(path):
        pass


@pytest.mark.parametrize("read", [import_folder, import_files, write_over])
def test_reading_the_file_keeps_our_locks(tmp_path, read):
    path = tmp_path / "history.db"
    (tmp_path / "chat.jsonl").write_text(
        '{"role": "user", "content": "a"}\n{"role": "assistant", "content": "b"}\n'
    )
    with foldlog.open(path) as histories:
        histories["c1"].append(HELLO)
        assert histories.search("hello")
        held = locks(path)
        assert held
        read(histories, path)
        assert locks(path) == held
        subprocess.run([sys.executable, "-c", LAST, str(path)], check=True, capture_output=True)
        assert Path(f"{path}-wal").exists()
        histories["c1"].append(HELLO)
    with foldlog.open(path) as again:
        assert again["c1"].version() == 2


def test_opening_during_a_read_keeps_locks(tmp_path):
    path = tmp_path / "history.db"
    foldlog.open(path).close()
    parts = parts_of(path, 16)
    next(parts)
    with foldlog.open(path) as histories:
        histories["c1"].append(HELLO)
        held = locks(path)
        assert held
        parts.close()
        assert locks(path) == held


def test_a_store_is_known_by_its_first_bytes(tmp_path):
    path = tmp_path / "h.db"
    with foldlog.open(path) as histories:
        histories["c"].append(HELLO)
    assert is_store(path)
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE t (x)")
    text = tmp_path / "text"
    text.write_bytes(bytes(68) + b"flog")
    assert not any(map(is_store, (other, text, tmp_path, tmp_path / "none")))
