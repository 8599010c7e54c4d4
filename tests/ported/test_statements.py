"""Every statement about names of the reference runs, and the page says what the table says."""

from __future__ import annotations

import pytest

from condensers.config import parameters, registry
from tests.ported.statements import BEFORE, PAGE, STATEMENTS, Statement, page


@pytest.fixture(autouse=True)
def _clean_registry():
    assert parameters.list_strategies()
    before, names = dict(registry.CONDENSER_REGISTRY), dict(registry._by_name)
    yield
    registry.CONDENSER_REGISTRY.clear()
    registry.CONDENSER_REGISTRY.update(before)
    registry._by_name.clear()
    registry._by_name.update(names)


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement.theirs[:60])
def test_what_people_write_runs(statement: Statement, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "example"}
    exec(compile(BEFORE, "before", "exec", dont_inherit=True), namespace)
    exec(compile(statement.example, statement.theirs, "exec", dont_inherit=True), namespace)
    namespace["histories"].close()  # type: ignore[attr-defined]


def test_the_page_is_made_of_the_table():
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.ported.statements"
