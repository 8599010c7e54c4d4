"""What is imported when, looked at in processes of their own. What it costs, the benchmarks measure."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from foldlog.cli.application import COMMANDS, module_of

ROOT = Path(__file__).parent.parent
HEAVY = ["eventsourcing", "pydantic", "sqlite_utils", "litellm", "matplotlib", "cryptography", "psycopg"]


def _modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_no_module_of_ours_imports_litellm_until_a_model_is_called():
    """Adapters are left out: each imports the SDK that it is for."""
    code = """
import importlib, pkgutil
for package in ("eventstore", "projections", "condensers", "foldlog"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if not module.name.endswith("__main__") and not module.name.startswith("foldlog.adapters."):
            importlib.import_module(module.name)
"""
    assert "litellm" not in _modules_after(code)


def test_importing_foldlog_imports_nothing_heavy():
    assert _modules_after("import foldlog") & {*HEAVY, "typer", "rich"} == set()


@pytest.mark.parametrize("arguments, commands", [(["--help"], set()), (["view", "--help"], {"view"})])
def test_help_imports_nothing_heavy_and_no_other_command(arguments, commands):
    code = f"""
import contextlib, io, sys
from foldlog.cli import main
sys.argv = {["foldlog", *arguments]!r}
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
"""
    typers_own = {"pydantic"}  # newer releases check the values of options with it
    modules = _modules_after(code)
    assert modules & set(HEAVY) - typers_own == set()
    assert {name for names in COMMANDS.values() for name in names if module_of(name) in modules} == commands


@pytest.mark.parametrize("command", ["compare", "list", "view"])
def test_the_help_of_a_command_imports_no_condenser(command):
    modules = _modules_after(f"import {module_of(command)}")
    assert {name for name in modules if name.startswith("condensers")} == set()


def test_opening_a_store_needs_no_event_sourcing_library(tmp_path):
    code = f"""
import foldlog
with foldlog.open("sqlite:///{tmp_path}/a.db") as histories:
    histories["c1"].append(foldlog.Message(source="user", content="hi"))
    histories["c1"].step()
"""
    assert _modules_after(code) & {"eventsourcing", "sqlite_utils", "litellm", "psycopg"} == set()


def test_a_view_is_opened_without_modules_of_python_that_only_few_need(tmp_path):
    code = f"""
from eventstore import Message, open_store
from projections import Views
with open_store("sqlite:///{tmp_path}/a.db") as store:
    store.append("c1", Message(source="user", content="hi"), expected_version=0)
    len(Views(store).current("c1"))
"""
    unneeded = {"importlib.resources", "tempfile", "shutil", "html", "pathlib"}
    assert _modules_after(code) & unneeded - _modules_after("import msgspec, sqlite3, uuid") == set()


def test_the_store_has_few_rooms_and_few_arrows_between_them():
    """A reader holds a dozen rooms in mind, and the ways between them only if there are few."""
    code = "import runpy; print(runpy.run_path('scripts/layout-figures')['arrows']())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert len(list((ROOT / "eventstore").glob("*.py"))) <= 12
    assert int(done.stdout) <= 70


def test_an_append_a_view_and_a_step_enter_few_files(tmp_path):
    """A reader follows one of them from the face to the disk and back."""
    code = (
        "import json, pathlib, runpy\n"
        "ways = runpy.run_path('scripts/layout-figures')['ways']\n"
        f"print(json.dumps(ways(pathlib.Path({str(tmp_path)!r}))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    most = {"an append": (12, 25), "a cold View": (15, 45), "a step": (20, 45)}
    found = json.loads(done.stdout)
    within = {way: (files <= most[way][0], changes <= most[way][1]) for way, (files, changes) in found.items()}
    assert within == dict.fromkeys(most, (True, True)), found
