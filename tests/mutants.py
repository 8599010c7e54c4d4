"""Seeded mutants: change one statement of the product, and see whether a test fails.

    python -m tests.mutants [--seed N] [--count N] [--jobs N] [--pieces FOLDER --seconds N] [PART ...]

draws changes from all modules, or from the modules whose paths begin with a PART. All drawn changes
are in one copy of the project, each behind a switch, and one process collects the tests once and
forks for each run (``tests.mutants_run``). First all ordinary tests run without a change, and each
drawn place writes down the tests that reach it, also in processes that a test starts. Then for each
mutant the tests that reached it run until one fails. A mutant that survives shows that a test is
missing, or that the change makes no difference.

A condition of a query is left out when the statement is looked up (``tests.mutants_sql``). A change
for which Python has no conditional syntax has no switch. Such a change is made alone, in another copy:
first the tests of the module run (see ``tests.which``), and if they pass, all tests.

A test that fails without a change too judges nothing: tests that failed in the first run are left
out, and a test that fails with a change runs again without it. The exit status is 1 if more than one
mutant in ten survives, or if a mutant was not judged.

With ``--pieces FOLDER``, all that is done stays in the folder, and the same command goes on where an
earlier one ended. With ``--seconds N`` too, a command starts no test after N seconds, and its exit
status is 3 while something is missing.

Modules of adapters are left out: their tests run in the environments of the SDKs. A change of code
that runs only when a module is imported survives, because the modules have been imported before.
"""

import argparse
import ast
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from tests import mutants_sql
from tests.beside import SAMPLES
from tests.mutants_run import REACHED, UNFINISHED, first_failure
from tests.which import ROOT, covering, modules

SURVIVORS_MAX = 0.1
TIMEOUT_S = 900
NO_TESTS = 5
"""The exit status of pytest if it ran no test."""
ALL_TESTS = ["-n2"]
STATEMENTS = ("pass", "return None", "continue", "break")
SWITCH = '__import__("foldlog._switch", fromlist=["is_on"]).is_on({})'
SWITCH_MODULE = """
import os

_open, _write, _close = os.open, os.write, os.close  # a test may replace them
_written = set()
_mutant = None


def turn_on(mutant):
    global _mutant
    _mutant = mutant
    os.environ["FOLDLOG_MUTANT"] = "" if mutant is None else str(mutant)


def is_on(mutant):
    test = os.environ.get("PYTEST_CURRENT_TEST")
    if _mutant is None and test and (mutant, test) not in _written:
        _written.add((mutant, test))
        try:
            file = _open(f"FOLDER/{mutant}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            _write(file, f"{test}\\n".encode())
            _close(file)
        except OSError:  # a test may forbid it
            pass
    return mutant == _mutant


if number := os.environ.get("FOLDLOG_MUTANT"):
    turn_on(int(number))
"""
"""Switches mutants in the process of the tests, and in processes that a test starts."""
QUERIES = "queries.sql"
DIALECTS = {"sqlite": "sqlite", "postgres": "postgresql"}
"""Maps the folder of a recorder to the dialect of its queries."""
SQL_SWITCHES = {
    "eventstore/recorders/statements.py": (
        "\n\nfrom foldlog._sql_switch import switch_statements\n\n"
        "statements = switch_statements(statements, _named_in)\n"
    ),
    "eventstore/recorders/postgres/recorder.py": (
        "\n\nfrom foldlog._sql_switch import switch_statements_here\n\n"
        "PostgresRecorder._statements_here = switch_statements_here(\n"
        "    PostgresRecorder._statements_here\n)\n"
    ),
}
"""What is added to modules so that they look statements up by ``tests.mutants_sql``."""
NOT_COPIED = (".git", ".venv", ".cache", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis")
ONLY_FOR_THE_INDEX = b"-- only for the index"
"""The comment above a condition that other conditions imply: without it, the query returns the same
rows, and takes longer.
"""
AFTER_CONDITION = re.compile(
    rb"[()\n;]| (?:ORDER BY|GROUP BY|LIMIT|UNION|WHERE|THEN|RETURNING|ON CONFLICT)\b"
)
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
    if isinstance(statement, ast.keyword) and statement.arg == "strict":
        return
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
        case ast.Return(value=ast.Constant(value=None | False)):
            pass  # for a caller that asks for the truth of the answer, None is False
        case ast.Return(value=ast.expr()):
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
        case ast.Call(keywords=[*_, ast.keyword(arg="strict")]):
            pass  # zip raises an error only if the code itself is wrong
        case ast.Call(func=function, args=arguments, keywords=[*first, ast.keyword()]):
            yield node, ast.unparse(ast.Call(function, arguments, first))


def _mutants_of_sql(path: Path) -> Iterator[Mutant]:
    """Leave out a condition of a query: from an AND at the beginning of a line to the end of a line
    or the next clause, but not within parentheses or after an operator.
    """
    source = path.read_bytes()
    begin = 0
    line_before = b""
    for number, line in enumerate(source.splitlines(keepends=True), 1):
        if line.lstrip().startswith(b"AND ") and line_before.strip() != ONLY_FOR_THE_INDEX:
            first = begin + line.index(b"AND ")
            yield Mutant(path, number, first, _end_of_condition(source, first), "")
        begin += len(line)
        line_before = line


def _end_of_condition(source: bytes, begin: int) -> int:
    depth = 0
    for found in AFTER_CONDITION.finditer(source, begin):
        depth += {b"(": 1, b")": -1}.get(found[0], 0)
        is_complete = found[0] not in b"()" and not source[: found.start()].endswith(
            (b"<", b"=", b">")
        )
        if depth < 0 or (depth == 0 and is_complete):
            return found.start()
    return len(source)


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


class TimeOverError(Exception):
    """Something is not done yet, and is left to a later run."""


def with_switches(path: Path, numbered: Sequence[tuple[int, Mutant]]) -> tuple[str, set[int]]:
    """Return the text of a module with mutants behind switches, and the numbers of these mutants. A
    mutant has no switch if Python has no syntax for it, as in a pattern.
    """
    source = path.read_bytes()
    chosen: list[tuple[int, Mutant]] = []
    text = source.decode()
    for entry in numbered:
        changed = _switched(source, [*chosen, entry], 0, len(source))
        with contextlib.suppress(SyntaxError):
            compile(changed, path, "exec")
            chosen.append(entry)
            text = changed
    return text, {number for number, _ in chosen}


def _switched(source: bytes, numbered: Sequence[tuple[int, Mutant]], begin: int, end: int) -> str:
    """Return a part of a module. A mutant may be inside another one, or have the same place."""
    text = ""
    place = begin
    rest = sorted(numbered, key=lambda entry: (entry[1].begin, -entry[1].end))
    while rest:
        number, mutant = rest.pop(0)
        inside = [entry for entry in rest if entry[1].end <= mutant.end]
        rest = [entry for entry in rest if entry not in inside]
        original = _switched(source, inside, mutant.begin, mutant.end)
        text += source[place : mutant.begin].decode()
        switch = SWITCH.format(number)
        if mutant.code.startswith(STATEMENTS):
            line = source.rindex(b"\n", 0, mutant.begin) + 1
            indent = source[line : mutant.begin].decode()
            text += f"if {switch}: {mutant.code}\n{indent}else: {original}"
        else:
            text += f"(({mutant.code}) if {switch} else ({original}))"
        place = mutant.end
    return text + source[place:end].decode()


def judge_switched(
    mutants: Sequence[Mutant], folder: Path, jobs: int, seconds: float | None = None
) -> dict[int, str | None]:
    """Return the first test that fails for each mutant that has a switch; None if all tests pass. The
    tests run in one copy of the project. Raises ``FailsUnchangedError`` if no test can run, and
    ``TimeOverError`` if they are not done after ``seconds``.
    """
    switched, texts = _switch_all(mutants)
    project = folder / "switched/project"
    if not (folder / REACHED).exists():
        shutil.rmtree(folder / "switched", ignore_errors=True)
        copy_project(folder / "switched")
        module = SWITCH_MODULE.replace("FOLDER", str(folder / REACHED))
        (project / "foldlog/_switch.py").write_text(module)
        for path, text in texts.items():
            (project / path.relative_to(ROOT)).write_text(text)
        _switch_statements(mutants, switched, project)
        (folder / REACHED).mkdir()
        (folder / REACHED).chmod(0o777)  # some tests start processes of other users
    # With "=", because pytest looks for its configuration beside a path that stands alone.
    options = [f"--mutants={folder}", f"--mutant-count={len(mutants)}", f"--jobs={jobs}"]
    if seconds is not None:
        options.append(f"--seconds={seconds}")
    plugin = ["-p", "tests.mutants_run", "-o", "faulthandler_timeout=0"]
    status = _pytest([*plugin, *options], project)
    if status == UNFINISHED:
        raise TimeOverError
    if status:
        raise FailsUnchangedError(f"pytest ended with {status}")
    return {number: first_failure(folder / f"mutant.{number}") for number in sorted(switched)}


def _switch_statements(mutants: Sequence[Mutant], switched: Collection[int], project: Path) -> None:
    texts = {
        number: (DIALECTS[mutants[number].path.parents[1].name], mutants[number].text())
        for number in switched
        if mutants[number].path.name == QUERIES
    }
    if texts:
        (project / "foldlog" / mutants_sql.TEXTS).write_text(json.dumps(texts))
        shutil.copyfile(mutants_sql.__file__, project / "foldlog/_sql_switch.py")
        for name, addition in SQL_SWITCHES.items():
            with (project / name).open("a") as module:
                module.write(addition)


def _switch_all(mutants: Sequence[Mutant]) -> tuple[set[int], dict[Path, str]]:
    """Return the numbers of the mutants that have a switch, and the texts of their modules."""
    switched = {number for number, mutant in enumerate(mutants) if mutant.path.name == QUERIES}
    texts = {}
    for path in {mutant.path for mutant in mutants if mutant.path.suffix == ".py"}:
        of_path = [entry for entry in enumerate(mutants) if entry[1].path == path]
        texts[path], numbers = with_switches(path, of_path)
        switched |= numbers
    return switched, texts


def failing_test(mutant: Mutant, project: Path) -> str | None:
    """Return the first test that fails with a mutant, or how the run ended; None if every test
    passes. The tests of the module run, and if they pass, all tests. Raises ``FailsUnchangedError``.
    """
    tests = covering(str(mutant.path))
    failed = _run_changed(mutant, tests, project) if tests else None
    return failed or _run_changed(mutant, ALL_TESTS, project)


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
    with tempfile.TemporaryFile("w+") as output:
        status = _pytest(["-x", *arguments], project, output)
        output.seek(0)
        failed = re.search(r"^(?:FAILED|ERROR) (test.*?)(?: - |$)", output.read(), re.MULTILINE)
    if status in (0, NO_TESTS):
        return None
    if status is None:
        return f"not ended after {TIMEOUT_S} s"
    return failed[1] if failed else f"pytest ended with {status}"


def _pytest(arguments: Sequence[str], project: Path, output: TextIO | None = None) -> int | None:
    """Run pytest, and return its exit status; None if it writes an output and does not end in time."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project)},
        stdin=subprocess.DEVNULL,
        stdout=output or subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(TIMEOUT_S if output else None)
    except subprocess.TimeoutExpired:
        return None
    finally:  # a test that did not end leaves processes behind, such as a database's server
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def copy_project(folder: Path) -> Path:
    """Copy the project, and the real histories that lie beside it, if there are any."""
    project = folder / "project"
    folder.mkdir(parents=True)
    if SAMPLES.is_dir():
        (folder / SAMPLES.parent.name).symlink_to(SAMPLES.parent)
    shutil.copytree(ROOT, project, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
    # some tests ask git for the files of the project
    for command in ("init", "add ."):
        subprocess.run(["git", *command.split()], cwd=project, check=True, capture_output=True)
    return project


def judge(
    mutants: Sequence[Mutant], folder: Path, jobs: int, seconds: float | None = None
) -> Iterator[tuple[Mutant, str | None, bool]]:
    """Yield each mutant with the test that noticed it, and whether it was judged. Raises
    ``TimeOverError`` if ``seconds`` end before.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    switched = judge_switched(mutants, folder, jobs, seconds)
    for number, mutant in enumerate(mutants):
        if number in switched:
            again = folder / f"again.{number}"
            flaky = first_failure(again) if again.is_file() else None
            yield mutant, flaky or switched[number], flaky is None
            continue
        alone = folder / f"alone.{number}.json"
        if not alone.exists():
            if deadline is not None and time.monotonic() > deadline:
                raise TimeOverError
            alone.write_text(json.dumps(_judge_alone(mutant, folder / "copy")))
        failed, is_judged = json.loads(alone.read_text())
        yield mutant, failed, is_judged


def _judge_alone(mutant: Mutant, folder: Path) -> tuple[str | None, bool]:
    """Make a change that has no switch in a copy of the project."""
    shutil.rmtree(folder, ignore_errors=True)
    project = copy_project(folder)
    try:
        return failing_test(mutant, project), True
    except FailsUnchangedError as problem:
        return str(problem), False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=int(time.time()) // 86_400)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time")
    parser.add_argument("--pieces", type=Path, help="a folder that keeps what is done")
    parser.add_argument("--seconds", type=float, help="start nothing after so many seconds")
    parser.add_argument("part", nargs="*", help="how the path of a module begins")
    options = parser.parse_args()
    mutants = draw_mutants(options.seed, options.count, options.part)
    if options.pieces is not None:
        return judge_all(options, mutants, options.pieces)
    with tempfile.TemporaryDirectory(prefix="foldlog-mutants-") as folder:
        return judge_all(options, mutants, Path(folder))


def judge_all(options: argparse.Namespace, mutants: Sequence[Mutant], folder: Path) -> int:
    """Judge mutants, print what noticed each, and return the exit status."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = folder / "drawn.txt"
    names = "".join(f"{mutant}\n" for mutant in mutants)
    if drawn.exists() and drawn.read_text() != names:
        print(f"{folder} has the results of other mutants: take another folder")
        return 2
    drawn.write_text(names)
    survivors = count = unjudged = 0
    try:
        for mutant, failed, is_judged in judge(mutants, folder, options.jobs, options.seconds):
            if is_judged:
                count += 1
                survivors += failed is None
                print(f"{mutant}\n    {failed or 'SURVIVED'}", flush=True)
            else:
                unjudged += 1
                print(f"{mutant}\n    NOT JUDGED: fails without the change: {failed}", flush=True)
    except TimeOverError:
        done = len([*folder.glob("mutant.*"), *folder.glob("alone.*")])
        tests = len([*folder.glob("unchanged.*")])
        print(f"not done yet: {tests} batches of tests, {done} of {len(mutants)} mutants")
        return UNFINISHED
    print(
        f"seed {options.seed}: {survivors} of {count} mutants survived, {unjudged} were not judged"
    )
    return int(survivors > SURVIVORS_MAX * count or unjudged > 0)


if __name__ == "__main__":
    sys.exit(main())
