"""Histories of other agents, imported into a store in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import foldlog
from foldlog import History

__all__ = ["SHIPPED", "imported"]

SHIPPED = Path(foldlog.__file__).parent / "sample"
"""The conversation of ``foldlog demo``."""


def imported(path: Path) -> Iterator[History]:
    """The histories at a path. Each can be read until the next one is asked for."""
    with foldlog.open("memory:") as histories:
        yield from histories.import_(path, findings=lambda _: None)
