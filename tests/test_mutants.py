"""The seeded mutants that run each week: see ``tests.mutants``."""

import ast
import builtins
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from foldlog.eventstore.recorders.statements import _named_in
from tests import mutants, mutants_sql
from tests.mutants import (
    FailsUnchangedError,
    TimeOverError,
    draw_mutants,
    failing_test,
    judge,
    judge_all,
    mutants_of,
    with_switches,
)
from tests.mutants_run import UNFINISHED, first_failure, read_reached, read_seconds

SOURCE = '''
def positive(number, seen):
    """Say whether a number is positive."""
    if number > 0 and seen is not None:
        seen.add(number)
    return number > 0
'''


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
        ("return True", ["False", "return None"]),
        ("return False", ["True"]),
        ("y = x + 1", ["(x - 1)", "2"]),
        ("y = x[:-1]", ["(x)", "2"]),
        ("y = min(x, key=len)", ["max(x, key=len)"]),
        ("y = sorted(x, reverse=True)", ["False", "sorted(x)"]),
        ("y = zip(x, x, strict=True)", []),
        ("while f(x): break", ["(not (f(x)))", "continue"]),
        ('y = f"{x[0]}"', []),
    ],
)
def test_each_kind_of_change(tmp_path, line, changes):
    assert sorted(codes(tmp_path, "lines.py", f"def act(x):\n    {line}\n")) == changes


@pytest.mark.parametrize(
    "query, changed",
    [
        ("WHERE a = 1\n  AND b = 2 ORDER BY a;", "WHERE a = 1\n   ORDER BY a;"),
        (
            "(SELECT a FROM t\n  WHERE c AND b IN (1,\n  2)\n  AND d) + 1",
            "(SELECT a FROM t\n  WHERE c AND b IN (1,\n  2)\n  ) + 1",
        ),
        (
            "WHERE a\nAND NOT EXISTS (\n  SELECT 1\n)\nAND b <\n  (SELECT 2)\n",
            "WHERE a\n\nAND b <\n  (SELECT 2)\n",
        ),
        (
            "WHERE a > 1\n  -- only for the index\n  AND a > 0\n  AND b\n",
            "WHERE a > 1\n  -- only for the index\n  AND a > 0\n  \n",
        ),
    ],
)
def test_query_condition_is_left_out(tmp_path, query, changed):
    path = tmp_path / "queries.sql"
    path.write_text(query)
    assert mutants_of(path)[0].text() == changed


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


def test_unnoticed_mutant_survives(project, monkeypatch):
    either = mutant_of(project, "(number > 0 or seen is not None)")
    assert failing_test(mutant_of(project, "(number >= 0)"), project) is None
    assert failing_test(either, project) == "test_it.py::test_it"
    monkeypatch.setattr(mutants, "covering", lambda path: [])
    assert failing_test(either, project) == "test_it.py::test_it", "all tests were run"


def test_broken_test_judges_no_mutant(project):
    with (project / "test_it.py").open("a") as test:
        test.write("\ndef test_broken():\n    assert positive(0, None)\n")
    with pytest.raises(FailsUnchangedError, match="::test_broken"):
        failing_test(mutant_of(project, "(number >= 0)"), project)


NESTED = """
def smallest(values, most):
    if values and most > 0:
        values.sort()
        del values[most:]
    return values
"""


def results_with(text, turned_on):
    """Return what ``NESTED`` with switches returns for two arguments."""
    switch = SimpleNamespace(is_on=lambda number: number == turned_on)
    names = {"__builtins__": {**vars(builtins), "__import__": lambda *_, **__: switch}}
    exec(text, names)
    return names["smallest"]([3, 1, 2], 2), names["smallest"]([1], 0)


def test_switch_makes_one_change(tmp_path):
    path = tmp_path / "nested.py"
    path.write_text(NESTED)
    mutants_in_file = mutants_of(path)
    text, switched = with_switches(path, list(enumerate(mutants_in_file)))
    results = {None: [results_with(text, None)]}
    for number in sorted(switched):
        code = mutants_in_file[number].code
        results.setdefault(code, []).append(results_with(text, number))
    unchanged = ([1, 2], [1])
    assert results == {
        None: [unchanged],
        "(most > 0)": [unchanged],
        "(not (values and most > 0))": [([3, 1, 2], [])],
        "(values or most > 0)": [([1, 2], [])],
        "(values)": [([1, 2], [])],
        "(most >= 0)": [([1, 2], [])],
        "1": [unchanged],
        "pass": [([3, 1], [1]), ([1, 2, 3], [1])],
        "return None": [(None, None)],
    }


def test_change_without_conditional_syntax_has_no_switch(tmp_path):
    path = tmp_path / "nested.py"
    path.write_text(NESTED)
    numbered = list(enumerate(mutants_of(path)))
    _, switched = with_switches(path, numbered)
    (alone,) = (mutant for number, mutant in numbered if number not in switched)
    assert alone.text() == NESTED.replace("del values[most:]", "del (values)")


TESTS = """
import subprocess
import sys

from foldlog.numbers_ import positive


def test_big():
    assert positive(3, None)


def test_other_process():
    code = "from foldlog.numbers_ import positive; print(positive(-2, set()))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert output.stdout == "False\\n"


def test_broken():
    assert positive(0, None)
"""


@pytest.fixture
def small_project(tmp_path, monkeypatch):
    """A project of one module and three tests: one is broken, and one runs another process."""
    root = tmp_path / "root"
    for name in ("foldlog", "tests"):
        (root / name).mkdir(parents=True)
        (root / name / "__init__.py").touch()
    (root / "foldlog/numbers_.py").write_text(SOURCE)
    (root / "tests/test_it.py").write_text(TESTS)
    plugin = Path(__file__).with_name("mutants_run.py")
    shutil.copyfile(plugin, root / "tests" / plugin.name)
    monkeypatch.setattr(mutants, "ROOT", root)
    monkeypatch.setattr(mutants, "covering", lambda path: [])
    monkeypatch.setattr(mutants, "ALL_TESTS", ["-k", "not broken"])
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return root


def test_each_mutant_is_judged_by_the_tests_that_reach_it(small_project, tmp_path):
    drawn = mutants_of(small_project / "foldlog/numbers_.py")
    judged = {
        (mutant.line, mutant.code): (failed, is_judged)
        for mutant, failed, is_judged in judge(drawn, tmp_path / "work", 2)
    }
    in_process = "tests/test_it.py::test_big"
    elsewhere = "tests/test_it.py::test_other_process"
    assert judged == {
        (4, "(not (number > 0 and seen is not None))"): (in_process, True),
        (4, "(number > 0 or seen is not None)"): (in_process, True),
        (4, "(number > 0)"): (in_process, True),
        (4, "(seen is not None)"): (None, True),
        (4, "(number >= 0)"): (None, True),
        (4, "(seen is None)"): (in_process, True),
        (4, "1"): (None, True),
        (5, "pass"): (None, True),
        (6, "return None"): (in_process, True),
        (6, "(number >= 0)"): (None, True),
        (6, "1"): (None, True),
    }
    assert elsewhere in read_reached(tmp_path / "work/reached")[0]


def test_later_run_does_what_an_earlier_one_left(small_project, tmp_path):
    drawn = mutants_of(small_project / "foldlog/numbers_.py")
    folder = tmp_path / "work"
    with pytest.raises(TimeOverError):
        list(judge(drawn, folder, 2, seconds=0))
    assert not [*folder.glob("unchanged.*"), *folder.glob("mutant.*")]
    judged = list(judge(drawn, folder, 2))
    (folder / "mutant.0").unlink()
    (folder / "unfinished.mutant.0").write_text("a run that was killed left this")
    done = {path: path.stat().st_mtime_ns for path in folder.glob("*.*")}
    assert list(judge(drawn, folder, 2)) == judged
    again = {path: path.stat().st_mtime_ns for path in folder.glob("*.*")}
    assert {path.name for path in again if again[path] != done.get(path)} == {"mutant.0"}


def test_run_goes_on_behind_the_last_test_that_ended(small_project, tmp_path):
    drawn = mutants_of(small_project / "foldlog/numbers_.py")
    changed = next(number for number, mutant in enumerate(drawn) if mutant.code == "return None")
    folder = tmp_path / "work"
    list(judge(drawn, folder, 2))
    (folder / f"mutant.{changed}").rename(folder / f"unfinished.mutant.{changed}")
    test, other = (f"tests/test_it.py::test_{name}" for name in ("big", "other_process"))
    left = results(folder / f"unfinished.mutant.{changed}", (test, "ended", 0))
    with left.open("a") as file:
        file.write(f'{{"test": "{other}", "outc')
    failed = {number: failed for number, (_, failed, _) in enumerate(judge(drawn, folder, 2))}
    assert failed[changed] == other


def test_folder_of_other_mutants_is_refused(small_project, tmp_path, capsys):
    options = SimpleNamespace(jobs=1, seconds=0, seed=7)
    drawn = mutants_of(small_project / "foldlog/numbers_.py")
    assert judge_all(options, drawn, tmp_path / "work") == UNFINISHED
    assert judge_all(options, drawn[1:], tmp_path / "work") == 2
    assert "has the results of other mutants" in capsys.readouterr().out


def test_tests_that_cannot_be_collected_judge_nothing(small_project, tmp_path):
    (small_project / "tests/test_it.py").write_text("import nothing_of_this_name\n")
    drawn = mutants_of(small_project / "foldlog/numbers_.py")
    with pytest.raises(FailsUnchangedError, match="pytest ended with"):
        list(judge(drawn, tmp_path / "work", 1))


def results(path, *lines):
    phases = [
        {"test": test, "outcome": outcome, "seconds": seconds} for test, outcome, seconds in lines
    ]
    path.write_text("".join(f"{json.dumps(phase)}\n" for phase in phases))
    return path


def test_test_that_does_not_end_is_a_failure(tmp_path):
    passed = [("a", "started", 0), ("a", "passed", 0.5), ("a", "ended", 0)]
    path = results(tmp_path / "mutant.0", *passed, ("b", "started", 0), ("b", "passed", 0))
    assert first_failure(path) == "b"
    assert read_seconds([path]) == {"a": 0.5}
    assert first_failure(results(path, *passed)) is None


QUERIES = """-- part: chosen
WHERE a = {parameter}
  AND b = 2

-- name: all
SELECT * FROM t

-- name: some
SELECT * FROM t {chosen}
"""


@pytest.fixture
def query_switch(tmp_path, monkeypatch):
    """A copy of ``tests.mutants_sql`` beside a mutant of ``QUERIES``. The fixture is a set of the
    mutants that are on, and lists the mutants that were asked for.
    """
    path = tmp_path / "queries.sql"
    path.write_text(QUERIES)
    (mutant,) = mutants_of(path)
    (tmp_path / mutants_sql.TEXTS).write_text(json.dumps({"7": ["sqlite", mutant.text()]}))
    monkeypatch.setattr(mutants_sql, "__file__", str(tmp_path / "_sql_switch.py"))
    mutants_sql._texts.cache_clear()
    turned_on = set()
    asked = []

    def is_on(number):
        asked.append(number)
        return number in turned_on

    monkeypatch.setitem(sys.modules, "foldlog._switch", SimpleNamespace(is_on=is_on))
    yield SimpleNamespace(turned_on=turned_on, asked=asked)
    mutants_sql._texts.cache_clear()


def statements_in(dialect, instead):
    return _named_in(QUERIES, tuple(instead.items()))


def test_statement_is_chosen_when_it_is_looked_up(query_switch):
    switched = mutants_sql.switch_statements(statements_in, _named_in)
    named = switched("sqlite")
    assert named["all"] == "SELECT * FROM t"
    assert query_switch.asked == []
    whole = "SELECT * FROM t WHERE a = {parameter}\n  AND b = 2"
    assert (named["some"], named.get("some")) == (whole, whole)
    query_switch.turned_on.add(7)
    part = "SELECT * FROM t WHERE a = {parameter}"
    assert (named["some"].rstrip(), named.get("some").rstrip()) == (part, part)
    assert query_switch.asked == [7] * 4
    assert switched("postgresql")["some"] == whole
    assert switched("sqlite", {"chosen": "LIMIT 1"})["some"] == "SELECT * FROM t LIMIT 1"


def test_statement_of_a_schema_is_chosen_too(query_switch):
    texts = Path(mutants_sql.__file__).with_name(mutants_sql.TEXTS)
    texts.write_text(texts.read_text().replace("sqlite", "postgresql"))
    statements = mutants_sql.switch_statements(statements_in, _named_in)

    def statements_here(recorder):
        named = statements("postgresql").items()
        return {name: query.replace("{parameter}", recorder).encode() for name, query in named}

    named = mutants_sql.switch_statements_here(statements_here)("$1")
    assert named["some"] == b"SELECT * FROM t WHERE a = $1\n  AND b = 2"
    query_switch.turned_on.add(7)
    assert named["some"].rstrip() == b"SELECT * FROM t WHERE a = $1"
    assert named["all"] == b"SELECT * FROM t"
