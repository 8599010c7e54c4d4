"""Which functions of the product the files of tests call: ``python -m tests.calls`` runs all tests
in one process, some ten minutes, and writes ``tests/golden/calls.json`` for ``tests.which``.
``python -m tests.calls eventstore conformance`` runs these folders, and adds the missing rows of
modules that no file of another folder names.

The file has each module of which few tests call a function among those that import or name it, with
the few other files of tests that together call most of its functions. Write it anew when modules
have moved: a file of tests that is gone is passed over, and a module that is not in the file has the
tests that import or name it.
"""

import inspect
import json
import sys
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from tests.which import CALLS, FEW, ROOT, modules, naming

_FOLDERS = ("conformance", "condensers", "eventstore", "foldlog", "ledger", "projections")
"""Folders of the tests that run in the environment of foldlog and in less than a minute each."""

Calls = dict[str, dict[str, set[str]]]
"""Maps a module to the files of tests that call functions of it, and to these functions."""

Table = dict[str, list[str]]
"""Maps a module to files of tests that call functions of it."""


class Recorder:
    """A plugin of pytest that records which functions each file of tests calls."""

    def __init__(self) -> None:
        self._codes = defaultdict[str, set[CodeType]](set)
        self._present = set[CodeType]()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self._present = self._codes[item.nodeid.partition("::")[0]]
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self._present.add(frame.f_code)

    def calls(self) -> Calls:
        names = {str(path.resolve()): _name(path) for path in modules()}
        calls = defaultdict[str, dict[str, set[str]]](dict)
        for tests, codes in self._codes.items():
            for code in codes:
                # The body of a module or of a class runs when a test is the first to import it.
                if not code.co_flags & inspect.CO_OPTIMIZED:
                    continue
                name = names.get(str(Path(code.co_filename).resolve()))
                if name is not None:
                    function = f"{code.co_firstlineno} {code.co_name}"
                    calls[name].setdefault(tests, set()).add(function)
        return calls


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def choose(functions_of_tests: dict[str, set[str]], count: int) -> list[str]:
    """Choose so many files: each time the one that adds most functions, and once all functions are
    called, the one that calls most of them again.
    """
    chosen = list[str]()
    every = set[str]().union(*functions_of_tests.values())
    missing = every
    while len(chosen) < min(count, len(functions_of_tests)):
        added = {
            tests: len(called & missing)
            for tests, called in functions_of_tests.items()
            if tests not in chosen
        }
        best = max(sorted(added), key=added.__getitem__)
        chosen.append(best)
        missing = missing - functions_of_tests[best] or every
    return sorted(chosen)


def merge(table: Table, rows: Table, folders: Sequence[str]) -> Table:
    """Return the table, and the rows that it lacks and that tests of these folders determine."""
    of_folders = tuple(f"tests/{folder}/" for folder in folders)
    measured = {
        _name(path)
        for path in modules()
        if (names := naming(path)) and all(test.startswith(of_folders) for test in names)
    }
    new = {name: tests for name, tests in rows.items() if name in measured}
    return dict(sorted({**new, **table}.items()))


def table_of(calls: Calls) -> Table:
    """Return the table: modules that few of the files naming them call, and as many other files."""
    rows = dict[str, list[str]]()
    for name in sorted(calls):
        naming_it = {test.partition("::")[0] for test in naming(ROOT / name)}
        # A file that only imports a module, or names it, tests nothing of it.
        calling = naming_it & calls[name].keys()
        others = {tests: called for tests, called in calls[name].items() if tests not in naming_it}
        if naming_it and len(calling) < FEW and others:
            rows[name] = choose(others, FEW)
    return rows


if __name__ == "__main__":
    recorder = Recorder()
    chosen = sys.argv[1:] or _FOLDERS
    # This program has imported foldlog, whose asserts no test needs to have rewritten.
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    status = pytest.main([*options, *(f"tests/{folder}" for folder in chosen)], [recorder])
    measured = table_of(recorder.calls())
    if sys.argv[1:]:
        measured = merge(json.loads(CALLS.read_text()), measured, chosen)
    CALLS.write_text(json.dumps(measured, indent=1) + "\n")
    sys.exit(status)
