"""Figures that are measured in pieces: each piece is a file in a folder, and a later run joins the
pieces.

So a long measurement may be killed at any time, and several processes may share one measurement.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["Pieces"]


class Pieces:
    """Figures by name, in the files of a folder. Without a folder, nothing is kept.

    ``of`` is JSON that says what was measured, such as the histories. The code is not part of it:
    after a change of what is measured, use an empty folder.
    """

    def __init__(self, folder: Path | None, of: Any) -> None:
        self._folder = folder
        self._of = of

    def figures(self, name: str, measure: Callable[[], Any]) -> Any:
        """Return the stored figures, or else measure and store them. Raises ``ValueError`` if the
        stored figures are of something else.
        """
        if self._folder is None:
            return measure()
        path = self._folder / f"{re.sub('[^a-z0-9]+', '-', name.lower())}.json"
        if path.exists():
            piece = json.loads(path.read_text(encoding="utf-8"))
            if (piece["name"], piece["of"]) != (name, self._of):
                raise ValueError(
                    f"{path} has the figures of another measurement. Remove the file, or name"
                    " another folder"
                )
            return piece["figures"]
        piece = {"name": name, "of": self._of, "figures": measure()}
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(piece, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(path)
        return piece["figures"]
