"""A power cut takes the end of the write-ahead log. Whatever is left of it, the store opens to
whole batches: those whose last frame is there, and all of them.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.ledger import Ledger, inspect
from tests.how_many import some

_HEADER = 32
_FRAME_HEADER = 24

_WRITER = """
import os, signal, sys
from pathlib import Path
from tests.crash.ledger import Ledger, batch_of, open_at

folder = Path(sys.argv[1])
ledger = Ledger(folder / "writer.ledger")
store = open_at(folder / "store.db")
for n, size in enumerate((1, 1, 14, 1, 40, 2, 1)):
    recorded = store.append("c1", batch_of(f"batch-{n}", size), expected_version=store.version("c1"))
    # What is acknowledged here is in the file, and synced, up to here.
    ledger.enter("c1", recorded[0].id, size, f"batch-{n}")
    print(os.path.getsize(folder / "store.db-wal"), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A store as a killed writer left it, and how long the log was when each of its batches was
    acknowledged.
    """
    folder = tmp_path_factory.mktemp("written")
    ended = subprocess.run(
        [sys.executable, "-c", _WRITER, folder], capture_output=True, text=True, check=False
    )
    assert ended.returncode == -9, ended.stderr
    return folder, [int(line) for line in ended.stdout.split()]


def _frames(log: bytes) -> Iterator[tuple[int, bool]]:
    """Where each frame ends, and whether a commit ends there (docs of SQLite, "WAL file
    format").
    """
    (page_size,) = struct.unpack(">I", log[8:12])
    end = _HEADER
    while end + _FRAME_HEADER + page_size <= len(log):
        (pages_after_commit,) = struct.unpack(">I", log[end + 4 : end + 8])
        end += _FRAME_HEADER + page_size
        yield end, pages_after_commit > 0


def test_every_prefix_of_the_log_opens_to_the_batches_that_it_holds(
    written: tuple[Path, list[int]], tmp_path: Path
):
    """Forty of them, and each with ``scripts/test --all``."""
    folder, lengths = written
    log = (folder / "store.db-wal").read_bytes()
    frames = list(_frames(log))
    assert len(frames) > 40
    commits = [end for end, commits in frames if commits]
    acknowledged = Ledger.read(folder)
    begun = len(commits) - len(acknowledged)  # commits of the migrations come first
    assert begun > 0
    ends = [0, _HEADER, *(end for end, _ in frames)]
    cuts = {
        cut for end in ends for cut in (end - 1, end, end + 1, end + _FRAME_HEADER, end + 2_000)
    }
    for cut in some(sorted(c for c in cuts if 0 <= c <= len(log)), 40):
        image = tmp_path / "image"
        shutil.rmtree(image, ignore_errors=True)
        image.mkdir()
        shutil.copy(folder / "store.db", image)
        (image / "store.db-wal").write_bytes(log[:cut])
        whole = max(sum(end <= cut for end in commits) - begun, 0)
        assert whole >= sum(length <= cut for length in lengths), (
            "something was acknowledged before it was in the log"
        )
        # Nothing less: what the log holds is found. Nothing more: the next batch is not.
        assert inspect(image / "store.db", acknowledged[:whole]) == [], f"cut at {cut}"
        assert inspect(image / "store.db", acknowledged[: whole + 1]) != [] or whole == len(
            acknowledged
        )
