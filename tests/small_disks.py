"""A small file system of its own, which a test can fill."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    """A tmpfs at a folder, where this user may mount one; else the test says why it skips."""
    folder.mkdir(exist_ok=True)
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if mount.returncode != 0:
        pytest.skip(
            f"a small file system cannot be mounted here ({mount.stderr.strip()}); faults.c shows a"
            " full disk too"
        )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(path: Path) -> None:
    """Take all space that is left."""
    with suppress(OSError), path.open("wb", 0) as ballast:
        while True:
            ballast.write(b"x" * 4_096)
