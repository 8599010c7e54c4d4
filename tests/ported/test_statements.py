"""Every statement of the page for those who come from OpenHands runs."""

from __future__ import annotations

import re
from pathlib import Path
from unittest.mock import patch

import pytest

from foldlog.condensers import list_strategies
from foldlog.condensers.config.registry import CONDENSER_REGISTRY
from foldlog.condensers.models import llm_config

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "COMING_FROM_OPENHANDS.md").read_text(encoding="utf-8")
(BEFORE,) = re.findall(r"after these lines:\n\n```python\n(.*?)```", PAGE, re.DOTALL)
STATEMENTS: list[tuple[str, str]] = re.findall(
    r"^\*\*(.+?)\*\*: .*?\n```python\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL
)
"""Each name or habit of the reference, and its example, which runs in a namespace that ``BEFORE`` made."""


@pytest.fixture(autouse=True)
def _clean_registry():
    assert list_strategies()
    with patch.dict(CONDENSER_REGISTRY):
        yield


def test_every_example_of_the_page_is_one_of_a_statement():
    assert len(STATEMENTS) == PAGE.count("```python") - 1 > 40


@pytest.mark.parametrize("theirs, example", STATEMENTS, ids=[theirs[:60] for theirs, _ in STATEMENTS])
def test_what_people_write_runs(theirs: str, example: str, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "example"}
    exec(compile(BEFORE, "before", "exec", dont_inherit=True), namespace)
    exec(compile(example, theirs, "exec", dont_inherit=True), namespace)
    namespace["histories"].close()  # type: ignore[attr-defined]


def test_every_key_of_a_models_table_there_is_on_the_page():
    keys = {*llm_config.RENAMED, *llm_config.PASSED_ON, *llm_config.MAPS, *llm_config.WITHOUT_EFFECT}
    named = set(re.findall(r"`(\w+)`", PAGE))
    assert {key for key in keys if key not in named and not key.startswith("aws_")} == set()
