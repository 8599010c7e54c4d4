"""Commands that messages tell a person to run: each works as printed, for the store that was
given.
"""

import ast
import json
import re
import shlex
import subprocess
from importlib import metadata
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from foldlog._app.cli import hints
from foldlog.eventstore import open_store
from foldlog.eventstore.errors import install_command
from tests.commands import NAMES, command_named
from tests.said import say

ROOT = Path(__file__).parents[4]
HINT = re.compile(r"'foldlog ([a-z]+(?: [^']*)?)'")


def words(typed):
    """Return what a shell makes of a command's arguments."""
    shell = ["sh", "-c", f"printf '%s\\0' {typed}"]
    return subprocess.run(shell, check=True, capture_output=True, text=True).stdout.split("\0")[:-1]


@pytest.fixture
def run_hint(foldlog):
    """Run the commands that a message names, and return how each ended."""

    def run(message):
        return [foldlog(*words(typed)).status for typed in HINT.findall(message)]

    return run


@pytest.fixture(autouse=True)
def _no_store():
    yield
    hints.use_store(None)


@pytest.fixture
def store(tmp_path):
    """A store that is not the default one, with a conversation whose id a shell would part."""
    with open_store(tmp_path / "my store.db") as store:
        say(store, "my $id", "0", "1", "2")
    return "my store.db"


def test_command_that_reverses_a_retraction_works(foldlog, store, run_hint):
    foldlog("attributes 'my $id' --set a=1 --db", store)
    shown = foldlog("retract 'my $id' --to 1 --db", store).out
    assert "took back 2 events, the View shows 1 event" in shown  # the attribute stays
    assert run_hint(shown) == [0]
    assert "the View shows 3 events" in foldlog("retract 'my $id' --to 4 --db", store).out


def test_error_names_the_store(foldlog, store, run_hint, monkeypatch):
    refused = foldlog("view qqq --db", store).err
    assert """'foldlog list --db "my store.db"' shows""" in refused
    assert run_hint(refused) == [0]
    monkeypatch.setenv("FOLDLOG_DB", store)
    assert "'foldlog list' shows" in foldlog("view qqq").err


def test_extra_is_installed_as_foldlog_was(tmp_path, monkeypatch):
    for recorded, typed in [
        (None, "pip install 'foldlog[llm]'"),
        (
            {"url": "file:///my%20code", "dir_info": {"editable": True}},
            "pip install -e '/my code[llm]'",
        ),
        ({"url": "file:///code", "dir_info": {}}, "pip install '/code[llm]'"),
        (
            {"url": "file:///f-0.1-py3-none-any.whl", "archive_info": {}},
            "pip install '/f-0.1-py3-none-any.whl[llm]'",
        ),
        ({"url": "https://host/foldlog.git", "vcs_info": {}}, "pip install 'foldlog[llm]'"),
    ]:
        (tmp_path / "METADATA").write_text("Name: foldlog\n")
        if recorded is not None:
            (tmp_path / "direct_url.json").write_text(json.dumps(recorded))
        monkeypatch.setattr(metadata, "distribution", lambda name: PathDistribution(tmp_path))
        assert install_command("llm") == typed


def test_hint_shows_no_password():
    hints.use_store("postgresql://ann:secret@host/db")
    assert (
        hints.complete_commands("run 'foldlog store verify'")
        == "run 'foldlog store verify --db \"postgresql://ann:***@host/db\"'"
    )


def texts(path):
    """Return the texts of a module without docstrings and help. Formatted values are an X."""
    nodes = [*ast.walk(ast.parse(path.read_text()))]
    left_out = {node.value for node in nodes if isinstance(node, ast.Expr)}
    texts = []
    for node in nodes:  # a whole text comes before its parts
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("argument", "flag", "option"):
            left_out.update(node.args)
        elif isinstance(node, ast.JoinedStr):
            left_out.update(node.values)
            values = [part.value for part in node.values]  # of a formatted one, a node
            texts.append("".join(value if isinstance(value, str) else "X" for value in values))
        elif isinstance(getattr(node, "value", None), str) and node not in left_out:
            texts.append(node.value)
    return texts


def test_command_in_a_message_is_valid(monkeypatch):
    monkeypatch.delenv("FOLDLOG_DB", raising=False)
    hints.use_store("my store.db")
    checked = 0
    paths = (
        path
        for room in ("foldlog", "eventstore", "projections")
        for path in (ROOT / room).rglob("*.py")
    )
    for path in (path for path in paths if "'foldlog" in path.read_text()):
        for text in (hint for hint in texts(path) if "foldlog " in hint):
            for typed in HINT.findall(hints.complete_commands(text)):
                name = next((name for name in NAMES if f"{typed} ".startswith(f"{name} ")), "")
                arguments = shlex.split(typed)[len(name.split()) :]
                if name and "--help" not in arguments:
                    values = dict.fromkeys(("A", "B", "V", "EVENT"), "1")
                    if name == "setup":
                        values |= {"PROGRAM": "codex", "X": "codex"}
                    filled = [values.get(word, word) for word in arguments]
                    command_named(name).make_context(name, filled)
                    assert {"my store.db", "NEW.db", "STORE", "X"} & {*arguments}, f"{path}: {text}"
                    checked += 1
    assert checked > 20


def test_default_store_is_named_by_its_file(foldlog, five_messages):
    open_store("sqlite:///foldlog.db").close()
    outputs = [foldlog("list").out, foldlog("import", five_messages).out]
    assert [("sqlite:" in out, "foldlog.db" in out) for out in outputs] == [(False, True)] * 2
