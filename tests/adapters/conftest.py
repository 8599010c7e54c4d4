"""Tests of the adapters, each in an environment with its SDK: ``scripts/test --adapters`` makes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import foldlog

if os.environ.get("FOLDLOG_TEST_ADAPTERS") != "1":
    collect_ignore_glob = ["*/test_*.py"]  # the SDKs exclude one another, so this environment has none of them


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
def histories(url):
    """Open histories of a new store, on each recorder."""
    with foldlog.open(url) as opened:
        yield opened
