"""Tests of the adapters, each in an environment with its SDK: ``scripts/test --adapters`` makes
them.
"""

import os
import runpy
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import foldlog
from tests.adapters.contract import ROOT
from tests.postgres.servers import Server, ServerUnavailable, new_primary

if os.environ.get("FOLDLOG_TEST_ADAPTERS") != "1":
    # the SDKs exclude one another, so this environment has none of them
    collect_ignore_glob = ["*/test_*.py"]


@pytest.fixture
def anyio_backend():
    return "asyncio"  # the SDKs that these tests run are written for it


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request, tmp_path: Path):
    """The URL of a new store. A store in memory is one for each time that it is opened."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")()
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'history.db'}"


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'history.db'}"


@pytest.fixture
def histories():
    """Open histories of a new store in memory. What depends on where a store is takes its
    ``url``.
    """
    with foldlog.open("memory:") as opened:
        yield opened


@pytest.fixture
def recall():
    """The function of the recall tool of a history that has forgotten ``xyzzy``."""
    with foldlog.open("memory:") as opened:
        opened["c"].append(
            [foldlog.Message(source="user", content=text) for text in ("it is xyzzy", "go on")]
        )
        opened["c"].append(
            foldlog.CondensationAction(forgotten_event_ids=[0], summary="a word", summary_offset=0)
        )
        yield opened["c"].recall_tool().recall


@pytest.fixture
def example(request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of the adapter's example, which keeps its history in an empty folder."""
    monkeypatch.setenv("FOLDLOG_DB", f"sqlite:///{tmp_path / 'example.db'}")
    adapter = request.path.parent.name
    return runpy.run_path(str(ROOT / "examples" / f"{adapter}_foldlog.py"))


@pytest.fixture
def restartable() -> Iterator[Server]:
    """A server of one test, which may stop and start it. The test says why it is skipped where
    there can be none.
    """
    # short: the path of a socket may have 107 bytes
    folder = Path(tempfile.mkdtemp(prefix="foldlog-"))
    folder.chmod(0o755)
    try:
        server = new_primary(folder / "primary")
    except ServerUnavailable as error:
        pytest.skip(str(error))
    yield server
    server.stop("immediate")
    shutil.rmtree(folder)
