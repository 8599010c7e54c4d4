"""The examples, commands, links and names of the documentation are right."""

import doctest
import importlib.util
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import foldlog
from benchmarks import pictures
from foldlog import Histories, History, Maintenance
from foldlog.formats import registry
from tests.commands import run_foldlog
from tests.golden import words

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "docs/FORKS.md",
    ROOT / "docs/errors.md",
    ROOT / "docs/PROJECTIONS.md",
    ROOT / "docs/RESUMING.md",
    ROOT / "docs/MESSAGES.md",
    ROOT / "docs/OBSERVING.md",
]
"""Pages whose examples stand on their own: each is run in an empty folder."""


STORIES = [
    ROOT / "docs/TUTORIAL.md",
    ROOT / "docs/STREAMS.md",
    *sorted((ROOT / "docs/how-to").glob("*.md")),
]
"""Pages whose examples continue one another, in one folder and with the same names."""
WITH_A_HISTORY = [ROOT / "docs/PAGE.md", ROOT / "docs/CONDENSERS.md"]
"""The same, with the shipped history in the folder: ``c1`` of ``history.db``. An import at the
start begins again.
"""


def _blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def test_python_guide_prints_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = doctest.ELLIPSIS | doctest.REPORT_ONLY_FIRST_FAILURE
    tried = doctest.testfile(
        str(ROOT / "docs/PYTHON.md"), module_relative=False, optionflags=options
    )
    assert (tried.failed, tried.attempted > 35) == (0, True)


def test_command_guide_prints_what_it_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    shutil.copy(ROOT / "foldlog/_app/sample/tidewatch.jsonl", tmp_path)
    guide = (ROOT / "docs/COMMAND.md").read_text()
    shown = re.findall(r"^\$ foldlog (.*)\n((?:(?!\$ |```).*\n)*)", guide, re.MULTILINE)
    assert len(shown) > 15
    same = doctest.OutputChecker().check_output
    for typed, expected in shown:
        run_foldlog(*shlex.split(typed))
        printed = "".join(capsys.readouterr())
        assert same(expected, printed, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE), (
            f"{typed}\n{printed}"
        )


def test_commands_of_the_questions_page_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOLDLOG_DB", "sample.db")
    with foldlog.open("sample.db") as histories:
        (history,) = histories.import_(ROOT / "foldlog/_app/sample/tidewatch.jsonl")
        history.fork(120, id="tidewatch-live")
    page = (ROOT / "docs/how-to/questions.md").read_text()
    commands = re.findall(r"`foldlog ([^`]+)`", page.partition("|---|")[2])
    assert len(commands) > 13
    for command in commands:
        capsys.readouterr()
        assert run_foldlog(*shlex.split(command)) == 0
        assert any(capsys.readouterr()), command


def test_python_guide_lists_each_method():
    guide = (ROOT / "docs/PYTHON.md").read_text()
    rows = " ".join(re.findall(r"^\| (`\w+\.\w+`.*?) \|", guide, re.MULTILINE))
    for face in (History, Histories, Maintenance):
        methods = {
            name
            for name, _ in inspect.getmembers(face, inspect.isfunction)
            if not name.startswith("_")
        }
        assert set(re.findall(rf"`{face.__name__.lower()}\.(\w+)`", rows)) == methods, face


@pytest.mark.parametrize(
    "page",
    [page for page in (*STORIES, *WITH_A_HISTORY) if _blocks(page)],
    ids=lambda page: page.name,
)
def test_examples_of_a_page_run_in_order(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # a page registers a format
    monkeypatch.setattr(registry, "REGISTERED", dict(registry.REGISTERED))
    if page in WITH_A_HISTORY:
        with foldlog.open("history.db") as histories:
            histories.import_(ROOT / "foldlog/_app/sample/tidewatch.jsonl", conversation="c1")
    names = {"__name__": "example"}
    for number, code in enumerate(_blocks(page), 1):
        # it can be copied alone
        if page in WITH_A_HISTORY and code.startswith(("from ", "import ")):
            names = {"__name__": "example"}
        exec(compile(code, f"{page.name}-{number}", "exec"), names)
    if page.name == "TUTORIAL.md":
        shown = "".join(
            re.findall(r"^```text\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        )
        assert shown == capsys.readouterr().out


def test_documented_format_works_as_a_package(tmp_path):
    page = ROOT / "docs/how-to/importer.md"
    (project,) = re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    brought = tomllib.loads(project)["project"]["entry-points"]["foldlog.formats"]
    (tmp_path / "my_bot.py").write_text(_blocks(page)[0])
    installed = tmp_path / "my_bot-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: my-bot\nVersion: 1.0\n")
    lines = "".join(f"{name} = {place}\n" for name, place in brought.items())
    (installed / "entry_points.txt").write_text(f"[foldlog.formats]\n{lines}")
    records = [
        {"who": "human", "say": "hi", "mood": None},
        {"who": "bot", "say": "yes?"},
        {"who": "nobody"},
    ]
    (tmp_path / "talk.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))

    def foldlog(*arguments):
        command = [sys.executable, "-m", "foldlog", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    imported = foldlog("import", "talk.jsonl")
    assert imported.returncode == 0
    assert (
        "talk.jsonl:3: a record is a text, a call of a tool, or the output of a tool"
        in imported.stderr
    )
    exported = foldlog("export", "talk")
    assert [json.loads(line) for line in exported.stdout.splitlines()] == records, exported.stderr
    assert "my-bot" in foldlog("import", "talk.jsonl", "--format", "nonsense").stderr


def test_every_python_example_is_run():
    elsewhere = {"CONFIGURATION.md"}  # tests/condensers
    pages = {page for page in (ROOT / "docs").rglob("*.md") if _blocks(page)}
    assert (
        pages - {*PAGES, *STORIES, *WITH_A_HISTORY} - {ROOT / "docs" / name for name in elsewhere}
        == set()
    )


def _examples():
    for page in PAGES:
        for number, code in enumerate(_blocks(page)):
            yield pytest.param(code, id=f"{page.name}-{number + 1}")


@pytest.mark.parametrize("code", list(_examples()))
def test_an_example_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "example", "exec"), {"__name__": "example"})


@pytest.mark.long
def test_examples_pass_mypy(tmp_path):
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        name = page.stem.lower().replace("-", "_")
        blocks = _blocks(page)
        if blocks and page not in PAGES:
            blocks = ["\n".join(blocks)]  # later blocks use the names of earlier ones
        for number, code in enumerate(blocks, 1):
            (tmp_path / f"{page.parent.name.replace('-', '_')}_{name}_{number}.py").write_text(code)
    assert len(list(tmp_path.iterdir())) > 15
    checked = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        ROOT / "pyproject.toml",
        *tmp_path.iterdir(),
    ]
    ran = subprocess.run(checked, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_each_page_has_examples():
    assert [page.name for page in PAGES if not _blocks(page)] == []


def test_command_reference_has_helps_and_outputs():
    page = _site_module("command_reference").page()
    assert "A TOML file with [condenser]." in " ".join(page.split()), (
        "a word that looks like markup is lost"
    )
    assert "foldlog shows the price of its tokens" in " ".join(page.split())
    assert "the price of its tokens\n" not in page, (
        "a paragraph is broken where the line does not end"
    )
    assert "\n## foldlog store erase\n" in page
    assert "$ foldlog why work 1\n" in page


def test_readme_command_prints_what_it_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_foldlog("demo") == 0
    capsys.readouterr()
    (why,) = (line for line in _lines_to_try() if line.startswith("foldlog why"))
    assert run_foldlog(*shlex.split(why, comments=True)[1:]) == 0
    (shown,) = re.findall(r"```text\n(.*?) …\n```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert capsys.readouterr().out.startswith(shown)


def _lines_to_try():
    (block,) = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    return block.splitlines()


def test_site_home_is_the_readmes_beginning():
    home = _site_module("hooks")._home()
    assert home.startswith("# foldlog\n")
    assert "## Why not" not in home
    pictures = re.findall(r"\]\((pictures/[\w.-]+)\)", home)
    assert pictures
    assert [name for name in pictures if not (ROOT / "docs" / name).exists()] == []


def _site_module(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"scripts/site/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_api_reference_has_every_public_name():
    page = _site_module("api_reference").page()
    assert [
        name
        for name in foldlog.__all__
        if f"\n### foldlog.{name}\n" not in page and f"`{name}`" not in page
    ] == []
    assert "**`History.append_reply(" in page
    # none without its docstring
    assert re.findall(r"^### (.*)\n\n```text\n.*\n```\n\n\n", page, re.MULTILINE) == []


def test_user_documents_have_40_000_words_at_most():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    counts = {
        path: len(path.read_text().split())
        for path in pages
        if "internals" not in path.parts and path.name != "ARCHITECTURE.md"  # for developers
    }
    assert sum(counts.values()) <= 40_000, counts


def test_site_names_every_page():
    named = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if not page.startswith("internals/decisions/")} | {
        "API.md",
        "CLI.md",
        "index.md",
        "internals/decisions.md",
    } == named


def test_pages_quote_what_compare_prints():
    guide = (ROOT / "docs/COMMAND.md").read_text()
    (costs,) = re.findall(
        r"^cost of prompts and condenser together +\$(\S+) +\$(\S+) +\$(\S+)", guide, re.MULTILINE
    )
    default, few_events, noop = map(float, costs)
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"a limit of 80 events saves {100 * (1 - few_events / noop):.0f} % of the cost" in readme
    (shown,) = re.findall(r"^needed again and shown +\S+ % +(\S+) %", guide, re.MULTILINE)
    assert f"still had {float(shown):.0f} % of the names that the agent used again" in readme
    choosing = " ".join((ROOT / "docs/CONDENSERS.md").read_text().split())
    saved = [f"{100 * (1 - cost / noop):.0f} %" for cost in (default, few_events)]
    assert (
        f"a limit of 32,000 tokens saves {saved[0]}, and a limit of 80 events saves {saved[1]}"
        in choosing
    )
    (sent,) = re.findall(r"^sent in total, tokens +\S+ +(\S+) +(\S+)", guide, re.MULTILINE)
    less, more = (int(tokens.replace(",", "")) / 1e6 for tokens in sent)
    assert f"the model gets {less:.1f} instead of {more:.1f} million tokens" in readme


def test_picture_of_a_view_shows_the_demo(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_foldlog("demo", "--db", "d.db") == 0
    with foldlog.open("d.db") as histories:
        drawn = pictures.view_svg(histories[pictures.LIVE])
    assert drawn == (pictures.PICTURES / "view.svg").read_text(), "python -m benchmarks.pictures"


def test_quoted_sections_exist():
    """Such as ([POSTGRESQL.md](POSTGRESQL.md), "From SQLite and back")."""
    quoted = re.compile(r"\]\(([\w./-]+\.md)\)[^\"\n]{0,3}\s*\"([^\"]+)\"")
    missing = []
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for target, heading in quoted.findall(page.read_text()):
            text = (page.parent / target).read_text()
            if not re.search(rf"^#+ {re.escape(heading)}$", text, re.MULTILINE):
                missing.append(f"{page.name}: {target} has no section {heading!r}")
    assert missing == []


def test_words_for_completion_are_up_to_date():
    assert words.FILE.read_text() == words.lines(), "run python -m tests.golden.words"
