"""The list of the references' faults: complete, and every test that it names exists."""

import re
from pathlib import Path

from tests.golden.cases import cases_in

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "tests" / "conformance" / "README.md").read_text(encoding="utf-8")
ROWS = [line.split("|") for line in TEXT.splitlines() if line.startswith("| ")]

FAULTS = {
    *("R1", "R2", "M1"),
    *(f"P{n}" for n in range(1, 6)),
    *(f"A{n}" for n in range(1, 5)),
    *(f"W{n}" for n in range(1, 5)),
    *(f"L{n}" for n in range(1, 11)),
    *(f"T{n}" for n in range(1, 9)),
    *(f"S{n}" for n in range(1, 6)),
    *(f"H{n}" for n in range(1, 5)),
    *(f"K{n}" for n in range(1, 4)),
    "B-V1",
}


def test_every_fault_is_listed_once():
    labels = [label.strip() for row in ROWS for label in row[1].split(",")]
    assert {label for label in FAULTS if labels.count(label) != 1} == set()


def test_every_test_that_is_named_exists():
    named = set(re.findall(r"`(test_\w+)`", TEXT))
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert named - defined == set()
    assert len(named) > 5


def test_every_label_that_has_golden_cases_is_behind_a_rule():
    listed = {label.strip() for row in ROWS for label in row[1].split(",")}
    golden = {label.strip() for row in ROWS if "*golden*" in row[-2] for label in row[1].split(",")}
    rules = (case.rule for cases in cases_in("condensations").values() for case in cases)
    behind = {label for rule in rules for label in re.findall(r"\b[A-Z](?:-V)?\d+\b", rule)}
    assert golden - behind == set()
    assert behind - listed == set()
    assert len(golden) > 30
