"""What several folders of tests share."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.how_many import WHOLE
from tests.in_memory import in_memory
from tests.postgres.pooler import Pooler
from tests.postgres.servers import Server, ServerUnavailable, new_primary

# No test measures time: a machine that is busy with other work fails none.
settings.register_profile("foldlog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("foldlog")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole", action="store_true", help="take every case where tests take a sample; many minutes")


def pytest_configure(config: pytest.Config) -> None:
    """Start as in a terminal's foreground, write as into a file, and make files in memory where there is room.

    In the background Ctrl-C is ignored, and whatever the tests start would ignore it too. A process that has loaded
    readline, as pytest's has, hands the width of its terminal to the processes that run the tests. Nothing is lost
    where files are only in memory: a process that is killed leaves the page cache whole, and disks that fail, or whose
    power is cut, are those of ``faults.c``. A sync of a real one only costs time, and there are thousands.
    """
    if config.getoption("--whole"):
        os.environ[WHOLE] = "1"
    if "TMPDIR" not in os.environ and (folder := in_memory()):
        os.environ["TMPDIR"] = tempfile.tempdir = folder
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def whole(pytestconfig: pytest.Config) -> bool:
    """Whether to take every case (``scripts/test --whole``) where a test takes a sample else."""
    return bool(pytestconfig.getoption("--whole"))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """One real server for the whole run. Where none can be started, the tests that need it say why they are skipped."""
    folder = Path(tempfile.mkdtemp(prefix="foldlog-"))  # short: the path of a socket may have 107 bytes
    folder.chmod(0o755)
    try:
        server = new_primary(folder / "primary")
    except ServerUnavailable as error:
        pytest.skip(str(error))
    yield server
    try:
        server.stop("immediate")
    finally:  # the folder may be in memory
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def postgres_front(postgres_server: Server) -> Iterator[Server | Pooler]:
    """Where clients connect: the server, or the pgbouncer before it that ``$FOLDLOG_PGBOUNCER`` asks for."""
    program = os.environ.get("FOLDLOG_PGBOUNCER")
    if not program:
        yield postgres_server
        return
    pooler = Pooler(program, postgres_server)
    yield pooler
    pooler.stop()


@pytest.fixture(scope="session")
def postgres_url(postgres_front: Server | Pooler) -> Callable[[], str]:
    """Makes the URL of a new, empty store each time it is called: another schema of the same database."""
    number = itertools.count()
    return lambda: postgres_front.url(schema=f"store_{next(number)}", patience_s="10")
