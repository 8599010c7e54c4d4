"""The list of adapters is true: the package, its extras and the tests say the same."""

import tomllib
from pathlib import Path

import pytest

from tests.adapters_list import ADAPTERS

ROOT = Path(__file__).parents[3]
PLACE = ROOT / "foldlog" / "adapters"
SHARED = {"langgraph_deltas", "__init__", "_linked_entries", "_shared", "_streams"}
"""Files that are no adapters."""
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_adapter_has_file_tests_page_and_extra():
    files = {path.stem for path in PLACE.glob("*.py")} - SHARED
    folders = {path.parent.name for path in (ROOT / "tests" / "adapters").glob("*/newest.txt")}
    folders.remove("dbos")  # an engine that runs agents, and no runtime with an adapter
    names = [adapter.name for adapter in ADAPTERS]
    assert names == sorted(files) == sorted(folders)
    page = (ROOT / "docs" / "ADAPTERS.md").read_text()
    for adapter in ADAPTERS:
        named = (*adapter.classes, f".[{adapter.extra}]", adapter.module)
        tested = f"{adapter.distribution} {' and '.join(adapter.tested)}"
        assert [words for words in (*named, tested) if words not in page] == [], adapter.name


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.name)
def test_extra_begins_at_the_oldest_tested_release(adapter):
    assert EXTRAS[adapter.extra] == [f"{adapter.distribution}>={adapter.tested[0]}"]
    tests = ROOT / "tests" / "adapters" / adapter.name
    ends = [
        next(
            line
            for line in (tests / f"{end}.txt").read_text().split()
            if line.partition("==")[0].partition("[")[0] == adapter.distribution
        )
        for end in ("lowest", "newest")
    ]
    assert adapter.tested == tuple(dict.fromkeys(end.partition("==")[2] for end in ends))
