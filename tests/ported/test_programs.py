"""Programs for the published architecture, with only their import lines changed."""

import runpy
from pathlib import Path
from unittest.mock import patch

import pytest

from foldlog.condensers import CONDENSER_REGISTRY, list_strategies

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.stem for program in PROGRAMS])
def test_program_of_the_published_architecture_runs(program: Path) -> None:
    assert list_strategies()  # ours are registered before those of a program, which go again
    with patch.dict(CONDENSER_REGISTRY):
        runpy.run_path(str(program))
