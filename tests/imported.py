"""Histories of other agents, imported into a store in memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import foldlog
from foldlog import History
from tests.beside import SAMPLES, needs_samples

SHIPPED = Path(foldlog.__file__).parent / "_app/sample"
"""The conversation of ``foldlog demo``."""

real_histories = pytest.mark.parametrize(
    "path",
    [SHIPPED, pytest.param(SAMPLES, marks=[pytest.mark.long, needs_samples])],
    ids=["shipped", "all"],
)
"""Runs a test with the ``path`` of each folder of real histories."""


def imported(path: Path) -> Iterator[History]:
    """Import the histories at a path. Each can be read until the next one is requested."""
    with foldlog.open("memory:") as histories:
        yield from histories.import_(path, findings=lambda _: None)
