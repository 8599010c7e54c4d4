"""Fixtures and options that several folders of tests share."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import settings

from tests.condensers.conftest import LITELLMS_OWN_WARNINGS
from tests.how_many import WHOLE, examples
from tests.in_memory import in_memory
from tests.postgres.empty_stores import EmptyStores
from tests.postgres.pooler import Pooler
from tests.postgres.servers import Address, Server, ServerUnavailable, new_primary

_OF_SCHEMAS = ("test_setup", "test_positions", "test_statements", "test_status")
_LEFT_OUT = pytest.StashKey[int]()
_IMPORT_LITELLM = (
    "tests/condensers/",
    "tests/fuzz/test_fuzz.py",
    "tests/properties/test_dialects.py",
    *(
        f"tests/foldlog/{name}.py"
        for name in (
            "app/cli/test_condense",
            "formats/test_replies",
            "reports/test_compare",
            "reports/test_tokens",
            "test_bytes",
            "test_otel",
        )
    ),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all",
        action="store_true",
        help="run long tests, and every case where tests take a sample",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C interrupt the tests, write output as into a file, and make files in memory if there is
    room.

    A process in the background ignores Ctrl-C, and so do the processes that it starts. A process that
    has loaded readline, as pytest has, passes the width of its terminal to the processes that run the
    tests. The tests need no real disk: a killed process loses nothing that it wrote, and ``faults.c``
    simulates disks that fail and power cuts. Thousands of syncs of a real disk would only take time.
    """
    gc.disable()  # until all tests are collected
    if config.getoption("--all"):
        os.environ[WHOLE] = "1"
    # no example has a deadline, because the machine may be busy
    settings.register_profile("foldlog", examples(100))
    settings.load_profile("foldlog")
    # litellm gives these warnings in each process that has imported it, in any test
    for warning in LITELLMS_OWN_WARNINGS:
        config.addinivalue_line("filterwarnings", warning)
    if "TMPDIR" not in os.environ and (folder := in_memory()):
        os.environ["TMPDIR"] = tempfile.tempdir = folder
    os.environ["XDG_DATA_HOME"] = _data_folder()
    for name in ("COLUMNS", "LINES", "FOLDLOG_DB"):
        os.environ.pop(name, None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _data_folder() -> str:
    """Return the data folder of this process of the tests. It is created when a test needs it."""
    return os.path.join(tempfile.gettempdir(), f"foldlog-data-{os.getpid()}")


class _LitellmFinder:
    """Notes whether a test imports litellm, or openai, which litellm needs, if they are not installed.
    The dependency group ``test`` does not have them.
    """

    was_imported = False

    def find_spec(self, name: str, *_: object) -> None:
        self.was_imported |= name.partition(".")[0] in ("litellm", "openai")


_litellm_finder = _LitellmFinder()
# no test of an adapter needs litellm, so none of them is skipped
if find_spec("litellm") is None and "FOLDLOG_TEST_ADAPTERS" not in os.environ:
    sys.meta_path.insert(0, _litellm_finder)  # type: ignore[arg-type]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Skip a test that fails because litellm is not installed."""
    report = yield
    if (
        report.failed
        and _litellm_finder in sys.meta_path
        and (_litellm_finder.was_imported or "litellm" in report.longreprtext)
    ):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1], "litellm is not installed")
    _litellm_finder.was_imported &= call.when != "teardown"
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out long tests and redundant cases, unless ``--all`` or ``-m long`` asks for them.

    Tests that import litellm come first. If several processes run the tests, one process runs the
    first ones, so it alone takes the seconds for that import.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(_IMPORT_LITELLM))
    if config.getoption("--all") or "long" in config.getoption("-m"):
        return
    on_server: Counter[tuple[Path, str]] = Counter()
    long = [
        item for item in items if item.get_closest_marker("long") or _is_redundant(item, on_server)
    ]
    left_out = set(long)
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=long)
    config.stash[_LEFT_OUT] = len(long)


def _is_redundant(item: pytest.Item, on_server: Counter[tuple[Path, str]]) -> bool:
    """Return whether a case of a conformance test, with more parameters than its recorder, may be left
    out because cases with an SQLite file test the same; in the folder ``archive``, cases in memory.

    Cases in memory may, because they run the statements of a file. Cases on a server may if they use
    one form of stored bytes. Of the other cases of a function, every third one runs on a server,
    beginning with the first.
    """
    parameters: dict[str, Any] = {}
    if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
        parameters = item.callspec.params
    folder = item.path.parent.name
    if len(parameters) < 2 or folder not in ("archive", "conformance", "ledger"):
        return False
    if not {"postgresql", "postgresql-encrypted"}.intersection(map(str, parameters.values())):
        return "memory" in parameters.values() and folder != "archive"
    if (
        parameters.get("settings") in ("plain", "zlib", "encrypted")
        or parameters.get("store", "") is None
    ):
        return True
    if item.path.stem in ("test_recorders", "test_library", "test_interrupted"):
        return False
    function = item.path, item.originalname  # type: ignore[attr-defined]
    on_server[function] += 1
    return on_server[function] % 3 != 1


def pytest_collection_finish() -> None:
    """Exclude the tests themselves, which are most objects of this process, from garbage collection."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    shutil.rmtree(_data_folder(), ignore_errors=True)
    with contextlib.suppress(AttributeError):  # not one of several processes
        session.config.workeroutput["long"] = session.config.stash.get(_LEFT_OUT, 0)  # type: ignore[attr-defined]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over the number of long tests from a process that has ended. All processes have the same."""
    node.config.stash[_LEFT_OUT] = getattr(node, "workeroutput", {}).get("long", 0)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if left_out := config.stash.get(_LEFT_OUT, 0):
        terminalreporter.write_line(f"{left_out} long tests were left out: scripts/test --all")


@pytest.fixture(autouse=True, scope="session")
def figures_without_a_time_limit() -> None:
    """On a slow machine, a reader counts fewer conversations before it answers."""
    from foldlog._reports.figures import of_store

    of_store._SECONDS_AT_ONCE = 600.0


@pytest.fixture(scope="session")
def whole(pytestconfig: pytest.Config) -> bool:
    """Whether to take every case (``scripts/test --all``) instead of a sample."""
    return bool(pytestconfig.getoption("--all"))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """Start one real server for the whole run. If it cannot be started, tests that need it are skipped
    with the reason.
    """
    # a short path, because the path of a socket may have at most 107 bytes
    folder = Path(tempfile.mkdtemp(prefix="foldlog-"))
    folder.chmod(0o755)
    try:
        # small buffers, because each connection copies the page table of shared memory
        server = new_primary(folder / "primary", {"shared_buffers": "16MB", "max_wal_size": "8GB"})
    except ServerUnavailable as error:
        pytest.skip(str(error))
    yield server
    try:
        server.stop("immediate")
    finally:  # the folder may be in memory
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def postgres_front(postgres_server: Server) -> Iterator[Server | Pooler | Address]:
    """Return the address to which clients connect: the server, a pgbouncer before it if
    ``$FOLDLOG_PGBOUNCER`` is set, or the Citus server that ``$FOLDLOG_CITUS_URL`` names.
    """
    if "FOLDLOG_CITUS_URL" in os.environ:
        yield Address(os.environ["FOLDLOG_CITUS_URL"])
        return
    program = os.environ.get("FOLDLOG_PGBOUNCER")
    if not program:
        yield postgres_server
        return
    pooler = Pooler(program, postgres_server)
    yield pooler
    pooler.stop()


@pytest.fixture(scope="session")
def postgres_stores(postgres_server: Server) -> Iterator[EmptyStores]:
    stores = int(os.environ.get("FOLDLOG_POSTGRES_STORES", "1"))
    if "FOLDLOG_CITUS_URL" not in os.environ:
        with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
            yield EmptyStores(connection, stores)
        return
    with psycopg.connect(os.environ["FOLDLOG_CITUS_URL"], autocommit=True) as connection:
        empty_stores = EmptyStores(connection, stores, prefix=f"tests_{time.time_ns()}")
        yield empty_stores
        empty_stores.drop()


@pytest.fixture
def postgres_url(
    postgres_front: Server | Pooler, postgres_stores: EmptyStores, request: pytest.FixtureRequest
) -> Iterator[Callable[[], str]]:
    """Return a function that returns the URL of an empty store: another schema for each call.

    It may be the emptied schema of an earlier test, unless this test is about schemas themselves. Call
    it with ``another`` when this test has closed all stores that it has opened.
    """
    of_schemas = "tests/postgres/" in request.node.nodeid and request.path.stem in _OF_SCHEMAS
    schemas: list[str] = []

    def url(another: bool = False) -> str:
        if another:
            postgres_stores.used += schemas
            schemas.clear()
        schemas.append(postgres_stores.new() if of_schemas else postgres_stores.take())
        stores = os.environ.get("FOLDLOG_POSTGRES_STORES", "1")
        options = {"stores": stores} if stores != "1" else {}
        # The store waits for an answer for half of its patience. On a busy machine, an answer may
        # take longer than five seconds.
        return postgres_front.url(schema=schemas[-1], patience_s="60", **options)

    if "FOLDLOG_CITUS_URL" not in os.environ:
        postgres_stores.until_quiet()
    yield url
    if not of_schemas:
        postgres_stores.used += schemas
