"""Seeded mutants: change one statement of the product, and see whether a test fails.

    pytest -n2 --cov --cov-context=test --cov-report=   # needs pytest-cov; half an hour
    python -m tests.mutants [--coverage .coverage] [--seed N] [--count N] [PART ...]

draws changes from all modules, or from the modules whose paths begin with a PART. Each change is
made alone, in a copy of the project. The tests that ran the changed line run there. Without data of
coverage, the tests of the module run (see ``tests.which``), and if they pass, all tests. A mutant
that survives shows that a test is missing, or that the change makes no difference. A test that
fails without the change too judges nothing, so it runs again without it. The exit status is 1 if
more than one mutant in ten survives, or if a mutant was not judged.

Modules of adapters are left out: their tests run in the environments of the SDKs.
"""

import argparse
import ast
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tests.beside import SAMPLES
from tests.which import ROOT, covering, modules

SURVIVORS_MAX = 0.1
TIMEOUT_S = 900
NO_TESTS = 5
"""The exit status of pytest if it ran no test."""
ALL_TESTS = ["-n2"]
RAN = """
SELECT context, numbits FROM line_bits JOIN context ON context.id = context_id
  JOIN file ON file.id = file_id WHERE path LIKE ? AND context != ''
"""
"""Selects the tests that ran lines of a file, and a bit for each line, from a file of coverage."""
SQL_TESTS = ["tests/conformance", "tests/eventstore", "tests/postgres"]
NOT_COPIED = (".git", ".venv", ".cache", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis")
OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


class Mutant(NamedTuple):
    """A file, and its text from ``begin`` to ``end`` (in bytes) replaced by ``code``."""

    path: Path
    line: int
    begin: int
    end: int
    code: str

    def text(self) -> str:
        source = self.path.read_bytes()
        return (source[: self.begin] + self.code.encode() + source[self.end :]).decode()

    def __str__(self) -> str:
        before = self.path.read_bytes()[self.begin : self.end].decode()
        change = " -> ".join(" ".join(code.split()) for code in (before, self.code))
        return f"{self.path.relative_to(ROOT)}:{self.line}: {change}"


def mutants_of(path: Path) -> list[Mutant]:
    """Return all changes of a module, or of a file of SQL."""
    if path.suffix == ".sql":
        return list(_mutants_of_sql(path))
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    mutants = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                for node, code in _changes(statement):
                    begin = starts[node.lineno - 1] + node.col_offset
                    end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
                    mutants.append(Mutant(path, node.lineno, begin, end, code))
    return sorted(set(mutants))


def _changes(statement: ast.AST) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    if isinstance(statement, ast.JoinedStr):
        return  # before Python 3.12, what is in it has no place of its own
    yield from _changes_of(statement)
    for node in ast.iter_child_nodes(statement):
        yield from _changes(node)


def _changes_of(node: ast.AST) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    match node:
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Delete():
            yield node, "pass"
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield test, f"(not ({ast.unparse(test)}))"
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            opposite = ast.Compare(left, [OPPOSITES[type(operator)]()], [right])
            yield node, f"({ast.unparse(opposite)})"
        case ast.BoolOp(op=operator, values=values):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield node, f"({ast.unparse(ast.BoolOp(other, values))})"
            yield node, f"({ast.unparse(values[0])})"
            yield node, f"({ast.unparse(values[-1])})"
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield node, "return None"
        case ast.Break():
            yield node, "continue"
        case ast.Continue():
            yield node, "break"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, f"({ast.unparse(operand)})"
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as operator, right=right):
            other_sign = ast.Sub() if isinstance(operator, ast.Add) else ast.Add()
            yield node, f"({ast.unparse(ast.BinOp(left, other_sign, right))})"
        case ast.Constant(value=bool() as value):
            yield node, str(not value)
        case ast.Constant(value=int() as value):
            yield node, str(value + 1)
        case ast.Subscript(value=value, slice=ast.Slice()):
            yield node, f"({ast.unparse(value)})"
        case ast.Call(func=ast.Name("min" | "max" as name)) if isinstance(node, ast.Call):
            other_name = ast.Name("max" if name == "min" else "min")
            yield node, ast.unparse(ast.Call(other_name, node.args, node.keywords))
        case ast.Call(func=function, args=arguments, keywords=[*first, ast.keyword()]):
            yield node, ast.unparse(ast.Call(function, arguments, first))


def _mutants_of_sql(path: Path) -> Iterator[Mutant]:
    """Leave out a condition of a query: a line that begins with AND."""
    begin = 0
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        if line.lstrip().startswith(b"AND ") and not line.rstrip().endswith(b";"):
            yield Mutant(path, number, begin, begin + len(line), "\n")
        begin += len(line)


def draw_mutants(seed: int, count: int, parts: Sequence[str] = ()) -> list[Mutant]:
    """Draw mutants: first a file, a long one more often, then one of its changes. Their order is
    drawn too, so that a run that ends early has seen a sample.
    """
    paths = [*modules(), *sorted((ROOT / "eventstore").rglob("*.sql"))]
    names = {path: path.relative_to(ROOT).as_posix() for path in paths}
    candidates = [
        path
        for path in paths
        if names[path].startswith(tuple(parts) or "")
        and not names[path].startswith("foldlog/adapters/")
    ]
    sizes = [path.stat().st_size for path in candidates]
    rng = random.Random(seed)
    mutants: set[Mutant] = set()
    for path in rng.choices(candidates, sizes, k=3 * count):
        changes = mutants_of(path)
        if changes and len(mutants) < count:
            mutants.add(rng.choice(changes))
    return rng.sample(sorted(mutants), len(mutants))


class FailsUnchangedError(Exception):
    """A test fails without a mutant, so it cannot judge one."""


def failing_test(mutant: Mutant, project: Path, coverage: Path | None = None) -> str | None:
    """Return the first test that fails, or how the run ended; None if every test passes. With the
    data of ``coverage``, only the tests that ran the changed line run. Raises
    ``FailsUnchangedError``.
    """
    tests = find_tests_of(mutant, coverage) if coverage else []
    tests = tests or (SQL_TESTS if mutant.path.suffix == ".sql" else covering(str(mutant.path)))
    failed = _run_changed(mutant, tests, project) if tests else None
    return failed or (None if coverage else _run_changed(mutant, ALL_TESTS, project))


def find_tests_of(mutant: Mutant, coverage: Path) -> list[str]:
    """Return the functions of tests that ran a changed line. Tests in other processes that a test
    starts are not measured.
    """
    line_count = mutant.path.read_bytes()[mutant.begin : mutant.end].count(b"\n") + 1
    changed = (1 << line_count) - 1 << mutant.line
    with closing(sqlite3.connect(coverage)) as database:
        rows = database.execute(RAN, (f"%/{mutant.path.relative_to(ROOT).as_posix()}",))
        return sorted(
            {
                re.split(r"[\[|]", context)[0]  # cases have other names if few files are collected
                for context, lines in rows
                if int.from_bytes(lines, "little") & changed
            }
        )


def _run_changed(mutant: Mutant, tests: Sequence[str], project: Path) -> str | None:
    changed = project / mutant.path.relative_to(ROOT)
    changed.write_text(mutant.text())
    try:
        failed = _run_tests(tests, project)
    finally:
        shutil.copyfile(mutant.path, changed)
    if failed:
        again = failed.partition("[")[0] if "::" in failed else "--collect-only"
        if problem := _run_tests([again], project):
            raise FailsUnchangedError(problem)
    return failed


def _run_tests(arguments: Sequence[str], project: Path) -> str | None:
    """Run pytest, and return the first failure, or how it ended."""
    try:
        pytest = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *arguments],
            cwd=project,
            env={**os.environ, "PYTHONPATH": str(project)},
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return f"not ended after {TIMEOUT_S} s"
    if pytest.returncode in (0, NO_TESTS):
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (test.*?)(?: - |$)", pytest.stdout, re.MULTILINE)
    return failed[1] if failed else f"pytest ended with {pytest.returncode}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=int(time.time()) // 86_400)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--coverage", type=Path, help="run the tests that ran the changed line")
    parser.add_argument("part", nargs="*", help="how the path of a module begins")
    options = parser.parse_args()
    if options.coverage and not options.coverage.is_file():
        parser.error(f"there is no {options.coverage}; the docstring says how to write it")
    mutants = draw_mutants(options.seed, options.count, options.part)
    survivors = count = unjudged = 0
    with tempfile.TemporaryDirectory(prefix="foldlog-mutants-") as folder:
        project = Path(folder) / "project"
        if SAMPLES.is_dir():
            Path(folder, SAMPLES.parent.name).symlink_to(SAMPLES.parent)
        shutil.copytree(ROOT, project, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
        # Some tests ask git for the files of the project.
        for command in ("init", "add ."):
            subprocess.run(["git", *command.split()], cwd=project, check=True, capture_output=True)
        for mutant in mutants:
            print(mutant, flush=True)
            try:
                failed = failing_test(mutant, project, options.coverage)
            except FailsUnchangedError as problem:
                unjudged += 1
                print(f"    NOT JUDGED: fails without the change: {problem}", flush=True)
                continue
            count += 1
            survivors += failed is None
            print(f"    {failed or 'SURVIVED'}", flush=True)
    print(
        f"seed {options.seed}: {survivors} of {count} mutants survived, {unjudged} were not judged"
    )
    return int(survivors > SURVIVORS_MAX * count or unjudged > 0)


if __name__ == "__main__":
    sys.exit(main())
