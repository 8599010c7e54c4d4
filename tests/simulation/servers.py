"""A PostgreSQL server of the simulation, and a new schema for each store of each world."""

import itertools
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

from tests.postgres.servers import new_primary

__all__ = ["server"]


@contextmanager
def server():
    """Start a server; give what makes the URL of a new store."""
    folder = Path(tempfile.mkdtemp(prefix="foldlog-"))
    folder.chmod(0o755)
    started = new_primary(folder / "primary")
    number = itertools.count()
    try:
        yield lambda: started.url(schema=f"store_{next(number)}", patience_s="10")
    finally:
        started.stop("immediate")
        shutil.rmtree(folder)
