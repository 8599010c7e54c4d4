"""A PostgreSQL server for the simulation, with a new schema for each store of each world."""

import itertools
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

from tests.postgres.servers import new_primary


@contextmanager
def running_server():
    """Start a server, and yield a function that returns the URL of a new store on it."""
    folder = Path(tempfile.mkdtemp(prefix="foldlog-"))
    folder.chmod(0o755)
    server = new_primary(folder / "primary")
    number = itertools.count()
    try:
        yield lambda: server.url(schema=f"store_{next(number)}", patience_s="60")
    finally:
        server.stop("immediate")
        shutil.rmtree(folder)
