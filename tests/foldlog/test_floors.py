"""A floor that another distribution replaced is noticed at import."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import condensers
import eventstore
import foldlog
import projections

ROOT = Path(__file__).parents[2]


def test_all_four_packages_are_of_the_version_of_the_project():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    named = {package.__foldlog__ for package in (eventstore, projections, condensers)}
    assert {foldlog.__version__, *named} == {version}


@pytest.mark.parametrize(
    "text, said",
    [
        ("def open_store(): ...\n", "needs its own package 'eventstore', and found another one"),
        ('"""Ours."""\n__foldlog__ = "0.0.9"\n', "found the package 'eventstore' of foldlog 0.0.9"),
    ],
)
def test_a_floor_of_another_maker_or_version_is_one_clear_error(tmp_path, text, said):
    (tmp_path / "eventstore").mkdir()
    (tmp_path / "eventstore" / "__init__.py").write_text(text)
    code = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]; import foldlog"
    ran = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False)
    last = ran.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert said in last
    assert str(tmp_path) in last
    assert "pip install --force-reinstall foldlog==" in last
