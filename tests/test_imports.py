"""What is imported when, measured in processes of their own. CPU is user and system time: the machine may be busy."""

import json
import os
import statistics
import subprocess
import sys
import sysconfig

import pytest

HEAVY = ["eventsourcing", "pydantic", "sqlite_utils", "litellm", "matplotlib", "cryptography", "psycopg"]
HELP_CPU_MAX_S = 0.3


def _modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def _cpu_s(*command: str) -> float:
    with open(os.devnull, "wb") as nowhere:
        process = subprocess.Popen(command, stdout=nowhere)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime


def test_no_module_of_ours_imports_litellm_until_a_model_is_called():
    code = """
import importlib, pkgutil
for package in ("eventstore", "projections", "condensers", "foldlog"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""
    assert "litellm" not in _modules_after(code)


def test_importing_foldlog_imports_nothing_heavy():
    assert _modules_after("import foldlog") & {*HEAVY, "typer", "rich"} == set()


def test_the_policy_reference_is_imported_when_it_is_asked_for():
    module = "projections.reference_policy"
    view = "import projections; view = projections.View.from_events(()); projections.well_formed(view)"
    assert module not in _modules_after(view)
    assert module in _modules_after(f"{view}; projections.cut_points(view, policy='reference')")


def test_help_imports_nothing_heavy():
    code = """
import contextlib, io, sys
from foldlog.cli import main
sys.argv = ["foldlog", "--help"]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
"""
    assert _modules_after(code) & set(HEAVY) == set()


@pytest.mark.parametrize("arguments", [["--help"], ["view", "--help"]])
def test_help_takes_little_cpu(arguments):
    foldlog = os.path.join(sysconfig.get_path("scripts"), "foldlog")
    runs = [_cpu_s(foldlog, *arguments) for _ in range(5)]
    assert statistics.median(runs) < HELP_CPU_MAX_S, runs


def test_opening_a_store_needs_no_event_sourcing_library(tmp_path):
    code = f"""
import foldlog
with foldlog.open("sqlite:///{tmp_path}/a.db") as histories:
    histories["c1"].append(foldlog.Message(source="user", content="hi"))
    histories["c1"].step()
"""
    assert _modules_after(code) & {"eventsourcing", "sqlite_utils", "litellm", "psycopg"} == set()
