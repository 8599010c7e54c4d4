"""What the tables of protections are made of: take one protection out, and see its test fail
without it.

A table names the function that protects, never the text of its source: code may be written anew,
and a function may move to another file, without a look at the tables. Within the function, a change
is found by names that one statement alone mentions. In a file of SQL it is a line of a named
statement, table, trigger or function.

    python -m tests.test_protections [BEGIN…]

takes those out whose names begin so (``crash``, ``fuzz-bytes``), in a copy of the project, and
prints what each test said; the READMEs of ``crash`` and ``fuzz`` have that. Exit status 1 where a
test passed all the same: such a test shows nothing. Tests of adapters run in the environments of
the newest SDKs, which ``scripts/test --adapters`` makes.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

ROOT = Path(__file__).parents[1]
PACKAGES = ("eventstore", "projections", "condensers", "foldlog", "examples")
NO_TEST = 5
"""The exit status of pytest where no test was chosen."""


class Never(NamedTuple):
    """The condition that mentions these names is never true; an ``except`` that mentions them
    catches nothing.
    """

    names: str


class Always(NamedTuple):
    """The condition that mentions these names is always true."""

    names: str


class Gone(NamedTuple):
    """The statement that mentions these names is left out."""

    names: str


class Part(NamedTuple):
    """The part of an ``and`` or ``or`` that mentions these names is left out."""

    names: str


class Argument(NamedTuple):
    """Calls are made without this argument."""

    names: str


class Instead(NamedTuple):
    """The statement that mentions these names, or the head of a block, is replaced by this code."""

    names: str
    code: str


Node = TypeVar("Node", bound=ast.AST)
Change = Never | Always | Gone | Part | Argument | Instead


class Protection(NamedTuple):
    """What protects, where it is, how it is taken out, and the test that must fail then.

    ``where`` is ``PACKAGE:QUALNAME``, with as much of the module's name as makes it the only one;
    or ``FILE.sql:NAME``.
    """

    what: str
    where: str
    change: Change
    test: str


class Place(NamedTuple):
    file: Path
    node: ast.stmt


@cache
def _definitions() -> dict[str, list[tuple[str, Place]]]:
    """What the packages define, by qualified name: the module, and where it is."""
    found: dict[str, list[tuple[str, Place]]] = {}

    def look(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.setdefault(prefix + child.name, []).append((module, Place(path, child)))
                look(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.stmt):
                if isinstance(child, ast.Assign | ast.AnnAssign) and not prefix:
                    for target in (
                        child.targets if isinstance(child, ast.Assign) else [child.target]
                    ):
                        if isinstance(target, ast.Name):
                            found.setdefault(target.id, []).append((module, Place(path, child)))
                look(child, prefix)

    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            look(ast.parse(path.read_bytes()), "")
    return found


def places(where: str) -> list[Place]:
    """Where a name of a table leads to: one place, where the table is right."""
    module, _, name = where.partition(":")
    return [
        place
        for each, place in _definitions().get(name, [])
        if each == module or each.startswith(f"{module}.")
    ]


def sql_blocks(where: str) -> list[tuple[Path, int, int]]:
    """Where a name of a file of SQL begins and ends: one place, where the table is right."""
    file, _, name = where.partition(":")
    found = []
    for path in sorted((ROOT / "eventstore").rglob("*.sql")):
        if path.as_posix().endswith(f"/{file}"):
            lines = path.read_text().splitlines()
            begins = [
                at for at, line in enumerate(lines) if re.match(r"-- (name|part): |CREATE ", line)
            ]
            found += [
                (path, begin, end)
                for begin, end in zip(begins, [*begins[1:], len(lines)], strict=True)
                if re.match(
                    rf"(-- (name|part): |CREATE [A-Z ]*(\{{schema\}}\.)?){name}\b", lines[begin]
                )
            ]
    return found


def is_sql(protection: Protection) -> bool:
    return protection.where.partition(":")[0].endswith(".sql")


def changed(protection: Protection) -> tuple[Path, str]:
    """The file that protects, and its text without the protection."""
    if is_sql(protection):
        ((file, begin, end),) = sql_blocks(protection.where)
        lines, names = (
            file.read_text().splitlines(keepends=True),
            set(protection.change.names.split()),
        )
        mentioning = [at for at in range(begin, end) if names <= set(re.findall(r"\w+", lines[at]))]
        if len(mentioning) != 1:
            raise SystemExit(
                f"{protection.change}: {len(mentioning)} lines mention this; name one in the table"
            )
        assert isinstance(protection.change, Gone | Instead)
        lines[mentioning[0]] = (
            f"{protection.change.code}\n" if isinstance(protection.change, Instead) else "\n"
        )
        return file, "".join(lines)
    (place,) = places(protection.where)
    return place.file, _changed(place.file.read_text(), place.node, protection.change)


def _changed(text: str, scope: ast.stmt, change: Change) -> str:
    names = set(change.names.split())
    if isinstance(change, Never | Always):
        condition = _one((each for each in _conditions(scope) if names <= _mentioned(each)), change)
        if isinstance(change, Always):
            return _replaced(text, condition, "True")
        return _replaced(
            text, condition, "False" if condition in _conditions(scope, excepts=False) else "()"
        )
    if isinstance(change, Part):
        # The smallest: an `and` within an `or`.
        found = [each for each in ast.walk(scope) if isinstance(each, ast.BoolOp)]
        found = [each for each in found if any(names <= _mentioned(part) for part in each.values)]
        found = [
            each
            for each in found
            if not any(other in ast.walk(each) for other in found if other is not each)
        ]
        whole = _one(found, change)
        left = [part for part in whole.values if not names <= _mentioned(part)]
        assert left, change
        return _replaced(
            text,
            whole,
            "(" + ast.unparse(left[0] if len(left) == 1 else ast.BoolOp(whole.op, left)) + ")",
        )
    if isinstance(change, Argument):
        (name,) = names
        call = _one(
            (
                each
                for each in ast.walk(scope)
                if isinstance(each, ast.Call) and any(given.arg == name for given in each.keywords)
            ),
            change,
        )
        kept = [given for given in call.keywords if given.arg != name]
        return _replaced(text, call, ast.unparse(ast.Call(call.func, call.args, kept)))
    node = _one(
        (
            each
            for each in ast.walk(scope)
            if isinstance(each, ast.stmt) and names <= _of_head(each)
        ),
        change,
    )
    assert isinstance(node, ast.stmt)
    code = change.code if isinstance(change, Instead) else "pass"
    lines = code.splitlines()
    indent = " " * node.col_offset
    code = "\n".join([lines[0], *(indent + line if line else "" for line in lines[1:])])
    body = getattr(node, "body", None)
    if body and isinstance(change, Instead):
        ends = text.splitlines(keepends=True)[: body[0].lineno - 1]
        return _replaced_between(
            text, _offset(text, node.lineno, node.col_offset), len("".join(ends)), code + "\n"
        )
    return _replaced(text, node, code)


def _one(found: Iterable[Node], change: Change) -> Node:
    several = list(found)
    if len(several) != 1:
        raise SystemExit(f"{change}: {len(several)} places mention this; name one in the table")
    return several[0]


def _conditions(scope: ast.stmt, excepts: bool = True) -> list[ast.expr]:
    found = [each.test for each in ast.walk(scope) if isinstance(each, ast.If | ast.IfExp)]
    handlers = [
        each.type
        for each in ast.walk(scope)
        if isinstance(each, ast.ExceptHandler) and each.type is not None
    ]
    return [*found, *(handlers if excepts else ())]


def _mentioned(node: ast.AST) -> set[str]:
    """The names in a piece of code, words of its texts, and numbers."""
    names: set[str] = set()
    for each in ast.walk(node):
        match each:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                names.add(name)
            case ast.Constant(value=str(value)):
                names.update(re.findall(r"\w+", value))
            case ast.Constant(value=int(value)):
                names.add(str(value))
    return names


def _of_head(statement: ast.stmt) -> set[str]:
    """What a statement mentions, without the statements in it."""
    names: set[str] = set()
    for name, value in ast.iter_fields(statement):
        for each in value if isinstance(value, list) else [value]:
            if (
                isinstance(each, ast.withitem | ast.expr | ast.keyword | ast.alias)
                and name != "decorator_list"
            ):
                names |= _mentioned(each)
    return (
        set()
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        else names
    )


def _offset(text: str, line: int, column: int) -> int:
    lines = text.splitlines(keepends=True)
    return len("".join(lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())


def _replaced(text: str, node: ast.AST, code: str) -> str:
    begin = _offset(text, node.lineno, node.col_offset)  # type: ignore[attr-defined]
    end = _offset(text, node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
    return _replaced_between(text, begin, end, code)


def _replaced_between(text: str, begin: int, end: int, code: str) -> str:
    return text[:begin] + code + text[end:]


def without(protection: Protection, project: Path) -> str | None:
    """What the test says without the protection, in this copy of the project; None where it passes,
    or is not found.
    """
    source, text = changed(protection)
    path = project / source.relative_to(ROOT)
    path.write_text(text)
    try:
        done = subprocess.run(
            [_python(protection.test), *_arguments(protection.test)],
            cwd=project,
            env={**os.environ, "FOLDLOG_TEST_ADAPTERS": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    except subprocess.TimeoutExpired:
        return "it never ended"
    finally:
        shutil.copyfile(source, path)
    return None if done.returncode in (0, NO_TEST) else _said(done.stdout)


def _python(test: str) -> str:
    """The interpreter of a test's environment. Raises ``SystemExit`` where it is not made."""
    if not test.startswith("tests/adapters/"):
        return sys.executable
    adapter = test.split("/")[2]
    python = ROOT / ".cache" / "adapters" / f"{adapter}-newest" / "bin" / "python"
    if not python.exists():
        raise SystemExit(f"there is no {python}; run 'scripts/test --adapters {adapter}' first")
    return str(python)


def _arguments(test: str) -> list[str]:
    if test.startswith("-m "):
        return test.split()
    file, _, chosen = test.partition(" -k ")
    return [
        "-m",
        "pytest",
        "-q",
        "-x",
        "--all",
        "-p",
        "no:cacheprovider",
        file,
        *(["-k", chosen] if chosen else []),
    ]


def _said(printed: str) -> str:
    """The line that tells most: a finding of ours, or what the assertion saw."""
    findings = re.findall(r"^(?:E +)?    (\S.*)$", printed, re.MULTILINE)
    asserted = re.findall(r"^E +(\S.*)$", printed, re.MULTILINE)
    ours = [
        line
        for line in findings
        if re.match(r"[a-z_]+, point \d|lost|half|twice|an append waited|own-", line)
    ]
    said = (ours or asserted or printed.strip().splitlines()[-1:])[0]
    return re.sub(r"/\S*/(?=[^/\s]+\.db)", "", said)[:110]


def main(begins: Iterable[str], protections: Mapping[str, Protection]) -> int:
    useless = 0
    print("| protection | test | what it said without it |\n|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="foldlog-protections-") as folder:
        project = Path(folder) / "project"
        skipped = shutil.ignore_patterns(
            ".git",
            ".venv",
            ".cache",
            "*.egg-info",
            "__pycache__",
            "results",
            ".*_cache",
            ".hypothesis",
        )
        shutil.copytree(ROOT, project, symlinks=True, ignore=skipped)
        for protection in [
            each for name, each in protections.items() if name.startswith(tuple(begins))
        ]:
            said = without(protection, project)
            useless += said is None
            cell = (
                "**nothing: no test failed**"
                if said is None
                else f"`{said.replace('|', '¦').replace('`', chr(39))}`"
            )
            print(f"| {protection.what} | `{protection.test}` | {cell} |", flush=True)
    return 1 if useless else 0
