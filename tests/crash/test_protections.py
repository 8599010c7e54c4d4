"""The tables of protections that are taken out are of the code as it is: running them takes minutes, this does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters import protections as adapters
from tests.attack import protections as attack
from tests.crash import protections as crash
from tests.fuzz import protections as fuzz
from tests.postgres import protections as postgres

ROOT = Path(__file__).parents[2]


TABLES = [
    protection for table in (adapters, attack, crash, fuzz, postgres) for protection in table.PROTECTIONS.values()
]


@pytest.mark.parametrize("protection", TABLES, ids=lambda p: p.what)
def test_a_protection_is_where_its_table_says_and_so_is_its_test(protection: crash.Protection):
    assert protection.code in (ROOT / protection.file).read_text()
    test = protection.test.removeprefix("-m tests.crash ").split()[0]  # a command of its own
    assert test == "writers" or (ROOT / test).exists()
