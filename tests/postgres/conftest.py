"""A store behind a proxy that cuts connections at the moment that a test orders."""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from foldlog.eventstore import Store
from tests.between import before_next_call
from tests.foldlog.conftest import foldlog as foldlog

from .cutting import Cut, CuttingProxy
from .servers import Server, new_primary

CUTS: tuple[Cut, ...] = ("request", "answer")


def before_recovery(store: Store, act: Callable[[], object]) -> None:
    """Call ``act`` once, after the next lost connection and before the next attempt."""
    before_next_call(pytest.MonkeyPatch(), store._recorder, "_recover", act)


def lock_waiters(server: Server) -> int:
    """Return how many sessions wait for the lock of a conversation."""
    return int(
        server.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    )


@pytest.fixture
def url(postgres_url: Callable[[], str]) -> str:
    """A new, empty store."""
    return postgres_url()


@pytest.fixture
def schema(url: str) -> str:
    return url.partition("schema=")[2].partition("&")[0]


@pytest.fixture
def proxy(postgres_server: Server) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(postgres_server.port)
    yield proxy
    proxy.close()


@pytest.fixture
def via(url: str, proxy: CuttingProxy, postgres_server: Server) -> str:
    """The URL of the same store, through the proxy."""
    return url.replace(f":{postgres_server.port}/", f":{proxy.port}/")


@pytest.fixture(scope="session")
def other_server(postgres_server: Server) -> Iterator[Server]:
    """Another server, to which stores are restored."""
    server = new_primary(postgres_server.folder.parent / "other")
    yield server
    server.remove()


@pytest.fixture
def folder(postgres_server: Server) -> Iterator[Path]:
    """A folder for servers of one test, which every user can enter."""
    folder = postgres_server.folder.parent / f"servers-{time.monotonic_ns()}"
    folder.mkdir()
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
