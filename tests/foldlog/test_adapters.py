"""The list of adapters is true: the package, its extras and the tests say the same."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from foldlog.adapters import _catalog as catalog
from foldlog.adapters._catalog import ADAPTERS

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "foldlog" / "adapters"
SHARED = {"langgraph_deltas", "__init__", "_catalog", "_linked", "_shared"}
"""Files that are no adapters."""
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_each_adapter_has_a_file_tests_a_page_and_an_extra():
    files = {path.stem for path in PLACE.glob("*.py")} - SHARED
    folders = {path.parent.name for path in (ROOT / "tests" / "adapters").glob("*/newest.txt")} - {"dbos"}  # an engine
    names = [adapter.name for adapter in ADAPTERS]
    assert names == sorted(files) == sorted(folders)
    page = (ROOT / "docs" / "ADAPTERS.md").read_text()
    for adapter in ADAPTERS:
        assert all(name in page for name in (*adapter.classes, f".[{adapter.extra}]", adapter.module)), adapter.name


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.name)
def test_an_extra_begins_at_the_oldest_release_that_is_tested_and_has_no_end(adapter):
    assert EXTRAS[adapter.extra] == [f"{adapter.distribution}>={adapter.tested[0]}"]
    tests = ROOT / "tests" / "adapters" / adapter.name
    ends = [
        next(
            line for line in (tests / f"{end}.txt").read_text().split() if line.startswith(f"{adapter.distribution}==")
        )
        for end in ("lowest", "newest")
    ]
    assert adapter.tested == tuple(dict.fromkeys(end.partition("==")[2] for end in ends))


@pytest.mark.parametrize(
    "installed, state",
    [(None, "not installed"), ("1.2.0", "tested"), ("1.9.9", "tested"), ("1.1.9", "too old"), ("1.10.0", "untested")],
)
def test_an_sdk_of_another_release_is_called_untested_or_too_old(monkeypatch, installed, state):
    def version(distribution):
        if installed is None:
            raise catalog.PackageNotFoundError(distribution)
        return installed

    monkeypatch.setattr(catalog, "version", version)
    adapter = catalog.Adapter("x", "X", ("Y",), "x-sdk", ("1.2", "1.9.9"))
    assert (adapter.installed, adapter.state) == (installed, state)


def test_the_command_lists_them(foldlog):
    listed = json.loads(foldlog("adapters", "--json").out)["adapters"]
    assert [one["name"] for one in listed] == [adapter.name for adapter in ADAPTERS]
    assert {"module", "classes", "extra", "distribution", "tested", "installed", "state"} <= set(listed[0])
    shown = foldlog("adapters").out
    assert "<" not in shown, "no release is too new"
    for adapter in ADAPTERS:
        assert f"{adapter.distribution} >={adapter.tested[0]}, tested with {' and '.join(adapter.tested)}" in shown
