"""What the tables of protections name is there, once: running them takes minutes, this does not."""

from __future__ import annotations

from tests.adapters import protections as adapters
from tests.attack import protections as attack
from tests.crash import protections as crash
from tests.fuzz import protections as fuzz
from tests.postgres import protections as postgres
from tests.protections import ROOT, Protection, is_sql, places, sql_blocks

TABLES = {
    f"{table.__name__.split('.')[1]}-{name}": protection
    for table in (adapters, attack, crash, fuzz, postgres)
    for name, protection in table.PROTECTIONS.items()
}


def _places(protection: Protection) -> int:
    return len(sql_blocks(protection.where) if is_sql(protection) else places(protection.where))


def _has_test(protection: Protection) -> bool:
    test = protection.test.removeprefix("-m tests.crash ").split()[0]  # a command of its own
    return test == "writers" or (ROOT / test).exists()


def test_each_protection_names_one_place_and_a_test():
    """Where it does not, name it anew in the table, or drop the row if the code is gone."""
    assert {name: each.where for name, each in TABLES.items() if _places(each) != 1} == {}
    assert {name: each.test for name, each in TABLES.items() if not _has_test(each)} == {}
