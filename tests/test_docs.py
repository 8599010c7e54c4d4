"""What the documentation says is tried."""

import re
from pathlib import Path

import pytest

from tests import cli_reference

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "docs/FORKS.md",
    ROOT / "docs/PROJECTIONS.md",
    ROOT / "docs/RESUMING.md",
    ROOT / "docs/MESSAGES.md",
]
"""Pages whose examples stand on their own: each is run in an empty folder."""


def _examples():
    for page in PAGES:
        for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)):
            yield pytest.param(code, id=f"{page.name}-{number + 1}")


@pytest.mark.parametrize("code", list(_examples()))
def test_an_example_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "example", "exec"), {"__name__": "example"})


def test_each_page_has_examples():
    assert {"README.md-1", "RESUMING.md-1"} <= {example.id for example in _examples()}


def test_the_reference_of_the_command_is_what_its_help_says():
    assert cli_reference.PAGE.read_text() == cli_reference.page(), "scripts/cli-reference writes it anew"


def test_the_readme_names_every_command():
    assert cli_reference.README.read_text() == cli_reference.readme(), "scripts/cli-reference writes it anew"
    assert "| `foldlog view` |" in cli_reference.README.read_text()


def test_no_help_loses_a_word_that_looks_like_markup():
    assert "A TOML file with [condenser]." in cli_reference.PAGE.read_text()


def test_a_paragraph_of_a_help_is_broken_where_the_line_ends_and_nowhere_else():
    assert "all followers of its stores. Its age is the number" in " ".join(cli_reference.PAGE.read_text().split())
    assert "Its age is the number of\n" not in cli_reference.PAGE.read_text()
