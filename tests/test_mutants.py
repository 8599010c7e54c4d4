"""The seeded mutants that run each week: see ``tests.mutants``."""

import ast
import sqlite3
from contextlib import closing

import pytest

from tests import mutants
from tests.mutants import (
    FailsUnchangedError,
    draw_mutants,
    failing_test,
    find_tests_of,
    mutants_of,
)

SOURCE = '''
def positive(number, seen):
    """Say whether a number is positive."""
    if number > 0 and seen is not None:
        seen.add(number)
    return number > 0
'''
QUERY = "SELECT id FROM events\n WHERE conversation = :key\n   AND id >= :first\n ORDER BY id;\n"


def codes(folder, name, text):
    path = folder / name
    path.write_text(text)
    return [mutant.code for mutant in mutants_of(path)]


def test_each_change_is_of_one_place(tmp_path):
    assert sorted(codes(tmp_path, "numbers.py", SOURCE)) == [
        "(not (number > 0 and seen is not None))",
        "(number > 0 or seen is not None)",
        "(number > 0)",
        "(number >= 0)",
        "(number >= 0)",
        "(seen is None)",
        "(seen is not None)",
        "1",
        "1",
        "pass",
        "return None",
    ]


@pytest.mark.parametrize(
    "line, changes",
    [
        ("return not x", ["(x)", "return None"]),
        ("y = x + 1", ["(x - 1)", "2"]),
        ("y = x[:-1]", ["(x)", "2"]),
        ("y = min(x, key=len)", ["max(x, key=len)"]),
        ("y = sorted(x, reverse=True)", ["False", "sorted(x)"]),
        ("while f(x): break", ["(not (f(x)))", "continue"]),
        ('y = f"{x[0]}"', []),
    ],
)
def test_each_kind_of_change(tmp_path, line, changes):
    assert sorted(codes(tmp_path, "lines.py", f"def act(x):\n    {line}\n")) == changes


def test_query_condition_is_left_out(tmp_path):
    assert codes(tmp_path, "queries.sql", QUERY) == ["\n"]
    (mutant,) = mutants_of(tmp_path / "queries.sql")
    assert mutant.text() == QUERY.replace("   AND id >= :first\n", "\n")


def test_seed_draws_the_same_valid_mutants():
    drawn = draw_mutants(7, 6, ["projections/"])
    assert drawn == draw_mutants(7, 6, ["projections/"]) != draw_mutants(8, 6, ["projections/"])
    for mutant in drawn:
        changed = mutant.text()
        assert changed != mutant.path.read_text()
        if mutant.path.suffix == ".py":
            ast.parse(changed)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of one module and one test, which looks at positive numbers alone."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for folder in (tmp_path, copy):
        (folder / "numbers_.py").write_text(SOURCE)
    (copy / "test_it.py").write_text(
        "from numbers_ import positive\n\ndef test_it():\n    assert positive(1, None)\n"
    )
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "covering", lambda path: ["test_it.py"])
    monkeypatch.setattr(mutants, "ALL_TESTS", ["."])
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # starting takes a third of the time
    return copy


def mutant_of(project, code):
    return next(
        mutant for mutant in mutants_of(project.parent / "numbers_.py") if mutant.code == code
    )


@pytest.fixture
def coverage(tmp_path):
    """Data of coverage, in which ``test_it`` ran line 4."""
    path = tmp_path / ".coverage"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            """
            CREATE TABLE file AS SELECT 1 AS id, '/elsewhere/numbers_.py' AS path;
            CREATE TABLE context AS SELECT 1 AS id, 'test_it.py::test_it[a|b]|run' AS context;
            CREATE TABLE line_bits AS SELECT 1 AS file_id, 1 AS context_id, X'10' AS numbits;
            """
        )
    return path


def test_unnoticed_mutant_survives(project, coverage, monkeypatch):
    either = mutant_of(project, "(number > 0 or seen is not None)")
    assert failing_test(mutant_of(project, "(number >= 0)"), project, coverage) is None
    assert failing_test(either, project) == "test_it.py::test_it"
    monkeypatch.setattr(mutants, "covering", lambda path: [])
    assert failing_test(either, project) == "test_it.py::test_it", "of all tests"


def test_tests_of_a_changed_line(project, coverage):
    either = mutant_of(project, "(number > 0 or seen is not None)")
    assert find_tests_of(either, coverage) == ["test_it.py::test_it"]
    assert find_tests_of(mutant_of(project, "return None"), coverage) == []


def test_broken_test_judges_no_mutant(project):
    with (project / "test_it.py").open("a") as test:
        test.write("\ndef test_broken():\n    assert positive(0, None)\n")
    with pytest.raises(FailsUnchangedError, match="::test_broken"):
        failing_test(mutant_of(project, "(number >= 0)"), project)
