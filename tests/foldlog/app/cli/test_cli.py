"""What the commands do and print. See also ``tests/golden/sessions``."""

import contextlib
import io
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import metadata

import pytest
from click.shell_completion import get_completion_class

from foldlog._app.cli.quick_completion import complete_quickly
from foldlog.eventstore import open_store
from foldlog.eventstore.sources.tables import SourcesToWrite
from tests.commands import application, run_foldlog
from tests.foldlog.imports.imports import set_sizes
from tests.foldlog.records import SAMPLE, said
from tests.foldlog.terminals import FOLDLOG
from tests.how_many import some
from tests.stored_rows import execute

DB = ("--db", "foldlog-demo.db")


@pytest.fixture(scope="module")
def made_demo(tmp_path_factory):
    """A folder with the store that ``foldlog demo`` makes, and what the command prints on a wide
    terminal, where ``foldlog`` is on the path.
    """
    folder = tmp_path_factory.mktemp("demo")
    out = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
    ):
        patch.setenv("COLUMNS", "140")
        patch.setenv("XDG_DATA_HOME", str(folder / ".data"))
        patch.setattr("shutil.which", lambda name: f"/bin/{name}")
        assert run_foldlog("demo") == 0
    return folder, out.getvalue()


@pytest.fixture
def demo(made_demo, foldlog, tmp_path):
    """What ``foldlog demo`` printed. A copy of its store is in the present folder."""
    folder, printed = made_demo
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return printed


def test_demo_is_true_and_short(demo, foldlog, monkeypatch):
    assert len(demo.splitlines()) <= 40
    for words in (
        "286 events imported into foldlog-demo.db",
        "This log has 284 events: 4 condensations of foldlog",
        "forgot 55 events: View of 82 events exceeded 80",
        "condensation 84 forgot it at version 85, View of 82 events exceeded 80",
        "In its place: # Digest of 55 events, up to [56]; the conversation goes on ## Asked by the user -",
        "foldlog list --db foldlog-demo.db",
    ):
        assert words in " ".join(demo.split())
    sent = re.findall(r"sent in (\d+) calls with.*?([\d,]+)\n", demo)
    monkeypatch.setattr("foldlog._app.cli.commands.compare.counter_beside", lambda model: None)
    compared = foldlog("compare tidewatch-live --json", *DB).document["strategies"]
    by_name = {
        row["strategy"]: (str(row["turns"]), f"{round(row['tokens_sent'], -5):,}")
        for row in compared
    }
    assert sent == [by_name["noop"], by_name["as recorded"]]
    (shown,) = re.findall(r"what the model is shown now +(\d+)", demo)
    assert len(foldlog("view tidewatch-live --json", *DB).document["ids"]) == int(shown)
    assert foldlog("store verify", *DB).status == 0


def test_commands_that_the_demo_names_work(demo, foldlog):
    commands = re.findall(r"^  \S*foldlog (.*?)  ", demo.partition("Try next")[2], re.MULTILINE)
    assert len(commands) == 8
    assert commands.pop() == "serve --db foldlog-demo.db"  # which runs until Ctrl-C
    for command in commands:
        assert foldlog(*shlex.split(command)).status == 0, command


@pytest.mark.usefixtures("demo")
def test_a_second_demo_fits_a_narrow_terminal(foldlog, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    again = foldlog("demo").out
    assert [line for line in again.splitlines() if len(line) > 60] == []
    assert "\n      all conversations\n" in again
    assert "286 events already in foldlog-demo.db" in " ".join(again.split())


def test_it_says_its_version(foldlog):
    ran = foldlog("--version")
    assert (ran.status, ran.out, ran.err) == (0, f"foldlog {metadata.version('foldlog')}\n", "")


@pytest.mark.parametrize("command", ["", "store verify"])
def test_help_can_be_asked_for_by_one_letter(foldlog, command):
    shown = foldlog(f"{command} -h").out
    assert f"Usage: foldlog {command}" in shown
    assert shown == foldlog(f"{command} --help").out


def test_copy_of_an_empty_store_is_empty(foldlog):
    open_store("sqlite:///foldlog.db").close()
    copied = foldlog("store copy foldlog.db new.db").out
    assert copied.startswith("copied 0 events of 0 conversations")
    assert foldlog("store verify --views --db new.db").status == 0


@pytest.mark.parametrize("line", some(["list --json", "log five --json", "--help"], 2))
def test_closed_pipe_ends_a_command_quietly(foldlog, five_messages, tmp_path, line):
    foldlog("import", five_messages)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as nobody_reads:
        process = subprocess.run(
            [FOLDLOG, *line.split()],
            cwd=tmp_path,
            env=buffered,
            stdout=nobody_reads,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert process.returncode == 0
    assert process.stderr == b""


@pytest.mark.parametrize(
    "line, word",
    [
        ("foldlog vi", "view"),
        ("foldlog store ver", "verify"),
        ("foldlog list --lim", "--limit"),
        ("foldlog view fi", "five"),
        ("foldlog log five --kind act", "action"),
        ("foldlog import --format claude", "claude-code"),
    ],
)
def test_shell_completes_words(foldlog, five_messages, completed, line, word):
    foldlog("import", five_messages)
    assert word in completed(line, "zsh").split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    "line",
    ["foldlog -", "foldlog list --limit 4 -", "foldlog log c1 --kind x --", "foldlog fork -"],
)
def test_options_are_completed_as_by_click(completed, shell, line):
    ours = completed(line, shell)
    click = get_completion_class(shell)(application, {}, "foldlog", "_FOLDLOG_COMPLETE")
    assert ours == click.complete() + "\n"


@pytest.mark.parametrize(
    "shell, file, settings",
    [
        ("bash", ".foldlog-complete.bash", ".bashrc"),
        ("zsh", ".foldlog-complete.zsh", ".zshrc"),
        ("fish", ".config/fish/completions/foldlog.fish", None),
    ],
)
def test_completion_is_installed_once(foldlog, tmp_path, monkeypatch, shell, file, settings):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    if settings:
        (tmp_path / settings).write_text("alias ll='ls -l'")
    for _ in range(2):
        installed = foldlog("--install-completion").out
    assert f"completion for {shell} is in" in installed
    assert "_FOLDLOG_COMPLETE" in (tmp_path / file).read_text()
    assert foldlog("--show-completion").out == (tmp_path / file).read_text()
    if settings:
        assert (tmp_path / settings).read_text() == f"alias ll='ls -l'\n. ~/{file}\n"


def test_settings_of_a_shell_may_have_any_bytes(foldlog, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/bin/bash")
    (tmp_path / ".bashrc").write_bytes(b"# caf\xe9")
    assert foldlog("--install-completion").status == 0
    assert (tmp_path / ".bashrc").read_bytes() == b"# caf\xe9\n. ~/.foldlog-complete.bash\n"


def test_a_script_that_click_prints_is_left_to_click(monkeypatch):
    monkeypatch.delenv("COMP_WORDS", raising=False)
    assert not complete_quickly("bash_source")


def test_an_id_without_a_store_has_no_completion(foldlog, monkeypatch):
    monkeypatch.setenv("_FOLDLOG_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "foldlog view x")
    monkeypatch.setenv("COMP_CWORD", "2")
    ran = foldlog()
    assert (ran.status, ran.out.strip(), ran.err) == (0, "", "")


def test_a_shell_without_completion_is_named(foldlog, monkeypatch):
    monkeypatch.setenv("SHELL", "/bin/csh")
    ran = foldlog("--install-completion")
    assert (ran.status, "for bash, zsh and fish, but the shell is csh" in ran.err) == (2, True)


def test_output_fits_the_terminal(foldlog, write, monkeypatch):
    name = "a-conversation-with-a-long-name-" * 3
    foldlog(
        "import", write("some.jsonl", SAMPLE.read_text().splitlines()[:100]), "--conversation", name
    )
    for typed in (
        *("list", "list -s", "log a-conv", "log a-conv --full", "view a-conv", "stats"),
        *("compare a-conv", f"condense {name} --dry-run", f"condense {name}", "diff a-conv"),
    ):
        for columns in (30, 79) if typed.startswith(("list", "log", "stats")) else (30,):
            monkeypatch.setenv("COLUMNS", str(columns))
            ran = foldlog(*typed.split())
            assert ran.status == 0
            assert [
                line
                for line in ran.out.splitlines()
                if line.rstrip() != name and len(line) > columns
            ] == [], typed
    assert " 102 " in foldlog("list -s").out
    assert name in foldlog("list").out  # whole, on one line


def test_diff_says_which_versions_it_takes(foldlog, write):
    foldlog("import", write("c.jsonl", SAMPLE.read_text().splitlines()[:3]))
    assert "0 to the number of events" in foldlog("diff --help").out
    assert [foldlog("diff c", 0, version).status for version in (0, 3, 4)] == [0, 0, 2]


def test_interrupted_import_continues(foldlog, write, tmp_path, monkeypatch):
    write("long.jsonl", [said(number, "again and again " * 50) for number in range(20)])
    set_sizes(monkeypatch, short=0, block=3_000, transaction=3_000)
    put = SourcesToWrite.put_blocks
    calls = itertools.count(1)

    def interrupted(*arguments):
        if next(calls) == 3:
            raise KeyboardInterrupt
        return put(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(SourcesToWrite, "put_blocks", interrupted)
        ran = foldlog("import long.jsonl")
    assert ran.status == 130
    assert ran.err.splitlines() == [
        "foldlog: note: all records that were read are stored; the same command continues after them",
        "foldlog: interrupted: completed work was kept, no partial data was written",
    ]
    ((stored,),) = execute("foldlog.db", "SELECT records FROM sources")
    assert 0 < stored < 20
    assert foldlog("store verify").status == 0
    shown = foldlog("import long.jsonl").out
    assert f": {20 - stored} new records, 20 in all" in shown
    assert foldlog("export long --output again.jsonl").status == 0
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "long.jsonl").read_bytes()


def test_half_made_store_is_removed(foldlog, tmp_path, monkeypatch):
    def interrupted(url):
        open_store(url).close()
        raise KeyboardInterrupt

    monkeypatch.setattr("foldlog._app.cli.stores.open_store", interrupted)
    assert foldlog("append c hi --new").status == 130
    assert [*tmp_path.iterdir()] == []


def test_command_is_interrupted_in_one_line(tmp_path):
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")
    early = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ran = subprocess.run(
        [FOLDLOG, "list", "--help"], env=early, capture_output=True, text=True, check=False
    )
    words = "foldlog: interrupted: completed work was kept, no partial data was written\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", words)
    late = (
        "atexit.register(os.kill, os.getpid(), signal.SIGINT); sys.argv[1:] = ['list', '--help'];"
        " main()"
    )
    program = f"import atexit, os, signal, sys\nfrom foldlog._app.cli import main\n{late}"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_json_is_an_option_anywhere(foldlog):
    assert foldlog("append c hello --new --key --json").out == "c: 1 event appended, 0\n"
    assert foldlog("-- list --json").rows() == ["c"]


@pytest.mark.parametrize("sent", ["[]", "3", "true", "null"])
def test_hook_names_what_it_expects(sent, foldlog, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(sent.encode())))
    ran = foldlog("hook")
    assert (ran.status, ran.out) == (0, "{}\n")
    assert (
        f"a program sends a JSON object with the fields of its hook on stdin, not {sent}" in ran.err
    )


def test_hook_works_after_two_dashes(foldlog, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"no JSON")))
    assert "the hook failed" in foldlog("-- hook").err
