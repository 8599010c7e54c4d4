"""What several folders of tests share."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import sys
import tempfile
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
    *(
        f"tests/foldlog/test_{name}.py"
        for name in ("bytes", "cli", "compare", "condense", "figures", "sizes", "steps")
    ),
    *(
        f"tests/{name}.py"
        for name in ("ported/test_programs", "properties/test_dialects", "test_docs")
    ),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all",
        action="store_true",
        help="run long tests, and every case where tests take a sample",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Start as in a terminal's foreground, write as into a file, and make files in memory where
    there is room.

    In the background Ctrl-C is ignored, and whatever the tests start would ignore it too. A process
    that has loaded readline, as pytest's has, hands the width of its terminal to the processes that
    run the tests. Nothing is lost where files are only in memory: a process that is killed leaves
    the page cache whole, and disks that fail, or whose power is cut, are those of ``faults.c``. A
    sync of a real one only costs time, and there are thousands.
    """
    gc.disable()  # until all tests are collected
    if config.getoption("--all"):
        os.environ[WHOLE] = "1"
    # No test measures time: a machine that is busy with other work fails none.
    settings.register_profile("foldlog", examples(100))
    settings.load_profile("foldlog")
    # each process that has imported litellm gives them, whichever test runs
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


class _Wanted:
    """Sees who looks for litellm, or for openai below it, where they are not installed: the group
    ``test`` leaves them out.
    """

    litellm = False

    def find_spec(self, name: str, *_: object) -> None:
        self.litellm |= name.partition(".")[0] in ("litellm", "openai")


_wanted = _Wanted()
# no test of an adapter needs litellm: one that fails has failed
if find_spec("litellm") is None and "FOLDLOG_TEST_ADAPTERS" not in os.environ:
    sys.meta_path.insert(0, _wanted)  # type: ignore[arg-type]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Skip a test that fails where it looked for litellm, or was told, and there is none."""
    report = yield
    if (
        report.failed
        and _wanted in sys.meta_path
        and (_wanted.litellm or "litellm" in report.longreprtext)
    ):
        report.outcome, report.longrepr = (
            "skipped",
            (str(item.path), item.location[1], "litellm is not installed"),
        )
    _wanted.litellm &= call.when != "teardown"
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out long tests unless ``--all`` or ``-m long`` asks for them, and forms of cases unless
    ``--all`` does.

    Those that import litellm are the first: of several processes, one runs the first of all tests,
    and it alone spends the seconds that this takes.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(_IMPORT_LITELLM))
    if config.getoption("--all") or "long" in config.getoption("-m"):
        return
    on_server: Counter[tuple[Path, str]] = Counter()
    long = [
        item
        for item in items
        if item.get_closest_marker("long") or _is_one_form_more(item, on_server)
    ]
    left_out = set(long)
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=long)
    config.stash[_LEFT_OUT] = len(long)


def _is_one_form_more(item: pytest.Item, on_server: Counter[tuple[Path, str]]) -> bool:
    """Whether a case that has more parameters than its recorder is on one in memory: it runs the
    statements of one in a file, and each of its own functions has cases without more parameters. Or
    it is one on a server whose bytes have not all of their forms at once: a file has each of them.
    Of other cases of one function above the recorder, each third is on a server, the first among
    them.
    """
    parameters = (
        item.callspec.params
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        else {}
    )
    if len(parameters) < 2 or item.path.parent.name not in ("conformance", "ledger"):
        return False
    if "postgresql" not in parameters.values():
        return "memory" in parameters.values()
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
    """Leave what the tests themselves consist of out of each collection of garbage: it is most of
    this process.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    shutil.rmtree(_data_folder(), ignore_errors=True)
    with contextlib.suppress(AttributeError):  # not one of several processes
        session.config.workeroutput["long"] = session.config.stash.get(_LEFT_OUT, 0)  # type: ignore[attr-defined]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """One of the processes that ran the tests has ended: each collected all of them."""
    node.config.stash[_LEFT_OUT] = getattr(node, "workeroutput", {}).get("long", 0)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if left_out := config.stash.get(_LEFT_OUT, 0):
        terminalreporter.write_line(f"{left_out} long tests were left out: scripts/test --all")


@pytest.fixture(scope="session")
def whole(pytestconfig: pytest.Config) -> bool:
    """Whether to take every case (``scripts/test --all``) where a test takes a sample else."""
    return bool(pytestconfig.getoption("--all"))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """One real server for the whole run. Where none can be started, the tests that need it say why
    they are skipped.
    """
    # short: the path of a socket may have 107 bytes
    folder = Path(tempfile.mkdtemp(prefix="foldlog-"))
    folder.chmod(0o755)
    try:
        # Each connection copies the table of the pages of shared memory.
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
    """Where clients connect: the server, the pgbouncer before it that ``$FOLDLOG_PGBOUNCER`` asks
    for, or the server with Citus that ``$FOLDLOG_CITUS_URL`` names.
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
    address = os.environ.get("FOLDLOG_CITUS_URL") or postgres_server.url()
    with psycopg.connect(address, autocommit=True) as connection:
        yield EmptyStores(connection, int(os.environ.get("FOLDLOG_POSTGRES_STORES", "1")))


@pytest.fixture
def postgres_url(
    postgres_front: Server | Pooler, postgres_stores: EmptyStores, request: pytest.FixtureRequest
) -> Iterator[Callable[[], str]]:
    """Makes the URL of an empty store each time it is called: another schema of the same database.

    It is one that another test has used, emptied, unless this test is about schemas themselves.
    With ``another``, this test has closed the stores that it was given.
    """
    of_postgres = "tests/postgres/" in request.node.nodeid and request.path.stem in _OF_SCHEMAS
    schemas: list[str] = []

    def url(another: bool = False) -> str:
        if another:
            postgres_stores.used += schemas
            schemas.clear()
        schemas.append(postgres_stores.new() if of_postgres else postgres_stores.take())
        chosen = {
            name: os.environ.get(f"FOLDLOG_POSTGRES_{name.upper()}")
            for name in ("partitions", "stores")
        }
        options = {name: value for name, value in chosen.items() if value}
        return postgres_front.url(schema=schemas[-1], patience_s="10", **options)

    yield url
    if not of_postgres:
        postgres_stores.used += schemas
