"""Find the tests of a module or a command, for ``scripts/test foldlog/_app/cli/stores.py`` and
``scripts/test list``.

The tests of a module are the files that import it, or import a name that it defines from a package,
and the file that has its name; for a format also the golden rows that have its name. If few of these
call a function of the module, the files are added that call most of its functions, as
``tests.calls`` has measured. If there are none, they are the tests of the modules that import it,
and then the tests of adapters, which ``scripts/test-adapters`` runs. The tests that name a command
are also the tests of its module.
"""

import ast
import json
import re
import sys
from functools import cache
from pathlib import Path

from tests.commands import MODULES

ROOT = Path(__file__).parents[1]
CALLS = ROOT / "tests/golden/calls.json"
FEW = 3
"""If fewer of the files that name a module call its functions, it gets so many files that do."""
_SESSION = "tests/foldlog/app/cli/test_sessions.py::test_commands_print_what_their_session_has"
_FORMATS = {
    "tests/fuzz/corpus": "tests/foldlog/formats/test_every_format.py",
    "tests/golden/reads": "tests/foldlog/formats/test_reads.py",
}
"""Maps a folder with a file for each format to the tests of these files."""
PACKAGES = ("eventstore", "projections", "condensers")
"""Folders at the root whose modules are imported as parts of foldlog."""


def covering(name: str) -> list[str]:
    """Return the arguments of pytest for a command's name, or the path of a module or of a test;
    none for others.
    """
    if name in MODULES:
        return _tests_of_command(name)
    path = Path(name).resolve()
    if path.suffix != ".py" or not path.is_file() or not path.is_relative_to(ROOT):
        return []
    if path.relative_to(ROOT).parts[0] == "tests":
        return [name]
    tests = naming(path) or {*_nearest(path, _files_of_adapters())}
    measured = json.loads(CALLS.read_text()).get(path.relative_to(ROOT).as_posix(), ())
    return sorted(tests.union(test for test in measured if (ROOT / test).is_file()))


def naming(path: Path) -> set[str]:
    """Return the tests that import or name a module, and the golden tests of its format. If no test
    does, return those of the nearest modules that import it.
    """
    return {*_nearest(path, _files()), *_of_format(path)}


def _nearest(path: Path, files: list[tuple[str, str]]) -> list[str]:
    """Return the tests in ``files`` of a module, or of the nearest modules that import it."""
    tests: set[str] = set()
    visited = {path}
    level = [path]
    while level and not tests:
        for file in level:
            of_commands = [
                test
                for name, module in MODULES.items()
                if module == _module(file)
                for test in _tests_of_command(name)
            ]
            tests |= {*_importing(_module(file), _defined(file), files), *of_commands}
        level = [
            other
            for other in modules()
            if other not in visited and any(_imports_module(other, file) for file in level)
        ]
        visited |= {*level}
    return sorted(tests)


def _of_format(path: Path) -> list[str]:
    """Return the tests of the format to which a module belongs, if it belongs to one."""
    match = re.match(r"foldlog\.(?:formats|adapters\._records)\.(\w+)", _module(path))
    if match is None:
        return []
    file = f"{match[1].replace('_', '-')}.jsonl"
    return [tests for folder, tests in _FORMATS.items() if (ROOT / folder / file).is_file()]


@cache
def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(
        part
        for part in (*(["foldlog"] if parts[0] in PACKAGES else []), *parts)
        if part != "__init__"
    )


@cache
def modules() -> list[Path]:
    return sorted(path for name in ("foldlog", *PACKAGES) for path in (ROOT / name).rglob("*.py"))


def _imports_module(path: Path, other: Path) -> bool:
    """Return whether a module imports another one, or names it in a table of modules. A module imports
    the package that it is in.
    """
    if other.name == "__init__.py" and path.parent == other.parent:
        return True
    text = _text(path)
    parent, _, own = _module(other).rpartition(".")
    if _module(other) in text or (path.parent == other.parent and f'"{own}"' in text):
        return True
    return re.search(rf"from {re.escape(parent)} import [^()\n]*\b{own}\b", text) is not None


@cache
def _text(path: Path) -> str:
    return path.read_text()


@cache
def _all_files() -> list[tuple[str, str]]:
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return [(str(path.relative_to(ROOT)), _text(path)) for path in paths]


@cache
def _files() -> list[tuple[str, str]]:
    """Return the tests that run in the environment of foldlog."""
    elsewhere = ("tests/adapters/", "tests/browser/")
    return [(path, text) for path, text in _all_files() if not path.startswith(elsewhere)]


@cache
def _files_of_adapters() -> list[tuple[str, str]]:
    return [(path, text) for path, text in _all_files() if path.startswith("tests/adapters/")]


@cache
def _tests_of_command(command: str) -> list[str]:
    """Return the tests whose functions or cases name a command, and the sessions in which it is typed."""
    typed = re.compile(rf"^\$ (?:\w+=\S* )?foldlog {command}\b", re.MULTILINE)
    sessions = (ROOT / "tests/golden/sessions").iterdir()
    named = re.compile(rf"""[(\[]f?["']{command}["' ]""")
    of_sessions = [f"{_SESSION}[{path.stem}]" for path in sessions if typed.search(_text(path))]
    of_functions = []
    for path, text in _files():
        if path.startswith("tests/foldlog/") and named.search(text):
            functions = _test_functions(text)
            of_functions += [
                f"{path}::{name}" for name in functions if named.search(functions[name])
            ]
    return of_sessions + of_functions


def _test_functions(text: str) -> dict[str, str]:
    """Return the text of each test function of a file, with its decorators, by its name."""
    lines = text.split("\n")
    functions = {}
    for node in _parsed(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test_"
        ):
            first = min(part.lineno for part in (node, *node.decorator_list))
            functions[node.name] = "\n".join(lines[first - 1 : node.end_lineno])
    return functions


def _defined(path: Path) -> set[str]:
    """Return the public names that a module defines."""
    return {
        node.name
        for node in _parsed(_text(path)).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
    }


@cache
def _imports(text: str) -> list[ast.ImportFrom]:
    return [node for node in ast.walk(_parsed(text)) if isinstance(node, ast.ImportFrom)]


@cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _importing(module: str, names: set[str], files: list[tuple[str, str]]) -> list[str]:
    parent, _, own = module.rpartition(".")
    paths = []
    for path, text in files:
        is_run = own == "__main__" and f'"-m", "{parent}"' in text
        if is_run or module in text or Path(path).stem == f"test_{own}":
            paths.append(path)
            continue
        if not any(name in text for name in {own, *names}):
            continue
        for node in _imports(text):
            imported = {alias.name for alias in node.names}
            if (node.module == parent and own in imported) or (
                module.startswith(f"{node.module}.") and names & imported
            ):
                paths.append(path)
                break
    return paths


if __name__ == "__main__":
    sys.stdout.write("\n".join(covering(sys.argv[1])))
