"""A small file system that a test can fill."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    """Mount a tmpfs at a folder, or skip the test if this user may not mount one."""
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
    """Fill the disk."""
    with suppress(OSError), path.open("wb", 0) as ballast:
        while True:
            ballast.write(b"x" * 4_096)
