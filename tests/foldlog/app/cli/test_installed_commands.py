"""Commands that installed packages bring."""

import errno
import os
import re
from pathlib import Path

import pytest

from tests.said import said

PAGE = Path(__file__).parents[4] / "docs/how-to/command.md"

SHOUT = """
import click
@click.command()
@click.option("--at", nargs=2, type=int, default=(0, 0))
@click.option("--who", type=str.upper, default="you")
def run(at, who): print(at, who)
def plain(): print("plain")
from foldlog.commands import json_option
@click.command()
@json_option
def asked(as_json): print(as_json)
"""


@pytest.fixture
def installed(foldlog, tmp_path, monkeypatch):
    """The command of the page, as an installed package has it."""
    [code] = re.findall(r"```python\n# hello.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    [entry] = re.findall(r"```toml\n.*?\]\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "site/hello-1.dist-info").mkdir(parents=True)
    (tmp_path / "site/hello.py").write_text(code)
    (tmp_path / "site/hello-1.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: hello\nVersion: 1\n"
    )
    entries = (
        f"[foldlog.commands]\n{entry.replace(chr(34), '')}list = hello:hello\nbroken ="
        " nothing:there\n"
    )
    entries += "shout = shout:run\nplain = shout:plain\nasked = shout:asked\n"
    (tmp_path / "site/shout.py").write_text(SHOUT)
    (tmp_path / "site/hello-1.dist-info/entry_points.txt").write_text(entries)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return foldlog


def test_installed_command_runs_and_is_listed(installed, stored):
    stored["c1"].append(said("hi"))
    assert "._" not in PAGE.read_text(), "what is private may change"
    assert installed("hello c1").out == "c1 has 1 events\n"
    mistyped = installed("hello c1 --db fodlog.db")
    assert (mistyped.status, "the store fodlog.db does not exist" in mistyped.err) == (2, True)
    assert "Say how long a conversation is." in installed("hello --help").out
    assert "Installed:" in (shown := installed("--help").out)
    assert "A command of hello." in shown
    assert "A command of hello" not in installed("list --help").out, "foldlog's own stay"


def test_a_folder_of_the_path_that_cannot_be_read_hides_no_command(
    installed, tmp_path, monkeypatch
):
    private = tmp_path / "private"
    private.mkdir()
    read_folder = os.listdir

    def refuse(folder="."):
        if folder == str(private):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        return read_folder(folder)

    monkeypatch.setattr(os, "listdir", refuse)
    monkeypatch.syspath_prepend(str(private))
    shown = installed("--help")
    assert (shown.status, "A command of hello." in shown.out) == (0, True)


def test_installed_command_knows_of_json(installed):
    assert (installed("asked").out, installed("asked --json").out) == ("False\n", "True\n")


@pytest.mark.usefixtures("installed")
def test_installed_command_is_completed(completed):
    names = ["search", "serve", "show", "stats", "setup", "secrets", "store", "shout"]
    assert completed("foldlog s").split() == [f"plain,{name}" for name in names]


@pytest.mark.parametrize(
    "name, problem",
    [
        (
            "broken",
            "of hello cannot be loaded: No module named 'nothing'; correct or uninstall",
        ),
        ("plain", "of hello is a function, not a command of Click"),
    ],
)
def test_broken_command_is_named(installed, name, problem):
    ran = installed(name)
    assert (ran.status, f"the command '{name}' {problem}" in ran.err) == (2, True)


def test_options_have_their_types(installed):
    assert installed("shout --at 1 2 --who me").out == "(1, 2) ME\n"
    assert installed("shout").out == "(0, 0) YOU\n"
