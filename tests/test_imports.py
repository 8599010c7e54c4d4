"""The modules that each use of foldlog imports. Each test looks at a new process. The benchmarks
measure the time.
"""

import importlib
import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import foldlog
from foldlog.eventstore import open_store
from tests.commands import MODULES, run_foldlog
from tests.foldlog.records import records_of
from tests.golden.rows import rows
from tests.said import said

HEAVY = ["eventsourcing", "pydantic", "sqlite_utils", "litellm", "cryptography", "psycopg"]


def _modules_after(code):
    script = f"{code}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    return set(json.loads(process.stdout.splitlines()[-1]))


def test_litellms_own_warnings_fail_no_test():
    """litellm silences these warnings when it is imported. pytest brings them back for later tests
    in the same process.
    """
    for message in (
        "a field using the `ReadOnly` qualifier",
        "Pydantic serializer warnings: a field",
    ):
        warnings.warn(message, UserWarning, stacklevel=1)
    with pytest.raises(UserWarning):
        warnings.warn("of something else", UserWarning, stacklevel=1)


def test_no_module_imports_litellm():
    """Adapters are left out: each imports the SDK that it is for."""
    code = """
import importlib, pkgutil
import foldlog
for module in pkgutil.walk_packages(foldlog.__path__, "foldlog."):
    if not module.name.endswith("__main__") and not module.name.startswith("foldlog.adapters."):
        importlib.import_module(module.name)
"""
    assert "litellm" not in _modules_after(code)


def test_importing_foldlog_imports_nothing_heavy():
    assert _modules_after("import foldlog") & {*HEAVY, "click", "rich"} == set()


@pytest.mark.parametrize(
    "arguments, commands", rows("settings.json", "commands and the commands that they import")
)
def test_command_imports_no_other_command(arguments, commands):
    code = f"""
import contextlib, io, sys
from foldlog._app.cli import main
sys.argv = {["foldlog", *arguments]!r}
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
"""
    modules = _modules_after(code)
    assert modules & set(HEAVY) == set()
    assert {name for name, module in MODULES.items() if module in modules} == {*commands}


def test_server_starts_without_mcp():
    code = """
from foldlog._app.cli.serving import tools_loader
from foldlog._app.server.access import Gate
from foldlog._app.server.app import application
from foldlog.eventstore import open_store
store = open_store("memory:")
application(store, gate=Gate(None), tools=tools_loader(store))
"""
    assert "mcp" not in _modules_after(code)


def test_help_imports_no_condenser():
    commands = ("compare", "list", "view")
    modules = _modules_after(f"import {', '.join(MODULES[name] for name in commands)}")
    assert {name for name in modules if name.startswith("foldlog.condensers")} == set()


def test_command_that_takes_a_format_loads_none():
    modules = _modules_after(f"import {MODULES['import']}, {MODULES['export']}")
    assert "foldlog.formats.registry" in modules
    assert {"foldlog.formats.aider", "importlib.metadata"} & modules == set()


def test_applications_may_reuse_our_package_names(tmp_path):
    for name in ("condensers", "eventstore", "projections"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("OWN = True\n")
    code = f"""
import sys
import warnings
sys.path.insert(0, {str(tmp_path)!r})
import condensers, eventstore, projections
import foldlog
with foldlog.open("memory:") as histories:
    histories["c1"].append(foldlog.Message(source="user", content="hi"))
    histories["c1"].step()
assert condensers.OWN and eventstore.OWN and projections.OWN
"""
    assert {"foldlog.condensers", "foldlog.eventstore", "foldlog.projections"} <= _modules_after(
        code
    )


def test_opening_a_view_imports_few_modules(tmp_path):
    code = f"""
import foldlog
with foldlog.open("sqlite:///{tmp_path}/a.db") as histories:
    histories["c1"].append(foldlog.Message(source="user", content="hi"))
    len(histories["c1"].view())
"""
    unneeded = {"importlib.resources", "tempfile", "shutil", "html", "logging", "secrets", "shlex"}
    unneeded |= {"foldlog._reports.words.gist"}
    modules = _modules_after(code)
    assert modules & unneeded - _modules_after("import msgspec, sqlite3, uuid") == set()
    added = modules - _modules_after("")
    assert len(added) <= 187, sorted(added)


def test_hook_counts_no_figures(tmp_path):
    """Without the modules that count figures, the import of a source in use begins sooner."""
    path = tmp_path / "log.jsonl"
    lines = [json.dumps(record) + "\n" for record in records_of("claude-code")]
    path.write_text("".join(lines[:-1]))
    with foldlog.open(str(tmp_path / "a.db")) as histories:
        (history,) = histories.import_(path)
        history.view()
    path.write_text("".join(lines))
    code = f"""
import foldlog
with foldlog.open({str(tmp_path / "a.db")!r}) as histories:
    histories.import_({str(path)!r})
"""
    modules = _modules_after(code)
    assert "foldlog._imports.making_events" in modules
    unneeded = {"foldlog._reports.figures.counting", "foldlog._reports.figures.of_store"}
    assert modules & unneeded == set()


@pytest.mark.parametrize("package", ["eventstore", "projections", "condensers"])
def test_folders_of_a_checkout_are_no_packages(package, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(foldlog.__file__).parents[1]))
    with pytest.raises(ImportError, match=f"no package '{package}'; import 'foldlog.{package}'"):
        importlib.import_module(f"{package}.errors")
    assert package not in sys.modules


_NO_PATTERN = """
import re._compiler
{imports}
compiled = []
compiler = re._compiler.compile
re._compiler.compile = lambda *pattern: compiled.append(pattern) or compiler(*pattern)
{code}
assert compiled == [], compiled
"""


def test_opening_a_store_compiles_no_pattern(tmp_path):
    """Compiling takes a tenth of the first open of a process."""
    url = f"sqlite:///{tmp_path}/a.db"
    open_store(url).close()
    code = f"with open_store({url!r}) as store: len(list(store.iter_conversations()))"
    _modules_after(
        _NO_PATTERN.format(imports="from foldlog.eventstore import open_store", code=code)
    )


def test_printing_a_plain_text_compiles_no_pattern():
    code = "from foldlog._reports.words.safe_text import printable; printable('hi')"
    _modules_after(_NO_PATTERN.format(imports="import json", code=code))


def test_command_ends_without_a_search_for_cycles():
    code = """
import atexit, contextlib, gc, io, sys
atexit.register(lambda: print(gc.get_freeze_count() > 0))
from foldlog._app.cli import main
sys.argv = ["foldlog", "list", "--help"]
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "True\n"


def test_named_strategy_needs_few_packages(tmp_path):
    code = f"""
import foldlog
with foldlog.open("sqlite:///{tmp_path}/a.db", condenser="digest") as histories:
    histories["c1"].append(foldlog.Message(source="user", content="hi"))
    histories["c1"].prepare()
"""
    unneeded = {"eventsourcing", "sqlite_utils", "litellm", "psycopg", "pydantic"}
    assert _modules_after(code) & unneeded == set()


@pytest.mark.parametrize(
    "arguments, most",
    [
        (["--version"], 19),
        (["list", "-n", "5"], 256),
        (["list", "--short"], 253),
        (["log", "c1", "-n", "3"], 267),
        (["log", "c1", "--stop", "9"], 266),
        (["view", "c1", "--at", "1"], 287),
    ],
)
def test_short_command_imports_few_modules(tmp_path, arguments, most):
    """A warm process hides what each call of the command pays: its imports are most of its time.

    ``most`` is the number of modules that a command may import, beyond those with which the
    interpreter starts.
    """
    path = tmp_path / "a.db"
    with open_store(f"sqlite:///{path}") as store:
        store.append("c1", [said("läng…" * 99), said("long" * 99)], expected_version=0)
    run_foldlog("list", "--long", "--db", str(path))  # only the first such list counts
    db = [] if arguments == ["--version"] else ["--db", str(path)]
    width = {"COLUMNS": "120"} if {"--short", "--stop"} & {*arguments} else {}
    code = f"""
import contextlib, os, sys
os.environ.pop("COLUMNS", None)  # to wrap a line needs rich, and to cut a Latin line does not
os.environ.update({width})
from foldlog._app.cli import main
sys.argv = {["foldlog", *arguments, *db]!r}
with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(SystemExit):
    main()
"""
    modules = _modules_after(code)
    unneeded = {*HEAVY, "rich", "subprocess", "socket", "asyncio", "foldlog.formats.registry"}
    unneeded |= {"secrets", "shutil", "tempfile"}
    assert modules & unneeded == set()
    added = modules - _modules_after("")
    assert len(added) <= most, sorted(added)


def test_the_first_search_of_a_server_imports_nothing():
    code = """
from foldlog import Histories
from foldlog._app.server.service.service import Service
from foldlog._app.server.service.tokens import Tokens
from foldlog.eventstore import Message, open_store
import sys
with open_store("memory:") as store:
    Service(Histories(store), Tokens.of_one("a long token"), check=lambda: None)
    store.append("c1", [Message(source="user", content="tea")], expected_version=0)
    served = set(sys.modules)
    from foldlog._reports.search.searching import search
    assert len(search(store, "tea").hits) == 1
assert not [name for name in set(sys.modules) - served if name.startswith("foldlog")]
"""
    assert "foldlog._reports.search.index" in _modules_after(code)
