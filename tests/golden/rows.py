"""Rows of parametrized tests that stand in a JSON file of this folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["rows"]


def rows(file: str, part: str) -> list[Any]:
    found: list[Any] = json.loads((Path(__file__).parent / file).read_text("utf-8"))[part]
    return found
