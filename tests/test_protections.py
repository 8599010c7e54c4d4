"""What the tables of protections name is there, once: running them takes minutes, this does not."""

from __future__ import annotations

import ast
import re
import sys

from tests.adapters import protections as adapters
from tests.condensers import protections as condensers
from tests.crash import protections as crash
from tests.crash.scenarios import SCENARIOS
from tests.fuzz import protections as fuzz
from tests.postgres import protections as postgres
from tests.protections import ROOT, Protection, changed, is_sql, main, places, sql_blocks

PARAMETERS = ("memory", "sqlite", "plain", *SCENARIOS)
"""Of fixtures that several files share."""
TABLES = {
    f"{table.__name__.split('.')[1]}-{name}": protection
    for table in (adapters, condensers, crash, fuzz, postgres)
    for name, protection in table.PROTECTIONS.items()
}


def _places(protection: Protection) -> int:
    return len(sql_blocks(protection.where) if is_sql(protection) else places(protection.where))


def _has_test(protection: Protection) -> bool:
    """Whether its file has a test of each name after ``-k``; a part that is in no name is a
    parameter.
    """
    if protection.test.startswith("-m "):
        return True  # a command of its own
    file, _, chosen = protection.test.partition(" -k ")
    if not (ROOT / file).exists():
        return False
    text = (ROOT / file).read_text()
    tests = re.findall(r"def (test_\w+)", text)
    parts = [part for part in chosen.split(" and ") if part and not part.startswith("not ")]
    named = [
        part for part in parts if part not in PARAMETERS and any(part in test for test in tests)
    ]
    others = [word for part in parts if part not in named for word in part.split("-")]
    known = all(word in text or word in PARAMETERS for word in others)
    return known and any(all(part in test for part in named) for test in tests)


def test_each_protection_names_one_place_and_a_test():
    """Where it does not, name it anew in the table, or drop the row if the code is gone."""
    assert {name: each.where for name, each in TABLES.items() if _places(each) != 1} == {}
    assert {name: each.test for name, each in TABLES.items() if not _has_test(each)} == {}


def test_each_protection_can_be_taken_out():
    for each in TABLES.values():
        file, text = changed(each)
        assert file.suffix == ".sql" or ast.parse(text), each


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or [""], TABLES))
