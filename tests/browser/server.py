"""``foldlog serve`` in a process of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def serving(url: str, **environment: str) -> Iterator[str]:
    """The address of a server over a store, with its token."""
    command = [sys.executable, "-m", "foldlog", "serve", "--port", "0", "--db", url]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        process.stdout.close()
