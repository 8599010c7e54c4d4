"""``foldlog serve`` in a separate process."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def serving(
    url: str | Path, *options: str, **environment: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield the process of a server over a store, and the address that it prints, with its token."""
    command = [sys.executable, "-m", "foldlog", "serve", "--port", "0", "--db", url, *options]
    variables = {**os.environ, "FOLDLOG_TOKEN": "", **environment}
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=variables)
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        if not address:
            raise RuntimeError(f"the server did not start: {process.communicate(timeout=60)[1]}")
        yield process, address
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
