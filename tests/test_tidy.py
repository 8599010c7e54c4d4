"""Rules that no linter checks, for every file that git knows."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("eventstore", "projections", "condensers", "foldlog")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]

_listed = subprocess.run(
    ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
).stdout
FILES = [ROOT / name for name in _listed.split("\0") if name and (ROOT / name).is_file()]
PYTHON = [path for path in FILES if path.suffix == ".py"]
MARKDOWN = [path for path in FILES if path.suffix == ".md"]


@cache
def _text_of(path):
    return path.read_text("utf-8", errors="replace")


@cache
def _nodes(path):
    return list(ast.walk(ast.parse(_text_of(path))))


def _named(path):
    return str(path.relative_to(ROOT))


OTHER_NAMES = {
    "agent_framework": "agent-framework-core",
    "agents": "openai-agents",
    "google": "google-adk",
    "langchain_core": "langchain-core",
    "langgraph": "langgraph-checkpoint",
    "llama_index": "llama-index-core",
    "openhands": "openhands-sdk",
    "opentelemetry": "opentelemetry-api",
    "pydantic_ai": "pydantic-ai-slim",
    "strands": "strands-agents",
}
"""Packages that have other names than on the index."""


def test_whatever_is_imported_is_declared():
    extras = [requirement for group in EXTRAS.values() for requirement in group]
    declared = {_distribution(requirement) for requirement in [*PROJECT["dependencies"], *extras]}
    declared.add("pydantic-core")  # the other half of pydantic, which pins it
    undeclared = {
        (_named(path), name)
        for path in PYTHON
        if path.relative_to(ROOT).parts[0] in PACKAGES
        for name in _imported(_nodes(path)) - set(PACKAGES) - sys.stdlib_module_names
        if _distribution(OTHER_NAMES.get(name, name)) not in declared
    }
    assert undeclared == set()


def test_private_names_stay_in_their_file():
    """So no file of the store needs an ``__all__`` to say what it offers; packages have one."""
    offences = []
    for path in PYTHON:
        if path.relative_to(ROOT).parts[0] in PACKAGES:
            for node in _nodes(path):
                if (
                    isinstance(node, ast.ImportFrom)
                    and (node.module or "").split(".")[0] in PACKAGES
                ):
                    modules = {
                        file.stem for file in (ROOT / str(node.module).replace(".", "/")).glob("_*")
                    }
                    names = {
                        name.name for name in node.names if re.match("_(?!_)", name.name)
                    } - modules
                    offences += [f"{_named(path)} takes {name}" for name in names]
    assert offences == []


def test_recommended_extras_exist():
    recommended = {
        (extra, _named(path))
        for path in PYTHON
        for extra in re.findall(r"foldlog\[(\w+)\]", _text_of(path))
    }
    assert [where for extra, where in recommended if extra not in EXTRAS] == []


def _distribution(requirement):
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=~! ]", requirement)[0]).lower()


def _imported(nodes):
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


def test_no_path_of_the_authors_machine():
    machine = re.compile(r"/(?:w[o]rk|t[m]p|r[o]ot|h[o]me)/[a-z.]")
    places = []
    for path in FILES:
        for number, line in enumerate(_text_of(path).splitlines(), 1):
            if machine.search(line):
                places.append(f"{_named(path)}:{number}")
    assert places == []


def test_every_sql_statement_is_used():
    words = {
        word
        for path in PYTHON
        if path.is_relative_to(ROOT / "eventstore")
        or path.is_relative_to(ROOT / "foldlog/_reports")
        for word in re.findall(r"\w+", _text_of(path))
    }
    # Code runs all statements whose names begin with such a word.
    prefixes = tuple(word for word in words if word.endswith("_search_"))
    unused = []
    for path in (path for path in FILES if path.suffix == ".sql"):
        # Migrations are numbered and found by listing their folder.
        if not re.match(r"\d", path.name) and path.stem not in words:
            unused.append(_named(path))
        names = re.findall(r"^-- name: *(\w+)", _text_of(path), re.MULTILINE)
        unused.extend(
            f"{_named(path)} {name}"
            for name in names
            if name not in words and not name.startswith(prefixes)
        )
    assert unused == []


def test_decisions_are_numbered_and_linked():
    decisions = [path for path in MARKDOWN if path.parent.name == "decisions"]
    assert len(decisions) > 40
    numbers = Counter(path.name.split("-")[0] for path in decisions)
    assert [
        number
        for number, count in numbers.items()
        if count > 1 or not re.fullmatch(r"\d{4}", number)
    ] == []
    elsewhere = {path: _text_of(path) for path in [*MARKDOWN, *PYTHON]}
    unlinked = [
        _named(path)
        for path in decisions
        if not any(path.name in text for other, text in elsewhere.items() if other != path)
    ]
    assert unlinked == []


def test_relative_links_lead_to_files():
    broken = []
    for path in MARKDOWN:
        targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", _text_of(path))
        broken.extend(
            f"{_named(path)} -> {target}"
            for target in targets
            if "://" not in target and not (path.parent / target).exists()
        )
    assert broken == []


ARCHITECTURE = ROOT / "docs" / "ARCHITECTURE.md"
TOP_FOLDERS = (*PACKAGES, "tests", "benchmarks", "scripts", "examples", "docs")
LEDGER = ROOT / "tests" / "ledger" / "README.md"


def _architecture_names():
    """Return the paths that the page names: with a folder, or by name in the row of their
    folder.
    """
    page = _text_of(ARCHITECTURE)
    named = {
        name.rstrip("/") for name in re.findall(r"`([\w./-]+)`", page) if "/" in name.rstrip("/")
    }
    for folder, text in re.findall(r"^\| \*\*`(\w+)/`\*\* \| (.*) \|$", page, re.MULTILINE):
        named |= {f"{folder}/{name}" for name in re.findall(r"`(\w+\.py)`", text)}
    return named | set(re.findall(r"`(\w+)/`", page))


def test_architecture_names_every_folder():
    named = _architecture_names()
    assert {
        name
        for name in named
        if name.partition("/")[0] in TOP_FOLDERS and not (ROOT / name).exists()
    } == set()
    folders = {path.parent.relative_to(ROOT) for path in PYTHON}
    covered = {Path(name) for name in named}
    unnamed = {str(folder) for folder in folders if not {folder, *folder.parents[:-1]} & covered}
    of_packages = {folder for folder in folders if folder.parts[0] in PACKAGES}
    # one row each: all formats, all adapters, and all parts of the command
    in_a_common_row = {
        folder
        for folder in of_packages
        if folder.parts[:2] in (("foldlog", "formats"), ("foldlog", "adapters"))
        or folder.parts[:3] == ("foldlog", "_app", "cli")
    }
    assert unnamed | {str(folder) for folder in of_packages - covered - in_a_common_row} == set()


def test_ledger_cells_name_existing_code():
    assert "](internals/LEDGER.md)" in _text_of(ARCHITECTURE)
    cells = set(re.findall(r"`(\w+)\.([\w.]+)`", _text_of(LEDGER)))
    there = {
        (path.stem, f"{outer}.{node.name}" if outer else node.name)
        for path in PYTHON
        if path.relative_to(ROOT).parts[0] in PACKAGES
        for outer, node in _defined(path)
    }
    assert len(cells) >= 40
    assert {cell for cell in cells if cell not in there} == set()


def _defined(path):
    """Return the functions and classes of a file, each with the class that it is in."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    outer = [("", node) for node in _nodes(path)[0].body if isinstance(node, kinds)]
    return outer + [
        (of.name, node)
        for _, of in outer
        if isinstance(of, ast.ClassDef)
        for node in of.body
        if isinstance(node, kinds)
    ]


def test_packages_describe_their_files():
    unnamed = {}
    absent = {}
    for path in PYTHON:
        if path.name != "__init__.py" or path.relative_to(ROOT).parts[0] not in PACKAGES:
            continue
        docstring = ast.get_docstring(ast.parse(_text_of(path))) or ""
        if docstring.endswith("Each command has one file."):
            continue
        names = {file.stem for file in path.parent.glob("*.py")} - {"__init__", "__main__"}
        names |= {package.parent.name for package in path.parent.glob("*/__init__.py")}
        unnamed[_named(path)] = sorted(names - set(re.findall(r"\w+", docstring)))
        absent[_named(path)] = sorted(set(re.findall(r"(?<!/)\b(\w+)\.py\b", docstring)) - names)
    assert {name: missing for name, missing in unnamed.items() if missing} == {}
    assert {name: files for name, files in absent.items() if files} == {}


SCRIPTS = [
    path for path in FILES if path.parent in (ROOT / "scripts", ROOT / ".ci") and not path.suffix
]


@pytest.mark.parametrize("path", SCRIPTS, ids=_named)
def test_scripts_are_executable_shell(path):
    assert path.stat().st_mode & 0o111
    first = _text_of(path).splitlines()[0]
    assert first in ("#!/bin/sh", "#!/usr/bin/env bash")
    subprocess.run([*first.removeprefix("#!").split(), "-n", path], check=True)


def test_there_are_scripts():
    assert len(SCRIPTS) >= 18


def test_setup_installs_each_group_once(tmp_path):
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$*" >>installed\n')
    python.chmod(0o755)
    alone = tmp_path / "scripts" / "setup"
    alone.parent.mkdir()
    shutil.copy(ROOT / "scripts" / "setup", alone)
    project = tmp_path / "pyproject.toml"
    project.touch()
    (tmp_path / "constraints.txt").touch()
    installed = tmp_path / "installed"

    def installs(group):
        installed.write_text("")
        variables = {**os.environ, "PYTHON": sys.executable}
        subprocess.run([alone, group], env=variables, capture_output=True, check=True)
        return installed.read_text() != ""

    assert [group for group in ("test", "demo", "lint", "test", "lint") if installs(group)] == [
        "test",
        "lint",
    ]
    assert [group for group in ("all", "docs", "lint", "demo", "all") if installs(group)] == ["all"]
    project.write_text("changed")
    assert [group for group in ("demo", "test", "demo", "lint") if installs(group)] == [
        "demo",
        "test",
        "lint",
    ]


@pytest.mark.parametrize(
    "script",
    ["pin", "setup", "test", "test-adapters", "test-bounds", "test-browser", "test-wheel"],
)
def test_help_of_a_script_does_nothing(tmp_path, script):
    alone = tmp_path / "scripts" / script
    alone.parent.mkdir()
    shutil.copy(ROOT / "scripts" / script, alone)
    run = subprocess.run([alone, "--help"], capture_output=True, text=True, check=False)
    first = _text_of(alone).splitlines()[1].removeprefix("# ")
    assert (run.returncode, run.stdout.startswith(f"{first}\n"), run.stderr) == (0, True, "")
    assert list(tmp_path.iterdir()) == [alone.parent]
