"""The command in a terminal."""

import contextlib
import os
import pty
import subprocess
import sysconfig
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

FOLDLOG = os.path.join(sysconfig.get_path("scripts"), "foldlog")


def in_a_terminal(
    *arguments: str, typed: str = "", environment: Mapping[str, str | None] = {}, **others: Any
) -> tuple[int, bytes, bytes | None]:
    """Return the exit status of a command, what the terminal shows, and what it wrote to a pipe for
    its errors.

    ``typed`` is what a person types. ``others`` are streams that are no terminal, and the folder.
    A variable whose value is None is not set. No pager waits for keys, unless ``environment`` names
    one.
    """
    ours, theirs = pty.openpty()
    streams = {**dict.fromkeys(("stdin", "stdout", "stderr"), theirs), **others}
    values = {**os.environ, "PAGER": "", **environment}
    settings = {name: value for name, value in values.items() if value is not None}
    process = subprocess.Popen([FOLDLOG, *arguments], env=settings, **streams)
    os.close(theirs)
    os.write(ours, typed.encode())
    shown = b""
    # Both are read at the same time, because the command waits where nobody reads.
    with ThreadPoolExecutor(1) as pool:
        rest = pool.submit(process.communicate)
        with contextlib.suppress(OSError):  # how Linux says that the command closed its terminal
            while part := os.read(ours, 65536):
                shown += part
        _, err = rest.result()
    os.close(ours)
    return process.returncode, shown, err
