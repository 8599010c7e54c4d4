"""The command in a terminal."""

import contextlib
import os
import pty
import subprocess
import sysconfig
from collections.abc import Mapping
from typing import Any

FOLDLOG = os.path.join(sysconfig.get_path("scripts"), "foldlog")


def in_a_terminal(
    *arguments: str, typed: str = "", environment: Mapping[str, str] = {}, **others: Any
) -> tuple[int, bytes, bytes | None]:
    """Return the exit status of a command, what the terminal shows, and what it wrote to a pipe for
    its errors.

    ``typed`` is what a person types. ``others`` are streams that are no terminal, and the folder.
    """
    ours, theirs = pty.openpty()
    streams = {**dict.fromkeys(("stdin", "stdout", "stderr"), theirs), **others}
    process = subprocess.Popen([FOLDLOG, *arguments], env={**os.environ, **environment}, **streams)
    os.close(theirs)
    os.write(ours, typed.encode())
    shown = b""
    with contextlib.suppress(OSError):  # how Linux says that the other side has closed a terminal
        while part := os.read(ours, 65536):
            shown += part
    os.close(ours)
    _, err = process.communicate()
    return process.returncode, shown, err
